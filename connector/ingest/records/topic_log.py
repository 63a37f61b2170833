"""What brokers say of a topic's log, where a table is compared with it, or begins in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.source.planning.offset_lookups import earliest_offsets, latest_offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import describe_configs_of
from pykafka_wire.wire.errors import BrokerError, UnknownTopicError
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition, topic_id_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLog:
    """The first offset of a range's partitions, and the end of their logs; of all partitions where the range names none. Nothing
    of a topic that was deleted, or created again."""

    first: Mapping[int, int]
    end: Mapping[int, int]
    is_compacted: bool

    @classmethod
    def of(cls, options: Mapping[str, str], part: TopicRange) -> TopicLog:
        settings = ClientSettings.from_options({name.removeprefix("kafka."): value for name, value in options.items()})
        with Cluster(settings) as cluster:
            try:
                topic = cluster.metadata.topics([part.topic])[part.topic]
            except UnknownTopicError:
                return cls(first={}, end={}, is_compacted=False)
            is_other = part.topic_id and topic.topic_id.int and part.topic_id != topic_id_text(topic.topic_id)
            there = () if is_other else topic.partitions
            wanted = [TopicPartition(part.topic, p) for p in part.end or there if p in there]
            return cls(
                first={tp.partition: offset for tp, offset in earliest_offsets(cluster, wanted).items()},
                end={
                    tp.partition: end.offset for tp, end in latest_offsets(cluster, wanted, "read_uncommitted").items()
                },
                is_compacted=_is_compacted(cluster, part.topic),
            )

    def kept(self, part: TopicRange) -> TopicRange:
        """Return what of a range the topic still has."""
        start = {p: min(end, max(self.first.get(p, end), part.start.get(p, 0))) for p, end in part.end.items()}
        return replace(part, start=start)


def kept_range(options: Mapping[str, str], part: TopicRange) -> TopicRange:
    """Return what of a range its topic still has; nothing, if it was deleted or created again."""
    return TopicLog.of(options, part).kept(part)


def has_records(options: Mapping[str, str], topic: str) -> bool:
    """Return whether there is anything in a topic's log."""
    log = TopicLog.of(options, TopicRange(topic=topic, topic_id="", start={}, end={}))
    return log.first != log.end


def may_be_compacted(options: Mapping[str, str], topic: str) -> bool:
    """Return whether a topic may lack records between others; also where nobody may ask."""
    settings = ClientSettings.from_options({name.removeprefix("kafka."): value for name, value in options.items()})
    with Cluster(settings) as cluster:
        return _is_compacted(cluster, topic, unknown=True)


def _is_compacted(cluster: Cluster, topic: str, *, unknown: bool = False) -> bool:
    try:
        configs = {config.name: config.value for config in describe_configs_of(cluster, topic)}
    except BrokerError:  # not allowed: then nothing explains what compaction removed
        return unknown
    return "compact" in (configs.get("cleanup.policy") or "")
