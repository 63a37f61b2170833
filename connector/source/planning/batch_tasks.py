"""The tasks of a batch: its ranges, split and packed into input partitions.

Owns what brokers are asked for that: sizes of records, leaders. How ranges are split and packed is
:mod:`~pykafka_wire.source.planning.range_packing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.source.planning.range_packing import pack_ranges, split_ranges, spread_leaders
from pykafka_wire.source.planning.record_size_estimates import RecordSizes
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

#: Leaders are known from the look-ups before. An unknown one affects only the order of tasks, so planning does not wait for it.
_LEADERS_MS: Final = 1_000


def plan_input_partitions(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    sizes: RecordSizes,
    query: str = "",
    reader_schemas: Mapping[str, Any] | None = None,
) -> list[KafkaInputPartition]:
    """Input partitions for these ranges, as ``minPartitions`` and ``maxRecordsPerPartition`` ask; each has ``reader_schemas``."""
    pieces = split_ranges(ranges, max_records=options.max_records_per_partition, min_partitions=options.min_partitions)
    groups: Sequence[Sequence[OffsetRange]] = pack_ranges(
        pieces,
        bytes_per_offset=sizes.estimate(pieces).__getitem__,
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
    )
    if len(groups) > 1:
        soon = Deadline.after_ms(_LEADERS_MS)

        def leader(tp: TopicPartition) -> int:
            try:
                return cluster.leader(tp, deadline=soon)[0]
            except WireError:
                return -1  # the task that reads it waits for a leader, or reports the error

        groups = spread_leaders(groups, leader)
    return [KafkaInputPartition(group, query, reader_schemas) for group in groups]
