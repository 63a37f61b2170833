"""Compiles a field table and a version into a reader.

Owns the decoding of structures (https://kafka.apache.org/protocol, KIP-482):

- null is rejected if the field is not nullable in that version;
- each tagged field is decoded inside its declared size, and unknown ones are kept;
- a length is checked against the remaining bytes, and an array's also against a limit, before anything is allocated.

Readers are closures, compiled on first use, once per (structure, version) in a process; adjacent fixed-width fields become
one :class:`struct.Struct`. No source is generated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol import primitives
from pykafka_wire.wire.protocol.fields import FORMATS, WIDTHS, Field, Struct, struct_of
from pykafka_wire.wire.protocol.primitives import Buffer, LengthReader

# Any: the tables contain readers of every type; types are checked in the class declarations.
Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]

_StructT = TypeVar("_StructT", bound=Struct)

# Filled once per (structure, version, flexible) and never changed afterwards. Two threads may compile the same; that is harmless.
_readers: Final[dict[tuple[type, int, bool], Reader]] = {}
_with_records: Final[dict[type, bool]] = {}


def reader(cls: type[_StructT], version: int, flexible: bool) -> Callable[[Buffer, int], tuple[_StructT, int]]:
    """The reader of a structure in a version of its message."""
    key = (cls, version, flexible)
    read = _readers.get(key)
    if read is None:
        read = _readers[key] = _struct_reader(cls, version, flexible)
    return read


def has_records(cls: type[Struct]) -> bool:
    """Whether record batches are anywhere in the structure, so that its frame must not be copied."""
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
        count, position = primitives.decode_uvarint(buffer, position)
        previous = -1
        for _ in range(count):
            tag, position = primitives.decode_uvarint(buffer, position)
            size, position = primitives.decode_uvarint(buffer, position)
            if tag <= previous:
                raise ProtocolError(f"tagged field {tag} of {cls.__name__} follows {previous}: they must ascend")
            previous = tag
            if size > len(buffer) - position:
                left = len(buffer) - position
                raise ProtocolError(f"tagged field {tag} of {cls.__name__} claims {size} bytes with {left} left")
            section, position = buffer[position : position + size], position + size
            if tag in known:
                set_value, read_value, where = known[tag]
                try:
                    value, used = read_value(section, 0)
                except primitives.SHORT_READ as error:
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
    """The minimum size of a value in bytes."""
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
