"""``lag``: how far a group's committed offsets are behind the ends of the logs, once or repeatedly."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.lag_samples import INTERVAL, LagHistory, LagRates, LagSample, outlook, poll
from pykafka_wire.cli.offsets import explain, find_ends
from pykafka_wire.cli.output import FAILED, console, sparkline, table_of
from pykafka_wire.ingest.settings.query_group import GROUP_PREFIX
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import list_groups
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition, similar_names

if TYPE_CHECKING:  # only --watch needs it
    from rich.text import Text

#: The number of samples in the sparkline: it must fit into 80 columns.
_HISTORY: Final = 60
#: Lines of a terminal's screen that are not topic-partitions: total lag, sparkline, the table's title and head, the count of rows
#: that do not fit, unknown lags, a failure, and the cursor's line.
_OTHER_LINES: Final = 8
#: The name of a generated group: ``groupIdPrefix`` and a UUID.
GENERATED: Final = re.compile(r"(?P<prefix>.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """The lag of one group, with a row for each topic-partition that has a committed offset.

    Attributes:
        rows: the rows; ``latest`` and ``lag`` are None if the end of the log is unknown.
        unknown: partitions with unknown lag, such as ``orders-1 (no leader)``, and requested topics without a committed
            offset.
    """

    rows: Sequence[dict[str, Any]]
    unknown: Sequence[str]

    @property
    def known_lag(self) -> int:
        return sum(row["lag"] or 0 for row in self.rows)

    @property
    def lag(self) -> int | None:
        """Return the total lag of all topic-partitions; None if a lag is unknown."""
        return self.known_lag if self.rows and not self.unknown else None


@command()
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=INTERVAL,
    default="2s",
    show_default=True,
    help="The time between two updates: a number with ms, s, m or h.",
)
@click.option("--count", type=click.IntRange(1), help="With --watch: exit after this many updates.")
@click.option(
    "--fail-above", type=click.IntRange(0), metavar="N", help="Exit with code 1 if the total lag is above N or unknown."
)
def lag(
    group: str, topics: tuple[str, ...], watch: bool, every: float, count: int | None, fail_above: int | None
) -> None:
    """Show the lag of GROUP: how far its committed offsets are behind the ends of the logs.

    GROUP may also be the name of an ingest, or the groupIdPrefix of a query with a generated group, if there is only one such
    group. With --watch the command also shows when the group will have caught up, at the rates of the last minute. The lag of a
    partition without a leader is unknown.
    """
    if watch and fail_above is not None and count is None:
        raise click.UsageError("--watch with --fail-above checks the last update: give --count as well.")
    failure = ""
    with connected() as cluster:
        group = _find_group(cluster, group, may_appear=watch or fail_above is not None)
        if watch:
            polled = poll(lambda: _lag_report(cluster, group, topics), count=count, every_s=every)
            report, failure = _print_lines(polled) if output().json else _watch(polled, group)
        else:
            report = _lag_report(cluster, group, topics)
            output().rows(report.rows, empty=f"Group {group} has committed no offset.")
            if report.rows:
                output().message(f"total lag {report.known_lag:,}")
            if report.rows and report.unknown:
                click.echo(f"The lag is unknown for {', '.join(report.unknown)}.", err=True)
    if fail_above is not None and (problem := failure or _lag_problem(group, report, fail_above)):
        click.echo(problem, err=True)
        sys.exit(FAILED)


def lag_of_groups(
    cluster: Cluster,
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    topics: Collection[str] = (),
    *,
    election_ms: float | None = None,
) -> dict[str, LagReport]:
    """Return the lag of each group, in ``topics`` or in all topics. The ends of all logs are looked up at once, as in
    :func:`find_ends`."""
    chosen = {
        group: sorted(tp for tp in offsets if not topics or tp.topic in topics) for group, offsets in committed.items()
    }
    ends = find_ends(cluster, {tp for partitions in chosen.values() for tp in partitions}, election_ms=election_ms)
    reports: dict[str, LagReport] = {}
    for group, partitions in chosen.items():
        rows = []
        for tp in partitions:
            offset, latest = committed[group][tp].offset, ends.offsets.get(tp)
            lag = None if latest is None else max(0, latest - offset)
            rows.append({**tp._asdict(), "committed": offset, "latest": latest, "lag": lag})
        uncommitted = [topic for topic in topics if topic not in {tp.topic for tp in partitions}]
        unknown = {tp: ends.unknown[tp] for tp in partitions if tp not in ends.offsets}
        reports[group] = LagReport(rows=rows, unknown=[*explain(unknown), *uncommitted])
    return reports


def _lag_report(cluster: Cluster, group: str, topics: Collection[str]) -> LagReport:
    return lag_of_groups(cluster, {group: fetch_offsets(cluster, group, None)}, topics)[group]


def _find_group(cluster: Cluster, name: str, *, may_appear: bool) -> str:
    """Return the group with this name; or the group that a query has generated with this prefix, or an ingest's group; or the name.

    Args:
        may_appear: whether a missing group is reported as a message and not as an error.

    Raises:
        click.UsageError: several groups were generated with this prefix.
        click.ClickException: there is no such group.
    """
    if fetch_offsets(cluster, name, None):
        return name
    names = [group.name for group in list_groups(cluster)]
    if name in names:
        return name
    generated = generated_with(name, names) or generated_with(GROUP_PREFIX + name, names)
    if len(generated) > 1:
        raise click.UsageError(
            f"{len(generated)} groups were generated with the prefix {name}, one for each checkpoint: {', '.join(generated)}. "
            "Name one; pykafka-wire checkpoint PATH shows the group of a query."
        )
    if generated:
        click.echo(f"The group of this prefix is {generated[0]}.", err=True)
        return generated[0]
    near = similar_names(name, names)
    text = f"There is no group {name}." + (f" Did you mean {' or '.join(near)}?" if near else "")
    if not may_appear:
        raise click.ClickException(f"{text} pykafka-wire groups shows all groups, pykafka-wire top those with offsets.")
    click.echo(text, err=True)
    return name


def generated_with(prefix: str, names: Iterable[str]) -> list[str]:
    """Return the names of the groups that queries have generated with this prefix."""
    return [name for name in names if (match := GENERATED.fullmatch(name)) is not None and match["prefix"] == prefix]


def _lag_problem(group: str, report: LagReport, fail_above: int) -> str:
    """Return why the check of the lag fails; empty if the lag is known and not above the limit."""
    if report.lag is None:
        where = f" for {', '.join(report.unknown)}" if report.unknown else ""
        return (
            f"The lag of group {group} is unknown{where}. Check the group's name, that its committed offsets have not "
            "expired, that each topic exists, and that you may describe it."
        )
    return f"The lag of {report.lag} is above {fail_above}." if report.lag > fail_above else ""


def _print_lines(polled: Iterable[tuple[LagReport, str]]) -> tuple[LagReport, str]:
    """Print a line of JSON for each report, and a message on standard error for a failed lookup. Return the last report."""
    history = LagHistory()
    for report, failure in polled:
        if failure:
            click.echo(failure, err=True)
            continue
        rates = history.add(LagSample.of(report.rows))
        if report.lag is None:
            rates = LagRates()
        document = {"time_ms": int(time.time() * 1000), "lag": report.lag, **asdict(rates)}
        output().document(document | {"partitions": report.rows})
    return report, failure


def _watch(polled: Iterable[tuple[LagReport, str]], group: str) -> tuple[LagReport, str]:
    """Show each report in place of the previous one, or below it without a terminal; return the last report."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    lags: deque[int] = deque(maxlen=_HISTORY)
    history = LagHistory()
    head: list[Text] = []
    to = console()
    with Live(console=to, auto_refresh=False) if to.is_terminal else nullcontext() as live:
        for report, failure in polled:
            if not failure:
                lags.append(report.known_lag)
                rates = history.add(LagSample.of(report.rows))
                future = "" if report.lag is None else outlook(report.lag, rates)
                head = [Text(f"total lag {report.known_lag:,}  {future}".rstrip()), Text(sparkline(lags))]
            shown: list[Any] = [*head]
            # If the terminal has too few lines, leave out the partitions with the smallest lag.
            room = len(report.rows) if live is None else max(1, to.height - _OTHER_LINES)
            rows = report.rows
            if len(rows) > room:
                rows = sorted(rows, key=lambda row: -(row["lag"] or 0))[:room]
            if rows:
                shown.append(table_of(rows, title=f"group {group}"))
            if len(rows) < len(report.rows):
                shown.append(Text(f"… {len(report.rows) - len(rows)} more"))
            if report.unknown:
                shown.append(Text(f"unknown for {', '.join(report.unknown)}"))
            if failure:
                shown.append(Text(failure))
            if live is None:
                to.print(Group(*shown))
            else:
                live.update(Group(*shown), refresh=True)
    return report, failure
