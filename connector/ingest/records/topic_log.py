"""A topic's log on the brokers: compared with a table, divided in time, or read to find where a new table begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pykafka_wire.ingest.records.ranges import TopicRange, middle_in_time
from pykafka_wire.source.planning.offset_lookups import diverging_offsets, earliest_offsets, latest_offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import describe_configs_of, list_offsets
from pykafka_wire.wire.errors import BrokerError, UnknownTopicError
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition, topic_id_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLog:
    """The first offsets and the end offsets of a range's partitions, or of all partitions if the range names none. Empty for a
    topic that was deleted or created again."""

    first: Mapping[int, int]
    end: Mapping[int, int]
    is_compacted: bool

    @classmethod
    def of(cls, options: Mapping[str, str], topic_range: TopicRange) -> TopicLog:
        with Cluster(_client_settings(options)) as cluster:
            try:
                topic = cluster.metadata.topics([topic_range.topic])[topic_range.topic]
            except UnknownTopicError:
                return cls(first={}, end={}, is_compacted=False)
            is_other = (
                topic_range.topic_id and topic.topic_id.int and topic_range.topic_id != topic_id_text(topic.topic_id)
            )
            there = () if is_other else topic.partitions
            wanted = [TopicPartition(topic_range.topic, p) for p in topic_range.end or there if p in there]
            return cls(
                first={tp.partition: offset for tp, offset in earliest_offsets(cluster, wanted).items()},
                end={
                    tp.partition: end.offset for tp, end in latest_offsets(cluster, wanted, "read_uncommitted").items()
                },
                is_compacted=_is_compacted(cluster, topic_range.topic),
            )

    def kept(self, topic_range: TopicRange) -> TopicRange:
        """Return the part of a range that the topic still has."""
        start = {
            p: min(end, max(self.first.get(p, end), topic_range.start.get(p, 0))) for p, end in topic_range.end.items()
        }
        return replace(topic_range, start=start)


def kept_range(options: Mapping[str, str], topic_range: TopicRange) -> TopicRange:
    """Return the part of a range that its topic still has; empty if the topic was deleted or created again."""
    return TopicLog.of(options, topic_range).kept(topic_range)


def has_records(options: Mapping[str, str], topic: str) -> bool:
    """Return whether a topic's log has any offsets."""
    log = TopicLog.of(options, TopicRange(topic=topic, topic_id="", start={}, end={}))
    return log.first != log.end


def truncated_offsets(
    options: Mapping[str, str], topic: str, position: Mapping[int, int], epochs: Mapping[int, int]
) -> dict[int, int]:
    """Return where logs of a topic were truncated below a position, by partition, also if a log has grown again (KIP-320).

    Args:
        epochs: the leader epochs of the position, by partition. Other partitions are not compared.
    """
    if not epochs:
        return {}
    places = {TopicPartition(topic, p): Position(position[p], epoch) for p, epoch in epochs.items()}
    return {
        tp.partition: end for tp, end in diverging_offsets(shared_cluster(_client_settings(options)), places).items()
    }


def middle_of_log(options: Mapping[str, str], topic_range: TopicRange) -> Mapping[int, int] | None:
    """Return where a moment divides a range, as :func:`middle_in_time`. Brokers look the moments up, so no record is read."""
    cluster = shared_cluster(_client_settings(options))
    partitions = [each.topic_partition for each in topic_range.of_partitions]

    def offsets_at(moment: int) -> dict[int, int]:
        listed = list_offsets(cluster, dict.fromkeys(partitions, moment))
        return {tp.partition: found.offset for tp, found in listed.items() if found.offset >= 0}

    return middle_in_time(topic_range, offsets_at)


def _client_settings(options: Mapping[str, str]) -> ClientSettings:
    return ClientSettings.from_options({name.removeprefix("kafka."): value for name, value in options.items()})


def may_be_compacted(options: Mapping[str, str], topic: str) -> bool:
    """Return whether compaction may have removed records of a topic; also true if the brokers do not allow the question."""
    with Cluster(_client_settings(options)) as cluster:
        return _is_compacted(cluster, topic, unknown=True)


def _is_compacted(cluster: Cluster, topic: str, *, unknown: bool = False) -> bool:
    try:
        configs = {config.name: config.value for config in describe_configs_of(cluster, topic)}
    except BrokerError:  # not allowed to read the topic's configuration
        return unknown
    return "compact" in (configs.get("cleanup.policy") or "")
