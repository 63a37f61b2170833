"""The results, for people and programs: tables on the terminal, JSON with machine, versions and settings."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from connectors import CONNECTORS
from item import Item
from reads import CPU_PER_RECORD
from rich.console import Console
from rich.table import Table
from rig import BROKER_PROPERTIES, SPARK_CONF
from runs import Compared, Summary

from pykafka_wire.local.jars import JVM_CONNECTOR, KAFKA_VERSION

_PACKAGES = (
    *("pykafka-wire", "pyspark", "pyarrow", "numpy", "delta-spark", "confluent-kafka", "kafka-python", "aiokafka"),
    *("lz4", "zstandard", "python-snappy", "isal", "crc32c"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One item, measured, or the error that ended it."""

    item: Item
    compared: Sequence[Compared]
    took_s: float
    error: str = ""

    @property
    def met(self) -> dict[str, bool]:
        """By contender, whether its goal was reached; "limit" stands for the absolute one."""
        met = {}
        for contender in self.compared:
            goal = self.item.goals.get(contender.name)
            if goal is not None and contender.ratio is not None:
                reached = contender.ratio.median
                met[contender.name] = reached >= goal if self.item.unit.more_is_better else reached <= goal
        if self.item.limit is not None and self.compared:
            met["limit"] = self.compared[0].figure.median / self.item.unit.scale <= self.item.limit
        return met


def print_outcome(console: Console, outcome: Outcome) -> None:
    """A table of one item: medians with extremes, and ours divided by theirs, pair by pair."""
    item = outcome.item
    table = Table(title=f"{item.title}  [dim]{item.name}[/dim]", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column(item.unit.label, justify="right")
    table.add_column("min–max", justify="right", style="dim")
    table.add_column("ours / theirs", justify="right")
    table.add_column("min–max", justify="right", style="dim")
    if _by_cpu(outcome):
        table.add_column("by CPU", justify="right", style="dim")
    table.add_column("goal", justify="right")
    table.add_column("beside", style="dim")
    for i, contender in enumerate(outcome.compared):
        table.add_row(
            contender.name,
            *_cells(contender.figure, item.unit.scale),
            *(_cells(contender.ratio, 1.0) if contender.ratio is not None else ("", "")),
            *_by_cpu(outcome)[i : i + 1],
            _goal(outcome, contender, first=i == 0),
            ", ".join(f"{name} {value:,.0f}" for name, value in contender.beside.items()),
        )
    console.print(table)


def print_summary(console: Console, outcomes: Sequence[Outcome]) -> None:
    """A line for each goal: what was reached, and whether that is enough."""
    table = Table(title="goals", title_justify="left", title_style="bold")
    for name in ("item", "beside", "reached", "by CPU", "goal"):
        table.add_column(name, justify="left" if name in ("item", "beside") else "right")
    for outcome in outcomes:
        if outcome.error:
            table.add_row(outcome.item.name, "", "[red]failed[/red]")
        for i, contender in enumerate(outcome.compared):
            goal = _goal(outcome, contender, first=i == 0)
            if goal:
                figure, scale = (
                    (contender.ratio, 1.0) if contender.ratio else (contender.figure, outcome.item.unit.scale)
                )
                by_cpu = "".join(_by_cpu(outcome)[i : i + 1])
                table.add_row(outcome.item.name, contender.name if i else "", _cells(figure, scale)[0], by_cpu, goal)
    if table.row_count:
        console.print(table)


def _cells(summary: Summary, scale: float) -> tuple[str, str]:
    digits = 0 if summary.median / scale >= 100 else 2
    low, median, high = (f"{value / scale:,.{digits}f}" for value in (summary.low, summary.median, summary.high))
    return median, f"{low}–{high}"


def _by_cpu(outcome: Outcome) -> list[str]:
    """For each contender its CPU time a record divided by ours, above 1 where ours takes less; empty if it was not measured."""
    spent = [contender.beside.get(CPU_PER_RECORD, 0.0) for contender in outcome.compared]
    if not all(spent):
        return []
    return ["", *(f"{seconds / spent[0]:,.2f}" for seconds in spent[1:])]


def _goal(outcome: Outcome, contender: Compared, *, first: bool) -> str:
    item, sign = outcome.item, "≥" if outcome.item.unit.more_is_better else "≤"
    if first and item.limit is not None:
        return _coloured(f"≤ {item.limit:g} {item.unit.label}", outcome.met["limit"])
    if contender.name in outcome.met:
        return _coloured(f"{sign} {item.goals[contender.name]:g}", outcome.met[contender.name])
    return ""


def _coloured(text: str, good: bool) -> str:
    return f"[green]{text} met[/green]" if good else f"[red]{text} missed[/red]"


def document(outcomes: Sequence[Outcome], *, arguments: Mapping[str, object], java: str) -> dict[str, Any]:
    """Everything about a run, as JSON takes it. Figures are unscaled: records/s, ms, s, bytes."""
    return {
        "version": 1,
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "arguments": dict(arguments),
        "machine": _machine(),
        "versions": {
            "python": platform.python_version(),
            "java": java,
            "kafka broker": KAFKA_VERSION,
            **{coordinate.artifact: coordinate.version for coordinate in JVM_CONNECTOR},
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
            "commit": _commit(),
        },
        "settings": {
            "spark": dict(SPARK_CONF),
            "broker": dict(BROKER_PROPERTIES),
            "connectors": {
                connector.name: {"read": dict(connector.read_options), "write": dict(connector.write_options)}
                for connector in CONNECTORS
            },
        },
        "items": [_item(outcome) for outcome in outcomes],
    }


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON so that a reader never sees half of it."""
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)


def _item(outcome: Outcome) -> dict[str, Any]:
    item = outcome.item
    return {
        "name": item.name,
        "title": item.title,
        "unit": item.unit.name.lower(),
        "more_is_better": item.unit.more_is_better,
        "conf": dict(item.conf),
        "growth": dict(item.growth),
        "goals": dict(item.goals),
        "limit": item.limit,
        "met": outcome.met,
        "took_s": round(outcome.took_s, 1),
        "error": outcome.error,
        "contenders": [asdict(compared) for compared in outcome.compared],
    }


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()


@functools.cache  # at the first result: those written to docs/ are no change of what is measured
def _commit() -> str:
    """The commit that was measured, marked where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # an unpacked source distribution
        return "unknown"
