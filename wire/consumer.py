"""A consumer that needs no Spark: assigned partitions or a consumer group, records as Arrow columns or one by one.

    with Consumer({"bootstrap.servers": "broker:9092", "group.id": "mine", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        while True:
            polled = consumer.poll(1_000)
            for record in polled:
                print(record.topic, record.partition, record.offset, record.value)
            consumer.commit()

Settings have Kafka's names. Owns positions, commits, and the order in which partitions are assigned and revoked;
:mod:`~pykafka_wire.wire.fetch.live_read` reads, :mod:`~pykafka_wire.wire.groups.heartbeat` is the member of the group.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    SettingsError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords
from pykafka_wire.wire.fetch.live_read import LiveRead
from pykafka_wire.wire.fetch.polled import Polled
from pykafka_wire.wire.fetch.positions import Position
from pykafka_wire.wire.groups.background_call import BackgroundCall
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.groups.heartbeat import HeartbeatThread
from pykafka_wire.wire.groups.member import GroupMember, member_state_machine
from pykafka_wire.wire.groups.member_state import UNKNOWN_MEMBER_ID, Identity, MemberState
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: A poll reads for so long before it checks whether the group is rebalancing.
_READ_SLICE_MS: Final = 200.0
#: The time for the last commit on close; Java's Consumer.close() has the same default.
_CLOSE_MS: Final = 30_000
#: Offsets that were committed; positions to start at, and the committed offsets among them.
Commit = Mapping[TopicPartition, int]
Starts = tuple[Mapping[TopicPartition, Position], Mapping[TopicPartition, int]]

#: Called with the partitions that were assigned, or are about to be revoked.
OnPartitions = Callable[[tuple[TopicPartition, ...]], None]


class Consumer:
    """Reads topic-partitions, alone or as a member of a group. Not thread-safe; a thread of its own sends the heartbeats.

    A forked child cannot use a consumer that has subscribed: calls raise ForkedConsumerError, and :meth:`close` leaves the
    group's member to the parent.

    Delivery is at least once: commits write positions, the offsets after the last records that poll returned. With
    ``enable.auto.commit`` (the default where there is a ``group.id``) later polls, a rebalance and :meth:`close` commit.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str], *, columns: Columns | None = None) -> None:
        """A consumer that has not opened any connection.

        Args:
            settings: by Kafka's names, such as ``bootstrap.servers``, ``group.id``, ``auto.offset.reset``.
            columns: the columns to decode; by default all.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        self._cluster = Cluster(self._settings)
        self._columns = columns or Columns(headers=True)
        self._positions: dict[TopicPartition, Position] = {}
        #: Starts that are not looked up yet: an offset, EARLIEST, LATEST, or None for the group's committed offset.
        self._unresolved: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        #: The automatic commit in progress, and whether the one before a revocation has begun.
        self._committing: BackgroundCall[Commit] | None = None
        self._revocation_commit_begun = False
        #: The look-up of starts in progress, and for which of them.
        self._lookup: tuple[Mapping[TopicPartition, int | None], BackgroundCall[Starts]] | None = None
        self._read: LiveRead | None = None
        self._member: HeartbeatThread | None = None
        #: The generation of forks in which the member was made.
        self._subscribed_in = 0
        self._is_assigned = False
        self._on_assigned: OnPartitions | None = None
        self._on_revoked: OnPartitions | None = None

    # --- what to read ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, without the group's assignment. A mapping has offsets to start at (or EARLIEST, LATEST).
        Without offsets, reading starts at the group's committed offsets, else by ``auto.offset.reset``."""
        if self._member is not None:
            raise ValueError("this consumer has subscribed: close it, or use another one, to assign partitions")
        self._replace_assignment(partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions))

    def subscribe(
        self, topics: Iterable[str], *, on_assigned: OnPartitions | None = None, on_revoked: OnPartitions | None = None
    ) -> None:
        """Share these topics with the other members of ``group.id``; :meth:`poll` joins.

        Args:
            on_revoked: called before partitions are revoked, while their offsets can still be committed.

        Raises:
            SettingsError: there is no ``group.id``, or this client implements none of the assignment strategies.
        """
        names = tuple(dict.fromkeys(topics))
        if self._member is not None:
            raise ValueError("this consumer has subscribed already: close it, or use another one")
        state_machine = member_state_machine(self._settings, self._group(), names)
        member = GroupMember(self._cluster, state_machine)
        self._member = HeartbeatThread(member, self._settings, max_idle_ms=self._settings.max_poll_interval_ms)
        self._subscribed_in = forks.generation
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._replace_assignment({})

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads at present."""
        return tuple(sorted({*self._positions, *self._unresolved}))

    # --- reading --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 1_000) -> Polled:
        """The next records, or none after ``timeout_ms``; returns early at the end of a partition as well. In a group it must
        be called at least every ``max.poll.interval.ms``; partitions are assigned and revoked only in here.

        Raises:
            WireError: the group refuses this member, a partition cannot be read, or an offset is out of range and
                ``auto.offset.reset`` is none. The next poll continues after the last records that were returned.
        """
        self._check_fork()
        deadline = Deadline.after_ms(timeout_ms)
        self._auto_commit_if_due()
        while True:
            fetched: FetchedRecords | None = None
            ended: list[TopicPartition] = []
            if self._ensure_assigned(deadline) and self._resolve(deadline):
                fetched, ended = self._read_slice(deadline)
            if fetched is not None or ended or deadline.expired:
                return Polled(fetched=fetched, ended=tuple(ended))

    def position(self, tp: TopicPartition) -> int:
        """The next offset to read. Raises KeyError for a partition that is not assigned."""
        if tp in self._unresolved and not self._resolve(self._api_deadline()):
            raise DeadlineExceededError("the position was not found in time", topic=tp.topic, partition=tp.partition)
        return self._positions[tp].offset

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at ``offset``, or at EARLIEST or LATEST. Raises KeyError for a partition that is not assigned."""
        if tp not in self._unresolved:
            del self._positions[tp]
        self._unresolved[tp] = offset
        self._read = None

    # --- offsets of the group -------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, by default every position, to the group.

        Raises:
            BrokerError: the coordinator refused it. After ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and REBALANCE_IN_PROGRESS
                another member reads the records since the last commit again.
        """
        self._check_fork()
        self._end_auto_commit(self._api_deadline())  # it must not overwrite this one
        wanted = self._positions if offsets is None else {tp: Position(offset) for tp, offset in offsets.items()}
        self._committed |= self._commit_call(wanted)(self._api_deadline())
        self._committed_at = time.monotonic()

    def _commit_call(self, positions: Mapping[TopicPartition, Position]) -> Callable[[Deadline], Commit]:
        """A call that commits positions under the present generation, and returns their offsets."""
        identity = self._member.state_machine.identity if self._member is not None else Identity()
        if self._member is not None and identity.generation < 0:
            # A commit without a generation counts as one from outside the group, and could rewind it.
            code = self._member.state_machine.lost_error_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {self._group()!r})")
        group = self._group()
        offsets = {tp: CommittedOffset(position.offset, position.leader_epoch) for tp, position in positions.items()}

        def call(deadline: Deadline) -> Commit:
            commit_offsets(
                self._cluster,
                group,
                offsets,
                generation=identity.generation,
                member_id=identity.member_id,
                instance_id=identity.instance_id,
                deadline=deadline,
            )
            return {tp: committed.offset for tp, committed in offsets.items()}

        return call

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The group's committed offsets, by default of the assigned partitions; without those that have none."""
        wanted = self.assignment if partitions is None else tuple(partitions)
        return {tp: position.offset for tp, position in self._fetch_committed(wanted, self._api_deadline()).items()}

    # --- the end --------------------------------------------------------------------------------------------------------

    def close(self, *, leave: bool = True) -> None:
        """Commit if ``enable.auto.commit``, leave the group, close all connections. With ``leave=False`` a static member keeps
        its partitions, if it comes back within ``session.timeout.ms``."""
        self._close(commit=True, leave=leave)

    def _close(self, *, commit: bool, leave: bool) -> None:
        if self._is_forked_member():
            self._read = None
            self._cluster.close()
            return
        try:
            if commit and (self._is_assigned or self._member is None):
                deadline = self._api_deadline().at_most_ms(_CLOSE_MS)
                if not self._commit_before_revocation(deadline):
                    logger.warning("group %s: positions were not committed in time", self._settings.group_id)
        finally:
            for call in (self._committing, self._lookup and self._lookup[1]):
                if call is not None:
                    call.cancel()
            if self._member is not None:
                self._member.close(leave=leave)
            self._read = None
            self._cluster.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Records that were polled but not processed must be read again.
        self._close(commit=error is None, leave=True)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _is_forked_member(self) -> bool:
        return self._member is not None and self._subscribed_in != forks.generation

    def _check_fork(self) -> None:
        if self._is_forked_member():
            raise forks.forked_consumer_error(self._group())

    def _group(self) -> str:
        if self._settings.group_id is None:
            raise SettingsError("group.id is missing.", setting="group.id", remedy="Name the consumer group.")
        return self._settings.group_id

    def _api_deadline(self) -> Deadline:
        return Deadline.after_ms(self._settings.default_api_timeout_ms)

    def _replace_assignment(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._positions, self._unresolved = {}, dict(partitions)
        self._committed, self._read = {}, None
        if self._lookup is not None:  # its result may be out of date
            self._lookup[1].cancel()
            self._lookup = None
        self._revocation_commit_begun = False

    def _ensure_assigned(self, deadline: Deadline) -> bool:
        """Whether partitions are assigned; joins the group, and applies its assignment."""
        member = self._member
        if member is None:
            return True
        member.record_poll()
        if member.state is not MemberState.STABLE:
            if not member.joining and member.error is None:
                if not self._revoke(deadline):
                    return False
                member.request_join()
            if not member.wait_until_stable(deadline):
                return False
        if not self._is_assigned:
            self._is_assigned = True
            self._replace_assignment(dict.fromkeys(member.state_machine.assignment))
            if self._on_assigned is not None:
                self._on_assigned(self.assignment)
        return True

    def _revoke(self, deadline: Deadline) -> bool:
        """Whether all partitions are revoked; False where the last commit is still in progress at the deadline."""
        if not self._is_assigned:
            return True
        assert self._member is not None
        # A member that lost its place must not commit: another one may own the partitions already.
        if not self._member.state_machine.lost and not self._commit_before_revocation(deadline):
            return False
        if self._on_revoked is not None:
            self._on_revoked(self.assignment)
        self._is_assigned = False
        self._replace_assignment({})
        return True

    def _fetch_committed(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Position]:
        stable = self._settings.isolation_level == "read_committed"
        found = fetch_offsets(self._cluster, self._group(), partitions, require_stable=stable, deadline=deadline)
        return {tp: Position(committed.offset, committed.leader_epoch) for tp, committed in found.items()}

    def _resolve(self, deadline: Deadline) -> bool:
        """Whether all starts are known; looks them up until the deadline, and a later call continues."""
        if not self._unresolved:
            return True
        if self._lookup is None:
            asked = dict(self._unresolved)
            call = BackgroundCall(
                lambda until: self._look_up(asked, until),
                timeout_ms=self._settings.default_api_timeout_ms,
                name="pykafka-wire start offsets",
            )
            self._lookup = asked, call
        starts, call = self._lookup
        if not call.wait(deadline):
            return False
        self._lookup = None
        positions, committed = call.result()
        for tp, start in starts.items():
            if tp in self._unresolved and self._unresolved[tp] == start:  # else a seek came between
                self._positions[tp] = positions[tp]
                del self._unresolved[tp]
        self._committed |= committed
        self._read = None
        return not self._unresolved

    def _look_up(self, starts: Mapping[TopicPartition, int | None], deadline: Deadline) -> Starts:
        """Positions to start at, and those of their offsets that the group has committed."""
        unknown = [tp for tp, start in starts.items() if start is None]
        committed = self._fetch_committed(unknown, deadline) if unknown and self._settings.group_id is not None else {}
        offsets = {
            tp: self._reset(tp) if start is None else start for tp, start in starts.items() if tp not in committed
        }
        symbolic = {tp: start for tp, start in offsets.items() if start < 0}
        found = list_offsets(self._cluster, symbolic, isolation_level=self._settings.isolation_level, deadline=deadline)
        offsets |= {tp: listed.offset for tp, listed in found.items()}
        positions = {tp: Position(offset) for tp, offset in offsets.items()} | committed
        return positions, {tp: position.offset for tp, position in committed.items()}

    def _reset(self, tp: TopicPartition) -> int:
        policy = self._settings.auto_offset_reset
        if policy == "none":
            raise WireError(
                "the group has committed no offset, and auto.offset.reset is none",
                topic=tp.topic, partition=tp.partition, remedy="Seek, commit an offset, or set it to earliest or latest.",
            )  # fmt: skip
        return EARLIEST if policy == "earliest" else LATEST

    def _read_slice(self, deadline: Deadline) -> tuple[FetchedRecords | None, list[TopicPartition]]:
        until = deadline.at_most_ms(_READ_SLICE_MS)
        if not self._positions:
            time.sleep(until.remaining_ms() / 1000)
            return None, []
        try:
            if self._read is None:
                self._read = LiveRead(self._cluster, self._positions, self._columns)
            fetched = self._read.poll(until)
        except OffsetOutOfRangeError as error:
            self._read = None
            if self._settings.auto_offset_reset == "none" or error.topic is None or error.partition is None:
                raise
            tp = TopicPartition(error.topic, error.partition)
            logger.warning("%s; auto.offset.reset=%s", error, self._settings.auto_offset_reset)
            self.seek(tp, self._reset(tp))
            return None, []
        except LogTruncatedError as error:
            self._read = None
            if self._settings.auto_offset_reset == "none" or error.topic is None or error.partition is None:
                raise
            # As Java's consumer (KIP-320): continue where the two logs diverge.
            logger.warning("%s; reading on from offset %d", error, error.diverging_offset)
            position = Position(error.diverging_offset, error.diverging_epoch)
            self._positions[TopicPartition(error.topic, error.partition)] = position
            return None, []
        except BaseException:
            self._read = None
            raise
        self._positions |= self._read.positions()
        return fetched, self._read.ended()

    # --- automatic commits: in the background, since a poll must not wait for the coordinator ---------------------------

    def _auto_commit_if_due(self) -> None:
        if not self._end_auto_commit(Deadline.after_ms(0)):
            return
        if time.monotonic() - self._committed_at >= self._settings.auto_commit_interval_ms / 1000:
            self._begin_auto_commit()

    def _commit_before_revocation(self, deadline: Deadline) -> bool:
        """Whether the commit before a revocation has ended; waits until the deadline, and a later call continues."""
        if not self._revocation_commit_begun:
            if not self._end_auto_commit(deadline):
                return False
            self._begin_auto_commit()
            self._revocation_commit_begun = True
        return self._end_auto_commit(deadline)

    def _begin_auto_commit(self) -> None:
        settings = self._settings
        changed = {
            tp: position for tp, position in self._positions.items() if self._committed.get(tp) != position.offset
        }
        self._committed_at = time.monotonic()
        if not settings.enable_auto_commit or settings.group_id is None or not changed:
            return
        try:
            self._committing = BackgroundCall(
                self._commit_call(changed),
                timeout_ms=settings.default_api_timeout_ms,
                name=f"pykafka-wire commit of {settings.group_id}",
            )
        except WireError as error:
            logger.warning("group %s: the commit of positions failed: %s", settings.group_id, error)

    def _end_auto_commit(self, deadline: Deadline) -> bool:
        """Whether no automatic commit is in progress; waits for its end until the deadline."""
        if self._committing is None:
            return True
        if not self._committing.wait(deadline):
            return False
        call, self._committing = self._committing, None
        try:
            self._committed |= call.result()
        except WireError as error:
            logger.warning("group %s: the commit of positions failed: %s", self._settings.group_id, error)
        return True
