"""Reads topic-partitions without an end: what a consumer polls. The same Fetch requests, errors and retries as a bounded read.

What differs from :mod:`~pykafka_wire.wire.fetch.range_read`: a request may wait at the broker until records come (on a
connection of its own, because all later responses wait behind it), a partition without new records is no failure, and the end
of a partition is reported when it is reached.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.fetch.fetched_records import Chunk, FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.range_progress import Position, RangeProgress
from pykafka_wire.wire.fetch.range_read import DEFAULT_MAX_BYTES, DEFAULT_MAX_PARTITION_BYTES, RangeRead
from pykafka_wire.wire.fetch.response_handler import LEAST_PAUSE_S, RequestedPartition, ResponseHandler, SentFetch
from pykafka_wire.wire.protocol.messages.fetch import PartitionData
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

_PURPOSE: Final = "live"
_NO_END: Final = 2**63 - 1


class ContinuousFetch(RangeRead):
    """Records of topic-partitions from given positions on, as they come. Not thread-safe.

    A partition that cannot be read for ``default.api.timeout.ms`` fails the whole read, as do errors that no retry can mend. A
    caller that goes on makes another read, from :meth:`positions`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, Position],
        columns: Columns,
        topic_ids: Mapping[TopicPartition, uuid.UUID] | None = None,
    ) -> None:
        """Reads from `positions` on, of the topics with these ids, else of those that have the names now. One with a leader epoch
        is validated by the first Fetch (KIP-320, from Kafka 2.7 on): :class:`LogTruncatedError` where the log has been truncated
        below it."""
        settings = cluster.settings
        self._ends = _EndWatcher(
            cluster,
            read_committed=settings.isolation_level == "read_committed",
            deadline_ms=settings.default_api_timeout_ms,
            end_wait_ms=settings.default_api_timeout_ms,
            counters=FetchCounters(),
        )
        super().__init__(
            cluster,
            [
                OffsetRange(
                    topic=tp.topic,
                    partition=tp.partition,
                    start_offset=position.offset,
                    end_offset=_NO_END,
                    topic_id=cluster.metadata.topic_id(tp.topic) if topic_ids is None else topic_ids[tp],
                )
                for tp, position in positions.items()
            ],
            columns=columns,
            max_bytes=settings.fetch_max_bytes or DEFAULT_MAX_BYTES,
            max_partition_bytes=settings.max_partition_fetch_bytes or DEFAULT_MAX_PARTITION_BYTES,
            handler=self._ends,
            purpose=_PURPOSE,
        )
        self._progress = list(self._unfinished)
        for progress in self._progress:
            progress.delivered = positions[progress.topic_partition]
            progress.last_epoch = progress.delivered.leader_epoch
        self._pieces: Iterator[FetchedRecords] = iter(())
        self._clock.pause()  # until the first poll: only time spent in polls counts

    def poll(self, deadline: Deadline) -> FetchedRecords | None:
        """The next records, None where none come until ``deadline`` or where an end has been reached.

        Raises: as :func:`~pykafka_wire.wire.fetch.range_read.fetch_ranges`.
        """
        self._clock.resume()
        try:
            return self._poll(deadline)
        finally:
            self._clock.pause()

    def _poll(self, deadline: Deadline) -> FetchedRecords | None:
        piece = self._next_piece()
        while piece is None:
            self._send()
            answered = self._wait(deadline)
            if answered is not None:
                chunk = self._receive(answered)
                self._send()
                if chunk.parts:
                    self._pieces = self._decoder.decode(chunk)
                    piece = self._next_piece()
                del answered, chunk  # both refer to the response, which must not stay while the next one comes in
            if piece is None and (self._ends.reached or deadline.expired):
                return None
        return piece

    def _next_piece(self) -> FetchedRecords | None:
        """What is left of the last response; pieces without records have moved the positions, which is all they can do."""
        return next((piece for piece in self._pieces if piece.records.n_records), None)

    def positions(self) -> dict[TopicPartition, Position]:
        """How far each partition has been handed out, past batches without records for the reader, too (control batches,
        aborted transactions)."""
        return {progress.topic_partition: progress.delivered for progress in self._progress}

    def ended(self) -> list[TopicPartition]:
        """Partitions whose end has been reached since the last call; all their records have been handed out."""
        return self._ends.take_reached()

    def _wait(self, deadline: Deadline) -> SentFetch | None:
        """A request that has been answered or has expired; None when ``deadline`` passes before."""
        if not self._in_flight:
            pause_ms = (min(progress.not_before for progress in self._unfinished) - self._clock.now()) * 1000
            time.sleep(max(0.001, min(pause_ms, deadline.remaining_ms()) / 1000))
            return None
        return self._next_response(deadline)

    def _wait_ms(self, batch: list[RequestedPartition]) -> int:
        # Whether a partition has records must be known at once; only when all are at their ends may the broker wait.
        waiting = all(requested.progress in self._ends.at_end for requested in batch)
        return self._settings.fetch_max_wait_ms if waiting else 0


class _EndWatcher(ResponseHandler):
    """Notices when a partition's end is reached, in place of waiting for the end of a range.

    Attributes:
        at_end: the partitions whose last response reached their end.
        reached: those that have come to their end since they were last taken, in order.
    """

    def __init__(
        self, cluster: Cluster, *, read_committed: bool, deadline_ms: int, end_wait_ms: int, counters: FetchCounters
    ) -> None:
        super().__init__(
            cluster, read_committed=read_committed, deadline_ms=deadline_ms, end_wait_ms=end_wait_ms, counters=counters
        )
        self.at_end: set[RangeProgress] = set()
        self.reached: list[RangeProgress] = []

    def take_reached(self) -> list[TopicPartition]:
        """The partitions that have come to their end and whose records are all handed out; each is reported once."""
        taken = [progress for progress in self.reached if progress.delivered.offset >= progress.position]
        self.reached = [progress for progress in self.reached if progress not in taken]
        return [progress.topic_partition for progress in dict.fromkeys(taken) if progress in self.at_end]

    def _scan_records(
        self, requested: RequestedPartition, records: memoryview, data: PartitionData, chunk: Chunk
    ) -> None:
        self.at_end.discard(requested.progress)
        super()._scan_records(requested, records, data, chunk)
        self._notice_end(requested.progress, data)

    def _handle_no_records(self, requested: RequestedPartition, data: PartitionData, sent: SentFetch) -> None:
        progress = requested.progress
        progress.stalled_since = None
        progress.graces.clear()
        progress.failures = 0
        self._moved_at = self.clock.now()
        progress.not_before = self._moved_at + LEAST_PAUSE_S
        self._notice_end(progress, data)

    def _notice_end(self, progress: RangeProgress, data: PartitionData) -> None:
        end = data.last_stable_offset if self.read_committed else data.high_watermark
        if 0 <= end <= progress.position and progress not in self.at_end:
            self.at_end.add(progress)
            self.reached.append(progress)
