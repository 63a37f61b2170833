"""Many Protobuf messages that are read together: each with its start, its end and whether it failed; and where their fields are.

Fields usually ascend, so the messages with the smallest tag go on first, all at once, and the others wait for them. A message
that is not Protobuf fails, and so do those in which only a few would go on: to read these one by one takes less time. Knows no
schema. Never raises on bytes: a message that is not valid is marked as failed, and its values mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, slices
from pykafka_wire.values.bulk.reading import MemoryBudget
from pykafka_wire.values.protobuf.input_limits import FREE_BYTES, FREE_PER_BYTE
from pykafka_wire.wire.arrow.varints import ByteBuffer, Words, numbers_at, read_unsigned

#: A round takes some 50 µs, and a field that is read one by one some 0.2 µs: reading in columns takes a few times as long at most.
_MESSAGES_OF_A_ROUND: Final = 64
_FREE_ROUNDS: Final = 500
#: Of a varint of ten bytes the last: parsers refuse more than 64 bits.
_MAX_TENTH: Final = 1


class GroupBuffer:
    """The bytes of all messages of a group, and what reading them may still take.

    Attributes:
        buffer: uint8[…]; it may hold other bytes, too.
        memory: of the items of arrays.
        work: how many messages' fields may still be found in rounds of few messages; see :meth:`is_worth_a_round`.
        unchecked: by what checks them, the starts, ends and rows of messages that no one wants.
    """

    __slots__ = ("buffer", "memory", "unchecked", "work")

    def __init__(self, buffer: ByteBuffer) -> None:
        self.buffer = buffer
        self.memory = MemoryBudget(FREE_BYTES, FREE_PER_BYTE)
        self.work = _FREE_ROUNDS * _MESSAGES_OF_A_ROUND
        self.unchecked: dict[Any, list[tuple[Ints, Ints, Ints]]] = {}

    def numbers(self, positions: Ints, dtype: str) -> npt.NDArray[Any]:
        """Return the fixed-width number at each position."""
        return numbers_at(self.buffer, positions, dtype)

    def varints(self, positions: Ints) -> tuple[Words, Ints]:
        """Return the varint at each position, and int64[n]: where it ends."""
        return read_unsigned(self.buffer, positions, _MAX_TENTH)

    def slices(self, starts: Ints, sizes: Ints, arrow_type: pa.DataType) -> pa.Array:
        """Return a pa.Array of bytes as ``pa.binary()`` or ``pa.string()``; slices must ascend and not overlap; a copy."""
        return slices(self.buffer, starts, starts + sizes, arrow_type)

    def is_worth_a_round(self, n_messages: int) -> bool:
        """Return whether to find a field of so many messages; False where too many rounds found those of a few, and more would
        follow.

        A round takes as long as many fields that are read one by one. Messages that hold themselves have messages that become fewer
        with each level, while there are more and more ways to them.
        """
        self.work += n_messages - _MESSAGES_OF_A_ROUND
        return self.work >= 0


class MessageGroup:
    """Messages within one :class:`GroupBuffer`.

    Attributes:
        start: int64[n], where each message starts; ascending.
        end: int64[n], exclusive; never after the next start.
        failed: bool[n].
        depth: how many messages are around these.
        rows: int64[n], the row of each message; None where each message is a row's.
    """

    __slots__ = ("data", "depth", "end", "failed", "rows", "start")

    def __init__(self, data: GroupBuffer, start: Ints, end: Ints, depth: int = 0, rows: Ints | None = None) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.depth = depth
        self.rows = rows
        self.failed: Flags = np.zeros(len(start), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.start)

    def rows_of(self, index: Ints) -> Ints:
        """Return the rows of the messages at ``index``."""
        return index if self.rows is None else self.rows[index]

    def check_later(self, messages: Any, index: Ints, starts: Ints, ends: Ints) -> None:
        """Keep messages within the messages at ``index``, which no one wants, to be checked with all others of their type."""
        self.data.unchecked.setdefault(messages, []).append((starts, ends, self.rows_of(index)))

    def spend(self, owner: Ints, item_bytes: int) -> Flags | None:
        """Return bool[n]: the messages that have too many items for their size; None where all items have room.

        Args:
            owner: int64[…], the message of each item.
            item_bytes: what an item takes in memory.
        """
        if self.data.memory.spend(len(owner) * item_bytes):
            return None
        n_bytes = np.bincount(owner, minlength=len(self)) * item_bytes
        return self.data.memory.too_large(n_bytes, self.end - self.start)


VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)


def wire_type_of(kind: str) -> int:
    """Return the wire type of a number (:data:`~pykafka_wire.values.protobuf.types.KINDS`), an enum or a boolean."""
    return VARINT if not kind.startswith("<") else FIXED64 if kind.endswith("8") else FIXED32


#: The tag of a message that has ended; no field has it.
_DONE: Final = 0xFFFF_FFFF
_MAX_TAG: Final = (((1 << 29) - 1) << 3) | FIXED32
_MAX_TAG_BYTES: Final = 5
#: A tag that no field has, of a message that fails.
_INVALID: Final = 0
_MAX_LENGTH: Final = 1 << 40
_MAX_LENGTH_BYTES: Final = 5
#: A round takes some 50 µs, whatever its number of messages, and a row some 10 µs alone.
_ROUNDS_PER_MESSAGE: Final = 32


class Occurrences(NamedTuple):
    """A field's values in some messages, at most one in each.

    Attributes:
        places: int64[m], of the messages within their group, ascending; None for all.
        starts: int64[m], where each value starts; without its length.
        words: varints as they are; the sizes of length-delimited values, int64[m]; nothing for fixed-width ones.
    """

    places: Ints | None
    starts: Ints
    words: Words


def scan(group: MessageGroup, tags: Iterable[int], *, fail_unknown: bool = False) -> dict[int, list[Occurrences]]:
    """Return the values of the fields with ``tags``, in the order of each message. Other fields are skipped, or fail their
    messages.
    """
    occurrences: dict[int, list[Occurrences]] = {tag: [] for tag in tags}
    n = len(group)
    if not n:
        return occurrences
    pending, position = _next_tags(group, group.start, group.start < group.end)
    n_rounds = 0
    while True:
        index = None
        if isinstance(pending, int):
            tag, start, end = pending, position, group.end
        else:
            tag = int(pending.min())
            if tag == _DONE:
                return occurrences
            is_next = pending == tag
            start, end = position, group.end
            if np.count_nonzero(is_next) < n:
                index = np.flatnonzero(is_next)
                start, end = position.take(index), group.end.take(index)
        n_rounds += 1
        is_left = len(start) * _ROUNDS_PER_MESSAGE < n_rounds or (fail_unknown and tag not in occurrences)
        is_left = is_left or not group.data.is_worth_a_round(len(start))
        value = None if is_left else _value(group, tag, start)
        if value is None:
            group.failed[slice(None) if index is None else index] = True
            if index is None:
                return occurrences
            pending[index] = _DONE
            continue
        starts, words, ends = value
        going = ends < end
        if not going.all():
            _check_ends(group, index, starts, words, ends, end)
        if tag in occurrences:
            occurrences[tag].append(Occurrences(index, starts, words))
        tags_after, after = _next_tags(group, ends, going)
        if index is None:
            pending, position = tags_after, after
        else:
            pending[index], position[index] = tags_after, after


def _value(group: MessageGroup, tag: int, position: Ints) -> tuple[Ints, Words, Ints] | None:
    """Return the starts, words and ends of values; None where messages have a tag that none of them can have."""
    if tag < 8:
        return None
    kind = tag & 7
    if kind == VARINT:
        words, ends = group.data.varints(position)
        return position, words, ends
    if kind == LENGTH:
        words, starts = group.data.varints(position)
        sizes = words.astype(np.int64)
        if words.dtype == np.uint64:
            sizes[(words > _MAX_LENGTH) | (starts - position > _MAX_LENGTH_BYTES)] = _MAX_LENGTH  # beyond any end
        return starts, sizes, starts + sizes
    if kind in (FIXED64, FIXED32):
        return position, position[:0], position + (8 if kind == FIXED64 else 4)
    return None  # groups, which have had a successor for longer than Kafka exists, are left to be read one by one


def _check_ends(group: MessageGroup, index: Ints | None, starts: Ints, words: Words, ends: Ints, end: Ints) -> None:
    """Fail the messages whose value reaches beyond their end, and make it an empty one."""
    beyond = ends > end
    if beyond.any():
        group.failed[beyond if index is None else index[beyond]] = True
        starts[beyond] = end[beyond]
        ends[beyond] = end[beyond]
        if len(words):
            words[beyond] = 0


def _next_tags(group: MessageGroup, position: Ints, going: Flags) -> tuple[Any, Ints]:
    """Return an int where all messages have the same tag, else uint32[n]; and int64[n], the positions after the tags."""
    buffer = group.data.buffer
    has_ended = not going.all()
    if not has_ended:
        first = buffer.take(position, mode="clip")
        tag = int(first[0])
        if (first == first[0]).all():
            if tag < 0x80:
                return tag, position + 1
            second = buffer.take(position + 1, mode="clip")
            if int(second[0]) < 0x80 and (second == second[0]).all():
                return tag & 0x7F | int(second[0]) << 7, position + 2
    words, after = group.data.varints(position)
    tags: npt.NDArray[np.uint32] = words.astype(np.uint32)
    if words.dtype == np.uint64:
        tags[(words > _MAX_TAG) | (after - position > _MAX_TAG_BYTES)] = _INVALID
    if has_ended:
        tags[~going] = _DONE
    return tags, after
