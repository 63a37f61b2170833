"""Finds the fields of many messages of one type together: which messages have a field, and where its values are.

Fields usually ascend, so the messages with the smallest tag go on first, all at once, and the others wait for them. A message
that is not Protobuf fails, and so do those in which only a few would go on: to read these one by one takes less time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.protobuf.message_group import MessageGroup
from pykafka_wire.wire.records.varints import Words

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)

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
    """The values of the fields with ``tags``, in the order of each message. Other fields are skipped, or fail their messages."""
    found: dict[int, list[Occurrences]] = {tag: [] for tag in tags}
    n = len(group)
    if not n:
        return found
    pending, position = _next_tags(group, group.start, group.start < group.end)
    n_rounds = 0
    while True:
        index = None
        if isinstance(pending, int):
            tag, at, end = pending, position, group.end
        else:
            tag = int(pending.min())
            if tag == _DONE:
                return found
            is_next = pending == tag
            at, end = position, group.end
            if np.count_nonzero(is_next) < n:
                index = np.flatnonzero(is_next)
                at, end = position.take(index), group.end.take(index)
        n_rounds += 1
        is_left = len(at) * _ROUNDS_PER_MESSAGE < n_rounds or (fail_unknown and tag not in found)
        is_left = is_left or not group.data.is_worth_a_round(len(at))
        value = None if is_left else _value(group, tag, at)
        if value is None:
            group.failed[slice(None) if index is None else index] = True
            if index is None:
                return found
            pending[index] = _DONE
            continue
        starts, words, ends = value
        going = ends < end
        if not going.all():
            _check_ends(group, index, starts, words, ends, end)
        if tag in found:
            found[tag].append(Occurrences(index, starts, words))
        tags_after, after = _next_tags(group, ends, going)
        if index is None:
            pending, position = tags_after, after
        else:
            pending[index], position[index] = tags_after, after


def _value(group: MessageGroup, tag: int, at: Ints) -> tuple[Ints, Words, Ints] | None:
    """The starts, words and ends of values; None where messages have a tag that none of them can have."""
    if tag < 8:
        return None
    kind = tag & 7
    if kind == VARINT:
        words, ends = group.data.varints(at)
        return at, words, ends
    if kind == LENGTH:
        words, starts = group.data.varints(at)
        sizes = words.astype(np.int64)
        if words.dtype == np.uint64:
            sizes[(words > _MAX_LENGTH) | (starts - at > _MAX_LENGTH_BYTES)] = _MAX_LENGTH  # beyond any end
        return starts, sizes, starts + sizes
    if kind in (FIXED64, FIXED32):
        return at, at[:0], at + (8 if kind == FIXED64 else 4)
    return None  # groups, which have had a successor for longer than Kafka exists, are left to be read one by one


def _check_ends(group: MessageGroup, index: Ints | None, starts: Ints, words: Words, ends: Ints, end: Ints) -> None:
    """Fails the messages whose value reaches beyond their end, and makes it an empty one."""
    beyond = ends > end
    if beyond.any():
        group.failed[beyond if index is None else index[beyond]] = True
        starts[beyond] = end[beyond]
        ends[beyond] = end[beyond]
        if len(words):
            words[beyond] = 0


def _next_tags(group: MessageGroup, position: Ints, going: Flags) -> tuple[Any, Ints]:
    """An int where all messages have the same tag, else uint32[n]; and int64[n], the positions after the tags."""
    octets = group.data.octets
    has_ended = not going.all()
    if not has_ended:
        first = octets.take(position, mode="clip")
        tag = int(first[0])
        if (first == first[0]).all():
            if tag < 0x80:
                return tag, position + 1
            second = octets.take(position + 1, mode="clip")
            if int(second[0]) < 0x80 and (second == second[0]).all():
                return tag & 0x7F | int(second[0]) << 7, position + 2
    words, after = group.data.varints(position)
    tags: npt.NDArray[np.uint32] = words.astype(np.uint32)
    if words.dtype == np.uint64:
        tags[(words > _MAX_TAG) | (after - position > _MAX_TAG_BYTES)] = _INVALID
    if has_ended:
        tags[~going] = _DONE
    return tags, after
