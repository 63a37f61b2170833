"""The errors of a range that cannot be read to its end: each names the place, the log's bounds and the remedy.

Owns their texts only; when to raise which is :mod:`~pykafka_wire.wire.fetch.response_handler`'s to decide.
"""

from __future__ import annotations

import logging
import uuid

from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets, offsets_for_leader_epoch
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import open_transactions
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    LogEndError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicRecreatedError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.protocol.messages.fetch import PartitionData
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition, topic_id_text

logger = logging.getLogger(__name__)


def log_end_error(
    range_: OffsetRange,
    position: int,
    data: PartitionData,
    *,
    read_committed: bool,
    node: int,
    log_end_offset: int | None,
    waited_s: float,
    cluster: Cluster,
    deadline: Deadline,
) -> LogEndError:
    """The range's end stayed above what the leader serves: for an open transaction, replicas that trail, or a lost tail."""
    if read_committed and data.last_stable_offset < data.high_watermark:
        message = (
            f"the range {range_} ends above the last stable offset {data.last_stable_offset}: a transaction has been "
            f"open for longer than {waited_s:.0f} s"
        )
        named = "; ".join(
            open_transactions(cluster, [TopicPartition(range_.topic, range_.partition)], deadline=deadline)
        )
        remedy = f"Open: {named}. " if named else ""
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
        position=position,
        end_offset=range_.end_offset,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_end_offset=log_end_offset,
        broker=node,
        remedy=remedy,
    )


def log_end_offset(cluster: Cluster, tp: TopicPartition, leader_epoch: int, deadline: Deadline) -> int | None:
    """Where the log of the leader of `leader_epoch` ends, above the high watermark, too; None if that is unknown.

    A leader answers OffsetForLeaderEpoch for its own epoch with its log's end (KIP-320). ListOffsets and Fetch tell no more
    than the high watermark.
    """
    if leader_epoch < 0:  # brokers before Kafka 2.4, whose metadata name no epochs that count
        return None
    try:
        epoch, end_offset = offsets_for_leader_epoch(cluster, {tp: leader_epoch}, deadline=deadline)[tp]
    except WireError as failure:
        logger.debug("%s: the end of its leader's log is unknown: %s", tp, failure)
        return None
    return end_offset if epoch == leader_epoch and end_offset >= 0 else None


def truncated_error(range_: OffsetRange, position: int, data: PartitionData, *, node: int) -> LogTruncatedError:
    """The leader's epochs diverge from those of the records read before (KIP-595's answer to KIP-320's question)."""
    return LogTruncatedError(
        f"the log was truncated at offset {data.diverging_epoch.end_offset}, below the position in the range {range_}",
        topic=range_.topic,
        partition=range_.partition,
        offset=position,
        broker=node,
        diverging_epoch=data.diverging_epoch.epoch,
        diverging_offset=data.diverging_epoch.end_offset,
    )


def recreated_error(range_: OffsetRange, position: int, found_id: uuid.UUID) -> TopicRecreatedError:
    """The topic of this name is not the one that the range was planned on."""
    return TopicRecreatedError(
        f"the range {range_} belongs to an earlier topic of the same name",
        topic=range_.topic,
        partition=range_.partition,
        offset=position,
        expected_id=topic_id_text(range_.topic_id),
        found_id=topic_id_text(found_id),
    )


def oversize_error(
    range_: OffsetRange, position: int, *, n_bytes: int, max_bytes: int, node: int
) -> RecordTooLargeError:
    """One batch is larger than anything that is fetched."""
    error = RecordTooLargeError(
        10,
        topic=range_.topic,
        partition=range_.partition,
        offset=position,
        broker=node,
        api="Fetch",
        detail=f"The batch has {n_bytes} bytes, at most {max_bytes} are fetched.",
    )
    error.remedy = "Start the range after it."
    return error


def no_progress_error(
    range_: OffsetRange, position: int, waited_s: float, cause: WireError | None
) -> DeadlineExceededError:
    """No progress in all the time allowed, after retries whose last cause is given."""
    return DeadlineExceededError(
        f"the range {range_} made no progress for {waited_s:.0f} s",
        topic=range_.topic,
        partition=range_.partition,
        offset=position,
        api="Fetch",
        remedy=f"Last cause: {cause}" if cause else "",
    )


def throttled_error(node: int) -> TransportError:
    """A broker answers without records because of a quota (KIP-219)."""
    return TransportError(
        "the broker throttles this client and holds its records back",
        broker=node,
        api="Fetch",
        remedy=(
            "Raise the client's quota consumer_byte_rate: a broker never returns a batch that is larger than the quota"
            " allows in its whole quota window."
        ),
    )


def with_log_bounds(error: OffsetOutOfRangeError, cluster: Cluster, deadline: Deadline) -> OffsetOutOfRangeError:
    """`error` with the log's present bounds, which a response that carries this error code leaves out."""
    assert error.topic is not None and error.partition is not None
    tp = TopicPartition(error.topic, error.partition)
    try:
        error.log_start_offset = list_offsets(cluster, {tp: EARLIEST}, deadline=deadline)[tp].offset
        error.log_end_offset = list_offsets(cluster, {tp: LATEST}, deadline=deadline)[tp].offset
    except WireError as failure:  # the error at hand says more than this one
        logger.debug("%s: the log's bounds are unknown: %s", tp, failure)
        return error
    error.message += (
        f" The log holds the offsets from {error.log_start_offset} up to, but not including, {error.log_end_offset}."
    )
    return error
