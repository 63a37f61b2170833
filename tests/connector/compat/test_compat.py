"""The essential behaviour on each Spark version, in classic and in Connect sessions. `make compat` runs it.

Each version has an environment of its own below the cache of downloads, with this project's wheel in it; the wheel is
built and installed anew each time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pykafka_wire.local import JarResolutionError, cache_dir, delta_jars
from tests.conftest import CONF, read_spark_conf
from tests.connect_server import connect_server
from tests.connector.compat.javas import java_home

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("program.py")
DELTA_PROGRAM = Path(__file__).with_name("delta_program.py")
#: The newest release of each; PySpark 4.3 asks for Python 3.11.
VERSIONS = {"4.0.5": (3, 10), "4.1.4": (3, 10), "4.2.0": (3, 10), "4.3.0": (3, 11)}
KINDS = ("classic", "connect")
_PIP_TIMEOUT_S = 1200

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(2 * _PIP_TIMEOUT_S)]


def run(*command: str | Path, timeout_s: int = _PIP_TIMEOUT_S, **more: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, **more)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="session", params=VERSIONS)
def python(request: pytest.FixtureRequest, wheel: Path) -> Path:
    """The Python of an environment with one version of PySpark, and with the wheel."""
    return environment_with(request.param, wheel)


def environment_with(version: str, wheel: Path) -> Path:
    """The Python of an environment with a version of PySpark, and with the wheel."""
    if sys.version_info < VERSIONS[version]:
        pytest.skip(f"PySpark {version} needs Python {'.'.join(map(str, VERSIONS[version]))}")
    folder = cache_dir() / "compat" / f"pyspark-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    found = folder / "bin" / "python"
    if not (folder / "complete-with-iceberg").exists():
        venv.create(folder, with_pip=True, clear=True)
        run(found, "-m", "pip", "install", "-q", f"pyspark[connect]=={version}", f"{wheel}[values,iceberg]")
        (folder / "complete-with-iceberg").touch()
    run(found, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel)
    return found


class Row(NamedTuple):
    """A row of the table of versions in docs/install.md."""

    delta: str
    javas: list[int]
    python: tuple[int, ...]


def documented_row(spark: str) -> Row:
    (row,) = re.findall(
        rf"^\| {spark} \|(.*)\|$", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    delta, java, python = (cell.strip(" `") for cell in row.split("|"))
    return Row(
        delta, [int(each) for each in java.split(",")], tuple(int(each) for each in python.strip("+").split("."))
    )


def environment_of(python: Path, **more: str) -> dict[str, str]:
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    for inherited in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYTHONPATH"):
        environment.pop(inherited, None)
    return environment | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


def test_the_documented_delta_java_and_python(
    python: Path, java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    """From a topic into a Delta table, on each Java that docs/install.md has for this Spark."""
    version = run(python, "-c", "import pyspark; print(pyspark.__version__)").strip()
    spark = version.rpartition(".")[0]
    row = documented_row(spark)
    assert row.python == VERSIONS[version]
    if row.delta == "none yet":
        with pytest.raises(JarResolutionError, match="could not get"):  # else: try it, and tell docs/install.md
            delta_jars(spark)
        jars = ""
    else:
        found = delta_jars(spark)
        assert row.delta.split(":")[1:] == found[0].name.removesuffix(".jar").rsplit("-", 1)
        jars = ",".join(map(str, found))
    name = topic(1)
    outside.fill(name, [15])
    for number in row.javas:
        settings = json.dumps({"spark.jars": jars, **read_spark_conf(CONF / "spark-delta.conf")} if jars else {})
        folder = tmp_path / str(number)
        folder.mkdir()
        printed = run(
            python, DELTA_PROGRAM, kafka.bootstrap_servers, name, folder, settings,
            cwd=folder, env=environment_of(python, JAVA_HOME=str(java_home(number))), timeout_s=300,
        )  # fmt: skip
        assert "RESULT 15" in printed
        print(f"Spark {version}, Java {number}, {row.delta}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_essentials(
    kind: str, python: Path, java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    source, target = topic(2), topic(1)
    outside.fill(source, [15, 15])
    environment = environment_of(python, TZ="America/New_York")  # timestamps must not depend on it
    (home,) = python.parent.parent.glob("lib/python*/site-packages/pyspark")
    server = connect_server(tmp_path, home=home, python=python) if kind == "connect" else nullcontext("")
    with server as url:
        printed = run(
            python, PROGRAM, kafka.bootstrap_servers, source, target, tmp_path, url,
            cwd=tmp_path, env=environment, timeout_s=600,
        )  # fmt: skip
    (line,) = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    assert result["limits"] == ("refused" if result["spark"] < "4.2" else "kept")
    print(kind, result)
