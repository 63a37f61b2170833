"""Compiles a field table and a version into a writer and a reader.

Owns how structures are encoded (https://kafka.apache.org/protocol, KIP-482). Written:

- null is rejected if the field is not nullable in that version;
- a field that the version lacks is omitted if it is ignorable or has its default, and rejected otherwise;
- tagged fields are at the end of their structure in ascending order; those equal to their default are omitted.

Read:

- null is rejected if the field is not nullable in that version;
- each tagged field is decoded inside its declared size, and unknown ones are kept;
- a length is checked against the remaining bytes, and an array's also against a limit, before anything is allocated.

Both are closures, compiled on first use, once per (structure, version) in a process; adjacent fixed-width fields become
one :class:`struct.Struct`. No source is generated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar, cast

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import primitives
from pykafka_wire.wire.protocol.fields import FORMATS, WIDTHS, Field, Struct, struct_of
from pykafka_wire.wire.protocol.primitives import LengthReader, Segment
from pykafka_wire.wire.single_varint import SHORT_READ, Buffer, decode_uvarint, encode_uvarint

# --- writing ----------------------------------------------------------------------------------------------------------

# Any: the tables contain writers of every type; types are checked in the class declarations.
Writer: TypeAlias = Callable[[Any, list[Segment]], None]

#: The errors for a value outside its field's type or range.
_BAD_VALUE: Final = (struct.error, TypeError, AttributeError, OverflowError)

# Filled once per (structure, version, flexible) and never changed afterwards. Two threads may compile the same; that is harmless.
_writers: Final[dict[tuple[type, int, bool], Writer]] = {}


def writer(cls: type[Struct], version: int, flexible: bool) -> Writer:
    """Return the writer of a structure in a version of its message."""
    key = (cls, version, flexible)
    write = _writers.get(key)
    if write is None:
        write = _writers[key] = _struct_writer(cls, version, flexible)
    return write


def coalesce(segments: list[Segment]) -> list[Segment]:
    """Return the segments with each run of bytes joined; views stay as they are."""
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
    """Return a step that packs all these fields at once; none without fields."""
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
        segments.append(encode_uvarint(len(tagged)))
        for tag in sorted(tagged):
            segments += (encode_uvarint(tag), encode_uvarint(len(tagged[tag])), tagged[tag])

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


def _write_records(value: Segment, segments: list[Segment], encode_length: Callable[[int], bytes]) -> None:
    view = memoryview(value)
    segments += (encode_length(view.nbytes), view)


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


# --- reading ----------------------------------------------------------------------------------------------------------

# Any: the tables contain readers of every type; types are checked in the class declarations.
Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]

_StructT = TypeVar("_StructT", bound=Struct)

# Filled once per (structure, version, flexible) and never changed afterwards. Two threads may compile the same; that is harmless.
_readers: Final[dict[tuple[type, int, bool], Reader]] = {}
_with_records: Final[dict[type, bool]] = {}


def reader(cls: type[_StructT], version: int, flexible: bool) -> Callable[[Buffer, int], tuple[_StructT, int]]:
    """Return the reader of a structure in a version of its message."""
    key = (cls, version, flexible)
    read = _readers.get(key)
    if read is None:
        read = _readers[key] = _struct_reader(cls, version, flexible)
    return read


def has_records(cls: type[Struct]) -> bool:
    """Return whether record batches are anywhere in the structure, so that its frame must not be copied."""
    known = _with_records.get(cls)
    if known is None:
        known = _with_records[cls] = any(
            field.kind == "records" or (isinstance(field.item, type) and has_records(struct_of(field)))
            for field in cls.fields
        )
    return known


def _struct_reader(cls: type[Struct], version: int, flexible: bool) -> Reader:
    regular = [field for field in cls.fields if field.in_version(version) and field.tag is None]
    others = [field for field in cls.fields if not field.in_version(version) or field.tag is not None]
    constant = [field for field in others if not isinstance(field.default, type)]
    fresh = [field for field in others if isinstance(field.default, type)]

    steps: list[tuple[Callable[[Buffer, int], tuple[object, ...]] | None, int, Reader | None]] = []
    fused = ">"
    for field in regular:
        if field.kind in FORMATS:
            fused += FORMATS[field.kind]
            continue
        read_value = _value_reader(field, version, flexible, f"{cls.__name__}.{field.name}")
        steps.append((struct.Struct(fused).unpack_from if fused != ">" else None, struct.calcsize(fused), read_value))
        fused = ">"
    if fused != ">":
        steps.append((struct.Struct(fused).unpack_from, struct.calcsize(fused), None))

    constants = tuple(field.default for field in constant)
    factories = (*(cast("Callable[[], object]", field.default) for field in fresh), dict)
    order = [field.name for field in (*regular, *constant, *fresh)]
    setters = tuple(cls.setters[name] for name in (*order, "unknown_tags"))
    read_tags = _tags_reader(cls, version) if flexible else None
    new = object.__new__

    def read(buffer: Buffer, position: int) -> tuple[Struct, int]:
        values: list[object] = []
        for unpack, size, read_value in steps:
            if unpack is not None:
                values += unpack(buffer, position)
                position += size
            if read_value is not None:
                value, position = read_value(buffer, position)
                values.append(value)
        values += constants
        for factory in factories:
            values.append(factory())
        result = new(cls)
        for set_value, value in zip(setters, values, strict=True):
            set_value(result, value)
        if read_tags is not None:
            # Usually there is no tagged field: one zero byte.
            position = read_tags(result, buffer, position) if buffer[position] else position + 1
        return result, position

    return read


def _tags_reader(cls: type[Struct], version: int) -> Callable[[Struct, Buffer, int], int]:
    known: dict[int, tuple[Callable[[object, object], None], Reader, str]] = {}
    for field in cls.fields:
        if field.tag is not None and field.in_version(version):
            where = f"{cls.__name__}.{field.name}"
            known[field.tag] = (cls.setters[field.name], _value_reader(field, version, True, where), where)

    def read_tags(result: Struct, buffer: Buffer, position: int) -> int:
        count, position = decode_uvarint(buffer, position)
        previous = -1
        for _ in range(count):
            tag, position = decode_uvarint(buffer, position)
            size, position = decode_uvarint(buffer, position)
            if tag <= previous:
                raise ProtocolError(f"tagged field {tag} of {cls.__name__} follows {previous}: they must ascend")
            previous = tag
            if size > len(buffer) - position:
                n_left = len(buffer) - position
                raise ProtocolError(f"tagged field {tag} of {cls.__name__} claims {size} bytes with {n_left} left")
            section, position = buffer[position : position + size], position + size
            if tag in known:
                set_value, read_value, where = known[tag]
                try:
                    value, used = read_value(section, 0)
                except SHORT_READ as error:
                    raise ProtocolError(f"tagged field {where} needs more than its {size} bytes") from error
                except ProtocolError as error:
                    raise ProtocolError(f"tagged field {where} of {size} bytes: {error.message}") from error
                if used != size:
                    raise ProtocolError(f"tagged field {where} has {size} bytes and uses {used}")
                set_value(result, value)
            else:
                result.unknown_tags[tag] = bytes(section)
        return position

    return read_tags


def _value_reader(field: Field, version: int, flexible: bool, where: str) -> Reader:
    kind = field.kind
    if kind in FORMATS:
        return _fixed_reader(FORMATS[kind])
    if kind == "uuid":
        return primitives.decode_uuid
    if kind == "struct":
        return _struct_value_reader(field, version, flexible)
    compact = flexible and field.compact
    read_length: LengthReader
    if compact:
        read_length = primitives.decode_compact_length
    else:
        read_length = primitives.decode_length16 if kind == "string" else primitives.decode_length32
    read_items: Callable[[Buffer, int, int], tuple[Any, int]]
    if kind == "array":
        read_items = _items_reader(field, version, flexible, where)
    else:
        read_items = {"string": primitives.decode_text, "bytes": _read_bytes, "records": primitives.decode_view}[kind]
    nullable = field.nullable_in(version)

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_length(buffer, position)
        if length < 0:
            if nullable:
                return None, position
            raise ProtocolError(f"{where} is null, which version {version} does not allow")
        return read_items(buffer, position, length)

    return read


def _read_bytes(buffer: Buffer, position: int, length: int) -> tuple[bytes, int]:
    view, position = primitives.decode_view(buffer, position, length)
    return bytes(view), position


def _fixed_reader(code: str) -> Reader:
    fixed = struct.Struct(">" + code)
    unpack, size = fixed.unpack_from, fixed.size
    return lambda buffer, position: (unpack(buffer, position)[0], position + size)


def _struct_value_reader(field: Field, version: int, flexible: bool) -> Reader:
    read_struct = reader(struct_of(field), version, flexible)
    if not field.nullable_in(version):
        return read_struct
    read_marker = _fixed_reader("b")

    def read(buffer: Buffer, position: int) -> tuple[Struct | None, int]:
        marker, position = read_marker(buffer, position)
        return (None, position) if marker < 0 else read_struct(buffer, position)

    return read


def _items_reader(
    field: Field, version: int, flexible: bool, where: str
) -> Callable[[Buffer, int, int], tuple[list[Any], int]]:
    item = field.item
    read_item: Reader
    code = None
    if isinstance(item, Field):
        code = FORMATS.get(item.kind)
        read_item = _value_reader(item, version, flexible, f"an element of {where}")
        min_bytes = _min_bytes(item, version, flexible)
    else:
        read_item = reader(struct_of(field), version, flexible)
        min_bytes = _min_struct_bytes(struct_of(field), version, flexible)

    def check(buffer: Buffer, position: int, length: int) -> None:
        if length * min_bytes > len(buffer) - position:
            raise ProtocolError(f"{where} claims {length} elements with {len(buffer) - position} bytes left")
        if length > primitives.MAX_ARRAY_ELEMENTS:
            raise ProtocolError(f"{where} claims {length} elements, at most {primitives.MAX_ARRAY_ELEMENTS} are read")

    if code is not None:
        # Replica lists: short, and the bulk of Metadata.
        short = tuple(struct.Struct(f">{n}{code}").unpack_from for n in range(8))

        def read_fixed(buffer: Buffer, position: int, length: int) -> tuple[list[Any], int]:
            if length < 8:
                return list(short[length](buffer, position)), position + length * min_bytes
            check(buffer, position, length)
            return list(struct.unpack_from(f">{length}{code}", buffer, position)), position + length * min_bytes

        return read_fixed

    def read(buffer: Buffer, position: int, length: int) -> tuple[list[Any], int]:
        check(buffer, position, length)
        items: list[Any] = []
        for _ in range(length):
            value, position = read_item(buffer, position)
            items.append(value)
        return items, position

    return read


def _min_bytes(field: Field, version: int, flexible: bool) -> int:
    """Return the minimum size of a value in bytes."""
    if field.kind in WIDTHS:
        return WIDTHS[field.kind]
    if field.kind == "struct":
        return 1 if field.nullable_in(version) else _min_struct_bytes(struct_of(field), version, flexible)
    if flexible and field.compact:
        return 1
    return 2 if field.kind == "string" else 4


def _min_struct_bytes(cls: type[Struct], version: int, flexible: bool) -> int:
    fields = (field for field in cls.fields if field.in_version(version) and field.tag is None)
    return sum(_min_bytes(field, version, flexible) for field in fields) + flexible
