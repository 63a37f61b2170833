"""The tasks of a batch: its ranges, split and packed into input partitions.

Owns what brokers are asked for that: sizes of records, leaders. How ranges are split and packed is
:mod:`~pykafka_wire.source.planning.range_packing`'s.

A replayed micro-batch must have the same rows in each task: a sink that writes exactly once replaces the lost transaction of a task
by one with equal rows. So the sizes that decide the packing are sampled once, when a micro-batch is planned, and logged in its end.
The leaders decide only the order of the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.source.planning.range_packing import alternate_leaders, pack_ranges, split_ranges
from pykafka_wire.source.planning.record_size_estimates import ASSUMED_BYTES, RecordSizes
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

#: Leaders are known from the look-ups before. An unknown one affects only the order of tasks, so planning does not wait for it.
_LEADERS_MS: Final = 1_000


def find_record_sizes(options: SourceOptions, ranges: Sequence[OffsetRange], sizes: RecordSizes) -> dict[str, int]:
    """Bytes per offset for each topic of the ranges; empty where their tasks do not depend on it. May sample the topics."""
    found = sizes.estimate(_split(options, ranges))
    return {topic: max(1, round(size)) for topic, size in found.items()}


def plan_input_partitions(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    record_sizes: Mapping[str, int],
    query: str = "",
    reader_schemas: Mapping[str, Any] | None = None,
) -> list[KafkaInputPartition]:
    """Input partitions for these ranges, as ``minPartitions`` and ``maxRecordsPerPartition`` ask; each has ``reader_schemas``.

    Args:
        record_sizes: of :func:`find_record_sizes`. The same ranges, options and sizes have the same tasks, in some order.
    """
    groups: Sequence[Sequence[OffsetRange]] = pack_ranges(
        _split(options, ranges),
        bytes_per_offset=lambda topic: record_sizes.get(topic, ASSUMED_BYTES),
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
    )
    if len(groups) > 1:
        soon = Deadline.after_ms(_LEADERS_MS)

        def leader(tp: TopicPartition) -> int:
            try:
                return cluster.metadata.leader(tp, deadline=soon)[0]
            except WireError:
                return -1  # the task that reads it waits for a leader, or reports the error

        groups = alternate_leaders(groups, leader)
    return [KafkaInputPartition(group, query, reader_schemas) for group in groups]


def _split(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    return split_ranges(ranges, max_records=options.max_records_per_partition, min_partitions=options.min_partitions)
