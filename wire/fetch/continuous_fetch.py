"""Reads topic-partitions without an end: what a consumer polls. The same Fetch requests, errors and retries as a bounded read.

What differs from a bounded read: a request may wait at the broker until records come (on a connection of its own, because all later
responses wait behind it), a partition without new records is no failure, and the end of a partition is reported when it is reached.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.fetch.range_read import DEFAULT_MAX_PARTITION_BYTES, RangeRead
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

_PURPOSE: Final = "live"
_NO_END: Final = 2**63 - 1


class ContinuousFetch:
    """Records of topic-partitions from given positions on, as they come. Not thread-safe.

    A partition that cannot be read for ``default.api.timeout.ms`` fails the whole read, as do errors that are not retried. A
    caller that goes on makes another read, from :meth:`positions`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, Position],
        columns: Columns,
        topic_ids: Mapping[TopicPartition, uuid.UUID] | None = None,
    ) -> None:
        """Read from `positions` on, of the topics with these ids, else of those that have the names now. One with a leader epoch
        is validated by the first Fetch (KIP-320, from Kafka 2.7 on): :class:`LogTruncatedError` where the log has been truncated
        below it."""
        settings = cluster.settings
        self._read = RangeRead(
            cluster,
            [
                OffsetRange(
                    **tp._asdict(),
                    start_offset=position.offset,
                    end_offset=_NO_END,
                    topic_id=cluster.metadata.topic_id(tp.topic) if topic_ids is None else topic_ids[tp],
                )
                for tp, position in positions.items()
            ],
            columns=columns,
            max_partition_bytes=settings.max_partition_fetch_bytes or DEFAULT_MAX_PARTITION_BYTES,
            deadline_ms=settings.default_api_timeout_ms,
            end_wait_ms=None,
            purpose=_PURPOSE,
        )
        self._progress = list(self._read.unfinished)
        for progress in self._progress:
            progress.resume_at(positions[progress.topic_partition])
        self._chunks: Iterator[FetchedRecords] = iter(())
        self._read.clock.pause()  # until the first poll: only time spent in polls counts

    def poll(self, deadline: Deadline) -> FetchedRecords | None:
        """Return the next records, None where none come until ``deadline`` or where an end has been reached.

        Raises: as :func:`~pykafka_wire.wire.fetch.range_read.fetch_ranges`.
        """
        self._read.clock.resume()
        try:
            return self._poll(deadline)
        finally:
            self._read.clock.pause()

    def _poll(self, deadline: Deadline) -> FetchedRecords | None:
        fetched = self._next()
        while fetched is None:
            chunk = self._read.step(deadline)
            if chunk.parts:
                self._read.send()
                self._chunks = self._read.decoder.decode(chunk)
                fetched = self._next()
            del chunk  # it refers to the response, which must not stay while the next one comes in
            if fetched is None and (deadline.expired or any(progress.reports_end for progress in self._progress)):
                return None
        return fetched

    def _next(self) -> FetchedRecords | None:
        """Return what is left of the last response; chunks without records have moved the positions, which is all they can do."""
        return next((fetched for fetched in self._chunks if fetched.records.n_records), None)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return how far each partition has been handed out, past batches without records for the reader, too (control batches,
        aborted transactions)."""
        return {progress.topic_partition: progress.delivered for progress in self._progress}

    def ended(self) -> list[TopicPartition]:
        """Return partitions whose end has been reached since the last call; all their records have been handed out."""
        return [progress.topic_partition for progress in self._progress if progress.take_reached_end()]
