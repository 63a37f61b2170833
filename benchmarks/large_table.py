"""Whether a table's size makes its commits slower: an ingest's commits to a large table beside those to an empty one, in one run.

    python benchmarks/large_table.py                    # 100 million rows, in 100 files
    python benchmarks/large_table.py --rows 10 --format iceberg

The rows are written by deltalake, or pyiceberg, in commits of a million rows. Then both tables get the same files again and again,
in turn, by what an ingest's driver does: it looks at what was committed since, compares the position and commits. So do drivers
that are started anew each time, as those of `--once`, which open the table first. Needs neither brokers nor Spark.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console

from pykafka_wire.ingest.files.parquet import FileWriter
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.files.types import file_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed

MILLION: Final = 1_000_000
RECORDS: Final = 1_000
SCHEMA: Final = pa.schema(
    [
        ("n", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64()), ("_kafka_timestamp", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
#: Commits that load libraries.
_WARM_UP: Final = 3
_TABLE: Final = Table(topic="orders")
console = Console()


def rows_from(first: int, n: int) -> pa.RecordBatch:
    """Return rows of the table, which are those of so many records of one partition from an offset on."""
    ids = np.arange(first, first + n)
    columns = [
        ids, pa.array(np.char.add("customer ", (ids % 5000).astype(str))), ids / 4, pa.array(["orders"] * n),
        np.zeros(n, np.int32), ids, pa.array(1_700_000_000_000_000 + ids, pa.timestamp("us", "UTC")),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array(column).cast(of.type) for column, of in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


class Lake:
    """Tables of one format, in a folder."""

    def __init__(self, folder: Path, table_format: str) -> None:
        self._folder = folder
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        iceberg: dict[str, Any] = {"table_format": "iceberg", "catalog": catalog} if table_format == "iceberg" else {}
        into = "lake.shop" if iceberg else str(folder / "lake")
        self._settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into=into, **iceberg)
        if iceberg:
            from pyiceberg.catalog import load_catalog

            load_catalog("lake", **catalog).create_namespace("shop")

    def create(self, name: str) -> None:
        initial_position = Landed(query="q", micro_batch=-1, topic="orders", topic_id="", start={0: 0}, end={0: 0})
        table = self.open(name)
        if isinstance(table, DeltaFolder):
            table.create(SCHEMA, _TABLE, initial_position)
        else:
            table.create_of(SCHEMA, _TABLE, "q", initial_position)

    def open(self, name: str) -> DeltaFolder | IcebergTable:
        """Return a table as a driver that was just started has it."""
        if self._settings.is_folder:
            return DeltaFolder(self._settings.place(name))
        no_session: Any = None  # of DataFrames
        return IcebergTable(no_session, self._settings, name)

    def tend(self, name: str) -> None:
        """Forget snapshots of Iceberg's, as an ingest's maintenance does."""
        table = self.open(name)
        if isinstance(table, IcebergTable):
            table.expire(7 * 86_400_000)

    def fill(self, name: str, n_millions: int) -> None:
        """Give a table so many million rows, as another program writes them."""
        for number in range(n_millions):
            rows = pa.Table.from_batches([rows_from(10**12 + number * MILLION, MILLION)])
            if self._settings.is_folder:
                from deltalake import write_deltalake

                write_deltalake(self._settings.place(name), rows, mode="append")
            else:
                from pykafka_wire.ingest.tables.iceberg.table import load_table

                load_table(self._settings, name).append(rows)


def commit(table: DeltaFolder | IcebergTable, number: int) -> None:
    """Write a file, as a task does, and make it rows of the table."""
    table.refresh()
    layout = table.layout(pa.schema(file_type(pa.struct(SCHEMA), pa.struct(table.arrow_schema))), _TABLE)
    filesystem, folder = table.folder.open()
    rows = rows_from(number * RECORDS, RECORDS)
    batch = pa.RecordBatch.from_arrays(rows.columns, schema=layout.schema)
    files = list(FileWriter(filesystem, folder, layout).write([batch]))
    start, end = ({0: each * RECORDS} for each in (number, number + 1))
    table.append_files(
        Written(files=files),
        layout,
        Landed(query="q", micro_batch=number, topic="orders", topic_id="", start=start, end=end),
    )


def medians_ms(
    tables: dict[str, Callable[[], DeltaFolder | IcebergTable]], first: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Return the medians of a commit's time and CPU of each table, whose commits are made in turn."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tables}
    for number in range(first, first + rounds):
        for name, opened in tables.items():
            begun = time.perf_counter(), time.process_time()
            commit(opened(), number)
            taken[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    medians = {}
    for name, commits in taken.items():
        seconds, cpu = (statistics.median(each) for each in zip(*commits[_WARM_UP:], strict=True))
        medians[name] = seconds * 1000, cpu * 1000
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100, metavar="MILLIONS")
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), given.format)
        for name in ("large", "small"):
            lake.create(name)
        begun = time.monotonic()
        lake.fill("large", given.rows)
        lake.tend("large")
        console.print(
            f"{given.rows} million rows in {given.rows} files were written in {time.monotonic() - begun:.0f} s"
        )
        running = {name: lake.open(name) for name in ("large", "small")}
        ways: dict[str, dict[str, Callable[[], DeltaFolder | IcebergTable]]] = {
            "a driver that runs": {name: lambda table=table: table for name, table in running.items()},  # type: ignore[misc]
            "a driver that was started": {name: lambda name=name: lake.open(name) for name in running},  # type: ignore[misc]
        }
        for number, (way, tables) in enumerate(ways.items()):
            found = medians_ms(tables, number * given.rounds, given.rounds)
            (large_ms, large_cpu), (small_ms, small_cpu) = found["large"], found["small"]
            console.print(
                f"{given.format}, {way}: {RECORDS:,} rows take {large_ms:.1f} ms beside {given.rows} million rows, "
                f"{small_ms:.1f} ms beside none ({large_ms / small_ms:.2f} times), CPU {large_cpu:.1f} and {small_cpu:.1f} ms "
                f"({large_cpu / small_cpu:.2f} times); medians of {given.rounds - _WARM_UP} commits"
            )


if __name__ == "__main__":
    main()
