"""The offsets in a query's checkpoint: how far each topic-partition was read, as versioned JSON.

Spark stores the JSON, compares it as text, and hands it back after a restart, maybe to a newer version of this package:
the format is a promise. Version 1::

    {"version": 1,
     "offsets":   {"orders": {"0": 1200, "1": 980}},   next offset to read, per topic-partition
     "epochs":    {"orders": {"0": 4, "1": 4}},        leader epoch when that offset was planned; absent if unknown
     "topic_ids": {"orders": "u8lFmrR3SRiXzcHcDpYZ2w"}, absent where brokers have none
     "query": "…", "group": "…",                       made once, carried for the query's life
     "starts":    {"orders": {"0": 0}},                resolved starts of partitions that begin with this batch
     "dropped":   [{"topic": "old", "id": "…", "offsets": {"0": 7}, "epochs": {"0": 4}}],   topics that were lost, in the order of
                                                       that, with the leader epochs that are known; absent if none
     "reader_schemas": {"value": {"format": "avro", "id": 17, "subject": "orders-value"}},   of typed columns, absent if none
     "record_sizes": {"orders": 118},                  bytes per offset, absent where the tasks do not depend on it
     "initial": true}                                  only in the offset before batch 0

``starts`` makes the replay of a first batch read the same range: Spark logs only the ends of batches, and would ask a
new process for the start of batch 0 once more, when ``latest`` has moved on. ``dropped`` makes a topic that is back under
the same id go on where it was, in place of being read twice. ``reader_schemas`` makes a replay decode as the first run did:
the registry's id, or the text that the options gave (``schema``), and a Protobuf message's name (``message``). ``record_sizes``
makes a replay divide its ranges among tasks as the first run did. An older version of this package ignores these three.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition, topic_id_text

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTopic:
    """A topic, or partitions of it, that was lost while ``failOnDataLoss`` was false: the next offset to read, and the leader epoch
    when that offset was planned, by partition."""

    topic: str
    topic_id: uuid.UUID
    offsets: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffsets:
    """Offsets of a streaming query at one point of its life; see the module for each field."""

    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    dropped: tuple[DroppedTopic, ...] = ()
    reader_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as source.reader_schema makes them
    record_sizes: Mapping[str, int] = field(default_factory=dict)
    query: str = ""
    group: str = ""
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the checkpoint's JSON, the same text for equal offsets."""
        document: dict[str, Any] = {"version": VERSION, "offsets": nest_by_topic(self.offsets)}
        if self.epochs:
            document["epochs"] = nest_by_topic(self.epochs)
        if self.topic_ids:
            document["topic_ids"] = {topic: topic_id_text(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        if self.query:
            document["query"] = self.query
        if self.group:
            document["group"] = self.group
        if self.starts:
            document["starts"] = nest_by_topic(self.starts)
        if self.dropped:
            document["dropped"] = [
                {
                    "topic": topic.topic,
                    "id": topic_id_text(topic.topic_id),
                    "offsets": _by_text(topic.offsets),
                }
                | ({"epochs": _by_text(topic.epochs)} if topic.epochs else {})
                for topic in self.dropped
            ]
        if self.reader_schemas:
            document["reader_schemas"] = {name: dict(self.reader_schemas[name]) for name in sorted(self.reader_schemas)}
        if self.record_sizes:
            document["record_sizes"] = {topic: self.record_sizes[topic] for topic in sorted(self.record_sizes)}
        if self.initial:
            document["initial"] = True
        return document

    @classmethod
    def from_json(cls, document: Any) -> QueryOffsets:  # Any: a checkpoint may hold anything
        """Return offsets from a checkpoint's JSON.

        Raises:
            OffsetsError: it is not ours, is damaged, or was written by a newer version.
        """
        if not is_source_offset(document):
            raise OffsetsError(
                "the checkpoint contains offsets of another source: give this query a checkpoint of its own, and set "
                "startingOffsets to where it should start."
            )
        version = document["version"]
        if version != VERSION:
            raise OffsetsError(
                f"the checkpoint has offsets of version {version!r}, and this pykafka-wire reads version {VERSION}: "
                "upgrade pykafka-wire on the driver to the version that wrote it."
            )
        try:
            return cls(
                offsets=_flatten(document["offsets"]),
                epochs=_flatten(document.get("epochs", {})),
                topic_ids={topic: decode_uuid(text) for topic, text in document.get("topic_ids", {}).items()},
                starts=_flatten(document.get("starts", {})),
                dropped=tuple(
                    DroppedTopic(
                        topic=str(topic["topic"]),
                        topic_id=decode_uuid(topic["id"]),
                        offsets=_by_number(topic["offsets"]),
                        epochs=_by_number(topic.get("epochs", {})),
                    )
                    for topic in document.get("dropped", ())
                ),
                reader_schemas={
                    str(name): dict(schemas) for name, schemas in document.get("reader_schemas", {}).items()
                },
                record_sizes={str(topic): int(size) for topic, size in document.get("record_sizes", {}).items()},
                query=str(document.get("query", "")),
                group=str(document.get("group", "")),
                initial=bool(document.get("initial", False)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OffsetsError(f"the checkpoint's offsets are damaged ({error}): {str(document)[:200]}") from error


def ranges_read(start: QueryOffsets, end: QueryOffsets) -> list[OffsetRange]:
    """Return what a micro-batch reads of each topic-partition; a log that was shortened has an end before its start."""
    return [
        OffsetRange(
            topic=tp.topic,
            partition=tp.partition,
            start_offset=end.starts.get(tp, start.offsets.get(tp, 0)),
            end_offset=end_offset,
            leader_epoch=end.epochs.get(tp, -1),
            topic_id=end.topic_ids.get(tp.topic, ZERO_UUID),
        )
        for tp, end_offset in end.offsets.items()
    ]


def is_source_offset(document: Any) -> bool:  # Any: a checkpoint may hold anything
    """Return whether the JSON is an offset of this package's, of any version; a topic of the JVM connector's may be called
    ``version``."""
    return isinstance(document, dict) and "offsets" in document and not isinstance(document.get("version", {}), dict)


def nest_by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return ``{topic: {partition: value}}`` in order of both, as Spark's own connector prints offsets."""
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(values):
        nested.setdefault(topic, {})[str(partition)] = values[TopicPartition(topic, partition)]
    return nested


def _by_text(values: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): values[partition] for partition in sorted(values)}


def _by_number(values: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(value) for partition, value in values.items()}


def _flatten(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(value)
        for topic, partitions in nested.items()
        for partition, value in partitions.items()
    }


def decode_uuid(text: str) -> uuid.UUID:
    """Return the topic id that :func:`~pykafka_wire.wire.topic_partitions.topic_id_text` printed; ValueError for anything else."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
