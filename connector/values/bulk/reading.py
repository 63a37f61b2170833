"""Columns read from encoded values, all rows together: what is the same for every format.

The values of a column lie in one buffer (:class:`Payloads`). They are read in groups that fit the processor's cache. A group
never fails for a value: one that is not valid is marked, and left to be read alone, for its value or the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.errors import ValueFormatError
from pykafka_wire.values.bulk.arrays import Flags, Ints, concat, slices

#: The offset of a text, a list or a map.
_OFFSET_BYTES: Final = 4
#: Of a column's type in an error.
_MAX_TYPE: Final = 500


@dataclass(frozen=True, slots=True)
class Payloads:
    """The bytes of n values.

    Attributes:
        data: uint8[…], the buffer that holds all of them; it may hold other bytes, too, and is never empty.
        starts, ends: int64[n], ascending, ends exclusive.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, rows: pa.BinaryArray) -> Payloads:
        """Return the bytes of a pa.BinaryArray, a view. What stands for a null means nothing."""
        _, offsets, data = rows.buffers()
        edges = np.frombuffer(offsets or bytes(4), dtype=np.int32)[rows.offset :][: len(rows) + 1].astype(np.int64)
        return cls(np.frombuffer(data or bytes(1), dtype=np.uint8), edges[:-1], edges[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def array(self) -> pa.BinaryArray:
        """Return pa.BinaryArray; a view where the values follow each other without a gap."""
        if len(self) and not (self.starts[1:] == self.ends[:-1]).all():
            return slices(self.data, self.starts, self.ends, pa.binary())
        edges = pa.py_buffer(np.append(self.starts, self.ends[-1:] if len(self) else 0).astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self), [None, edges, pa.py_buffer(self.data)])

    def take(self, index: Ints | slice) -> Payloads:
        """Return the values at ``index``, which ascends; no bytes are copied."""
        return Payloads(self.data, self.starts[index], self.ends[index])


class PayloadReader(Protocol):
    """Reads the payloads of one writer's schema as one Arrow type."""

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        """Return a pa.Array as long as ``payloads``, and bool[n]: the rows that are left to be read one by one.

        Elements of rows that are left mean nothing.

        Raises:
            RegistryError: the registry does not respond.
        """

    def read_one(self, payload: bytes) -> Any:
        """Return a value that ``pa.array(…, type)`` takes.

        Raises:
            DecodeError: the bytes stand for no such value.
            RegistryError: the registry does not respond, which says nothing about the bytes.
        """


class ColumnTooLargeError(ValueFormatError):
    """Values that are valid, and are too large to be one column together."""

    @staticmethod
    def of(n_rows: int, column_type: pa.DataType) -> ColumnTooLargeError:
        return ColumnTooLargeError(
            f"{n_rows} values are together too large for one column of {str(column_type)[:_MAX_TYPE]}. Decode fewer rows at a "
            "time: lower spark.sql.execution.arrow.maxRecordsPerBatch."
        )


def leave_all(payloads: Payloads, column_type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Return nulls, and True for each row: all are left to be read one by one."""
    return pa.nulls(len(payloads), column_type), np.ones(len(payloads), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A reader of payloads that leaves all of them to be read one by one."""

    column_type: pa.DataType
    read_one: Callable[[bytes], Any]

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        return leave_all(payloads, self.column_type)


class MemoryBudget:
    """The bytes of memory that the items of a group's arrays may take: some for all, and more in proportion to the values' sizes.

    Args:
        free_bytes: for all values of the group together.
        per_byte: for each byte of a value, once the others are spent.
    """

    __slots__ = ("_left", "_per_byte")

    def __init__(self, free_bytes: int, per_byte: int) -> None:
        self._left = free_bytes
        self._per_byte = per_byte

    def spend(self, n_bytes: int) -> bool:
        """Return whether there is room for so many more bytes."""
        self._left -= n_bytes
        return self._left >= 0

    def too_large(self, n_bytes: Ints, sizes: Ints) -> Flags | None:
        """Return bool[n]: the values whose items take too many bytes for their sizes; None where none does."""
        wrong: Flags = n_bytes > self._per_byte * sizes
        return wrong if wrong.any() else None


def item_bytes(column_type: pa.DataType) -> int:
    """Return what an element of a column takes, null or not, without its text or the items of its own arrays."""
    if pa.types.is_struct(column_type):
        return sum(item_bytes(field.type) for field in column_type)
    if pa.types.is_null(column_type):
        return 0
    try:
        return -(-int(column_type.bit_width) // 8)
    except ValueError:  # a type without a fixed width
        return _OFFSET_BYTES


def read_in_groups(
    payloads: Payloads,
    column_type: pa.DataType,
    read: Callable[[Payloads], tuple[pa.Array, Flags]],
    *,
    max_values: int,
    max_bytes: int,
) -> tuple[pa.Array, Flags]:
    """Return ``(pa.Array, bool[n])``: the values, and which of them were not read; those elements mean nothing.

    Args:
        read: the same for a group.
        max_values, max_bytes: of a group. A value of more bytes is a group of its own.
    """
    columns, failed = [], [np.zeros(0, dtype=np.bool_)]
    first = 0
    while first < len(payloads):
        within = payloads.ends[first : first + max_values]
        n_values = max(int(np.searchsorted(within, int(payloads.starts[first]) + max_bytes, side="right")), 1)
        group = payloads.take(slice(first, first + n_values))
        try:
            column, wrong = read(group)
        except (pa.ArrowException, OverflowError):  # more than an array holds
            column, wrong = leave_all(group, column_type)
        columns.append(column)
        failed.append(wrong)
        first += n_values
    return concat(columns, column_type), np.concatenate(failed)
