"""Measures this project against Spark's JVM connector, and its client against others: one command, one Spark session.

    make bench                                       the default selection
    make bench BENCH_ARGS="--list"                   every item there is, and about how long each takes
    make bench BENCH_ARGS="--items '*'"              all of them: an hour and a half
    make bench BENCH_ARGS="--items read-* write-lz4 --runs 7 --records 1000000"
    make performance                                 those of docs/performance.md, into docs/

Contenders take turns (A B C, A B C, …) after a warm-up; figures are medians, ratios are taken pair by pair. Before any
batch read is measured, each contender reads all of it once, to compare what they see: that is its warm-up.
An item that fails, takes longer than --limit, or would begin after --within, is recorded as not measured; the others go on.
Results go to benchmarks/results/ as JSON, with the machine, the versions and the settings they came from; page.py draws them.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import signal
import sys
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import report
from confluent_kafka import KafkaException
from item import Item
from items import DEFAULT_RECORDS, PAGE, items
from report import Outcome
from rich.console import Console
from rig import Rig
from runs import Run, alternate

RESULTS = Path(__file__).parent / "results"
#: Of output that goes to a file, which has no width of its own.
LOG_WIDTH = 140


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when every item was measured, whatever the figures; 1 when one failed, 2 for a bad command."""
    parser = _parser()
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    every = items(given.records)
    chosen = _choose(every, given.items)
    if not chosen:
        parser.error(f"no item is named {' or '.join(given.items)}; --list shows all")
    if given.list:
        for item in every.values() if not given.items else chosen:
            print(f"{'*' if item.default else ' '} {item.name:26} {item.seconds / 60:4.1f}  {item.title}")
        print("* runs when none is named; minutes at the full size, with 5 runs and a warm-up, on two cores")
        return 0
    minutes = sum(_estimate_s(item, given.runs) for item in chosen) / 60
    console.print(f"{len(chosen)} items, about {minutes:.0f} minutes at {DEFAULT_RECORDS:,} records")
    ends_at = time.monotonic() + given.within * 60
    path = Path(given.into or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json").resolve()
    path.parent.mkdir(exist_ok=True)
    # As Ctrl-C: leave the contexts, and with them end the broker, the session and the folder.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes: list[Outcome] = []
    with Rig(given.bootstrap) as rig:
        rig.session()
        java = rig.java_version
        try:
            for i, item in enumerate(chosen):
                warmups = given.warmups if item.warmups is None else item.warmups
                left_s = ends_at - time.monotonic()
                if left_s < _estimate_s(item, given.runs) / 2:
                    outcome = Outcome(item=item, compared=[], took_s=0.0, error="not begun: --within is over")
                else:
                    limit_s = min(given.limit * 60, left_s)
                    outcome = _measure(console, rig, item, runs=given.runs, warmups=warmups, limit_s=limit_s)
                outcomes.append(outcome)
                # After each item, so that an interrupted run keeps what it has.
                report.save(path, report.document(outcomes, arguments=vars(given), java=java))
                try:
                    rig.keep_only({dataset for later in chosen[i + 1 :] for dataset in later.work.datasets()})
                except KafkaException as error:  # a topic too many, which ends with its broker
                    console.print(f"a topic could not be deleted: {error}", style="yellow")
        except KeyboardInterrupt:
            console.print("interrupted: what was measured so far is kept", style="yellow")
    if outcomes:
        report.print_summary(console, outcomes)
        console.print(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
    missed = [f"{o.item.name} ({name})" for o in outcomes for name, met in o.met.items() if not met]
    if missed:
        console.print(f"goals missed: {', '.join(missed)}", style="yellow")
    failed = [outcome.item.name for outcome in outcomes if outcome.error]
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="red")
    return 1 if failed or len(outcomes) < len(chosen) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Benchmarks of pykafka-wire; see the module's text.")
    parser.add_argument(
        "--items",
        nargs="+",
        default=[],
        metavar="NAME",
        help="items, or families such as typed, or page for those of docs/performance.md; * and ? as in file names",
    )
    parser.add_argument("--list", action="store_true", help="list the items and end")
    parser.add_argument("--records", type=_positive, default=DEFAULT_RECORDS, help="records per topic (%(default)s)")
    parser.add_argument("--runs", type=_positive, default=5, help="counted runs of each contender (%(default)s)")
    parser.add_argument(
        "--warmups",
        type=int,
        help="uncounted runs before them (1, and 0 where each contender is checked by a whole read before)",
    )
    parser.add_argument("--limit", type=_positive, default=15, help="minutes after which an item fails (%(default)s)")
    parser.add_argument("--within", type=_positive, default=600, help="minutes after which all ends (%(default)s)")
    parser.add_argument("--bootstrap", help="host:port of brokers to use instead of a local one")
    parser.add_argument("--into", metavar="FILE.json", help="the results' file (a new one in benchmarks/results)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _choose(every: dict[str, Item], patterns: Sequence[str]) -> list[Item]:
    if not patterns:
        return [item for item in every.values() if item.default]
    named = {name: every[name] for name in PAGE} if "page" in patterns else {}
    named |= {
        name: item for name, item in every.items() if any(_is_named(name, pattern, every) for pattern in patterns)
    }
    return list(named.values())


def _estimate_s(item: Item, runs: int) -> float:
    """About how long it takes at the full size: making data and checking it take about as long as a run, and so does a warm-up."""
    return item.seconds * (runs + 2) / 7


def _is_named(name: str, pattern: str, every: Container[str]) -> bool:
    """Whether `pattern` is the name, matches it, or is the first words of several names and itself none: `typed`, `read-1kib`."""
    family = pattern not in every and name.startswith(f"{pattern}-")
    return family or fnmatch.fnmatch(name, pattern)


def _measure(console: Console, rig: Rig, item: Item, *, runs: int, warmups: int | None, limit_s: float) -> Outcome:
    """One item, with its progress on the terminal. An item that fails does not end the others."""
    with console.status(f"{item.name}: making data") as status:

        def told(name: str, turn: int, run: Run | None) -> None:
            place = f"run {turn + 1}/{runs}" if turn >= 0 else "warm-up"
            if run is None:
                status.update(f"{item.name}: {place}, {name}")
            elif not console.is_terminal:
                console.print(f"{item.name}: {place}, {name}: {run.value / item.unit.scale:,.3f} {item.unit.label}")

        started = time.monotonic()
        try:
            with _at_most(limit_s), rig.configured(item.conf), item.work.contenders(rig) as contenders:
                status.update(f"{item.name}: checking that all see the same data")
                compared = alternate(contenders, runs=runs, warmups=warmups, told=told)
        except Exception as error:  # anything that Spark, a client or a contender raises
            console.print_exception(max_frames=8) if console.is_terminal else console.print(
                f"{item.name}: {type(error).__name__}: {error}"
            )
            return Outcome(
                item=item,
                compared=[],
                took_s=time.monotonic() - started,
                error=f"{type(error).__name__}: {error}"[:2000],
            )
    outcome = Outcome(item=item, compared=compared, took_s=time.monotonic() - started)
    report.print_outcome(console, outcome)
    return outcome


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread if the context is open for longer."""

    def over(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds / 60:.0f} minutes (--limit)")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    sys.exit(main())
