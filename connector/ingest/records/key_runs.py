"""Where a range is cut because the columns of its keys change: the changes before are landed first.

Knows neither Spark nor tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from pykafka_wire.ingest.ranges import TopicRange


class KeyRun(Protocol):
    """The first of a partition's successive records whose keys have the same columns.

    Attributes:
        names: of the columns, sorted.
    """

    partition: int
    offset: int
    timestamp: object
    names: list[str]


def parts_of_runs(part: TopicRange, runs: Iterable[KeyRun]) -> list[TopicRange]:
    """Cut a range so that the keys of each part have the same columns.

    Of several partitions, the run that begins first goes first, and runs of the same columns with it.

    Args:
        runs: all that the range has, by partition and offset.
    """
    waiting: dict[int, list[KeyRun]] = {}
    for run in runs:
        waiting.setdefault(run.partition, []).append(run)
    parts, start = [], dict(part.start)
    while waiting:
        first: KeyRun = min(
            (in_order[0] for in_order in waiting.values()), key=lambda run: (run.timestamp, run.partition)
        )
        end = dict(start)
        for partition in [p for p, in_order in waiting.items() if in_order[0].names == first.names]:
            rest = waiting[partition][1:]
            end[partition] = rest[0].offset if rest else part.end[partition]
            waiting[partition] = rest
        waiting = {partition: in_order for partition, in_order in waiting.items() if in_order}
        parts.append(replace(part, start=start, end=end if waiting else dict(part.end)))
        start = end
    return parts or [part]
