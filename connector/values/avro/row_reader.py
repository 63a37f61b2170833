"""Reads Avro values one by one: what columns leave, to find the reason or to read it after all.

Owns the way from a resolved schema (:mod:`~pykafka_wire.values.avro.resolution`) to functions that read one value of it, as what
``pa.array`` takes for the wanted type. Every allocation is bounded by the bytes that were read.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.arrow_conversion import conversion_to, key_conversion_to, not_null
from pykafka_wire.values.avro import resolution
from pykafka_wire.values.avro.bulk_reader import FREE_BYTES, FREE_PER_BYTE
from pykafka_wire.values.avro.connect_names import connect_type_of, counted_by
from pykafka_wire.values.avro.connect_values import (
    VARIABLE_DECIMAL,
    decimal_conversion,
    decimal_of_struct,
    is_variable_decimal,
    time_of_text,
)
from pykafka_wire.values.avro.defaults import Defaults
from pykafka_wire.values.avro.resolution import scale_of
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, logical_of
from pykafka_wire.values.avro.types import is_member_struct
from pykafka_wire.values.bulk.reading import item_bytes
from pykafka_wire.values.numeric_times import days_of, micros_of
from pykafka_wire.values.single_json.encodings import decimal_of_bytes
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.values.single_json.variant import variant_of
from pykafka_wire.values.single_json.variant_type import is_variant

#: Array items and their fields that take no bytes (nulls, empty records): few schemas have any, and a few bytes can claim
#: billions of them.
_MAX_FREE: Final = 1_000
#: Python's own stack has a thousand frames, of which each level takes up to four.
_MAX_DEPTH: Final = 150
_MASK: Final = (1 << 64) - 1
#: Reads a reader's next value. Any, since it is what Python has for any type.
Read = Callable[["ByteReader"], Any]

#: The units of Spark's TIMESTAMP and of its TIME.
_MICROS: Final = pa.timestamp("us")
_NANOS: Final = pa.time64("ns")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)
_DAY_NANOS: Final = 86_400_000_000_000
_LONG_BITS: Final = 64
#: What an item takes as a Python value and in the JSON that is made of it, without its fields' names and texts.
_NATURAL_BYTES: Final = 64


class ByteReader:
    """Reads from ``data`` at ``at``, which it advances."""

    __slots__ = ("_depth", "_n_free", "_room", "at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._depth = 0
        self._n_free = 0
        self._room = FREE_BYTES + FREE_PER_BYTE * len(data)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises DecodeError where they are not there."""
        start, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            raise DecodeError("it is shorter than its schema says")
        self.at = end
        return self.data[start:end]

    def long(self) -> int:
        """Return the next zigzag varint. Raises DecodeError where it has no end within ten bytes."""
        data, position = self.data, self.at
        number = shift = 0
        try:
            while True:
                byte = data[position]
                position += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise DecodeError("an integer of more than ten bytes")
        except IndexError:
            raise DecodeError("it is shorter than its schema says") from None
        self.at = position
        number &= _MASK  # as the Java library, which drops what the tenth byte has above 64 bits
        return (number >> 1) ^ -(number & 1)

    def block(self) -> int:
        """Return the number of items in the next block of an array or a map; 0 behind the last."""
        count = self.long()
        if count < 0:
            count = -count
            self.long()
        return count

    def descend(self) -> None:
        """Go into a record; :meth:`ascend` leaves it. Raises DecodeError where records are nested too deep."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DecodeError(f"its records are nested more than {_MAX_DEPTH} deep")

    def ascend(self) -> None:
        self._depth -= 1

    def spend(self, n_bytes: int) -> None:
        """Count memory that no bytes of the value stand for. Raises DecodeError where it is too much for its size."""
        self._room -= n_bytes
        if self._room < 0:
            raise DecodeError(
                f"its arrays and maps hold too much for its size: more than {FREE_BYTES >> 20} MiB and {FREE_PER_BYTE} bytes of "
                "memory for each of its own"
            )

    def check_item(self, start: int, item_bytes: int) -> None:
        """Count an item that was read since ``at``, and that takes ``item_bytes`` in a column.

        Raises:
            DecodeError: too many took no bytes of the value, or all take too much for its size.
        """
        self.spend(item_bytes)
        if self.at == start:
            self._n_free += 1
            if self._n_free > _MAX_FREE:
                raise DecodeError(f"its arrays have more than {_MAX_FREE} items that take no bytes")


def reader_of(node: resolution.ResolvedNode, wanted: pa.DataType, read: ParsedSchema) -> Callable[[bytes], Any]:
    """Return a function from a payload to what ``pa.array(…, wanted)`` takes; it raises DecodeError.

    Args:
        read: the reader's schema, or the writer's where there is no other: it holds the types of the defaults.
    """
    read_value = RowReader(read).of(node, wanted)

    def read_one(payload: bytes) -> Any:
        reader = ByteReader(payload)
        value = read_value(reader)
        if reader.at != len(payload):
            raise DecodeError(f"{len(payload) - reader.at} bytes are left over after what its schema describes")
        return value

    return read_one


class Way(Enum):
    """How a value is read that has no column's type."""

    NATURAL = "as Python's own type for it; a union's is that of the branch"
    SKIPPED = "not at all: what it holds is not looked at"


#: A pa.DataType, which mypy does not know, or a :class:`Way`.
Wanted = Any


class RowReader:
    """Makes the functions that read nodes; a record's is made once for each wanted type, since records may hold themselves."""

    def __init__(self, read: ParsedSchema) -> None:
        self._defaults = Defaults(read)
        self._default_bytes = 0
        self._records: dict[tuple[resolution.ResolvedRecord, Wanted], Read] = {}

    def of(self, node: resolution.ResolvedNode, wanted: Wanted) -> Read:  # noqa: C901
        """Read a value as ``wanted``, or goe past it."""
        is_a = pa.types
        if isinstance(node, resolution.Mismatch):
            return _fail(node.reason)
        if isinstance(node, resolution.Branch):
            if isinstance(wanted, Way) or node.member is None or not is_member_struct(wanted):
                return self.of(node.value, wanted)
            return self._member(node, wanted)
        if isinstance(node, resolution.WrittenUnion):
            return _union([self.of(branch, wanted) for branch in node.branches])
        if isinstance(node, resolution.ResolvedRecord):
            if isinstance(wanted, Way) or is_a.is_struct(wanted):
                return self._record(node, wanted)
            if is_variable_decimal(node.read):
                read_struct, of_decimal = self._record(node, VARIABLE_DECIMAL), decimal_conversion(wanted)
                return lambda reader: of_decimal(decimal_of_struct(read_struct(reader)))
        if wanted is Way.SKIPPED:
            if isinstance(node, resolution.Blocks):
                item = self.of(node.item, wanted)
                return _array(_entry(item) if node.is_map else item)
            return _skip_scalar(node) if isinstance(node, resolution.ResolvedScalar) else ByteReader.long
        if wanted is Way.NATURAL:
            if isinstance(node, resolution.Blocks):
                item = self.of(node.item, wanted)
                return _map(item, str, _NATURAL_BYTES) if node.is_map else _array(item, _NATURAL_BYTES)
            if isinstance(node, resolution.ResolvedSymbols):
                return _symbol(node.names)
            assert isinstance(node, resolution.ResolvedScalar)
            return _natural_scalar(node)
        if isinstance(node, resolution.Blocks) and not node.is_map and is_a.is_list(wanted):
            return _array(self._field(node.item, wanted.value_field), item_bytes(wanted.value_type))
        if isinstance(node, resolution.Blocks) and node.is_map and is_a.is_map(wanted):
            size = item_bytes(wanted.key_type) + item_bytes(wanted.item_type)
            return _map(self._field(node.item, wanted.item_field), key_conversion_to(wanted.key_type, "utf-8"), size)
        if isinstance(node, resolution.ResolvedScalar) and (stored := _stored_reader(node, wanted)) is not None:
            return stored
        natural, convert = self.of(node, Way.NATURAL), conversion_to(wanted, "utf-8")
        return lambda reader: convert(natural(reader))

    def _field(self, node: resolution.ResolvedNode, field: pa.Field) -> Read:
        read = self.of(node, field.type)
        return read if field.nullable else lambda reader: not_null(read(reader))

    def _member(self, node: resolution.Branch, wanted: pa.DataType) -> Read:
        assert node.member is not None
        place, name = node.member.field_of(wanted)
        if place >= 0:
            read = self._field(node.value, wanted.field(place))
            return lambda reader: {name: read(reader)}
        skip = self.of(node.value, Way.SKIPPED)

        def read_other(reader: ByteReader) -> Any:
            skip(reader)
            return {}

        return read_other

    def _record(self, node: resolution.ResolvedRecord, wanted: Wanted) -> Read:
        key = (node, wanted)
        if key not in self._records:
            steps: list[tuple[str | None, Read]] = []
            is_natural = wanted is Way.NATURAL
            # As JSON, a value has the names of its fields, which take none of its bytes.
            names = sum(len(name) + _NATURAL_BYTES for _, name in node.fields if name) if is_natural else 0
            self._records[key] = _record(steps, names)
            columns: dict[str, pa.Field] = {} if isinstance(wanted, Way) else {field.name: field for field in wanted}
            for value, name in node.fields:
                if name is None or not (is_natural or name in columns):
                    steps.append((None, self.of(value, Way.SKIPPED)))
                else:
                    steps.append((name, self.of(value, wanted) if is_natural else self._field(value, columns[name])))
            for default in node.defaults:
                if is_natural or default.name in columns:
                    steps.append((default.name, self._default(default, columns.get(default.name))))
            written = {name for name, _ in steps}
            for name, field in columns.items():
                if name not in written and not field.nullable:
                    steps.append((name, lambda _: not_null(None)))
        return self._records[key]

    def _default(self, default: resolution.Default, field: pa.Field) -> Read:
        """Read the default's own bytes anew for each value, since what is read may be changed.

        Raises:
            DecodeError: the schema's defaults would make a large value of nothing.
        """
        try:
            payload, node = self._defaults.of(default)
            read = self.of(node, Way.NATURAL) if field is None else self._field(node, field)
            first = read(ByteReader(payload))
        except DecodeError as error:
            return _fail(f"{default.name}: {error}")
        column_type = pa.string() if field is None else field.type
        size = (
            len(str(first))
            if field is None
            else max(pa.array([first], column_type).nbytes - item_bytes(column_type), 0)
        )
        self._default_bytes += size
        if self._default_bytes > _MAX_DEFAULT_BYTES:
            raise DecodeError(f"the reader's defaults take more than {_MAX_DEFAULT_BYTES} bytes in each value")

        def read_default(reader: ByteReader) -> Any:
            reader.spend(size)
            return read(ByteReader(payload))

        return read_default


#: Of texts and items. Most schemas' defaults are null, a number or an empty text.
_MAX_DEFAULT_BYTES: Final = 4_096


def _fail(reason: str) -> Read:
    def read(_: ByteReader) -> Any:
        raise DecodeError(reason)

    return read


def _union(branches: list[Read]) -> Read:
    def read(reader: ByteReader) -> Any:
        number = reader.long()
        if not 0 <= number < len(branches):
            raise DecodeError("a union's branch that its schema does not have")
        return branches[number](reader)

    return read


def _record(steps: list[tuple[str | None, Read]], size: int) -> Read:
    """Read a struct by what reads each field, or skip it where that has no name; ``size`` is what it takes without bytes."""

    def read(reader: ByteReader) -> Any:
        reader.descend()
        reader.spend(size)
        row = {}
        for name, step in steps:
            try:
                value = step(reader)
            except DecodeError as error:
                raise (DecodeError(f"{name}: {error}") if name else error) from None
            if name is not None:
                row[name] = value
        reader.ascend()
        return row

    return read


def _array(item: Read, size: int = 0) -> Read:
    """Read a list; ``size`` is what an item takes in a column."""

    def read(reader: ByteReader) -> Any:
        items = []
        while count := reader.block():
            for _ in range(count):  # each takes a byte at least, is counted, or the data ends
                start = reader.at
                items.append(item(reader))
                reader.check_item(start, size)
        return items

    return read


def _entry(item: Read) -> Read:
    """Advance past a map's key and ``item``."""

    def skip(reader: ByteReader) -> Any:
        reader.take(reader.long())
        item(reader)

    return skip


def _map(item: Read, convert_key: Callable[[str], Any], size: int = 0) -> Read:
    """Read a map; ``size`` is what a key and its value take in a column."""

    def read(reader: ByteReader) -> Any:
        entries = {}
        while count := reader.block():
            for _ in range(count):
                start = reader.at
                key = convert_key(_text(reader))
                entries[key] = item(reader)  # the last of several, as in the Java library
                reader.check_item(start, size)
        return list(entries.items()) if convert_key is not str else entries

    return read


def _symbol(names: tuple[str | None, ...]) -> Read:
    def read(reader: ByteReader) -> Any:
        number = reader.long()
        if not 0 <= number < len(names):
            raise DecodeError("an enum's symbol that its schema does not have")
        name = names[number]
        if name is None:
            raise DecodeError("an enum's symbol that the reader's schema does not have")
        reader.spend(len(name))
        return name

    return read


def _text(reader: ByteReader) -> str:
    try:
        return reader.take(reader.long()).decode()
    except UnicodeDecodeError:
        raise DecodeError("a string that is not UTF-8") from None


def _between(read_number: Read, lowest: int, end: int, reason: str) -> Read:
    """Read a number, or fail; ``end`` is exclusive."""

    def read(reader: ByteReader) -> Any:
        number = read_number(reader)
        if not lowest <= number < end:
            raise DecodeError(reason)
        return number

    return read


def _integer(read_number: Read, bits: int) -> Read:
    return _between(read_number, -(1 << bits - 1), 1 << bits - 1, f"an integer that {bits} bits cannot hold")


def _boolean(reader: ByteReader) -> Any:
    (byte,) = reader.take(1)
    if byte > 1:
        raise DecodeError("a boolean that is neither 0 nor 1")
    return byte == 1


_WRITTEN: Final[dict[str, Read]] = {
    "null": lambda reader: None,
    "boolean": _boolean,
    "int": _integer(ByteReader.long, 32),
    "long": ByteReader.long,
    "float": lambda reader: struct.unpack("<f", reader.take(4))[0],
    "double": lambda reader: struct.unpack("<d", reader.take(8))[0],
    "bytes": lambda reader: reader.take(reader.long()),
    "string": _text,
}


def _plain(node: resolution.ResolvedScalar) -> Read:
    """Read a value without its logical type, promoted."""
    kind, target = kind_of(node.written), kind_of(node.read)
    if kind == "fixed":
        size = node.written["size"]
        return lambda reader: reader.take(size)
    read = _WRITTEN["bytes" if target == "bytes" else "string" if target == "string" else kind]
    if kind in ("int", "long") and target == "float":
        # Rounded once, from all digits: by way of a double it could differ.
        return lambda reader: float(_nearest_float(read(reader)))
    return (lambda reader: float(read(reader))) if kind in ("int", "long") and target == "double" else read


def _skip_scalar(node: resolution.ResolvedScalar) -> Read:
    kind = kind_of(node.written)
    if kind in ("bytes", "string"):
        return lambda reader: reader.take(reader.long())
    if kind in ("int", "long"):
        return ByteReader.long
    size = node.written["size"] if kind == "fixed" else _SIZES[kind]
    return lambda reader: reader.take(size)


_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def _nearest_float(number: int) -> float:
    return float(np.int64(number).astype(np.float32))


def _stored_reader(node: resolution.ResolvedScalar, wanted: pa.DataType) -> Read | None:
    """Read what a column of a type stores for a value: the number itself, or its unit changed. None for all other types."""
    is_a = pa.types
    plain, kind = _plain(node), kind_of(node.read)
    if (of_connect := _of_connect(node, plain, wanted)) is not None:
        return of_connect
    if is_a.is_string(wanted) and logical_of(node.read) == "decimal":
        natural = _natural_scalar(node)
        return lambda reader: f"{natural(reader):f}"
    if is_a.is_integer(wanted) and kind in ("int", "long"):
        return _integer(plain, wanted.bit_width)
    if is_a.is_binary(wanted) and kind in ("bytes", "fixed"):
        return plain
    if is_a.is_date32(wanted) and logical_of(node.read) == "date":
        return plain
    unit = scale_of(node, wanted)
    if unit is None:
        return None
    factor, divisor = unit
    limit = _DAY_NANOS if is_a.is_time64(wanted) else 1 << _LONG_BITS - 1
    lowest = 0 if is_a.is_time64(wanted) else -limit
    return _between(
        lambda reader: plain(reader) * factor // divisor, lowest, limit, f"a time that {wanted} cannot hold"
    )


def _of_connect(node: resolution.ResolvedScalar, plain: Read, wanted: pa.DataType) -> Read | None:
    """Read what Kafka Connect's name of a type says; None where it has none, or says nothing of a column of this type."""
    is_a = pa.types
    if (connect := counted_by(node.written, node.read)) is not None and kind_of(node.written) in ("int", "long"):
        unit = connect.unit
        assert unit is not None
        if connect.kind == "time" and (is_a.is_time64(wanted) or wanted == pa.int64()):
            per_second = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[unit]
            of_column, limit = (10**9, _DAY_NANOS) if is_a.is_time64(wanted) else (10**6, 1 << _LONG_BITS - 1)
            lowest = 0 if is_a.is_time64(wanted) else -limit
            reason = "a time that is not in a day"
            return _between(lambda reader: plain(reader) * of_column // per_second, lowest, limit, reason)
        if connect.kind == "date" and is_a.is_date32(wanted):
            return lambda reader: days_of(plain(reader), unit)
        if connect.kind == "timestamp" and is_a.is_timestamp(wanted) and wanted.unit == "us":
            return lambda reader: micros_of(plain(reader), unit)
    elif (connect := connect_type_of(node.read)) is not None and kind_of(node.written) == "string":
        if is_variant(wanted):
            return lambda reader: variant_of(parse_json(plain(reader)))
        if wanted == connect.type and not is_a.is_string(wanted):
            return lambda reader: time_of_text(plain(reader), wanted)
    return None


def _natural_scalar(node: resolution.ResolvedScalar) -> Read:
    plain, logical = _plain(node), logical_of(node.read)
    if logical == "decimal":
        definition = node.written if logical_of(node.written) == "decimal" else node.read
        scale = definition.get("scale", 0)
        return lambda reader: decimal_of_bytes(plain(reader), scale)
    if logical == "uuid" and kind_of(node.read) == "fixed":
        return lambda reader: uuid.UUID(bytes=plain(reader))
    if logical == "date":
        return lambda reader: _moment(_LOCAL_EPOCH, days=plain(reader)).date()
    if logical.startswith("time-"):
        factor, _ = scale_of(node, _NANOS) or (1, 1)

        nanos = _between(lambda reader: plain(reader) * factor, 0, _DAY_NANOS, "a time that is not in a day")
        return lambda reader: _moment(_LOCAL_EPOCH, microseconds=nanos(reader) // 1_000).time()
    if "timestamp" in logical:
        factor, divisor = scale_of(node, _MICROS) or (1, 1)
        epoch = _LOCAL_EPOCH if logical.startswith("local") else _EPOCH

        return lambda reader: _moment(epoch, microseconds=plain(reader) * factor // divisor)
    return plain


def _moment(epoch: datetime.datetime, **since: int) -> datetime.datetime:
    try:
        return epoch + datetime.timedelta(**since)
    except OverflowError:
        raise DecodeError("a time outside the years 1 to 9999") from None
