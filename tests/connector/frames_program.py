"""Runs the code of docs/daft.md and docs/ray.md, as it stands there, against the brokers that are given: `make frames`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run(page: str, brokers: str) -> dict[str, Any]:
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(block.replace("broker:9092", brokers), names)
    return names


def main() -> None:
    daft, ray = run("daft.md", sys.argv[1]), run("ray.md", sys.argv[1])
    print("daft", daft["total"], daft["n_recent"], daft["three"]["offset"])
    print("ray", ray["total"], sorted(row["offset"] for row in ray["three"]))


if __name__ == "__main__":
    main()
