"""Every item of work that can be measured, as data: what is run, in which unit, and the ratio that is aimed at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clients import CONFLUENT, KAFKA_PYTHON, ClientRead
from connectors import CEILING, JVM, JVM_TUNED
from planning import Planning
from reads import BatchRead, ReadMemory, into_noop, into_sum
from rig import UNIX_SOCKETS, Dataset, Rig
from runs import Contender, Unit
from streams import AvailableNow, Trickle
from writes import BatchWrite

DEFAULT_RECORDS = 3_000_000
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
_KIB = 1024


class Work(Protocol):
    """Something that contenders can do in turn."""

    def datasets(self) -> tuple[Dataset, ...]:
        """The topics that it reads."""

    def contenders(self, rig: Rig) -> contextlib.AbstractContextManager[Sequence[Contender]]:
        """Those compared, ours first; what they need stands while the context is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One comparison.

    Attributes:
        goals: by contender, the ratio ours / theirs aimed at: a floor where more is better, else a ceiling.
        limit: an absolute ceiling of our own figure, in the unit as displayed.
        default: whether it runs when none is named.
        conf: Spark settings that differ from the rig's.
    """

    name: str
    title: str
    unit: Unit
    work: Work
    goals: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None
    default: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


def items(n_records: int = DEFAULT_RECORDS) -> dict[str, Item]:
    """All items by name, for topics of `n_records` (fewer where an item says so), in the order they run."""
    return {item.name: item for item in _all(n_records)}


def _all(n: int) -> Iterator[Item]:
    yield from _batch_reads(n)
    yield from _streams(n)
    yield from _writes(n)
    yield from _clients(n)
    yield from _planning()
    yield from _memory(n)


def _batch_reads(n: int) -> Iterator[Item]:
    goals = {JVM: 3.0, JVM_TUNED: 1.5}
    queries = {"noop": into_noop, "sum": into_sum}
    for codec in CODECS:
        for batch_kib in (16, 256):
            for query_name, query in queries.items():
                yield Item(
                    name=f"read-{codec}-{batch_kib}k-{query_name}",
                    title=f"batch read, {codec}, {batch_kib}-KiB batches, {query_name}",
                    unit=Unit.RATE,
                    work=BatchRead(
                        dataset=Dataset(n_records=n, codec=codec, batch_bytes=batch_kib * _KIB), query=query
                    ),
                    goals=goals,
                    default=codec in ("none", "lz4") and batch_kib == 16,
                )
    for codec in ("none", "lz4"):
        yield Item(
            name=f"read-1kib-{codec}",
            title=f"batch read, 1-KiB records, {codec}, noop",
            unit=Unit.RATE,
            work=BatchRead(dataset=Dataset(n_records=n // 3, record_bytes=_KIB, codec=codec), query=into_noop),
            goals={JVM: 3.0, JVM_TUNED: 1.1},
        )
    yield Item(
        name="read-headers",
        title="batch read with 2 headers each, noop",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n, headers=2), query=into_noop),
        goals={JVM: 3.0, JVM_TUNED: 2.0},
    )
    yield Item(
        name="read-64p",
        title="batch read, 64 partitions, noop",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n, partitions=64), query=into_noop),
        goals={JVM: 8.0, JVM_TUNED: 2.0},
    )
    yield Item(
        name="read-value-sum",
        title="batch read, sum, only the value asked for",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n), query=into_sum, columns="value binary"),
        goals=goals,
    )
    yield Item(
        name="read-ceiling",
        title="batch read, none, noop, against ready-made batches",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n), query=into_noop, with_ceiling=True),
        goals={CEILING: 0.7},
    )


def _streams(n: int) -> Iterator[Item]:
    for sink in ("noop", "delta"):
        yield Item(
            name=f"stream-{sink}",
            title=f"AvailableNow over a backlog into {sink}",
            unit=Unit.RATE,
            work=AvailableNow(dataset=Dataset(n_records=n), sink=sink),
        )
    yield Item(
        name="stream-64p",
        title="AvailableNow over a backlog in 64 partitions into noop",
        unit=Unit.RATE,
        work=AvailableNow(dataset=Dataset(n_records=n, partitions=64), sink="noop"),
        goals={JVM: 8.0, JVM_TUNED: 2.0},
    )
    for partitions, goals in ((4, {JVM: 0.95, JVM_TUNED: 1.0}), (32, {JVM: 0.25, JVM_TUNED: 0.5})):
        for sockets in ("uds", "tcp"):
            yield Item(
                name=f"trickle-{partitions}p-{sockets}",
                title=f"micro-batch, 500 records/s over {partitions} partitions, workers by {sockets}",
                unit=Unit.LATENCY,
                work=Trickle(partitions=partitions),
                goals=goals if sockets == "uds" else {},
                conf={UNIX_SOCKETS: "true" if sockets == "uds" else "false"},
            )


def _writes(n: int) -> Iterator[Item]:
    for codec in CODECS:
        yield Item(
            name=f"write-{codec}",
            title=f"batch write, {codec}",
            unit=Unit.RATE,
            work=BatchWrite(dataset=Dataset(n_records=n // 3, codec=codec)),
            goals={JVM: 1.25},
        )
    yield Item(
        name="write-1kib",
        title="batch write, 1-KiB records, lz4",
        unit=Unit.RATE,
        work=BatchWrite(dataset=Dataset(n_records=n // 10, record_bytes=_KIB, codec="lz4")),
        goals={JVM: 1.25},
    )
    yield Item(
        name="write-ceiling",
        title="batch write, none, against a sink that drops its batches",
        unit=Unit.RATE,
        work=BatchWrite(dataset=Dataset(n_records=n // 3), with_ceiling=True),
    )


def _clients(n: int) -> Iterator[Item]:
    for into_arrow, ending in ((True, "arrow"), (False, "objects")):
        yield Item(
            name=f"client-{ending}",
            title=f"client alone, into {'Arrow columns' if into_arrow else 'Python objects'}",
            unit=Unit.CORE_RATE,
            work=ClientRead(dataset=Dataset(n_records=n // 6), into_arrow=into_arrow),
            goals={CONFLUENT: 10.0, KAFKA_PYTHON: 10.0} if into_arrow else {},
        )


def _planning() -> Iterator[Item]:
    for partitions in (10, 1_000, 10_000):
        yield Item(
            name=f"plan-{partitions}",
            title=f"planning {partitions:,} topic-partitions",
            unit=Unit.SECONDS,
            work=Planning(partitions=partitions),
            limit=2.0 if partitions == 10_000 else None,
        )


def _memory(n: int) -> Iterator[Item]:
    for codec in ("none", "zstd"):
        yield Item(
            name=f"memory-{codec}",
            title=f"peak memory of a Python worker, batch read, {codec}",
            unit=Unit.MEMORY,
            work=ReadMemory(dataset=Dataset(n_records=n, codec=codec)),
            limit=300.0,
        )
