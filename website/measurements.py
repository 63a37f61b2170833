"""The page "Every row measured": the results of docs/performance.json as tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def measurements_page(docs: Path) -> str:
    """Each row and each contender of the run that docs/performance.md shows: medians with the lowest and highest run."""
    content = json.loads((docs / "performance.json").read_text(encoding="utf-8"))
    machine, versions, given = content["machine"], content["versions"], content["arguments"]
    sections = [
        "# Every row measured\n\n"
        "The run of [Performance](performance.md), which explains what is compared: each row and contender, medians with the "
        "lowest and highest run. A ratio is pykafka-wire's figure divided by the contender's. "
        f"All settings and single runs: [performance.json](performance.json).\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB; "
        f"Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, Python {versions['python']}; "
        f"{given['runs']} runs of each contender after a warm-up, in turn; "
        f"finished {content['finished_at'][:10]}.\n"
    ]
    for kind, rows in _by_kind(content).items():
        sections.append(f"## {kind.replace('-', ' ').capitalize()}\n\n{_table(rows)}")
    return "\n".join(sections)


def _by_kind(content: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The rows by the first word of their names: read, growth, write, stream, typed and so on."""
    by_kind: dict[str, list[Any]] = {}
    for item in content["items"]:
        by_kind.setdefault(item["name"].partition("-")[0], []).append(item)
    return by_kind


def _table(items: list[Any]) -> str:
    lines = ["| row | contender | median | lowest to highest | ratio |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(line for item in items for line in _lines(item))]) + "\n"


def _lines(item: Mapping[str, Any]) -> Iterator[str]:
    if item["error"]:
        yield f"| {item['title']} | not measured in this run | | | |"
    unit = _units()[item["unit"].upper()]
    for contender in item["contenders"]:
        median, low, high = (contender["figure"][key] / unit.scale for key in ("median", "low", "high"))
        ratio = f"{contender['ratio']['median']:.2f} ×" if contender["ratio"] else ""
        span = f"{_shown(low)} to {_shown(high)}"
        yield f"| {item['title']} | {contender['name']} | {_shown(median)} {unit.label} | {span} | {ratio} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _units() -> Any:  # Any: the folder benchmarks/ holds programs, not a package
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from runs import Unit
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return Unit
