"""The table of typed topics in docs/performance.md, made of a results file, which is kept in docs/.

    python typed_table.py FILE.json

Only items that were measured are in it, each against the contender that its goal names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "performance.md"
RESULTS: Final = ROOT / "docs" / "typed-topics.json"
BEGIN: Final = "<!-- typed: written by benchmarks/typed_table.py -->"
END: Final = "<!-- /typed -->"
_MB: Final = 1e6


def table(results: Mapping[str, Any]) -> str:
    """The table in Markdown; `results` as in a file of :func:`report.document`."""
    lines = ["| | beside | pykafka-wire is |", "|---|---|---|"]
    lines += _ratios(results)
    peaks = [
        f"{item['title'].rpartition(', ')[2]} {item['contenders'][0]['figure']['median'] / _MB:.0f} MB"
        for item in _measured(results)
        if item["unit"] == "memory"
    ]
    if peaks:
        lines.append(f"| peak memory of a Python worker | at most 300 MB | {', '.join(peaks)} |")
    given, machine = results["arguments"], results["machine"]
    lines += ["", f"Medians of {given['runs']} pairs, {given['records'] // 3:,} records, {machine['cores']} cores."]
    return "\n".join(lines) + "\n"


def _ratios(results: Mapping[str, Any]) -> Iterator[str]:
    for item in _measured(results):
        for other in item["contenders"][1:]:
            if other["name"] in item["goals"]:
                title, ratio = item["title"].removeprefix("typed "), other["ratio"]["median"]
                yield f"| {title} | {other['name']} | {ratio:.2f} × |"


def _measured(results: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (item for item in results["items"] if item["name"].startswith("typed-") and not item["error"])


def in_document(text: str, rendered: str) -> str:
    """`text` with the table between the two marks replaced."""
    found = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if not found.search(text):
        raise ValueError(f"no {BEGIN} … {END} in the document")
    return found.sub(lambda _: f"{BEGIN}\n{rendered}{END}", text)


def main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    rendered = table(json.loads(text))
    print(rendered)
    PAGE.write_text(in_document(PAGE.read_text(encoding="utf-8"), rendered), encoding="utf-8")
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
