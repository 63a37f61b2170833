"""A picture of a results file: a panel per unit, a group of bars per item. `python plot.py FILE.json` redraws it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runs import Unit

_INCHES_PER_BAR = 0.24


def draw(content: Mapping[str, Any], path: Path) -> None:
    """Writes a PNG of all items measured: bars are medians, whiskers the extremes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_unit: dict[Unit, list[Mapping[str, Any]]] = {}
    for item in content["items"]:
        if item["contenders"]:
            by_unit.setdefault(Unit[item["unit"].upper()], []).append(item)
    if not by_unit:
        return
    bars = [sum(len(item["contenders"]) + 1 for item in of_unit) for of_unit in by_unit.values()]
    figure, axes = pyplot.subplots(
        len(by_unit),
        1,
        figsize=(11, 1.5 + sum(max(n, 5) for n in bars) * _INCHES_PER_BAR + 0.6 * len(bars)),
        height_ratios=[max(n, 5) for n in bars],
        squeeze=False,
        layout="constrained",
    )
    for axis, (unit, of_unit) in zip(axes[:, 0], by_unit.items(), strict=True):
        _panel(axis, unit, of_unit)
    machine, versions = content["machine"], content["versions"]
    figure.suptitle(
        f"{machine['cpu']}, {machine['cores']} cores; Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, "
        f"Python {versions['python']}",
        fontsize=9,
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis: Any, unit: Unit, of_unit: Sequence[Mapping[str, Any]]) -> None:  # Any: a matplotlib axis
    names = list(dict.fromkeys(contender["name"] for item in of_unit for contender in item["contenders"]))
    at, ticks = 0.0, []
    drawn: set[str] = set()
    for item in of_unit:
        first = at
        for contender in item["contenders"]:
            figure, name = contender["figure"], contender["name"]
            median, low, high = (figure[key] / unit.scale for key in ("median", "low", "high"))
            axis.barh(
                at,
                median,
                color=f"C{names.index(name) % 10}",
                label=None if name in drawn else name,
                xerr=[[median - low], [high - median]],
                error_kw={"elinewidth": 0.8, "capsize": 2},
            )
            ratio = contender["ratio"]
            note = f"{median:,.2f}" + (f"  ({ratio['median']:.2f}×)" if ratio else "")
            axis.annotate(note, (high, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7)
            drawn.add(name)
            at += 1
        ticks.append(((first + at - 1) / 2, item["title"]))
        at += 1
    axis.set_yticks([tick for tick, _ in ticks], [title for _, title in ticks], fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set_xlabel(f"{unit.label} ({'more' if unit.more_is_better else 'less'} is better; in brackets: ours / theirs)")
    axis.legend(fontsize=7, loc="best")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        results = Path(name)
        draw(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".png"))
