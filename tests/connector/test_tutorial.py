"""The tutorial and the notebook, step by step, as a newcomer runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.errors import PySparkException

from pykafka_wire.cli.app import application
from pykafka_wire.errors import OptionError
from pykafka_wire.options.source import parse_source_options
from tests.connector.shown_code import ROOT, code


def shown_error() -> str:
    """The error that the tutorial shows for its mistake."""
    (said,) = re.findall(r"```text\n(\[PYKAFKA_WIRE_OPTION\].*)\n```", (ROOT / "docs" / "tutorial.md").read_text())
    return said


def test_the_tutorials_mistake_is_the_error_that_it_shows() -> None:
    given = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "orders",
        "startingoffset": "earliest",
    }  # as Spark passes it
    with pytest.raises(OptionError) as raised:
        parse_source_options(given, "batch")
    assert str(raised.value) == shown_error()


@pytest.fixture
def tutorial(
    spark: Any, kafka: Any, registry_url: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names that the tutorial's code defines, with its topics made."""
    monkeypatch.setenv("PYKAFKA_WIRE_BOOTSTRAP", kafka.bootstrap_servers)
    monkeypatch.setenv("PYKAFKA_WIRE_REGISTRY", registry_url)
    topic(3, name="orders")
    topic(1, name="large-orders")
    yield {}
    spark.catalog.dropTempView("orders")


def test_the_batches_of_the_tutorial(
    spark: Any, tutorial: dict[str, Any], outside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write, read, typed, _, mistake, _ = code("docs/tutorial.md")
    exec(write, tutorial)
    assert tutorial["spark"] is spark
    assert len(outside.consume("orders")) == 1000
    exec(read, tutorial)
    exec(typed, tutorial)
    (tail,) = re.findall("`pykafka-wire (tail .*?)`", (ROOT / "docs" / "tutorial.md").read_text())
    capsys.readouterr()  # what the code before has printed
    with pytest.raises(SystemExit):
        application([*tail.split(), "--json"])
    last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(last) == 2 * len({each["partition"] for each in last}) > 0
    assert all(each["value"]["amount"] == each["value"]["id"] / 10 for each in last)
    totals = {(row.country, row.orders) for row in tutorial["totals"].collect()}
    assert totals == {("DE", 334), ("FR", 333), ("IT", 333)}
    with pytest.raises(PySparkException, match=re.escape(shown_error())):
        exec(mistake, tutorial)


@pytest.mark.long
def test_the_streams_of_the_tutorial(tutorial: dict[str, Any], outside: Any) -> None:
    write, _, _, stream, _, exactly_once = code("docs/tutorial.md")
    exec(write, tutorial)
    exec(stream, tutorial)
    assert tutorial["n_stored"] == 1000
    assert sum(outside.committed("tutorial").values()) == 1000
    exec(exactly_once, tutorial)
    assert tutorial["n_large"] == 500


@pytest.mark.long
@pytest.mark.timeout(900)  # a Spark of its own
def test_the_notebook_shows_results_and_nothing_of_what_spark_prints(
    kafka: Any, java: None, outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKAFKA_WIRE_BOOTSTRAP", kafka.bootstrap_servers)
    notebook = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    told = "import json\nprint(json.dumps([totals.collect(), n_stored, n_places, [e.total_offsets_behind for e in lags], n_large]))"
    clean_up = next(i for i, cell in enumerate(notebook.cells) if cell.source.startswith("## Clean up"))
    notebook.cells.insert(clean_up, nbformat.v4.new_code_cell(told))
    # Without a broker of its own the notebook stops nothing.
    notebook.cells.append(nbformat.v4.new_code_cell("spark.stop()"))
    try:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    finally:
        for name in ("orders", "large-orders"):
            outside.delete(name)
    outputs = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    assert [each for each in outputs if each.output_type == "stream" and each.name == "stderr"] == []
    totals, n_stored, n_places, behind, n_large = json.loads(notebook.cells[clean_up].outputs[0].text)
    assert {(country, n) for country, n, _ in totals} == {("DE", 334), ("FR", 333), ("IT", 333)}
    assert (n_stored, n_places, n_large) == (1000, 1000, 500)
    assert behind == sorted(behind, reverse=True)
    assert behind[0] > behind[-1] == 0
    # The one display, as it was updated last.
    (live,) = [each for each in outputs if each.output_type == "display_data"]
    assert "<progress value='1000' max='1000'>" in live.data["text/html"]
    assert f"0 records behind after {len(behind)} micro-batches" in live.data["text/html"]


def test_the_notebook_is_stored_without_outputs() -> None:
    content = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
