"""docs/performance.md and README show the figures of docs/performance.json, and of no other run."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    # The benchmarks are scripts, not a package.
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import page

    sys.path.remove(str(ROOT / "benchmarks"))
    yield page
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


@pytest.fixture
def content() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "docs" / "performance.json").read_text(encoding="utf-8"))
    return loaded


def test_the_documents_show_the_run_and_its_plots(page: ModuleType, content: dict[str, Any]) -> None:
    results = page.Results(content)
    pictures = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "performance").glob("*.svg")}
    assert len(pictures) > 5
    assert [name for name, svg in pictures.items() if f"<!-- run: {results.run} -->" not in svg] == []
    parts = {"performance.md": page.page_parts(results, pictures), "../README.md": {"summary": page.summary(results)}}
    for name, rendered in parts.items():
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert page.in_document(text, rendered) == text, "run benchmarks/page.py docs/performance.json"
        shown = re.findall(r"performance/([\w-]+)\.svg", text)
        assert shown
        assert set(shown) <= pictures.keys()


def test_a_row_that_failed_is_marked_and_not_plotted(page: ModuleType, content: dict[str, Any]) -> None:
    failed = copy.deepcopy(content)
    for item in failed["items"]:
        item.update(contenders=[], error="TimeoutError: a broker was slow")
    results = page.Results(failed)
    rendered = page.page_parts(results, drawn := page.plots(results))
    assert drawn == {}
    assert f"{len(failed['items'])} of {len(failed['items'])} rows could not be measured" in rendered["run"]
    for name in ("read", "write", "stream", "trickle", "exactly-once", "cold", "typed-rate", "typed-memory"):
        assert rendered[name].count("not measured in this run") == len(results.kind(name)), name
        assert "×" not in rendered[name]
    assert "not measured in this run" in page.summary(results)


def test_the_page_begins_with_a_plot_of_every_comparison(page: ModuleType, content: dict[str, Any]) -> None:
    results = page.Results(content)
    compared = [
        (row["name"], each["name"])
        for row in content["items"]
        for each in row["contenders"]
        if each["name"].startswith(page.JVM) and each["ratio"]
    ]
    shown = page.as_fast(results)
    assert sum(map(len, shown.values())) == len(compared) > 50
    # Of times less is better: a quarter of the JVM connector's duration is four times as fast.
    shortest = min(
        each["ratio"]["median"]
        for row in content["items"]
        if row["name"].startswith("trickle-")
        for each in row["contenders"]
        if each["ratio"]
    )
    assert max(ratio for _, ratio in shown["Micro-batches of a slow stream"]) == pytest.approx(1 / shortest)
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text.index("performance/as-fast.svg") < text.index("\n## ")


def test_a_plot_has_colours_for_light_and_dark_and_no_font_of_its_own(
    page: ModuleType, content: dict[str, Any]
) -> None:
    svg = page.plots(page.Results(content))["read"]
    assert "@media (prefers-color-scheme: dark)" in svg
    body = svg.partition("</style>")[2]
    assert set(re.findall(r"#[0-9a-f]{6}\b", body)) == set()
    assert "DejaVu" not in body
    assert "var(--ink)" in body


def test_a_document_without_the_marks_is_refused(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="in the document"):
        page.in_document("# a document\n", {"read": "| table |\n"})
