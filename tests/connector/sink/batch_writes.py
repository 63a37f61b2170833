"""A batch write to a cluster, and the text of the error where it fails."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pyspark.errors import PySparkException

#: Options of a write to brokers that are not there.
NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}


def write(frame: Any, kafka: Any, **options: str) -> None:
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers} | options
    frame.write.format("pykafka-wire").mode("append").options(**asked).save()


def failure(action: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


def failure_without_a_job(spark: Any, action: Any) -> str:
    """The text of an error that no job of Spark preceded."""
    group = f"no-job-{uuid.uuid4()}"
    spark.sparkContext.setJobGroup(group, "must not start")
    try:
        text = failure(action)
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    return text


# --- refused records


DIVERT = {"onRecordError": "divert"}
