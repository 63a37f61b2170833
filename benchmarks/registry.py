"""The schema registry that the tests start, for benchmarks of values with schemas."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path


def local_registry() -> contextlib.AbstractContextManager[str]:
    """The URL of an empty registry, which ends with the context. It is downloaded once."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:  # benchmarks are scripts: the folder of the tests is not on their path
        sys.path.append(root)
    from tests.connector.values.apicurio import apicurio

    return apicurio()
