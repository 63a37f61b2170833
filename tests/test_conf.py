"""Every file in conf/ is what runs: loaded by a real session, server or tool, or equal to what the local cluster uses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.settings import ClusterPlan, Listener, broker_properties, controller_properties
from pykafka_wire.wire.settings import ClientSettings

CONF = Path(__file__).resolve().parent.parent / "conf"
TESTED = {
    "broker.properties",
    "client.properties",
    "controller.properties",
    "log4j2.properties",
    "spark-connect.conf",
    "spark-defaults.conf",
    "spark-delta.conf",
}
PLAN = ClusterPlan(
    brokers=2,
    controller_port=9090,
    listeners={
        1: [
            Listener(name="INTERNAL", protocol="PLAINTEXT", port=9092),
            Listener(name="EXTERNAL", protocol="PLAINTEXT", port=9192),
        ]
    },
)
FOLDER = Path("/tmp/pykafka-wire-kafka")


def properties(name: str) -> dict[str, str]:
    lines = (line.strip() for line in (CONF / name).read_text(encoding="utf-8").splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def spark_conf(name: str) -> dict[str, str]:
    lines = (line.strip() for line in (CONF / name).read_text(encoding="utf-8").splitlines())
    return dict(re.split(r"\s+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_no_file_is_there_that_nothing_tries() -> None:
    assert {path.name for path in CONF.iterdir()} == TESTED


def test_the_broker_file_is_what_the_local_cluster_writes() -> None:
    assert properties("broker.properties") == broker_properties(PLAN, 1, FOLDER / "broker-1")


def test_the_controller_file_is_what_the_local_cluster_writes() -> None:
    assert properties("controller.properties") == controller_properties(PLAN, FOLDER / "controller")


def test_the_client_file_serves_kafkas_tools_and_this_client_alike(kafka: Any, topic: Any) -> None:
    name = topic()
    listed = kafka.tool(
        "org.apache.kafka.tools.TopicCommand", "--list", "--command-config", str(CONF / "client.properties")
    )
    assert name in listed.split()
    settings = ClientSettings.from_options(
        {"bootstrap.servers": kafka.bootstrap_servers, **properties("client.properties")}
    )
    assert settings.unknown == ()
    assert settings.client_id == "pykafka-wire"


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-delta.conf"])
def test_a_session_runs_with_the_spark_files(spark: Any, name: str) -> None:
    written = spark_conf(name)
    assert written
    assert {key: spark.conf.get(key) for key in written} == written


def test_the_redaction_covers_what_sparks_own_pattern_misses(spark: Any) -> None:
    # A PEM key and a JAAS line are secrets whose option names Spark's defaults do not match.
    pattern = re.compile(spark.conf.get("spark.redaction.regex"))
    options = re.compile(spark.conf.get("spark.sql.redaction.options.regex"))
    for name in ("kafka.ssl.keystore.key", "kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.sasl.password"):
        assert pattern.search(name)
        assert options.search(name)
    assert not pattern.search("kafka.bootstrap.servers")


def test_the_log_file_is_the_one_that_spark_logs_by(spark: Any) -> None:
    manager = spark._jvm.org.apache.logging.log4j.LogManager
    source = manager.getContext(False).getConfiguration().getConfigurationSource()
    assert source.getLocation().endswith("conf/log4j2.properties")


@pytest.fixture
def connect_server(java: None, tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server, started by the command in conf/spark-connect.conf; yields its URL."""
    port = free_ports(1)[0]
    home = Path(pyspark.__file__).parent
    log = tmp_path / "connect.log"
    command = [
        str(home / "bin" / "spark-submit"),
        "--master=local[2]",
        "--load-spark-defaults",
        f"--properties-file={CONF / 'spark-connect.conf'}",
        f"--conf=spark.connect.grpc.binding.port={port}",
        "--conf=spark.ui.enabled=false",
        "--conf=spark.driver.host=127.0.0.1",
        f"--conf=spark.sql.warehouse.dir={tmp_path / 'warehouse'}",
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if name not in {"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"}},
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while not listens(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


CLIENT = """
import sys
from pyspark.sql import SparkSession
url, bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.range(100).selectExpr("CAST(id AS STRING) AS value").write.format("pykafka-wire").mode("append").options(
    **{"kafka.bootstrap.servers": bootstrap, "topic": topic}).save()
rows = spark.read.format("pykafka-wire").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
print(type(spark).__module__, spark.conf.get("spark.python.unix.domain.socket.enabled"), rows.count())
"""


def test_a_spark_connect_server_runs_with_its_file_and_finds_the_source(
    connect_server: str, kafka: Any, topic: Any
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_GATE"))}
    client = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT, connect_server, kafka.bootstrap_servers, topic(2)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert client.returncode == 0, client.stderr
    assert client.stdout.split() == ["pyspark.sql.connect.session", "true", "100"]


def listens(port: int) -> bool:
    from pykafka_wire.local.process import accepts_connections

    return accepts_connections(port)
