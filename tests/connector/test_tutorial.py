"""The tutorial and the notebook, step by step, as a newcomer runs them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pykafka_wire.errors import OptionError
from pykafka_wire.options.source import parse_source_options
from tests.connector.shown_code import ROOT, code


def shown_error() -> str:
    """The error that the tutorial shows for its mistake."""
    (said,) = re.findall(r"```text\n(\[PYKAFKA_WIRE_OPTION\].*)\n```", (ROOT / "docs" / "tutorial.md").read_text())
    return said


def test_the_tutorials_mistake_is_the_error_that_it_shows() -> None:
    with pytest.raises(OptionError) as raised:
        parse_source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "orders", "startingOffset": "1"}, "batch")
    assert str(raised.value) == shown_error()


def test_the_tutorial(spark: Any, kafka: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKAFKA_WIRE_BOOTSTRAP", kafka.bootstrap_servers)
    topic(3, name="orders")
    topic(1, name="large-orders")
    write, read, typed, stream, mistake, exactly_once = code("docs/tutorial.md")
    names: dict[str, Any] = {}
    exec(write, names)
    assert names["spark"] is spark
    assert len(outside.consume("orders")) == 1000
    exec(read, names)
    exec(typed, names)
    assert {(row.country, row.orders) for row in names["totals"].collect()} == {("DE", 334), ("FR", 333), ("IT", 333)}
    spark.catalog.dropTempView("orders")
    exec(stream, names)
    assert names["n_stored"] == 1000
    assert sum(outside.committed("tutorial").values()) == 1000

    with pytest.raises(PySparkException, match=re.escape(shown_error())):
        exec(mistake, names)

    exec(exactly_once, names)
    assert names["n_large"] == 500


def cells(notebook: str) -> list[str]:
    """The code of a notebook, cell by cell."""
    content = json.loads((ROOT / notebook).read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.mark.long
def test_the_notebook(spark: Any, kafka: Any, outside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKAFKA_WIRE_BOOTSTRAP", kafka.bootstrap_servers)
    names: dict[str, Any] = {}
    try:
        for cell in cells("examples/first_steps.ipynb"):
            exec(cell, names)
        assert names["spark"] is spark
        assert {(row.country, row.orders) for row in names["totals"].collect()} == {
            ("DE", 334),
            ("FR", 333),
            ("IT", 333),
        }
        assert (names["n_stored"], names["n_places"]) == (1000, 1000)
        behind = [lag.total_offsets_behind for lag in names["lags"]]
        assert behind == sorted(behind, reverse=True)
        assert behind[0] > behind[-1] == 0
        assert names["n_large"] == 500
    finally:
        spark.catalog.dropTempView("orders")
        for name in ("orders", "large-orders"):
            outside.delete(name)


def test_the_notebook_is_stored_without_outputs() -> None:
    content = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
