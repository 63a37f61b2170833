"""A plugin of pytest: the processor time of each file of tests, with that of the programs and servers that it starts.

``make test PYTEST_ARGS='-p tests.cpu_times'`` lists the files that take most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final

import psutil
import pytest

_PROPERTY: Final = "cpu_s"
_SHOWN: Final = 40
#: In each process: its processor time when the last test had ended.
_BEFORE: Final = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Report())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        now = _cpu_s()
        item.user_properties.append((_PROPERTY, max(0.0, now - item.config.stash.get(_BEFORE, 0.0))))
        item.config.stash[_BEFORE] = now


def _cpu_s() -> float:
    """The processor time of this process and of all that it has started, in seconds."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # its own, and that of children that have ended
        except psutil.Error:
            continue
    return total


class _Report:
    """Sums what tests of all processes report."""

    def __init__(self) -> None:
        self._of_files: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            for name, seconds in report.user_properties:
                if name == _PROPERTY and isinstance(seconds, float):
                    self._of_files[report.nodeid.partition("::")[0]] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"processor time: {sum(self._of_files.values()):.0f} s")
        for file, seconds in self._of_files.most_common(_SHOWN):
            terminalreporter.line(f"{seconds:7.1f} s {file}")
