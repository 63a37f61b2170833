"""The largest micro-batch that may pass through the driver: an eighth of its heap.

The driver's JVM holds several copies of each task's result (serialized, as a message, on its way to the Python process that
commits): 248 MiB failed on the default heap of 1 GiB in local mode. A Python process has no access to the driver's settings, so
they are read from the command line of its parent JVM.

The results of many tasks add up on the driver before the sink can count them. Spark counts them as they arrive, up to
``spark.driver.maxResultSize``, whose default is as large as the default heap.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pykafka_wire.errors import ExactlyOnceError

#: Spark's defaults of spark.driver.memory and spark.driver.maxResultSize, both.
_DEFAULT_BYTES: Final = 1 << 30
_HEAP_SHARE: Final = 8
#: The serialized results of a micro-batch's tasks are more than its encoded batches.
_RESULT_SHARE: Final = 2
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_HEAP: Final = re.compile(r"-Xmx(\d+)([bkmgt]?)b?", re.IGNORECASE)
_MAX_RESULT: Final = re.compile(r"spark\.driver\.maxResultSize=(\d+)([bkmgt]?)b?", re.IGNORECASE)


def default_max_bytes() -> int:
    """Return the most bytes of a micro-batch for this process's driver; for Spark's defaults where the driver is unknown."""
    return max_bytes_of(_command_line_of_jvm())


def max_bytes_of(command_line: list[str]) -> int:
    """Return the same for a driver of this command line."""
    heap, results = _heap_and_results(command_line)
    share = heap // _HEAP_SHARE
    return min(share, results // _RESULT_SHARE) if results else share


def missing_result_limit(command_line: list[str] | None = None) -> str | None:
    """Return the setting by which Spark stops a micro-batch that exceeds the driver's heap; None where Spark does so already."""
    if command_line is None:
        command_line = _command_line_of_jvm()
    heap, results = _heap_and_results(command_line)
    limit = heap * _RESULT_SHARE // _HEAP_SHARE
    return None if 0 < results <= limit else f"spark.driver.maxResultSize={limit >> 20}m"


def too_large(batch_id: int, n_bytes: int, max_bytes: int) -> ExactlyOnceError:
    """Return the error for a micro-batch of ``n_bytes``, as far as they are counted."""
    return ExactlyOnceError(
        f"micro-batch {batch_id} was not written: it has at least {n_bytes} bytes, and all of it passes through the "
        f"driver, which accepts {max_bytes}. Set maxOffsetsPerTrigger on the source so that micro-batches are smaller, or raise "
        "maxTransactionBytes, on a driver with at least eight times as much of spark.driver.memory."
    )


def _heap_and_results(command_line: list[str]) -> tuple[int, int]:
    """Return the heap size and Spark's limit for results, 0 for no limit."""
    results = _last(_MAX_RESULT, command_line)
    return _last(_HEAP, command_line) or _DEFAULT_BYTES, _DEFAULT_BYTES if results is None else results


def _last(pattern: re.Pattern[str], arguments: list[str]) -> int | None:
    matches = [match for argument in arguments if (match := pattern.fullmatch(argument))]
    return int(matches[-1][1]) * _UNITS[matches[-1][2].lower()] if matches else None


def _command_line_of_jvm() -> list[str]:
    """Return the command line of the nearest ancestor process that is a JVM; empty where there is none, or no /proc."""
    pid = os.getppid()
    while pid > 1:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return []
        if Path(arguments[0]).name == "java":
            return arguments
        parent = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
        pid = int(parent[1]) if parent else 0
    return []
