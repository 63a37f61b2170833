"""Reads the partitions that a consumer is assigned: where each one starts, how far it has come, and which are paused.

Owns positions, the look-up of starts (an offset, EARLIEST, LATEST, or the group's committed offset), and what happens to a
position whose offset is gone. :mod:`~pykafka_wire.wire.fetch.continuous_fetch` reads; who assigns and commits is the caller's.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from pykafka_wire.wire.background_call import BackgroundCall
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    WireError,
)
from pykafka_wire.wire.fetch.continuous_fetch import ContinuousFetch
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: A poll reads for so long before it returns to its caller, which checks whether the group is rebalancing.
_READ_SLICE_MS: Final = 200.0
#: Where to start: an offset, EARLIEST, LATEST, or None for the group's committed offset.
Start = int | None
#: The group's committed positions among those topic-partitions, until a deadline.
CommittedPositions = Callable[[Sequence[TopicPartition], Deadline], Mapping[TopicPartition, Position]]


class _Found(NamedTuple):
    """What a look-up has found."""

    positions: Mapping[TopicPartition, Position]
    topic_ids: Mapping[TopicPartition, uuid.UUID]


class Assignment:
    """Records of the assigned partitions, from their positions on. Not thread-safe."""

    def __init__(self, cluster: Cluster, columns: Columns, committed: CommittedPositions) -> None:
        """Begin with nothing assigned.

        Args:
            committed: asks for the group's committed positions; called in a thread of its own.
        """
        self.positions: dict[TopicPartition, Position] = {}
        self._cluster = cluster
        self._settings = cluster.settings
        self._columns = columns
        self._committed = committed
        #: Starts that are not looked up yet.
        self._unresolved: dict[TopicPartition, Start] = {}
        #: The look-up in progress, and of which partitions.
        self._lookup: tuple[frozenset[TopicPartition], BackgroundCall[_Found]] | None = None
        self._paused: set[TopicPartition] = set()
        #: The topic that each partition belongs to, since its name may be another topic's by now: as the group has assigned it, or
        #: as it was found where reading began.
        self._assigned_ids: dict[TopicPartition, uuid.UUID] = {}
        self._found_ids: dict[TopicPartition, uuid.UUID] = {}
        #: Partitions that are neither read nor have a position to commit, since their topic was recreated: where each one was,
        #: and when to try to read it again, on the monotonic clock.
        self._set_aside: dict[TopicPartition, tuple[Start | Position, float]] = {}
        #: Where the end of a partition was reported last: once for each end, however often reading begins anew for others' sake.
        self._ended_at: dict[TopicPartition, int] = {}
        #: Where to go back to: what was committed last, or where reading began.
        self._rewind_to: dict[TopicPartition, Position] = {}
        #: Where to go back to from positions that were reset, and are being looked up: a reset may be further than that.
        self._rewind_to_after_reset: dict[TopicPartition, Position] = {}
        #: Positions that were or were not committed, where the group's committed offsets decide.
        self._in_doubt: dict[TopicPartition, Position] = {}
        self.n_removals = 0
        self._read: ContinuousFetch | None = None

    # --- what is read -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions, paused ones too."""
        return frozenset((*self.positions, *self._unresolved, *self._set_aside))

    def add(
        self, starts: Mapping[TopicPartition, Start], topic_ids: Mapping[TopicPartition, uuid.UUID] | None = None
    ) -> None:
        """Read these partitions as well, of the topics with these ids, else of those that have the names now."""
        self._unresolved |= starts
        self._assigned_ids |= topic_ids or {}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions no more; where each one was, and whether it was paused, is forgotten."""
        removed = set(partitions)
        self.n_removals += bool(removed)
        for tp in removed:
            self._rewind_to.pop(tp, None)
            self._rewind_to_after_reset.pop(tp, None)
            self._in_doubt.pop(tp, None)
            self._ended_at.pop(tp, None)
            self.positions.pop(tp, None)
            self._unresolved.pop(tp, None)
            self._assigned_ids.pop(tp, None)
            self._found_ids.pop(tp, None)
            self._set_aside.pop(tp, None)
        self._paused -= removed
        self._read = None
        self._drop_lookup(removed)

    def set_aside(self, partitions: Iterable[TopicPartition], *, for_s: float = math.inf) -> None:
        """Set aside topic-partitions whose topic was recreated: they have no position, and are not read, until they are
        removed and added again, or until `for_s` is over: then they are where they were."""
        for tp in self.partitions.intersection(partitions) - self._set_aside.keys():
            where = self.positions.pop(tp) if tp in self.positions else self._unresolved.pop(tp)
            self._set_aside[tp] = where, time.monotonic() + for_s
            self.n_removals += 1
            self._read = None
            self._drop_lookup({tp})

    def _take_back(self) -> None:
        """Read partitions again that were set aside for a time which is over."""
        now = time.monotonic()
        for tp in [tp for tp, (_, until) in self._set_aside.items() if until <= now]:
            where, _ = self._set_aside.pop(tp)
            if isinstance(where, Position):
                self.positions[tp] = where
            else:
                self._unresolved[tp] = where
            self._read = None

    def seek(self, tp: TopicPartition, start: Start) -> None:
        """Continue at ``start``; without an id from the group, of the topic that has the name now. Raises KeyError for a partition
        that is not assigned, and TopicRecreatedError for one that was set aside."""
        self._check_current(tp)
        self._found_ids.pop(tp, None)
        self._go_to(tp, start)

    def _go_to(self, tp: TopicPartition, start: Start | Position) -> None:
        """Continue at ``start`` in the topic that was read until now."""
        self._in_doubt.pop(tp, None)
        self._rewind_to_after_reset.pop(tp, None)
        self._drop_lookup({tp})
        if tp not in self._unresolved:
            del self.positions[tp]
        if isinstance(start, int) and start >= 0:
            start = Position(start)
        if isinstance(start, Position):  # known at once: a commit that follows must not leave it out
            self._unresolved.pop(tp, None)
            self.positions[tp] = self._rewind_to[tp] = start
        else:
            self._unresolved[tp] = start
        self._ended_at.pop(tp, None)
        self._read = None

    def keep(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Take note that these positions are committed: :meth:`rewind` goes back no further."""
        self._rewind_to |= {tp: position for tp, position in positions.items() if tp in self.positions}

    def keep_all(self) -> None:
        """Take note that all that was polled is committed, also of partitions whose reset is being looked up."""
        self.keep(self.positions)
        self._rewind_to_after_reset.clear()

    def rewind(self, *, asks_group: bool) -> None:
        """Continue after what was committed last, else where reading began, or was sought. ``asks_group``: it is unknown whether
        the positions were committed; they stay where the group has them."""
        for tp, position in tuple(self.positions.items()):
            self._go_to(tp, None if asks_group else self._rewind_to[tp])
            if asks_group:
                self._in_doubt[tp] = position
        for tp, (where, until) in self._set_aside.items():
            if tp in self._rewind_to_after_reset:
                self._set_aside[tp] = self._rewind_to_after_reset.pop(tp), until
            elif isinstance(where, Position):
                self._set_aside[tp] = None if asks_group else self._rewind_to[tp], until
                if asks_group:
                    self._in_doubt[tp] = where
        for tp, position in tuple(self._rewind_to_after_reset.items()):
            self._go_to(tp, position)

    def position(self, tp: TopicPartition, deadline: Deadline) -> int:
        """Return the next offset to read. Raises as :meth:`seek`."""
        self._check_current(tp)
        while tp in self._unresolved:  # a look-up in progress may be of other starts
            self._resolve(deadline)
            if tp in self._unresolved and deadline.expired:
                raise DeadlineExceededError("the position was not found in time", **tp._asdict())
        return self.positions[tp].offset

    def _check_current(self, tp: TopicPartition) -> None:
        if tp in self._set_aside:
            raise TopicRecreatedError(
                "the topic was deleted and recreated, and the group has not assigned the new one yet",
                **tp._asdict(),
                remedy="Poll until it is assigned.",
            )

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that :meth:`pause` has named, without those that were resumed."""
        return frozenset(self._paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Read nothing from these partitions until they are resumed. What was fetched of them and not yet handed out is
        fetched again then. Raises KeyError for a partition that is not assigned."""
        self._set_paused(self._paused | self._assigned(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions again. Raises KeyError for a partition that is not assigned."""
        self._set_paused(self._paused - self._assigned(partitions))

    def _assigned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        named = set(partitions)
        for tp in sorted(named - self.partitions):
            raise KeyError(tp)
        return named

    def _set_paused(self, paused: set[TopicPartition]) -> None:
        if paused != self._paused:
            self._paused = paused
            self._read = None

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, deadline: Deadline) -> tuple[FetchedRecords | None, list[TopicPartition]]:
        """Return the next records, and the partitions whose end was reached; neither where nothing comes for some 200 ms, or
        until ``deadline``.

        Raises: as :meth:`~pykafka_wire.wire.consumer.Consumer.poll`.
        """
        self._take_back()
        unidentified = self._unidentified()
        if self._unresolved or unidentified or self._lookup is not None:
            # Partitions of which all is known are read while others are looked up.
            is_read = self.positions.keys() - unidentified - self._paused
            self._resolve(Deadline.after_ms(0) if is_read else deadline, unidentified)
        return self._read_slice(deadline.at_most_ms(_READ_SLICE_MS))

    def _read_slice(self, until: Deadline) -> tuple[FetchedRecords | None, list[TopicPartition]]:
        try:
            if self._read is None:
                waiting = self._paused | self._unidentified()
                active = {tp: position for tp, position in self.positions.items() if tp not in waiting}
                if not active:
                    time.sleep(until.remaining_ms() / 1000)
                    return None, []
                topic_ids = self._found_ids | self._assigned_ids
                self._read = ContinuousFetch(self._cluster, active, self._columns, topic_ids)
            fetched = self._read.poll(until)
        except OffsetOutOfRangeError as error:
            self._read = None
            if self._settings.auto_offset_reset == "none" or error.topic is None or error.partition is None:
                raise
            tp = TopicPartition(error.topic, error.partition)
            logger.warning("%s; auto.offset.reset=%s", error, self._settings.auto_offset_reset)
            position, rewind_to = self.positions[tp], self._rewind_to[tp]
            self.seek(tp, self._reset(tp))
            if position.offset != rewind_to.offset:
                # What was polled of it has no position to commit any more.
                self.n_removals += 1
            # A rewind to below the log's start would be reset anew, past what is polled until then.
            if error.log_start_offset is None or rewind_to.offset >= error.log_start_offset:
                self._rewind_to_after_reset[tp] = rewind_to
            return None, []
        except LogTruncatedError as error:
            self._read = None
            if self._settings.auto_offset_reset == "none" or error.topic is None or error.partition is None:
                raise
            # As Java's consumer (KIP-320): continue where the two logs diverge.
            logger.warning("%s; reading on from offset %d", error, error.diverging_offset)
            tp = TopicPartition(error.topic, error.partition)
            position = Position(error.diverging_offset, error.diverging_epoch)
            self.positions[tp], self._rewind_to[tp] = position, min(self._rewind_to[tp], position)
            self._ended_at.pop(tp, None)
            return None, []
        except BaseException:
            self._read = None
            raise
        self.positions |= self._read.positions()
        return fetched, [tp for tp in self._read.ended() if self._is_new_end(tp)]

    def _unidentified(self) -> set[TopicPartition]:
        """Return the partitions whose topic's id is to be found before they are read."""
        return (self.positions.keys() | self._unresolved.keys()) - self._assigned_ids.keys() - self._found_ids.keys()

    def _is_new_end(self, tp: TopicPartition) -> bool:
        before = self._ended_at.get(tp)
        self._ended_at[tp] = self.positions[tp].offset
        return before != self._ended_at[tp]

    def close(self) -> None:
        """End the look-up in progress, and drop what was fetched."""
        if self._lookup is not None:
            self._lookup[1].cancel()
        self._read = None

    # --- starts -----------------------------------------------------------------------------------------------------

    def _drop_lookup(self, partitions: set[TopicPartition]) -> None:
        """End a look-up that is about any of these partitions: its result may be out of date."""
        if self._lookup is not None and not partitions.isdisjoint(self._lookup[0]):
            self._lookup[1].cancel()
            self._lookup = None

    def _resolve(self, deadline: Deadline, unidentified: Set[TopicPartition] = frozenset()) -> None:
        """Look up all starts that are not known, and topics' ids, until the deadline; a later call continues."""
        if self._lookup is None or self._lookup[1].is_lost:
            asked = dict(self._unresolved)
            rewound = {tp: (position, self._rewind_to[tp]) for tp, position in self._in_doubt.items()}
            call = BackgroundCall(
                lambda until: self._look_up(asked, rewound, unidentified, until),
                deadline=Deadline.of_call(self._settings),
                name="pykafka-wire start offsets",
            )
            self._lookup = frozenset(asked.keys() | unidentified), call
        if not self._lookup[1].wait(deadline):
            return
        call, self._lookup = self._lookup[1], None
        starts = call.result()
        self._found_ids |= starts.topic_ids
        for tp, position in starts.positions.items():
            self.positions[tp] = position
            # A log without epochs that was truncated is reset to its end: what was polled and not committed lies before that.
            self._rewind_to[tp] = min(position, self._rewind_to_after_reset.pop(tp, position))
            del self._unresolved[tp]
            self._in_doubt.pop(tp, None)
        self._read = None

    def _look_up(
        self,
        starts: Mapping[TopicPartition, Start],
        rewound: Mapping[TopicPartition, tuple[Position, Position]],
        unidentified: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> _Found:
        """Look up where to start; ``rewound`` has positions that were committed or not, and where to go on if they were not."""
        unknown = [tp for tp, start in starts.items() if start is None]
        committed = dict(self._committed(unknown, deadline)) if unknown else {}
        for tp, (position, rewind_to) in rewound.items():
            if tp in unknown and (tp not in committed or committed[tp].offset != position.offset):
                committed[tp] = rewind_to
        offsets = {
            tp: self._reset(tp) if start is None else start for tp, start in starts.items() if tp not in committed
        }
        symbolic = {tp: start for tp, start in offsets.items() if start < 0}
        listed = list_offsets(
            self._cluster, symbolic, isolation_level=self._settings.isolation_level, deadline=deadline
        )
        # With a record's epoch the first Fetch says whether the log was truncated meanwhile (KIP-320). The epoch of LATEST is that
        # of the leader, which may have written nothing in it: then the next leader does not know it.
        listed_positions = {
            tp: Position(offset.offset, offset.leader_epoch if symbolic[tp] == EARLIEST else -1)
            for tp, offset in listed.items()
        }
        positions = {tp: Position(offset) for tp, offset in offsets.items()} | listed_positions | committed
        topics = self._cluster.metadata.topics(
            {tp.topic for tp in unidentified}, max_age_ms=self._settings.metadata_max_age_ms, deadline=deadline
        )
        return _Found(positions, {tp: topics[tp.topic].topic_id for tp in unidentified})

    def _reset(self, tp: TopicPartition) -> int:
        policy = self._settings.auto_offset_reset
        if policy == "none":
            raise WireError(
                "the group has committed no offset, and auto.offset.reset is none",
                **tp._asdict(), remedy="Seek, commit an offset, or set it to earliest or latest.",
            )  # fmt: skip
        return EARLIEST if policy == "earliest" else LATEST
