"""Profiles a reading task: one process does a task's work under cProfile, without Spark.

    .venv/bin/python benchmarks/profile_read.py --codec lz4 --records 1000000
    .venv/bin/python benchmarks/profile_read.py --typed avro

Phases are wall and CPU time: *waiting and receiving* (in the fetcher, until a response's frame is complete), *decoding*,
*typed columns* (values of a format into columns), *building batches* (the columns that Spark asks for), *Arrow IPC* (what
Spark's worker does with them, here into memory).
The functions listed below them are cProfile's, of a pass of its own, because a profiled pass is slower.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from datasets import Dataset
from items import CODECS
from pyspark.sql.types import StructType
from rich.console import Console
from rig import Rig
from typed_datasets import FLAT, NESTED, TypedDataset, ValueFormat

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.source import task_reader
from pykafka_wire.source.typed_decoding import ColumnDecoder
from pykafka_wire.wire.fetch import fetched_records

#: What --typed takes.
TYPED: Final = {
    "avro": (ValueFormat.AVRO, FLAT),
    "avro-nested": (ValueFormat.AVRO, NESTED),
    "json": (ValueFormat.JSON, FLAT),
    "protobuf": (ValueFormat.PROTOBUF, FLAT),
}


class Phases:
    """Wall and CPU seconds by phase; a phase inside another one is counted in both."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time added to phase `name`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.add(name, time.perf_counter() - wall, time.process_time() - cpu)

        return call

    def add(self, name: str, wall_s: float, cpu_s: float) -> None:
        before = self.seconds.get(name, (0.0, 0.0))
        self.seconds[name] = (before[0] + wall_s, before[1] + cpu_s)


def batches(options: dict[str, str], schema: str) -> Iterator[Any]:
    """The Arrow batches of every input partition, one task after another."""
    source = PykafkaWireDataSource(options)
    columns = schema or source.schema()
    reader = source.reader(StructType.fromDDL(columns) if isinstance(columns, str) else columns)
    for partition in reader.partitions():
        yield from reader.read(partition)


def drain(options: dict[str, str], schema: str, write: Callable[[Any, Any], None]) -> int:
    """The number of records read; each batch goes through Arrow IPC into a buffer that is emptied at once."""
    n_records = 0
    for batch in batches(options, schema):
        write(pa.BufferOutputStream(), batch)
        n_records += batch.num_rows
    return n_records


def write_ipc(sink: Any, batch: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def measure(options: dict[str, str], schema: str, console: Console) -> None:
    """One plain pass with phases, printed in records per second and shares."""
    phases = Phases()
    replaced = (
        (fetched_records, "decode", "decoding"),
        (ColumnDecoder, "columns", "typed columns"),
        (task_reader, "record_batch", "building batches"),
    )
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, phase in replaced:
        setattr(owner, name, phases.timed(phase, getattr(owner, name)))
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        n_records = drain(options, schema, phases.timed("Arrow IPC", write_ipc))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
    known_wall, known_cpu = (sum(spent[i] for spent in phases.seconds.values()) for i in (0, 1))
    phases.add("waiting and receiving", wall - known_wall, cpu - known_cpu)
    console.print(f"{n_records:,} records in {wall:.2f} s: {n_records / wall / 1e6:.2f} million/s, {cpu:.2f} s of CPU")
    for name, (wall_s, cpu_s) in phases.seconds.items():
        console.print(
            f"  {name:24} {wall_s:6.2f} s wall ({wall_s / wall:4.0%})  {cpu_s:6.2f} s CPU ({cpu_s / cpu:4.0%})"
            f"  {cpu_s / n_records * 1e9:6.0f} ns of CPU a record"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Profile of a reading task; see the module's text.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--headers", type=int, default=0)
    parser.add_argument("--typed", choices=TYPED, help="typed orders in lz4, in place of plain records")
    parser.add_argument("--schema", default="", help="what a query asks for with .schema(…)")
    parser.add_argument("--lines", type=int, default=25, help="functions shown")
    given = parser.parse_args()
    dataset: Dataset | TypedDataset = Dataset(
        n_records=given.records,
        record_bytes=given.record_bytes,
        codec=given.codec,
        batch_bytes=given.batch_bytes,
        partitions=given.partitions,
        headers=given.headers,
    )
    if given.typed:
        value_format, order = TYPED[given.typed]
        dataset = TypedDataset(
            n_records=given.records, order=order, value_format=value_format, partitions=given.partitions
        )
    console = Console(width=None if sys.stdout.isatty() else 140)
    with Rig() as rig:
        options = {
            "kafka.bootstrap.servers": rig.bootstrap_servers,
            "subscribe": rig.topic(dataset),
            "includeheaders": str(given.headers > 0).lower(),
        }
        if isinstance(dataset, TypedDataset):
            options |= {name.lower(): value for name, value in dataset.read_options(rig).items()}
        for _ in range(3):  # the first pass loads code and fills the page cache
            measure(options, given.schema, console)
        profile = cProfile.Profile()
        profile.runcall(drain, options, given.schema, write_ipc)
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(given.lines)
        console.print(text.getvalue(), highlight=False)


if __name__ == "__main__":
    main()
