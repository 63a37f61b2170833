"""Spark Declarative Pipelines: examples/pipeline, as docs/deployment.md says, over two runs. `make deployments`.

On this environment's Spark, and on a Spark 4.1 from the package index; its tables in Parquet, which is the default, and in Delta.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pykafka_wire.local import delta_jars
from tests.conftest import CONF, read_spark_conf
from tests.connector.deployments.run import environment_of, environment_with, run

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
HERE = pyspark.__version__
SPARK_4_1 = "4.1.4"
#: What the documentation's command has to set.
SETTINGS = {"spark.sql.catalogImplementation": "hive"}
QUERY = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config(map=json.loads(sys.argv[1])).getOrCreate()
amounts = spark.sql("SELECT country, orders, amount FROM amount_by_country ORDER BY country").collect()
(described,) = spark.sql("DESCRIBE EXTENDED orders").where("col_name = 'Provider'").collect()
print("RESULT", [tuple(row) for row in amounts], spark.table("orders").count(), described.data_type.lower())
"""

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


def order(number: int) -> bytes:
    return json.dumps({"id": number, "country": "NO" if number % 2 else "SE", "amount": number * 10.0}).encode()


def order_ids(outside: Any, topic: str) -> list[int]:
    """The orders in a topic, as a reader of committed records sees them."""
    return sorted(json.loads(record.value)["id"] for record in outside.consume(topic, isolation_level="read_committed"))


@pytest.fixture(scope="module", params=[HERE, SPARK_4_1])
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with this package and Spark's pipelines."""
    if request.param == HERE:
        return Path(sys.executable)
    folder = tmp_path_factory.mktemp("spark") / "environment"
    return environment_with(folder, str(wheel), f"pyspark[pipelines]=={request.param}")


def delta_setup(python: Path) -> tuple[dict[str, str], str]:
    """Spark's settings for tables in Delta, and the arguments for ``PYSPARK_SUBMIT_ARGS``, as docs/deployment.md has them."""
    version = run([python, "-c", "import pyspark; print(pyspark.__version__)"]).strip()
    jars = ",".join(map(str, delta_jars(version.rpartition(".")[0])))
    settings = {**read_spark_conf(CONF / "spark-delta.conf"), "spark.sql.sources.default": "delta"}
    return settings, f"--jars {jars} pyspark-shell"


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_a_streaming_table_a_view_and_two_sinks(
    table_format: str, python: Path, java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    names = {"orders": topic(2), "large-orders": topic(1), "large-orders-once": topic(1)}
    project = shutil.copytree(PROJECT, tmp_path / "pipeline")
    text = (project / "spark-pipeline.yml").read_text().replace("localhost:9092", kafka.bootstrap_servers)
    text = text.replace("/tmp/pykafka-wire-pipeline", str(tmp_path / "storage"))
    (project / "spark-pipeline.yml").write_text(text)
    definitions = project / "transformations" / "orders.py"
    text = definitions.read_text()
    for name, its_own in names.items():
        text = text.replace(f'"subscribe", "{name}"', f'"subscribe", "{its_own}"')
        text = text.replace(f'"topic": "{name}"', f'"topic": "{its_own}"')
    text = text.replace('"large-orders-pipeline"', f'"{names["large-orders-once"]}"')  # the transactional id
    definitions.write_text(text)
    environment = environment_of(python, PYSPARK_PYTHON=str(python))
    settings = SETTINGS
    if table_format == "delta":
        for_delta, environment["PYSPARK_SUBMIT_ARGS"] = delta_setup(python)
        settings = {**SETTINGS, **for_delta}
    command = [python.parent / "spark-pipelines", "run"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    expected: list[int] = []
    for numbers in (range(20), range(20, 25)):
        outside.produce(names["orders"], [outside.Record(value=order(each), partition=each % 2) for each in numbers])
        run(command, cwd=project, env=environment)
        expected += [each for each in numbers if each >= 10]
        assert order_ids(outside, names["large-orders"]) == expected
        assert order_ids(outside, names["large-orders-once"]) == expected
    printed = run([python, "-c", QUERY, json.dumps(settings)], cwd=project, env=environment)
    assert f"RESULT [('NO', 12, 1440.0), ('SE', 13, 1560.0)] 25 {table_format}" in printed
