"""An environment in an archive that Spark unpacks in each executor's folder, as users of YARN and Kubernetes send theirs.

`make deployments`. The environment comes from the package index, which takes a minute. It has no pyspark: Spark's own processes
bring that along.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.connector.deployments.run import check_program, environment_of, environment_with, run
from tests.connector.deployments.submit import spark_submit

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    return environment_with(tmp_path_factory.mktemp("packed") / "environment", str(wheel), "venv-pack")


@pytest.fixture(scope="module")
def archive(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    run([environment, "-m", "venv_pack", "-p", environment.parent.parent, "-o", packed], timeout_s=600)
    return packed


def test_packed_and_unpacked_by_spark(
    archive: Path, standalone: str, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    """The driver needs it, too, under the same relative path."""
    submit = spark_submit(standalone, f"--archives={archive}#environment")
    settings = environment_of("/usr/bin/python3", PYSPARK_PYTHON="./environment/bin/python")
    with pytest.raises(AssertionError, match=r'Cannot run program "./environment/bin/python"'):
        check_program(submit, "installed", wheel, kafka, topic, tmp_path, settings)
    unpacked = tmp_path / "environment"
    unpacked.mkdir()
    run(["tar", "-xzf", archive, "-C", unpacked])
    check_program(submit, "installed", wheel, kafka, topic, tmp_path, settings)


def test_installed_where_pyspark_python_points_to(
    environment: Path, standalone: str, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    settings = environment_of("/usr/bin/python3", PYSPARK_PYTHON=str(environment))
    check_program(spark_submit(standalone), "installed", wheel, kafka, topic, tmp_path, settings)
