"""Plots of a results file as SVG: bars of rows, lines of growth, and ratios of many rows. page.py says which ones the
documentation has.

They are as wide as a phone, with text that stays readable there, and follow the reader's light or dark mode.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib
from connectors import CEILING, JVM, JVM_TUNED
from matplotlib import pyplot
from matplotlib.figure import Figure
from runs import Unit

#: One row, as in the items of :func:`report.document`.
Row = Mapping[str, Any]

_WIDTH: Final = 330.0
#: About as many bold letters fit into it.
_LETTERS: Final = 48
_POINTS_PER_INCH: Final = 72
_TEXT, _SMALL = 11.0, 10.0
_BAR, _NAME, _TITLE, _GAP = 14.0, 13.0, 18.0, 8.0
#: Right of the longest bar: its figures.
_LABELS: Final = 98.0
#: Dots of ratios, and the ratios that have a line.
_DOT: Final = 5.5
_MARKS: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32)

# matplotlib draws with these colours, and they become CSS variables, which have a value for each mode.
_INK, _FAINT, _PAPER = "#010000", "#010001", "#010002"
_SERIES: Final = tuple(f"#0101{i:02x}" for i in range(8))
_LIGHT: Final = ("#1c2530", "#c3c9d1", "#ffffff")
_DARK: Final = ("#e4e8ee", "#4a5260", "#1e2129")
_LIGHT_SERIES: Final = ("#2c5fb3", "#c8661b", "#2b8a57", "#8b929c", "#8a4fa3", "#a8861a", "#1a8a96", "#b0446b")
_DARK_SERIES: Final = ("#7ba7ee", "#f0a05c", "#62c48f", "#8d96a3", "#c592dc", "#d9bb55", "#5ec3ce", "#e58aab")
#: A connector has the same colour in all plots; the longer name first, where one begins with the other.
_PLACES: Final = {JVM_TUNED: 2, JVM: 1, CEILING: 3}


def bars(rows: Sequence[Row], *, title: str, run: str) -> str:
    """An SVG with the bars of each row's contenders, their lowest and highest runs, and our ratio to each of them.

    `run` names the run that was measured; it is kept in the file.
    """
    groups: dict[Unit, list[Row]] = {}
    for row in rows:
        groups.setdefault(Unit[row["unit"].upper()], []).append(row)
    colours = _colours(rows)
    # Names that differ from row to row stand over the bars, else once at the top.
    legend = {} if len(colours) > 4 else colours
    step = _BAR if legend else _BAR + _NAME
    height = _TITLE * (1 + len(groups)) + _legend_height(legend)
    titles = {row["name"]: textwrap.wrap(row["title"], _LETTERS) for row in rows}
    height += sum(_TITLE * len(titles[row["name"]]) + step * len(row["contenders"]) + _GAP for row in rows)
    figure, axis = _canvas(height)
    axis.text(0, 10, title, color=_INK, fontsize=_TEXT + 1, weight="bold")
    _legend(axis, legend)
    y = _TITLE + _legend_height(legend)
    for unit, of_unit in groups.items():
        better = "more is better" if unit.more_is_better else "less is better"
        compared = any(len(row["contenders"]) > 1 for row in of_unit)
        note = f"{unit.label}, {better}{'; in brackets: pykafka-wire / this' if compared else ''}"
        axis.text(0, y + 8, note, color=_INK, fontsize=_SMALL)
        y += _TITLE
        highest = max(contender["figure"]["high"] for row in of_unit for contender in row["contenders"])
        for row in of_unit:
            for line in titles[row["name"]]:
                axis.text(0, y + 10, line, color=_INK, fontsize=_TEXT, weight="bold")
                y += _TITLE
            for contender in row["contenders"]:
                if not legend:
                    axis.text(0, y + 9, contender["name"], color=_INK, fontsize=_SMALL)
                _bar(axis, y + step - _BAR, contender, unit, (_WIDTH - _LABELS) / highest, colours[contender["name"]])
                y += step
            y += _GAP
    return _svg(figure, title, run)


def growth(
    rows: Sequence[Row], axis_name: str, *, title: str, labels: Callable[[int], str], megabytes: bool, run: str
) -> str:
    """An SVG with a line for each contender over the rows' places on one axis, evenly spaced.

    `megabytes` shows millions of bytes instead of records, where `axis_name` is the size of a record.
    """
    rows = sorted(rows, key=lambda row: int(row["growth"][axis_name]))
    colours = _colours(rows)
    figure = Figure(figsize=(_WIDTH / _POINTS_PER_INCH, 250 / _POINTS_PER_INCH), facecolor=_PAPER, layout="constrained")
    axis = figure.add_subplot(facecolor=_PAPER)
    for name, colour in colours.items():
        places, values = [], []
        for i, row in enumerate(rows):
            scale = row["growth"][axis_name] / 1e6 if megabytes else 1e-6
            for contender in row["contenders"]:
                if contender["name"] == name:
                    places.append(i)
                    values.append([contender["figure"][key] * scale for key in ("low", "median", "high")])
        axis.plot(places, [v[1] for v in values], color=colour, marker="o", markersize=4, label=name)
        axis.vlines(places, [v[0] for v in values], [v[2] for v in values], color=colour, linewidth=1)
    axis.set_xticks(range(len(rows)), [labels(int(row["growth"][axis_name])) for row in rows])
    axis.set_xlim(-0.3, len(rows) - 0.7)
    axis.set_ylim(bottom=0)
    axis.tick_params(colors=_INK, labelsize=_TEXT, length=0)
    axis.grid(axis="y", color=_FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_title(title, color=_INK, fontsize=_TEXT, weight="bold", loc="left", x=0)
    figure.legend(
        loc="outside lower left",
        ncols=2,
        fontsize=_SMALL,
        labelcolor=_INK,
        frameon=False,
        borderaxespad=0,
        handlelength=1.2,
    )
    return _svg(figure, title, run)


def ratios(
    groups: Mapping[str, Sequence[tuple[str, float]]], *, title: str, note: str, labels: Mapping[str, str], run: str
) -> str:
    """An SVG with a line for each group and a dot for each of its ratios, on a logarithmic axis with a mark at 1.

    `groups` has pairs of a contender's name and a ratio; `labels` are the names of contenders in the legend.
    """
    colours = {labels[name]: _SERIES[_PLACES[name]] for name in labels}
    values = [ratio for pairs in groups.values() for _, ratio in pairs]
    lowest, highest = (math.log(value) for value in (min([*values, 0.5]), max([*values, 2.0])))
    head = 2 * _TITLE + _legend_height(colours)
    step = _NAME + _BAR + _GAP
    figure, axis = _canvas(head + step * len(groups) + _TITLE)
    axis.text(0, 10, title, color=_INK, fontsize=_TEXT + 1, weight="bold")
    _legend(axis, colours)
    axis.text(0, head - _TITLE + 8, note, color=_INK, fontsize=_SMALL)

    def place(ratio: float) -> float:
        return _DOT + (_WIDTH - 2 * _DOT) * (math.log(ratio) - lowest) / (highest - lowest)

    bottom = head + step * len(groups)
    for mark in _MARKS:
        if lowest <= math.log(mark) <= highest:
            axis.plot([place(mark)] * 2, [head, bottom], color=_INK if mark == 1 else _FAINT, linewidth=0.9, zorder=0)
            axis.text(place(mark), bottom + 12, f"{mark:g}×", color=_INK, fontsize=_SMALL, ha="center")
    for y, (group, pairs) in zip((head + step * i for i in range(len(groups))), groups.items(), strict=True):
        behind = {"facecolor": _PAPER, "edgecolor": "none", "pad": 1}
        axis.text(0, y + 10, group, color=_INK, fontsize=_SMALL, weight="bold", bbox=behind)
        for name, ratio in pairs:
            # One contender over the other, so that equal ratios are both seen.
            middle = y + _NAME + (1 + 2 * list(labels).index(name)) * _BAR / (2 * len(labels))
            axis.plot(place(ratio), middle, "o", color=colours[labels[name]], markersize=_DOT, markeredgewidth=0)
    return _svg(figure, title, run)


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each contender: the connectors have theirs, in whatever way they are used, and the first is ours."""
    colours: dict[str, str] = {}
    for row in rows:
        for i, contender in enumerate(row["contenders"]):
            name = contender["name"]
            known = [place for prefix, place in _PLACES.items() if name.startswith(prefix)]
            place = known[0] if known else 0 if i == 0 else len(_PLACES) + i % (len(_SERIES) - len(_PLACES))
            colours.setdefault(name, _SERIES[place])
    return colours


def _canvas(height: float) -> tuple[Figure, Any]:  # Any: matplotlib's axes
    """Coordinates in points, from the upper left corner, with a margin."""
    margin = 6.0
    figure = Figure(
        figsize=((_WIDTH + 2 * margin) / _POINTS_PER_INCH, (height + 2 * margin) / _POINTS_PER_INCH), facecolor=_PAPER
    )
    axis = figure.add_axes((0, 0, 1, 1), frameon=False)
    axis.set_xlim(-margin, _WIDTH + margin)
    axis.set_ylim(height + margin, -margin)
    axis.set_xticks([])
    axis.set_yticks([])
    return figure, axis


def _legend_height(colours: Mapping[str, str]) -> float:
    columns = _legend_columns(colours)
    return _TITLE * ((len(colours) + columns - 1) // columns) + _GAP


def _legend(axis: Any, colours: Mapping[str, str]) -> None:
    columns = _legend_columns(colours)
    for i, (name, colour) in enumerate(colours.items()):
        x, y = (i % columns) * _WIDTH / columns, _TITLE * (i // columns + 1)
        axis.add_patch(pyplot.Rectangle((x, y), 9, 9, color=colour, linewidth=0))
        axis.text(x + 14, y + 8, name, color=_INK, fontsize=_SMALL)


def _legend_columns(colours: Mapping[str, str]) -> int:
    return 2 if max(map(len, colours), default=0) <= _LETTERS // 2 else 1


def _bar(axis: Any, y: float, contender: Mapping[str, Any], unit: Unit, points_per_unit: float, colour: str) -> None:
    low, median, high = (contender["figure"][key] for key in ("low", "median", "high"))
    axis.add_patch(pyplot.Rectangle((0, y), median * points_per_unit, _BAR - 2.5, color=colour, linewidth=0))
    middle = y + (_BAR - 2.5) / 2
    axis.plot([low * points_per_unit, high * points_per_unit], [middle, middle], color=_INK, linewidth=0.9)
    ratio = contender["ratio"]
    text = _figure(median / unit.scale) + (f" ({ratio['median']:.2f}×)" if ratio else "")
    axis.text(high * points_per_unit + 5, y + _BAR - 4, text, color=_INK, fontsize=_SMALL)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def _svg(figure: Figure, title: str, run: str) -> str:
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pykafka-wire", "font.family": "sans-serif"}):
        # The size of the page is the size of the picture, whatever its content.
        figure.savefig(out, format="svg", facecolor=_PAPER, metadata={"Date": None, "Creator": None, "Title": title})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    variables = {_INK: "ink", _FAINT: "faint", _PAPER: "paper"} | {c: f"series-{i}" for i, c in enumerate(_SERIES)}
    text = re.sub(r"#0101?[0-9a-f]{2,4}\b", lambda match: f"var(--{variables[match[0]]})", text)
    # The reader's own font, not the list of those that matplotlib would look for.
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "sans-serif", text)
    style = (
        _style(_LIGHT, _LIGHT_SERIES) + "@media (prefers-color-scheme: dark) { " + _style(_DARK, _DARK_SERIES) + " }"
    )
    head, mark, rest = text.partition(">")
    return f"{head}{mark}\n <!-- run: {run} -->\n <style>{style}</style>{rest}"


def _style(colours: Sequence[str], series: Sequence[str]) -> str:
    named = dict(zip(("ink", "faint", "paper"), colours, strict=True)) | {
        f"series-{i}": c for i, c in enumerate(series)
    }
    return "svg { " + " ".join(f"--{name}: {colour};" for name, colour in named.items()) + " }"
