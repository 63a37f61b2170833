"""``top``: the queries and groups of a cluster on one screen: lag, rates, and the time to catch up."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.lag import GENERATED, lag_of_groups
from pykafka_wire.cli.lag_samples import (
    INTERVAL,
    Freshness,
    LagHistory,
    LagRates,
    LagSample,
    duration,
    outlook,
    poll,
    rate,
)
from pykafka_wire.cli.output import console, counted, printable
from pykafka_wire.ingest.settings.query_group import GROUP_PREFIX
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import ListedGroup, list_groups
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets_of_groups

#: Lines of the screen that are not groups: the title, the table's head, the help, and the cursor's line.
_OTHER_LINES: Final = 5
_MARKER: Final = "marker"
_INGEST: Final = "ingest"
#: The shortest width of a group's or topic's name.
_MIN_NAME_WIDTH: Final = 12
#: The width from which on all columns of the table fit.
_WIDE: Final = 120
_HELP: Final = "q quit   l sort by lag   r by rate   n by name"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    """One group at one moment. ``lag`` is None if the lag of a topic-partition is unknown (for example without a leader), and for
    the marker of an exactly-once query, whose offsets are no positions. ``fresh_s``: for how many seconds the group may lack
    records; None if unknown. ``name``: the name of an ingest, shown in place of its group.
    """

    group: str
    name: str | None
    kind: str
    state: str
    topics: Sequence[str]
    lag: int | None
    fresh_s: float | None
    rates: LagRates

    def document(self) -> dict[str, Any]:
        """Return the group's fields for ``--json``."""
        fields = asdict(self)
        rates: dict[str, Any] = fields.pop("rates")
        return {**fields, **rates, "state": self.state or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All groups at one moment."""

    n_brokers: int
    groups: Sequence[GroupSample]
    at: datetime = field(default_factory=datetime.now)


_ORDERS: Final[dict[str, Callable[[GroupSample], Any]]] = {
    "l": lambda group: (-(group.lag or 0), group.kind == _MARKER, group.group),
    "r": lambda group: (-(group.rates.read_per_s or 0.0), group.group),
    "n": lambda group: group.group,
}


@command()
@click.argument("text", required=False)
@click.option(
    "--every",
    type=INTERVAL,
    default="2s",
    show_default=True,
    help="The time between two updates: a number with ms, s, m or h.",
)
@click.option("--once", is_flag=True, help="Sample twice (to compute rates), print once and exit.")
@click.option("--count", type=click.IntRange(1), help="Exit after this many updates.")
def top(text: str | None, every: float, once: bool, count: int | None) -> None:
    """Show the ingests, streaming queries and consumer groups with committed offsets. With TEXT, show only those whose names
    contain it.

    "fresh" is how long ago the group had last caught up with its topics, as far as this command has seen. Rates are those of the
    last
    minute: offsets committed by the group, and offsets written to its topics. Keys: q quits; l, r and n sort by lag, rate and name.
    With --json each update is a line.
    """
    if once and count is not None:
        raise click.UsageError("--once samples exactly twice: leave out --count.")
    with connected() as cluster:
        watched = _Watched(cluster, text)
        if once:
            watched.sample()
            time.sleep(every)
            _print(watched.sample())
        elif output().json or not console().is_terminal:
            for overview, failure in poll(watched.sample, count=count, every_s=every):
                if failure:
                    click.echo(failure, err=True)
                else:
                    _print(overview)
        else:
            _show(watched, every, count)


class _Watched:
    """Samples the groups of a cluster, and keeps the history of each."""

    def __init__(self, cluster: Cluster, text: str | None) -> None:
        self._cluster = cluster
        self._text = text
        self._histories: dict[str, LagHistory] = {}
        self._freshness: dict[str, Freshness] = {}

    def sample(self) -> Overview:
        """Return all groups with committed offsets, sorted by lag."""
        cluster = self._cluster
        listed = [group for group in list_groups(cluster) if self._text is None or self._text in group.name]
        fetched = fetch_offsets_of_groups(cluster, listed)
        # No wait for an election: the next sample comes soon.
        reports = lag_of_groups(cluster, fetched, election_ms=0)
        self._histories = {group.name: self._histories.get(group.name, LagHistory()) for group in listed}
        self._freshness = {group.name: self._freshness.get(group.name, Freshness()) for group in listed}
        samples = []
        for group in listed:
            if committed := fetched.get(group.name):
                kind, report = _kind(group, [offset.metadata for offset in committed.values()]), reports[group.name]
                is_known = report.lag is not None and kind != _MARKER
                sample = GroupSample(
                    group=group.name,
                    name=_ingest_of(group.name) if kind == _INGEST else None,
                    kind=kind,
                    state=group.state,
                    topics=sorted({tp.topic for tp in committed}),
                    lag=report.lag if is_known else None,
                    fresh_s=self._freshness[group.name].add(report.rows) if is_known else None,
                    rates=self._histories[group.name].add(LagSample.of(report.rows)) if is_known else LagRates(),
                )
                samples.append(sample)
        return Overview(n_brokers=len(cluster.metadata.brokers()), groups=sorted(samples, key=_ORDERS["l"]))


def _kind(group: ListedGroup, metadata: Sequence[str]) -> str:
    """Return ``query``, ``ingest`` or ``marker`` for a group that a query of this package commits to, otherwise the group's
    protocol."""
    from pykafka_wire.sink.exactly_once.marker import is_marker  # loads NumPy

    if any(map(is_marker, metadata)):
        return _MARKER
    if not any(map(_is_of_a_query, metadata)):
        return group.kind.lower()
    return _INGEST if _ingest_of(group.name) is not None else "query"


def _ingest_of(group: str) -> str | None:
    """Return the name of the ingest whose query commits to a group."""
    match = GENERATED.fullmatch(group)
    prefix = "" if match is None else match["prefix"]
    return prefix.removeprefix(GROUP_PREFIX) if prefix.startswith(GROUP_PREFIX) else None


def _is_of_a_query(metadata: str) -> bool:
    """Return whether a commit's metadata was written by a streaming query of this package."""
    try:
        return isinstance(document := json.loads(metadata), dict) and set(document) == {"query"}
    except ValueError:
        return False


def _print(overview: Overview) -> None:
    """Print one sample: a line of JSON, or a table."""
    if output().json:
        groups = [group.document() for group in overview.groups]
        output().document({"time_ms": int(time.time() * 1000), "groups": groups})
    else:
        console().print(_screen(overview, is_narrow=console().width < _WIDE))


def _show(watched: _Watched, every: float, count: int | None) -> None:
    """Show successive samples in the same place, until a key ends the command."""
    to, order = console(), "l"
    with _keys() as key_within, Live(console=to, auto_refresh=False, screen=True) as live:
        for overview, failure in poll(watched.sample, count=count):
            until = time.monotonic() + every
            while True:
                screen = _screen(overview, order=order, is_narrow=to.width < _WIDE, height=to.height, failure=failure)
                live.update(screen, refresh=True)
                key = key_within(until - time.monotonic())
                if key in ("q", "Q"):
                    return
                if not key:
                    break
                order = key if key in _ORDERS else order


def _screen(
    overview: Overview, *, order: str = "l", is_narrow: bool = False, height: int | None = None, failure: str = ""
) -> Lines:
    """Return the title, a line for each group that fits, the help about keys, and the failure of the last sample, if any.

    Figures are never cut: on a narrow terminal, names are shortened, and state and topics are omitted.
    """
    groups = sorted(overview.groups, key=_ORDERS[order])
    title = f"{counted(overview.n_brokers, 'broker')}, {counted(len(groups), 'group')}, {overview.at:%H:%M:%S}"
    shown = ("group", "kind") if is_narrow else ("group", "kind", "state", "topics")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        is_name = name in ("group", "topics")
        table.add_column(name, no_wrap=not is_name, min_width=_MIN_NAME_WIDTH if is_name else None)
    for name in ("lag", "fresh", "read/s", "written/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outlook", no_wrap=True)
    room = len(groups) if height is None else max(1, height - _OTHER_LINES - bool(failure))
    for group in groups[:room]:
        is_alone = sum(other.name == group.name for other in groups) == 1
        cells = {
            "group": group.name if group.name and is_alone else group.group,
            "kind": group.kind,
            "state": group.state,
            "topics": ", ".join(group.topics),
        }
        figures = (group.rates.read_per_s, group.rates.written_per_s)
        table.add_row(
            *(Text(printable(cells[name]), no_wrap=True, overflow="ellipsis") for name in shown),
            "-" if group.lag is None else f"{group.lag:,}",
            "-" if group.fresh_s is None else duration(group.fresh_s),
            *("-" if figure is None else rate(figure) for figure in figures),
            "" if group.lag is None else outlook(group.lag, group.rates, is_short=is_narrow),
        )
    lines: list[Any] = [Text(title, style="bold"), table if groups else Text("No group has committed offsets.")]
    if len(groups) > room:
        lines.append(Text(f"… {len(groups) - room} more"))
    if failure:
        lines.append(Text(failure, no_wrap=height is not None, overflow="ellipsis"))
    if height is not None:
        lines.append(Text(_HELP, style="dim"))
    return Lines(*lines)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits up to a number of seconds for a key and returns it, or an empty text. Without a keyboard, the
    function only waits."""

    try:
        import termios
        import tty
    except ImportError:  # Windows
        has_keys = False
    else:
        has_keys = sys.stdin.isatty()

    def key_within(seconds: float) -> str:
        if not has_keys:
            time.sleep(max(0.0, seconds))
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""

    if not has_keys:
        yield key_within
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield key_within
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
