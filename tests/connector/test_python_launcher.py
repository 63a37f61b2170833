"""The command ``pykafka-wire-python``: Python that takes the installed pyspark in place of Spark's archive of the same release."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

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


def archive(path: Path, package: str, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(f"{package}/__init__.py", "")
        for name, text in files.items():
            zipped.writestr(f"{package}/{name}.py", text)
    return path


def test_spark_s_archives_of_the_installed_release_are_left_out(tmp_path):
    pyspark, py4j, variable = origins([PYSPARK, PY4J, tmp_path])
    assert "site-packages" in pyspark
    assert "site-packages" in py4j
    assert ".zip" not in pyspark + py4j
    assert variable == str(tmp_path)


@pytest.mark.parametrize("changed", ["version", "worker"])
def test_an_archive_of_another_release_or_build_is_kept(changed, tmp_path):
    with zipfile.ZipFile(PYSPARK) as zipped:
        files = {name: zipped.read(f"pyspark/{name}.py").decode() for name in ("version", "worker")}
    files[changed] += "# a vendor's\n"
    other = archive(tmp_path / "pyspark.zip", "pyspark", **files)
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
