"""The tables and plots of docs/performance.md, and the picture and summary of README, all from one results file.

    python page.py docs/performance.json

Each part of the documents lies between two marks, and is replaced. Whatever a run did not measure is marked as such, never taken
from another run: every plot names its run within, and plots of earlier runs are removed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import plot
from connectors import CEILING, JVM, JVM_TUNED, OURS
from runs import Unit

ROOT: Final = Path(__file__).resolve().parents[1]
_SIDE_BY_SIDE: Final = (JVM, JVM_TUNED, CEILING)
#: Rows of the picture in README.
_OVERVIEW: Final = ("read-none-16k-noop", "read-lz4-16k-noop", "read-1kib-lz4-16k-noop")
_NOT_MEASURED: Final = "not measured in this run"
#: A run of fewer records is a trial of the page: starting tasks takes most of its time.
_TRIAL_BELOW: Final = 1_000_000
_TRIAL: Final = "**A trial with few records: these figures say nothing about speed.**"

Row = plot.Row


class Results:
    """A results file, as :func:`report.document` makes it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.rows: Sequence[Row] = [row | {"title": _short_title(row["title"])} for row in content["items"]]

    @property
    def is_trial(self) -> bool:
        return int(self.content["arguments"]["records"]) < _TRIAL_BELOW

    @property
    def run(self) -> str:
        """Names the run: its commit, and when it ended."""
        return f"{self.content['versions']['commit']}, {self.content['finished_at']}"

    def kind(self, kind: str) -> list[Row]:
        """The rows of one kind, those that failed included."""
        return [row for row in self.rows if kind_of(row) == kind]

    def along(self, axis: str) -> list[Row]:
        """The rows of a plot of growth, in its order."""
        rows = [row for row in self.rows if axis in row["growth"]]
        return sorted(rows, key=lambda row: int(row["growth"][axis]))


def _short_title(title: str) -> str:
    """Without what the heading of its table says."""
    for prefix in ("batch read, ", "batch write, ", "micro-batch, ", "peak memory of a Python worker, ", "typed "):
        title = title.removeprefix(prefix)
    return title


def kind_of(row: Row) -> str:
    """Which table a row is in: the first word of its name, and for some a word more."""
    name, first = row["name"], row["name"].partition("-")[0]
    if "exactly-once" in name:
        return "exactly-once"
    return f"typed-{row['unit']}" if first == "typed" else first


# --- tables ---------------------------------------------------------------------------------------------------------


def run_line(results: Results) -> str:
    """What was measured, where and when."""
    machine, versions, given = (results.content[name] for name in ("machine", "versions", "arguments"))
    ended = results.content["finished_at"][:16].replace("T", " ")
    failed = sum(bool(row["error"]) for row in results.rows)
    lines = [
        f"All figures of this page are of one run of commit `{versions['commit']}`, which ended at {ended} UTC: medians of ",
        f"{given['runs']} pair{'s' if given['runs'] > 1 else ''} after a warm-up, ",
        f"{given['records']:,} records "
        f"of 100 bytes in 4 partitions, unless a section says otherwise. {machine['cpu']}, {machine['cores']} cores, ",
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, ",
        f"Java {versions['java']}, Python {versions['python']}.",
        f" **{failed} of {len(results.rows)} rows could not be measured in this run.**" if failed else "",
        f" {_TRIAL}" if results.is_trial else "",
    ]
    return "".join(lines) + "\n"


def side_by_side(rows: Sequence[Row]) -> str:
    """A row for each item: our figure, and our ratio to each JVM connector and to the ceiling."""
    unit = Unit[rows[0]["unit"].upper()].label
    present = {contender["name"] for row in rows for contender in row["contenders"]}
    names = [name for name in _SIDE_BY_SIDE if name in present] or [JVM]
    lines = [f"| | pykafka-wire, {unit} | {' | '.join(f'compared with the {name}' for name in names)} |"]
    lines.append("|---" * (2 + len(names)) + "|")
    for row in rows:
        by_name = {contender["name"]: contender for contender in row["contenders"]}
        ratios = " | ".join(_ratio(by_name[name]) if name in by_name else "" for name in names)
        ours = _NOT_MEASURED if row["error"] else _figure(row, row["contenders"][0])
        lines.append(f"| {row['title']} | {ours} | {ratios} |")
    return "\n".join(lines) + "\n"


def one_by_one(rows: Sequence[Row]) -> str:
    """A row for each contender of each item, where items have contenders of their own."""
    lines = ["| | contender | figure | pykafka-wire / this |", "|---|---|---|---|"]
    for row in rows:
        unit = Unit[row["unit"].upper()].label
        if row["error"]:
            lines.append(f"| {row['title']} | {_NOT_MEASURED} | | |")
        for contender in row["contenders"]:
            ratio = _ratio(contender) if contender["ratio"] else ""
            lines.append(f"| {row['title']} | {contender['name']} | {_figure(row, contender)} {unit} | {ratio} |")
    return "\n".join(lines) + "\n"


def absolute(rows: Sequence[Row]) -> str:
    """A row for each item with our own figure and its limit."""
    lines = ["| | median | limit |", "|---|---|---|"]
    for row in rows:
        unit = Unit[row["unit"].upper()].label
        figure = _NOT_MEASURED if row["error"] else f"{_figure(row, row['contenders'][0])} {unit}"
        limit = "" if row["limit"] is None else f"{row['limit']:g} {unit}"
        lines.append(f"| {row['title']} | {figure} | {limit} |")
    return "\n".join(lines) + "\n"


def points(rows: Sequence[Row], axis: str) -> str:
    """A row for each place on an axis of growth, with the figure of each contender."""
    names = list(dict.fromkeys(contender["name"] for row in rows for contender in row["contenders"])) or [OURS]
    _, label, megabytes = AXES[axis]
    unit = "MB/s" if megabytes else Unit.RATE.label
    lines = [f"| {unit} | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for row in rows:
        place = int(row["growth"][axis])
        by_name = {contender["name"]: contender["figure"]["median"] for contender in row["contenders"]}
        scale = place / 1e6 if megabytes else 1e-6
        cells = [f"{by_name[name] * scale:,.{0 if megabytes else 2}f}" if name in by_name else "" for name in names]
        cells = [_NOT_MEASURED, *cells[1:]] if row["error"] else cells
        noun = "" if megabytes else f" {axis.removesuffix('s')}" + ("s" if place > 1 else "")
        lines.append(f"| {label(place)}{noun} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(results: Results) -> str:
    """README's picture, the span of the ratios of batch reads in words, and typed topics compared with the JVM connector."""
    reads = [*results.kind("read"), *results.kind("growth")]
    spans = []
    for name in (JVM, JVM_TUNED):
        ratios = [c["ratio"]["median"] for row in reads for c in row["contenders"] if c["name"] == name]
        spans.append(f"{min(ratios):.2g} to {max(ratios):.2g} times" if ratios else f"({_NOT_MEASURED})")
    cores = results.content["machine"]["cores"]
    lines = [
        "![Batch reads, records a second](docs/performance/overview.svg)\n",
        f"Both connectors ran alternately in one Spark session on {cores} cores. The ceiling is a Python source that only yields",
        "ready-made Arrow batches.",
        f"Batch reads run at {spans[0]} the rate of the JVM connector with its defaults, and at {spans[1]} the rate of",
        "the tuned JVM connector. With its defaults, the JVM connector waits half a second at the end of each partition.",
    ]
    lines += ["", "| typed topics | million records/s | compared with | ratio |", "|---|---|---|---|"]
    for row in results.kind("typed-rate"):
        ours, *others = row["contenders"] or [None]
        if ours is None:
            lines.append(f"| {row['title']} | {_NOT_MEASURED} | | |")
        lines += [
            f"| {row['title']} | {_figure(row, ours)} | {other['name']} | {_ratio(other)} |"
            for other in others
            if other["name"].startswith(JVM)
        ]
    return "\n".join([*lines, "", _TRIAL] if results.is_trial else lines) + "\n"


def as_fast(results: Results) -> dict[str, list[tuple[str, float]]]:
    """How many times as fast as each JVM connector pykafka-wire is, in all that was measured beside them, by what was done."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for row in results.rows:
        title = _OPENING.get(kind_of(row)) or _OPENING.get(f"{kind_of(row)} {row['title'].partition(',')[0]}")
        for contender in row["contenders"] if title else ():
            name = next((jvm for jvm in (JVM_TUNED, JVM) if contender["name"].startswith(jvm)), None)
            if title and name:
                ratio = contender["ratio"]["median"]
                groups.setdefault(title, []).append((name, ratio if row["more_is_better"] else 1 / ratio))
    return {title: groups[title] for title in _OPENING.values() if title in groups}


def opening(results: Results) -> str:
    """What the first plot shows, in words."""
    pairs = [pair for group in as_fast(results).values() for pair in group]
    said = []
    for name, label in ((JVM, "the JVM connector with its defaults"), (JVM_TUNED, "the tuned JVM connector")):
        ratios = [ratio for contender, ratio in pairs if contender == name]
        said.append(f"faster than {label} in {sum(ratio > 1 for ratio in ratios)} of {len(ratios)} measurements")
    return "pykafka-wire is " + ",\nand ".join(said) + ".\nEach dot is one measurement; the sections below name it.\n"


def _figure(row: Row, contender: Mapping[str, Any]) -> str:
    value = contender["figure"]["median"] / Unit[row["unit"].upper()].scale
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _ratio(contender: Mapping[str, Any]) -> str:
    value = contender["ratio"]["median"]
    return f"{value:.1f} ×" if value >= 10 else f"{value:.2f} ×"


def _size(n_bytes: int) -> str:
    return f"{n_bytes // 1024} KiB" if n_bytes >= 1024 else f"{n_bytes} B"


#: The lines of the first plot: a row's kind, of typed topics with the title's first word.
_OPENING: Final[Mapping[str, str]] = {
    "read": "Batch reads",
    "growth": "Batch reads by partitions, record size, executors",
    "typed-rate read": "Typed reads",
    "stream": "Streams over a backlog",
    "trickle": "Micro-batches of a slow stream",
    "write": "Batch writes",
    "typed-rate write": "Typed writes",
    "cold": "Start of an application",
}

#: Axes of growth: heading, label of a place, and whether bytes are shown instead of records.
AXES: Final[Mapping[str, tuple[str, Callable[[int], str], bool]]] = {
    "partitions": ("partitions", str, False),
    "record_bytes": ("record size", _size, True),
    "executors": ("executors of one core", str, False),
}

#: The parts of docs/performance.md, by the names in their marks.
PARTS: Final[Mapping[str, Callable[[Results], str]]] = {
    "run": run_line,
    "read": lambda results: side_by_side(results.kind("read")),
    "write": lambda results: side_by_side(results.kind("write")),
    "exactly-once": lambda results: one_by_one(results.kind("exactly-once")),
    "stream": lambda results: side_by_side(results.kind("stream")),
    "trickle": lambda results: side_by_side(results.kind("trickle")),
    "cold": lambda results: one_by_one(results.kind("cold")),
    "typed-rate": lambda results: one_by_one(results.kind("typed-rate")),
    "typed-memory": lambda results: absolute(results.kind("typed-memory")),
    **{axis: lambda results, axis=axis: points(results.along(axis), axis) for axis in AXES},
}

# --- plots ----------------------------------------------------------------------------------------------------------

_PLOTS: Final[Mapping[str, str]] = {
    "read": "Batch reads",
    "write": "Batch writes",
    "exactly-once": "Exactly once",
    "stream": "Streams over a backlog",
    "trickle": "Duration of a micro-batch",
    "cold": "A new application",
    "typed-rate": "Typed topics",
    "typed-memory": "Memory for typed topics",
}


def plots(results: Results) -> dict[str, str]:
    """The plots of everything that was measured, by their names without ``.svg``."""
    drawn = {}
    by_name = {row["name"]: row for row in results.rows if not row["error"]}
    for kind, title in _PLOTS.items():
        rows = [row for row in results.kind(kind) if not row["error"]]
        if rows:
            drawn[kind] = plot.bars(rows, title=title, run=results.run)
    for axis, (title, label, megabytes) in AXES.items():
        rows = [row for row in results.along(axis) if not row["error"]]
        if rows:
            heading = f"{'MB/s' if megabytes else Unit.RATE.label} by {title}"
            drawn[axis] = plot.growth(rows, axis, title=heading, labels=label, megabytes=megabytes, run=results.run)
    if groups := as_fast(results):
        drawn["as-fast"] = plot.ratios(
            groups, title="Speed beside the JVM connector", note="times as fast; right of 1× pykafka-wire is faster",
            labels={JVM: "JVM connector, defaults", JVM_TUNED: "JVM connector, tuned"}, run=results.run,
        )  # fmt: skip
    overview = [by_name[name] for name in _OVERVIEW if name in by_name]
    if overview:
        drawn["overview"] = plot.bars(overview, title="Batch reads", run=results.run)
    return drawn


# --- documents ------------------------------------------------------------------------------------------------------


def in_document(text: str, parts: Mapping[str, str]) -> str:
    """`text` with each part between its marks replaced.

    Raises:
        ValueError: a mark is missing.
    """
    for name, part in parts.items():
        begin, end = f"<!-- measured: {name} -->", f"<!-- /measured: {name} -->"
        section = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if not section.search(text):
            raise ValueError(f"no {begin} … {end} in the document")
        text = section.sub(lambda _, whole=f"{begin}\n{part}{end}": whole, text)
    return text


def page_parts(results: Results, drawn: Mapping[str, str]) -> dict[str, str]:
    """The parts of docs/performance.md: each its plot, where there is something to plot, and its table."""
    begin = (
        "![How many times as fast as the JVM connector pykafka-wire is, by kind of work](performance/as-fast.svg)\n\n"
    )
    titles = _PLOTS | {axis: f"Rates by {title}" for axis, (title, _, _) in AXES.items()}
    parts = {"as-fast": begin + opening(results) if "as-fast" in drawn else f"N{_NOT_MEASURED[1:]}.\n"}
    for name, render in PARTS.items():
        picture = f"![{titles[name]}](performance/{name}.svg)\n\n" if name in drawn else ""
        rows = results.along(name) if name in AXES else results.kind(name)
        parts[name] = picture + render(results) if rows or name == "run" else f"N{_NOT_MEASURED[1:]}.\n"
    return parts


def write(results: Results, root: Path) -> None:
    """Writes the plots, and the parts of both documents."""
    drawn = plots(results)
    folder = root / "docs" / "performance"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    for path, parts in (
        (root / "docs" / "performance.md", page_parts(results, drawn)),
        (root / "README.md", {"summary": summary(results)}),
    ):
        path.write_text(in_document(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    write(Results(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), ROOT)
