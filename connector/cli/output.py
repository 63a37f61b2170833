"""What a command prints: tables for people, JSON for machines. Colours only where standard output is a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_BARS: Final = "▁▂▃▄▅▆▇█"
#: Columns of the console where standard output is no terminal: no line is broken for want of room.
_WIDE: Final = 400


def console() -> Console:
    """A console on standard output."""
    made = Console(highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(highlight=False, no_color=True, width=_WIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Prints results in the form that the user asked for."""

    json: bool

    def rows(self, rows: Sequence[dict[str, Any]], *, title: str = "", empty: str = "Nothing found.") -> None:
        """Rows of the same columns: a table, or a JSON array of objects."""
        if self.json:
            self.document(rows)
        elif rows:
            console().print(table_of(rows, title=title))
        else:
            click.echo(empty)

    def document(self, value: Any) -> None:  # Any: what JSON can say
        """One JSON document on a line of its own."""
        click.echo(json.dumps(value, ensure_ascii=False))

    def say(self, text: str) -> None:
        """A sentence for people; nothing where JSON is asked for."""
        if not self.json:
            click.echo(text)


def table_of(rows: Sequence[dict[str, Any]], *, title: str = "") -> Table:
    """A table whose columns are the keys of the first row; numbers stand at the right."""
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))  # as it is: [x] is no markup
    return table


def _cell(value: Any) -> str:  # Any: a cell of any column
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return printable(str(value))


def sparkline(values: Iterable[int]) -> str:
    """A bar for each value, from the lowest block for 0 to the highest for the largest."""
    found = list(values)
    most = max(found, default=0)
    return "".join(_BARS[value * (len(_BARS) - 1) // most if most else 0] for value in found)


def printable(text: str) -> str:
    """A text without control characters, which in a record could steer the terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def text_of(data: bytes | None) -> str | None:
    """Bytes as text where they are UTF-8, else as hexadecimal digits after ``0x``."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
