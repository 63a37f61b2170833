"""Writes encoded record batches to their leaders: idempotent, pipelined, many topic-partitions in one request.

Owns Produce requests (https://kafka.apache.org/protocol#The_Messages_Produce) and what their answers ask for: retries
of identical batches, leader changes, delivery timeouts, bounded memory. Order and sequences are
:mod:`~pykafka_wire.wire.produce.inflight`'s, encoding is :mod:`~pykafka_wire.wire.records.encode`'s, connections are
:mod:`~pykafka_wire.wire.cluster.cluster`'s. No thread: requests leave and answers are read inside the caller's calls, so that a
caller who encodes between two `append` calls overlaps with the brokers' work.

A batch of several records that a broker finds too large is cut in two and sent again, as Java's producer does. What a broker
has against single records (KIP-467) fails the producer, or with `keeps_refused` takes these records out and sends the others.

At the defaults (``acks=all``, ``enable.idempotence=true``) every batch that `flush` returns for is in the log once, in
order (KIP-98): a lost answer, a leader change or a broker's death resends the same bytes under the same sequence. A
failure that cannot be retried fails the producer as a whole; what was still unacknowledged may or may not be in the
log.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NoReturn

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster.cluster import ANY, Backoff, Cluster, Deadline
from pykafka_wire.wire.cluster.retries import Graces
from pykafka_wire.wire.connection.response_future import first_to_arrive
from pykafka_wire.wire.deadline import WorkingClock
from pykafka_wire.wire.error_codes import Action, error_info
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    ProtocolError,
    RecordTooLargeError,
    TransportError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.produce.batch_limits import BatchLimits
from pykafka_wire.wire.produce.inflight import PartitionQueue, ProducerIdentity, QueuedBatch, TransactionScope
from pykafka_wire.wire.produce.produce_errors import (
    AFTER_APPEND,
    RECORD_ERRORS,
    expired_error,
    forked_producer_error,
    forked_transaction_error,
    refused_error,
    too_large_error,
    undecided_error,
)
from pykafka_wire.wire.produce.request import InFlight, produce_request
from pykafka_wire.wire.produce.split_batches import RefusedRecords, halves, take_out
from pykafka_wire.wire.produce.write_results import Delivered, ProducerCounters
from pykafka_wire.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceResponse
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

#: The broker remembers the last five batches of a producer per partition, so more than five in flight could not be told
#: from new ones on a retry (KAFKA-5494).
_MOST_IN_FLIGHT: Final = 5
#: CORRUPT_MESSAGE may be a flipped bit on the way, which a resend heals; brokers before 2.5 (KIP-467) also answer it
#: for a record that they will never take, such as one without a key in a compacted topic.
_CORRUPT_TRIES: Final = 3
#: How long to wait for an answer about leaders while partitions whose leaders are known could be written.
_LEADER_WAIT_MS: Final = 1_000
#: The connection that carries Produce and nothing else: a broker answers one connection's requests in order, and the answer
#: to acks=all may take as long as replication does. A look-up behind it would time out, and close the connection.
_PURPOSE: Final = "produce"


class Producer:
    """Writes batches to topic-partitions. One per process and settings is enough
    (:mod:`~pykafka_wire.wire.process_clients`).

    Not thread-safe. After an error every call raises that error until :meth:`reset`. A forked child starts with a producer id
    of its own; one that was forked while records were unacknowledged has failed, for they are its parent's to write.

    Args:
        transaction: what is written belongs to this one transaction, which :mod:`~pykafka_wire.wire.transactions.transaction` has
            begun and ends; ``acks`` and ``enable.idempotence`` are then what a transaction needs, whatever they say.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings | None = None,
        *,
        transaction: TransactionScope | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings if settings is not None else cluster.settings
        self._transaction = transaction
        acks = "all" if transaction else str(self._settings.acks)
        self._acks = {"all": -1, "-1": -1, "1": 1, "0": 0}[acks]
        self._idempotent = bool(transaction) or (self._settings.enable_idempotence and self._acks == -1)
        self._max_in_flight = self._settings.max_in_flight_requests_per_connection
        if self._idempotent:
            self._max_in_flight = min(self._max_in_flight, _MOST_IN_FLIGHT)
        self._backoff = Backoff(self._settings)
        self.counters = ProducerCounters()
        #: Whether records that no broker takes are kept for :meth:`take_refused`, instead of failing the producer.
        self.keeps_refused = False
        self._forget()

    def _forget(self) -> None:
        self._fork_generation = forks.generation
        self._identity: ProducerIdentity | None = self._transaction.identity if self._transaction else None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: dict[int, deque[InFlight]] = {}
        self._buffered_bytes = 0
        self._unsent_bytes = 0
        self._lost_track = False
        self._error: WireError | None = None
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._graces: dict[TopicPartition, Graces] = {}
        self._delivered: dict[TopicPartition, Delivered] = {}
        self._kept: list[RefusedRecords] = []
        self._batch_limits = BatchLimits(self._cluster, self._settings)
        self._unsent_since: float | None = None
        #: Stands still while nobody calls: nothing is read or sent then, and a caller that is slow to bring more is to
        #: lose nothing. All times here are this clock's, but for linger.ms.
        self._clock = WorkingClock()

    # --- the public surface -----------------------------------------------------------------------------------------

    def _check_fork(self) -> None:
        """In a forked child: forget what is the parent's, its producer id first of all."""
        if self._fork_generation == forks.generation:
            return
        if self._transaction is not None:
            raise forked_transaction_error(self._transaction.transactional_id)
        held = self._error is not None or self._buffered_bytes > 0 or bool(self._kept)
        self._forget()
        if held:
            self._error = forked_producer_error()

    def partitions_for(self, topic: str) -> int:
        """How many partitions `topic` has, from metadata not older than ``metadata.max.age.ms``."""
        metadata = self._cluster.topics([topic], max_age_ms=self._settings.metadata_max_age_ms)[topic]
        return len(metadata.partitions)

    def max_batch_bytes(self, topic: str) -> int | None:
        """The largest record batch that `topic` takes, None where brokers do not say (:class:`BatchLimits`)."""
        return self._batch_limits.limit(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queues `batches` for a topic-partition, in this order, and sends what fills requests.

        Blocks while more than ``buffer.memory`` bytes are unacknowledged. The batches are the producer's from here on:
        their headers are patched in place.

        Raises:
            RecordTooLargeError: a record is larger than ``max.request.size``; nothing of it was queued. With
                `keeps_refused` it is kept instead.
            WireError: an earlier batch has failed.
        """
        self._raise_failure()
        self._clock.resume()
        tp = TopicPartition(topic, partition)
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        expires_at = self._clock.now() + self._settings.delivery_timeout_ms / 1000
        try:
            for encoded in itertools.chain.from_iterable(map(self._cut_to_size, batches)):
                size = len(encoded.data)
                if size > self._settings.max_request_size:
                    limit_bytes = self._settings.max_request_size
                    error = too_large_error(tp, encoded, "max.request.size", limit_bytes=limit_bytes)
                    if not self.keeps_refused:
                        raise error
                    self._keep(tp, encoded, dict.fromkeys(range(encoded.n_records)), error)
                    continue
                # One batch always gets in, whatever buffer.memory says.
                while self._buffered_bytes and self._buffered_bytes + size > self._settings.buffer_memory:
                    self._progress()
                queue.add(encoded, expires_at)
                self._buffered_bytes += size
                self._unsent_bytes += size
                if self._unsent_since is None:
                    self._unsent_since = time.monotonic()
                if self._unsent_bytes >= self._settings.max_request_size:
                    self._send(everything=False)
            if self._lingered():
                self._send(everything=True)
        finally:
            self._clock.pause()

    def _cut_to_size(self, encoded: EncodedBatch) -> Iterator[EncodedBatch]:
        """A batch that compression made larger than its records, as batches that fit; a single record as it is."""
        if len(encoded.data) <= self._settings.max_request_size or encoded.n_records == 1:
            yield encoded
        else:
            for half in halves(encoded, self._settings.compression_level):
                yield from self._cut_to_size(half)

    def flush(self, deadline: Deadline | None = None) -> dict[TopicPartition, Delivered]:
        """Sends all that is queued, waits for every acknowledgement, and returns what was delivered since the last
        flush.

        Raises:
            DeadlineExceededError: a batch's delivery timeout or `deadline` has passed; names the last cause.
            WireError: a batch was refused; the producer has failed.
        """
        self._raise_failure()
        self._clock.resume()
        try:
            while self._buffered_bytes:
                if deadline is not None and deadline.expired:
                    raise DeadlineExceededError(
                        f"{self._buffered_bytes} bytes are still unacknowledged at the end of the time for flush",
                        api="Produce",
                    )
                self._progress(deadline)
        finally:
            self._clock.pause()
        delivered, self._delivered = self._delivered, {}
        return delivered

    def take_refused(self) -> list[RefusedRecords]:
        """The records that were refused since the last call, in no order between topic-partitions. They are in no log,
        and :meth:`flush` does not count them."""
        self._check_fork()
        kept, self._kept = self._kept, []
        return kept

    def reset(self) -> None:
        """Drops all that is queued or unacknowledged, and starts afresh under a new producer id.

        Batches in flight may still arrive in the log: the caller writes them again, at least once is what it gets.
        """
        self._check_fork()
        self._forget()

    @property
    def buffered_bytes(self) -> int:
        """Size of the batches that are queued or unacknowledged."""
        self._check_fork()
        return self._buffered_bytes

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer id and epoch in use, None before the first batch is sent."""
        self._check_fork()
        return self._identity

    @property
    def clean(self) -> bool:
        """Whether nothing is queued or unacknowledged and no error has struck."""
        self._check_fork()
        return self._error is None and not self._buffered_bytes and not self._kept

    def settle(self, deadline: Deadline) -> bool:
        """Whether every request that was ever sent has been answered, after waiting until `deadline` for those that
        have not: nothing of this producer's can still arrive in a log then. Sends nothing."""
        self._check_fork()
        answered = True
        for flight in itertools.chain.from_iterable(self._in_flight.values()):
            try:
                flight.pending.result(deadline)
            except WireError:
                answered = False
        return answered and not self._lost_track

    # --- sending ----------------------------------------------------------------------------------------------------

    def _progress(self, deadline: Deadline | None = None) -> None:
        """Sends what may leave, then waits for one answer, or for the end of a pause when none is due; not for longer
        than until `deadline`."""
        self._send(everything=True)
        now = self._clock.now()
        flights = [flights[0] for flights in self._in_flight.values() if flights]
        pauses = [queue.not_before for queue in self._queues.values() if queue.waiting]
        if not flights and not pauses:
            return  # with acks=0 all is done once it is sent
        # What could have left by now waits for an answer; a retry that is due later leaves then, whoever is slow to answer.
        moments = [flight.expires_at for flight in flights] + [pause for pause in pauses if pause > now or not flights]
        until = self._clock.deadline(min(moments))
        if deadline is not None:
            until = until.at_most_ms(deadline.remaining_ms())
        if not flights:
            time.sleep(until.remaining_ms() / 1000)
            return
        flights.sort(key=lambda flight: flight.expires_at)
        if now >= flights[0].expires_at:  # before others, whose answers may come without end
            self._receive(flights[0])
            return
        first = first_to_arrive([flight.pending for flight in flights], until)
        if first.arrived:
            self._receive(next(flight for flight in flights if flight.pending is first))

    def _lingered(self) -> bool:
        """Whether what was not sent has waited for company as long as ``linger.ms`` has it."""
        linger_ms, since = self._settings.linger_ms, self._unsent_since
        return linger_ms is not None and since is not None and (time.monotonic() - since) * 1000 >= linger_ms

    def _send(self, *, everything: bool) -> None:
        """Sends requests to every leader that has room in flight; unless `everything`, only those that are worth it."""
        now = self._clock.now()
        ready = []
        for queue in self._queues.values():
            if queue.waiting and now >= queue.waiting[0].expires_at:
                self._expired(queue.waiting[0])
            if queue.ready(now):
                ready.append(queue)
        by_node: dict[int, list[PartitionQueue]] = {}
        # All at once: a partition without a leader delays no other one.
        deadline = Deadline.after_ms(_LEADER_WAIT_MS) if self.counters.n_requests else None
        lookup = self._cluster.leaders((queue.topic_partition for queue in ready), deadline=deadline)
        self._topic_ids.update(lookup.topic_ids)
        for queue in ready:
            tp = queue.topic_partition
            if tp in lookup.errors:
                self._without_leader(queue, lookup.errors[tp])
                continue
            self._graces.pop(tp, None)
            node = lookup.leaders[tp][0]
            if queue.node in (-1, node):
                by_node.setdefault(node, []).append(queue)
        for node, queues in by_node.items():
            while len(self._in_flight.setdefault(node, deque())) < self._max_in_flight:
                chosen = self._choose(queues, now, everything=everything)
                if not chosen or not self._send_to(node, chosen):
                    break
        self._unsent_bytes = 0
        if everything:
            self._unsent_since = None

    def _without_leader(self, queue: PartitionQueue, error: WireError) -> None:
        """Puts a queue off for a while whose partition has no leader now, or fails the producer."""
        tp = queue.topic_partition
        if not error.retriable or (isinstance(error, NoBrokerAvailableError) and not self.counters.n_requests):
            self._fail(error)
        graces = self._graces.setdefault(tp, Graces())
        if isinstance(error, BrokerError) and not graces.allow(error.code, self._clock.now()):
            self._fail(error)
        queue.waiting[0].last_error = error
        queue.not_before = self._clock.now() + self._backoff.delay_ms(1) / 1000

    def _choose(self, queues: list[PartitionQueue], now: float, *, everything: bool) -> list[PartitionQueue]:
        """The queues whose next batches make up a request: one batch each (all that a broker takes), up to its size."""
        chosen: list[PartitionQueue] = []
        n_bytes = 0
        for queue in queues:
            if not queue.ready(now):
                continue
            size = queue.waiting[0].size
            if chosen and n_bytes + size > self._settings.max_request_size:
                continue
            chosen.append(queue)
            n_bytes += size
        full = 2 * n_bytes >= self._settings.max_request_size or any(len(queue.waiting) > 1 for queue in chosen)
        return chosen if everything or full else []

    def _send_to(self, node: int, chosen: list[PartitionQueue]) -> bool:
        """Sends the next batch of each of `chosen` in one request; False when that failed."""
        if self._identity is None:
            try:
                self._identity = self._init_producer_id() if self._idempotent else ProducerIdentity()
            except WireError as error:
                self._fail(error)
        batches: dict[TopicPartition, QueuedBatch] = {}
        for queue in chosen:
            tp = queue.topic_partition
            batches[tp] = queue.take(node, self._identity, transactional=self._transaction is not None)
            self.counters.n_retries += batches[tp].attempts > 1
            # The others are served before it next time.
            self._queues[tp] = self._queues.pop(tp)
        now = self._clock.now()
        request, cap = produce_request(
            batches,
            self._topic_ids,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            transaction=self._transaction,
        )
        # The request timeout, or the rest of a delivery timeout if that is shorter.
        expires_at = min(
            now + self._settings.request_timeout_ms / 1000,
            *(batch.expires_at for batch in batches.values()),
        )
        try:
            pending = self._cluster.send(node, request, purpose=_PURPOSE, version_cap=cap)
        except TransportError as error:
            # No broker has all of it, so none will write any of it.
            self._send_again(node, batches.values(), error)
            return False
        except WireError as error:
            self._fail(error)
        except BaseException:  # Ctrl-C: the broker may have all of it
            self._lost_track = True
            for batch in batches.values():
                batch.may_be_written = True
                interrupted = TransportError("sending was interrupted", broker=node, api="Produce")
                self._queues[batch.topic_partition].retry(batch, interrupted, now)
            raise
        self.counters.n_requests += 1
        if self._acks == 0:
            for batch in batches.values():
                self._acknowledge(batch, -1)
        else:
            self._in_flight[node].append(
                InFlight(request=request, pending=pending, node=node, batches=batches, expires_at=expires_at)
            )
        return True

    def _init_producer_id(self) -> ProducerIdentity:
        """A producer id of our own; without a transactional id any broker hands one out (KIP-98)."""
        response = self._cluster.request(
            ANY, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
        if response.error_code:
            error = broker_error(response.error_code, api="InitProducerId")
            if error.name == "CLUSTER_AUTHORIZATION_FAILED":
                error.remedy = "Grant IdempotentWrite on the cluster, or set enable.idempotence=false."
            raise error
        logger.debug("producer id %d, epoch %d", response.producer_id, response.producer_epoch)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _receive(self, flight: InFlight) -> None:
        """Waits for the answer to `flight`, the oldest of its node."""
        try:
            response = flight.pending.result(self._clock.deadline(flight.expires_at))
        except (TransportError, ProtocolError) as error:
            self._in_flight[flight.node].remove(flight)
            self._lost(flight.node, flight.batches.values(), error)
            return
        except WireError as error:
            self._fail(error)
        # Not before: where Ctrl-C ends the wait, the request stays known, and the next look finds its connection closed.
        self._in_flight[flight.node].remove(flight)
        endpoints = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in response.node_endpoints}
        unanswered = set(flight.batches.values())
        for batch, answer in flight.answers(response):
            unanswered.discard(batch)
            if error_info(answer.error_code).action is Action.SUCCESS:
                self._acknowledge(batch, answer.base_offset)
            else:
                self._refused(batch, answer, flight, endpoints)
        if unanswered:
            self._lost(flight.node, unanswered, ProtocolError("the answer leaves out a partition", broker=flight.node))

    def _acknowledge(self, batch: QueuedBatch, base_offset: int) -> None:
        tp, n_records = batch.topic_partition, batch.encoded.n_records
        try:
            self._queues[tp].acknowledge(batch)
        except ProtocolError as error:
            self._fail(error)
        self._buffered_bytes -= batch.size
        self.counters.n_batches += 1
        self.counters.n_records += n_records
        self.counters.n_bytes += batch.size
        last_offset = base_offset + n_records - 1 if base_offset >= 0 else -1
        delivered = Delivered(n_records, batch.size, base_offset, last_offset)
        before = self._delivered.get(tp)
        self._delivered[tp] = delivered if before is None else before.plus(delivered)

    def _refused(
        self,
        batch: QueuedBatch,
        answer: PartitionProduceResponse,
        flight: InFlight,
        endpoints: Mapping[int, tuple[str, int]],
    ) -> None:
        """Acts on an error code: sends the batch again, or fails the producer."""
        tp = batch.topic_partition
        queue = self._queues[tp]
        error = refused_error(tp, batch.encoded, answer, node=flight.node, version=flight.pending.version)
        if error.name in RECORD_ERRORS and self._recut(queue, batch, answer, error):
            return
        # inflight.py, rule 4: an echo of an earlier batch's failure.
        echo = error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER" and queue.is_echo(batch)
        # An answer that has an offset comes from a leader that wrote the batch, and lost its place after that.
        batch.may_be_written |= answer.base_offset >= 0 or error.name in AFTER_APPEND
        corrupt_again = error.name == "CORRUPT_MESSAGE" and batch.attempts >= _CORRUPT_TRIES
        if not (error.retriable or echo) or corrupt_again:
            self._fail(error)
        pause = True
        if error.info.action is Action.REFRESH_METADATA:
            hint = answer.current_leader
            pause = not self._cluster.redirect(
                tp,
                flight.node,
                hint=(hint.leader_id, hint.leader_epoch),
                endpoint=endpoints.get(hint.leader_id),
            )
        self._retry(batch, error, pause=pause)

    def _recut(
        self, queue: PartitionQueue, batch: QueuedBatch, answer: PartitionProduceResponse, error: BrokerError
    ) -> bool:
        """What to do about a batch refused for its records: put others in its place, or False if it is to fail."""
        encoded, level = batch.encoded, self._settings.compression_level
        faults = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
        faults = {index: faults[index] for index in sorted(faults) if 0 <= index < encoded.n_records}
        too_large = isinstance(error, RecordTooLargeError)
        if encoded.n_records > 1 and (too_large or (self.keeps_refused and not faults)):
            # A broker that does not say which record: halves of halves will.
            pieces = halves(encoded, level)
            if too_large:
                self._batch_limits.refused(batch.topic_partition.topic, batch.size)
        elif self.keeps_refused and batch.may_be_written and batch.base_sequence >= 0:
            self._fail(undecided_error(error))
        elif self.keeps_refused:
            pieces = self._keep(batch.topic_partition, encoded, faults or {0: None}, error)
        else:
            return False
        queue.replace(batch, pieces)
        self._buffered_bytes += sum(len(piece.data) for piece in pieces) - batch.size
        return True

    def _keep(
        self, tp: TopicPartition, encoded: EncodedBatch, faults: Mapping[int, str | None], error: BrokerError
    ) -> list[EncodedBatch]:
        """Keeps the records at fault for :meth:`take_refused`; returns the others as batches."""
        taken, rest = take_out(tp, encoded, faults, error, self._settings.compression_level)
        self._kept.append(taken)
        return rest

    def _lost(self, node: int, batches: Collection[QueuedBatch], error: WireError) -> None:
        """The fate of a request is unknown: its batches are sent again, as they are."""
        self._lost_track = True
        if isinstance(error, ProtocolError) and any(batch.attempts > 1 for batch in batches):
            self._fail(error)
        for batch in batches:
            batch.may_be_written = True
        self._send_again(node, batches, error)

    def _send_again(self, node: int, batches: Collection[QueuedBatch], error: WireError) -> None:
        logger.debug("broker %d: Produce came to nothing: %s", node, error)
        for batch in batches:
            self._cluster.invalidate(batch.topic_partition)
            self._retry(batch, error, pause=True)

    def _retry(self, batch: QueuedBatch, error: WireError, *, pause: bool) -> None:
        now = self._clock.now()
        batch.last_error = error
        if batch.attempts > self._settings.retries:
            self._fail(error)
        if now >= batch.expires_at:
            self._expired(batch)
        delay_s = self._backoff.delay_ms(batch.attempts) / 1000 if pause else 0.0
        self._queues[batch.topic_partition].retry(batch, error, now + delay_s)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _expired(self, batch: QueuedBatch) -> NoReturn:
        self._fail(expired_error(batch, self._settings.delivery_timeout_ms), batch.last_error)

    def _fail(self, error: WireError, cause: WireError | None = None) -> NoReturn:
        """Fails the producer for good: what comes after a lost batch must not be written."""
        self._error = error
        logger.debug("the producer has failed: %s", error)
        raise error from cause

    def _raise_failure(self) -> None:
        self._check_fork()
        if self._error is not None:
            raise self._error
