"""One read of ranges: what to ask each broker for, and what its answers mean.

Owns the Fetch requests of reads (https://kafka.apache.org/protocol#The_Messages_Fetch): which partitions stand in a request,
how much is asked for, what each partition's answer means, and when a range has ended. It knows nothing of sockets
(:mod:`~pykafka_wire.wire.cluster.cluster`), of what is inside a batch (:mod:`~pykafka_wire.wire.records.decode`) or of Spark.

How a read goes: one Fetch per leader over all of its unfinished ranges; when its answer is there, batch headers give
the next positions, the next Fetch leaves, and only then is the answer decoded, so that broker and network work
meanwhile. The answers of all leaders are under way at the same time. No offsets are listed, and nothing is asked for
beyond a range's end, so no request waits in a long poll. Fetch sessions are not used (session id 0, epoch -1): a
short-lived reader would only fill the broker's session cache (KIP-227).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pykafka_wire.wire.cluster.cluster import Backoff, Cluster, Deadline, ResponseFuture
from pykafka_wire.wire.connection.response_future import first_to_arrive
from pykafka_wire.wire.deadline import WorkingClock
from pykafka_wire.wire.error_codes import Action, error_info
from pykafka_wire.wire.errors import (
    BrokerError,
    NoBrokerAvailableError,
    OffsetOutOfRangeError,
    ProtocolError,
    TransportError,
    UnknownTopicError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.fetch.fetch_errors import (
    log_end_error,
    log_end_offset,
    oversize_error,
    recreated_error,
    stalled_error,
    throttled_error,
    truncated_error,
    with_log_bounds,
)
from pykafka_wire.wire.fetch.fetched import Chunk, ChunkDecoder, ChunkPart, FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.positions import RangeProgress, walk_batches
from pykafka_wire.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topics import ZERO_UUID, OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

#: The broker's socket.request.max.bytes (100 MiB by default) bounds what any producer can have written as one batch.
MAX_BATCH_BYTES: Final = 104_857_600
#: A partition with nothing to give holds its answer back for this long, and so that of others: they share a request
#: only with partitions in the same plight, since any byte ends the wait (fetch.min.bytes is 1).
_MAX_WAIT_MS: Final = 100
#: Before a partition that had nothing to give is asked again. Brokers hold such an answer back anyway; this keeps one that
#: does not from being asked without end.
LEAST_PAUSE_S: Final = 0.005
#: How long a follower (KIP-392) may have nothing to give. Its high watermark trails the leader's until its next fetch from
#: there, at most replica.fetch.wait.max.ms (500 ms by default) in a healthy cluster.
_FOLLOWER_WAIT_S: Final = 1.0
#: How long the leader serves a range itself after a follower failed it. By then a leader has dropped a follower that
#: trails from the in-sync replicas (1.5 times replica.lag.time.max.ms, which is 30 s by default), and names it no more.
_LEADER_ONLY_S: Final = 45.0
#: How long to wait for an answer about leaders while partitions whose leaders are known could be read.
_LEADER_WAIT_MS: Final = 1_000
#: A connection of its own: an answer of megabytes must not stand before metadata or commits.
_PURPOSE: Final = "fetch"
#: The first version that names topics by id (KIP-516); below it last_fetched_epoch came with 12 (KIP-595).
_TOPIC_ID_VERSION: Final = 13
_LAST_EPOCH_VERSION: Final = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a request: whose range, from which offset, and the (leader, leader epoch) it was sent under."""

    progress: RangeProgress
    position: int
    leader: tuple[int, int]


@dataclass(frozen=True, slots=True)
class InFlight:
    """One Fetch on its way, its answer to begin by `expires_at` (on the read's clock). `by_place` finds what was asked by
    (topic name or id, partition)."""

    pending: ResponseFuture[FetchResponse]
    node: int
    expires_at: float
    asked: list[Asked]
    by_place: dict[tuple[str | uuid.UUID, int], Asked]


class RangeRead:
    """The state of one call of :func:`fetch_ranges`; a consumer's read without end builds on it."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Sequence[OffsetRange],
        *,
        columns: Columns,
        read_committed: bool,
        max_bytes: int,
        max_partition_bytes: int,
        deadline_ms: int,
        end_wait_ms: int,
        counters: FetchCounters,
        purpose: str = _PURPOSE,
    ) -> None:
        self._purpose = purpose
        self._cluster = cluster
        self._settings = cluster.settings
        self._read_committed = read_committed
        self._decoder = ChunkDecoder(
            ranges,
            columns,
            read_committed=read_committed,
            check_crc=cluster.settings.check_crcs,
            max_bytes=max_bytes,
            counters=counters,
        )
        self._max_partition_bytes = max_partition_bytes
        self._deadline_s = deadline_ms / 1000
        self._end_wait_s = end_wait_ms / 1000
        self._counters = counters
        self._unfinished = [
            progress
            for progress in (RangeProgress(index, range_) for index, range_ in enumerate(ranges))
            if not progress.finished
        ]
        self._in_flight: dict[int, InFlight] = {}
        self._backoff = Backoff(cluster.settings)
        self._turn = 0
        #: Node id -> when it reads requests again, on the monotonic clock: throttling goes on while the caller works.
        self._throttled_until: dict[int, float] = {}
        #: Stands still while the caller works between chunks.
        self._clock = WorkingClock()
        self._moved_at = self._clock.now()
        self._topic_ids: dict[str, uuid.UUID] = {}

    def run(self) -> Iterator[FetchedRecords]:
        while self._unfinished:
            self._send()
            if not self._in_flight:
                self._sleep()
                continue
            flight = self._next_flight()
            if flight is None:
                continue
            chunk = self._take_answer(flight)
            self._unfinished = [progress for progress in self._unfinished if not progress.finished]
            self._send()
            if not chunk.parts:
                continue
            for fetched in self._decoder.decode(chunk):
                self._clock.pause()
                yield fetched
                self._clock.resume()
                del fetched
            # A part whose batch was corrupt has gone back.
            known = set(self._unfinished)
            self._unfinished += [
                part.progress for part in chunk.parts if not part.progress.finished and part.progress not in known
            ]
            # Its parts are views of the whole frame, which must not stay while the next one comes in.
            del chunk

    # --- asking -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Sends a Fetch to every node that has none in flight and ranges ready to be asked for."""
        now = self._clock.now()
        by_node: dict[int, dict[TopicPartition, Asked]] = {}
        due = sorted(
            (progress for progress in self._unfinished if progress.not_before <= now),
            key=lambda progress: progress.turn,
        )
        # All at once: a partition without a leader delays no other one.
        lookup = self._cluster.leaders((each.topic_partition for each in due), deadline=self._leader_deadline())
        for progress in due:
            try:
                if progress.topic_partition in lookup.errors:
                    raise lookup.errors[progress.topic_partition]
                self._check_topic_id(progress)
            except (TransportError, BrokerError) as error:
                if isinstance(error, NoBrokerAvailableError) and not self._counters.n_responses:
                    raise  # the cluster has had its time: a wrong address is to be known within seconds
                self._failed(progress, error)
                continue
            leader = lookup.leaders[progress.topic_partition]
            # A follower serves until its time is up or the leader changes; then the leader is asked again (KIP-392).
            if leader != progress.leader or now >= progress.replica_until:
                progress.replica = -1
            node = progress.replica if progress.replica >= 0 else leader[0]
            if self._is_throttled(node, progress):
                continue
            if node not in self._in_flight:
                # Two ranges of one topic-partition take turns: a request names each partition once.
                by_node.setdefault(node, {}).setdefault(
                    progress.topic_partition, Asked(progress, progress.position, leader)
                )
        for node, asked in by_node.items():
            self._send_to(node, list(asked.values()))

    def _is_throttled(self, node: int, progress: RangeProgress) -> bool:
        """Whether a broker reads no request for now (KIP-219). To send one would wait for that, and hold up other brokers."""
        left_s = self._throttled_until.get(node, 0.0) - time.monotonic()
        allowed_s = self._moved_at + self._deadline_s - self._clock.now()
        if min(left_s, allowed_s) <= 0:
            return False
        progress.not_before = self._clock.now() + min(left_s, allowed_s)
        return True

    def _check_topic_id(self, progress: RangeProgress) -> None:
        """Raises TopicRecreatedError when the topic of this name is not the one that the range was planned on."""
        topic = progress.range.topic
        expected = progress.range.topic_id
        found = self._topic_ids.get(topic)
        if found is None:
            found = self._cluster.topic_id(topic)
            if found != expected != ZERO_UUID:
                # What is remembered here may be older than the range.
                self._cluster.invalidate(topic)
                found = self._cluster.topic_id(topic)
            self._topic_ids[topic] = found
        if found != expected and ZERO_UUID not in (found, expected):
            raise recreated_error(progress.range, progress.position, found)

    def _send_to(self, node: int, batch: list[Asked]) -> None:
        """Sends one Fetch over all of `batch`, in its order: the broker fills an answer in the order of the request."""
        topics: dict[str, FetchTopic] = {}
        by_id = True
        asked_by_place: dict[tuple[str | uuid.UUID, int], Asked] = {}
        max_bytes = self._decoder.max_bytes
        max_partition_bytes = min(max_bytes, self._max_partition_bytes)
        try:
            for asked in batch:
                progress = asked.progress
                topic_name, partition = progress.topic_partition
                topic_id = self._topic_ids[topic_name]
                by_id = by_id and topic_id != ZERO_UUID
                topic = topics.get(topic_name)
                if topic is None:
                    topic = topics[topic_name] = FetchTopic(topic=topic_name, topic_id=topic_id, partitions=[])
                # Truncation can only follow a change of leader. Sent always, the field would make answers depend on the
                # epoch history of logs that were upgraded or restored, where it may be missing.
                moved = progress.last_epoch >= 0 and asked.leader != progress.leader
                knows_epochs = moved and self._cluster.supports(node, FetchRequest, _LAST_EPOCH_VERSION)
                topic.partitions.append(
                    FetchPartition(
                        partition=partition,
                        current_leader_epoch=asked.leader[1],
                        fetch_offset=asked.position,
                        last_fetched_epoch=progress.last_epoch if knows_epochs else -1,
                        partition_max_bytes=progress.wanted_bytes(max_partition_bytes),
                    )
                )
                max_bytes = max(max_bytes, progress.min_bytes)
                asked_by_place[topic_name, partition] = asked_by_place[topic_id, partition] = asked
            request = FetchRequest(
                max_wait_ms=self._wait_ms(batch),
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=int(self._read_committed),
                session_id=0,
                session_epoch=-1,
                topics=list(topics.values()),
                rack_id=self._rack_id(batch),
            )
            pending = self._cluster.send(
                node, request, purpose=self._purpose, version_cap=None if by_id else _TOPIC_ID_VERSION - 1
            )
        except TransportError as error:
            self._lost(node, batch, error)
            return
        patience_s = (self._settings.request_timeout_ms + request.max_wait_ms) / 1000
        self._in_flight[node] = InFlight(pending, node, self._clock.now() + patience_s, batch, asked_by_place)

    def _wait_ms(self, batch: list[Asked]) -> int:
        """How long the broker may wait for records where it has none of those asked for."""
        return min(_MAX_WAIT_MS, self._settings.fetch_max_wait_ms)

    def _rack_id(self, batch: list[Asked]) -> str:
        """Our rack, for which a leader may name a follower; none while a range of the request is to be the leader's."""
        now = self._clock.now()
        return self._settings.client_rack if all(now >= asked.progress.leader_only_until for asked in batch) else ""

    def _leader_deadline(self) -> Deadline | None:
        """The cluster's own deadline at first; later a short one, so that one partition's election holds up no other."""
        return Deadline.after_ms(_LEADER_WAIT_MS) if self._counters.n_responses else None

    def _request_deadline(self) -> Deadline:
        return Deadline.after_ms(self._settings.request_timeout_ms)

    def _sleep(self) -> None:
        """Waits until the first range may be asked for again."""
        until = min(progress.not_before for progress in self._unfinished)
        time.sleep(max(0.0, until - self._clock.now()))

    # --- answers ----------------------------------------------------------------------------------------------------

    def _next_flight(self, deadline: Deadline | None = None) -> InFlight | None:
        """The request whose answer is there first, or comes no more; None when `deadline` passes before, or a range may be
        asked for again."""
        flights = sorted(self._in_flight.values(), key=lambda flight: flight.expires_at)
        for flight in flights:
            # Looked at first: a broker that says nothing must not be hidden by others that always have something.
            if self._clock.now() >= flight.expires_at and not flight.pending.arrived:
                return flight
        until = self._clock.deadline(flights[0].expires_at)
        if deadline is not None:
            until = until.at_most_ms(deadline.remaining_ms())
        retry_at = self._next_retry_at()
        if retry_at is not None:
            until = until.at_most_ms((retry_at - self._clock.now()) * 1000)
        first = first_to_arrive([flight.pending for flight in flights], until)
        return next(flight for flight in flights if flight.pending is first) if first.arrived else None

    def _next_retry_at(self) -> float | None:
        """When the first of the ranges that pause may be asked for again, on the read's clock; None if none pauses."""
        now = self._clock.now()
        return min((p.not_before for p in self._unfinished if p.not_before > now), default=None)

    def _take_answer(self, flight: InFlight) -> Chunk:
        """Moves the ranges of a request over what its answer holds."""
        # An answer that has begun to arrive has another request.timeout.ms to be read to its end.
        expires_at = self._clock.deadline(flight.expires_at)
        deadline = self._request_deadline() if flight.pending.arrived else expires_at
        node = flight.node
        del self._in_flight[node]
        chunk = Chunk(node)
        try:
            response = flight.pending.result(deadline)
            self._counters.n_responses += 1
            if response.error_code:
                raise broker_error(response.error_code, broker=node, api="Fetch", version=flight.pending.version)
        except (TransportError, ProtocolError, BrokerError) as error:
            self._lost(node, flight.asked, error)
            return chunk
        endpoints = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in response.node_endpoints}
        if response.throttle_time_ms > 0:
            self._throttled_until[node] = time.monotonic() + response.throttle_time_ms / 1000
        missing = {id(asked): asked.progress for asked in flight.asked}
        by_id = flight.pending.version >= _TOPIC_ID_VERSION
        for topic in response.responses:
            for data in topic.partitions:
                asked = flight.by_place.get((topic.topic_id if by_id else topic.topic, data.partition_index))
                if asked is None:
                    continue
                missing.pop(id(asked), None)
                # An answer to a position that has been given up (a corrupt batch is being fetched anew) is void.
                if asked.progress.position == asked.position:
                    self._accept(asked, data, flight, chunk, endpoints)
        for progress in missing.values():
            self._pause(progress)  # a throttled broker leaves all out; none may be asked again at once
        if self._clock.now() - self._moved_at > self._deadline_s:
            self._give_up(flight.asked[0].progress, throttled_error(node) if response.throttle_time_ms else None)
        return chunk

    def _accept(
        self,
        asked: Asked,
        data: PartitionData,
        flight: InFlight,
        chunk: Chunk,
        endpoints: Mapping[int, tuple[str, int]],
    ) -> None:
        """Takes one partition's part of an answer: records, a redirection, or an error."""
        progress = asked.progress
        if data.error_code:
            self._refused(asked, data, flight, endpoints)
            return
        if data.diverging_epoch.end_offset >= 0:
            raise truncated_error(progress.range, progress.position, data, node=flight.node)
        if progress.leader != asked.leader:
            progress.leader = asked.leader
            progress.end_missing_since = None  # a new leader may trail for as long as the one before
        redirected = data.preferred_read_replica >= 0 and data.preferred_read_replica != flight.node
        if redirected and self._clock.now() >= progress.leader_only_until:
            # KIP-392: the leader answers without records and names a follower in our rack.
            logger.debug(
                "%s: broker %d names follower %d", progress.topic_partition, flight.node, data.preferred_read_replica
            )
            progress.replica = data.preferred_read_replica
            serves_s = max(self._settings.metadata_max_age_ms / 1000, _FOLLOWER_WAIT_S)
            progress.replica_until = self._clock.now() + serves_s
        elif data.records:
            self._take(progress, memoryview(data.records), data, chunk)
        else:
            self._check_end(asked, data, flight)

    def _take(self, progress: RangeProgress, records: memoryview, data: PartitionData, chunk: Chunk) -> None:
        """Moves a range over the batches of `records` and puts them up for decoding."""
        start = progress.position
        walked = walk_batches(records, start, progress.range.end_offset)
        if walked.needed_bytes:
            self._grow(progress, walked.needed_bytes, chunk.node)
            return
        progress.advance(walked)
        self._turn += 1
        progress.turn = self._turn
        self._moved_at = self._clock.now()
        if walked.n_bytes:
            aborted = (
                [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions or ()]
                if self._read_committed
                else []
            )
            slice_ = RecordSlice(
                records=records[: walked.n_bytes],
                start_offset=start,
                end_offset=progress.range.end_offset,
                aborted=aborted,
                batch_starts=walked.batch_starts,
            )
            chunk.parts.append(ChunkPart(progress, slice_, walked.next_offset, walked.leader_epoch))

    def _grow(self, progress: RangeProgress, needed_bytes: int, node: int) -> None:
        """Asks for more next time, a batch did not fit; Kafka itself never cuts the first one short (KIP-74)."""
        if needed_bytes > MAX_BATCH_BYTES:
            raise oversize_error(
                progress.range, progress.position, n_bytes=needed_bytes, max_bytes=MAX_BATCH_BYTES, node=node
            )
        if progress.min_bytes >= needed_bytes:  # what was asked for was not given
            self._pause(progress)
            return
        progress.min_bytes = needed_bytes
        self._counters.n_retries += 1

    def _check_end(self, asked: Asked, data: PartitionData, flight: InFlight) -> None:
        """Judges an answer without records: the end is not there yet, nothing is given, or others took the room."""
        progress = asked.progress
        bound = data.last_stable_offset if self._read_committed else data.high_watermark
        end_is_missing = 0 <= bound <= progress.position
        if not end_is_missing and flight.asked[0] is not asked:
            return
        now = self._clock.now()
        progress.not_before = now + LEAST_PAUSE_S
        if progress.stalled_since is None:
            progress.stalled_since = now
        if flight.node != asked.leader[0]:
            # What a follower does not have, its leader may.
            if now - progress.stalled_since > _FOLLOWER_WAIT_S:
                self._leave_follower(progress, "has nothing to give")
                self._pause(progress)
            return
        if not end_is_missing:
            progress.end_missing_since = None
        elif progress.end_missing_since is None:
            progress.end_missing_since = now
        elif now - progress.end_missing_since > self._end_wait_s:
            tp = progress.topic_partition
            end = log_end_offset(self._cluster, tp, asked.leader[1], self._request_deadline())
            if self._cluster.leader(tp) != asked.leader:
                self._pause(progress)  # the new one has the whole wait to come level
                return
            raise log_end_error(
                progress.range,
                progress.position,
                data,
                read_committed=self._read_committed,
                node=flight.node,
                log_end_offset=end,
                waited_s=now - progress.end_missing_since,
                cluster=self._cluster,
                deadline=self._request_deadline(),
            )
        if now - progress.stalled_since > self._deadline_s:
            self._give_up(progress, None)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _refused(
        self, asked: Asked, data: PartitionData, flight: InFlight, endpoints: Mapping[int, tuple[str, int]]
    ) -> None:
        """Acts on one partition's error code: goes elsewhere, tries again later, or raises."""
        progress = asked.progress
        tp = progress.topic_partition
        error = broker_error(
            data.error_code,
            topic=tp.topic,
            partition=tp.partition,
            offset=progress.position,
            broker=flight.node,
            api="Fetch",
            version=flight.pending.version,
            detail=f"The range is {progress.range}.",
        )
        if flight.node != asked.leader[0]:
            # Whatever a follower says (it may trail, or have a shorter log), the leader has the last word.
            self._leave_follower(progress, f"answered {error.name}")
            self._pause(progress)
            return
        if isinstance(error, OffsetOutOfRangeError):
            raise with_log_bounds(error, self._cluster, self._request_deadline())
        if isinstance(error, UnknownTopicError) or error.name == "INCONSISTENT_TOPIC_ID":
            self._topic_ids.pop(tp.topic, None)  # looked up anew, and compared, before the next try
        # The broker cannot read its own log (fault or bit rot): once more, as with a batch that is corrupt on arrival.
        if error.name == "CORRUPT_MESSAGE" and progress.failures:
            raise error
        if error.info.action is Action.REFRESH_METADATA:
            hint = data.current_leader
            if self._cluster.redirect(
                tp,
                flight.node,
                epoch=asked.leader[1],
                hint=(hint.leader_id, hint.leader_epoch),
                endpoint=endpoints.get(hint.leader_id),
            ):
                return
        self._failed(progress, error)

    def _lost(self, node: int, batch: list[Asked], error: WireError) -> None:
        """A request came to nothing: asks who leads now, and tries again after a pause."""
        logger.debug("broker %d: Fetch came to nothing: %s", node, error)
        for asked in batch:
            if node != asked.leader[0]:
                self._leave_follower(asked.progress, "is out of reach")
            self._cluster.invalidate(asked.progress.topic_partition)
            self._failed(asked.progress, error)

    def _leave_follower(self, progress: RangeProgress, why: str) -> None:
        """Goes back to the leader, and for some time tells it no rack: it would name the same follower again."""
        logger.debug("%s: follower %d %s, back to the leader", progress.topic_partition, progress.replica, why)
        progress.replica = -1
        progress.leader_only_until = self._clock.now() + _LEADER_ONLY_S

    def _failed(self, progress: RangeProgress, error: WireError) -> None:
        """Puts a range off for a while, or raises when `error` leaves no hope or its time is over."""
        # An answer that breaks the protocol has ended its connection; another one may do better, once.
        if not error.retriable and not (isinstance(error, ProtocolError) and not progress.failures):
            if error.topic is None:  # said by a connection, which does not know what was asked for
                error.topic, error.partition, error.offset = *progress.topic_partition, progress.position
            raise error
        now = self._clock.now()
        if progress.stalled_since is None:
            progress.stalled_since = now
        if now - progress.stalled_since > self._deadline_s or self._grace_is_over(progress, error, now):
            self._give_up(progress, error)
        self._pause(progress)

    def _grace_is_over(self, progress: RangeProgress, error: WireError, now: float) -> bool:
        """Whether an error has been met for longer than its code may last; counted from the first time, for a broker that
        was away for longer may say it once when it is back."""
        grace_ms = error_info(error.code).grace_ms if isinstance(error, BrokerError) else None
        if grace_ms is None or not isinstance(error, BrokerError):
            return False
        return now - progress.first_met.setdefault(error.code, now) > grace_ms / 1000

    def _pause(self, progress: RangeProgress) -> None:
        progress.failures += 1
        self._counters.n_retries += 1
        progress.not_before = self._clock.now() + self._backoff.delay_ms(progress.failures) / 1000

    def _give_up(self, progress: RangeProgress, cause: WireError | None) -> NoReturn:
        if isinstance(cause, UnknownTopicError):
            raise cause
        since = self._moved_at if progress.stalled_since is None else progress.stalled_since
        raise stalled_error(progress.range, progress.position, self._clock.now() - since, cause) from cause
