"""The output of commands: tables for people, JSON for machines; and exit codes.

Colours are used only on a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.error_codes import AUTHORIZATION_FAILURES
from pykafka_wire.wire.errors import AuthenticationError, BrokerError, SettingsError, TransportError, WireError

if TYPE_CHECKING:  # neither --json nor --help needs these modules
    from rich.console import Console
    from rich.table import Table

#: Exit codes.
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130
_BARS: Final = "▁▂▃▄▅▆▇█"
#: The width of the console without a terminal: wide enough that no line is wrapped.
_UNLIMITED_WIDTH: Final = 400
#: Columns whose cells must not wrap: the other columns of the table become narrower instead.
_UNBROKEN: Final = ("id", "partition", "micro-batch", "state", "producer id")


def width() -> int:
    """Return the width of standard output in columns."""
    return get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED_WIDTH


def console() -> Console:
    """Return a console on standard output."""
    from rich.console import Console

    made = Console(highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(highlight=False, no_color=True, width=_UNLIMITED_WIDTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Prints results as text or JSON, as the user asked."""

    json: bool

    def rows(
        self,
        rows: Sequence[dict[str, Any]],
        *,
        title: str = "",
        empty: str = "Nothing found.",
        only_if_set: Collection[str] = (),
        only_if_wide: Collection[str] = (),
        only_json: Collection[str] = (),
    ) -> None:
        """Print rows with the same columns: as a table, or as a JSON array of objects.

        Args:
            only_if_set: columns that are omitted from the table if every row has None or 0.
            only_if_wide: columns that are omitted from the table if the terminal is too narrow.
            only_json: columns that are omitted from the table.
        """
        if self.json:
            self.document(rows)
        elif rows:
            absent = {name for name in only_if_set if not any(row[name] for row in rows)} | set(only_json)
            if (lines := _lines_of(rows, title=title, without=absent)) is not None:
                click.echo("\n".join(lines))
                return
            to = console()
            table = table_of(rows, title=title, without=absent)
            if only_if_wide and to.measure(table).maximum >= to.width:  # >= since rich limits the measure to the width
                table = table_of(rows, title=title, without=absent | set(only_if_wide))
            to.print(table)
        else:
            click.echo(empty)

    def document(self, value: Any) -> None:  # Any: a JSON value
        """Print one JSON document on its own line."""
        click.echo(json.dumps(value, ensure_ascii=False))

    def message(self, text: str) -> None:
        """Print a sentence for people; nothing with --json."""
        if not self.json:
            click.echo(text)


def _lines_of(rows: Sequence[dict[str, Any]], *, title: str, without: Collection[str]) -> list[str] | None:
    """Return the lines of :func:`table_of` without rich, which takes longer to load than most commands take to run. Return None if
    rich is needed: the terminal is too narrow, or a character may be two columns wide."""
    names = [name for name in dict.fromkeys(chain(*rows)) if name not in without]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    room = width()
    if sum(widths) + 2 * (len(widths) - 1) >= room or not all(text.isascii() for text in chain(names, *cells)):
        return None
    numbers = [any(isinstance(row.get(name), int) for row in rows) for name in names]

    def line(texts: Sequence[str]) -> str:
        aligned = zip(texts, widths, numbers, strict=True)
        return "  ".join(text.rjust(width) if is_number else text.ljust(width) for text, width, is_number in aligned)

    head = click.style(line(names), bold=True)
    return [*([title] if title else []), head, *(line(texts).rstrip() for texts in cells)]


def table_of(rows: Sequence[dict[str, Any]], *, title: str = "", without: Collection[str] = ()) -> Table:
    """Return a table whose columns are the keys of the rows. Numbers are right-aligned; numbers, ids and times are never
    wrapped."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left", header_style="bold")
    shown = [name for name in dict.fromkeys(chain(*rows)) if name not in without]
    for name in shown:
        whole, is_number = name in _UNBROKEN, any(isinstance(row.get(name), int) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=whole or is_number)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in shown))  # Text, so that [x] is not markup
    return table


def _cell(value: Any) -> str:  # Any: a cell of any column
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return printable(str(value))


def counted(n: int, noun: str) -> str:
    """Return ``1 broker``, ``2 brokers``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def parse_pair(option: str, text: str, shape: str = "NAME=VALUE") -> tuple[str, str]:
    """Split the value of an option at the first ``=``.

    Raises:
        click.UsageError: there is no name or no ``=``.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"{option} {text}: write {option} {shape}.")
    return name, value


def sparkline(values: Iterable[int]) -> str:
    """Return a bar for each value: the lowest block for 0, the highest for the largest value."""
    heights = list(values)
    largest = max(heights, default=0)
    return "".join(_BARS[value * (len(_BARS) - 1) // largest if largest else 0] for value in heights)


def printable(text: str) -> str:
    """Return a text without control characters, which in a record could control the terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def format_timestamp(timestamp_ms: int | None) -> str | None:
    """Return a timestamp in ISO-8601 and UTC; None for None and for a negative timestamp."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{timestamp_ms} ms (micro- or nanoseconds?)"


def exit_code(error: WireError | ConnectorError) -> int:
    """Return the process's exit code for a command that ends with this error."""
    if isinstance(error, SettingsError):
        return USAGE
    if isinstance(error, TransportError):
        return UNREACHABLE
    if isinstance(error, AuthenticationError) or (
        isinstance(error, BrokerError) and error.code in AUTHORIZATION_FAILURES
    ):
        return REFUSED
    return FAILED


class UsageMistake(click.ClickException):
    """A mistake in the command line or the settings file that the command's usage text would not explain."""

    exit_code = USAGE


def show_error(text: str, code: int, *, error: Exception, is_json: bool, hint: str = "") -> None:
    """Print an error on standard error: as a sentence, or as a JSON object."""
    if is_json:
        document = {
            "error": text,
            "type": type(error).__name__,
            "code": getattr(error, "code", None) or getattr(error, "label", None),
            "exit_code": code,
        }
        click.echo(json.dumps(document, ensure_ascii=False, default=str), err=True)
        return
    if isinstance(error, click.ClickException):
        error.show()
    else:
        click.echo(f"Error: {text}", err=True)
    if hint:
        click.echo(hint, err=True)


def absolute(place: str) -> str:
    """Return the absolute path of a local folder, which Spark's processes need; a URI is returned unchanged."""
    return place if ":" in place else str(Path(place).absolute())
