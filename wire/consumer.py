"""A consumer that needs no Spark: assigned partitions or a consumer group, records as Arrow columns or one by one.

    with Consumer({"bootstrap.servers": "broker:9092", "group.id": "mine", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        while True:
            polled = consumer.poll(1_000)
            for record in polled:
                print(record.topic, record.partition, record.offset, record.value)
            consumer.commit()

Settings go by Kafka's names. Owns positions, the order of giving up and taking over partitions, and commits; reading is
:mod:`~pykafka_wire.wire.fetch.live_read`'s, membership :mod:`~pykafka_wire.wire.groups.member`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import LogTruncatedError, OffsetOutOfRangeError, SettingsError, WireError, broker_error
from pykafka_wire.wire.fetch.fetched import FetchedRecords, partition_column, topic_column
from pykafka_wire.wire.fetch.live_read import LiveRead
from pykafka_wire.wire.fetch.positions import Position
from pykafka_wire.wire.groups.member import GroupMember, LiveMember, membership
from pykafka_wire.wire.groups.membership import UNKNOWN_MEMBER_ID, Identity, MemberState
from pykafka_wire.wire.groups.offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

#: How long a poll reads before it looks whether the group is rebalancing.
_READ_SLICE_MS: Final = 200.0

#: Called with the partitions that were taken over, or are to be given up.
OnPartitions = Callable[[tuple[TopicPartition, ...]], None]


class Record(NamedTuple):
    """One record; ``timestamp_ms`` is -1 where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What one poll brought; iterating gives :class:`Record`, :meth:`to_arrow` columns. Empty, it is false.

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
            yield Record(topic, partition, offset, timestamp, key, value, pairs)

    def to_arrow(self) -> Any:  # Any: pyarrow has no types
        """A pa.RecordBatch: topic, partition, offset, timestamp (ms, UTC), key, value, headers; without those columns that
        the consumer was told to leave out."""
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
    """Reads topic-partitions, alone or as a member of a group. Not thread-safe; heartbeats go out from a thread of its own.

    Delivery is at least once: what is committed are positions, the offsets after the last records that poll returned. With
    ``enable.auto.commit`` (the default, where there is a ``group.id``) a later poll, a rebalance and :meth:`close` do it.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str], *, columns: Columns | None = None) -> None:
        """Opens nothing yet.

        Args:
            settings: Kafka's names, such as ``bootstrap.servers``, ``group.id``, ``auto.offset.reset``.
            columns: what to decode; by default everything.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        self._cluster = Cluster(self._settings)
        self._columns = columns or Columns(headers=True)
        self._positions: dict[TopicPartition, Position] = {}
        #: Where to start, not looked up yet: an offset, EARLIEST, LATEST, or None for what the group has committed.
        self._unresolved: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._read: LiveRead | None = None
        self._member: LiveMember | None = None
        self._owns = False
        self._on_assigned: OnPartitions | None = None
        self._on_revoked: OnPartitions | None = None

    # --- what to read ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, whatever a group says; a mapping has offsets to start at (or EARLIEST, LATEST). Without, it
        starts where the group has got to, else as ``auto.offset.reset`` says."""
        if self._member is not None:
            raise ValueError("this consumer has subscribed: close it, or use another one, to assign partitions")
        self._take_over(partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions))

    def subscribe(
        self, topics: Iterable[str], *, on_assigned: OnPartitions | None = None, on_revoked: OnPartitions | None = None
    ) -> None:
        """Share these topics with the other members of ``group.id``; :meth:`poll` joins.

        Args:
            on_revoked: called before partitions are given up, while they can still be committed for.

        Raises:
            SettingsError: there is no ``group.id``, or no strategy in common with what is spoken here.
        """
        names = tuple(dict.fromkeys(topics))
        if self._member is not None:
            raise ValueError("this consumer has subscribed already: close it, or use another one")
        machine = membership(self._settings, self._group(), names)
        member = GroupMember(self._cluster, machine)
        self._member = LiveMember(member, self._settings, max_idle_ms=self._settings.max_poll_interval_ms)
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._take_over({})

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads at present."""
        return tuple(sorted({*self._positions, *self._unresolved}))

    # --- reading --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 1_000) -> Polled:
        """The next records, or none when ``timeout_ms`` is over; returns early for an end of partition as well. In a group
        it must be called at least every ``max.poll.interval.ms``; partitions change hands in here only.

        Raises:
            WireError: the group will not have us, a partition cannot be read, an offset is gone and ``auto.offset.reset`` is
                none. Another poll goes on behind the last records that were returned.
        """
        deadline = Deadline.after_ms(timeout_ms)
        self._auto_commit()
        while True:
            fetched: FetchedRecords | None = None
            ended: list[TopicPartition] = []
            if self._has_its_place(deadline):
                self._resolve()
                fetched, ended = self._read_slice(deadline)
            if fetched is not None or ended or deadline.expired:
                return Polled(fetched=fetched, ended=tuple(ended))

    def position(self, tp: TopicPartition) -> int:
        """The next offset to be read. Raises KeyError for a partition that is not assigned."""
        if tp in self._unresolved:
            self._resolve()
        return self._positions[tp].offset

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, or at EARLIEST or LATEST. Raises KeyError for a partition that is not assigned."""
        if tp not in self._unresolved:
            del self._positions[tp]
        self._unresolved[tp] = offset
        self._read = None

    # --- offsets of the group -------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, by default every position, to the group.

        Raises:
            BrokerError: refused; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and REBALANCE_IN_PROGRESS mean that the partitions are
                about to change hands, or have: what was read since the last commit will be read again.
        """
        wanted = self._positions if offsets is None else {tp: Position(offset) for tp, offset in offsets.items()}
        self._commit(dict(wanted))

    def _commit(self, wanted: Mapping[TopicPartition, Position]) -> None:
        identity = self._member.machine.identity if self._member is not None else Identity()
        if self._member is not None and identity.generation < 0:
            # Without a generation a broker would take it for one of no member, and let the group be rewound.
            code = self._member.machine.lost_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {self._group()!r})")
        commit_offsets(
            self._cluster,
            self._group(),
            {tp: CommittedOffset(position.offset, position.leader_epoch) for tp, position in wanted.items()},
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
        )
        self._committed |= {tp: position.offset for tp, position in wanted.items()}
        self._committed_at = time.monotonic()

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed, by default for the partitions that are assigned; those without are left out."""
        wanted = self.assignment if partitions is None else tuple(partitions)
        return {tp: position.offset for tp, position in self._fetch_committed(wanted).items()}

    # --- the end --------------------------------------------------------------------------------------------------------

    def close(self, *, leave: bool = True) -> None:
        """Commit where that is automatic, leave the group, close all connections. A static member that is to come back within
        ``session.timeout.ms`` may stay (``leave=False``), and nobody's partitions move."""
        self._close(commit=True, leave=leave)

    def _close(self, *, commit: bool, leave: bool) -> None:
        try:
            if commit and (self._owns or self._member is None):
                self._auto_commit(now=True)
        finally:
            if self._member is not None:
                self._member.close(leave=leave)
            self._read = None
            self._cluster.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What was polled and not worked through is to be read again.
        self._close(commit=error is None, leave=True)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _group(self) -> str:
        if self._settings.group_id is None:
            raise SettingsError("group.id is missing.", setting="group.id", remedy="Name the consumer group.")
        return self._settings.group_id

    def _take_over(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._positions, self._unresolved = {}, dict(partitions)
        self._committed, self._read = {}, None

    def _has_its_place(self, deadline: Deadline) -> bool:
        """Whether there are partitions to read: joins, and takes over what the group gives us."""
        member = self._member
        if member is None:
            return True
        member.alive()
        if member.state is not MemberState.STABLE:
            if not member.joining and member.error is None:
                self._give_up()
                member.join()
            if not member.wait(deadline):
                return False
        if not self._owns:
            self._owns = True
            self._take_over(dict.fromkeys(member.machine.assignment))
            if self._on_assigned is not None:
                self._on_assigned(self.assignment)
        return True

    def _give_up(self) -> None:
        if not self._owns:
            return
        assert self._member is not None
        if not self._member.machine.lost:  # else they may be another's by now
            self._auto_commit(now=True)
        if self._on_revoked is not None:
            self._on_revoked(self.assignment)
        self._owns = False
        self._take_over({})

    def _fetch_committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        stable = self._settings.isolation_level == "read_committed"
        found = fetch_offsets(self._cluster, self._group(), partitions, require_stable=stable)
        return {tp: Position(committed.offset, committed.leader_epoch) for tp, committed in found.items()}

    def _resolve(self) -> None:
        """Looks up where to start, for partitions that do not know yet."""
        if not self._unresolved:
            return
        unknown = [tp for tp, start in self._unresolved.items() if start is None]
        committed = self._fetch_committed(unknown) if unknown and self._settings.group_id is not None else {}
        self._committed |= {tp: position.offset for tp, position in committed.items()}
        starts = {
            tp: self._reset(tp) if start is None else start
            for tp, start in self._unresolved.items()
            if tp not in committed
        }
        symbolic = {tp: start for tp, start in starts.items() if start < 0}
        found = list_offsets(self._cluster, symbolic, isolation_level=self._settings.isolation_level)
        starts |= {tp: listed.offset for tp, listed in found.items()}
        self._positions |= {tp: Position(offset) for tp, offset in starts.items()} | committed
        self._unresolved = {}
        self._read = None

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
            # Like Java's consumer (KIP-320): read on where the two logs part.
            logger.warning("%s; reading on from offset %d", error, error.diverging_offset)
            position = Position(error.diverging_offset, error.diverging_epoch)
            self._positions[TopicPartition(error.topic, error.partition)] = position
            return None, []
        except BaseException:
            self._read = None
            raise
        self._positions |= self._read.positions()
        return fetched, self._read.ended()

    def _auto_commit(self, *, now: bool = False) -> None:
        settings = self._settings
        due = now or time.monotonic() - self._committed_at >= settings.auto_commit_interval_ms / 1000
        if not due or not settings.enable_auto_commit or settings.group_id is None:
            return
        changed = {
            tp: position for tp, position in self._positions.items() if self._committed.get(tp) != position.offset
        }
        try:
            self._commit(changed)
        except WireError as error:
            logger.warning("group %s: positions could not be committed: %s", settings.group_id, error)
            self._committed_at = time.monotonic()
