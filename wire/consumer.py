"""A consumer that needs no Spark: assigned partitions or a consumer group, records as Arrow columns or one by one.

    with Consumer({"bootstrap.servers": "broker:9092", "group.id": "mine", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        while True:
            polled = consumer.poll(1_000)
            for record in polled:
                print(record.topic, record.partition, record.offset, record.value)
            consumer.commit()

Settings have Kafka's names. Owns the order in which partitions are assigned and revoked, and what comes before and after.
:mod:`~pykafka_wire.wire.fetch.assignment` has the positions and reads,
:mod:`~pykafka_wire.wire.groups.commits` commits, and :mod:`~pykafka_wire.wire.groups.membership` is the place in the
group.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pykafka_wire.wire import forks
from pykafka_wire.wire.arrow.arrays import to_arrow
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import ListedOffset, list_offsets
from pykafka_wire.wire.connection.counters import ClientTotals
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import TopicRecreatedError
from pykafka_wire.wire.fetch.assignment import Assignment
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords, partition_column, topic_column
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.groups.classic.membership import ClassicMembership
from pykafka_wire.wire.groups.commits import GroupCommits
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, GroupMetadata
from pykafka_wire.wire.groups.kip848.membership import ConsumerMembership
from pykafka_wire.wire.groups.membership import Membership, Topics, TopicSubscription
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: The time for the last commit on close; Java's Consumer.close() has the same default.
_CLOSE_MS: Final = 30_000

#: A topic that metadata describe as another one than the group has assigned is looked at again after so long: the broker that was
#: asked may lag behind the coordinator.
_TOPIC_CHECK_S: Final = 1.0

#: Called with the partitions that were assigned, or are about to be revoked.
OnPartitions = Callable[[tuple[TopicPartition, ...]], None]


class ConsumerRecord(NamedTuple):
    """One record; ``timestamp_ms`` is -1 where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecords:
    """What one poll brought; iterating gives :class:`ConsumerRecord`, :meth:`to_arrow` columns. Empty, it is false.

    Attributes:
        ended: partitions whose end was reached, for the first time since records came: all of them are handed out.
    """

    fetched: FetchedRecords | None = None
    ended: tuple[TopicPartition, ...] = ()

    def __len__(self) -> int:
        return 0 if self.fetched is None else self.fetched.records.n_records

    def __iter__(self) -> Any:  # Any: an iterator of records, out of untyped Arrow values
        if self.fetched is None:
            return
        records, ranges = self.fetched.records, self.fetched.ranges
        none = [None] * records.n_records
        for index, offset, timestamp, key, value, headers in zip(
            records.slice_index.tolist(),
            records.offset.tolist(),
            records.timestamp.tolist(),
            none if records.key is None else records.key.to_pylist(),
            none if records.value is None else records.value.to_pylist(),
            none if records.headers is None else records.headers.to_pylist(),
            strict=True,
        ):
            pairs = tuple((header["key"], header["value"]) for header in headers or ())
            topic, partition = ranges[index].topic_partition
            yield ConsumerRecord(topic, partition, offset, timestamp, key, value, pairs)

    def to_arrow(self) -> Any:  # Any: pyarrow has no types
        """Return a pa.RecordBatch: topic, partition, offset, timestamp (ms, UTC), key, value, headers; without those columns that
        the consumer leaves out."""
        if self.fetched is None:
            return pa.RecordBatch.from_pydict({})
        records, ranges = self.fetched.records, self.fetched.ranges
        columns = {
            "topic": topic_column(records, ranges),
            "partition": partition_column(records, ranges),
            "offset": to_arrow(records.offset),
            "timestamp": to_arrow(records.timestamp).view(pa.timestamp("ms", tz="UTC")),
            "key": records.key,
            "value": records.value,
            "headers": records.headers,
        }
        return pa.RecordBatch.from_pydict({name: column for name, column in columns.items() if column is not None})


class Consumer:
    """Reads topic-partitions, alone or as a member of a group. Not thread-safe; a thread of its own sends the heartbeats.

    A forked child cannot use a consumer that has subscribed: calls raise ForkedConsumerError, and :meth:`close` leaves the
    group's member to the parent.

    Delivery is at least once: commits write positions, the offsets after the last records that poll returned. With
    ``enable.auto.commit`` (the default where there is a ``group.id``) later polls, a rebalance and :meth:`close` commit.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str], *, columns: Columns | None = None) -> None:
        """Begin without any connection.

        Args:
            settings: by Kafka's names, such as ``bootstrap.servers``, ``group.id``, ``auto.offset.reset``.
            columns: the columns to decode; by default all.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        self._cluster = Cluster(self._settings)
        self._assignment = Assignment(self._cluster, columns or Columns(headers=True), self._committed_positions)
        self._commits = GroupCommits(self._cluster)
        self._membership: Membership | None = None
        #: The generation of forks in which the member was made.
        self._subscribed_in = 0
        self._is_closed = False
        #: Whether records were polled since the last transaction, and the removals of partitions before the first of them.
        self._has_polled = False
        self._n_removals_at_poll = 0
        self._on_assigned: OnPartitions | None = None
        self._on_revoked: OnPartitions | None = None

    # --- what to read ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions in place of those before, without the group's assignment. A mapping has offsets to start at (or
        EARLIEST, LATEST). Without offsets, a partition that was assigned before goes on where it was, and others start at the
        group's committed offsets, else by ``auto.offset.reset``. With ``enable.auto.commit`` the positions until now are committed
        in the background."""
        if self._membership is not None:
            raise ValueError("this consumer has subscribed: close it, or use another one, to assign partitions")
        starts: dict[TopicPartition, int | None] = (
            dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        )
        kept = {tp for tp in self._assignment.partitions if tp in starts and starts[tp] is None}
        self._commits.begin_auto_commit(self._assignment.positions)
        self._give_up(self._assignment.partitions - kept)
        self._assignment.add({tp: start for tp, start in starts.items() if tp not in kept})

    def subscribe(
        self, topics: Topics, *, on_assigned: OnPartitions | None = None, on_revoked: OnPartitions | None = None
    ) -> None:
        """Share topics with the other members of ``group.id``; :meth:`poll` joins.

        Args:
            topics: names, or a pattern of whole names: ``re.compile("orders-.*")``, matched here whenever metadata is
                refreshed (``metadata.max.age.ms``), or a :class:`SubscriptionPattern`, matched by the group's coordinator.
                Patterns never match internal topics.
            on_assigned: called with the partitions that are assigned in addition to those before.
            on_revoked: called before partitions are revoked, and by :meth:`close` with those that are left, while their offsets
                can still be committed, unless the place in the group is lost: then :meth:`commit` raises BrokerError in it. What
                it raises, :meth:`poll` or :meth:`close` raises, and the partitions are revoked anyway.

        Raises:
            SettingsError: there is no ``group.id``, this client implements none of the assignment strategies, or the group
                protocol cannot match a SubscriptionPattern.
        """
        if self._membership is not None:
            raise ValueError("this consumer has subscribed already: close it, or use another one")
        subscription = TopicSubscription.of(topics)
        group = self._commits.group
        if self._settings.group_protocol == "consumer":
            membership: Membership = ConsumerMembership(self._cluster, group, subscription)
        else:
            membership = ClassicMembership.of(self._cluster, group, subscription)
        self._commits.begin_auto_commit(self._assignment.positions)
        self._membership = self._commits.membership = membership
        self._subscribed_in = forks.generation
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._give_up(self._assignment.partitions)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that this consumer reads at present, paused ones too."""
        return tuple(sorted(self._assignment.partitions))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Let :meth:`poll` return nothing from these partitions until :meth:`resume`. They stay assigned; one that is revoked is
        paused no more. Raises KeyError for a partition that is not assigned."""
        self._assignment.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions again, from where they were paused. Raises KeyError for a partition that is not assigned."""
        self._assignment.resume(partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are paused."""
        return tuple(sorted(self._assignment.paused))

    # --- reading --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 1_000) -> ConsumerRecords:
        """Return the next records, or none after ``timeout_ms``; returns early at the end of a partition as well. In a group it
        must be called at least every ``max.poll.interval.ms``; partitions are assigned and revoked only in here.

        A topic that is deleted and recreated is another topic. With ``group.protocol=consumer`` the group revokes the old one and
        assigns the new one, which is read from its committed offsets, else by ``auto.offset.reset``.

        Raises:
            TopicRecreatedError: the same without a group that assigns topics by id; each poll fails until a :meth:`seek`.
            WireError: the group refuses this member, a partition cannot be read, or an offset is out of range and
                ``auto.offset.reset`` is none. The next poll continues after the last records that were returned.
        """
        self._check_usable()
        deadline = Deadline.after_ms(timeout_ms)
        self._commits.auto_commit_if_due(self._assignment.positions)
        while True:
            fetched: FetchedRecords | None = None
            ended: list[TopicPartition] = []
            if self._ensure_assigned(deadline):
                fetched, ended = self._read_assigned(deadline)
            if fetched is not None or ended or deadline.expired:
                if not self._has_polled:
                    self._n_removals_at_poll = self._assignment.n_removals
                self._has_polled |= fetched is not None
                return ConsumerRecords(fetched=fetched, ended=tuple(ended))

    def position(self, tp: TopicPartition) -> int:
        """Return the next offset to read. Raises KeyError for a partition that is not assigned, and TopicRecreatedError for one
        of a recreated topic until the group assigns it anew.
        """
        self._check_fork()
        return self._assignment.position(tp, self._api_deadline())

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at ``offset``, or at EARLIEST or LATEST. Raises as :meth:`position`."""
        self._assignment.seek(tp, offset)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return, for each topic-partition, assigned or not, the first offset whose record is at or after its timestamp, with
        that record's timestamp; None if there is no such record.

        Args:
            timestamps_ms: milliseconds since the epoch.

        Raises:
            ValueError: a timestamp is negative.
            WireError: a topic-partition does not exist, or its leader does not respond.
        """
        for tp, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise ValueError(
                    f"the timestamp of {tp.topic}-{tp.partition} is {timestamp}: use milliseconds since the epoch; for the "
                    "ends of a partition seek to EARLIEST or LATEST"
                )
        isolation = self._settings.isolation_level
        listed = list_offsets(self._cluster, timestamps_ms, isolation_level=isolation, deadline=self._api_deadline())
        return {tp: listed[tp] if listed[tp].offset >= 0 else None for tp in timestamps_ms}

    # --- offsets of the group -------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, by default every position, to the group.

        Raises:
            BrokerError: the coordinator refused it. After ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH and
                STALE_MEMBER_EPOCH another member reads the records since the last commit again. REBALANCE_IN_PROGRESS:
                poll, and commit again what is still assigned.
        """
        self._check_usable()
        positions = self._assignment.positions
        wanted = (
            positions
            if offsets is None
            else {tp: _position_at(offset, positions.get(tp)) for tp, offset in offsets.items()}
        )
        self._commits.commit(wanted, self._api_deadline())
        self._assignment.keep(wanted)

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, by default of the assigned partitions; without those that have none."""
        self._check_fork()
        wanted = self.assignment if partitions is None else tuple(partitions)
        return {tp: committed.offset for tp, committed in self._commits.fetch(wanted, self._api_deadline()).items()}

    # --- transactions ---------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> ClientSettings:
        """Return the settings that it was made with."""
        return self._settings

    def group_metadata(self) -> GroupMetadata:
        """Return the group and this member of it, for a transaction that commits offsets (KIP-447); only the group's name where
        partitions were assigned by :meth:`assign`.

        Raises:
            SettingsError: there is no ``group.id``.
            BrokerError: the member has not joined, or has lost its place.
        """
        self._check_fork()
        return self._commits.group_metadata()

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Return what :meth:`commit` would commit now, for a transaction that does it instead."""
        return {tp: CommittedOffset(*position) for tp, position in self._assignment.positions.items()}

    @property
    def owns_polled(self) -> bool:
        """Return whether all that was polled for the next transaction is still this consumer's to process: no partition was
        revoked or reset since, nor have positions gone back."""
        return self._n_removals_at_poll == self._assignment.n_removals

    def after_transaction(self, committed: bool | None) -> None:
        """Note that a transaction with :meth:`positions` was committed, was not (then they go back to those before), or may
        have been (then the group's committed offsets decide, once they are stable)."""
        self._has_polled = False
        if not committed:
            self._n_removals_at_poll = -1  # until the next poll
        if committed:
            self._assignment.keep_all()
        else:
            self._assignment.rewind(asks_group=committed is None)

    # --- the end --------------------------------------------------------------------------------------------------------

    def metrics(self) -> ClientTotals:
        """Return what this client has sent and received, repeated, and waited for, since it was made. Sends no request."""
        return self._cluster.counters.totals()

    def close(self, *, leave: bool = True) -> None:
        """Commit if ``enable.auto.commit``, call ``on_revoked``, leave the group, close all connections. With ``leave=False`` a
        static member keeps its partitions, if it comes back within ``session.timeout.ms``.

        A ``with`` block that ends by an exception neither commits nor calls ``on_revoked``: records that were polled but not
        processed must be read again."""
        self._close(in_order=True, leave=leave)

    def _close(self, *, in_order: bool, leave: bool) -> None:
        if self._is_forked_member():
            self._assignment.close()
            self._cluster.close()
            return
        try:
            if in_order and not self._is_closed:
                deadline = self._api_deadline().at_most_ms(_CLOSE_MS)
                if not self._commits.commit_before_revocation(self._assignment.positions, deadline):
                    logger.warning("group %s: positions were not committed in time", self._settings.group_id)
                on_revoked, self._on_revoked = self._on_revoked, None  # once, even if it closes the consumer itself
                if on_revoked is not None and self.assignment:
                    on_revoked(self.assignment)
        finally:
            self._is_closed = True
            self._commits.cancel()
            if self._membership is not None:
                self._membership.close(leave=leave)
            self._assignment.close()
            self._cluster.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close(in_order=error is None, leave=True)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _is_forked_member(self) -> bool:
        return self._membership is not None and self._subscribed_in != forks.generation

    def _check_fork(self) -> None:
        if self._is_forked_member():
            raise forks.forked_consumer_error(self._commits.group)

    def _check_usable(self) -> None:
        self._check_fork()
        if self._is_closed:
            raise ValueError("this consumer is closed")

    def _api_deadline(self) -> Deadline:
        return Deadline.of_call(self._settings)

    def _committed_positions(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Position]:
        if self._settings.group_id is None:
            return {}
        fetched = self._commits.fetch(partitions, deadline, as_member=True)
        self._commits.record({tp: committed.offset for tp, committed in fetched.items()})
        return {tp: Position(committed.offset, committed.leader_epoch) for tp, committed in fetched.items()}

    def _read_assigned(self, deadline: Deadline) -> tuple[FetchedRecords | None, list[TopicPartition]]:
        try:
            return self._assignment.poll(deadline)
        except TopicRecreatedError as error:
            if self._membership is None or not self._membership.topic_ids():
                error.remedy = "Seek to where the new topic is to be read from."
                raise
            # The group assigns topics by id: it revokes the partitions, and assigns those of the new topic (KIP-848).
            logger.warning("group %s: %s", self._settings.group_id, error.text)
            outdated = [tp for tp in self._assignment.partitions if tp.topic == error.topic]
            self._assignment.set_aside(outdated, for_s=_TOPIC_CHECK_S)
            return None, []

    def _ensure_assigned(self, deadline: Deadline) -> bool:
        """Return whether there is something to read; gives up and takes up what the group revokes and assigns."""
        member = self._membership
        if member is None:
            return True
        member.record_poll()
        while True:
            target = member.target()
            if target is not None:
                # A position in an old topic must not be committed to the new one of its name.
                self._assignment.set_aside(member.recreated())
                if not self._revoke(self._assignment.partitions - target, deadline):
                    return False
                self._take_up(target - self._assignment.partitions, member.topic_ids())
                member.acknowledge()
            elif not member.may_read(deadline):
                return False
            elif member.target() is None:
                return True

    def _revoke(self, partitions: frozenset[TopicPartition], deadline: Deadline) -> bool:
        """Return whether these partitions are revoked; False where the last commit is still in progress at the deadline."""
        if not partitions:
            return True
        assert self._membership is not None
        # A member that lost its place must not commit: another one may own the partitions already.
        if not self._membership.lost and not self._commits.commit_before_revocation(
            self._assignment.positions, deadline
        ):
            return False
        try:
            if self._on_revoked is not None:
                self._on_revoked(tuple(sorted(partitions)))
        finally:
            self._give_up(partitions)  # the group does not wait for a callback that fails
        return True

    def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        self._assignment.remove(partitions)
        self._commits.forget(partitions)

    def _take_up(self, partitions: frozenset[TopicPartition], topic_ids: Mapping[TopicPartition, uuid.UUID]) -> None:
        if partitions:
            self._assignment.add(dict.fromkeys(partitions), {tp: topic_ids[tp] for tp in partitions if tp in topic_ids})
            if self._on_assigned is not None:
                self._on_assigned(tuple(sorted(partitions)))


def _position_at(offset: int, read_to: Position | None) -> Position:
    """Return an offset to commit; that of the position that was read to has its leader epoch."""
    return read_to if read_to is not None and read_to.offset == offset else Position(offset)
