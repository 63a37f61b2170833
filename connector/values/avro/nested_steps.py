"""The steps for Avro's nested values: unions, records, arrays and maps.

As in :mod:`~pykafka_wire.values.avro.scalar_steps`, a step never raises on bytes, but marks values that it cannot read as failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.avro.bulk_reader import BulkReader
from pykafka_wire.values.avro.scalar_steps import Null, Step
from pykafka_wire.values.bulk.arrays import Flags, Ints, flags_at, scatter, with_duplicate_keys
from pykafka_wire.wire.records.arrays import to_arrow_with_nulls, validity

#: Items of an array or map are passed in rounds, one item of each value per round. With few values left a round is inefficient:
#: these fail, and the caller decodes them one by one. A round takes as long as some 60 items one by one.
_MIN_VALUES: Final = 64
_MAX_ROUNDS_OF_FEW: Final = 64
#: Of a round the values' places, the number of items before, and where the items of the round begin and end.
_Block = tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Union(Step):
    """One of several branches, by number; all branches have the same Arrow type."""

    branches: Sequence[Step]
    type: pa.DataType

    @property
    def free_bytes(self) -> int:
        return max(each.free_bytes for each in self.branches)

    def read(self, reader: BulkReader) -> Any:
        branch_numbers = self._branch_numbers(reader)
        n = len(reader)
        present = [number for number in range(len(self.branches)) if (branch_numbers == number).any()]
        if len(present) == 1:
            return self.branches[present[0]].read(reader)
        found, places = [], np.zeros(n, dtype=np.int64)
        is_null = np.zeros(n, dtype=np.bool_)
        n_found = 0
        for number in present:
            branch, index = self.branches[number], np.flatnonzero(branch_numbers == number)
            if isinstance(branch, Null):
                is_null[index] = True
                continue
            part = reader.select(index)
            values = branch.read(part)
            reader.put_back(index, part)
            if len(present) == 2 and any(isinstance(self.branches[other], Null) for other in present):
                return scatter(values, index, n)
            found.append(values)
            places[index] = np.arange(n_found, n_found + len(index))
            n_found += len(index)
        if not found:
            return pa.nulls(n, self.type)
        return _take_or_null(pa.concat_arrays(found) if len(found) > 1 else found[0], places, is_null)

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
class Record(Step):
    """Fields in the writer's order.

    Attributes:
        steps: for each written field, and the index of its column; -1 for a field that is skipped.
        absent: for each column that was not written, its value, and the index of the column.
        type: the columns, a struct.
    """

    steps: Sequence[tuple[Step, int]]
    absent: Sequence[tuple[Step, int]]
    type: pa.DataType

    @property
    def may_be_empty(self) -> bool:
        return all(step.may_be_empty for step, _ in self.steps)

    @property
    def width(self) -> int | None:
        widths = [step.width for step, _ in self.steps]
        return None if None in widths else sum(width or 0 for width in widths)

    @property
    def free_bytes(self) -> int:
        return sum(step.free_bytes for step, place in (*self.steps, *self.absent) if place >= 0)

    def read(self, reader: BulkReader) -> Any:
        columns: list[Any] = [None] * self.type.num_fields
        for step, place in (*self.steps, *self.absent):
            if place < 0:
                step.skip(reader)
            else:
                columns[place] = _checked(step.read(reader), self.type.field(place), reader)
        return pa.Array.from_buffers(self.type, len(reader), [None], children=columns)

    def skip(self, reader: BulkReader) -> None:
        n_bytes = 0  # of the fields before that have the same width in all values
        for step, _ in self.steps:
            width = step.width
            if width is not None:
                n_bytes += width
                continue
            if n_bytes:
                reader.advance(n_bytes)
                n_bytes = 0
            step.skip(reader)
        if n_bytes:
            reader.advance(n_bytes)


@dataclass(frozen=True, slots=True)
class Items(Step):
    """An ``array``, or a ``map`` with ``key``: blocks of items; each begins with its count (if negative, also with its size).

    Each item takes a byte at least, so that no count is above the number of bytes left.

    Attributes:
        item_bytes: what an item, with its key, takes in memory at least.
    """

    item: Step
    type: pa.DataType
    key: Step | None = None
    item_bytes: int = 0

    @property
    def _width(self) -> int | None:
        return None if self.key is not None else self.item.width

    def read(self, reader: BulkReader) -> Any:
        """First goes past all items, to find where each begins and ends; then reads all of them at once.

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
            blocks = [_where(~too_many[block[0]], block) for block in blocks]
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        begin, end = self._places(blocks, offsets)
        owner = np.repeat(np.arange(n), counts)
        inner = BulkReader(reader.buffer, begin, end, reader.memory)
        keys = [] if self.key is None else [self.key.read(inner)]
        item_field = self.type.value_field if self.key is None else self.type.item_field
        items = _checked(self.item.read(inner), item_field, inner)
        if inner.failed.any():
            reader.fail(flags_at(owner[inner.failed], n))
        if keys and len(owner):
            reader.fail(with_duplicate_keys(owner, keys[0], n))
        return self._to_arrow(n, offsets, keys, [items])

    def _places(self, blocks: list[_Block], offsets: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
        """Where each item begins and ends, value by value."""
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

    def _to_arrow(self, n: int, offsets: npt.NDArray[np.int32], keys: list[Any], items: list[Any]) -> Any:
        if self.key is None:
            return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=items)
        entries = pa.struct([self.type.key_field, self.type.item_field])
        pairs = pa.Array.from_buffers(entries, len(items[0]), [None], children=[keys[0], items[0]])
        return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=[pairs])

    def _rounds(self, reader: BulkReader) -> Iterator[tuple[Ints, BulkReader, Ints | int]]:
        """``(index, values, n_items)`` of the values with an item left, per round: the caller goes past so many items of each, and
        puts them back before the next round. It is one item, or a whole block where all items are as wide.
        """
        index = np.arange(len(reader))
        left = np.zeros(len(reader), dtype=np.int64)
        n_rounds = 0
        while len(index):
            begins = np.flatnonzero(left == 0)
            if len(begins):
                left[begins] = self._counts(reader, index[begins])
                going = left > 0
                if not going.all():
                    index, left = index[going], left[going]
                    continue
            n_rounds += 1
            if n_rounds > _MAX_ROUNDS_OF_FEW and len(index) < _MIN_VALUES:
                reader.fail(flags_at(index, len(reader)))
                return
            n_items: Ints | int = 1 if self._width is None else left.copy()
            yield index, reader.select(index), n_items
            going = ~reader.failed[index]
            left -= n_items
            if not going.all():
                index, left = index[going], left[going]

    def _counts(self, reader: BulkReader, index: Ints) -> Ints:
        """The number of items in the next block of some values; 0 after the last block."""
        part = reader.select(index)
        counts = part.longs()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            inner = part.select(sized)
            inner.lengths()
            part.put_back(sized, inner)
            counts[sized] = -counts[sized]
        most = (part.end - part.position) // (self._width or 1)
        wrong = (counts < 0) | part.failed | (counts > most)
        if wrong.any():
            part.fail(wrong)
            counts[wrong] = 0
        reader.put_back(index, part)
        return counts


def _checked(column: Any, field: Any, reader: BulkReader) -> Any:  # a pa.Array, a pa.Field
    """A column that was read; values with a null in a field that is NOT NULL fail."""
    if not field.nullable and column.null_count:
        reader.fail(~validity(column))
    return column


def _where(kept: Flags, block: _Block) -> _Block:
    index, ordinal, starts, ends = block
    return index[kept], ordinal[kept], starts[kept], ends[kept]


def _take_or_null(values: Any, places: Ints, is_null: Flags) -> Any:
    """Elements of an Arrow array by index, null where ``is_null``."""
    return values.take(to_arrow_with_nulls(places, ~is_null))
