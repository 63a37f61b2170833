"""A line is logged once for all processes of a query. (By Spark's own processes: test_plain_session.py.)"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykafka_wire.options.logged_once import is_first

LOG = """
import sys
from pykafka_wire.options.logged_once import is_first
for query in sys.argv[1:]:
    for line in ("a", "b", "a"):
        if is_first(query, line):
            print(query, line)
"""


def processes(local_dirs: str, *arguments: list[str]) -> list[str]:
    """What processes log that run at the same time."""

    def run(names: list[str]) -> str:
        environment = os.environ | {"SPARK_LOCAL_DIRS": local_dirs}
        command = [sys.executable, "-c", LOG, *names]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    with ThreadPoolExecutor() as pool:
        return sorted("".join(pool.map(run, arguments)).splitlines())


def test_one_of_an_application_s_processes_logs_a_line_of_a_query(tmp_path: Path) -> None:
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()
    found = processes(f"{folder},/elsewhere", ["one", "two"], ["two", "one"], ["one"])
    assert found == ["one a", "one b", "two a", "two b"]
    another = tmp_path / "blockmgr-2"
    another.mkdir()
    assert processes(str(another), ["one"]) == ["one a", "one b"]


@pytest.mark.parametrize("folder", ["", "a-folder-of-the-users", "blockmgr-gone"])
def test_without_a_folder_of_sparks_each_process_logs_once(folder: str, tmp_path: Path) -> None:
    (tmp_path / "a-folder-of-the-users").mkdir()
    found = processes(str(tmp_path / folder) if folder else "", ["one"], ["one"])
    assert found == ["one a", "one a", "one b", "one b"]
    assert [each.name for each in tmp_path.iterdir()] == ["a-folder-of-the-users"]


def test_outside_of_a_query_a_process_logs_once() -> None:
    assert is_first("", "this test's line") and not is_first("", "this test's line")
