"""Where a checkpoint stands: the offsets at the end of a micro-batch, and the offsets that one micro-batch read.

Owns which micro-batch is meant, which sources of a query are Kafka's, and which of several sources has a topic.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pykafka_wire.checkpoints.query_log import LoggedMicroBatch, QueryLog
from pykafka_wire.checkpoints.query_offsets import QueryOffsets, ranges_read
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

ViewT = TypeVar("ViewT")

#: Whether a topic-partition is asked for.
IsWanted = Callable[[TopicPartition], bool]

#: Names that an error lists.
_MAX_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPosition:
    """Where a query stands.

    Attributes:
        batch_id: the micro-batch at whose end it stands, None for the start of a query that has committed none.
        is_committed: false for a micro-batch that was named and is planned only.
        offsets: the wanted topic-partitions, with their leader epochs, topic ids and dropped topics.
        topics: all topics of the checkpoint.
    """

    batch_id: int | None
    is_committed: bool
    offsets: QueryOffsets
    topics: frozenset[str]

    def to_json(self, place: str) -> str:
        """Return the position as text, for an option; ``place`` is the reference that it was found by."""
        return json.dumps(
            {
                "checkpoint": place,
                "micro_batch": self.batch_id,
                "committed": self.is_committed,
                "offsets": self.offsets.to_json(),
            }
        )

    @classmethod
    def from_json(cls, text: str, is_wanted: IsWanted) -> QueryPosition:
        """Return the wanted topic-partitions of a position.

        Raises:
            OffsetsError: the text is damaged.
        """
        try:
            document = json.loads(text)
            batch_id, is_committed = document["micro_batch"], bool(document["committed"])
            offsets = QueryOffsets.from_json(document["offsets"])
        except (ValueError, KeyError, TypeError) as error:
            raise OffsetsError(f"the position of a checkpoint is damaged ({error}): {text[:200]}") from error
        return cls(
            batch_id=batch_id,
            is_committed=is_committed,
            offsets=_merge({"": offsets}, dict.fromkeys(_topics_of(offsets), ""), is_wanted),
            topics=frozenset(_topics_of(offsets)),
        )


def position_at(log: QueryLog, reference: CheckpointReference, is_wanted: IsWanted) -> QueryPosition:
    """Return where the query stands at the micro-batch of ``reference``, its newest committed one by default.

    A query that has committed none stands at its own start.

    Raises:
        OffsetsError: the log has no such micro-batch or source, no Kafka source, or two that have different offsets of a topic.
    """
    batch_id = reference.batch_id
    if batch_id is None and log.committed:
        batch_id = log.committed[-1]
    if batch_id is not None:
        batch = log.micro_batch(batch_id)
        offsets_by_source = _kafka_sources(log, batch, reference)
        is_committed = batch.is_committed
    else:
        offsets_by_source, is_committed = _query_start(log, reference), True
    by_source = {source: _by_topic(offsets, is_wanted) for source, offsets in offsets_by_source.items()}
    chosen = _one_source_each(log, by_source, batch_id, reference)
    topics = {topic for offsets in offsets_by_source.values() for topic in _topics_of(offsets)}
    merged = _merge(offsets_by_source, chosen, is_wanted)
    return QueryPosition(batch_id=batch_id, is_committed=is_committed, offsets=merged, topics=frozenset(topics))


def ranges_of(log: QueryLog, reference: CheckpointReference, is_wanted: IsWanted) -> list[OffsetRange]:
    """Return the offsets that one micro-batch read, or is planned to read, by topic-partition in order.

    Raises:
        OffsetsError: as :func:`position_at`; or the log no longer has the micro-batch before it, at whose end it starts.
    """
    assert reference.batch_id is not None, "the option was checked"
    batch = log.micro_batch(reference.batch_id)
    ends = _kafka_sources(log, batch, reference)
    starts = _starts(log, batch, ends, reference)
    by_source: dict[str, dict[str, list[OffsetRange]]] = {}
    for source, end in ends.items():
        ranges = by_source.setdefault(source, {})
        for r in sorted(ranges_read(starts[source], end), key=lambda r: r.topic_partition):
            if is_wanted(r.topic_partition):
                # A log that was truncated has nothing of the micro-batch.
                kept = replace(r, start_offset=min(r.start_offset, r.end_offset))
                ranges.setdefault(r.topic, []).append(kept)
    chosen = _one_source_each(log, by_source, batch.batch_id, reference)
    return [r for topic, source in sorted(chosen.items()) for r in by_source[source][topic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a query began with a topic.

    Attributes:
        known: the first offset by partition.
        oldest: of the other partitions, where the oldest micro-batch of the log ends: Spark keeps the last
            ``spark.sql.streaming.minBatchesToRetain``.
    """

    known: Mapping[int, int]
    oldest: Mapping[int, int]


def beginning_of(log: QueryLog, batch_id: int, topic: str) -> Beginning:
    """Return where a query of one source began with each partition that it has of a topic at the end of a micro-batch."""

    def of(number: int) -> QueryOffsets:
        return next(source.offsets for source in log.micro_batch(number).sources.values() if source.offsets is not None)

    later = of(batch_id)
    topic_id, here = later.topic_ids.get(topic), {tp.partition for tp in later.offsets if tp.topic == topic}
    positions = _positions_of(later, topic, topic_id)
    begins: dict[int, int] = {}
    for number in range(batch_id - 1, -2, -1):
        if number >= 0 and number not in log.planned:
            break
        earlier = of(number) if number >= 0 else QueryOffsets(offsets={})
        positions = _positions_of(earlier, topic, topic_id)
        begins |= {p: later.starts.get(TopicPartition(topic, p), 0) for p in here if p not in positions}
        later, here = earlier, {p for p in here if p in positions}
        if not here:
            break
    return Beginning(known=begins, oldest={p: positions[p] for p in here})


def _positions_of(offsets: QueryOffsets, topic: str, topic_id: uuid.UUID | None) -> Mapping[int, int]:
    """Return the next offset of each partition of a topic that a query reads, or that it has read and may resume.

    A topic that was created again has another id, so the query has read nothing of it before.
    """
    resumed = [dropped.offsets for dropped in offsets.dropped if (dropped.topic, dropped.topic_id) == (topic, topic_id)]
    read = {}
    if offsets.topic_ids.get(topic) == topic_id:
        read = {tp.partition: offset for tp, offset in offsets.offsets.items() if tp.topic == topic}
    return {**dict(item for each in resumed for item in each.items()), **read}


def _starts(
    log: QueryLog, batch: LoggedMicroBatch, ends: Mapping[str, QueryOffsets], reference: CheckpointReference
) -> dict[str, QueryOffsets]:
    """Return where each source was before a micro-batch, at whose end it is at ``ends``."""
    number = batch.batch_id
    if number == 0:
        return {source: _source_start(log, batch, source) for source in ends}
    earlier = [planned_number for planned_number in log.planned if planned_number < number]
    if not earlier:
        raise OffsetsError(
            f"the checkpoint {log.shown} no longer has micro-batch {number - 1}, at whose end micro-batch {number} starts: Spark "
            "keeps the last spark.sql.streaming.minBatchesToRetain of them (default 100). The first one that can be read is "
            f"{number + 1}."
        )
    if earlier[-1] != number - 1:
        raise OffsetsError(
            f"the checkpoint {log.shown} has no micro-batch {number - 1}, at whose end micro-batch {number} starts, as with "
            f"asyncProgressTrackingEnabled. Read those after {earlier[-1]} together: startingOffsets=checkpoint:"
            f"{reference.with_fragment(earlier[-1], reference.source)} and endingOffsets=checkpoint:{reference}."
        )
    before = {source: logged.offsets for source, logged in log.micro_batch(number - 1).sources.items()}
    # A source without an offset before was added, or had not begun.
    return {source: before.get(source) or _source_start(log, batch, source) for source in ends}


def _query_start(log: QueryLog, reference: CheckpointReference) -> dict[str, QueryOffsets]:
    """Return where each Kafka source of a query started, from its micro-batch 0."""
    if 0 not in log.planned:
        raise OffsetsError(
            f"the query of the checkpoint {log.shown} has "
            + (
                f"no committed micro-batch: name a planned one, as in {reference.with_fragment(log.planned[-1], reference.source)}."
                if log.planned
                else "planned no micro-batch yet, so it has no position: choose another start."
            )
        )
    batch = log.micro_batch(0)
    return {source: _source_start(log, batch, source) for source in _kafka_sources(log, batch, reference)}


def _source_start(log: QueryLog, first: LoggedMicroBatch, source: str) -> QueryOffsets:
    """Return where a Kafka source started; ``first`` is its first micro-batch."""
    offset = first.sources[source]
    if offset.connector == "pykafka-wire" and offset.offsets is not None:
        return replace(offset.offsets, offsets=offset.offsets.starts, epochs={}, dropped=())
    started_at = log.started_at(source)
    if started_at is None:
        raise OffsetsError(
            f"the checkpoint {log.shown} has no sources/{source}/0, where source {source} started: copy the whole folder, or read "
            "the offsets that you know by startingOffsets and endingOffsets."
        )
    return started_at


def _kafka_sources(log: QueryLog, batch: LoggedMicroBatch, reference: CheckpointReference) -> dict[str, QueryOffsets]:
    """Return offsets of the sources that ``reference`` means and that are Kafka's, at the end of a micro-batch."""
    there = ", ".join(f"{name} ({offset.connector})" for name, offset in batch.sources.items())
    chosen = batch.sources
    if reference.source is not None:
        if reference.source not in batch.sources:
            raise OffsetsError(f"the checkpoint {log.shown} has no source {reference.source}: it has {there}.")
        chosen = {reference.source: batch.sources[reference.source]}
    offsets_by_source = {name: offset.offsets for name, offset in chosen.items() if offset.offsets is not None}
    if not offsets_by_source:
        raise OffsetsError(
            f"the checkpoint {log.shown} has no offsets of Kafka's topics in micro-batch {batch.batch_id}, neither "
            f"pykafka-wire's nor those of Spark's own connector: its sources are {there}."
        )
    return offsets_by_source


def _merge(
    offsets_by_source: Mapping[str, QueryOffsets], chosen: Mapping[str, str], is_wanted: IsWanted
) -> QueryOffsets:
    """Return the wanted topic-partitions, each topic's from its source."""
    return QueryOffsets(
        offsets={
            tp: offset
            for source, offsets in offsets_by_source.items()
            for tp, offset in offsets.offsets.items()
            if chosen.get(tp.topic) == source and is_wanted(tp)
        },
        epochs={
            tp: epoch
            for source, offsets in offsets_by_source.items()
            for tp, epoch in offsets.epochs.items()
            if chosen.get(tp.topic) == source and is_wanted(tp)
        },
        topic_ids={
            topic: topic_id
            for source, offsets in offsets_by_source.items()
            for topic, topic_id in offsets.topic_ids.items()
            if chosen.get(topic) == source
        },
        dropped=tuple(
            replace(topic, offsets=kept)
            for source, offsets in offsets_by_source.items()
            for topic in offsets.dropped
            if chosen.get(topic.topic) == source
            and (kept := {p: o for p, o in topic.offsets.items() if is_wanted(TopicPartition(topic.topic, p))})
        ),
    )


def _by_topic(offsets: QueryOffsets, is_wanted: IsWanted) -> dict[str, dict[int, int]]:
    """Return the wanted offsets, those of dropped topics among them."""
    by_topic: dict[str, dict[int, int]] = {}
    dropped = [
        (TopicPartition(topic.topic, p), offset) for topic in offsets.dropped for p, offset in topic.offsets.items()
    ]
    for tp, offset in (*dropped, *offsets.offsets.items()):
        if is_wanted(tp):
            by_topic.setdefault(tp.topic, {})[tp.partition] = offset
    return by_topic


def _topics_of(offsets: QueryOffsets) -> set[str]:
    return {tp.topic for tp in offsets.offsets} | {topic.topic for topic in offsets.dropped}


def _one_source_each(
    log: QueryLog, views: Mapping[str, Mapping[str, ViewT]], batch_id: int | None, reference: CheckpointReference
) -> dict[str, str]:
    """Return the source that has each wanted topic; the first one where all that have it agree."""
    chosen: dict[str, str] = {}
    for source, topics in views.items():
        for topic, view in topics.items():
            other = chosen.setdefault(topic, source)
            if views[other][topic] != view:
                having = [name for name, view in views.items() if topic in view][:_MAX_NAMED]
                raise OffsetsError(
                    f"the checkpoint {log.shown} has different offsets of topic {topic} in its sources {', '.join(having)}: name "
                    f"one, as in {reference.with_fragment(batch_id, having[0])}. pykafka-wire checkpoint {log.shown} shows them."
                )
    return chosen
