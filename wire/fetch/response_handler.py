"""What one response to a Fetch means for each range in it: records, a redirection, nothing yet, or an error.

Owns that decision, apart from sending: which batches count as read, when a range's end is missing, which errors are retried
after which pause, and when a range has failed. Requests are made by :mod:`~pykafka_wire.wire.fetch.range_read`, records are
decoded by :mod:`~pykafka_wire.wire.fetch.fetched_records`, the texts of errors are in :mod:`~pykafka_wire.wire.fetch.fetch_errors`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.cluster import CHECK_S, Cluster, Deadline
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.deadline import WorkingClock
from pykafka_wire.wire.error_codes import Action
from pykafka_wire.wire.errors import (
    BrokerError,
    OffsetOutOfRangeError,
    ProtocolError,
    TransportError,
    UnknownTopicError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.fetch.fetch_errors import (
    log_end_error,
    log_end_offset,
    no_progress_error,
    oversize_error,
    throttled_error,
    truncated_error,
    with_log_bounds,
)
from pykafka_wire.wire.fetch.fetched_records import Chunk, FetchCounters
from pykafka_wire.wire.fetch.range_progress import RangeProgress, scan_batches
from pykafka_wire.wire.protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger(__name__)

#: The broker's socket.request.max.bytes (100 MiB by default) bounds what any producer can have written as one batch.
MAX_BATCH_BYTES: Final = 104_857_600
#: Before a partition that had nothing to give is asked again. Brokers hold such a response back anyway; this keeps one that
#: does not from being asked without end.
LEAST_PAUSE_S: Final = 0.005
#: How long a follower (KIP-392) may have nothing to give. Its high watermark trails the leader's until its next fetch from
#: there, at most replica.fetch.wait.max.ms (500 ms by default) in a healthy cluster.
_FOLLOWER_WAIT_S: Final = 1.0
#: How long the leader serves a range itself after a follower failed it. By then a leader has dropped a follower that
#: trails from the in-sync replicas (1.5 times replica.lag.time.max.ms, which is 30 s by default), and names it no more.
_LEADER_ONLY_S: Final = 45.0
#: The first version that names topics by id (KIP-516).
TOPIC_ID_VERSION: Final = 13


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """One partition of a request: for which range, from which offset, and the (leader, leader epoch) it was sent under."""

    progress: RangeProgress
    position: int
    leader: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SentFetch:
    """A Fetch that is not answered yet.

    Attributes:
        expires_at: when its response has to begin, or to be complete once it `has_begun`; on the read's clock.
        by_partition: finds what was requested by (topic name or id, partition).
    """

    pending: ResponseFuture[FetchResponse]
    node: int
    expires_at: float
    requested: Sequence[RequestedPartition]
    by_partition: Mapping[tuple[str | uuid.UUID, int], RequestedPartition]
    has_begun: bool = False

    def begun(self, expires_at: float) -> SentFetch:
        """The same, now that the first bytes of its response are here."""
        return replace(self, expires_at=expires_at, has_begun=True)


class ResponseHandler:
    """Applies the responses of one read to its ranges.

    Attributes:
        clock: the time that the read has worked; it does not run while the caller works between chunks.
        counters: what the read did so far.
        topic_ids: the id of each topic that was checked; without those that a response has contradicted since.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        read_committed: bool,
        deadline_ms: int,
        end_wait_ms: int,
        counters: FetchCounters,
        cache: BatchCache | None = None,
    ) -> None:
        self.clock = WorkingClock()
        self.counters = counters
        self.read_committed = read_committed
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._cluster = cluster
        self._cache = cache
        self._settings = cluster.settings
        self._backoff = Backoff(cluster.settings)
        self._deadline_s = deadline_ms / 1000
        self._end_wait_s = end_wait_ms / 1000
        self._n_served = 0
        #: When any range moved last.
        self._moved_at = self.clock.now()

    def handle(self, sent: SentFetch, response: FetchResponse) -> Chunk:
        """Moves the ranges of a request over what its response holds; the records to decode.

        Raises:
            WireError: a range cannot be read, or has made no progress for too long.
        """
        chunk = Chunk(sent.node)
        endpoints = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in response.node_endpoints}
        missing = {id(requested): requested.progress for requested in sent.requested}
        by_id = sent.pending.version >= TOPIC_ID_VERSION
        for topic in response.responses:
            for data in topic.partitions:
                requested = sent.by_partition.get((topic.topic_id if by_id else topic.topic, data.partition_index))
                if requested is None:
                    continue
                missing.pop(id(requested), None)
                # A response to a position that has been left (a corrupt batch is being fetched again) does not count.
                if requested.progress.position == requested.position:
                    self._handle_partition(requested, data, sent, chunk, endpoints)
        for progress in missing.values():
            self._back_off(progress)  # a throttled broker leaves all out; none may be asked again at once
        if self.time_left_s <= 0:
            cause = throttled_error(sent.node) if response.throttle_time_ms else None
            self._raise_no_progress(sent.requested[0].progress, cause)
        return chunk

    @property
    def time_left_s(self) -> float:
        """How long no range at all may make progress from now on."""
        return self._moved_at + self._deadline_s - self.clock.now()

    def _handle_partition(
        self,
        requested: RequestedPartition,
        data: PartitionData,
        sent: SentFetch,
        chunk: Chunk,
        endpoints: Mapping[int, tuple[str, int]],
    ) -> None:
        """Takes one partition's part of a response: records, a redirection, or an error."""
        progress = requested.progress
        if data.error_code:
            self._handle_error(requested, data, sent, endpoints)
            return
        if data.diverging_epoch.end_offset >= 0:
            raise truncated_error(progress.range, progress.position, data, node=sent.node)
        if progress.leader != requested.leader:
            progress.leader = requested.leader
            progress.end_missing_since = None  # a new leader may trail for as long as the one before
        redirected = data.preferred_read_replica >= 0 and data.preferred_read_replica != sent.node
        if redirected and self.clock.now() >= progress.leader_only_until:
            # KIP-392: the leader answers without records and names a follower in our rack.
            logger.debug(
                "%s: broker %d names follower %d", progress.topic_partition, sent.node, data.preferred_read_replica
            )
            progress.replica = data.preferred_read_replica
            serves_s = max(self._settings.metadata_max_age_ms / 1000, _FOLLOWER_WAIT_S)
            progress.replica_until = self.clock.now() + serves_s
        elif data.records:
            self._scan_records(requested, memoryview(data.records), data, chunk)
        else:
            self._handle_no_records(requested, data, sent)

    def _scan_records(
        self, requested: RequestedPartition, records: memoryview, data: PartitionData, chunk: Chunk
    ) -> None:
        """Moves a range over the batches of `records` and puts them up for decoding."""
        progress = requested.progress
        start, end_offset = progress.position, progress.range.end_offset
        scan = scan_batches(records, start, end_offset)
        if scan.needed_bytes:
            self._grow(progress, scan.needed_bytes, chunk.node)
            return
        progress.advance(scan)
        self._n_served += 1
        progress.last_served = self._n_served
        self._moved_at = self.clock.now()
        aborted = [
            (aborted.producer_id, aborted.first_offset)
            for aborted in (data.aborted_transactions or () if self.read_committed else ())
        ]
        chunk.add(progress, records, scan, start, aborted)
        if self._cache is not None:
            if progress.batch_size is not None:
                self._cache.record_size(progress.topic_partition, progress.batch_size)
            # Which of the aborted transactions a later range would have to skip is not known here.
            if progress.finished and not aborted:
                beyond = scan.batch_starts[-1] if scan.next_offset > end_offset and scan.batch_starts else scan.n_bytes
                self._cache.keep(
                    progress.range, requested.leader, read_committed=self.read_committed, records=records[beyond:]
                )

    def _grow(self, progress: RangeProgress, needed_bytes: int, node: int) -> None:
        """Asks for more next time, a batch did not fit; Kafka itself never cuts the first one short (KIP-74)."""
        if needed_bytes > MAX_BATCH_BYTES:
            raise oversize_error(
                progress.range, progress.position, n_bytes=needed_bytes, max_bytes=MAX_BATCH_BYTES, node=node
            )
        if progress.min_bytes >= needed_bytes:  # what was asked for was not given
            self._back_off(progress)
            return
        progress.min_bytes = needed_bytes
        self.counters.n_retries += 1

    def _handle_no_records(self, requested: RequestedPartition, data: PartitionData, sent: SentFetch) -> None:
        """Judges a response without records: the end is not there yet, nothing is given, or others took the room."""
        progress = requested.progress
        bound = data.last_stable_offset if self.read_committed else data.high_watermark
        end_is_missing = 0 <= bound <= progress.position
        if not end_is_missing and sent.requested[0] is not requested:
            return
        now = self.clock.now()
        progress.not_before = now + LEAST_PAUSE_S
        if progress.stalled_since is None:
            progress.stalled_since = now
        if sent.node != requested.leader[0]:
            # What a follower does not have, its leader may.
            if now - progress.stalled_since > _FOLLOWER_WAIT_S:
                self._leave_follower(progress, "has no records")
                self._back_off(progress)
            return
        if not end_is_missing:
            progress.end_missing_since = None
        elif progress.end_missing_since is None:
            progress.end_missing_since = now
        elif now - progress.end_missing_since > self._end_wait_s:
            tp = progress.topic_partition
            end = log_end_offset(self._cluster, tp, requested.leader[1], self._request_deadline())
            if self._cluster.metadata.leader(tp) != requested.leader:
                self._back_off(progress)  # the new one has the whole wait to come level
                return
            raise log_end_error(
                progress.range,
                progress.position,
                data,
                read_committed=self.read_committed,
                node=sent.node,
                log_end_offset=end,
                waited_s=now - progress.end_missing_since,
                cluster=self._cluster,
                deadline=self._request_deadline(),
            )
        if now - progress.stalled_since > self._deadline_s:
            self._raise_no_progress(progress, None)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _handle_error(
        self,
        requested: RequestedPartition,
        data: PartitionData,
        sent: SentFetch,
        endpoints: Mapping[int, tuple[str, int]],
    ) -> None:
        """Acts on one partition's error code: goes elsewhere, tries again later, or raises."""
        progress = requested.progress
        tp = progress.topic_partition
        error = broker_error(
            data.error_code,
            topic=tp.topic,
            partition=tp.partition,
            offset=progress.position,
            broker=sent.node,
            api="Fetch",
            version=sent.pending.version,
            detail=f"The range is {progress.range}.",
        )
        if sent.node != requested.leader[0]:
            # Whatever a follower answers (it may trail, or have a shorter log), only the leader's response counts.
            self._leave_follower(progress, f"answered {error.name}")
            self._back_off(progress)
            return
        if isinstance(error, OffsetOutOfRangeError):
            raise with_log_bounds(error, self._cluster, self._request_deadline())
        if isinstance(error, UnknownTopicError) or error.name == "INCONSISTENT_TOPIC_ID":
            self.topic_ids.pop(tp.topic, None)  # looked up and compared again before the next try
        # The broker cannot read its own log (fault or bit rot): once more, as with a batch that is corrupt on arrival.
        if error.name == "CORRUPT_MESSAGE" and progress.failures:
            raise error
        if error.info.action is Action.REFRESH_METADATA:
            hint = data.current_leader
            if self._cluster.metadata.redirect(
                tp,
                sent.node,
                epoch=requested.leader[1],
                hint=(hint.leader_id, hint.leader_epoch),
                endpoint=endpoints.get(hint.leader_id),
            ):
                self.counters.n_retries += 1  # at once: another leader is known
                return
        elif progress.failures:
            self._cluster.metadata.invalidate(tp)  # a broker that is cut off never learns that another one leads
        self.retry_later(progress, error)

    def request_failed(self, node: int, batch: Sequence[RequestedPartition], error: WireError) -> None:
        """A request failed: asks who leads now, and tries again after a pause."""
        logger.debug("broker %d: Fetch failed: %s", node, error)
        for requested in batch:
            if node != requested.leader[0]:
                self._leave_follower(requested.progress, "cannot be reached")
            self._cluster.metadata.invalidate(requested.progress.topic_partition)
            self.retry_later(requested.progress, error)

    def wait_for_connection(self, node: int, batch: Sequence[RequestedPartition]) -> None:
        """A connection to `node` is still being opened: its ranges are asked for a little later."""
        for requested in batch:
            progress = requested.progress
            now = self.clock.now()
            if progress.stalled_since is None:
                progress.stalled_since = now
            if now - progress.stalled_since > self._deadline_s:
                cause = TransportError("the broker does not answer the handshake", broker=node)
                self._raise_no_progress(progress, cause)
            progress.not_before = now + CHECK_S

    def _leave_follower(self, progress: RangeProgress, why: str) -> None:
        """Goes back to the leader, and for some time sends it no rack: it would name the same follower again."""
        logger.debug("%s: follower %d %s, back to the leader", progress.topic_partition, progress.replica, why)
        progress.replica = -1
        progress.leader_only_until = self.clock.now() + _LEADER_ONLY_S

    def retry_later(self, progress: RangeProgress, error: WireError) -> None:
        """Puts a range off for a while, or raises when `error` leaves no hope or its time is over."""
        # A response that breaks the protocol has ended its connection; another one may do better, once.
        if not error.retriable and not (isinstance(error, ProtocolError) and not progress.failures):
            if error.topic is None:  # raised by a connection, which does not know the partition
                error.topic, error.partition, error.offset = *progress.topic_partition, progress.position
            raise error
        now = self.clock.now()
        if progress.stalled_since is None:
            progress.stalled_since = now
        # A grace begins when the code is first met: a broker that was away for longer may say it once when it is back.
        grace_is_over = isinstance(error, BrokerError) and not progress.graces.allow(error.code, now)
        if now - progress.stalled_since > self._deadline_s or grace_is_over:
            self._raise_no_progress(progress, error)
        self._back_off(progress)

    def _request_deadline(self) -> Deadline:
        return Deadline.after_ms(self._settings.request_timeout_ms)

    def _back_off(self, progress: RangeProgress) -> None:
        progress.failures += 1
        self.counters.n_retries += 1
        progress.not_before = self.clock.now() + self._backoff.delay_ms(progress.failures) / 1000

    def _raise_no_progress(self, progress: RangeProgress, cause: WireError | None) -> NoReturn:
        if isinstance(cause, UnknownTopicError):
            raise cause
        since = self._moved_at if progress.stalled_since is None else progress.stalled_since
        raise no_progress_error(progress.range, progress.position, self.clock.now() - since, cause) from cause
