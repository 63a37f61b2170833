"""The table of options is one: in the code and in docs/options.md."""

from __future__ import annotations

from pathlib import Path

from pykafka_wire.options.definitions import OPTIONS, options_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_page_shows_the_table() -> None:
    assert options_table() in PAGE.read_text(encoding="utf-8"), (
        "paste the output of pykafka_wire.options.definitions.options_table() into docs/options.md"
    )


def test_names_are_there_once_and_say_where_they_count() -> None:
    names = [spec.name.lower() for spec in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(spec.where and set(spec.where) <= set("SBW") for spec in OPTIONS)
    assert all(spec.meaning and spec.default for spec in OPTIONS)


def test_a_row_is_one_line_of_four_cells() -> None:
    for line in options_table().splitlines():
        assert line.replace("\\|", "").count("|") == 5
