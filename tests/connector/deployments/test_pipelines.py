"""Spark Declarative Pipelines: examples/pipeline, as docs/deployment.md says, over two runs. `make deployments`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.connector.deployments.run import environment_of, run

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
SPARK_PIPELINES = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
#: What the documentation's command has to set.
SETTINGS = ("--conf", "spark.sql.catalogImplementation=hive")
QUERY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.sql.catalogImplementation", "hive").getOrCreate()
amounts = spark.sql("SELECT country, orders, amount FROM amount_by_country ORDER BY country").collect()
print("RESULT", [tuple(row) for row in amounts], spark.table("orders").count())
"""

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


def order(number: int) -> bytes:
    return json.dumps({"id": number, "country": "NO" if number % 2 else "SE", "amount": number * 10.0}).encode()


def order_ids(outside: Any, topic: str) -> list[int]:
    """The orders in a topic, as a reader of committed records sees them."""
    return sorted(json.loads(record.value)["id"] for record in outside.consume(topic, isolation_level="read_committed"))


def test_a_streaming_table_a_view_and_two_sinks(
    java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    names = {"orders": topic(2), "large-orders": topic(1), "large-orders-once": topic(1)}
    project = shutil.copytree(PROJECT, tmp_path / "pipeline")
    settings = project / "spark-pipeline.yml"
    text = settings.read_text().replace("localhost:9092", kafka.bootstrap_servers)
    settings.write_text(text.replace("/tmp/pykafka-wire-pipeline", str(tmp_path / "storage")))
    definitions = project / "transformations" / "orders.py"
    text = definitions.read_text()
    for name, its_own in names.items():
        text = text.replace(f'"subscribe", "{name}"', f'"subscribe", "{its_own}"')
        text = text.replace(f'"topic": "{name}"', f'"topic": "{its_own}"')
    definitions.write_text(text)
    environment = environment_of(sys.executable, PYSPARK_PYTHON=sys.executable)
    expected: list[int] = []
    for numbers in (range(20), range(20, 25)):
        outside.produce(names["orders"], [outside.Record(value=order(each), partition=each % 2) for each in numbers])
        run([SPARK_PIPELINES, "run", *SETTINGS], cwd=project, env=environment)
        expected += [each for each in numbers if each >= 10]
        assert order_ids(outside, names["large-orders"]) == expected
        assert order_ids(outside, names["large-orders-once"]) == expected
    printed = run([sys.executable, "-c", QUERY], cwd=project, env=environment)
    assert "RESULT [('NO', 12, 1440.0), ('SE', 13, 1560.0)] 25" in printed
