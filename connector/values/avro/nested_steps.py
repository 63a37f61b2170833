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

from pykafka_wire.values.avro.lanes import Lanes
from pykafka_wire.values.avro.scalar_steps import Null, Step, bits
from pykafka_wire.values.payloads import Flags, Ints
from pykafka_wire.wire.records.arrays import to_arrow, to_numpy, validity

#: Items of an array or map are read in rounds, one item of each lane per round. With few lanes left a round is inefficient:
#: these lanes fail, and the caller decodes their values one by one.
_MIN_LANES: Final = 16
_MAX_ROUNDS_OF_FEW: Final = 64


@dataclass(frozen=True, slots=True)
class Union(Step):
    """One of several branches, by number; all branches have the same Arrow type."""

    branches: Sequence[Step]
    type: pa.DataType

    def read(self, lanes: Lanes) -> Any:
        branch_numbers = self._branch_numbers(lanes)
        n = len(lanes)
        first = int(branch_numbers[0]) if n else 0
        if (branch_numbers == first).all():
            return self.branches[first].read(lanes)
        found, places = [], np.zeros(n, dtype=np.int64)
        is_null = np.zeros(n, dtype=np.bool_)
        n_found = 0
        for number, branch in enumerate(self.branches):
            index = np.flatnonzero(branch_numbers == number)
            if not len(index):
                continue
            if isinstance(branch, Null):
                is_null[index] = True
                continue
            part = lanes.select(index)
            found.append(branch.read(part))
            lanes.put_back(index, part)
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

    def read(self, lanes: Lanes) -> Any:
        columns: list[Any] = [None] * self.type.num_fields
        for step, place in (*self.steps, *self.absent):
            if place < 0:
                step.skip(lanes)
            else:
                columns[place] = _checked(step.read(lanes), self.type.field(place), lanes)
        return pa.Array.from_buffers(self.type, len(lanes), [None], children=columns)

    def skip(self, lanes: Lanes) -> None:
        for step, _ in self.steps:
            step.skip(lanes)


@dataclass(frozen=True, slots=True)
class Items(Step):
    """An ``array``, or a ``map`` with ``key``: blocks of items; each begins with its count (if negative, also with its size).

    Each item takes a byte at least, so that no count is above the number of bytes left.
    """

    item: Step
    type: pa.DataType
    key: Step | None = None

    def read(self, lanes: Lanes) -> Any:
        keys, items, owners = [], [], []
        item_field = self.type.value_field if self.key is None else self.type.item_field
        for index, part in self._rounds(lanes):
            if self.key is not None:
                keys.append(self.key.read(part))
            items.append(_checked(self.item.read(part), item_field, part))
            owners.append(index)
            lanes.put_back(index, part)
        n = len(lanes)
        offsets = np.zeros(n + 1, dtype=np.int32)
        if not items:
            empty = Lanes(lanes.buffer, lanes.position[:0], lanes.end[:0])
            keys = [] if self.key is None else [self.key.read(empty)]
            return self._to_arrow(n, offsets, keys, [self.item.read(empty)])
        owner = np.concatenate(owners)
        # Rounds are in order, and a stable sort keeps that order for each lane.
        places = np.argsort(owner, kind="stable")
        order = to_arrow(places)
        np.cumsum(np.bincount(owner, minlength=n), out=offsets[1:])
        ordered = [[pa.concat_arrays(each).take(order)] if each else [] for each in (keys, items)]
        if self.key is not None:
            lanes.fail(_have_duplicate_keys(owner.take(places), ordered[0][0], n))
        return self._to_arrow(n, offsets, ordered[0], ordered[1])

    def skip(self, lanes: Lanes) -> None:
        for index, part in self._rounds(lanes):
            if self.key is not None:
                self.key.skip(part)
            self.item.skip(part)
            lanes.put_back(index, part)

    def _to_arrow(self, n: int, offsets: npt.NDArray[np.int32], keys: list[Any], items: list[Any]) -> Any:
        if self.key is None:
            return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=items)
        entries = pa.struct([self.type.key_field, self.type.item_field])
        pairs = pa.Array.from_buffers(entries, len(items[0]), [None], children=[keys[0], items[0]])
        return pa.Array.from_buffers(self.type, n, [None, pa.py_buffer(offsets)], children=[pairs])

    def _rounds(self, lanes: Lanes) -> Iterator[tuple[Ints, Lanes]]:
        """``(index, lanes)`` of the lanes with an item left, per round: the caller puts them back before the next round."""
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
                few = np.zeros(len(lanes), dtype=np.bool_)
                few[index] = True
                lanes.fail(few)
                return
            yield index, lanes.select(index)
            going = ~lanes.failed[index]
            left -= 1
            if not going.all():
                index, left = index[going], left[going]

    @staticmethod
    def _counts(lanes: Lanes, index: Ints) -> Ints:
        """The number of items in the next block of some lanes; 0 after the last block."""
        part = lanes.select(index)
        counts = part.longs()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            inner = part.select(sized)
            inner.lengths()
            part.put_back(sized, inner)
            counts[sized] = -counts[sized]
        wrong = (counts < 0) | part.failed | (counts > part.end - part.position)
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


def _take_or_null(values: Any, places: Ints, is_null: Flags) -> Any:
    """Elements of an Arrow array by index, null where ``is_null``."""
    validity = pa.py_buffer(bits(~is_null))
    return values.take(pa.Array.from_buffers(pa.int64(), len(places), [validity, pa.py_buffer(places)]))


def _have_duplicate_keys(owner: Ints, keys: Any, n: int) -> Flags:
    """bool[n]: which owners have a duplicate key; ``owner`` ascends, and is as long as ``keys``."""
    codes = keys.dictionary_encode()
    pairs = owner * len(codes.dictionary) + to_numpy(codes.indices, null=0)
    pairs.sort()
    flags = np.zeros(n, dtype=np.bool_)
    flags[pairs[1:][pairs[1:] == pairs[:-1]] // max(len(codes.dictionary), 1)] = True
    return flags
