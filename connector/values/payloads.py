"""The bytes of a column's values, as positions in one buffer: what formats read columns from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire.records.arrays import to_arrow

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


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
    def of(cls, rows: Any) -> Payloads:  # Any: pyarrow has no types
        """The bytes of a pa.BinaryArray, a view. What stands for a null means nothing."""
        _, offsets, data = rows.buffers()
        edges = np.frombuffer(offsets or bytes(4), dtype=np.int32)[rows.offset :][: len(rows) + 1].astype(np.int64)
        return cls(np.frombuffer(data or bytes(1), dtype=np.uint8), edges[:-1], edges[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def array(self) -> Any:
        """pa.BinaryArray; a view where the values follow each other without a gap."""
        starts, ends = self.starts, self.ends
        data = pa.py_buffer(self.data)
        if len(starts) == 0 or (starts[1:] == ends[:-1]).all():
            edges = np.concatenate([starts[:1], ends]).astype(np.int32)
            return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(edges), data])
        edges = np.empty(2 * len(starts), dtype=np.int32)
        edges[0::2], edges[1::2] = starts, ends
        # Elements alternate between a value and the gap before the next one.
        everything = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data])
        return everything.take(to_arrow(np.arange(0, len(edges) - 1, 2, dtype=np.int32)))

    def take(self, index: Ints) -> Payloads:
        """The values at ``index``, which ascends; no bytes are copied."""
        return Payloads(self.data, self.starts[index], self.ends[index])


@dataclass(frozen=True, slots=True)
class RowReader:
    """A reader of payloads that leaves all of them to be read one by one."""

    column_type: pa.DataType
    read_one: Callable[[bytes], Any]

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        """Nulls, and True for each row."""
        return pa.nulls(len(payloads), self.column_type), np.ones(len(payloads), dtype=np.bool_)


def are_utf8(texts: Any) -> Flags:
    """bool[n]: which elements of a pa.StringArray are UTF-8 or null; Spark's strings, for one, may hold anything."""
    flags = np.ones(len(texts), dtype=np.bool_)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        for nth, each in enumerate(texts.cast(pa.binary()).to_pylist()):
            try:
                (each or b"").decode()
            except UnicodeDecodeError:
                flags[nth] = False
    return flags
