"""The tasks of a batch: its ranges, split and packed into input partitions.

Two kinds of partition meet here: a *topic-partition* is Kafka's, an *input partition* is one Spark task's share. Large ranges are
not split unless an option asks for it: the number of Spark's cores is not known here, and a task gets the rows of its
topic-partition in order, on which queries with ``mapInArrow`` or ``foreachPartition`` rely.

A replayed micro-batch must have the same rows in each task: a sink that writes exactly once replaces the lost transaction of a
task by one with equal rows. So the sizes that decide the packing are sampled once, when a micro-batch is planned, and logged in
its end. The leaders decide only the order of the tasks. How ranges are split, packed and ordered are pure functions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.source.planning.record_size_estimates import ASSUMED_BYTES, RecordSizes
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

#: Offsets and bytes that are worth a task of their own. A task over next to nothing takes some 18 ms, in which one core
#: reads some 80,000 records of 100 bytes (see docs/design/speed.md): below these it is cheaper to read several
#: topic-partitions in one task.
TASK_OFFSETS: Final = 250_000
TASK_BYTES: Final = 32 << 20


def split_ranges(
    ranges: Sequence[OffsetRange], *, max_records: int | None = None, min_partitions: int | None = None
) -> list[OffsetRange]:
    """Return ranges split into pieces of at most ``max_records`` offsets. Where these are fewer than ``min_partitions``,
    large pieces are split further, in proportion to their size. Empty ranges are left out."""
    pieces = [r for r in ranges if r.n_offsets > 0]
    if max_records is not None:
        pieces = [piece for r in pieces for piece in _cut(r, math.ceil(r.n_offsets / max_records))]
    if min_partitions is not None and 0 < len(pieces) < min_partitions:
        total = sum(r.n_offsets for r in pieces)
        counts = [max(1, math.floor(r.n_offsets / total * min_partitions)) for r in pieces]
        # What rounding down left over goes where the pieces are largest.
        heap = [(-r.n_offsets / n, i) for i, (r, n) in enumerate(zip(pieces, counts, strict=True))]
        heapq.heapify(heap)
        for _ in range(min_partitions - sum(counts)):
            _, i = heap[0]
            counts[i] += 1
            heapq.heapreplace(heap, (-pieces[i].n_offsets / counts[i], i))
        pieces = [piece for r, n in zip(pieces, counts, strict=True) for piece in _cut(r, n)]
    return pieces


def pack_ranges(
    ranges: Sequence[OffsetRange],
    *,
    bytes_per_offset: Callable[[str], float],
    max_records: int | None = None,
    min_partitions: int | None = None,
) -> list[list[OffsetRange]]:
    """Return ranges grouped into input partitions of about equal size: many small ones share a task.

    Args:
        bytes_per_offset: estimated bytes in the log per offset, by topic.
        max_records: no input partition holds more offsets than this, unless one range alone does.
        min_partitions: at least so many input partitions, as far as there are ranges.
    """
    ranges = [r for r in ranges if r.n_offsets > 0]
    if not ranges:
        return []
    weights = [r.n_offsets * max(1 / TASK_OFFSETS, bytes_per_offset(r.topic) / TASK_BYTES) for r in ranges]
    n_bins = min(len(ranges), max(1, math.ceil(sum(weights)), min_partitions or 1))
    if max_records is not None:
        n_bins = min(len(ranges), max(n_bins, math.ceil(sum(r.n_offsets for r in ranges) / max_records)))
    while True:
        bins = _balance(ranges, weights, n_bins)
        if (
            max_records is None
            or n_bins == len(ranges)
            or all(len(b) == 1 or sum(r.n_offsets for r in b) <= max_records for b in bins)
        ):
            return bins
        n_bins = min(len(ranges), n_bins + max(1, n_bins // 4))


def alternate_leaders(
    groups: Sequence[Sequence[OffsetRange]], leader: Callable[[TopicPartition], int]
) -> list[Sequence[OffsetRange]]:
    """Return input partitions in an order in which those that run side by side begin with different leaders."""
    by_leader: dict[int, list[Sequence[OffsetRange]]] = {}
    for group in groups:
        by_leader.setdefault(leader(group[0].topic_partition), []).append(group)
    turns = itertools.zip_longest(*by_leader.values())
    return [group for turn in turns for group in turn if group is not None]


def _balance(ranges: Sequence[OffsetRange], weights: Sequence[float], n_bins: int) -> list[list[OffsetRange]]:
    """Put the longest first into the emptiest bin: at most a third worse than the best balance there is."""
    bins: list[list[int]] = [[] for _ in range(n_bins)]
    heap = [(0.0, b) for b in range(n_bins)]
    for i in sorted(range(len(ranges)), key=lambda i: -weights[i]):
        load, b = heap[0]
        bins[b].append(i)
        heapq.heapreplace(heap, (load + weights[i], b))
    return [[ranges[i] for i in sorted(b)] for b in bins if b]


def _cut(r: OffsetRange, n: int) -> list[OffsetRange]:
    n = max(1, min(n, r.n_offsets))
    cuts = [r.start_offset + r.n_offsets * i // n for i in range(n + 1)]
    return [replace(r, start_offset=a, end_offset=b) for a, b in itertools.pairwise(cuts)]


#: Leaders are known from the look-ups before. An unknown one affects only the order of tasks, so planning does not wait for it.
_LEADERS_MS: Final = 1_000


def find_record_sizes(options: SourceOptions, ranges: Sequence[OffsetRange], sizes: RecordSizes) -> dict[str, int]:
    """Return bytes per offset for each topic of the ranges; empty where their tasks do not depend on it. May sample the topics."""
    estimates = sizes.estimate(_split(options, ranges))
    return {topic: max(1, round(size)) for topic, size in estimates.items()}


def plan_input_partitions(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    record_sizes: Mapping[str, int],
    query: str = "",
    reader_schemas: Mapping[str, Any] | None = None,
) -> list[KafkaInputPartition]:
    """Return input partitions for these ranges, as ``minPartitions`` and ``maxRecordsPerPartition`` ask; each has
    ``reader_schemas``.

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
