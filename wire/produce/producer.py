"""Writes encoded record batches to their leaders: idempotent, pipelined, many topic-partitions in one request.

Owns Produce requests (https://kafka.apache.org/protocol#The_Messages_Produce): which batches one holds, those without a response
yet, and memory. What a response means is decided in :mod:`~pykafka_wire.wire.produce.response_handler`, order and sequences are
kept in :mod:`~pykafka_wire.wire.produce.partition_queue`, leaders and connections in :mod:`~pykafka_wire.wire.cluster.client`. A
retry is followed in three files: `_receive` here gets the response, `ProduceResponseHandler.on_response` decides,
`PartitionQueue.retry` puts the batch back in its place.

There is no thread. Requests leave and responses are read inside the caller's calls.

At the defaults (``acks=all``, ``enable.idempotence=true``) every batch that `flush` returns for is in the log once, in
order (KIP-98): after a lost response, a leader change or a broker's death the same bytes are sent again under the same
sequence. A failure that cannot be retried fails the producer as a whole. Whether what was unacknowledged then is in the log is
unknown.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster import ANY, Cluster
from pykafka_wire.wire.cluster.leader_requests import LeaderRequests, SentRequest
from pykafka_wire.wire.cluster.retries import GracePeriods
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProtocolError,
    TransportError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.exhaustive_match import assert_never
from pykafka_wire.wire.produce.batch_limits import BatchLimits
from pykafka_wire.wire.produce.partition_queue import PartitionQueue, PartitionQueues, QueuedBatch
from pykafka_wire.wire.produce.response_handler import (
    Acknowledged,
    FailedBatch,
    ProduceOutcome,
    ProduceResponseHandler,
    Replaced,
    Restarted,
    RetriedBatch,
)
from pykafka_wire.wire.produce.split_batches import RejectedRecords, split_to_size
from pykafka_wire.wire.produce.write_results import ProducerCounters, WriteResult, WriteResults
from pykafka_wire.wire.protocol.messages.produce import (
    TOPIC_ID_VERSION,
    InitProducerIdRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition, group_by_topic

logger = logging.getLogger(__name__)

#: Produce has a connection of its own: a broker responds to one connection's requests in order, and the response to acks=all may
#: take as long as replication does. A look-up behind it would time out, and close the connection. Without idempotence the
#: batch that is sent again would then be written twice.
PURPOSE: Final = "produce"
#: The broker remembers the last five batches of a producer per partition: with more in flight it could not distinguish a
#: retried batch from a new one (KAFKA-5494).
_MAX_IN_FLIGHT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionScope:
    """The one transaction that a producer writes in.

    Attributes:
        identity: what InitProducerId returned for the transactional id.
        produce_cap: the highest version of Produce that the transaction's version allows, None for any.
    """

    transactional_id: str
    identity: ProducerIdentity
    produce_cap: int | None


@dataclass(frozen=True, slots=True)
class DeliveryTerms:
    """What ``acks``, ``enable.idempotence`` and a transaction come to.

    Attributes:
        acks: as a Produce request has it: -1 for all replicas in sync, 0 for no response.
        max_in_flight: requests on their way to one broker.
    """

    acks: int
    is_idempotent: bool
    max_in_flight: int

    @classmethod
    def of(cls, settings: ClientSettings, *, in_transaction: bool) -> DeliveryTerms:
        """Return the terms under these settings; a transaction has what it needs, whatever they say."""
        acks = -1 if in_transaction or settings.acks == "all" else int(settings.acks)
        is_idempotent = in_transaction or (settings.enable_idempotence and acks == -1)
        max_in_flight = settings.max_in_flight_requests_per_connection
        return cls(acks, is_idempotent, min(max_in_flight, _MAX_IN_FLIGHT) if is_idempotent else max_in_flight)


class UnofferedBatches:
    """The batches that were queued and not yet offered to a broker: their bytes, and since when the first of them waits.

    A caller waits for no thread of the producer's, so its own time counts, not the clock's that runs during calls only.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        self._since: float | None = None

    def add(self, n_bytes: int) -> None:
        """Add one more batch."""
        self.n_bytes += n_bytes
        self._since = self._since or time.monotonic()

    def offer(self, *, everything: bool) -> None:
        """Count anew: all were offered. Unless `everything` was to leave, small ones may have stayed, and linger on."""
        self.n_bytes = 0
        if everything:
            self._since = None

    def have_lingered(self, linger_ms: float | None) -> bool:
        """Return whether the first of them has waited for `linger_ms`; None is without end."""
        return (
            linger_ms is not None and self._since is not None and (time.monotonic() - self._since) * 1000 >= linger_ms
        )


def choose_queues(
    queues: Iterable[PartitionQueue], now: float, *, max_bytes: int, everything: bool
) -> list[PartitionQueue]:
    """Return the queues whose next batches make up a request of one broker: one batch each (no broker takes more), up to
    `max_bytes`. Unless `everything` is to leave, none where the request would be small.
    """
    chosen: list[PartitionQueue] = []
    n_bytes = 0
    for queue in queues:
        if not queue.ready(now):
            continue
        size = queue.waiting[0].size
        if chosen and n_bytes + size > max_bytes:
            continue
        chosen.append(queue)
        n_bytes += size
    full = 2 * n_bytes >= max_bytes or any(len(queue.waiting) > 1 for queue in chosen)
    return chosen if everything or full else []


@dataclass(slots=True, eq=False, kw_only=True)
class SentProduce(SentRequest[ProduceResponse]):
    """A request on its way to a broker, with its batches."""

    request: ProduceRequest
    batches: Mapping[TopicPartition, QueuedBatch]

    def partition_responses(self, response: ProduceResponse) -> Iterator[tuple[QueuedBatch, PartitionProduceResponse]]:
        """Yield the batches that a response is about, each once, with what it says; nothing of what was not asked for."""
        by_id = self.future.version >= TOPIC_ID_VERSION
        names = {topic.topic_id: topic.name for topic in self.request.topic_data}
        remaining = dict(self.batches)
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.name
            for partition in topic.partition_responses:
                batch = remaining.pop(TopicPartition(name, partition.index), None)
                if batch is not None:
                    yield batch, partition


class Producer:
    """Writes batches to topic-partitions.

    Not thread-safe. After an error every call raises that error until :meth:`reset`. A forked child starts with a producer id
    of its own; one that was forked while records were unacknowledged has failed, for they are its parent's to write.

    Args:
        transaction: what is written belongs to this one transaction, which :mod:`~pykafka_wire.wire.transactions.transaction` has
            begun and ends; ``acks`` and ``enable.idempotence`` are then what a transaction needs, whatever they say.
    """

    def __init__(
        self, cluster: Cluster, settings: ClientSettings | None = None, *, transaction: TransactionScope | None = None
    ) -> None:
        self._cluster = cluster
        self._settings = settings or cluster.settings
        self._transaction = transaction
        self._terms = DeliveryTerms.of(self._settings, in_transaction=transaction is not None)
        self._handler = ProduceResponseHandler(
            self._settings, collects_rejected=False, in_transaction=transaction is not None
        )
        self.counters = ProducerCounters()
        self._start_anew()

    def _start_anew(self) -> None:
        self._fork_generation = forks.generation
        self._identity: ProducerIdentity | None = self._transaction.identity if self._transaction else None
        self._queues = PartitionQueues()
        self._buffered_bytes = 0
        self._unoffered = UnofferedBatches()
        self._error: WireError | None = None
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._grace_periods: dict[TopicPartition, GracePeriods] = {}
        self._results = WriteResults()
        self._rejected: list[RejectedRecords] = []
        self._batch_limits = BatchLimits(self._cluster, self._settings)
        self._requests: LeaderRequests[SentProduce] = LeaderRequests(
            self._cluster, PURPOSE, knows_brokers=self.counters.n_requests > 0
        )
        #: Runs during calls only, for there is no thread: between them nothing is sent or read, so the batches of a task whose rows
        #: arrive slowly must not expire. All times here are this clock's, but for linger.ms.
        self._clock = self._requests.clock
        #: Whether a request ended without a response: it may still be written.
        self._has_lost_responses = False

    def _check_fork(self) -> None:
        """Start anew in a forked child, without the parent's producer id and batches."""
        if self._fork_generation == forks.generation:
            return
        if self._transaction is not None:
            raise forks.forked_transaction_error(self._transaction.transactional_id)
        held = self._error is not None or self._buffered_bytes > 0 or bool(self._rejected)
        self._start_anew()
        if held:
            self._error = forks.forked_producer_error()

    # --- the public surface -----------------------------------------------------------------------------------------
    @property
    def collects_rejected(self) -> bool:
        """Return whether records that no broker accepts are collected for :meth:`take_rejected`, and do not fail the producer."""
        return self._handler.collects_rejected

    def collect_rejected(self, collects: bool = True) -> None:
        """Collect records that no broker accepts from now on, or let them fail the producer."""
        self._handler.collects_rejected = collects

    def partitions_for(self, topic: str) -> int:
        """Return how many partitions `topic` has, from metadata not older than ``metadata.max.age.ms``."""
        metadata = self._cluster.metadata.topics([topic], max_age_ms=self._settings.metadata_max_age_ms)[topic]
        return len(metadata.partitions)

    def max_batch_bytes(self, topic: str) -> int | None:
        """Return the largest record batch that `topic` accepts, None if it is unknown (:class:`BatchLimits`)."""
        return self._batch_limits.limit(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue `batches` for a topic-partition, in this order, and send what fills requests.

        Blocks while more than ``buffer.memory`` bytes are unacknowledged. The batches are the producer's from here on:
        their headers are patched in place.

        Raises:
            RecordTooLargeError: a record is larger than ``max.request.size``; nothing of it was queued. With
                `collects_rejected` it is collected instead.
            WireError: an earlier batch has failed.
        """
        self._raise_failure()
        tp = TopicPartition(topic, partition)
        queue = self._queues.get_or_add(tp)
        with self._working():
            expires_at = self._clock.now() + self._settings.delivery_timeout_ms / 1000
            max_bytes, level = self._settings.max_request_size, self._settings.compression_level
            for encoded in (part for batch in batches for part in split_to_size(batch, max_bytes, level)):
                size = len(encoded.data)
                if size > max_bytes:
                    outcome = self._handler.on_oversize(tp, encoded)
                    if isinstance(outcome, FailedBatch):
                        raise outcome.error
                    self._rejected += outcome.rejected
                    continue
                # One batch always gets in, whatever buffer.memory says.
                while self._buffered_bytes and self._buffered_bytes + size > self._settings.buffer_memory:
                    self._progress()
                queue.add(encoded, expires_at)
                self._buffered_bytes += size
                self._unoffered.add(size)
                if self._unoffered.n_bytes >= max_bytes:
                    self._send(everything=False)
            if self._unoffered.have_lingered(self._settings.linger_ms):
                self._send(everything=True)

    def flush(self, deadline: Deadline | None = None) -> dict[TopicPartition, WriteResult]:
        """Send all that is queued, wait for every acknowledgement, and return what was written since the last flush.

        Raises:
            DeadlineExceededError: a batch's delivery timeout or `deadline` has passed; names the last cause.
            WireError: a batch was rejected; the producer has failed.
        """
        self._raise_failure()
        with self._working():
            while self._buffered_bytes:
                if deadline is not None and deadline.expired:
                    raise DeadlineExceededError(
                        f"{self._buffered_bytes} bytes are still unacknowledged at the end of the time for flush",
                        api="Produce",
                    )
                self._progress(deadline)
        return self._results.take()

    def take_rejected(self) -> list[RejectedRecords]:
        """Return the records that were rejected since the last call, in no order between topic-partitions. They are in no log,
        and :meth:`flush` does not count them."""
        self._check_fork()
        rejected, self._rejected = self._rejected, []
        return rejected

    def reset(self) -> None:
        """Drop all that is queued or unacknowledged, and start anew under a new producer id.

        Batches in flight may still be written. A caller that writes them again gets at-least-once delivery.
        """
        self._check_fork()
        self._start_anew()

    @property
    def buffered_bytes(self) -> int:
        """Return the size of the batches that are queued or unacknowledged."""
        self._check_fork()
        return self._buffered_bytes

    @property
    def identity(self) -> ProducerIdentity | None:
        """Return the producer id and epoch in use, None before the first batch is sent."""
        self._check_fork()
        return self._identity

    @property
    def clean(self) -> bool:
        """Return whether nothing is queued, unacknowledged or rejected, and the producer has not failed."""
        self._check_fork()
        return self._error is None and not self._buffered_bytes and not self._rejected

    def all_responded(self, deadline: Deadline) -> bool:
        """Wait until `deadline` for the responses to all requests that were sent, and send nothing. If True, no request of this
        producer can still be written."""
        self._check_fork()
        responded = not self._has_lost_responses
        for sent in self._requests:
            try:
                sent.future.result(deadline)
            except WireError:
                responded = False
        return responded

    # --- sending ----------------------------------------------------------------------------------------------------

    def _progress(self, deadline: Deadline | None = None) -> None:
        """Send what may leave, then wait for one response, for the end of a pause, or until `deadline`."""
        self._send(everything=True)
        # With acks=0 all is done once it is sent.
        if self._buffered_bytes and (sent := self._requests.next_response(self._queues.pauses(), deadline)):
            self._receive(sent)

    def _send(self, *, everything: bool) -> None:
        """Send requests to every leader that has room in flight; unless `everything`, only those that are large enough."""
        now = self._requests.start_round()
        expired = self._queues.first_expired(now)
        if expired is not None:
            self._fail(self._handler.on_expiry(expired, expired.last_error))
        ready = self._queues.ready(now)
        by_node: dict[int, list[PartitionQueue]] = {}
        try:
            lookup = self._requests.find_leaders([queue.topic_partition for queue in ready])
        except WireError as error:
            self._fail(FailedBatch(error))
        self._topic_ids.update(lookup.topic_ids)
        for queue in ready:
            tp = queue.topic_partition
            if tp in lookup.errors:
                self._pause_queue(queue, lookup.errors[tp])
                continue
            self._grace_periods.pop(tp, None)
            node = lookup.leaders[tp][0]
            if queue.node in (-1, node):
                by_node.setdefault(node, []).append(queue)
        for node, unreachable in self._requests.reachable(by_node):
            if unreachable is not None:
                for queue in by_node[node]:
                    self._pause_queue(queue, unreachable)
                continue
            while self._requests.count(node) < self._terms.max_in_flight:
                max_bytes = self._settings.max_request_size
                chosen = choose_queues(by_node[node], now, max_bytes=max_bytes, everything=everything)
                if not chosen or not self._send_to(node, chosen):
                    break
        self._unoffered.offer(everything=everything)

    def _pause_queue(self, queue: PartitionQueue, error: WireError) -> None:
        """Pause a queue whose partition has no leader now, or one that cannot be reached, or fail the producer."""
        tp = queue.topic_partition
        if not error.retriable:
            self._fail(FailedBatch(error))
        grace_periods = self._grace_periods.setdefault(tp, GracePeriods())
        if isinstance(error, BrokerError) and not grace_periods.allow(error.code, self._clock.now()):
            self._fail(FailedBatch(error))
        queue.waiting[0].last_error = error
        queue.not_before = self._requests.retry_at(1)

    def _send_to(self, node: int, chosen: list[PartitionQueue]) -> bool:
        """Send the next batch of each of `chosen` in one request; False when that failed."""
        if self._identity is None:
            try:
                self._identity = (
                    request_producer_identity(self._cluster) if self._terms.is_idempotent else ProducerIdentity()
                )
            except WireError as error:
                self._fail(FailedBatch(error))
        batches: dict[TopicPartition, QueuedBatch] = {}
        for queue in chosen:
            tp = queue.topic_partition
            batches[tp] = queue.take(node, self._identity, transactional=self._transaction is not None)
            self.counters.n_retries += batches[tp].attempts > 1
            self._queues.serve_last(tp)  # the others are served before it next time
        self._cluster.counters.count(retries=sum(batch.attempts > 1 for batch in batches.values()))
        request, cap = self._request(batches)
        delivery_ends = min(batch.expires_at for batch in batches.values())
        expires_at = min(self._clock.now() + self._settings.request_timeout_ms / 1000, delivery_ends)
        try:
            future = self._cluster.send(node, request, purpose=PURPOSE, version_cap=cap)
        except TransportError as error:  # no broker has all of it, so none will write any of it
            self._on_no_response(node, batches.values(), error, was_sent=False)
            return False
        except WireError as error:
            self._fail(FailedBatch(error))
        except BaseException:  # Ctrl-C: the broker may have all of it
            interrupted = TransportError("sending was interrupted", broker=node)
            self._on_no_response(node, batches.values(), interrupted, was_sent=True)
            raise
        self.counters.n_requests += 1
        if self._terms.acks == 0:
            for batch in batches.values():
                self._acknowledge(batch, -1)
        else:
            sent = SentProduce(request=request, future=future, node=node, batches=batches, expires_at=expires_at)
            self._requests.add(sent)
        return True

    def _request(self, batches: Mapping[TopicPartition, QueuedBatch]) -> tuple[ProduceRequest, int | None]:
        """Return a request with one batch of each topic-partition, and the highest version that it may go in, None for any."""
        topics = [
            TopicProduceData(
                name=name,
                topic_id=self._topic_ids[name],
                partition_data=[
                    PartitionProduceData(index=tp.partition, records=batches[tp].encoded.data) for tp in of_topic
                ],
            )
            for name, of_topic in group_by_topic(batches).items()
        ]
        cap = None if all(topic.topic_id != ZERO_UUID for topic in topics) else TOPIC_ID_VERSION - 1
        transaction = self._transaction
        request = ProduceRequest(
            transactional_id=transaction.transactional_id if transaction else None,
            acks=self._terms.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=topics,
        )
        return request, (transaction.produce_cap or cap) if transaction else cap

    # --- responses --------------------------------------------------------------------------------------------------

    def _receive(self, sent: SentProduce) -> None:
        """Wait for the response to a request, the oldest of its node, and act on it.

        If Ctrl-C ends this, the request stays in flight: the next call finds its response, or its connection closed.
        """
        try:
            response = sent.future.result(self._clock.deadline(sent.expires_at))
        except (TransportError, ProtocolError) as error:
            self._on_no_response(sent.node, sent.batches.values(), error, was_sent=True)
            self._requests.remove(sent)
            return
        except WireError as error:
            self._fail(FailedBatch(error))
        left_out = set(sent.batches.values())
        for batch, partition in sent.partition_responses(response):
            left_out.discard(batch)
            queue = self._queues[batch.topic_partition]
            if batch not in queue.in_flight:
                continue  # done before an interruption
            if not partition.error_code:  # as the rules have it, without their cost
                self._acknowledge(batch, partition.base_offset)
                continue
            cascading, now = queue.is_cascading_failure(batch), self._clock.now()
            outcome = self._handler.on_response(
                batch, partition, is_cascading=cascading, now=now, broker=sent.node, version=sent.future.version
            )
            pause = True
            if isinstance(outcome, RetriedBatch) and outcome.find_leader:
                # Where another leader is known by now, the retry leaves without a pause.
                pause = not self._cluster.metadata.follow_hint(
                    batch.topic_partition, sent.node, partition.current_leader, response.node_endpoints
                )
            self._act(batch, outcome, pause=pause)
        if left_out:
            missing = ProtocolError("the response leaves out a partition", broker=sent.node, api="Produce")
            self._on_no_response(sent.node, left_out, missing, was_sent=True)
        self._requests.remove(sent)

    def _on_no_response(self, node: int, batches: Iterable[QueuedBatch], error: WireError, *, was_sent: bool) -> None:
        """Act on a request whose outcome is unknown, or that was not sent as a whole."""
        logger.debug("broker %d: no response to Produce: %s", node, error)
        self._has_lost_responses |= was_sent
        for batch in batches:
            if batch in self._queues[batch.topic_partition].in_flight:
                self._cluster.metadata.invalidate(batch.topic_partition)
                self._act(batch, self._handler.on_no_response(batch, error, now=self._clock.now(), was_sent=was_sent))

    def _act(self, batch: QueuedBatch, outcome: ProduceOutcome, *, pause: bool = True) -> None:
        """Do what a response means for a batch."""
        queue = self._queues[batch.topic_partition]
        not_before = self._requests.retry_at(batch.attempts) if pause else self._clock.now()
        match outcome:
            case Acknowledged(base_offset):
                self._acknowledge(batch, base_offset)
            case RetriedBatch(error, may_be_written):
                batch.may_be_written |= may_be_written
                queue.retry(batch, error, not_before)
            case Restarted(error):
                if self._identity is not None and queue.is_of(self._identity):  # else there is a new one already
                    self._identity = self._identity.with_next_epoch()
                queue.restart(batch, error, not_before)
            case Replaced(batches, rejected, too_large):
                if too_large:
                    self._batch_limits.lower(batch.topic_partition.topic, batch.size)
                self._rejected += rejected
                queue.replace(batch, batches)
                self._buffered_bytes += sum(len(encoded.data) for encoded in batches) - batch.size
            case FailedBatch():
                self._fail(outcome)
            case _:
                assert_never(outcome)

    def _acknowledge(self, batch: QueuedBatch, base_offset: int) -> None:
        tp, n_records = batch.topic_partition, batch.encoded.n_records
        try:
            self._queues[tp].acknowledge(batch)
        except ProtocolError as error:
            self._fail(FailedBatch(error))
        self.counters.count(n_records, batch.size)
        self._results.add(tp, n_records, batch.size, base_offset)
        self._buffered_bytes -= batch.size  # last: an interruption before is found by it

    def _fail(self, failed: FailedBatch) -> NoReturn:
        """Fail the producer for good: what comes after a lost batch must not be written."""
        self._error = failed.error
        logger.debug("the producer has failed: %s", failed.error)
        raise failed.error from failed.cause

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Guard a call during which the clock runs, and after which every batch has its place, or the producer has failed."""
        self._clock.resume()
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C may leave a step half done, with a batch that nobody would send or count
            in_requests = {batch for sent in self._requests for batch in sent.batches.values()}
            if not self._queues.complete(self._buffered_bytes, in_requests):
                self._error = self._handler.on_interruption().error
            raise
        finally:
            self._clock.pause()

    def _raise_failure(self) -> None:
        self._check_fork()
        if self._error is not None:
            raise self._error


def request_producer_identity(cluster: Cluster) -> ProducerIdentity:
    """Return a new producer id, which any broker hands out.

    Raises:
        BrokerError: this user may not write idempotently.
        DeadlineExceededError: no broker responded in ``default.api.timeout.ms``.
    """
    response = cluster.request(ANY, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    if response.error_code:
        error = broker_error(response.error_code, api="InitProducerId")
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # KIP-679: whoever may write to a topic may write idempotently.
            error.remedy = (
                "Grant the principal Write on the topics that it writes to: it has Write on none. Brokers before Kafka 2.8 need "
                "IdempotentWrite on the cluster, unless {enable.idempotence}=false."
            )
        raise error
    logger.debug("producer id %d, epoch %d", response.producer_id, response.producer_epoch)
    return ProducerIdentity(response.producer_id, response.producer_epoch)
