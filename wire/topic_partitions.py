"""Names of places in a Kafka cluster: a topic, a topic-partition, and a half-open range of its offsets.

Owns these value types, and how topics are named in texts; the types are picklable and hashable, and cross process borders.
"""

from __future__ import annotations

import base64
import difflib
import heapq
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

TopicT = TypeVar("TopicT", str, uuid.UUID)
#: The topic id where brokers have none (before Kafka 2.8), and Kafka's null for uuids.
ZERO_UUID: Final = uuid.UUID(int=0)


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
        """Return the width of the range in offsets, an upper bound on its records."""
        return max(0, self.end_offset - self.start_offset)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"


def partitions_by_topic(partitions: Iterable[tuple[TopicT, int]]) -> dict[TopicT, list[int]]:
    """Return partition numbers grouped by topic, or by a topic's id, as requests want them."""
    grouped: dict[TopicT, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return topic-partitions by topic, as requests want them."""
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Return a topic's id as Kafka's tools print it: 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_new_topic(text: str) -> tuple[str, int | None]:
    """Return the name and the partitions of a topic to be created, ``NAME`` or ``NAME:PARTITIONS``. No topic has a colon in its
    name.

    Raises:
        ValueError: it is neither.
    """
    name, colon, partitions = text.partition(":")
    if not name or (colon and re.fullmatch("0*[1-9][0-9]{0,8}", partitions) is None):
        raise ValueError(f"{text}: use NAME or NAME:PARTITIONS")
    return name, int(partitions) if colon else None


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the known topic names that ``name`` may be a typing error of, the nearest first.

    Upper and lower case count as alike.
    """
    wanted = name.lower()
    by_lowered = {name.lower(): name for name in known}
    # difflib would take seconds for a cluster's 20,000 topics: it compares those that share most pairs of letters.
    pairs = {wanted[i : i + 2] for i in range(len(wanted) - 1)}
    candidates = heapq.nlargest(50, by_lowered, key=lambda name: sum(pair in name for pair in pairs))
    return [by_lowered[name] for name in difflib.get_close_matches(wanted, candidates, n=3, cutoff=0.75)]
