"""What the response to a Produce means for one batch: acknowledged, retried, replaced by other batches, or failed.

Owns this decision for every response, for one that did not come, and for the end of a batch's delivery timeout; and the errors that
name the place, the rows and the remedy. It sends nothing and changes nothing:
:mod:`~pykafka_wire.wire.produce.producer` acts on what is returned here,
:mod:`~pykafka_wire.wire.produce.partition_queue` keeps the order.

==================================================  =======================================================================
response                                            what it means
==================================================  =======================================================================
no error, DUPLICATE_SEQUENCE_NUMBER                 :class:`Acknowledged`
MESSAGE_TOO_LARGE, of several records               :class:`Replaced` by halves, as Java's producer does
MESSAGE_TOO_LARGE of one record, INVALID_RECORD,    :class:`FailedBatch`; or, where rejected records are collected,
INVALID_TIMESTAMP                                   :class:`Replaced` by the batch without them (KIP-467)
OUT_OF_ORDER_SEQUENCE_NUMBER after another failure  :class:`RetriedBatch` (a cascading failure)
UNKNOWN_PRODUCER_ID                                 :class:`Restarted` (KIP-360); :class:`FailedBatch` in a transaction, or if an
                                                    earlier try may be in the log. Kafka 2.5 and newer do not send it
CORRUPT_MESSAGE                                     :class:`RetriedBatch` twice, then :class:`FailedBatch`
other retriable codes                               :class:`RetriedBatch`, after the leader is looked up where the code asks for it
other codes                                         :class:`FailedBatch`
none: the connection broke, or time passed          :class:`RetriedBatch`; the batch may be in the log
==================================================  =======================================================================

A retry beyond ``retries`` or after ``delivery.timeout.ms`` is :class:`FailedBatch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.error_codes import Action, ErrorCode, error_info
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProtocolError,
    RecordsNotWrittenError,
    RecordTooLargeError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.produce.partition_queue import QueuedBatch
from pykafka_wire.wire.produce.split_batches import RejectedRecords, having_key, split_in_half, take_out
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceResponse
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

#: What brokers have against a record, not against the batch, the producer or the place (KIP-467).
_RECORD_ERRORS: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})
#: What a batch may meet because an earlier one failed.
_OUT_OF_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
#: These come after the batch was written to the leader's log.
_AFTER_APPEND: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
#: CORRUPT_MESSAGE may be a flipped bit on the way, which a resend heals; brokers before 2.5 (KIP-467) also send it
#: for a record that they will never take, such as one without a key in a compacted topic.
_CORRUPT_TRIES: Final = 3
#: An error names at most so many of a batch's rejected records.
_MAX_RECORD_ERRORS: Final = 10


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The batch is in the log, at `base_offset` (-1 where the response does not say)."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class RetriedBatch:
    """The batch is to be sent again as it is.

    Attributes:
        may_be_written: it may be in the log, though it is not acknowledged.
        find_leader: the broker that was asked may not lead the topic-partition any more.
    """

    error: WireError
    may_be_written: bool
    find_leader: bool


@dataclass(frozen=True, slots=True)
class Restarted:
    """The broker does not know the producer: the batch is to be sent again under the producer's next epoch."""

    error: WireError


@dataclass(frozen=True, slots=True)
class Replaced:
    """The batch was not written, and others take its place.

    Attributes:
        batches: of the same records or fewer, in the same order.
        rejected: the records that are in none of them, if any.
        too_large: the broker found the batch too large.
    """

    batches: list[EncodedBatch]
    rejected: list[RejectedRecords]
    too_large: bool


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """The batch cannot be delivered, and nothing may be written after it."""

    error: WireError
    cause: WireError | None = None


ProduceOutcome = Acknowledged | RetriedBatch | Restarted | Replaced | FailedBatch


@dataclass(slots=True)
class ProduceResponseHandler:
    """Decides by the rules above, under a producer's settings.

    Attributes:
        collects_rejected: records that no broker takes are taken out of their batches, and do not fail the producer; a
            producer may change it between calls.
        in_transaction: the batches belong to a transaction, whose epoch only its coordinator changes.
    """

    settings: ClientSettings
    collects_rejected: bool = field(kw_only=True)
    in_transaction: bool = field(kw_only=True, default=False)

    def on_response(
        self,
        batch: QueuedBatch,
        response: PartitionProduceResponse,
        *,
        is_cascading: bool,
        now: float,
        broker: int,
        version: int,
    ) -> ProduceOutcome:
        """Return what a response means.

        Args:
            is_cascading: an earlier batch's failure may have put this one out of sequence.
            now: time of the clock that the batch's delivery timeout is on.
            broker: node id of the broker that responded, for errors; likewise the request's `version`.
        """
        if error_info(response.error_code).action is Action.SUCCESS:
            return Acknowledged(response.base_offset)
        error = rejection_error(batch.topic_partition, batch.encoded, response, broker=broker, version=version)
        if error.code in _RECORD_ERRORS:
            return self._on_record_error(batch, response, error)
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID and not is_cascading:
            return self._on_unknown_producer(batch, error, now)
        cascading = is_cascading and error.code in _OUT_OF_SEQUENCE
        corrupt_again = error.code == ErrorCode.CORRUPT_MESSAGE and batch.attempts >= _CORRUPT_TRIES
        if not (error.retriable or cascading) or corrupt_again:
            return FailedBatch(error)
        # A response that has an offset comes from a leader that wrote the batch, and lost its place after that.
        may_be_written = response.base_offset >= 0 or error.code in _AFTER_APPEND
        find_leader = error.info.action is Action.REFRESH_METADATA
        return self._retry(batch, now, RetriedBatch(error, may_be_written, find_leader))

    def on_no_response(self, batch: QueuedBatch, error: WireError, *, now: float, was_sent: bool) -> ProduceOutcome:
        """Return what it means that a request had no response that makes sense, or was not sent as a whole."""
        if was_sent and isinstance(error, ProtocolError) and batch.attempts > 1:
            return FailedBatch(error)
        return self._retry(batch, now, RetriedBatch(error, may_be_written=was_sent, find_leader=True))

    def on_expiry(self, batch: QueuedBatch, last_error: WireError | None) -> FailedBatch:
        """Fail a batch whose delivery timeout has passed; `last_error` is what its last try ended in."""
        error = DeadlineExceededError(
            f"a batch of {batch.encoded.n_records} records was not acknowledged within the delivery timeout of "
            f"{self.settings.delivery_timeout_ms} ms, in {batch.attempts} attempts",
            **batch.topic_partition._asdict(),
            api="Produce",
            remedy=f"Last cause: {last_error.sentence}" if last_error else "",
        )
        return FailedBatch(error, last_error)

    def on_interruption(self) -> FailedBatch:
        """Fail a batch that Ctrl-C has left neither queued nor acknowledged."""
        error = RecordsNotWrittenError(
            "the producer was interrupted while it queued or acknowledged a batch, so it is unknown what is written",
            remedy="Call reset(), and send again what was not flushed.",
        )
        return FailedBatch(error)

    def on_oversize(self, tp: TopicPartition, encoded: EncodedBatch) -> Replaced | FailedBatch:
        """Reject a batch that is larger than ``max.request.size`` and has a single record: it is not sent."""
        limit_bytes = self.settings.max_request_size
        error = too_large_error(tp, encoded, "max.request.size", limit_bytes=limit_bytes)
        if not self.collects_rejected:
            return FailedBatch(error)
        faults: dict[int, str | None] = dict.fromkeys(range(encoded.n_records))
        rejected, rest = take_out(tp, encoded, faults, error, self.settings.compression_level)
        return Replaced(rest, [rejected], too_large=True)

    def _on_unknown_producer(self, batch: QueuedBatch, error: BrokerError, now: float) -> ProduceOutcome:
        """Judge that the broker has forgotten the producer: all of its records were deleted, or it was idle for too long."""
        if self.in_transaction:
            error.remedy = "Abort the transaction, and write it again."
            return FailedBatch(error)
        if batch.may_be_written:
            error.remedy = (
                "An earlier try of this batch had no definite response, so it may be in the log or have been deleted. To write it "
                "again could repeat its records."
            )
            return FailedBatch(error)
        checked = self._retry(batch, now, RetriedBatch(error, may_be_written=False, find_leader=False))
        return checked if isinstance(checked, FailedBatch) else Restarted(error)

    def _retry(self, batch: QueuedBatch, now: float, outcome: RetriedBatch) -> RetriedBatch | FailedBatch:
        if batch.attempts > self.settings.retries:
            return FailedBatch(outcome.error)
        if now >= batch.expires_at:
            return self.on_expiry(batch, outcome.error)
        return outcome

    def _on_record_error(
        self, batch: QueuedBatch, response: PartitionProduceResponse, error: BrokerError
    ) -> ProduceOutcome:
        """Judge that the broker rejects records, and the whole batch with them."""
        encoded, level = batch.encoded, self.settings.compression_level
        faults = {error.batch_index: error.batch_index_error_message for error in response.record_errors}
        faults = {index: faults[index] for index in sorted(faults) if 0 <= index < encoded.n_records}
        too_large = isinstance(error, RecordTooLargeError)
        if encoded.n_records > 1 and (too_large or (self.collects_rejected and not faults)):
            # Where the broker does not name the records, halves of halves find them.
            return Replaced(split_in_half(encoded, level), [], too_large)
        if not self.collects_rejected:
            return FailedBatch(error)
        if batch.may_be_written and batch.base_sequence >= 0:
            error.remedy = (
                "An earlier try of this batch had no definite response and may be in the log, so no record of it can be left "
                "out: it is unknown which sequence numbers the broker has. Write the batch again with a new producer, as a task "
                "that runs again does."
            )
            return FailedBatch(error)
        if error.code == ErrorCode.INVALID_TIMESTAMP:
            # The code is the batch's: a compacted topic also rejects records without a key, and the next response has their code.
            with_key = having_key(encoded, faults)
            faults = {index: faults[index] for index in with_key} or faults
        rejected, rest = take_out(batch.topic_partition, encoded, faults or {0: None}, error, level)
        return Replaced(rest, [rejected], too_large)


def rejection_error(
    tp: TopicPartition, encoded: EncodedBatch, response: PartitionProduceResponse, *, broker: int, version: int
) -> BrokerError:
    """Return the error for a broker's error code, with its message and the records that it names (KIP-467)."""
    words = [response.error_message or ""]
    words += [
        f"Record {record.batch_index} of the batch (row {encoded.first_row + record.batch_index}): "
        f"{record.batch_index_error_message or 'rejected'}."
        for record in response.record_errors[:_MAX_RECORD_ERRORS]
    ]
    error = broker_error(
        response.error_code,
        **tp._asdict(),
        broker=broker,
        api="Produce",
        version=version,
        detail=" ".join(word for word in words if word),
    )
    if isinstance(error, RecordTooLargeError):
        return too_large_error(tp, encoded, "max.message.bytes", cause=error)
    if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        error.remedy = (
            "Acknowledged records of this producer are missing on the broker: it lost data (an unclean leader election), "
            "or retention outran the producer. Nothing was written after the gap."
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
    """Return the error of a batch that is larger than `limit`, a setting's name, allows; `cause` is the broker's error, None
    for our own check."""
    last_row = encoded.first_row + encoded.n_records - 1
    rows = f"row {last_row}" if encoded.n_records == 1 else f"rows {encoded.first_row} to {last_row}"
    # Without a number it is a setting of the broker's, which has no prefix.
    bound, raised = (limit, limit) if limit_bytes is None else (f"{limit} ({limit_bytes})", f"{{{limit}}}")
    error = RecordTooLargeError(
        cause.code if cause else ErrorCode.MESSAGE_TOO_LARGE,
        **tp._asdict(),
        broker=cause.broker if cause else None,
        api="Produce",
        version=cause.version if cause else None,
        detail=(
            f"The batch of {encoded.n_records} records ({rows}) has {len(encoded.data)} bytes, more than {bound} allows. "
            f"{cause.detail if cause else ''}"
        ).strip(),
    )
    error.remedy = f"Raise {raised}, or make the {'record' if encoded.n_records == 1 else 'batches'} smaller."
    return error
