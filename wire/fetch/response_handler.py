"""What a response to a Fetch means for one range: records, a redirection, nothing yet, or an error.

Owns this decision for every response and for one that did not come, and the errors that name the place, the log's bounds and the
remedy. It sends nothing and changes nothing: :mod:`~pykafka_wire.wire.fetch.range_read` acts on what is returned here,
:mod:`~pykafka_wire.wire.fetch.range_progress` keeps the positions.

==================================================  =======================================================================
response                                            what it means
==================================================  =======================================================================
records, of whole batches                           :class:`ReceivedRecords`
records, of less than one batch                     :class:`Enlarged`; :class:`FailedRange` where no broker accepts such a batch
a diverging leader epoch (KIP-595)                  :class:`FailedRange`: the log was truncated. In a read without an end
                                                    :class:`Validated` where it ends at or above the position
records of a later leader epoch than when the       :class:`ReceivedRecords` of what is before them; :class:`FailedRange`
range was planned                                   where nothing is: the log was truncated, and has grown again
the name of a follower in our rack (KIP-392)        :class:`Redirected`, unless the leader is to serve the range;
                                                    :class:`LeftFollower` where it has had no records for a second that the leader
                                                    has
no records, of a follower                           :class:`Waiting` for a second, then :class:`LeftFollower`. In a read without
                                                    an end :class:`AskedLeader`, at first and after each second: a follower may
                                                    trail, so the log's end is the leader's to tell
no records, since the log ends here                 :class:`Waiting`, in a bounded read up to a time limit, then :class:`EndMissing`
no records, since others took the room              :class:`Skipped`
an error code of a follower                         :class:`LeftFollower`: what a follower lacks its leader may have
OFFSET_OUT_OF_RANGE                                 :class:`FailedRange`
CORRUPT_MESSAGE                                     :class:`RetriedRange` once, then :class:`FailedRange`
retriable codes                                     :class:`RetriedRange`, after the leader or the topic's id is looked up where the
                                                    code asks for it
other codes                                         :class:`FailedRange`
none: the connection broke, or time passed          :class:`RetriedRange`; a response that breaks the protocol once
==================================================  =======================================================================

A retry after the end of a code's grace period, or of the time that a range may make no progress, is :class:`FailedRange`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.error_codes import Action, ErrorCode
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    LogEndError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    TransportError,
    UnknownTopicError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.fetch.batch_scan import BatchScan, bytes_before_epochs, scan_batches
from pykafka_wire.wire.fetch.preferred_read_replica import FOLLOWER_WAIT_S
from pykafka_wire.wire.fetch.range_progress import RangeProgress, RequestedPartition
from pykafka_wire.wire.protocol.messages.fetch import PartitionData

#: The broker's socket.request.max.bytes (100 MiB by default) bounds what any producer can have written as one batch.
MAX_BATCH_BYTES: Final = 104_857_600


@dataclass(frozen=True, slots=True)
class ReceivedRecords:
    """Records of the range, as `scan` found them.

    Attributes:
        aborted: ``(producer id, first offset)`` of each aborted transaction, where the read leaves those out.
        at_end: whether the log ends behind them, for now.
    """

    records: memoryview
    scan: BatchScan
    aborted: Sequence[tuple[int, int]]
    at_end: bool


@dataclass(frozen=True, slots=True)
class Enlarged:
    """The first batch did not fit into the response: more is to be asked for. Kafka itself never cuts it short (KIP-74)."""

    needed_bytes: int


@dataclass(frozen=True, slots=True)
class Validated:
    """The leader does not know the position's epoch, but its log reaches the position: the range is to be asked for again without
    the epoch, as Java's consumer does (KIP-320)."""


@dataclass(frozen=True, slots=True)
class Redirected:
    """The leader names a follower in our rack, which is to serve the range.

    Attributes:
        at_end: whether the leader's log ends at the position.
    """

    replica: int
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is nothing to give yet.

    Attributes:
        at_end: whether the log ends at the position; None in a follower's response, since a follower may lag behind.
    """

    at_end: bool | None


@dataclass(frozen=True, slots=True)
class AskedLeader:
    """A follower has no records: the leader is to tell whether its log ends here."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Other partitions took the room of the response."""


@dataclass(frozen=True, slots=True)
class LeftFollower:
    """The leader is to serve the range again."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetriedRange:
    """The range is to be asked for again.

    Attributes:
        find_leader: the broker that was asked may not lead the topic-partition any more.
        check_topic: the topic may be another one by now.
    """

    error: WireError
    find_leader: bool = False
    check_topic: bool = False


@dataclass(frozen=True, slots=True)
class EndMissing:
    """The range's end has been above what the leader serves for too long."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class FailedRange:
    """The range cannot be read."""

    error: WireError
    cause: WireError | None = None


FetchOutcome = (
    ReceivedRecords
    | Enlarged
    | Validated
    | Redirected
    | Waiting
    | AskedLeader
    | Skipped
    | LeftFollower
    | RetriedRange
    | EndMissing
    | FailedRange
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseHandler:
    """Decides by the rules above, for one read.

    Attributes:
        deadline_s: how long a range may make no progress.
        end_wait_s: how long the end of a range may be missing; None for a read without an end.
    """

    read_committed: bool
    deadline_s: float
    end_wait_s: float | None

    def on_response(
        self, requested: RequestedPartition, data: PartitionData, *, is_first: bool, node: int, version: int, now: float
    ) -> FetchOutcome:
        """Return what one partition's part of a response means.

        Args:
            is_first: whether the partition was the first one in the request: no other one takes its room.
            node: id of the broker that responded; `version` is the request's.
            now: time of the read's clock.
        """
        progress = requested.progress
        if data.error_code:
            return self._on_error(requested, data, node=node, version=version)
        # A position may have the epoch of a leader that wrote nothing. A bounded read has only epochs of batches that it got.
        if self.end_wait_s is None and data.diverging_epoch.end_offset >= progress.position:
            return Validated()
        if data.diverging_epoch.end_offset >= 0:
            return FailedRange(_truncated_error(progress, data, node=node))
        replica = data.preferred_read_replica
        if replica >= 0 and replica != node and progress.read_replica.may_redirect(now):
            at_end = self._is_at_end(requested, data, progress.position, node=node)
            # Up to now the leader had no records either where the position was at its end.
            if not at_end and not progress.at_end and progress.read_replica.waited_s(now) > FOLLOWER_WAIT_S:
                return LeftFollower("trails the leader")
            return Redirected(replica, at_end)
        if not data.records:
            return self._on_no_records(requested, data, is_first=is_first, node=node, now=now)
        records = memoryview(data.records)
        scan = scan_batches(records, progress.position, progress.range.end_offset)
        if scan.needed_bytes:
            if scan.needed_bytes > MAX_BATCH_BYTES:
                return FailedRange(_oversize_error(progress, scan.needed_bytes, node=node))
            return Enlarged(scan.needed_bytes)
        if 0 <= progress.range.leader_epoch < requested.leader[1]:  # another leads since the range was planned
            n_bytes = bytes_before_epochs(records, scan, progress.range.leader_epoch + 1, requested.leader[1])
            if not n_bytes and scan.n_bytes:
                return FailedRange(_overwritten_error(progress, node=node))
            if n_bytes < scan.n_bytes:
                records = records[:n_bytes]
                scan = scan_batches(records, progress.position, progress.range.end_offset)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in (data.aborted_transactions or () if self.read_committed else ())
        ]
        at_end = self._is_at_end(requested, data, scan.next_offset, node=node)
        return ReceivedRecords(records, scan, aborted, at_end)

    def on_failure(
        self, progress: RangeProgress, error: WireError, *, in_grace: bool, now: float
    ) -> RetriedRange | FailedRange:
        """Return what it means that a range could not be asked for, or that its request failed, or has to be repeated.

        Args:
            in_grace: whether the grace period of the error's code goes on.
        """
        # A response that breaks the protocol has ended its connection; another one may do better, once.
        if not error.retriable and not (isinstance(error, ProtocolError) and not progress.retries.failures):
            if error.topic is None:  # raised by a connection, which does not know the partition
                error.topic, error.partition, error.offset = *progress.topic_partition, progress.position
            return FailedRange(error)
        stalled_s = progress.retries.stalled_s(now)
        return (
            RetriedRange(error)
            if in_grace and stalled_s <= self.deadline_s
            else no_progress(progress, stalled_s, error)
        )

    def _is_at_end(self, requested: RequestedPartition, data: PartitionData, position: int, *, node: int) -> bool:
        """Return whether the leader serves nothing from `position` on, for now; a follower does not know, since it may trail."""
        return node == requested.leader[0] and self._serves_none(data, position)

    def _serves_none(self, data: PartitionData, position: int) -> bool:
        """Return whether the broker that responded serves nothing from `position` on, for now."""
        served_end = data.last_stable_offset if self.read_committed else data.high_watermark
        return 0 <= served_end <= position

    def _on_no_records(
        self, requested: RequestedPartition, data: PartitionData, *, is_first: bool, node: int, now: float
    ) -> FetchOutcome:
        progress = requested.progress
        at_end = self._is_at_end(requested, data, progress.position, node=node)
        if self.end_wait_s is None:
            if node == requested.leader[0]:
                return Waiting(at_end)
            replica = progress.read_replica
            was_asked = progress.at_end or replica.is_empty
            return Waiting(None) if was_asked and replica.waited_s(now) <= FOLLOWER_WAIT_S else AskedLeader()
        if not is_first and not self._serves_none(data, progress.position):
            return Skipped()
        stalled_s = progress.retries.stalled_s(now)
        if node != requested.leader[0]:
            return LeftFollower("has no records") if stalled_s > FOLLOWER_WAIT_S else Waiting(None)
        missing_s = progress.retries.end_missing_s(now)
        if at_end and missing_s > self.end_wait_s:
            return EndMissing(missing_s)
        return Waiting(at_end) if stalled_s <= self.deadline_s else no_progress(progress, stalled_s, None)

    def _on_error(
        self, requested: RequestedPartition, data: PartitionData, *, node: int, version: int
    ) -> LeftFollower | RetriedRange | FailedRange:
        progress = requested.progress
        error = broker_error(
            data.error_code,
            **progress.place,
            broker=node,
            api="Fetch",
            version=version,
            detail=f"The range is {progress.range}.",
        )
        if node != requested.leader[0]:
            # It may trail, or have a shorter log: only the leader's response counts.
            return LeftFollower(f"responded with {error.name}")
        # The broker cannot read its own log (fault or bit rot): once more, as with a batch that is corrupt on arrival.
        if isinstance(error, OffsetOutOfRangeError) or (
            error.code == ErrorCode.CORRUPT_MESSAGE and progress.retries.failures
        ):
            return FailedRange(error)
        return RetriedRange(
            error,
            find_leader=error.info.action is Action.REFRESH_METADATA,
            check_topic=isinstance(error, UnknownTopicError) or error.code == ErrorCode.INCONSISTENT_TOPIC_ID,
        )


def no_progress(progress: RangeProgress, waited_s: float, cause: WireError | None) -> FailedRange:
    """Return a range made no progress in all the time allowed, after retries whose last cause is given."""
    if isinstance(cause, UnknownTopicError):
        return FailedRange(cause)
    error = DeadlineExceededError(
        f"the range {progress.range} made no progress for {waited_s:.0f} s",
        **progress.place,
        api="Fetch",
        remedy=f"Last cause: {cause}" if cause else "",
    )
    return FailedRange(error, cause)


def throttled_error(node: int) -> TransportError:
    """Return the error of a broker that responds without records because of a quota (KIP-219)."""
    return TransportError(
        "the broker throttles this client and holds its records back",
        broker=node,
        api="Fetch",
        remedy=(
            "Raise the client's quota consumer_byte_rate: a broker never returns a batch that is larger than the quota"
            " allows in its whole quota window."
        ),
    )


def log_end_error(
    progress: RangeProgress,
    data: PartitionData,
    *,
    read_committed: bool,
    node: int,
    waited_s: float,
    log_end_offset: int | None,
    open_transactions: Sequence[str],
) -> LogEndError:
    """Return the range's end stayed above what the leader serves: for an open transaction, replicas that trail, or a lost tail."""
    range_ = progress.range
    if read_committed and data.last_stable_offset < data.high_watermark:
        message = (
            f"the range {range_} ends above the last stable offset {data.last_stable_offset}: a transaction has been "
            f"open for longer than {waited_s:.0f} s"
        )
        remedy = f"Open: {'; '.join(open_transactions)}. " if open_transactions else ""
        remedy += (
            "Wait for it to end: its coordinator aborts it after its producer's transaction.timeout.ms. If it stays open, no "
            "coordinator knows it, and kafka-transactions.sh find-hanging lists it. Abort no other one in its partition: records "
            "that its producer commits would be lost."
        )
    else:
        message = (
            f"the range {range_} ends above the high watermark {data.high_watermark}, "
            f"which did not rise in {waited_s:.0f} s"
        )
        if log_end_offset is not None and log_end_offset >= range_.end_offset:
            message += f", though the leader's log reaches up to {log_end_offset}"
            remedy = (
                "Replicas are behind, or fewer than min.insync.replicas are in sync: check the brokers, then try again."
            )
        else:
            remedy = "The end of the log was truncated (an unclean leader election), or the range's end never existed."
    return LogEndError(
        message,
        topic=range_.topic,
        partition=range_.partition,
        position=progress.position,
        end_offset=range_.end_offset,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_end_offset=log_end_offset,
        broker=node,
        remedy=remedy,
    )


def _truncated_error(progress: RangeProgress, data: PartitionData, *, node: int) -> LogTruncatedError:
    """Return the leader's epochs diverge from those of the records read before (KIP-595, KIP-320)."""
    return LogTruncatedError(
        f"the log was truncated at offset {data.diverging_epoch.end_offset}, below the position in the range {progress.range}",
        **progress.place,
        broker=node,
        diverging_epoch=data.diverging_epoch.epoch,
        diverging_offset=data.diverging_epoch.end_offset,
    )


def _overwritten_error(progress: RangeProgress, *, node: int) -> LogTruncatedError:
    """Return the error of a log that was truncated, and has got other records, since the range was planned."""
    planned_epoch = progress.range.leader_epoch
    return LogTruncatedError(
        f"the log was truncated in the range {progress.range}, which was planned in leader epoch {planned_epoch}: the records from "
        f"offset {progress.position} on were written in a later one",
        **progress.place,
        broker=node,
        diverging_epoch=planned_epoch,
        diverging_offset=progress.position,
    )


def _oversize_error(progress: RangeProgress, n_bytes: int, *, node: int) -> RecordTooLargeError:
    """Return the error of a batch that is larger than anything that is fetched."""
    error = RecordTooLargeError(
        ErrorCode.MESSAGE_TOO_LARGE,
        **progress.place,
        broker=node,
        api="Fetch",
        detail=f"The batch has {n_bytes} bytes, at most {MAX_BATCH_BYTES} are fetched.",
    )
    error.remedy = "Start the range after it."
    return error
