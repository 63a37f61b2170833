"""What hostile schemas, types and values may take, and how rows are compared: shared by the tests of each format."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.connector.values import protobuf_samples as samples


def bounded(where: str, most_bytes: int, most_s: float, act: Callable[..., Any], *arguments: Any) -> Any:
    """What ``act`` returns or raises, within so much memory and processor time."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = memory_bytes("VmRSS"), time.process_time()
    try:
        return act(*arguments)
    finally:
        taken, growth = time.process_time() - began, memory_bytes("VmHWM") - before
        assert growth < most_bytes, f"{growth >> 20} MiB: {where}"
        assert taken < most_s, f"{taken:.1f} s: {where}"


def memory_bytes(field: str) -> int:
    return int(Path("/proc/self/status").read_text("ascii").partition(f"{field}:")[2].split()[0]) * 1024


def check_rows(rows: Any, found: Any, alone: Callable[[int], Any] | None, where: str) -> int:
    """How many rows were diverted. Each that is looked at alone, too, is what it is there.

    Args:
        alone: a row's place -> the column of it alone, or None.
    """
    assert len(found) == len(rows), where
    found.validate(full=True)
    errors, decoded = found.field("error").to_pylist(), found.field("value").is_valid().to_pylist()
    for place, error in enumerate(errors):
        here = (place, (rows[place].as_py() or b"")[:500], error, where)
        assert error is None or "an unexpected" not in error, here
        assert error is None or not decoded[place], here
        assert error is not None or rows[place].is_valid or not decoded[place], here
        one = None if alone is None else alone(place)
        assert one is None or same(one) == same(found.slice(place, 1)), here
    return sum(error is not None for error in errors)


def same(one: Any) -> object:
    """What is equal for columns of equal values."""
    try:
        return samples.normal(one.to_pylist())
    except (ArithmeticError, ValueError):  # a time that Python does not have
        return sorted(one.to_string().splitlines())
