"""A standalone cluster, with a master and two workers: driver and executors find the installed package by PYSPARK_PYTHON alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connector.deployments.run import check_program, environment_of
from tests.connector.deployments.submit import spark_submit
from tests.quick_start import quick_spark_variables

# A deployment, not a rule of ours, in six processes of Java: `make deployments`.
pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


def test_batches_and_a_stream_by_pyspark_python_alone(standalone: str, kafka: Any, topic: Any, tmp_path: Path) -> None:
    environment = environment_of("/usr/bin/python3", PYSPARK_PYTHON=sys.executable, **quick_spark_variables())
    check_program(spark_submit(standalone), "installed", Path(), kafka, topic, tmp_path, environment, n_parts=2)
