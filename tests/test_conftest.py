"""The rules of conftest.py itself, tried in pytest runs of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.scheduling import FilesByServer

TESTS = """
import pytest

@pytest.fixture
def kafka_cluster():
    pytest.skip("no broker here")

def test_by_fixture(kafka_cluster): pass

@pytest.mark.broker
def test_by_marker(): pytest.skip("no broker here")

@pytest.mark.docker
@pytest.mark.broker
def test_in_a_container(): pytest.skip("no engine here")

def test_without_a_broker(): pytest.skip("not on this system")

@pytest.mark.broker
@pytest.mark.xfail
def test_known_to_fail(): assert False
"""


@pytest.mark.parametrize(
    ("ci", "workers", "summary"),
    [
        ("true", "0", "1 failed, 2 skipped, 1 xfailed, 1 error"),
        ("true", "2", "1 failed, 2 skipped, 1 xfailed, 1 error"),
        ("", "0", "4 skipped, 1 xfailed"),
    ],
)
def test_a_skipped_broker_test_is_a_failure_in_ci_but_for_the_docker_lane(
    ci: str, workers: str, summary: str, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  broker\n  docker\n  spark\n  needs\n  long\n  unit\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-n", workers, "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert summary in run.stdout, run.stdout
    if ci:
        assert "a broker test must not be skipped in CI: no broker here" in run.stdout


SHARED = """
from contextlib import contextmanager
from pathlib import Path
import pytest
from tests.shared_servers import shared

LOG = Path(__file__).with_name("log")

def log(what):
    with LOG.open("a") as file:
        print(what, file=file)

@contextmanager
def server(name, error=None):
    log("start " + name)
    yield name
    log("end " + name)
    if error:
        raise RuntimeError(error)

@pytest.fixture
def registry_url(request):
    return shared(request, lambda: server("registry", error="it did not end"))

@pytest.fixture
def two_brokers(request):
    return shared(request, lambda: server("brokers"))

@pytest.fixture
def own(two_brokers):
    yield
    log("delete topics")
    raise RuntimeError("topics are left")

"""


def test_shared_servers_end_after_the_last_file_in_a_row_that_needs_them_whatever_fails(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  broker\n  docker\n  spark\n  needs\n  long\n  unit\n")
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text() + SHARED)
    files = {
        "a": "def test_it(two_brokers): pass\ndef test_more(two_brokers, registry_url): pass",
        "b": "def test_it(registry_url): pass\ndef test_more(own): pass",
        "c": "def test_it(): pass",
        "d": "def test_it(two_brokers): assert False",
    }
    for name, text in files.items():
        (tmp_path / f"test_{name}.py").write_text(text + "\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "1 failed, 5 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert (tmp_path / "log").read_text().splitlines() == [
        "start brokers", "start registry", "delete topics", "end registry", "end brokers", "start brokers", "end brokers",
    ]  # fmt: skip


def test_files_with_spark_are_taken_first_and_the_last_process_begins_with_the_other_end(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  broker\n  docker\n  spark\n  needs\n  long\n  unit\n")
    files = [f"test_{nth:02}" for nth in range(12)]
    with_spark = files[6:]
    for name in files:
        mark = "@pytest.mark.spark\n" if name in with_spark else ""
        (tmp_path / f"{name}.py").write_text(f"import time, pytest\n{mark}def test_it(): time.sleep(0.2)\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    taken: dict[str, list[str]] = {}
    for worker, name in re.findall(r"\[(gw\d)\].* PASSED (\w+)\.py", run.stdout):
        taken.setdefault(worker, []).append(name)
    assert sorted(names[0] for names in taken.values()) == [files[5], with_spark[0], with_spark[1]], run.stdout
    assert sorted(name for names in taken.values() for name in names) == files, run.stdout


class _Worker:
    """A process of pytest-xdist that runs what it is given, one test at a time."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def _files_of_processes(n_processes: int, needed: dict[str, list[str]], files: list[str]) -> list[list[str]]:
    """Return which files each process takes, if all files take the same time."""
    cache = SimpleNamespace(get=lambda *_: needed)
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(cache=cache, option=options, getvalue=lambda _: ["popen"] * n_processes)
    scheduler, workers = FilesByServer(config), [_Worker(f"gw{n}") for n in range(n_processes)]  # type: ignore[arg-type]
    for worker in workers:
        scheduler.add_node(worker)  # type: ignore[arg-type]
        scheduler.add_node_collection(worker, [f"{file}::test_it" for file in files])  # type: ignore[arg-type]
    scheduler.schedule()
    for turn in range(len(files)):
        for worker in workers:
            if turn < len(worker.given):
                scheduler.mark_test_complete(worker, worker.given[turn])  # type: ignore[arg-type]
    done = [[files[index] for index in worker.given] for worker in workers]
    assert sorted(file for each in done for file in each) == sorted(files)
    return done


def test_each_shared_server_is_started_by_one_process_while_others_have_anything_else() -> None:
    needed = {f"{name}_{nth}": [name] for name in ("registry_url", "two_brokers") for nth in range(4)}
    files = [*needed, *(f"plain_{nth}" for nth in range(8))]
    done = _files_of_processes(2, needed, files)
    assert done[0][:4] == files[:4] and done[1][:4] == files[4:8]


def test_two_of_four_processes_start_spark() -> None:
    needed = {f"spark_{nth}": ["spark"] for nth in range(12)}
    done = _files_of_processes(4, needed, [*needed, *(f"plain_{nth}" for nth in range(4))])
    assert [len(needed.keys() & {*files}) for files in done] == [6, 6, 0, 0]
