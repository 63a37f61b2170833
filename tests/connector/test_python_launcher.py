"""The command ``pykafka-wire-python``: Python that takes the installed pyspark in place of Spark's archive of the same release."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

LAUNCHER = Path(sys.executable).with_name("pykafka-wire-python")
LIBRARIES = Path(importlib.util.find_spec("pyspark").submodule_search_locations[0], "python", "lib")  # type: ignore[union-attr,index]
PYSPARK = LIBRARIES / "pyspark.zip"
(PY4J,) = LIBRARIES.glob("py4j-*-src.zip")


def started(*arguments: str, path: list[Path], **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **variables}
    return subprocess.run(
        [LAUNCHER, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def origins(path: list[Path]) -> list[str]:
    """Where the launched process finds pyspark and py4j, and the variable that it sees."""
    code = (
        "import importlib.util, os; "
        "print(*(importlib.util.find_spec(name).origin for name in ('pyspark', 'py4j')), os.environ['PYTHONPATH'], sep='\\n')"
    )
    ended = started("-c", code, path=path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split("\n")[:3]


def test_spark_s_archives_of_the_installed_release_are_left_out(tmp_path):
    pyspark, py4j, variable = origins([PYSPARK, PY4J, tmp_path])
    assert "site-packages" in pyspark
    assert "site-packages" in py4j
    assert ".zip" not in pyspark + py4j
    assert variable == str(tmp_path)


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ("pyspark/version.py", "# a vendor's\n"),
        ("pyspark/sql/types.py", "# a vendor's\n"),
        ("pyspark/serializers.py", None),
        ("pyspark/vendors/module.py", "# new\n"),
    ],
)
def test_an_archive_of_another_release_or_build_is_kept(changed, more, tmp_path):
    """Any file of it: by its content, even of the same size, and whether or not the installation has it."""
    other = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(PYSPARK) as zipped, zipfile.ZipFile(other, "w") as written:
        files = {name: zipped.read(name) for name in zipped.namelist()}
        before = files.get(changed, b"")
        files[changed] = before + more.encode() if more else before.replace(b"import", b"IMPORT", 1)
        for name, content in files.items():
            written.writestr(name, content)
    pyspark, py4j, variable = origins([other, PY4J])
    assert pyspark == str(other / "pyspark" / "__init__.py")
    assert ".zip" not in py4j
    assert variable == str(other)


@pytest.mark.parametrize("content", [b"", b"not an archive"], ids=["empty", "damaged"])
def test_an_archive_that_cannot_be_read_is_kept(content, tmp_path):
    path = tmp_path / "pyspark.zip"
    path.write_bytes(content)
    assert origins([path])[2] == str(path)
    assert origins([tmp_path / "missing" / "pyspark.zip"])[2] == str(tmp_path / "missing" / "pyspark.zip")


def test_without_an_installed_pyspark_the_archive_is_kept(tmp_path):
    from pykafka_wire.python_launcher import is_installed

    assert is_installed(str(PYSPARK), [str(tmp_path), *sys.path])
    assert not is_installed(str(PYSPARK), [str(tmp_path)])
    assert not is_installed(str(tmp_path / "job.zip"), sys.path)


def test_arguments_the_exit_code_and_the_other_variables_are_python_s(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import os, sys; print(sys.argv[1:], os.environ['MINE'], sys.executable); sys.exit(3)")
    ended = started(str(program), "-m", "two words", path=[PYSPARK], MINE="kept")
    assert ended.returncode == 3
    assert ended.stdout.split("\n")[0] == f"['-m', 'two words'] kept {sys.executable}"


def test_a_worker_s_modules_are_loaded_compiled():
    ended = started("-c", "import pyspark.worker; print(pyspark.worker.__cached__)", path=[PYSPARK, PY4J])
    assert ended.stdout.strip().endswith(".pyc"), ended.stderr


def idle_worker_s_end(python: Path, folder: Path) -> str:
    """What Spark's daemon prints when Spark, here this test, closes the socket of a worker that waits for a task."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [PYSPARK, PY4J])),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [python, "-m", "pyspark.daemon", "pyspark.worker"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with daemon:
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as task:
            task.connect(daemon.stdout.read(length).decode())
            (worker,) = struct.unpack("!i", task.recv(4, socket.MSG_WAITALL))
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(worker).wait(30)
        daemon.stdin.close()
        return daemon.stderr.read().decode()


def test_an_idle_worker_that_spark_ends_prints_nothing():
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # the path of a Unix socket has 107 bytes at most
        assert "BrokenPipeError" in idle_worker_s_end(Path(sys.executable), Path(folder)), (
            "Spark's own daemon is quiet now"
        )
        assert idle_worker_s_end(LAUNCHER, Path(folder)) == ""
