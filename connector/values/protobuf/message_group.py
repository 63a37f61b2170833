"""Many Protobuf messages that are read together: each with its start, its end and whether it failed.

It knows no schema. It never raises on bytes: a message that is not valid is marked as failed, and its values mean nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, slices
from pykafka_wire.values.bulk.reading import MemoryBudget
from pykafka_wire.values.protobuf.input_limits import FREE_BYTES, FREE_PER_BYTE
from pykafka_wire.wire.records.varints import Octets, Words, numbers_at, read_unsigned

#: A round takes some 50 µs, and a field that is read one by one some 0.2 µs: reading in columns takes a few times as long at most.
_MESSAGES_OF_A_ROUND: Final = 64
_FREE_ROUNDS: Final = 500
#: Of a varint of ten bytes the last: parsers refuse more than 64 bits.
_MAX_TENTH: Final = 1


class Buffer:
    """The bytes of all messages of a group, and what reading them may still take.

    Attributes:
        octets: uint8[…]; it may hold other bytes, too.
        memory: of the items of arrays.
        work: how many messages' fields may still be found in rounds of few messages; see :meth:`is_worth_a_round`.
        unchecked: by what checks them, the starts, ends and rows of messages that no one wants.
    """

    __slots__ = ("memory", "octets", "unchecked", "work")

    def __init__(self, octets: Octets) -> None:
        self.octets = octets
        self.memory = MemoryBudget(FREE_BYTES, FREE_PER_BYTE)
        self.work = _FREE_ROUNDS * _MESSAGES_OF_A_ROUND
        self.unchecked: dict[Any, list[tuple[Ints, Ints, Ints]]] = {}

    def numbers(self, positions: Ints, dtype: str) -> npt.NDArray[Any]:
        """The fixed-width number at each position."""
        return numbers_at(self.octets, positions, dtype)

    def varints(self, positions: Ints) -> tuple[Words, Ints]:
        """The varint at each position, and int64[n]: where it ends."""
        return read_unsigned(self.octets, positions, _MAX_TENTH)

    def slices(self, starts: Ints, sizes: Ints, arrow_type: pa.DataType) -> Any:
        """pa.Array of bytes as ``pa.binary()`` or ``pa.string()``; slices must ascend and not overlap; a copy."""
        return slices(self.octets, starts, starts + sizes, arrow_type)

    def is_worth_a_round(self, n_messages: int) -> bool:
        """Whether to find a field of so many messages; False where too many rounds found those of a few, and more would follow.

        A round takes as long as many fields that are read one by one. Messages that hold themselves have messages that become fewer
        with each level, while there are more and more ways to them.
        """
        self.work += n_messages - _MESSAGES_OF_A_ROUND
        return self.work >= 0


class MessageGroup:
    """Messages within one :class:`Buffer`.

    Attributes:
        start: int64[n], where each message starts; ascending.
        end: int64[n], exclusive; never after the next start.
        failed: bool[n].
        depth: how many messages are around these.
        rows: int64[n], the row of each message; None where each message is a row's.
    """

    __slots__ = ("data", "depth", "end", "failed", "rows", "start")

    def __init__(self, data: Buffer, start: Ints, end: Ints, depth: int = 0, rows: Ints | None = None) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.depth = depth
        self.rows = rows
        self.failed: Flags = np.zeros(len(start), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.start)

    def rows_of(self, index: Ints) -> Ints:
        """The rows of the messages at ``index``."""
        return index if self.rows is None else self.rows[index]

    def check_later(self, messages: Any, index: Ints, starts: Ints, ends: Ints) -> None:
        """Keep messages within the messages at ``index``, which no one wants, to be checked with all others of their type."""
        self.data.unchecked.setdefault(messages, []).append((starts, ends, self.rows_of(index)))

    def spend(self, owner: Ints, item_bytes: int) -> Flags | None:
        """bool[n]: the messages that have too many items for their size; None where all items have room.

        Args:
            owner: int64[…], the message of each item.
            item_bytes: what an item takes in memory.
        """
        if self.data.memory.spend(len(owner) * item_bytes):
            return None
        n_bytes = np.bincount(owner, minlength=len(self)) * item_bytes
        return self.data.memory.too_large(n_bytes, self.end - self.start)
