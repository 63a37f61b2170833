"""The steps for Avro's nested values: unions, records, arrays and maps.

As in :mod:`~pykafka_wire.values.avro.scalar_steps`, a step never raises on bytes, but marks lanes that it cannot read as failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.avro.bulk_reader import Lanes
from pykafka_wire.values.avro.scalar_steps import Null, Step
from pykafka_wire.values.bulk.arrays import Flags, Ints, flags_at, scatter, with_duplicate_keys
from pykafka_wire.wire.records.arrays import to_arrow_with_nulls, validity

#: Items of an array or map are passed in rounds, one item of each lane per round. With few lanes left a round is inefficient:
#: these lanes fail, and the caller decodes their values one by one. A round takes as long as some 60 items one by one.
_MIN_LANES: Final = 64
_MAX_ROUNDS_OF_FEW: Final = 64
#: Of a round the lanes, the number of items before, and where the items of the round begin and end.
_Block = tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Union(Step):
    """One of several branches, by number; all branches have the same Arrow type."""

    branches: Sequence[Step]
    type: pa.DataType

    @property
    def free_bytes(self) -> int:
        return max(each.free_bytes for each in self.branches)

    def read(self, lanes: Lanes) -> Any:
        branch_numbers = self._branch_numbers(lanes)
        n = len(lanes)
        present = [number for number in range(len(self.branches)) if (branch_numbers == number).any()]
        if len(present) == 1:
            return self.branches[present[0]].read(lanes)
        found, places = [], np.zeros(n, dtype=np.int64)
        is_null = np.zeros(n, dtype=np.bool_)
        n_found = 0
        for number in present:
            branch, index = self.branches[number], np.flatnonzero(branch_numbers == number)
            if isinstance(branch, Null):
                is_null[index] = True
                continue
            part = lanes.select(index)
            values = branch.read(part)
            lanes.put_back(index, part)
            if len(present) == 2 and any(isinstance(self.branches[other], Null) for other in present):
                return scatter(values, index, n)
            found.append(values)
            places[index] = np.arange(n_found, n_found + len(index))
            n_found += len(index)
        if not found:
            return pa.nulls(n, self.type)
        return _take_or_null(pa.concat_arrays(found) if len(found) > 1 else found[0], places, is_null)

    def skip(self, lanes: Lanes) -> None:
        branch_numbers = self._branch_numbers(lanes)
        for number, branch in enumerate(self.branches):
            index = np.flatnonzero(branch_numbers == number)
            if len(index):
                part = lanes.select(index)
                branch.skip(part)
                lanes.put_back(index, part)

    def _branch_numbers(self, lanes: Lanes) -> Ints:
        branch_numbers = lanes.longs()
        wrong = (branch_numbers < 0) | (branch_numbers >= len(self.branches))
        if wrong.any():
            lanes.fail(wrong)
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

    def read(self, lanes: Lanes) -> Any:
        columns: list[Any] = [None] * self.type.num_fields
        for step, place in (*self.steps, *self.absent):
            if place < 0:
                step.skip(lanes)
            else:
                columns[place] = _checked(step.read(lanes), self.type.field(place), lanes)
        return pa.Array.from_buffers(self.type, len(lanes), [None], children=columns)

    def skip(self, lanes: Lanes) -> None:
        n_bytes = 0  # of the fields before that have the same width in all values
        for step, _ in self.steps:
            width = step.width
            if width is not None:
                n_bytes += width
                continue
            if n_bytes:
                lanes.advance(n_bytes)
                n_bytes = 0
            step.skip(lanes)
        if n_bytes:
            lanes.advance(n_bytes)


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

    def read(self, lanes: Lanes) -> Any:
        """First goes past all items, to find where each begins and ends; then reads all of them at once.

        Lanes with too many items for their bytes fail before these are read.
        """
        n = len(lanes)
        first = lanes.position.copy()
        counts = np.zeros(n, dtype=np.int64)
        blocks: list[_Block] = []
        for index, part, n_items in self._rounds(lanes):
            starts = part.position.copy()
            self._skip_items(part, n_items)
            blocks.append((index, counts.take(index), starts, part.position))
            counts[index] += n_items
            lanes.put_back(index, part)
        too_many = None
        if not lanes.memory.spend(int(counts.sum()) * self.item_bytes):
            too_many = lanes.memory.too_large(counts * self.item_bytes, lanes.position - first)
        if too_many is not None:
            lanes.fail(too_many)
            counts[too_many] = 0
            blocks = [_where(~too_many[block[0]], block) for block in blocks]
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        begin, end = self._in_order(blocks, offsets)
        owner = np.repeat(np.arange(n), counts)
        inner = Lanes(lanes.buffer, begin, end, lanes.memory)
        keys = [] if self.key is None else [self.key.read(inner)]
        item_field = self.type.value_field if self.key is None else self.type.item_field
        items = _checked(self.item.read(inner), item_field, inner)
        if inner.failed.any():
            lanes.fail(flags_at(owner[inner.failed], n))
        if keys and len(owner):
            lanes.fail(with_duplicate_keys(owner, keys[0], n))
        return self._to_arrow(n, offsets, keys, [items])

    def _in_order(self, blocks: list[_Block], offsets: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
        """Where each item begins and ends, lane by lane."""
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

    def _skip_items(self, part: Lanes, n_items: Ints | int) -> None:
        if self._width is not None:
            part.position = part.position + n_items * self._width
            return
        if self.key is not None:
            self.key.skip(part)
        self.item.skip(part)

    def skip(self, lanes: Lanes) -> None:
        for index, part, n_items in self._rounds(lanes):
            self._skip_items(part, n_items)
            lanes.put_back(index, part)

    def _to_arrow(self, n: int, offsets: npt.NDArray[np.int32], keys: list[Any], items: list[Any]) -> Any:
        if self.key is None:
            return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=items)
        entries = pa.struct([self.type.key_field, self.type.item_field])
        pairs = pa.Array.from_buffers(entries, len(items[0]), [None], children=[keys[0], items[0]])
        return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=[pairs])

    def _rounds(self, lanes: Lanes) -> Iterator[tuple[Ints, Lanes, Ints | int]]:
        """``(index, lanes, n_items)`` of the lanes with an item left, per round: the caller goes past so many items of each, and
        puts them back before the next round. It is one item, or a whole block where all items are as wide.
        """
        index = np.arange(len(lanes))
        left = np.zeros(len(lanes), dtype=np.int64)
        n_rounds = 0
        while len(index):
            begins = np.flatnonzero(left == 0)
            if len(begins):
                left[begins] = self._counts(lanes, index[begins])
                going = left > 0
                if not going.all():
                    index, left = index[going], left[going]
                    continue
            n_rounds += 1
            if n_rounds > _MAX_ROUNDS_OF_FEW and len(index) < _MIN_LANES:
                lanes.fail(flags_at(index, len(lanes)))
                return
            n_items: Ints | int = 1 if self._width is None else left.copy()
            yield index, lanes.select(index), n_items
            going = ~lanes.failed[index]
            left -= n_items
            if not going.all():
                index, left = index[going], left[going]

    def _counts(self, lanes: Lanes, index: Ints) -> Ints:
        """The number of items in the next block of some lanes; 0 after the last block."""
        part = lanes.select(index)
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
        lanes.put_back(index, part)
        return counts


def _checked(column: Any, field: Any, lanes: Lanes) -> Any:  # a pa.Array, a pa.Field
    """A column that lanes have read; lanes with a null in a field that is NOT NULL fail."""
    if not field.nullable and column.null_count:
        lanes.fail(~validity(column))
    return column


def _where(kept: Flags, block: _Block) -> _Block:
    index, ordinal, starts, ends = block
    return index[kept], ordinal[kept], starts[kept], ends[kept]


def _take_or_null(values: Any, places: Ints, is_null: Flags) -> Any:
    """Elements of an Arrow array by index, null where ``is_null``."""
    return values.take(to_arrow_with_nulls(places, ~is_null))
