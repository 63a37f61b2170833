"""The errors of batches that cannot be delivered: each names the place, the rows and the remedy.

Owns their texts only; when a batch is given up is :mod:`~pykafka_wire.wire.produce.producer`'s to decide.
"""

from __future__ import annotations

from typing import Final

from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ForkedProducerError,
    RecordTooLargeError,
    broker_error,
)
from pykafka_wire.wire.produce.inflight import QueuedBatch
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceResponse
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topics import TopicPartition

_MESSAGE_TOO_LARGE: Final = 10
#: What brokers have against a record, not against the batch, the producer or the place (KIP-467).
RECORD_ERRORS: Final = frozenset({"MESSAGE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"})
#: These come after the batch was written to the leader's log.
AFTER_APPEND: Final = frozenset({"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"})
#: Of a batch's refused records, so many are named.
_MOST_RECORD_ERRORS: Final = 10


def refused_error(
    tp: TopicPartition, encoded: EncodedBatch, answer: PartitionProduceResponse, *, node: int, version: int
) -> BrokerError:
    """The broker answered with an error code; with its words, and the records it found at fault (KIP-467)."""
    words = [answer.error_message or ""]
    words += [
        f"Record {record.batch_index} of the batch (row {encoded.first_row + record.batch_index}): "
        f"{record.batch_index_error_message or 'refused'}."
        for record in answer.record_errors[:_MOST_RECORD_ERRORS]
    ]
    error = broker_error(
        answer.error_code,
        topic=tp.topic,
        partition=tp.partition,
        broker=node,
        api="Produce",
        version=version,
        detail=" ".join(word for word in words if word),
    )
    if isinstance(error, RecordTooLargeError):
        return too_large_error(tp, encoded, "max.message.bytes", cause=error)
    if error.name in ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"):
        error.remedy = (
            "Acknowledged records of this producer are missing on the broker: it lost data (an unclean leader election), "
            "or retention outran the producer. Nothing was written after the gap."
        )
    return error


def undecided_error(error: BrokerError) -> BrokerError:
    """`error` for a batch that is refused now, though an earlier try of it may have been written: records of it cannot be
    left out, for nobody can tell which sequences the broker has."""
    error.remedy = (
        "An earlier try of this batch got no definite answer and may be in the log: write it again with a new producer, "
        "as a task that runs again does."
    )
    return error


def too_large_error(
    tp: TopicPartition,
    encoded: EncodedBatch,
    limit: str,
    *,
    limit_bytes: int | None = None,
    cause: BrokerError | None = None,
) -> RecordTooLargeError:
    """A batch is larger than `limit`, a setting's name, allows; `cause` is the broker's refusal, None for our own."""
    last_row = encoded.first_row + encoded.n_records - 1
    rows = f"row {last_row}" if encoded.n_records == 1 else f"rows {encoded.first_row} to {last_row}"
    bound = limit if limit_bytes is None else f"{limit} ({limit_bytes})"
    error = RecordTooLargeError(
        cause.code if cause else _MESSAGE_TOO_LARGE,
        topic=tp.topic,
        partition=tp.partition,
        broker=cause.broker if cause else None,
        api="Produce",
        version=cause.version if cause else None,
        detail=(
            f"The batch of {encoded.n_records} records ({rows}) has {len(encoded.data)} bytes, more than {bound} allows. "
            f"{cause.detail if cause else ''}"
        ).strip(),
    )
    error.remedy = f"Raise {limit}, or make the {'record' if encoded.n_records == 1 else 'batches'} smaller."
    return error


def expired_error(batch: QueuedBatch, delivery_timeout_ms: int) -> DeadlineExceededError:
    """A batch's delivery timeout is over, after tries whose last cause is given."""
    return DeadlineExceededError(
        f"a batch of {batch.encoded.n_records} records was not acknowledged within the delivery timeout of "
        f"{delivery_timeout_ms} ms, {batch.attempts} tries",
        topic=batch.topic_partition.topic,
        partition=batch.topic_partition.partition,
        api="Produce",
        remedy=f"Last cause: {batch.last_error}" if batch.last_error else "",
    )


def forked_producer_error() -> ForkedProducerError:
    """A child was forked from a process whose producer held records, or had failed."""
    return ForkedProducerError(
        "this process was forked while its parent's producer held unacknowledged records, or after that producer had failed",
        remedy="Records from before the fork are the parent's to write. Call reset(), or make a producer in the child.",
    )


def forked_transaction_error(transactional_id: str) -> ForkedProducerError:
    """A child was forked from a process that has a transaction open."""
    return ForkedProducerError(
        f"the transaction of transactional id {transactional_id!r} was begun before this process was forked",
        remedy="Only the process that began it may go on with it.",
    )
