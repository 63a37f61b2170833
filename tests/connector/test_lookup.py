"""``format("pykafka-wire")`` without register(): in classic and Connect sessions, and with executors of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CONF
from tests.connect_server import connect_server
from tests.connector.source.typed_topics import COUNTRY, ID, TypedTopic, record
from tests.quick_start import SPARK_OPTIONS

pytestmark = [pytest.mark.broker, pytest.mark.spark]

#: Read a topic in a batch, copy it with our sink, and stream the copy: the ways a user's program takes. The last topic is typed.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

servers, source, target, folder, typed, registry = sys.argv[1:]
spark = {session}.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
brokers = dict([("kafka.bootstrap.servers", servers)])
orders = spark.read.format("pykafka-wire").options(**brokers, subscribe=source, minPartitions="2").load()
found = sorted((r.partition, r.offset, bytes(r.value).decode()) for r in orders.collect())
orders.select("key", "value").write.format("pykafka-wire").mode("append").options(**brokers, topic=target).save()
stream = spark.readStream.format("pykafka-wire").options(**brokers, subscribe=target, startingOffsets="earliest").load()
query = (
    stream.select("partition", "offset", "value").writeStream.format("parquet")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start(folder + "/table")
)
query.awaitTermination(120)
copied = sorted(bytes(r.value).decode() for r in spark.read.parquet(folder + "/table").collect())
view = "CREATE TEMPORARY VIEW v USING `pykafka-wire` OPTIONS (`kafka.bootstrap.servers` '%s', subscribe '%s')"
spark.sql(view % (servers, source))
counted = spark.sql("SELECT count(*) AS n FROM v").collect()[0].n
avro = dict([("schema.registry.url", registry), ("subscribe", typed), ("valueFormat", "avro")]) | brokers
values = spark.read.format("pykafka-wire").options(**avro).load().selectExpr("sum(value.id) AS ids").collect()[0].ids
query = (
    spark.readStream.format("pykafka-wire").options(**avro, startingOffsets="earliest").schema("value struct<id: bigint>").load()
    .select("value.id").writeStream.format("parquet")
    .option("checkpointLocation", folder + "/typed-checkpoint").trigger(availableNow=True).start(folder + "/typed")
)
query.awaitTermination(120)
streamed = spark.read.parquet(folder + "/typed").selectExpr("sum(id) AS ids").collect()[0].ids
print("RESULT " + json.dumps(dict(
    read=found, copied=copied, counted=counted, typed=[values, streamed], session=type(spark).__module__)))
spark.stop()
"""

SESSIONS = {
    "connect": 'SparkSession.builder.remote("{url}")',
    "local-cluster": (
        'SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.driver.host", "127.0.0.1")'
        f'.config("spark.executor.extraJavaOptions", "{SPARK_OPTIONS}")'
    ),
}


@pytest.fixture(scope="module")
def connect_url(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server, started by the command in conf/spark-connect.conf."""
    arguments = ("--load-spark-defaults", f"--properties-file={CONF / 'spark-connect.conf'}")
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder, *arguments, environment={"SPARK_CONF_DIR": str(CONF)}) as url:
        yield url


def test_a_classic_session_finds_the_format(spark: Any) -> None:
    assert type(spark).__module__ == "pyspark.sql.session"
    frame = spark.read.format("pykafka-wire").load()
    assert frame.columns[:2] == ["key", "value"]


# `make deployments` runs both, and deployments/test_standalone.py, which has executors of their own, too.
@pytest.mark.parametrize("kind", ["connect", pytest.param("local-cluster", marks=pytest.mark.long)])
def test_other_sessions_read_write_and_stream(
    kind: str,
    request: pytest.FixtureRequest,
    kafka: Any,
    topic: Any,
    outside: Any,
    registry_url: str,
    tmp_path: Path,
) -> None:
    source, target = topic(2), topic(2)
    sent = outside.fill(source, [20, 10])
    typed = TypedTopic(registry_url, topic(1), outside)
    typed.write([typed.encoded(record(ID, COUNTRY), {"id": n, "country": "NO"}) for n in range(5)])
    program = tmp_path / "program.py"
    url = request.getfixturevalue("connect_url") if kind == "connect" else ""
    program.write_text(textwrap.dedent(PROGRAM.replace("{session}", SESSIONS[kind].replace("{url}", url))))
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("SPARK_REMOTE", None)
    found = subprocess.run(
        [
            sys.executable,
            str(program),
            kafka.bootstrap_servers,
            source,
            target,
            str(tmp_path),
            typed.name,
            registry_url,
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    results = [line for line in found.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, found.stdout[-2000:] + found.stderr[-8000:]
    result = json.loads(results[-1].removeprefix("RESULT "))
    assert sorted((p, v) for p, _, v in result["read"]) == sorted((p, v.decode()) for p, v in sent)
    assert result["copied"] == sorted(v.decode() for _, v in sent)
    assert result["counted"] == 30
    assert result["typed"] == [10, 10]
    assert ("connect" in result["session"]) == (kind == "connect")


def test_a_spark_connect_server_runs_with_its_file_and_finds_the_source(
    connect_url: str, kafka: Any, topic: Any
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_GATE"))}
    name = topic(2)
    example = CONF.parent / "examples" / "spark_connect.py"
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", name, "--remote", connect_url]
    client = subprocess.run(
        [sys.executable, "-W", "ignore", str(example), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert client.returncode == 0, client.stderr
    assert client.stdout == f"100 records with 10 keys in {name}\n"
