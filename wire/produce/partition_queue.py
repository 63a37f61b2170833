"""Order and sequence numbers of the batches that wait for one topic-partition's acknowledgement.

Owns, per topic-partition, the queue of batches, their base sequences, and what a retry does to the order. It does no
I/O and knows nothing of leaders, requests or error codes, so that its rules can be tested alone. What a response means is decided
in :mod:`~pykafka_wire.wire.produce.response_handler`. The rules:

1. A batch gets its producer id, epoch and base sequence when it is first taken, and keeps all three: a retry resends
   identical bytes, which the broker recognises (KIP-98). Rules 5 and 7 are the exceptions.
2. Batches leave in the order they came. After a failure nothing more leaves until every batch in flight has come back;
   then all that failed leave again, lowest sequence first.
3. Sequences count records and wrap from 2^31 - 1 to 0.
4. OUT_OF_ORDER_SEQUENCE_NUMBER is a cascading failure while an earlier batch is unacknowledged. For the first
   unacknowledged batch it means that the broker lost acknowledged data: that is final.
5. A batch that is replaced by others (split because it is too large, or freed of rejected records) was not written, and nor
   was any batch that left after it. Its replacements, and all that came after it, are stamped anew with the sequences
   from its own on, once everything in flight has come back. If an earlier try may have been written (its response was lost),
   no record may be left out. What follows would get its sequences, and a broker that has the batch would take that for a
   repetition, and drop it.
6. Until a first batch is acknowledged, one is in flight. A new partition may reject it (NOT_LEADER_OR_FOLLOWER) and accept the
   next one a moment later: a broker that does not know a producer accepts any first sequence, and then rejects the
   batch that came before.
7. After UNKNOWN_PRODUCER_ID the producer goes on under its next epoch (KIP-360). The batch that was rejected and all that came
   after it are stamped anew, once everything in flight has come back. Other partitions take the epoch over when none of
   their batches is in flight. The sequences of an epoch begin at 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.errors import ProtocolError, WireError
from pykafka_wire.wire.records.batches import EncodedBatch, stamp_producer
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition

#: Sequences are non-negative int32 and wrap to 0 (DefaultRecordBatch.incrementSequence in Kafka's client).
_SEQUENCES: Final = 1 << 31


def next_sequence(sequence: int, n_records: int) -> int:
    """Return the base sequence of the batch after one of `n_records` at `sequence`."""
    return (sequence + n_records) % _SEQUENCES


@dataclass(slots=True, eq=False)
class QueuedBatch:
    """One encoded batch until it is acknowledged.

    Attributes:
        expires_at: time of the end of its delivery timeout.
        ordinal: the place of its first record among all of its topic-partition; unlike `base_sequence` it never wraps.
        last_error: what the last try ended in.
        may_be_written: a try, of it or of the batch that it was split from, may be in the log without being acknowledged.
    """

    topic_partition: TopicPartition
    encoded: EncodedBatch
    expires_at: float
    ordinal: int
    base_sequence: int = -1
    attempts: int = 0
    last_error: WireError | None = None
    may_be_written: bool = False

    @property
    def size(self) -> int:
        return len(self.encoded.data)


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one topic-partition: `waiting` to be sent, and `in_flight` without a response.

    Attributes:
        node: the broker that the batches in flight went to, -1 if none is. A new leader gets nothing before the old
            one's responses are in, or a later batch could overtake an earlier one.
        not_before: time before which nothing is to be sent.
    """

    topic_partition: TopicPartition
    waiting: deque[QueuedBatch] = field(default_factory=deque)
    in_flight: list[QueuedBatch] = field(default_factory=list)
    node: int = -1
    not_before: float = 0.0
    _retrying: bool = False
    _begun: bool = False
    #: What the sequence belongs to.
    _identity: ProducerIdentity | None = None
    _sequence: int = 0
    _n_added: int = 0
    #: Ordinal and sequence of the first batch that is stamped anew (rules 5 and 7).
    _rewound: tuple[int, int] | None = None

    def add(self, encoded: EncodedBatch, expires_at: float) -> QueuedBatch:
        batch = QueuedBatch(self.topic_partition, encoded, expires_at, self._n_added)
        self._n_added += encoded.n_records
        self.waiting.append(batch)
        return batch

    @property
    def first_unacknowledged(self) -> QueuedBatch | None:
        candidates = [*self.in_flight[:1], *([self.waiting[0]] if self.waiting else [])]
        return min(candidates, key=lambda batch: batch.ordinal, default=None)

    def is_cascading_failure(self, batch: QueuedBatch) -> bool:
        """Return whether `batch` may be out of sequence only because an earlier one failed (rule 4)."""
        return self._is_rewound(batch) or self.first_unacknowledged is not batch

    def ready(self, now: float) -> bool:
        """Return whether a batch may leave now."""
        if not self.waiting or now < self.not_before:
            return False
        return not (self.in_flight and (self._retrying or not self._begun))

    def take(self, node: int, identity: ProducerIdentity, *, transactional: bool = False) -> QueuedBatch:
        """Return the next batch, stamped, from now on in flight to `node`. Only to be called when :meth:`ready`."""
        if self._rewound is not None:
            for later in self.waiting:
                if self._is_rewound(later):
                    later.base_sequence = -1
            self._sequence, self._rewound = self._rewound[1], None
        batch = self.waiting.popleft()
        self._retrying = False
        if batch.base_sequence < 0 and identity.producer_id >= 0:
            # One that may be in the log keeps its epoch, by which the broker would recognise it.
            if identity != self._identity and not (self.in_flight or batch.may_be_written):
                self._identity, self._sequence = identity, 0
            stamped = self._identity or identity
            batch.base_sequence = self._sequence
            self._sequence = next_sequence(self._sequence, batch.encoded.n_records)
            stamp_producer(batch.encoded.data, stamped, batch.base_sequence, transactional=transactional)
        batch.attempts += 1
        self.in_flight.append(batch)
        self.node = node
        return batch

    def acknowledge(self, batch: QueuedBatch) -> None:
        """Note that `batch` is in the log.

        Raises:
            ProtocolError: an earlier batch was replaced, so this one's sequence will be used again (rule 5).
        """
        if batch.base_sequence >= 0 and self._is_rewound(batch):
            raise ProtocolError(
                "the broker accepted a batch out of sequence, after it had rejected an earlier one",
                **self.topic_partition._asdict(), api="Produce",
            )  # fmt: skip
        self._begun = True
        self._return(batch)

    def replace(self, batch: QueuedBatch, pieces: Iterable[EncodedBatch]) -> None:
        """Replace `batch`, which was rejected, by `pieces` of the same records or fewer, or by none (rule 5)."""
        self._return(batch)
        ordinal = batch.ordinal
        for piece in pieces:
            queued = QueuedBatch(self.topic_partition, piece, batch.expires_at, ordinal)
            queued.may_be_written = batch.may_be_written
            self.waiting.append(queued)
            ordinal += piece.n_records
        self._in_order()
        self._retrying = True
        self._rewind(batch)

    def retry(self, batch: QueuedBatch, error: WireError, not_before: float) -> None:
        """Send `batch` again, not before the given time, and before all that came after it."""
        self._return(batch)
        batch.last_error = error
        self._retrying = True
        self.not_before = max(self.not_before, not_before)
        self.waiting.append(batch)
        self._in_order()

    def restart(self, batch: QueuedBatch, error: WireError, not_before: float) -> None:
        """Do as :meth:`retry`, for a broker that does not know the producer: stamped anew under another epoch (rule 7)."""
        self.retry(batch, error, not_before)
        self._begun = False
        self._rewind(batch)

    def is_of(self, identity: ProducerIdentity | None) -> bool:
        """Return whether the last batch that was stamped has this producer id and epoch."""
        return self._identity == identity

    def _rewind(self, batch: QueuedBatch) -> None:
        if self._rewound is None or batch.ordinal < self._rewound[0]:
            self._rewound = batch.ordinal, max(batch.base_sequence, 0)

    def _in_order(self) -> None:
        self.waiting = deque(sorted(self.waiting, key=lambda queued: queued.ordinal))

    def _is_rewound(self, batch: QueuedBatch) -> bool:
        return self._rewound is not None and batch.ordinal >= self._rewound[0]

    def _return(self, batch: QueuedBatch) -> None:
        self.in_flight.remove(batch)
        if not self.in_flight:
            self.node = -1
            if not self.waiting:
                # Until more comes the broker may forget us (producer.id.expiration.ms, a topic made anew): rule 6 again.
                self._begun = False


class PartitionQueues:
    """The queues of all topic-partitions, in the order in which they are served."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, PartitionQueue] = {}

    def __getitem__(self, tp: TopicPartition) -> PartitionQueue:
        """Return the queue of a topic-partition that has one."""
        return self._queues[tp]

    def get_or_add(self, tp: TopicPartition) -> PartitionQueue:
        """Return the queue of a topic-partition; a new one if it has none."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    def ready(self, now: float) -> list[PartitionQueue]:
        """Return the queues of which a batch may leave now."""
        return [queue for queue in self._queues.values() if queue.waiting and queue.ready(now)]

    def first_expired(self, now: float) -> QueuedBatch | None:
        """Return a batch that waits to be sent and whose delivery timeout has passed, None if there is none."""
        for queue in self._queues.values():
            if queue.waiting and now >= queue.waiting[0].expires_at:
                return queue.waiting[0]
        return None

    def pauses(self) -> list[float]:
        """Return when each queue that waits may be sent, and when its first batch expires."""
        waiting = [queue for queue in self._queues.values() if queue.waiting]
        return [moment for queue in waiting for moment in (queue.not_before, queue.waiting[0].expires_at)]

    def serve_last(self, tp: TopicPartition) -> None:
        """Let all other queues be served before this one next time."""
        self._queues[tp] = self._queues.pop(tp)

    def complete(self, n_bytes: int, in_requests: set[QueuedBatch]) -> bool:
        """Return whether the batches have `n_bytes` in all, and each batch in flight is in one of the requests."""
        waiting = [batch for queue in self._queues.values() for batch in queue.waiting]
        in_flight = {batch for queue in self._queues.values() for batch in queue.in_flight}
        return sum(batch.size for batch in (*waiting, *in_flight)) == n_bytes and in_flight <= in_requests
