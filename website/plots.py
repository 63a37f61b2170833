"""Plots of the measurements in docs/*.json, drawn by benchmarks/plot.py while the site is built."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def results(docs: Path) -> Iterator[Path]:
    """The results files of `make performance` and its parts (benchmarks/report.py writes them)."""
    for path in sorted(docs.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if {"machine", "versions", "items"} <= content.keys():
            yield path


def drawn(docs: Path) -> dict[str, bytes]:
    """A PNG for each part of each results file, by its path in the site."""
    draw, _ = _benchmarks()
    pictures = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in results(docs):
            for part in parts(json.loads(path.read_text(encoding="utf-8"))):
                picture = Path(folder) / "part.png"
                draw(part.content, picture)
                pictures[picture_of(path, part)] = picture.read_bytes()
    return pictures


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one kind, small enough for one picture; `content` is as in a results file."""

    name: str
    content: Mapping[str, Any]


def parts(content: Mapping[str, Any]) -> Iterator[Part]:
    """The rows that were measured, by the first word of their names: read, write, stream, typed and so on."""
    by_kind: dict[str, list[Any]] = {}
    for item in content["items"]:
        if item["contenders"]:
            by_kind.setdefault(item["name"].partition("-")[0], []).append(item)
    for kind, items in by_kind.items():
        yield Part(name=kind, content={**content, "items": items})


def picture_of(path: Path, part: Part) -> str:
    """Where the site has the plot of a part of a results file."""
    return f"assets/measured/{path.stem}-{part.name}.png"


def measurements_page(docs: Path) -> str:
    """Every row of every results file: a plot and a table for each kind of rows."""
    sections = [
        "# Every row measured\n\n"
        "This page shows the results files as they are: each row, each contender, medians with the lowest and highest run. "
        "[Performance](performance.md) explains what is compared. A ratio is pykafka-wire's figure divided by the contender's.\n"
    ]
    for path in results(docs):
        content = json.loads(path.read_text(encoding="utf-8"))
        machine, versions, given = content["machine"], content["versions"], content["arguments"]
        sections.append(
            f"## {path.stem.replace('-', ' ').capitalize()}\n\n"
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB; "
            f"Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, Python {versions['python']}; "
            f"{given['runs']} runs of each contender after {given['warmups']} to warm up, in turn; "
            f"finished {content['finished_at'][:10]}. All settings: [{path.name}]({path.name}).\n"
        )
        for part in parts(content):
            title = f"{path.stem.replace('-', ' ')}, {part.name}"
            sections.append(f"![{title}]({picture_of(path, part)})\n\n{_table(part.content)}")
    return "\n".join(sections)


def _benchmarks() -> tuple[Any, Any]:  # Any: the folder benchmarks/ holds programs, not a package
    """What benchmarks/ draws with, and its units."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from plot import draw
        from runs import Unit
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return draw, Unit


def _table(content: Mapping[str, Any]) -> str:
    _, units = _benchmarks()
    lines = ["| row | contender | median | lowest to highest | ratio |", "|---|---|---|---|---|"]
    for item in content["items"]:
        unit = units[item["unit"].upper()]
        for contender in item["contenders"]:
            median, low, high = (contender["figure"][key] / unit.scale for key in ("median", "low", "high"))
            ratio = f"{contender['ratio']['median']:.2f} ×" if contender["ratio"] else ""
            span = f"{low:,.3g} to {high:,.3g}"
            lines.append(f"| {item['title']} | {contender['name']} | {median:,.3g} {unit.label} | {span} | {ratio} |")
    return "\n".join(lines) + "\n"
