"""Names of places in a Kafka cluster: a topic-partition, and a half-open range of its offsets.

Owns these value types only; they are picklable and hashable, and cross process borders.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from pykafka_wire.wire.protocol.primitives import ZERO_UUID as ZERO_UUID


class TopicPartition(NamedTuple):
    """One partition of a Kafka topic; prints as Kafka's tools print it, ``topic-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets ``start_offset <= offset < end_offset`` of one topic-partition.

    A range says nothing of how many records it holds: compaction, control batches and aborted transactions leave gaps.

    Attributes:
        leader_epoch: the leader epoch of the partition when the range was planned, -1 if unknown.
        topic_id: the topic's id when the range was planned, :data:`ZERO_UUID` if the brokers have none.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    leader_epoch: int = -1
    topic_id: uuid.UUID = ZERO_UUID

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def n_offsets(self) -> int:
        """Width of the range in offsets, an upper bound on its records."""
        return max(0, self.end_offset - self.start_offset)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"
