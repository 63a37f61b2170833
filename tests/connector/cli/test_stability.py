"""Commands are marked as experimental, or promise what docs/public-api.md says."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from pykafka_wire.cli.app import commands, commands_table


def help_of(*arguments: str) -> str:
    return CliRunner().invoke(commands, [*arguments, "--help"], terminal_width=110).output


def test_the_page_shows_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert commands_table() in page, (
        "paste the output of pykafka_wire.cli.app.commands_table() into docs/command-line.md"
    )


def test_help_marks_what_may_still_change() -> None:
    names = commands.list_commands(click.Context(commands))
    marked = [line.split()[0] for line in help_of().splitlines() if "(experimental)" in line]
    assert marked == [name for name in names if "Experimental: this command" in help_of(name)]
    assert "walkthrough" in marked and "lag" not in marked
    assert "All others are stable" in help_of()
