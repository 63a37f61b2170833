"""Topics in DuckDB, Polars, Daft and Ray: the code of their pages, run as it stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.connector.deployments.run import environment_with, run
from tests.connector.shown_code import code

N_ORDERS = 10


@pytest.fixture
def orders(topic: Any, outside: Any) -> str:
    name: str = topic(1, name="orders")
    countries = ("NO", "SE")
    outside.produce(
        name,
        [
            outside.Record(value=json.dumps({"id": n, "country": countries[n % 2], "amount": n * 1.5}).encode())
            for n in range(N_ORDERS)
        ],
    )
    return name


def shown(page: str, kafka: Any) -> dict[str, Any]:
    (block,) = code(page)
    names: dict[str, Any] = {}
    exec(block.replace("broker:9092", kafka.bootstrap_servers), names)
    return names


@pytest.mark.broker
def test_duckdb_and_polars(kafka: Any, orders: str) -> None:
    names = shown("docs/duckdb.md", kafka)
    assert sorted(names["by_country"]) == [("NO", 30.0), ("SE", 37.5)]
    assert names["largest"] == [(13.5,)]
    assert names["duckdb"].sql('SELECT "offset", id FROM some_orders').fetchall() == [(n, n) for n in (5, 6, 7)]
    assert names["first"] == [(0,), (1,), (2,)]
    names = shown("docs/polars.md", kafka)
    assert names["frame"]["id"].to_list() == names["frame"]["offset"].to_list() == list(range(N_ORDERS))
    assert dict(names["amounts"].select("country", "amount").rows()) == {"NO": 30.0, "SE": 37.5}
    assert names["three"]["offset"].to_list() == [5, 6, 7]
    assert names["first"]["offset"].to_list() == [0, 1, 2]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_daft_and_ray(kafka: Any, orders: str, tmp_path: Path) -> None:
    python = environment_with(
        tmp_path / "environment", str(Path(__file__).resolve().parents[2]), "daft==0.7.26", "ray[data]==2.60.0"
    )
    program = Path(__file__).with_name("frames_program.py")
    printed = run([python, program, kafka.bootstrap_servers], cwd=tmp_path)
    assert "daft 67.5 10 [5, 6, 7]" in printed
    assert "ray 67.5 [5, 6, 7]" in printed
