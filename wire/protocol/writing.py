"""Compiles a field table and a version into a writer.

Owns the encoding of structures (https://kafka.apache.org/protocol, KIP-482):

- null is rejected if the field is not nullable in that version;
- a field that the version lacks is omitted if it is ignorable or has its default, and rejected otherwise;
- tagged fields are at the end of their structure in ascending order; those equal to their default are omitted.

Writers are closures, compiled on first use, once per (structure, version) in a process; adjacent fixed-width fields become
one :class:`struct.Struct`. No source is generated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import primitives
from pykafka_wire.wire.protocol.fields import FORMATS, Field, Struct, struct_of
from pykafka_wire.wire.protocol.primitives import Segment

# Any: the tables contain writers of every type; types are checked in the class declarations.
Writer: TypeAlias = Callable[[Any, list[Segment]], None]

#: The errors for a value outside its field's type or range.
_BAD_VALUE: Final = (struct.error, TypeError, AttributeError, OverflowError)

# Filled once per (structure, version, flexible) and never changed afterwards. Two threads may compile the same; that is harmless.
_writers: Final[dict[tuple[type, int, bool], Writer]] = {}


def writer(cls: type[Struct], version: int, flexible: bool) -> Writer:
    """The writer of a structure in a version of its message."""
    key = (cls, version, flexible)
    write = _writers.get(key)
    if write is None:
        write = _writers[key] = _struct_writer(cls, version, flexible)
    return write


def coalesced(segments: list[Segment]) -> list[Segment]:
    """The segments with each run of bytes joined; views stay as they are."""
    joined: list[Segment] = []
    run: list[Segment] = []
    for segment in segments:
        if isinstance(segment, memoryview):
            if run:
                joined.append(b"".join(run))
                run = []
            joined.append(segment)
        else:
            run.append(segment)
    if run or not joined:
        joined.append(b"".join(run))
    return joined


def _struct_writer(cls: type[Struct], version: int, flexible: bool) -> Writer:
    steps: list[tuple[str, Writer]] = []
    absent: list[tuple[Field, Callable[[object], object], object]] = []
    run: list[Field] = []
    for field in cls.fields:
        if not field.in_version(version):
            if not field.ignorable:
                absent.append((field, attrgetter(field.name), field.new_default()))
        elif field.tag is None and field.kind in FORMATS:
            run.append(field)
        elif field.tag is None:
            steps += _fused_writer(run)
            run = []
            steps.append((field.name, _attribute_writer(field, version, flexible, f"{cls.__name__}.{field.name}")))
    steps += _fused_writer(run)
    steps.append(("unknown_tags", _tags_writer(cls, version) if flexible else _no_tags_writer(cls)))

    def write(value: Struct, segments: list[Segment]) -> None:
        for field, get, default in absent:
            if get(value) != default:
                raise UnsupportedVersionError(
                    f"{cls.__name__}.{field.name} is set, but version {version} does not have it"
                )
        name = ""
        try:
            for name, step in steps:  # noqa: B007 (used if a step fails)
                step(value, segments)
        except _BAD_VALUE as error:
            raise ProtocolError(f"{cls.__name__}.{name} cannot be encoded: {error}") from error

    return write


def _fused_writer(run: list[Field]) -> list[tuple[str, Writer]]:
    """A step that packs all these fields at once; none without fields."""
    if not run:
        return []
    pack = struct.Struct(">" + "".join(FORMATS[field.kind] for field in run)).pack
    names = [field.name for field in run]
    get = attrgetter(*names)
    if len(run) == 1:
        return [(names[0], lambda value, segments: segments.append(pack(get(value))))]
    return [("/".join(names), lambda value, segments: segments.append(pack(*get(value))))]


def _attribute_writer(field: Field, version: int, flexible: bool, where: str) -> Writer:
    get = attrgetter(field.name)
    write_value = _value_writer(field, version, flexible, where)
    return lambda value, segments: write_value(get(value), segments)


def _no_tags_writer(cls: type[Struct]) -> Writer:
    def write_none(value: Struct, segments: list[Segment]) -> None:
        if value.unknown_tags:
            raise UnsupportedVersionError(f"{cls.__name__} has tagged fields, but this version does not allow them")

    return write_none


def _tags_writer(cls: type[Struct], version: int) -> Writer:
    known: list[tuple[int, Callable[[object], object], object, Writer]] = []
    for field in cls.fields:
        if field.tag is not None and field.in_version(version):
            write_value = _value_writer(field, version, True, f"{cls.__name__}.{field.name}")
            known.append((field.tag, attrgetter(field.name), field.new_default(), write_value))

    def write_tags(value: Struct, segments: list[Segment]) -> None:
        tagged = dict(value.unknown_tags)
        for tag, get, default, write_value in known:
            if tag in tagged:
                raise ProtocolError(f"unknown_tags of {cls.__name__} contains tag {tag}, which is a known field")
            field_value = get(value)
            if field_value != default:
                encoded: list[Segment] = []
                write_value(field_value, encoded)
                tagged[tag] = b"".join(encoded)
        segments.append(primitives.encode_uvarint(len(tagged)))
        for tag in sorted(tagged):
            segments += (primitives.encode_uvarint(tag), primitives.encode_uvarint(len(tagged[tag])), tagged[tag])

    return write_tags


def _value_writer(field: Field, version: int, flexible: bool, where: str) -> Writer:
    kind = field.kind
    if kind in FORMATS:
        pack = struct.Struct(">" + FORMATS[kind]).pack
        return lambda value, segments: segments.append(pack(value))
    if kind == "uuid":
        return lambda value, segments: segments.append(value.bytes)
    if kind == "struct":
        return _struct_value_writer(field, version, flexible, where)
    encode_length: Callable[[int], bytes]
    if flexible and field.compact:
        encode_length = primitives.encode_compact_length
    else:
        encode_length = primitives.encode_length16 if kind == "string" else primitives.encode_length32
    write_items: Callable[[Any, list[Segment], Callable[[int], bytes]], None]
    if kind == "array":
        write_items = _items_writer(field, version, flexible, where)
    elif kind == "string":
        write_items = _write_text
    else:
        write_items = _write_records if kind == "records" else _write_bytes
    nullable = field.nullable_in(version)

    def write(value: Any, segments: list[Segment]) -> None:
        if value is not None:
            write_items(value, segments, encode_length)
        elif nullable:
            segments.append(encode_length(-1))
        else:
            raise ProtocolError(f"{where} is null, which version {version} does not allow")

    return write


def _write_text(value: str, segments: list[Segment], encode_length: Callable[[int], bytes]) -> None:
    data = primitives.encode_text(value)
    segments += (encode_length(len(data)), data)


def _write_bytes(value: Segment, segments: list[Segment], encode_length: Callable[[int], bytes]) -> None:
    data = b"".join((value,))
    segments += (encode_length(len(data)), data)


def _write_records(
    value: Segment | list[Segment], segments: list[Segment], encode_length: Callable[[int], bytes]
) -> None:
    views = [memoryview(part) for part in (value if isinstance(value, list) else [value])]
    segments.append(encode_length(sum(view.nbytes for view in views)))
    segments += views


def _struct_value_writer(field: Field, version: int, flexible: bool, where: str) -> Writer:
    cls = struct_of(field)
    write_struct = writer(cls, version, flexible)
    nullable = field.nullable_in(version)

    def write(value: Struct | None, segments: list[Segment]) -> None:
        if value is None:
            if not nullable:
                raise ProtocolError(f"{where} is null, which version {version} does not allow")
            segments.append(b"\xff")
            return
        _check_type(value, cls, where)
        if nullable:
            segments.append(b"\x01")
        write_struct(value, segments)

    return write


def _items_writer(
    field: Field, version: int, flexible: bool, where: str
) -> Callable[[list[Any], list[Segment], Callable[[int], bytes]], None]:
    item = field.item
    if isinstance(item, Field):
        code = FORMATS.get(item.kind)
        if code is not None:

            def write_fixed(values: list[Any], segments: list[Segment], encode_length: Callable[[int], bytes]) -> None:
                segments += (encode_length(len(values)), struct.pack(f">{len(values)}{code}", *values))

            return write_fixed
        write_item = _value_writer(item, version, flexible, f"an element of {where}")
        cls = None
    else:
        cls = struct_of(field)
        write_item = writer(cls, version, flexible)

    def write(values: list[Any], segments: list[Segment], encode_length: Callable[[int], bytes]) -> None:
        segments.append(encode_length(len(values)))
        for value in values:
            if cls is not None:
                _check_type(value, cls, where)
            write_item(value, segments)

    return write


def _check_type(value: object, cls: type[Struct], where: str) -> None:
    if type(value) is not cls:
        raise ProtocolError(f"{where} takes {cls.__name__}, not {type(value).__name__}")
