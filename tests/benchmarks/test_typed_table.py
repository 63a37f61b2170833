"""The table of typed topics in docs/performance.md is that of the results in docs/."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def typed_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_typed_table", ROOT / "benchmarks" / "typed_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_figures_that_were_measured(typed_table: ModuleType) -> None:
    results = json.loads((ROOT / "docs" / "typed-topics.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rendered = typed_table.table(results)
    assert rendered.count("\n|") > 5
    assert typed_table.in_document(page, rendered) == page, "run benchmarks/typed_table.py docs/typed-topics.json"


def test_a_document_without_the_marks_is_refused(typed_table: ModuleType) -> None:
    with pytest.raises(ValueError, match="in the document"):
        typed_table.in_document("# a document\n", "| table |\n")
