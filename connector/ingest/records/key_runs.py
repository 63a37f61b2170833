"""Splits a range where the columns of its keys change, so that earlier changes are landed first.

Knows neither Spark nor tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from pykafka_wire.ingest.records.ranges import TopicRange


class KeyRun(Protocol):
    """A run of successive records in a partition whose keys have the same columns; its place is that of its first record.

    Attributes:
        names: the names of the key columns, sorted.
    """

    partition: int
    offset: int
    timestamp: object
    names: list[str]


def split_by_runs(topic_range: TopicRange, runs: Iterable[KeyRun]) -> list[TopicRange]:
    """Split a range so that the keys of each piece have the same columns.

    The piece with the earliest run comes first; runs of the same columns in other partitions belong to the same piece.

    Args:
        runs: all runs of the range, by partition and offset.
    """
    waiting: dict[int, list[KeyRun]] = {}
    for run in runs:
        waiting.setdefault(run.partition, []).append(run)
    ranges, start = [], dict(topic_range.start)
    while waiting:
        first: KeyRun = min(
            (in_order[0] for in_order in waiting.values()), key=lambda run: (run.timestamp, run.partition)
        )
        end = dict(start)
        for partition in [p for p, in_order in waiting.items() if in_order[0].names == first.names]:
            rest = waiting[partition][1:]
            end[partition] = rest[0].offset if rest else topic_range.end[partition]
            waiting[partition] = rest
        waiting = {partition: in_order for partition, in_order in waiting.items() if in_order}
        ranges.append(replace(topic_range, start=start, end=end if waiting else dict(topic_range.end)))
        start = end
    return ranges or [topic_range]
