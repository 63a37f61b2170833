"""The essential behaviour on each Spark version, in classic and in Connect sessions. `make compat` runs it.

Each version has an environment of its own below the cache of downloads, with this project's wheel in it; the wheel is
built and installed anew each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local import cache_dir
from tests.connect_server import connect_server

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("program.py")
#: The newest release of each; PySpark 4.3 asks for Python 3.11.
VERSIONS = {"4.0.5": (3, 10), "4.1.4": (3, 10), "4.2.0": (3, 10), "4.3.0": (3, 11)}
KINDS = ("classic", "connect")
_PIP_TIMEOUT_S = 1200

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(2 * _PIP_TIMEOUT_S)]


def run(*command: str | Path, timeout_s: int = _PIP_TIMEOUT_S, **more: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, **more)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session", params=VERSIONS)
def python(request: pytest.FixtureRequest, wheel: Path) -> Path:
    """The Python of an environment with one version of PySpark, and with the wheel."""
    version = request.param
    if sys.version_info < VERSIONS[version]:
        pytest.skip(f"PySpark {version} needs Python {'.'.join(map(str, VERSIONS[version]))}")
    folder = cache_dir() / "compat" / f"pyspark-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    found = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        run(found, "-m", "pip", "install", "-q", f"pyspark[connect]=={version}", wheel)
        (folder / "complete").touch()
    run(found, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_essentials(
    kind: str, python: Path, java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    source, target = topic(2), topic(1)
    outside.fill(source, [15, 15])
    environment = os.environ | {
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "America/New_York",  # timestamps must not depend on it
    }
    for inherited in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYTHONPATH"):
        environment.pop(inherited, None)
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
