"""Tables for people."""

from __future__ import annotations

import io
from typing import Any

import click
import pytest
from rich.console import Console

from pykafka_wire.cli import output

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("title", ["", "group reports"])
@pytest.mark.parametrize(
    "rows",
    [
        [
            {"topic": "orders", "partition": 1, "lag": 12_345, "state": None},
            {"topic": "a-long-name.of.topic", "partition": 22, "state": "Stable"},
        ],
        [{"is_open": True, "partitions": [1, 2], "text": "[x] is no markup\x1b[2J"}],
    ],
)
def test_a_table_that_has_room_is_the_same_without_rich(
    rows: list[dict[str, Any]], title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = io.StringIO()
    Console(file=drawn, no_color=True, width=400).print(output.table_of(rows, title=title))
    output.Output(json=False).rows(rows, title=title)
    shown = click.unstyle(capsys.readouterr().out)
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in drawn.getvalue().splitlines()]


@pytest.mark.parametrize("cell", ["ünïcode", "x" * 400])
def test_what_may_not_fit_is_left_to_rich(cell: str) -> None:
    assert output._lines_of([{"name": cell}], title="", without=()) is None
