"""Every item that can be measured, as data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from clients import CONFLUENT, KAFKA_PYTHON, ClientRead
from coldstart import SmallWork
from connectors import CEILING, JVM, JVM_TUNED, OURS
from datasets import Dataset, Log
from idle import Idle
from item import Item
from memory import Memory, batch_read, stream_read
from planning import Planning
from reads import BatchRead, into_noop, into_sum
from rig import UNIX_SOCKETS
from runs import Unit
from streams import AvailableNow, Trickle
from typed_items import typed_items
from writes import BatchWrite, StreamWrite

DEFAULT_RECORDS = 3_000_000
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
_CODEC_NAMES = {codec: "uncompressed" if codec == "none" else codec for codec in CODECS}
_KIB = 1024
#: Rows that are points of the plots of growth, too.
_GROWTH_OF_READS: Mapping[str, Mapping[str, int]] = {
    "read-none-16k-noop": {"partitions": 4, "record_bytes": 100},
    "read-1kib-none-16k-noop": {"record_bytes": _KIB},
}
#: What docs/performance.md shows, in the order of a run: what matters most comes first, as a run has a time limit.
PAGE = (
    *("read-none-16k-noop", "read-lz4-16k-noop", "read-1kib-none-16k-noop", "read-1kib-lz4-16k-noop"),
    *("growth-partitions-1", "growth-partitions-16", "growth-partitions-64"),
    *("growth-record-10kib", "growth-record-100kib"),
    *("write-none", "write-lz4", "write-zstd", "write-exactly-once-tasks"),
    *("typed-avro", "typed-json", "typed-protobuf", "typed-avro-nested", "typed-decode-avro", "typed-avro-pruned"),
    *("typed-avro-write", "typed-avro-write-rows"),
    *("typed-memory-avro", "typed-memory-json", "typed-memory-protobuf", "typed-memory-nested-avro"),
    *("stream-noop", "trickle-4p-uds", "trickle-32p-uds", "cold-start", "cold-available-now"),
    *("read-none-16k-sum", "read-lz4-16k-sum", "read-none-256k-noop", "read-zstd-16k-noop", "read-zstd-256k-noop"),
    *("read-snappy-16k-noop", "read-gzip-16k-noop", "read-1kib-zstd-16k-noop", "read-headers"),
    *("write-snappy", "write-gzip", "growth-executors-1", "growth-executors-2", "stream-64p"),
)


def items(n_records: int = DEFAULT_RECORDS) -> dict[str, Item]:
    """All items by name, for topics of `n_records` (fewer for some items), in the order they run."""
    return {item.name: item for item in _all(n_records)}


def _all(n: int) -> Iterator[Item]:
    yield from _batch_reads(n)
    yield from _growth(n)
    yield from _other_logs(n)
    yield from _streams(n)
    yield from _latencies(n)
    yield from _writes(n)
    yield from typed_items(n)
    yield from _clients(n)
    yield from _planning()
    yield from _memory(n)


def _batch_reads(n: int) -> Iterator[Item]:
    """Every codec, size of batches and query; records of 100 bytes and of 1 KiB."""
    sizes = (
        ("", "100-byte", 100, n, {JVM: 3.0, JVM_TUNED: 1.5}),
        ("1kib-", "1-KiB", _KIB, n // 3, {JVM: 3.0, JVM_TUNED: 1.1}),
    )
    for prefix, size, record_bytes, n_records, goals in sizes:
        for codec, batch_kib in itertools.product(CODECS, (16, 256)):
            dataset = Dataset(n_records=n_records, record_bytes=record_bytes, codec=codec, batch_bytes=batch_kib * _KIB)
            for query_name, query in (("noop", into_noop), ("sum", into_sum)):
                name = f"read-{prefix}{codec}-{batch_kib}k-{query_name}"
                yield Item(
                    name=name,
                    title=f"batch read, {size} records, {_CODEC_NAMES[codec]}, {batch_kib}-KiB batches"
                    + (", sum" if query is into_sum else ""),
                    unit=Unit.RATE,
                    work=BatchRead(dataset=dataset, query=query, with_ceiling=codec == "none"),
                    goals=goals | ({CEILING: 0.7} if name == "read-none-16k-noop" else {}),
                    growth=_GROWTH_OF_READS.get(name, {}),
                    default=not prefix and codec in ("none", "lz4") and batch_kib == 16,
                    seconds=45,
                )
    yield Item(
        name="read-headers",
        title="batch read, 100-byte records with 2 headers each",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n, headers=2), query=into_noop),
        goals={JVM: 3.0, JVM_TUNED: 2.0},
        seconds=60,
    )
    yield Item(
        name="read-value-sum",
        title="batch read, 100-byte records, sum, only the value selected",
        unit=Unit.RATE,
        work=BatchRead(dataset=Dataset(n_records=n), query=into_sum, columns="value binary"),
        goals={JVM: 3.0, JVM_TUNED: 1.5},
        seconds=45,
    )


def _growth(n: int) -> Iterator[Item]:
    """Points of the plots of growth that no other item measures: uncompressed, in batches of 16 KiB where a record fits."""
    for partitions in (1, 16, 64):
        yield Item(
            name=f"growth-partitions-{partitions}",
            title=f"batch read, {partitions} partition{'s' if partitions > 1 else ''}",
            unit=Unit.RATE,
            work=BatchRead(dataset=Dataset(n_records=n, partitions=partitions), query=into_noop, with_ceiling=True),
            goals={JVM: 8.0, JVM_TUNED: 2.0} if partitions == 64 else {},
            growth={"partitions": partitions},
            seconds=180 if partitions == 64 else 70,
        )
    for kib in (10, 100):
        dataset = Dataset(n_records=max(4, n // (3 * kib)), record_bytes=kib * _KIB)
        yield Item(
            name=f"growth-record-{kib}kib",
            title=f"batch read, {kib}-KiB records",
            unit=Unit.RATE,
            work=BatchRead(dataset=dataset, query=into_noop, with_ceiling=True),
            growth={"record_bytes": kib * _KIB},
            seconds=40,
        )
    for executors in (1, 2):
        yield Item(
            name=f"growth-executors-{executors}",
            title=f"batch read, {executors} executor{'s' if executors > 1 else ''} of one core",
            unit=Unit.RATE,
            work=BatchRead(dataset=Dataset(n_records=n), query=into_noop, with_ceiling=True),
            growth={"executors": executors},
            conf={"spark.master": f"local-cluster[{executors},1,1024]"},
            seconds=80,
        )


def _other_logs(n: int) -> Iterator[Item]:
    """Batch reads through TLS, over odd sizes, and of logs with gaps."""
    odd = (
        ("tls", "through TLS, both", Dataset(n_records=n), True),
        ("1b", "1-byte records without a key", Dataset(n_records=n, record_bytes=1), False),
        ("1mb", "1-MB records", Dataset(n_records=max(8, n // 3_000), record_bytes=1_000_000), False),
        ("committed", "read_committed, a fifth aborted", Dataset(n_records=n // 3, log=Log.TRANSACTIONAL), False),
        ("compacted", "a compacted topic", Dataset(n_records=n // 3, log=Log.COMPACTED), False),
    )
    for name, what, dataset, tls in odd:
        yield Item(
            name=f"read-{name}",
            title=f"batch read, {what}",
            unit=Unit.RATE,
            work=BatchRead(dataset=dataset, query=into_noop, tls=tls),
            seconds=60,
        )


def _streams(n: int) -> Iterator[Item]:
    for sink in ("noop", "delta"):
        yield Item(
            name=f"stream-{sink}",
            title=f"AvailableNow over a backlog in 4 partitions into {sink}",
            unit=Unit.RATE,
            work=AvailableNow(dataset=Dataset(n_records=n), sink=sink),
            seconds=60 if sink == "noop" else 150,
        )
    yield Item(
        name="stream-64p",
        title="AvailableNow over a backlog in 64 partitions into noop",
        unit=Unit.RATE,
        work=AvailableNow(dataset=Dataset(n_records=n, partitions=64), sink="noop"),
        goals={JVM: 8.0, JVM_TUNED: 2.0},
        seconds=180,
    )


def _latencies(n: int) -> Iterator[Item]:
    for partitions, goals in ((4, {JVM: 0.95, JVM_TUNED: 1.0}), (32, {JVM: 0.25, JVM_TUNED: 0.5})):
        for sockets in ("uds", "tcp"):
            yield Item(
                name=f"trickle-{partitions}p-{sockets}",
                title=f"micro-batch, 500 records/s over {partitions} partitions"
                + (", workers by TCP" if sockets == "tcp" else ""),
                unit=Unit.LATENCY,
                work=Trickle(partitions=partitions),
                goals=goals if sockets == "uds" else {},
                conf={UNIX_SOCKETS: "true" if sockets == "uds" else "false"},
                warmups=0,
                seconds=180,
            )
    yield Item(
        name="idle",
        title="an idle query over 4 partitions",
        unit=Unit.REQUESTS,
        work=Idle(partitions=4),
        warmups=0,
        seconds=210,
    )
    yield Item(
        name="cold-start",
        title="cold start, from load() to the first row",
        unit=Unit.SECONDS,
        work=SmallWork(dataset=Dataset(n_records=min(n, 100_000)), figure="first_row_s"),
        goals={JVM: 1.5},
        warmups=0,
        seconds=300,
    )
    yield Item(
        name="cold-available-now",
        title="AvailableNow over 1,000 records, its start and end",
        unit=Unit.SECONDS,
        work=SmallWork(dataset=Dataset(n_records=1_000), figure="available_now_s"),
        goals={JVM: 2.0},
        warmups=0,
        seconds=300,
    )


def _writes(n: int) -> Iterator[Item]:
    """The same sizes and codecs, in batches and as streams; batches of given sizes where nothing is compressed, and lz4."""
    sizes = (("", 100, n // 3), ("1kib-", _KIB, n // 10))
    for (prefix, record_bytes, n_records), codec in itertools.product(sizes, CODECS):
        dataset = Dataset(n_records=n_records, record_bytes=record_bytes, codec=codec)
        yield Item(
            name=f"write-{prefix}{codec}",
            title=f"batch write, {record_bytes}-byte records, {_CODEC_NAMES[codec]}",
            unit=Unit.RATE,
            work=BatchWrite(dataset=dataset, with_ceiling=True),
            goals={JVM: 1.25},
            seconds=45,
        )
        yield Item(
            name=f"write-stream-{prefix}{codec}",
            title=f"streaming write, {record_bytes}-byte records, {_CODEC_NAMES[codec]}",
            unit=Unit.RATE,
            work=StreamWrite(dataset=dataset),
            seconds=60,
        )
    for codec, batch_kib in itertools.product(("none", "lz4"), (16, 256)):
        yield Item(
            name=f"write-{codec}-{batch_kib}k",
            title=f"batch write, {_CODEC_NAMES[codec]}, kafka.batch.size of {batch_kib} KiB",
            unit=Unit.RATE,
            work=BatchWrite(dataset=Dataset(n_records=n // 3, codec=codec), batch_bytes=batch_kib * _KIB),
            seconds=45,
        )
    yield Item(
        name="write-exactly-once",
        title="streaming write, exactly once against at least once",
        unit=Unit.RATE,
        work=StreamWrite(dataset=Dataset(n_records=n // 3), exactly_once="driver"),
        goals={OURS: 0.5},
        seconds=45,
    )
    yield Item(
        name="write-exactly-once-tasks",
        title="streaming write, exactly once through the tasks against at least once",
        unit=Unit.RATE,
        work=StreamWrite(dataset=Dataset(n_records=n), exactly_once="tasks"),
        goals={OURS: 0.9},
        seconds=90,
    )


def _clients(n: int) -> Iterator[Item]:
    for ending, n_records, into_arrow in (("arrow", n // 2, True), ("objects", n // 6, False)):
        yield Item(
            name=f"client-{ending}",
            title=f"client alone, into {'Arrow columns' if into_arrow else 'Python objects'}",
            unit=Unit.CORE_RATE,
            work=ClientRead(dataset=Dataset(n_records=n_records), into_arrow=into_arrow),
            goals={CONFLUENT: 10.0, KAFKA_PYTHON: 10.0} if into_arrow else {},
            seconds=110 if into_arrow else 60,
        )


def _planning() -> Iterator[Item]:
    for partitions in (10, 1_000, 10_000):
        yield Item(
            name=f"plan-{partitions}",
            title=f"planning {partitions:,} topic-partitions",
            unit=Unit.SECONDS,
            work=Planning(partitions=partitions),
            limit=2.0 if partitions == 10_000 else None,
            seconds=20 if partitions < 10_000 else 150,
        )


def _memory(n: int) -> Iterator[Item]:
    for name, codec, transfer in (
        ("none", "none", batch_read),
        ("zstd", "zstd", batch_read),
        ("stream", "lz4", stream_read),
    ):
        yield Item(
            name=f"memory-{name}",
            title=f"peak memory of a Python worker, {transfer.__name__.replace('_', ' ')}, {codec}",
            unit=Unit.MEMORY,
            work=Memory(dataset=Dataset(n_records=n, codec=codec), transfer=transfer),
            limit=300.0,
            seconds=25,
        )
