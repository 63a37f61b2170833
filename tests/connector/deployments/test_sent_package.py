"""The package is sent, not installed: programs, servers and executors have the wheel and a Python without pykafka-wire.

On a standalone cluster, because its workers are processes of their own with folders of their own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.connect_server import connect_server
from tests.connector.deployments.run import check_program, environment_of

HOME = Path(pyspark.__file__).parent
#: For seconds of work Java's optimising compiler costs more than it gives.
SETTINGS = (
    "--conf=spark.ui.enabled=false",
    "--conf=spark.driver.host=127.0.0.1",
    "--conf=spark.executor.memory=512m",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "--conf=spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1",
)

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark]


def test_by_py_files_under_its_own_name(
    standalone: str, bare_python: Path, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    submit = [HOME / "bin" / "spark-submit", f"--master={standalone}", *SETTINGS, f"--py-files={wheel}"]
    environment = environment_of(bare_python, PYSPARK_PYTHON=str(bare_python))
    check_program(submit, "py-files", wheel, kafka, topic, tmp_path, environment)


def test_to_a_connect_server_as_an_artifact(
    standalone: str, bare_python: Path, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    zipped = Path(shutil.copy(wheel, tmp_path / "pykafka_wire.zip"))  # Spark takes no artifact that ends with .whl
    settings = (f"--master={standalone}", *SETTINGS)
    with connect_server(tmp_path, *settings, python=bare_python) as url:
        environment = environment_of(bare_python, SPARK_REMOTE=url)
        check_program([bare_python], "artifact", zipped, kafka, topic, tmp_path, environment)
