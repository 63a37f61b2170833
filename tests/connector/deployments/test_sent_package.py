"""The package is sent, not installed: programs, servers and executors have the wheel and a Python without pykafka-wire.

On a standalone cluster, because its workers are processes of their own with folders of their own, and in local mode.
`make deployments`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.connect_server import connect_server
from tests.connector.deployments.run import check_program, environment_of
from tests.connector.deployments.submit import SETTINGS, spark_submit

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def zipped(wheel: Path, tmp_path: Path) -> Path:
    """The wheel under a name that Spark puts on its workers' path."""
    return Path(shutil.copy(wheel, tmp_path / "pykafka_wire.zip"))


@pytest.fixture
def environment(bare_python: Path) -> dict[str, str]:
    return environment_of(bare_python, PYSPARK_PYTHON=str(bare_python))


@pytest.fixture(params=["local[2]", "standalone"])
def master(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("standalone") if request.param == "standalone" else request.param


def test_by_py_files_under_its_own_name(
    master: str, environment: dict[str, str], wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    (tmp_path / "sent").mkdir()
    sent = Path(shutil.copy(wheel, tmp_path / "sent"))
    check_program(spark_submit(master, f"--py-files={sent}"), "py-files", sent, kafka, topic, tmp_path, environment)


def test_by_add_py_file(
    standalone: str, environment: dict[str, str], zipped: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    check_program(spark_submit(standalone), "addPyFile", zipped, kafka, topic, tmp_path, environment)


def test_to_a_connect_server_as_an_artifact(
    standalone: str, bare_python: Path, zipped: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    """The client deletes its file after sending it: the server has nothing but the artifact."""
    with connect_server(tmp_path, f"--master={standalone}", *SETTINGS, python=bare_python) as url:
        environment = environment_of(bare_python, SPARK_REMOTE=url)
        check_program([bare_python], "artifact", zipped, kafka, topic, tmp_path, environment)
