"""How these tests start programs with spark-submit."""

from __future__ import annotations

from pathlib import Path

import pyspark

SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
#: For seconds of work Java's optimising compiler costs more than it gives.
SETTINGS = (
    "--conf=spark.ui.enabled=false",
    "--conf=spark.driver.host=127.0.0.1",
    "--conf=spark.executor.memory=512m",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "--conf=spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1",
)


def spark_submit(master: str, *arguments: str) -> list[str | Path]:
    """The command that runs a program on a cluster; the program is to follow."""
    return [SPARK_SUBMIT, f"--master={master}", *SETTINGS, *arguments]
