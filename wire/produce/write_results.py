"""What a producer has written: by topic-partition since the last flush, and in all."""

from __future__ import annotations

from dataclasses import dataclass

from pykafka_wire.wire.topic_partitions import TopicPartition


@dataclass(slots=True)
class ProducerCounters:
    """What a producer did so far: acknowledged batches, records and bytes (compressed), requests, batches resent."""

    n_batches: int = 0
    n_records: int = 0
    n_bytes: int = 0
    n_requests: int = 0
    n_retries: int = 0

    def count(self, n_records: int, n_bytes: int) -> None:
        """Count one more batch that is acknowledged."""
        self.n_batches += 1
        self.n_records += n_records
        self.n_bytes += n_bytes


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What was written to one topic-partition since the last flush.

    Offsets are -1 where no response has them: with ``acks=0`` there is no response, and the response for a batch that is in the log
    already (DUPLICATE_SEQUENCE_NUMBER) has none.
    """

    n_records: int
    n_bytes: int
    first_offset: int
    last_offset: int

    def plus(self, later: WriteResult) -> WriteResult:
        """Return both together."""
        return WriteResult(
            self.n_records + later.n_records,
            self.n_bytes + later.n_bytes,
            self.first_offset if self.first_offset >= 0 else later.first_offset,
            max(self.last_offset, later.last_offset),
        )


class WriteResults:
    """What was written since the last flush, by topic-partition."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, WriteResult] = {}

    def add(self, tp: TopicPartition, n_records: int, n_bytes: int, base_offset: int) -> None:
        """Add one more batch that is acknowledged, at `base_offset` (-1 if unknown)."""
        last_offset = base_offset + n_records - 1 if base_offset >= 0 else -1
        result = WriteResult(n_records, n_bytes, base_offset, last_offset)
        before = self._by_partition.get(tp)
        self._by_partition[tp] = result if before is None else before.plus(result)

    def take(self) -> dict[TopicPartition, WriteResult]:
        """Return all of it, which counts no more."""
        results, self._by_partition = self._by_partition, {}
        return results
