"""Avro values to columns, many values together: what reads a schema's place as an Arrow type.

A :class:`TypeReader` reads one type of value out of the bytes of many (:mod:`~pykafka_wire.values.avro.bulk_reader`) into an
Arrow array, or skips it. It never raises on bytes: it marks values that it cannot read as failed, and returns meaningless
elements for them. :class:`AvroReadPlan` makes the readers of a resolved schema. What is not read in columns gets one by which
all values fail, :class:`Unreadable`: its values are left to be read one by one (:mod:`~pykafka_wire.values.avro.row_reader`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values import numeric_times
from pykafka_wire.values.avro import resolution
from pykafka_wire.values.avro.bulk_reader import BulkReader
from pykafka_wire.values.avro.connect_names import connect_type_of, counted_by
from pykafka_wire.values.avro.connect_values import (
    VARIABLE_DECIMAL,
    decimals_of_structs,
    is_variable_decimal,
    times_of_texts,
    variants_of_texts,
)
from pykafka_wire.values.avro.defaults import Defaults
from pykafka_wire.values.avro.resolution import scale_of
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, logical_of
from pykafka_wire.values.avro.types import is_member_struct
from pykafka_wire.values.bulk.arrays import (
    Flags,
    Ints,
    flag_array,
    flags_at,
    not_utf8,
    reassemble,
    scatter,
    with_duplicate_keys,
    with_validity,
)
from pykafka_wire.values.bulk.big_endian import last_bytes, out_of_range, words_of
from pykafka_wire.values.bulk.reading import Payloads, item_bytes, read_in_groups
from pykafka_wire.values.connect_types import ConnectType
from pykafka_wire.values.single_json.variant_type import is_variant
from pykafka_wire.wire.arrow.arrays import binary_array, to_arrow, validity
from pykafka_wire.wire.arrow.row_segments import byte_lengths

#: Values per group, chosen so that their data fits the cache.
_VALUES_AT_ONCE: Final = 32_768
#: Bytes per group. An item of an array may have one byte, and some 100 are computed of it.
_BYTES_AT_ONCE: Final = 2 << 20
_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1
_DAY_NANOS: Final = 86_400_000_000_000


class TypeReader(ABC):
    """Reads or skips one type of value."""

    @property
    def width(self) -> int | None:
        """Return the number of bytes of every value; None if they differ."""
        return None

    @property
    def free_bytes(self) -> int:
        """Return what a value takes in a column at most, beside its type's own places, without bytes of its own."""
        return 0

    @abstractmethod
    def read(self, reader: BulkReader) -> pa.Array:
        """Return a pa.Array, one element for each value."""

    def skip(self, reader: BulkReader) -> None:
        """Advance past the value: its width, or where it has none a varint."""
        if self.width is None:
            reader.longs()
        else:
            reader.advance(self.width)


def decode(payloads: Payloads, type_reader: TypeReader, column_type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Return ``(pa.Array, bool[n])``: the values, and which of them were not read; a value with bytes left over was not."""

    def read(group: Payloads) -> tuple[pa.Array, Flags]:
        reader = BulkReader.of(group)
        column = type_reader.read(reader)
        return column, reader.failed | (reader.position != reader.end)

    return read_in_groups(payloads, column_type, read, max_values=_VALUES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Unreadable(TypeReader):
    """A value that is not supported in columns: every value fails."""

    type: pa.DataType

    def read(self, reader: BulkReader) -> pa.Array:
        self.skip(reader)
        return pa.nulls(len(reader), self.type)

    def skip(self, reader: BulkReader) -> None:
        reader.fail(np.ones(len(reader), dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class Null(TypeReader):
    type: pa.DataType
    width = 0

    def read(self, reader: BulkReader) -> pa.Array:
        return pa.nulls(len(reader), self.type)


@dataclass(frozen=True, slots=True)
class Constant(TypeReader):
    """A reader's default for a field that the writer does not have. It has no bytes."""

    value: pa.Array
    width = 0

    @property
    def free_bytes(self) -> int:
        return int(self.value.nbytes)

    def read(self, reader: BulkReader) -> pa.Array:
        return self.value.take(to_arrow(np.zeros(len(reader), dtype=np.int32)))


@dataclass(frozen=True, slots=True)
class AvroBoolean(TypeReader):
    width = 1

    def read(self, reader: BulkReader) -> pa.Array:
        flags = reader.single_bytes()
        reader.fail(flags > 1)
        return flag_array(flags == 1)


@dataclass(frozen=True, slots=True)
class Integer(TypeReader):
    """``int`` or ``long`` as an integer, floating point, date or timestamp column; a value that does not fit fails."""

    type: pa.DataType
    minimum: int
    maximum: int
    factor: int = 1
    divisor: int = 1

    def read(self, reader: BulkReader) -> pa.Array:
        values = reader.longs()
        wrong = (values < self.minimum) | (values > self.maximum)
        if wrong.any():
            reader.fail(wrong)
            values[wrong] = 0
        if self.factor != 1:
            values *= self.factor
        if self.divisor != 1:
            values //= self.divisor
        return _numbers(values, self.type)


def integer(arrow_type: pa.DataType, written_bits: int) -> Integer:
    """Read integers into an integer or floating point column."""
    bits = min(arrow_type.bit_width, written_bits) if pa.types.is_integer(arrow_type) else written_bits
    return Integer(arrow_type, -(1 << bits - 1), (1 << bits - 1) - 1)


def moment(arrow_type: pa.DataType, factor: int, divisor: int) -> Integer:
    """Return a time in another unit than the column's: ``factor`` of the column's in one, or ``divisor`` of its own in one."""
    minimum, maximum = (0, _DAY_NANOS - 1) if pa.types.is_time64(arrow_type) else (_MIN_LONG, _MAX_LONG)
    if divisor > 1:
        return Integer(arrow_type, _MIN_LONG, _MAX_LONG, divisor=divisor)
    return Integer(arrow_type, -(-minimum // factor), maximum // factor, factor)


@dataclass(frozen=True, slots=True)
class Numbers(TypeReader):
    """``int`` or ``long`` as a date or timestamp by the unit that Kafka Connect names; an infinity is null."""

    type: pa.DataType
    unit: numeric_times.TimeUnit

    def read(self, reader: BulkReader) -> pa.Array:
        of_numbers = numeric_times.days if pa.types.is_date32(self.type) else numeric_times.moments
        times = of_numbers(reader.longs(), self.unit)
        if times.wrong is not None:
            wrong = times.wrong if times.infinite is None else times.wrong & ~times.infinite
            reader.fail(wrong)
        return with_validity(_numbers(times.numbers, self.type), None if times.infinite is None else ~times.infinite)


@dataclass(frozen=True, slots=True)
class Converted(TypeReader):
    """What another reader has read, as another type.

    Attributes:
        convert: of an array and the type: the array in the type, and bool[n]: which elements cannot be in it, None where all can.
    """

    inner: TypeReader
    type: pa.DataType
    convert: Callable[[pa.Array, pa.DataType], tuple[pa.Array, Flags | None]]

    @property
    def width(self) -> int | None:
        return self.inner.width

    @property
    def free_bytes(self) -> int:
        return self.inner.free_bytes

    def read(self, reader: BulkReader) -> pa.Array:
        converted, wrong = self.convert(self.inner.read(reader), self.type)
        if wrong is not None:
            reader.fail(wrong & ~reader.failed)
        return converted

    def skip(self, reader: BulkReader) -> None:
        self.inner.skip(reader)


@dataclass(frozen=True, slots=True)
class Floating(TypeReader):
    """``float`` (``<f4``) or ``double`` (``<f8``) as a floating point column; a value that is too large for it fails."""

    dtype: str
    type: pa.DataType

    def read(self, reader: BulkReader) -> pa.Array:
        values = reader.fixed(self.dtype)
        if self.dtype == "<f8" and self.type == pa.float32():
            with np.errstate(over="ignore", invalid="ignore"):
                narrow = values.astype(np.float32)
            reader.fail(np.isinf(narrow) & np.isfinite(values))
            values = narrow
        return _numbers(values, self.type)

    @property
    def width(self) -> int | None:
        return int(np.dtype(self.dtype).itemsize)


@dataclass(frozen=True, slots=True)
class AvroBytes(TypeReader):
    """``string``, ``bytes`` or ``fixed``, as ``pa.string()`` or ``pa.binary()``.

    Attributes:
        is_text: whether it must be UTF-8.
        width: of ``fixed``.
    """

    type: pa.DataType
    is_text: bool = False
    width: int | None = None

    def read(self, reader: BulkReader) -> pa.Array:
        texts = reader.slices(self.width, pa.string() if self.is_text else self.type)
        if self.is_text and (wrong := not_utf8(texts)) is not None:
            reader.fail(wrong)
        return texts if texts.type == self.type else texts.view(self.type)

    def skip(self, reader: BulkReader) -> None:
        reader.spans(self.width)


@dataclass(frozen=True, slots=True)
class DecimalNumber(TypeReader):
    """Unscaled big-endian two's complement in ``bytes`` or ``fixed``, as ``decimal128`` of the same scale.

    Attributes:
        width: of ``fixed``; None for ``bytes``.
    """

    type: pa.DataType
    width: int | None = None

    def read(self, reader: BulkReader) -> pa.Array:
        starts, sizes = reader.spans(self.width)
        starts, sizes, wrong = last_bytes(reader.buffer, starts, sizes)
        wrong |= sizes == 0
        if wrong.any():
            reader.fail(wrong)
            sizes[wrong] = 0
        high, low = words_of(reader.buffer, starts, sizes)
        wrong = out_of_range(high, low, 10**self.type.precision)
        reader.fail(wrong)
        high[wrong], low[wrong] = 0, 0
        words = np.empty((len(reader), 2), dtype=np.int64)
        words[:, 0] = low.view(np.int64)
        words[:, 1] = high
        return pa.Array.from_buffers(self.type, len(reader), [None, pa.py_buffer(words)])

    def skip(self, reader: BulkReader) -> None:
        reader.spans(self.width)


@dataclass(frozen=True, slots=True)
class Enum(TypeReader):
    """An ``enum``: one of its symbols, by number.

    Attributes:
        symbols: pa.StringArray.
        is_known: bool[n_symbols]; a symbol that the reader does not know fails.
    """

    symbols: pa.Array
    is_known: Flags

    @property
    def free_bytes(self) -> int:
        return int(byte_lengths(self.symbols).max(initial=0))

    def read(self, reader: BulkReader) -> pa.Array:
        numbers = reader.longs()
        wrong = (numbers < 0) | (numbers >= len(self.symbols))
        if not self.is_known.all():
            wrong |= ~self.is_known.take(numbers, mode="clip")
        if wrong.any():
            reader.fail(wrong)
            numbers[wrong] = 0
        return self.symbols.take(to_arrow(numbers))


def _numbers(values: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    width = arrow_type.bit_width // 8
    kind = "f" if pa.types.is_floating(arrow_type) else "i"
    narrow = np.ascontiguousarray(values.astype(f"<{kind}{width}", copy=False))
    return pa.Array.from_buffers(arrow_type, len(narrow), [None, pa.py_buffer(narrow)])


#: Items of an array or map are passed in rounds, one item of each value per round. With few values left a round is inefficient:
#: these fail, and the caller decodes them one by one. A round takes as long as some 60 items one by one.
_MIN_VALUES: Final = 64
_MAX_ROUNDS_OF_FEW: Final = 64
#: Of a round the values' places, the number of items before, and where the items of the round begin and end.
_Block = tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Union(TypeReader):
    """One of several branches, by number; all branches have the same Arrow type."""

    branches: Sequence[TypeReader]
    type: pa.DataType

    @property
    def free_bytes(self) -> int:
        return max(branch.free_bytes for branch in self.branches)

    def read(self, reader: BulkReader) -> pa.Array:
        branch_numbers = self._branch_numbers(reader)
        n = len(reader)
        present = [number for number in range(len(self.branches)) if (branch_numbers == number).any()]
        if len(present) == 1:
            return self.branches[present[0]].read(reader)
        parts: list[tuple[Ints, pa.Array]] = []
        for number in present:
            branch, index = self.branches[number], np.flatnonzero(branch_numbers == number)
            if not isinstance(branch, Null):
                part = reader.select(index)
                parts.append((index, branch.read(part)))
                reader.put_back(index, part)
        if len(parts) == 1:
            return scatter(parts[0][1], parts[0][0], n)
        return reassemble(n, self.type, parts)

    def skip(self, reader: BulkReader) -> None:
        branch_numbers = self._branch_numbers(reader)
        for number, branch in enumerate(self.branches):
            index = np.flatnonzero(branch_numbers == number)
            if len(index):
                part = reader.select(index)
                branch.skip(part)
                reader.put_back(index, part)

    def _branch_numbers(self, reader: BulkReader) -> Ints:
        branch_numbers = reader.longs()
        wrong = (branch_numbers < 0) | (branch_numbers >= len(self.branches))
        if wrong.any():
            reader.fail(wrong)
            branch_numbers[wrong] = 0
        return branch_numbers


@dataclass(frozen=True, slots=True)
class AvroRecord(TypeReader):
    """Fields in the writer's order.

    Attributes:
        type_readers: for each written field, and the index of its column; -1 for a field that is skipped.
        absent: for each column that was not written, its value, and the index of the column.
        type: the columns, a struct.
    """

    type_readers: Sequence[tuple[TypeReader, int]]
    absent: Sequence[tuple[TypeReader, int]]
    type: pa.DataType

    @property
    def width(self) -> int | None:
        widths = [type_reader.width for type_reader, _ in self.type_readers]
        return None if None in widths else sum(width or 0 for width in widths)

    @property
    def free_bytes(self) -> int:
        return sum(type_reader.free_bytes for type_reader, place in (*self.type_readers, *self.absent) if place >= 0)

    def read(self, reader: BulkReader) -> pa.Array:
        columns: list[pa.Array] = [None] * self.type.num_fields
        self._go_past(reader, columns)
        for type_reader, place in self.absent:
            columns[place] = _check_nulls(type_reader.read(reader), self.type.field(place), reader)
        return pa.Array.from_buffers(self.type, len(reader), [None], children=columns)

    def skip(self, reader: BulkReader) -> None:
        self._go_past(reader, None)

    def _go_past(self, reader: BulkReader, columns: list[pa.Array] | None) -> None:
        """Fill the columns; None where the whole record is skipped."""
        n_bytes = 0  # of the fields before that are skipped, and have the same width in all values
        for type_reader, place in self.type_readers:
            is_skipped = columns is None or place < 0
            width = type_reader.width if is_skipped else None
            if width is not None:
                n_bytes += width
                continue
            if n_bytes:
                reader.advance(n_bytes)
                n_bytes = 0
            if columns is None or is_skipped:
                type_reader.skip(reader)
            else:
                columns[place] = _check_nulls(type_reader.read(reader), self.type.field(place), reader)
        if n_bytes:
            reader.advance(n_bytes)


@dataclass(frozen=True, slots=True)
class Items(TypeReader):
    """An ``array``, or a ``map`` with ``key``: blocks of items; each begins with its count (if negative, also with its size).

    Each item takes a byte at least, so that no count is above the number of bytes left.

    Attributes:
        item_bytes: what an item, with its key, takes in memory at least.
    """

    item: TypeReader
    type: pa.DataType
    key: TypeReader | None = None
    item_bytes: int = 0

    @property
    def _width(self) -> int | None:
        return None if self.key is not None else self.item.width

    def read(self, reader: BulkReader) -> pa.Array:
        """Go past all items, to find where each begins and ends; then read all of them at once.

        Values with too many items for their bytes fail before these are read.
        """
        n = len(reader)
        first = reader.position.copy()
        counts = np.zeros(n, dtype=np.int64)
        blocks: list[_Block] = []
        for index, part, n_items in self._rounds(reader):
            starts = part.position.copy()
            self._skip_items(part, n_items)
            blocks.append((index, counts.take(index), starts, part.position))
            counts[index] += n_items
            reader.put_back(index, part)
        too_many = None
        if not reader.memory.spend(int(counts.sum()) * self.item_bytes):
            too_many = reader.memory.too_large(counts * self.item_bytes, reader.position - first)
        if too_many is not None:
            reader.fail(too_many)
            counts[too_many] = 0
            blocks = [
                tuple(indexes[~too_many[index]] for indexes in (index, *others))  # type: ignore[misc]  # as long as it was
                for index, *others in blocks
            ]
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        begin, end = self._places(blocks, offsets)
        owner = np.repeat(np.arange(n), counts)
        inner = reader.at(begin, end)
        keys = None if self.key is None else self.key.read(inner)
        items = _check_nulls(
            self.item.read(inner), self.type.value_field if keys is None else self.type.item_field, inner
        )
        if inner.failed.any():
            reader.fail(flags_at(owner[inner.failed], n))
        if keys is not None:
            if len(owner):
                reader.fail(with_duplicate_keys(owner, keys, n))
            entries = pa.struct([self.type.key_field, self.type.item_field])
            items = pa.Array.from_buffers(entries, len(items), [None], children=[keys, items])
        return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=[items])

    def _places(self, blocks: list[_Block], offsets: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
        """Return where each item begins and ends, value by value."""
        begin = np.zeros(int(offsets[-1]), dtype=np.int64)
        end = np.zeros(len(begin), dtype=np.int64)
        is_first = np.zeros(len(begin), dtype=np.bool_)
        for index, ordinal, starts, ends in blocks:
            place = offsets.take(index) + ordinal
            begin[place], end[place], is_first[place] = starts, ends, True
        if self._width is None or not len(begin):
            return begin, end
        firsts = np.flatnonzero(is_first)
        sizes = np.diff(np.append(firsts, len(begin)))
        begin = np.repeat(begin[firsts] - firsts * self._width, sizes) + np.arange(len(begin)) * self._width
        return begin, begin + self._width

    def _skip_items(self, part: BulkReader, n_items: Ints | int) -> None:
        if self._width is not None:
            part.position = part.position + n_items * self._width
            return
        if self.key is not None:
            self.key.skip(part)
        self.item.skip(part)

    def skip(self, reader: BulkReader) -> None:
        for index, part, n_items in self._rounds(reader):
            self._skip_items(part, n_items)
            reader.put_back(index, part)

    def _rounds(self, reader: BulkReader) -> Iterator[tuple[Ints, BulkReader, Ints | int]]:
        """Yield ``(index, values, n_items)`` of the values with an item left, per round: the caller goes past so many items of
        each, and puts them back before the next round. It is one item, or a whole block where all items are as wide.
        """
        index = np.arange(len(reader))
        n_left = np.zeros(len(reader), dtype=np.int64)
        n_rounds = 0
        while len(index):
            begins = np.flatnonzero(n_left == 0)
            if len(begins):
                n_left[begins] = self._counts(reader, index[begins])
                going = n_left > 0
                if not going.all():
                    index, n_left = index[going], n_left[going]
                    continue
            n_rounds += 1
            is_few = len(index) < _MIN_VALUES
            if is_few and (n_rounds > _MAX_ROUNDS_OF_FEW or not reader.rounds.spend()):
                reader.fail(flags_at(index, len(reader)))
                return
            n_items: Ints | int = 1 if self._width is None else n_left.copy()
            yield index, reader.select(index), n_items
            going = ~reader.failed[index]
            n_left -= n_items
            if not going.all():
                index, n_left = index[going], n_left[going]

    def _counts(self, reader: BulkReader, index: Ints) -> Ints:
        """Return the number of items in the next block of some values; 0 after the last block."""
        part = reader.select(index)
        counts = part.longs()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            inner = part.select(sized)
            inner.lengths()
            part.put_back(sized, inner)
            counts[sized] = -counts[sized]
        max_count = (part.end - part.position) // (self._width or 1)
        wrong = (counts < 0) | part.failed | (counts > max_count)
        if wrong.any():
            part.fail(wrong)
            counts[wrong] = 0
        reader.put_back(index, part)
        return counts


def _check_nulls(column: pa.Array, field: pa.Field, reader: BulkReader) -> pa.Array:
    """Return a column that was read; values with a null in a field that is NOT NULL fail."""
    if not field.nullable and column.null_count:
        reader.fail(~validity(column))
    return column


#: Each use of a type in a schema is a type reader. More than this is an attack, not a topic's schema.
_MAX_TYPE_READERS: Final = 10_000
_MAX_DECIMAL_BITS: Final = 128
#: Of records in records, and of arrays. A type reader takes up to three frames of Python's stack, which has a thousand.
_MAX_DEPTH: Final = 100
Inside = frozenset[resolution.ResolvedRecord]


class AvroReadPlan:
    """Makes the type readers of one pair of schemas.

    Args:
        read: the reader's schema, or the writer's where there is no other: it holds the types of the defaults.

    Attributes:
        left: the places whose values are left to be read one by one, such as ``order.items[]``.
    """

    def __init__(self, read: ParsedSchema) -> None:
        self._defaults = Defaults(read)
        self._n_type_readers = 0
        self.left: list[str] = []

    def type_reader(
        self, node: resolution.ResolvedNode, wanted: pa.DataType | None, path: str = "", inside: Inside = frozenset()
    ) -> TypeReader:
        """Return the type reader that reads a value into ``wanted``; None only skips it. ``inside`` has the records around."""
        made = self._type_reader(node, wanted, path, inside)
        if made is not None:
            return made
        if not isinstance(node, resolution.Mismatch):  # a mismatch cannot be read row by row, either
            self.left.append(path or "the value")
        return Unreadable(pa.null() if wanted is None else wanted)

    def _type_reader(
        self, node: resolution.ResolvedNode, wanted: pa.DataType | None, path: str, inside: Inside
    ) -> TypeReader | None:
        self._n_type_readers += 1
        if (
            self._n_type_readers > _MAX_TYPE_READERS
            or _depth(path) > _MAX_DEPTH
            or isinstance(node, resolution.Mismatch)
        ):
            return None
        if isinstance(node, resolution.WrittenUnion):
            branches = [self.type_reader(branch, wanted, path, inside) for branch in node.branches]
            return Union(branches, pa.null() if wanted is None else wanted)
        if isinstance(node, resolution.Branch):
            if wanted is not None and node.member is not None and is_member_struct(wanted):
                return self._member(node, wanted, path, inside)
            return self._type_reader(node.value, wanted, path, inside)
        if isinstance(node, resolution.ResolvedRecord):
            if wanted is not None and is_variable_decimal(node.read) and not pa.types.is_struct(wanted):
                inner = self._record(node, VARIABLE_DECIMAL, path, inside | {node})
                return None if inner is None else Converted(inner, wanted, decimals_of_structs)
            if node in inside or not (wanted is None or pa.types.is_struct(wanted)):
                return None
            return self._record(node, wanted, path, inside | {node})
        if isinstance(node, resolution.Blocks):
            return self._blocks(node, wanted, path, inside)
        if wanted is None:
            return _skip(node)
        if isinstance(node, resolution.ResolvedSymbols):
            return _enum(node) if pa.types.is_string(wanted) else None
        return _scalar(node, wanted)

    def _member(self, node: resolution.Branch, wanted: pa.DataType, path: str, inside: Inside) -> TypeReader:
        assert node.member is not None
        place, name = node.member.field_of(wanted)
        inner = self.type_reader(node.value, None if place < 0 else wanted.field(place).type, f"{path}.{name}", inside)
        others = [(Null(field.type), nth) for nth, field in enumerate(wanted) if nth != place]
        return AvroRecord([(inner, place)], others, wanted)

    def _record(
        self, node: resolution.ResolvedRecord, wanted: pa.DataType | None, path: str, inside: Inside
    ) -> TypeReader | None:
        if wanted is None:
            fields = [(self.type_reader(value, None, f"{path}.{name}", inside), -1) for value, name in node.fields]
            return AvroRecord(fields, (), pa.struct([]))
        places = {field.name: place for place, field in enumerate(wanted)}
        if len(places) != wanted.num_fields:
            return None
        readers: list[tuple[TypeReader, int]] = []
        for value, name in node.fields:
            place = -1 if name is None else places.pop(name, -1)
            inner = None if place < 0 else wanted.field(place).type
            readers.append((self.type_reader(value, inner, f"{path}.{name}" if path else str(name), inside), place))
        defaults = {default.name: default for default in node.defaults}
        absent: list[tuple[TypeReader, int]] = []
        for name, place in places.items():
            column = wanted.field(place).type
            absent.append((self._default(defaults.get(name), column), place))
        return AvroRecord(readers, absent, wanted)

    def _default(self, default: resolution.Default | None, wanted: pa.DataType) -> TypeReader:
        if default is None:
            return Null(wanted)
        try:
            payload, node = self._defaults.of(default)
        except DecodeError:  # reading one by one reports why
            return Unreadable(wanted)
        reader = BulkReader.of(Payloads.of(binary_array([payload])))
        column = self.type_reader(node, wanted, default.name).read(reader)
        if reader.failed.any():
            return Unreadable(wanted)
        return Constant(column)

    def _blocks(
        self, node: resolution.Blocks, wanted: pa.DataType | None, path: str, inside: Inside
    ) -> TypeReader | None:
        column: pa.DataType | None = None
        if wanted is not None:
            if node.is_map and not (pa.types.is_map(wanted) and pa.types.is_string(wanted.key_type)):
                return None
            if not node.is_map and not pa.types.is_list(wanted):
                return None
            column = wanted.item_type if node.is_map else wanted.value_type
        item = self.type_reader(node.item, column, f"{path}[]", inside)
        if not node.is_map and item.width == 0:
            # Few schemas have any, and a few bytes of each value could claim thousands of items.
            return None
        key = AvroBytes(pa.string(), is_text=True) if node.is_map else None
        size = (0 if column is None else item_bytes(column) + item.free_bytes) + (
            0 if key is None else item_bytes(pa.string())
        )
        return Items(item, pa.null() if wanted is None else wanted, key, size)


def _depth(path: str) -> int:
    return path.count(".") + path.count("[")


def _skip(node: resolution.ResolvedScalar | resolution.ResolvedSymbols) -> TypeReader:
    kind = "int" if isinstance(node, resolution.ResolvedSymbols) else kind_of(node.written)
    if kind in ("bytes", "string"):
        return AvroBytes(pa.binary())
    if kind == "fixed" and isinstance(node, resolution.ResolvedScalar):
        return AvroBytes(pa.binary(), width=node.written["size"])
    made: dict[str, TypeReader] = {
        "null": Null(pa.null()),
        "boolean": AvroBoolean(),
        "float": Floating("<f4", pa.float32()),
        "double": Floating("<f8", pa.float64()),
    }
    return made.get(kind) or integer(pa.int64(), 64)


def _scalar(node: resolution.ResolvedScalar, wanted: pa.DataType) -> TypeReader | None:
    """Return the type reader for a primitive or ``fixed`` value; None if it is not supported in columns."""
    is_a = pa.types
    kind, target, logical = kind_of(node.written), kind_of(node.read), logical_of(node.read)
    if (connect := counted_by(node.written, node.read)) is not None and kind in ("int", "long"):
        if (number_reader := _number_of_connect(connect, wanted)) is not None:
            return number_reader
    elif (connect := connect_type_of(node.read)) is not None and kind == "string":
        if is_variant(wanted):
            return Converted(AvroBytes(pa.string(), is_text=True), wanted, variants_of_texts)
        if wanted == connect.type and not is_a.is_string(wanted):
            return Converted(AvroBytes(pa.string(), is_text=True), wanted, times_of_texts)
    if kind == "null":
        return Null(wanted)
    if kind == "boolean":
        return AvroBoolean() if is_a.is_boolean(wanted) else None
    if kind in ("int", "long"):
        return _integer(node, kind, target, wanted)
    if kind in ("float", "double"):
        return Floating("<f4" if kind == "float" else "<f8", wanted) if is_a.is_floating(wanted) else None
    size = node.written["size"] if kind == "fixed" else None
    if is_a.is_decimal(wanted):
        if logical != "decimal":
            return None
        definition = node.written if logical_of(node.written) == "decimal" else node.read
        fits = wanted.bit_width == _MAX_DECIMAL_BITS and wanted.scale == definition.get("scale", 0)
        return DecimalNumber(wanted, size) if fits else None
    if size is not None:
        return AvroBytes(wanted, width=size) if is_a.is_binary(wanted) else None
    if is_a.is_binary(wanted):
        return AvroBytes(wanted, is_text=target == "string")
    is_text = "string" in (kind, target) and logical != "decimal"
    return AvroBytes(wanted, is_text=True) if is_a.is_string(wanted) and is_text else None


def _number_of_connect(connect: ConnectType, wanted: pa.DataType) -> TypeReader | None:
    assert connect.unit is not None
    if connect.kind == "time":
        per_second = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[connect.unit]
        if pa.types.is_time64(wanted):
            return moment(wanted, 10**9 // per_second, 1)
        if wanted == pa.int64():
            return moment(wanted, max(10**6 // per_second, 1), max(per_second // 10**6, 1))
        return None
    is_date = pa.types.is_date32(wanted)
    is_wanted = is_date if connect.kind == "date" else pa.types.is_timestamp(wanted) and wanted.unit == "us"
    return Numbers(wanted, connect.unit) if is_wanted else None


def _integer(node: resolution.ResolvedScalar, kind: str, target: str, wanted: pa.DataType) -> TypeReader | None:
    is_a = pa.types
    bits = 32 if kind == "int" else 64
    if target in ("float", "double"):
        fits = is_a.is_float64(wanted) if target == "double" else is_a.is_float32(wanted)
        return integer(wanted, bits) if fits else None
    if is_a.is_integer(wanted) or (is_a.is_float64(wanted) and not logical_of(node.read)):
        return integer(wanted, bits)
    if is_a.is_date32(wanted):
        return integer(wanted, bits) if logical_of(node.read) == "date" else None
    scale = scale_of(node, wanted)
    return None if scale is None else moment(wanted, *scale)


def _enum(node: resolution.ResolvedSymbols) -> TypeReader:
    symbols = binary_array([(name or "").encode() for name in node.names]).view(pa.string())
    return Enum(symbols, np.array([name is not None for name in node.names]))
