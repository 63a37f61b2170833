"""Reads topic-partitions without an end: what a consumer polls. The same Fetch requests, errors and retries as a bounded read.

What differs from :mod:`~pykafka_wire.wire.fetch.range_read`: a request may wait at the broker until records come (on a
connection of its own, for its answers stand before all others), silence is no stall, and reaching the end of a partition is
news.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.fetch.fetched import Chunk, FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.fetcher import DEFAULT_MAX_BYTES, DEFAULT_MAX_PARTITION_BYTES
from pykafka_wire.wire.fetch.positions import Position, RangeProgress
from pykafka_wire.wire.fetch.range_read import LEAST_PAUSE_S, Asked, InFlight, RangeRead
from pykafka_wire.wire.protocol.messages.fetch import PartitionData
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topics import OffsetRange, TopicPartition

_PURPOSE: Final = "live"
_NO_END: Final = 2**63 - 1


class LiveRead(RangeRead):
    """Records of topic-partitions from given positions on, as they come. Not thread-safe.

    A partition that cannot be read for ``default.api.timeout.ms`` fails the whole read, as do errors without hope; it starts
    again as another read, from the positions that were handed out.
    """

    def __init__(self, cluster: Cluster, positions: Mapping[TopicPartition, Position], columns: Columns) -> None:
        """Reads from `positions` on. One with a leader epoch is validated by the first Fetch (KIP-320, from Kafka 2.7 on):
        :class:`LogTruncatedError` where the log has been truncated below it."""
        settings = cluster.settings
        super().__init__(
            cluster,
            [
                OffsetRange(
                    topic=tp.topic,
                    partition=tp.partition,
                    start_offset=position.offset,
                    end_offset=_NO_END,
                    topic_id=cluster.topic_id(tp.topic),
                )
                for tp, position in positions.items()
            ],
            columns=columns,
            read_committed=settings.isolation_level == "read_committed",
            max_bytes=settings.fetch_max_bytes or DEFAULT_MAX_BYTES,
            max_partition_bytes=settings.max_partition_fetch_bytes or DEFAULT_MAX_PARTITION_BYTES,
            deadline_ms=settings.default_api_timeout_ms,
            end_wait_ms=settings.default_api_timeout_ms,
            counters=FetchCounters(),
            purpose=_PURPOSE,
        )
        self._progress = list(self._unfinished)
        for progress in self._progress:
            progress.delivered = positions[progress.topic_partition]
            progress.last_epoch = progress.delivered.leader_epoch
        self._pieces: Iterator[FetchedRecords] = iter(())
        self._at_end: set[RangeProgress] = set()
        self._news: list[RangeProgress] = []
        self._clock.pause()  # until the first poll: only time spent in polls counts

    def poll(self, deadline: Deadline) -> FetchedRecords | None:
        """The next records, None where none come until ``deadline`` or where an end has been reached.

        Raises: as :func:`~pykafka_wire.wire.fetch.fetcher.fetch_ranges`.
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
            flight = self._arrived(deadline)
            if flight is not None:
                chunk = self._take_answer(flight)
                self._send()
                if chunk.parts:
                    self._pieces = self._decoder.decode(chunk)
                    piece = self._next_piece()
                del chunk
            if piece is None and (self._news or deadline.expired):
                return None
        return piece

    def _next_piece(self) -> FetchedRecords | None:
        """What is left of the last answer; pieces without records have moved the positions, which is all they can do."""
        return next((piece for piece in self._pieces if piece.records.n_records), None)

    def positions(self) -> dict[TopicPartition, Position]:
        """How far each partition has been handed out, past batches without records for the reader, too (control batches,
        aborted transactions)."""
        return {progress.topic_partition: progress.delivered for progress in self._progress}

    def ended(self) -> list[TopicPartition]:
        """Partitions whose end has been reached since this was last asked; all their records have been handed out."""
        told = [progress for progress in self._news if progress.delivered.offset >= progress.position]
        self._news = [progress for progress in self._news if progress not in told]
        return [progress.topic_partition for progress in dict.fromkeys(told) if progress in self._at_end]

    def _arrived(self, deadline: Deadline) -> InFlight | None:
        """A request whose answer is there, or does not come any more; None when ``deadline`` passes before."""
        if not self._in_flight:
            pause_ms = (min(progress.not_before for progress in self._unfinished) - self._clock.now()) * 1000
            time.sleep(max(0.001, min(pause_ms, deadline.remaining_ms()) / 1000))
            return None
        return self._next_flight(deadline)

    def _wait_ms(self, batch: list[Asked]) -> int:
        # Whether a partition has anything is to be known at once; only when all are at their ends is there reason to wait.
        waiting = all(asked.progress in self._at_end for asked in batch)
        return self._settings.fetch_max_wait_ms if waiting else 0

    def _take(self, progress: RangeProgress, records: memoryview, data: PartitionData, chunk: Chunk) -> None:
        self._at_end.discard(progress)
        super()._take(progress, records, data, chunk)
        self._notice_end(progress, data)

    def _check_end(self, asked: Asked, data: PartitionData, flight: InFlight) -> None:
        progress = asked.progress
        progress.stalled_since = None
        progress.first_met.clear()
        progress.failures = 0
        self._moved_at = self._clock.now()
        progress.not_before = self._moved_at + LEAST_PAUSE_S
        self._notice_end(progress, data)

    def _notice_end(self, progress: RangeProgress, data: PartitionData) -> None:
        end = data.last_stable_offset if self._read_committed else data.high_watermark
        if 0 <= end <= progress.position and progress not in self._at_end:
            self._at_end.add(progress)
            self._news.append(progress)
