"""The options are stated once: the page shows them, and each default is a value that its own text stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.options import option_table
from pykafka_wire.options.option import Option, duration_ms
from pykafka_wire.options.option_table import OPTIONS, options_tables
from pykafka_wire.registry_settings import REGISTRY_SETTINGS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_page_shows_the_tables() -> None:
    assert options_tables() in PAGE.read_text(encoding="utf-8"), (
        "paste the output of pykafka_wire.options.option_table.options_tables() into docs/options.md"
    )


def test_each_option_is_in_one_section_and_says_what_it_applies_to() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    stated = [each for each in vars(option_table).values() if isinstance(each, Option)]
    assert {option.name for option in OPTIONS} == {option.name for option in stated} | REGISTRY_SETTINGS.keys()
    assert all(option.where and set(option.where) <= set("SBW") for option in OPTIONS)
    assert all(option.meaning and option.default_text for option in OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_default_is_what_its_text_stands_for(option: Option[Any]) -> None:
    for default in (option.default, option.in_batch):
        if isinstance(default, bool | int | str) and default != "":
            assert option.parse(option.default_text, option.name) == default


def test_a_default_of_each_kind_is_shown_as_a_user_would_write_it() -> None:
    shown = {option.name: option.default_text for option in OPTIONS}
    assert shown["startingOffsets"] == "S latest, B earliest"
    assert shown["endingOffsets"] == "latest"
    assert shown["failOnDataLoss"] == "true"
    assert shown["maxTriggerDelay"] == "15m"
    assert shown["minPartitions"] == "none"
    assert Option("x", "S", duration_ms, 90_000, "").default_text == "90s"


def test_a_row_is_one_line_of_four_cells() -> None:
    for line in options_tables().splitlines():
        assert not line.startswith("|") or line.replace("\\|", "").count("|") == 5
