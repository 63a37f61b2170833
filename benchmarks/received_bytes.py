"""Bytes that brokers send for each record that is read, ours and the JVM connector's: rate-limited streams, splits, first rows.

    sudo unshare --net sh -c 'ip link set lo up && exec .venv/bin/python benchmarks/received_bytes.py'

The loopback interface counts, so run it in a network namespace of its own, where nothing but the broker, Spark and its workers is.
Workers talk to Spark over Unix sockets, and one program writes the topic before anything is counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from connectors import CONNECTORS, JVM, OURS, Connector
from datasets import Dataset
from rig import Rig
from streams import await_batches, noop_query

_INTERFACES = Path("/proc/net/dev")
_LIMITS = (2_000, 10_000, 100_000)
_SPLITS = (20, 100)
#: A stream's first micro-batches start workers.
_WARM_UP = 4
#: Micro-batches that are all read.
_MOST_COUNTED = 50


def streamed(
    rig: Rig, connector: Connector, options: Mapping[str, str], limit: int, seconds: float, n_records: int
) -> tuple[int, float, float]:
    """(records, bytes from loopback, seconds) of the micro-batches of a stream after its first ones.

    Of few large micro-batches the bytes of all count, the first ones too: the bounds of a part are only known to a fraction of one.
    """
    reads = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
    began = _received()
    with noop_query(rig, connector, reads) as query:
        await_batches(query, _WARM_UP)
        before, until = _state(query), time.monotonic() + seconds
        # A look at the progress goes over the loopback interface, too.
        while not _has_read_all(query, n_records) if n_records <= _MOST_COUNTED * limit else time.monotonic() < until:
            time.sleep(0.5)
        after = (n_records, _received(), time.monotonic()) if _has_read_all(query, n_records) else _state(query)
    n, n_bytes, took_s = (late - early for late, early in zip(after, before, strict=True))
    if after[0] >= n_records:
        n_bytes = (after[1] - began) * n / n_records
    return int(n), n_bytes, took_s


def _has_read_all(query: object, n_records: int) -> bool:
    return sum(report.numInputRows for report in query.recentProgress) >= n_records  # type: ignore[attr-defined]


def _received() -> float:
    """Bytes through the loopback interface so far."""
    (line,) = (line for line in _INTERFACES.read_text().splitlines() if line.strip().startswith("lo:"))
    return float(line.split()[1])


def _state(query: object) -> tuple[int, float, float]:
    """At the end of a micro-batch, as near as can be told: records read so far, bytes, time."""
    n = len(query.recentProgress)  # type: ignore[attr-defined]  # pyspark is not checked
    while len(reports := query.recentProgress) == n:  # type: ignore[attr-defined]
        time.sleep(0.001)
    return sum(report.numInputRows for report in reports), _received(), time.monotonic()


def batch(
    rig: Rig, connector: Connector, options: Mapping[str, str], run: Callable[[object], int]
) -> tuple[int, float, float]:
    """The same of a batch read."""
    frame = connector.reader(rig.spark.read, options).load()
    began, before = time.monotonic(), _received()
    n = run(frame)
    time.sleep(0.2)  # what is still in flight is received too
    return n, _received() - before, time.monotonic() - began


def _all_rows(frame: object) -> int:
    frame.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
    return 0


def _first_rows(frame: object) -> int:
    return len(frame.limit(10).collect())  # type: ignore[attr-defined]


def measurements(
    rig: Rig, dataset: Dataset, limits: Sequence[int], splits: Sequence[int], seconds: float
) -> Iterator[tuple[str, str, int, float, float]]:
    options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(dataset)}
    ours, jvm = (next(connector for connector in CONNECTORS if connector.name == name) for name in (OURS, JVM))
    for connector in (ours, jvm):  # starts workers
        batch(rig, connector, {**options, "endingOffsets": "latest"}, _first_rows)
    for limit in limits:
        for connector in (ours, jvm):
            n, n_bytes, took_s = streamed(rig, connector, options, limit, seconds, dataset.n_records)
            yield f"maxOffsetsPerTrigger {limit}", connector.name, n, n_bytes, took_s * limit
    for split in splits:
        for connector in (ours, jvm):
            _, n_bytes, took_s = batch(rig, connector, {**options, "minPartitions": str(split)}, _all_rows)
            yield f"minPartitions {split}", connector.name, dataset.n_records, n_bytes, took_s
    for connector in (ours, jvm):
        _, n_bytes, took_s = batch(rig, connector, options, _first_rows)
        yield "limit(10), bytes", connector.name, 1, n_bytes, took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024)
    parser.add_argument("--limits", type=int, nargs="*", default=_LIMITS)
    parser.add_argument("--splits", type=int, nargs="*", default=_SPLITS)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    dataset = Dataset(n_records=options.records, partitions=options.partitions, batch_bytes=options.batch_bytes)
    with Rig() as rig:
        for name, connector, n, n_bytes, time_s in measurements(
            rig, dataset, options.limits, options.splits, options.seconds
        ):
            rate = f"{n / time_s:8.2f} /s" if time_s else ""
            print(f"{name:30} {connector:15} {n_bytes / max(1, n):12.1f} bytes/record {rate}", flush=True)


if __name__ == "__main__":
    main()
