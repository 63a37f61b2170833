"""The CPU and memory use of an ingest's processes on this machine: the driver's Python, Spark's JVM, and Spark's Python workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pykafka_wire.page.snapshots import ProcessFigures


class Processes:
    """Measures the use since the previous call. Executors on other machines are not visible."""

    def __init__(self) -> None:
        #: The CPU seconds and the time of the last measurement, by name.
        self._last: dict[str, tuple[float, float]] = {}

    def figures(self) -> Mapping[str, ProcessFigures]:
        """Return the figures of processes by name; empty if psutil is not installed."""
        try:
            import psutil
        except ImportError:
            return {}
        driver = psutil.Process()
        around = [*driver.children(), *filter(None, [driver.parent()])]  # with spark-submit, the JVM is the parent
        java = [child for child in around if "java" in _name(child)]
        tasks = [
            child for one in java for child in _children(one) if "python" in _name(child) and child.pid != driver.pid
        ]
        processes = {"driver": [driver], "java": java, "tasks": tasks}
        return {name: self._figures(name, some) for name, some in processes.items() if some}

    def _figures(self, name: str, processes: Iterable[Any]) -> ProcessFigures:  # Any: psutil's processes
        import psutil

        seconds, memory, n = 0.0, 0, 0
        for process in processes:
            with suppress(psutil.Error):  # the process may have ended meanwhile
                times = process.cpu_times()
                seconds += times.user + times.system
                if name == "tasks":  # include workers that have ended
                    seconds += times.children_user + times.children_system
                memory += process.memory_info().rss
                n += 1
        now = time.monotonic()
        before, measured_at = self._last.get(name, (seconds, now))
        self._last[name] = seconds, now
        cpu = max(0.0, seconds - before) / (now - measured_at) if now > measured_at else 0.0
        return ProcessFigures(cpu=cpu, memory_bytes=memory, processes=n)


def _name(process: Any) -> str:
    import psutil

    with suppress(psutil.Error):
        return str(process.name()).lower()
    return ""


def _children(process: Any) -> list[Any]:
    import psutil

    with suppress(psutil.Error):
        return list(process.children(recursive=True))
    return []
