"""Reads bounded ranges of topic-partitions into columns, as fast as their leaders respond.

Owns Fetch requests (https://kafka.apache.org/protocol#The_Messages_Fetch): which partitions are in one, how much is asked for, and
which response comes next. What a response means is decided in :mod:`~pykafka_wire.wire.fetch.response_handler`, positions are kept
in :mod:`~pykafka_wire.wire.fetch.range_progress`, records are decoded by :mod:`~pykafka_wire.wire.fetch.fetched_records`; leaders
and connections are :mod:`~pykafka_wire.wire.cluster.client`'s. A retry is followed in three files: `_receive` here gets the
response, `FetchResponseHandler.on_response` decides, and `_act` here changes the range's progress.

How a read goes: one Fetch per leader over all of its unfinished ranges; when its response is there, batch headers give
the next positions, the next Fetch leaves, and only then is the response decoded, so that broker and network work
meanwhile. The responses of all leaders are under way at the same time. No offsets are listed, and nothing is asked for
beyond a range's end, so no request waits in a long poll. Fetch sessions are not used (session id 0, epoch -1): a
short-lived reader would only fill the broker's session cache (KIP-227).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets, offsets_for_leader_epoch
from pykafka_wire.wire.cluster.describe import open_transactions
from pykafka_wire.wire.cluster.leader_requests import LeaderRequests, SentRequest
from pykafka_wire.wire.cluster.rack import rack_of
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    OffsetOutOfRangeError,
    ProtocolError,
    TopicRecreatedError,
    TransportError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.exhaustive_match import assert_never
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.fetch.fetched_records import Chunk, ChunkDecoder, FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.preferred_read_replica import FOLLOWER_WAIT_S
from pykafka_wire.wire.fetch.range_progress import RangeProgress, RequestedPartition
from pykafka_wire.wire.fetch.response_handler import (
    AskedLeader,
    EndMissing,
    Enlarged,
    FailedRange,
    FetchOutcome,
    FetchResponseHandler,
    LeftFollower,
    ReceivedRecords,
    Redirected,
    RetriedRange,
    Skipped,
    Validated,
    Waiting,
    log_end_error,
    no_progress,
    throttled_error,
)
from pykafka_wire.wire.protocol.messages.fetch import (
    TOPIC_ID_VERSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykafka_wire.wire.protocol.messages.leader_hints import NodeEndpoint
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition, group_by_topic, topic_id_text

logger = logging.getLogger(__name__)

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
#: only with partitions that have nothing either, since any byte ends the wait (fetch.min.bytes is 1).
_MAX_WAIT_MS: Final = 100
#: A connection of its own: metadata and commits must not wait behind a response of megabytes.
_PURPOSE: Final = "fetch"
#: Before a partition that had nothing to give is asked again. Brokers hold such a response back anyway; this keeps one that
#: does not from being asked without end.
_MIN_PAUSE_S: Final = 0.005
#: The first version with last_fetched_epoch (KIP-595).
_LAST_EPOCH_VERSION: Final = 12


def fetch_ranges(  # noqa: PLR0913
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
    """Yield the records of `ranges` in chunks, each one Fetch response or a piece of it; ends when every position has reached its
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
        BrokerError: the broker refused it, and another try would not help.
    """
    return RangeRead(
        cluster,
        ranges,
        columns=columns,
        isolation_level=isolation_level,
        max_bytes=max_bytes,
        max_partition_bytes=max_partition_bytes,
        deadline_ms=deadline_ms,
        end_wait_ms=min(end_wait_ms, deadline_ms),
        counters=counters,
        cache=cache,
    ).run()


@dataclass(slots=True, eq=False, kw_only=True)
class SentFetch(SentRequest[FetchResponse]):
    """A Fetch without a response yet.

    Attributes:
        by_partition: finds what was requested by (topic name or id, partition).
    """

    requested: Sequence[RequestedPartition]
    by_partition: Mapping[tuple[str | uuid.UUID, int], RequestedPartition]

    def partition_responses(self, response: FetchResponse) -> Iterator[tuple[RequestedPartition, PartitionData]]:
        """Yield what was requested that a response is about, with what it says; nothing of what was not asked for."""
        by_id = self.future.version >= TOPIC_ID_VERSION
        for topic in response.responses:
            for data in topic.partitions:
                requested = self.by_partition.get((topic.topic_id if by_id else topic.topic, data.partition_index))
                if requested is not None:
                    yield requested, data


class RangeRead:
    """The state of one call of :func:`fetch_ranges`, or of a read without an end (``end_wait_ms`` is None), which
    :mod:`~pykafka_wire.wire.fetch.continuous_fetch` has.

    Attributes:
        clock: the time that the read has worked; it does not run while the caller works between chunks.
        decoder: decodes what :meth:`step` brings.
        unfinished: the ranges that have not reached their end.
    """

    def __init__(  # noqa: PLR0913
        self,
        cluster: Cluster,
        ranges: Sequence[OffsetRange],
        *,
        columns: Columns,
        deadline_ms: int,
        end_wait_ms: int | None,
        isolation_level: str | None = None,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
        counters: FetchCounters | None = None,
        cache: BatchCache | None = None,
        purpose: str = _PURPOSE,
    ) -> None:
        self._cluster = cluster
        self._settings = settings = cluster.settings
        self._purpose = purpose
        #: A broker gets its next request when it has responded to the one before. Where a read without an end begins was looked up.
        self._requests: LeaderRequests[SentFetch] = LeaderRequests(
            cluster, purpose, response_s=settings.request_timeout_ms / 1000, knows_brokers=end_wait_ms is None
        )
        self.clock = self._requests.clock
        read_committed = (isolation_level or settings.isolation_level) == "read_committed"
        self._handler = FetchResponseHandler(
            read_committed=read_committed,
            deadline_s=deadline_ms / 1000,
            end_wait_s=None if end_wait_ms is None else end_wait_ms / 1000,
        )
        self._cache = cache
        self._counters = counters if counters is not None else FetchCounters()
        self._max_partition_bytes = max_partition_bytes or settings.max_partition_fetch_bytes
        #: Found once, with the first request: a function of the user's may take its time.
        self._rack: str | None = None
        #: The id of each topic that was checked, without those that a response has contradicted since.
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._n_served = 0
        #: When any range moved last.
        self._moved_at = self.clock.now()
        self.decoder = ChunkDecoder(
            ranges,
            columns,
            read_committed=read_committed,
            check_crc=settings.check_crcs,
            max_bytes=max_bytes or settings.fetch_max_bytes or DEFAULT_MAX_BYTES,
            counters=self._counters,
        )
        self.unfinished = [
            progress
            for progress in (RangeProgress(index, range_) for index, range_ in enumerate(ranges))
            if not progress.finished
        ]

    def run(self) -> Iterator[FetchedRecords]:
        self._moved_at = self.clock.now()
        cached = self._take_cached()
        if cached.parts:
            yield from self._hand_out(cached)
        del cached
        while self.unfinished:
            # Whatever refers to a chunk refers to its whole response, which must not stay while the next one comes in.
            yield from self._hand_out(self.step())

    def step(self, deadline: Deadline | None = None) -> Chunk:
        """Ask for what may be asked for, and wait for one response, for the end of a pause, or until `deadline`. The ranges have
        moved over what it returns, which the caller decodes."""
        asked = self.send()
        # The longest wait while all brokers that are to be asked are held up.
        pauses = [progress.retries.not_before for progress in self.unfinished]
        pauses.append(self._moved_at + self._handler.deadline_s)
        sent = self._requests.next_response(pauses, deadline)
        if sent is not None:
            return self._receive(sent)
        if not self._requests:
            for node in self._requests.held_up:
                self._check_progress(node, next(iter(asked[node].values())).progress)
        return Chunk(node=-1)

    def _hand_out(self, chunk: Chunk) -> Iterator[FetchedRecords]:
        """Yield the records of a chunk; what comes after them is asked for before they are decoded."""
        self.unfinished = [progress for progress in self.unfinished if not progress.finished]
        if not chunk.parts:
            return
        self.send()
        ranges = [part.progress for part in chunk.parts]
        for fetched in self.decoder.decode(chunk):
            self.clock.pause()
            yield fetched
            self.clock.resume()
            del fetched
        # A range whose batch was corrupt is to be fetched again.
        known = set(self.unfinished)
        self.unfinished += [progress for progress in ranges if not progress.finished and progress not in known]

    def _take_cached(self) -> Chunk:
        """Return what earlier reads have left of the ranges, whose positions move over it; and how much to ask for, as far as
        that is known from them.
        """
        chunk = Chunk(node=-1)
        if self._cache is None:
            return chunk
        for progress in self.unfinished:
            progress.size.batch_size = self._cache.size_of(progress.topic_partition)
            cached = self._cache.take(progress.range, read_committed=self._handler.read_committed)
            if cached is not None:
                position = progress.position
                progress.advance(cached.scan)
                progress.serve_from(cached.leader)
                chunk.add(progress, cached.records, cached.scan, position)
                if cached.is_next:
                    progress.size.read_ahead_bytes = self._cache.read_ahead_bytes(len(self.unfinished))
        self.unfinished = unfinished = [progress for progress in self.unfinished if not progress.finished]
        if unfinished and all(progress.size.batch_size is not None for progress in unfinished):
            self.decoder.fit(sum(progress.wanted_bytes(DEFAULT_MAX_BYTES) for progress in unfinished))
        return chunk

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self) -> Mapping[int, Mapping[TopicPartition, RequestedPartition]]:
        """Send a Fetch to every node that has none in flight and ranges ready to be asked for. Return these ranges by node."""
        now = self._requests.start_round()
        by_node: dict[int, dict[TopicPartition, RequestedPartition]] = {}
        due = sorted(
            (progress for progress in self.unfinished if progress.retries.not_before <= now),
            key=lambda progress: progress.last_served,
        )
        lookup = self._requests.find_leaders([progress.topic_partition for progress in due])
        for progress in due:
            try:
                if progress.topic_partition in lookup.errors:
                    raise lookup.errors[progress.topic_partition]
                self._check_topic_id(progress)
            except (TransportError, BrokerError) as error:
                self._retry(progress, error)
                continue
            leader = lookup.leaders[progress.topic_partition]
            node = progress.read_replica.choose(leader[0], has_moved=leader != progress.leader, now=now)
            if not self._requests.count(node):
                # Two ranges of one topic-partition take turns: a request names each partition once.
                by_node.setdefault(node, {}).setdefault(
                    progress.topic_partition, RequestedPartition(progress, progress.position, leader)
                )
        for node, unreachable in self._requests.reachable(by_node):
            batch = list(by_node[node].values())
            if unreachable is None:
                self._send_to(node, batch)
            else:
                self._on_no_response(node, batch, unreachable)
        return by_node

    def _check_topic_id(self, progress: RangeProgress) -> None:
        """Raise TopicRecreatedError when the topic of this name is not the one that the range was planned on."""
        topic = progress.range.topic
        expected = progress.range.topic_id
        topic_id = self._topic_ids.get(topic)
        if topic_id is None:
            topic_id = self._cluster.metadata.topic_id(topic)
            if topic_id != expected != ZERO_UUID:
                # What the cluster remembers may be older than the range.
                self._cluster.metadata.invalidate(topic)
                topic_id = self._cluster.metadata.topic_id(topic)
            self._topic_ids[topic] = topic_id
        if topic_id != expected and ZERO_UUID not in (topic_id, expected):
            raise TopicRecreatedError(
                f"the range {progress.range} belongs to an earlier topic of the same name",
                topic=topic,
                partition=progress.range.partition,
                offset=progress.position,
                expected_id=topic_id_text(expected),
                found_id=topic_id_text(topic_id),
            )

    def _send_to(self, node: int, batch: list[RequestedPartition]) -> None:
        """Send one Fetch over all of `batch`, in its order: the broker fills a response in the order of the request."""
        try:
            request, by_partition = self._request(node, batch)
            goes_by_id = all(topic.topic_id != ZERO_UUID for topic in request.topics)
            pending = self._cluster.send(
                node, request, purpose=self._purpose, version_cap=None if goes_by_id else TOPIC_ID_VERSION - 1
            )
        except TransportError as error:
            self._on_no_response(node, batch, error)
            return
        expires_at = self.clock.now() + (self._settings.request_timeout_ms + request.max_wait_ms) / 1000
        self._requests.add(
            SentFetch(future=pending, node=node, expires_at=expires_at, requested=batch, by_partition=by_partition)
        )

    def _request(
        self, node: int, batch: list[RequestedPartition]
    ) -> tuple[FetchRequest, dict[tuple[str | uuid.UUID, int], RequestedPartition]]:
        """Return a Fetch over `batch`, and what it asks for by (topic name or id, partition)."""
        max_bytes = self.decoder.max_bytes
        limit = max_bytes if self.decoder.has_large_records else DEFAULT_MAX_PARTITION_BYTES
        max_partition_bytes = min(max_bytes, self._max_partition_bytes or limit)
        by_tp = {requested.progress.topic_partition: requested for requested in batch}

        def partition(tp: TopicPartition) -> FetchPartition:
            requested, progress = by_tp[tp], by_tp[tp].progress
            # Truncation can only follow a change of leader. Sent always, the field would make responses depend on the
            # epoch history of logs that were upgraded or restored, where it may be missing.
            moved = progress.last_epoch >= 0 and requested.leader != progress.leader
            knows_epochs = moved and self._cluster.supports(
                node, FetchRequest, _LAST_EPOCH_VERSION, purpose=self._purpose
            )
            return FetchPartition(
                partition=tp.partition,
                current_leader_epoch=requested.leader[1],
                fetch_offset=requested.position,
                last_fetched_epoch=progress.last_epoch if knows_epochs else -1,
                partition_max_bytes=progress.wanted_bytes(max_partition_bytes),
            )

        ids = self._topic_ids
        request = FetchRequest(
            max_wait_ms=self._wait_ms(node, batch),
            min_bytes=1,
            max_bytes=max(max_bytes, *(requested.progress.size.min_bytes for requested in batch)),
            isolation_level=int(self._handler.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(topic=name, topic_id=ids[name], partitions=list(map(partition, of_topic)))
                for name, of_topic in group_by_topic(by_tp).items()
            ],
            rack_id=self._rack_id(batch),
        )
        return request, {(key, tp.partition): by_tp[tp] for tp in by_tp for key in (tp.topic, ids[tp.topic])}

    def _wait_ms(self, node: int, batch: list[RequestedPartition]) -> int:
        """Return how long the broker may wait for records where it has none of those asked for."""
        wait_ms = self._settings.fetch_max_wait_ms
        if self._handler.end_wait_s is not None:
            return min(_MAX_WAIT_MS, wait_ms)
        follows = [requested.leader[0] != node for requested in batch]
        # Whether a partition has records must be known at once; only when all are at their ends may the broker wait. A follower
        # cannot tell: it may wait until it has the leader's high watermark, for as long as it would be waited for.
        if not all(
            r.progress.at_end or (trails and r.progress.may_trail) for r, trails in zip(batch, follows, strict=True)
        ):
            return 0
        return min(wait_ms, int(FOLLOWER_WAIT_S * 1000)) if any(follows) else wait_ms

    def _rack_id(self, batch: list[RequestedPartition]) -> str:
        """Return our rack, for which a leader may name a follower; none while a range of the request is to be the leader's."""
        now = self.clock.now()
        if not all(requested.progress.read_replica.may_redirect(now) for requested in batch):
            return ""
        if self._rack is None:
            self._rack = rack_of(self._settings) if self._settings.client_rack else ""
        return self._rack

    # --- responses --------------------------------------------------------------------------------------------------

    def _receive(self, sent: SentFetch) -> Chunk:
        """Move the ranges of a request over what its response holds."""
        node = sent.node
        self._requests.remove(sent)
        try:
            response = sent.future.result(self.clock.deadline(sent.expires_at))
            self._counters.n_responses += 1
            if response.error_code:
                raise broker_error(response.error_code, broker=node, api="Fetch", version=sent.future.version)
        except (TransportError, ProtocolError, BrokerError) as error:
            if sent.has_begun and isinstance(error, DeadlineExceededError):
                self.decoder.shrink()
            self._on_no_response(node, sent.requested, error)
            return Chunk(node)
        chunk = Chunk(node)
        left_out = {id(requested): requested.progress for requested in sent.requested}
        for requested, data in sent.partition_responses(response):
            left_out.pop(id(requested), None)
            progress = requested.progress
            if progress.position != requested.position:
                continue  # it was left meanwhile: a corrupt batch is being fetched again
            if not data.error_code and data.diverging_epoch.end_offset < 0:
                progress.serve_from(requested.leader)
            outcome = self._handler.on_response(
                requested,
                data,
                is_first=sent.requested[0] is requested,
                node=node,
                version=sent.future.version,
                now=self.clock.now(),
            )
            self._act(requested, data, outcome, chunk, response.node_endpoints)
        for progress in left_out.values():
            self._back_off(progress)  # a throttled broker leaves all out; none may be asked again at once
        self._check_progress(node, sent.requested[0].progress)
        return chunk

    def _check_progress(self, node: int, progress: RangeProgress) -> None:
        """Fail for a range that waits for a broker once no range at all has made progress for too long."""
        now = self.clock.now()
        if now < self._moved_at + self._handler.deadline_s:
            return
        cause = progress.retries.last_error
        if self._cluster.throttled_s(node, purpose=self._purpose):
            cause = throttled_error(node)
        elif node in self._requests.held_up:
            cause = TransportError("the broker does not respond to the handshake", broker=node)
        stalled_since = progress.retries.stalled_since
        since = self._moved_at if stalled_since is None else stalled_since
        self._fail(no_progress(progress, now - since, cause))

    # --- what responses mean ----------------------------------------------------------------------------------------

    def _act(
        self,
        requested: RequestedPartition,
        data: PartitionData,
        outcome: FetchOutcome,
        chunk: Chunk,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        """Do what a response means for one range."""
        progress, now = requested.progress, self.clock.now()
        match outcome:
            case ReceivedRecords():
                self._advance(requested, outcome, chunk)
            case Enlarged(needed_bytes):
                if progress.size.enlarge(needed_bytes):
                    self._counters.n_retries += 1
                else:  # what was asked for was not given
                    self._back_off(progress)
            case Validated():
                progress.forget_epoch()
                progress.retries.pause_until(now + _MIN_PAUSE_S)
            case Redirected():
                logger.debug("%s: broker %d names follower %d", progress.topic_partition, chunk.node, outcome.replica)
                self._redirect(progress, outcome)
            case AskedLeader():
                progress.read_replica.ask_leader(now)
                self._moved_at = now
            case Skipped():
                pass  # its turn comes with the next request, in which it is among the first
            case Waiting(at_end):
                self._wait(progress, at_end)
            case LeftFollower(reason):
                self._leave_follower(progress, reason)
                self._back_off(progress)
            case RetriedRange():
                self._retry_response(requested, data, outcome, chunk.node, endpoints)
            case EndMissing(waited_s):
                self._on_missing_end(requested, data, waited_s, node=chunk.node)
            case FailedRange():
                self._fail(outcome)
            case _:
                assert_never(outcome)

    def _redirect(self, progress: RangeProgress, redirected: Redirected) -> None:
        """Read a range from the follower that its leader names (KIP-392)."""
        now = self.clock.now()
        if redirected.at_end:
            progress.reach_end()
        else:
            progress.leave_end(now)
        progress.read_replica.redirect(redirected.replica, now, self._settings.metadata_max_age_ms / 1000)

    def _wait(self, progress: RangeProgress, at_end: bool | None) -> None:
        """Note that a range has nothing to give yet; a read without an end finds nothing wrong with that."""
        now = self.clock.now()
        progress.retries.pause_until(now + _MIN_PAUSE_S)
        if at_end:
            progress.reach_end()
        if self._handler.end_wait_s is None:
            if at_end is None:
                progress.read_replica.miss_records(now)
            progress.retries.recover()
            self._moved_at = now
        else:
            progress.retries.stall(now)
            progress.retries.watch_end(now, at_end=at_end)

    def _retry_response(
        self,
        requested: RequestedPartition,
        data: PartitionData,
        retried: RetriedRange,
        node: int,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        """Ask for a range again: at once where another leader is known (KIP-951), else after a pause."""
        progress, tp = requested.progress, requested.progress.topic_partition
        metadata = self._cluster.metadata
        if retried.check_topic:
            self._topic_ids.pop(tp.topic, None)
        if retried.find_leader:
            if metadata.follow_hint(tp, node, data.current_leader, endpoints, epoch=requested.leader[1]):
                self._counters.n_retries += 1
                return
        elif progress.retries.failures:
            # A broker that is cut off never learns that another one leads.
            metadata.invalidate(tp)
        self._retry(progress, retried.error)

    def _advance(self, requested: RequestedPartition, received: ReceivedRecords, chunk: Chunk) -> None:
        """Move a range over its batches and puts them up for decoding."""
        progress, records, scan = requested.progress, received.records, received.scan
        progress.advance(scan)
        if received.at_end:
            progress.reach_end()
        self._n_served += 1
        progress.take_turn(self._n_served)
        self._moved_at = self.clock.now()
        chunk.add(progress, records, scan, requested.position, received.aborted)
        if self._cache is None:
            return
        if progress.size.batch_size is not None:
            self._cache.record_size(progress.topic_partition, progress.size.batch_size)
        # Which of the aborted transactions a later range would have to skip is not known here.
        if progress.finished and not received.aborted:
            is_beyond = scan.next_offset > progress.range.end_offset and scan.batch_starts
            beyond = scan.batch_starts[-1] if is_beyond else scan.n_bytes
            self._cache.keep(
                progress.range, requested.leader, read_committed=self._handler.read_committed, records=records[beyond:]
            )

    def _on_no_response(self, node: int, batch: Sequence[RequestedPartition], error: WireError) -> None:
        """Ask who leads now after a request that failed, and try again after a pause."""
        logger.debug("broker %d: no response to Fetch: %s", node, error)
        for requested in batch:
            if node != requested.leader[0]:
                self._leave_follower(requested.progress, "cannot be reached")
            self._cluster.metadata.invalidate(requested.progress.topic_partition)
            self._retry(requested.progress, error)

    def _on_missing_end(
        self, requested: RequestedPartition, data: PartitionData, waited_s: float, *, node: int
    ) -> None:
        """Fail for a range's end that is above what the leader serves, unless another leader is known by now."""
        progress, tp = requested.progress, requested.progress.topic_partition
        log_end = ask_log_end_offset(self._cluster, tp, requested.leader[1], self._request_deadline())
        if self._cluster.metadata.leader(tp) != requested.leader:
            self._back_off(progress)  # the new one has the whole wait to come level
            return
        read_committed = self._handler.read_committed
        is_open = read_committed and data.last_stable_offset < data.high_watermark
        raise log_end_error(
            progress,
            data,
            read_committed=read_committed,
            node=node,
            waited_s=waited_s,
            log_end_offset=log_end,
            open_transactions=open_transactions(self._cluster, [tp], deadline=self._request_deadline())
            if is_open
            else (),
        )

    def _leave_follower(self, progress: RangeProgress, reason: str) -> None:
        logger.debug(
            "%s: follower %d %s, back to the leader", progress.topic_partition, progress.read_replica.node, reason
        )
        progress.read_replica.leave(self.clock.now())

    def _retry(self, progress: RangeProgress, error: WireError) -> None:
        """Put a range off for a while, or raises when no other try is due."""
        now = self.clock.now()
        if error.retriable or isinstance(error, ProtocolError):
            progress.retries.stall(now)
        # A grace period begins when the code is first met: a broker that was away for longer may say it once when it is back.
        in_grace = not isinstance(error, BrokerError) or progress.retries.grace_periods.allow(error.code, now)
        outcome = self._handler.on_failure(progress, error, in_grace=in_grace, now=now)
        if isinstance(outcome, FailedRange):
            self._fail(outcome)
        self._back_off(progress, error)

    def _back_off(self, progress: RangeProgress, error: WireError | None = None) -> None:
        progress.retries.fail(error)
        self._counters.n_retries += 1
        progress.retries.pause_until(self._requests.retry_at(progress.retries.failures))

    def _fail(self, failed: FailedRange) -> NoReturn:
        if isinstance(failed.error, OffsetOutOfRangeError):
            _add_log_bounds(failed.error, self._cluster, self._request_deadline())
        if failed.cause is None:
            raise failed.error
        raise failed.error from failed.cause

    def _request_deadline(self) -> Deadline:
        return Deadline.after_ms(self._settings.request_timeout_ms)


def ask_log_end_offset(cluster: Cluster, tp: TopicPartition, leader_epoch: int, deadline: Deadline) -> int | None:
    """Return where the log of the leader of `leader_epoch` ends, above the high watermark, too; None if that is unknown.

    A leader responds to OffsetForLeaderEpoch for its own epoch with its log's end (KIP-320). ListOffsets and Fetch tell no more
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


def _add_log_bounds(error: OffsetOutOfRangeError, cluster: Cluster, deadline: Deadline) -> None:
    """Add the log's present bounds, which a response that carries this error code leaves out."""
    assert error.topic is not None and error.partition is not None
    tp = TopicPartition(error.topic, error.partition)
    try:
        error.log_start_offset = list_offsets(cluster, {tp: EARLIEST}, deadline=deadline)[tp].offset
        error.log_end_offset = list_offsets(cluster, {tp: LATEST}, deadline=deadline)[tp].offset
    except WireError as failure:  # the first error says more than this one
        logger.debug("%s: the log's bounds are unknown: %s", tp, failure)
        return
    error.message += (
        f" The log holds the offsets from {error.log_start_offset} up to, but not including, {error.log_end_offset}."
    )
