"""Reads bounded ranges of topic-partitions into columns, as fast as their leaders answer.

Owns the Fetch requests of reads (https://kafka.apache.org/protocol#The_Messages_Fetch): which partitions are in a request,
how much is asked for, and which response comes next. What a response means is
:mod:`~pykafka_wire.wire.fetch.response_handler`'s to decide; sockets are :mod:`~pykafka_wire.wire.cluster.cluster`'s, and the
inside of a batch :mod:`~pykafka_wire.wire.records.decode`'s.

How a read goes: one Fetch per leader over all of its unfinished ranges; when its response is there, batch headers give
the next positions, the next Fetch leaves, and only then is the response decoded, so that broker and network work
meanwhile. The responses of all leaders are under way at the same time. No offsets are listed, and nothing is asked for
beyond a range's end, so no request waits in a long poll. Fetch sessions are not used (session id 0, epoch -1): a
short-lived reader would only fill the broker's session cache (KIP-227).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pykafka_wire.wire.cluster.cluster import BrokerReadiness, Cluster, Deadline
from pykafka_wire.wire.connection.connection import first_to_arrive
from pykafka_wire.wire.errors import BrokerError, NoBrokerAvailableError, ProtocolError, TransportError, broker_error
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.fetch.fetch_errors import recreated_error
from pykafka_wire.wire.fetch.fetched_records import Chunk, ChunkDecoder, FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.range_progress import RangeProgress, scan_batches
from pykafka_wire.wire.fetch.response_handler import TOPIC_ID_VERSION, RequestedPartition, ResponseHandler, SentFetch
from pykafka_wire.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

#: Most bytes of one response and of one partition in it. A response is received as a whole, so this is also the unit of
#: memory: about two responses per leader are held. A partition of large records may fill a response
#: (:attr:`ChunkDecoder.has_large_records`).
DEFAULT_MAX_BYTES: Final = 8 * 1024 * 1024
DEFAULT_MAX_PARTITION_BYTES: Final = 4 * 1024 * 1024
#: How long a range's end may stay above what the leader serves. A new leader's high watermark does not rise until a dead
#: follower has left the in-sync replicas. Leaders look for such followers every half of replica.lag.time.max.ms (30 s by
#: default), so it takes up to 1.5 times that, 45 s, and the controller has to agree.
DEFAULT_END_WAIT_MS: Final = 60_000


#: A partition with nothing to give holds its response back for this long, and so that of others: they share a request
#: only with partitions in the same plight, since any byte ends the wait (fetch.min.bytes is 1).
_MAX_WAIT_MS: Final = 100
#: How long to wait for a response about leaders while partitions whose leaders are known could be read.
_LEADER_WAIT_MS: Final = 1_000
#: A connection of its own: metadata and commits must not wait behind a response of megabytes.
_PURPOSE: Final = "fetch"
#: The first version with last_fetched_epoch (KIP-595).
_LAST_EPOCH_VERSION: Final = 12
#: Four batches of Java's default batch.size are a large enough sample; the first batch is complete whatever its size (KIP-74).
_SAMPLE_BYTES: Final = 65_536
#: Where a range holds nothing yet, its leader is not to wait for it.
_SAMPLE_WAIT_MS: Final = 10
_NO_END: Final = 2**63 - 1


def fetch_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    *,
    columns: Columns,
    isolation_level: str | None = None,
    max_bytes: int | None = None,
    max_partition_bytes: int | None = None,
    deadline_ms: int = 120_000,
    end_wait_ms: int = DEFAULT_END_WAIT_MS,
    counters: FetchCounters | None = None,
    cache: BatchCache | None = None,
) -> Iterator[FetchedRecords]:
    """The records of `ranges` in chunks, each one Fetch response or a piece of it; ends when every position has reached its
    range's end.

    Gaps (compaction, control batches, aborted transactions) are stepped over: a range may hold fewer records than
    offsets. The columns are safe to keep; those of large values keep their response in memory: about two per leader.

    Args:
        isolation_level: ``read_committed`` or ``read_uncommitted``; the settings' own when None. With
            ``read_committed`` the last stable offset bounds what can be read, so a range should end there.
        max_bytes, max_partition_bytes: bounds of a response and of one partition in it; the settings' own, else 8 and 4
            MiB, and 8 for a partition of large records.
        deadline_ms: a range that makes no progress for so long fails; time spent by the caller between chunks is not
            counted.
        end_wait_ms: the same while the range's end lies above the high watermark (or the last stable offset).
        counters: is kept up to date while the read goes on.
        cache: what reads of this process leave for later ones, and this one takes.

    Raises:
        OffsetOutOfRangeError: a position is not in the log; holds the log's bounds.
        LogEndError: the end stayed above what the leader serves; its ``log_end_offset`` says whether the records exist.
        LogTruncatedError: records before a position vanished after a change of leader.
        TopicRecreatedError, UnknownTopicError: the topic is another one, or gone.
        CorruptBatchError: a batch was bad twice in a row.
        RecordTooLargeError: one batch is larger than :data:`~pykafka_wire.wire.fetch.response_handler.MAX_BATCH_BYTES`.
        DeadlineExceededError: no progress; chained to the last cause.
        BrokerError: the broker refused, without hope of better.
    """
    settings = cluster.settings
    handler = ResponseHandler(
        cluster,
        read_committed=(isolation_level or settings.isolation_level) == "read_committed",
        deadline_ms=deadline_ms,
        end_wait_ms=min(end_wait_ms, deadline_ms),
        counters=counters if counters is not None else FetchCounters(),
        cache=cache,
    )
    return RangeRead(
        cluster,
        ranges,
        columns=columns,
        max_bytes=max_bytes or settings.fetch_max_bytes or DEFAULT_MAX_BYTES,
        max_partition_bytes=max_partition_bytes or settings.max_partition_fetch_bytes,
        handler=handler,
        cache=cache,
    ).run()


class RangeRead:
    """The state of one call of :func:`fetch_ranges`; a consumer's read without end builds on it."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Sequence[OffsetRange],
        *,
        columns: Columns,
        max_bytes: int,
        max_partition_bytes: int | None,
        handler: ResponseHandler,
        cache: BatchCache | None = None,
        purpose: str = _PURPOSE,
    ) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._purpose = purpose
        self._opener = BrokerReadiness(cluster, purpose)
        self._handler = handler
        self._cache = cache
        self._clock = handler.clock
        self._counters = handler.counters
        self._decoder = ChunkDecoder(
            ranges,
            columns,
            read_committed=handler.read_committed,
            check_crc=cluster.settings.check_crcs,
            max_bytes=max_bytes,
            counters=handler.counters,
        )
        self._max_partition_bytes = max_partition_bytes
        self._unfinished = [
            progress
            for progress in (RangeProgress(index, range_) for index, range_ in enumerate(ranges))
            if not progress.finished
        ]
        #: By node id: a broker gets its next request when it has answered the one before.
        self._in_flight: dict[int, SentFetch] = {}
        #: Node id -> when it reads requests again, on the monotonic clock: throttling goes on while the caller works.
        self._throttled_until: dict[int, float] = {}

    def run(self) -> Iterator[FetchedRecords]:
        cached = self._take_cached()
        if cached.parts:
            yield from self._hand_out(cached)
        del cached
        while self._unfinished:
            self._send()
            if not self._in_flight:
                self._sleep()
                continue
            answered = self._next_response()
            if answered is None:
                continue
            chunk = self._receive(answered)
            del answered  # its response is a view of the whole frame, as the chunk's parts are
            yield from self._hand_out(chunk)

    def _hand_out(self, chunk: Chunk) -> Iterator[FetchedRecords]:
        """The records of a chunk; what comes after them is asked for before they are decoded."""
        self._unfinished = [progress for progress in self._unfinished if not progress.finished]
        self._send()
        ranges = [part.progress for part in chunk.parts]
        for fetched in self._decoder.decode(chunk):
            self._clock.pause()
            yield fetched
            self._clock.resume()
            del fetched
        # A range whose batch was corrupt is to be fetched again.
        known = set(self._unfinished)
        self._unfinished += [each for each in ranges if not each.finished and each not in known]

    def _take_cached(self) -> Chunk:
        """What earlier reads have left of the ranges, whose positions move over it; and how much to ask for, as far as that is
        known from them."""
        chunk = Chunk(node=-1)
        if self._cache is None:
            return chunk
        for progress in self._unfinished:
            progress.batch_size = self._cache.size_of(progress.topic_partition)
            found = self._cache.take(progress.range, read_committed=self._handler.read_committed)
            if found is not None:
                position = progress.position
                progress.advance(found.scan)
                progress.leader = found.leader
                chunk.add(progress, found.records, found.scan, position)
                if found.is_next:
                    progress.read_ahead_bytes = self._cache.read_ahead_bytes(len(self._unfinished))
        self._unfinished = left = [progress for progress in self._unfinished if not progress.finished]
        if left and all(progress.batch_size is not None for progress in left):
            self._decoder.fit(sum(progress.wanted_bytes(DEFAULT_MAX_BYTES) for progress in left))
        return chunk

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Sends a Fetch to every node that has none in flight and ranges ready to be asked for."""
        now = self._clock.now()
        by_node: dict[int, dict[TopicPartition, RequestedPartition]] = {}
        due = sorted(
            (progress for progress in self._unfinished if progress.not_before <= now),
            key=lambda progress: progress.last_served,
        )
        # All at once: a partition without a leader delays no other one.
        lookup = self._cluster.metadata.leaders(
            (each.topic_partition for each in due), deadline=self._leader_deadline()
        )
        for progress in due:
            try:
                if progress.topic_partition in lookup.errors:
                    raise lookup.errors[progress.topic_partition]
                self._check_topic_id(progress)
            except (TransportError, BrokerError) as error:
                if isinstance(error, NoBrokerAvailableError) and not self._counters.n_responses:
                    raise  # the cluster has had its time: a wrong address is to be known within seconds
                self._handler.retry_later(progress, error)
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
                    progress.topic_partition, RequestedPartition(progress, progress.position, leader)
                )
        # Brokers that are connected first: to wait for a connection must not hold them up.
        for node in sorted(by_node, key=lambda node: not self._cluster.is_connected(node, purpose=self._purpose)):
            self._send_to(node, list(by_node[node].values()))

    def _is_throttled(self, node: int, progress: RangeProgress) -> bool:
        """Whether a broker reads no request for now (KIP-219). To send one would wait for that, and hold up other brokers."""
        left_s = self._throttled_until.get(node, 0.0) - time.monotonic()
        pause_s = min(left_s, self._handler.time_left_s)
        if pause_s <= 0:
            return False
        progress.not_before = self._clock.now() + pause_s
        return True

    def _check_topic_id(self, progress: RangeProgress) -> None:
        """Raises TopicRecreatedError when the topic of this name is not the one that the range was planned on."""
        topic = progress.range.topic
        expected = progress.range.topic_id
        found = self._handler.topic_ids.get(topic)
        if found is None:
            found = self._cluster.metadata.topic_id(topic)
            if found != expected != ZERO_UUID:
                # What the cluster remembers may be older than the range.
                self._cluster.metadata.invalidate(topic)
                found = self._cluster.metadata.topic_id(topic)
            self._handler.topic_ids[topic] = found
        if found != expected and ZERO_UUID not in (found, expected):
            raise recreated_error(progress.range, progress.position, found)

    def _send_to(self, node: int, batch: list[RequestedPartition]) -> None:
        """Sends one Fetch over all of `batch`, in its order: the broker fills a response in the order of the request."""
        try:
            if not self._opener.ready(node):
                self._handler.wait_for_connection(node, batch)
                return
            request, by_partition = self._request(node, batch)
            goes_by_id = all(topic.topic_id != ZERO_UUID for topic in request.topics)
            pending = self._cluster.send(
                node, request, purpose=self._purpose, version_cap=None if goes_by_id else TOPIC_ID_VERSION - 1
            )
        except TransportError as error:
            self._handler.request_failed(node, batch, error)
            return
        expires_at = self._clock.now() + (self._settings.request_timeout_ms + request.max_wait_ms) / 1000
        self._in_flight[node] = SentFetch(pending, node, expires_at, batch, by_partition)

    def _request(
        self, node: int, batch: list[RequestedPartition]
    ) -> tuple[FetchRequest, dict[tuple[str | uuid.UUID, int], RequestedPartition]]:
        """A Fetch over `batch`, and what it asks for by (topic name or id, partition)."""
        topics: dict[str, FetchTopic] = {}
        by_partition: dict[tuple[str | uuid.UUID, int], RequestedPartition] = {}
        max_bytes = self._decoder.max_bytes
        most = max_bytes if self._decoder.has_large_records else DEFAULT_MAX_PARTITION_BYTES
        max_partition_bytes = min(max_bytes, self._max_partition_bytes or most)
        for requested in batch:
            progress = requested.progress
            topic_name, partition = progress.topic_partition
            topic_id = self._handler.topic_ids[topic_name]
            topic = topics.get(topic_name)
            if topic is None:
                topic = topics[topic_name] = FetchTopic(topic=topic_name, topic_id=topic_id, partitions=[])
            # Truncation can only follow a change of leader. Sent always, the field would make responses depend on the
            # epoch history of logs that were upgraded or restored, where it may be missing.
            moved = progress.last_epoch >= 0 and requested.leader != progress.leader
            knows_epochs = moved and self._cluster.supports(
                node, FetchRequest, _LAST_EPOCH_VERSION, purpose=self._purpose
            )
            topic.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=requested.leader[1],
                    fetch_offset=requested.position,
                    last_fetched_epoch=progress.last_epoch if knows_epochs else -1,
                    partition_max_bytes=progress.wanted_bytes(max_partition_bytes),
                )
            )
            max_bytes = max(max_bytes, progress.min_bytes)
            by_partition[topic_name, partition] = by_partition[topic_id, partition] = requested
        request = FetchRequest(
            max_wait_ms=self._wait_ms(batch),
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(self._handler.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
            rack_id=self._rack_id(batch),
        )
        return request, by_partition

    def _wait_ms(self, batch: list[RequestedPartition]) -> int:
        """How long the broker may wait for records where it has none of those asked for."""
        return min(_MAX_WAIT_MS, self._settings.fetch_max_wait_ms)

    def _rack_id(self, batch: list[RequestedPartition]) -> str:
        """Our rack, for which a leader may name a follower; none while a range of the request is to be the leader's."""
        now = self._clock.now()
        return (
            self._settings.client_rack
            if all(now >= requested.progress.leader_only_until for requested in batch)
            else ""
        )

    def _leader_deadline(self) -> Deadline | None:
        """The cluster's own deadline at first; later a short one, so that one partition's election holds up no other."""
        return Deadline.after_ms(_LEADER_WAIT_MS) if self._counters.n_responses else None

    def _sleep(self) -> None:
        """Waits until the first range may be asked for again."""
        until = min(progress.not_before for progress in self._unfinished)
        time.sleep(max(0.0, until - self._clock.now()))

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _next_response(self, deadline: Deadline | None = None) -> SentFetch | None:
        """The request whose response is complete first, or which has expired; None when `deadline` passes before, or a range may
        be asked for again."""
        while True:
            in_flight = sorted(self._in_flight.values(), key=lambda sent: sent.expires_at)
            for sent in in_flight:
                # Checked first: a broker that does not answer must not be hidden by others that always do.
                if self._clock.now() >= sent.expires_at and (sent.has_begun or not sent.pending.arrived):
                    return sent
            until = self._clock.deadline(in_flight[0].expires_at)
            if deadline is not None:
                until = until.at_most_ms(deadline.remaining_ms())
            retry_at = self._next_retry_at()
            if retry_at is not None:
                until = until.at_most_ms((retry_at - self._clock.now()) * 1000)
            first = first_to_arrive([sent.pending for sent in in_flight], until)
            if not first.arrived:
                return None
            sent = next(sent for sent in in_flight if sent.pending is first)
            # A broker may stop in the middle of a response, for which the others must not wait.
            if sent.pending.read_arrived():
                return sent
            if not sent.has_begun:
                self._in_flight[sent.node] = sent.begun(self._clock.now() + self._settings.request_timeout_ms / 1000)
            if until.expired:
                return None

    def _next_retry_at(self) -> float | None:
        """When the first of the ranges that pause may be asked for again, on the read's clock; None if none pauses."""
        now = self._clock.now()
        return min((p.not_before for p in self._unfinished if p.not_before > now), default=None)

    def _receive(self, sent: SentFetch) -> Chunk:
        """Moves the ranges of a request over what its response holds."""
        node = sent.node
        del self._in_flight[node]
        try:
            response = sent.pending.result(self._clock.deadline(sent.expires_at))
            self._counters.n_responses += 1
            if response.error_code:
                raise broker_error(response.error_code, broker=node, api="Fetch", version=sent.pending.version)
        except (TransportError, ProtocolError, BrokerError) as error:
            self._handler.request_failed(node, sent.requested, error)
            return Chunk(node)
        if response.throttle_time_ms > 0:
            self._throttled_until[node] = time.monotonic() + response.throttle_time_ms / 1000
        return self._handler.handle(sent, response)


class Sample(NamedTuple):
    """Size of some whole record batches, and the width of the offsets that they cover."""

    n_bytes: int
    n_offsets: int


def sample_batches(
    cluster: Cluster, ranges: Sequence[OffsetRange], *, deadline: Deadline | None = None
) -> dict[str, Sample]:
    """By topic, the size of the first batches of `ranges`, of which each topic should have one; all leaders are asked at
    the same time. A topic that gave no whole batch is left out.

    Raises:
        WireError: as :meth:`Cluster.by_leader`.
    """
    starts = {range_.topic_partition: range_.start_offset for range_ in ranges if range_.n_offsets}
    ids = {tp.topic: cluster.metadata.topic_id(tp.topic) for tp in starts}
    names = {topic_id: topic for topic, topic_id in ids.items()}

    def build(partitions: Sequence[TopicPartition]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, FetchTopic(topic=tp.topic, topic_id=ids[tp.topic], partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=cluster.metadata.leader(tp)[1],
                    fetch_offset=starts[tp],
                    partition_max_bytes=_SAMPLE_BYTES,
                )
            )
        return FetchRequest(
            max_wait_ms=_SAMPLE_WAIT_MS,
            min_bytes=1,
            max_bytes=_SAMPLE_BYTES * len(partitions),
            session_epoch=-1,
            topics=list(topics.values()),
        )

    def results(response: FetchResponse) -> Iterable[tuple[TopicPartition, int, Sample]]:
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                yield tp, data.error_code, _measure(data.records)

    by_id = ZERO_UUID not in names
    samples = cluster.by_leader(
        starts, build, results, deadline=deadline, version_cap=None if by_id else TOPIC_ID_VERSION - 1
    )
    return {tp.topic: sample for tp, sample in samples.items() if sample.n_offsets > 0}


def _measure(records: memoryview | None) -> Sample:
    if not records or len(records) < 8:
        return Sample(0, 0)
    first_offset = int.from_bytes(records[:8], "big", signed=True)
    scan = scan_batches(memoryview(records), first_offset, _NO_END)
    return Sample(scan.n_bytes, scan.next_offset - first_offset)
