"""Prints the oldest releases of the packages that the wheel needs, as pyproject.toml allows them: a requirement a line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def lowest(pyproject: str) -> list[str]:
    """``["numpy==1.26.*"]`` of ``dependencies = ["numpy>=1.26"]``."""
    found = re.search(r"^dependencies = \[(.*?)^\]", pyproject, re.DOTALL | re.MULTILINE)
    assert found is not None
    return [f"{name}=={version}.*" for name, version in re.findall(r'"([\w-]+)>=([\d.]+)"', found[1])]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest((ROOT / "pyproject.toml").read_text(encoding="utf-8"))) + "\n")
