"""Spark runs a slow task of an ingest twice, on two hosts: both attempts write files, and the table has those of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.connector.sink.drivers import Drivers, fill, on_two_hosts, task_ends

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

N_RECORDS, N_PARTITIONS = 20_000, 4


@pytest.fixture
def drivers(tmp_path: Path, java: None) -> Iterator[Drivers]:
    running = Drivers(tmp_path)
    yield running
    running.close()


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_rows_of_a_task_that_ran_twice_are_there_once(
    drivers: Drivers, kafka: Any, topic: Callable[..., str], tmp_path: Path, table_format: str
) -> None:
    source = topic(N_PARTITIONS)
    fill(kafka.bootstrap_servers, source, N_RECORDS, N_PARTITIONS)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    into = f"'{tmp_path}/lake'" if table_format == "delta" else "'lake.shop'\ntable_format = 'iceberg'"
    if table_format == "iceberg":
        load_catalog("lake", **catalog).create_namespace("shop")
    file, events = tmp_path / "shop.toml", tmp_path / "events"
    file.write_text(
        f"checkpoint = '{tmp_path}/checkpoint'\ntopics = '{source}'\ninto = {into}\n"
        f"[kafka]\n'bootstrap.servers' = '{kafka.bootstrap_servers}'\n"
        + ("" if table_format == "delta" else "[catalog]\n" + "".join(f"{k} = '{v}'\n" for k, v in catalog.items()))
        + f"[[table]]\ntopic = '{source}'\nname = 'numbers'\nformat = 'string'\n"
        + "options = { maxRecordsPerPartition = '2500' }\n"
    )
    events.mkdir()
    with on_two_hosts(tmp_path) as master:
        driver = drivers.run("tests.connector.ingest.speculation_program", str(file), master, str(events))
        assert driver.wait() == 0, driver.output
    if table_format == "delta":
        rows, files = (
            DeltaTable(tmp_path / "lake/numbers").to_pyarrow_table(),
            DeltaTable(tmp_path / "lake/numbers").file_uris(),
        )
    else:
        table = load_catalog("lake", **catalog).load_table("shop.numbers")
        rows, files = table.scan().to_arrow(), [each.file.file_path for each in table.scan().plan_files()]
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(N_RECORDS))
    n_late = len(list(events.glob("late-*")))
    ends = [
        end["Task Info"]["Speculative"] for end in task_ends(events) if end["Task End Reason"]["Reason"] == "Success"
    ]
    assert n_late and ends.count(True) >= n_late, "no speculative copy came before what it copies"
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) >= len(files) + n_late, (
        "the late attempts wrote files, too"
    )
