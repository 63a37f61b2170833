"""Every file in conf/ is what runs: loaded by a real session, server or tool, or equal to what the local cluster uses."""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest.settings.settings_file import read_settings
from pykafka_wire.local.settings import ClusterPlan, Listener, broker_properties, controller_properties
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import list_topics
from pykafka_wire.wire.settings import ClientSettings
from tests.conftest import CONF, read_spark_conf

TESTED = {
    "broker-secured.properties",
    "broker.properties",
    "client-secured.properties",
    "client.properties",
    "compose",  # tests/test_containers.py, too
    "conda",  # tests/connector/test_packaging.py
    "controller.properties",
    "databricks",
    "grafana-dashboard.json",  # tests/connector/metrics/test_stream_metrics.py
    "kubernetes",
    "log4j2.properties",
    "spark-connect.conf",  # tests/connector/test_lookup.py
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


def test_the_secured_broker_file_is_what_a_secured_broker_of_the_tests_runs_with(secured_kafka: Any) -> None:
    runs_with = secured_kafka.cluster.nodes[0].properties
    certificates = secured_kafka.certificates
    written = properties("broker-secured.properties")
    paths = {"/etc/kafka/broker.pem": certificates.broker_path, "/etc/kafka/ca.pem": certificates.authority_path}
    assert written.pop("listener.security.protocol.map") in runs_with["listener.security.protocol.map"]
    assert written.pop("listeners").partition(":")[0] in runs_with["listeners"]
    assert {name: str(paths.get(value, value)) for name, value in written.items()}.items() <= runs_with.items()


def test_the_secured_client_file_opens_that_broker(secured_kafka: Any) -> None:
    options = properties("client-secured.properties")
    options["ssl.truststore.location"] = str(secured_kafka.certificates.authority_path)
    options["bootstrap.servers"] = secured_kafka.cluster.bootstrap("SASLTLS")
    settings = ClientSettings.from_options(options)
    assert settings.unknown == ()
    with contextlib.closing(Cluster(settings)) as cluster:
        assert list_topics(cluster) is not None


def test_the_composed_ingest_lands_from_the_composed_kafka() -> None:
    """Parsed only; `make containers` runs it where Docker runs."""
    composed = yaml.safe_load((CONF / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    settings = read_settings(CONF / "compose" / "ingest.toml")
    addresses = composed["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"INSIDE://{settings.kafka['bootstrap.servers']}" in addresses
    assert settings.registry is not None
    assert settings.registry.startswith("http://registry:8080/")
    assert settings.lands("shop.orders")
    taken = composed["ingest"]["command"]
    assert f"./ingest.toml:{taken[1]}:ro" in composed["ingest"]["volumes"]
    _takes_arguments([taken[0], str(CONF / "compose" / "ingest.toml"), *taken[2:]])
    _takes_arguments(composed["topics"]["command"])
    for place in (settings.into, settings.checkpoint):
        assert place.startswith("/lake/")
    assert "lake:/lake" in composed["ingest"]["volumes"]


def test_keda_looks_at_the_group_that_the_ingest_of_its_job_commits_to(tmp_path: Path) -> None:
    """Parsed only: there is no cluster to run it in."""
    settings_map, job = yaml.safe_load_all((CONF / "kubernetes" / "ingest-by-lag.yaml").read_text(encoding="utf-8"))
    (tmp_path / "ingest.toml").write_text(settings_map["data"]["ingest.toml"], encoding="utf-8")
    settings = read_settings(tmp_path / "ingest.toml")
    by_lag, by_time = job["spec"]["triggers"]
    assert (by_lag["type"], by_time["type"]) == ("kafka", "cron")
    assert by_lag["metadata"]["consumerGroup"] == settings.kafka["group.id"]
    assert by_lag["metadata"]["bootstrapServers"] == settings.kafka["bootstrap.servers"]
    # The values of a trigger are texts, and two drivers of one checkpoint would fail each other.
    assert all(isinstance(value, str) for each in (by_lag, by_time) for value in each["metadata"].values())
    assert job["spec"]["maxReplicaCount"] == 1
    pod = job["spec"]["jobTargetRef"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][1] == f"{container['volumeMounts'][0]['mountPath']}/ingest.toml"
    _takes_arguments([container["args"][0], str(tmp_path / "ingest.toml"), *container["args"][2:]])
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    # The user of the image may write to the volume.
    (user,) = re.findall(r"^USER (\d+)$", (CONF / "compose" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert pod["securityContext"] == dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), int(user))

    workers = yaml.safe_load((CONF / "kubernetes" / "workers-by-lag.yaml").read_text(encoding="utf-8"))
    assert workers["kind"] == "ScaledObject"
    (trigger,) = workers["spec"]["triggers"]
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


def _takes_arguments(arguments: list[str]) -> None:
    """Fails where the command does not take them."""
    name, *rest = arguments
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    command.make_context(name, rest)


DATABRICKS = CONF / "databricks"


@pytest.mark.parametrize("name", ["stream_orders", "ingest_shop"])
def test_the_databricks_bundle_runs_the_notebook_with_the_wheel(name: str) -> None:
    """Parsed only: there is no workspace to run it in."""
    bundle = yaml.safe_load((DATABRICKS / "databricks.yml").read_text(encoding="utf-8"))
    job = bundle["resources"]["jobs"][name]
    (task,) = job["tasks"]
    notebook = (DATABRICKS / task["notebook_task"]["notebook_path"]).read_text(encoding="utf-8")
    assert notebook.startswith("# Databricks notebook source\n")
    assert (DATABRICKS / bundle["artifacts"]["wheel"]["path"] / "pyproject.toml").exists()
    assert task["libraries"][0] == {"whl": "../../dist/*.whl"}
    # Through the sdist (docs/design/spark.md: "Avoid `pip wheel .`"), and no older wheel beside it.
    assert bundle["artifacts"]["wheel"]["build"] == "rm -rf dist && python -m build"
    assert task["job_cluster_key"] == job["job_clusters"][0]["job_cluster_key"]
    # Each parameter is read by the notebook, each variable is declared, and no secret is in either file.
    parameters = task["notebook_task"]["base_parameters"]
    assert set(re.findall(r'"(\w+)"', re.findall(r"for name in \((.*?)\)", notebook)[0])) == set(parameters)
    assert {name for value in parameters.values() for name in re.findall(r"\$\{var\.(\w+)\}", value)} <= set(
        bundle["variables"]
    )


def test_the_databricks_notebooks_options_are_those_of_the_source() -> None:
    calls = ast.walk(ast.parse((DATABRICKS / "stream_orders.py").read_text(encoding="utf-8")))
    options = {
        ast.literal_eval(call.args[0]): call.args[1].value if isinstance(call.args[1], ast.Constant) else "orders"
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "option"
    }
    del options["checkpointLocation"]
    options["kafka.bootstrap.servers"] = "broker:9094"
    assert options["kafka.sasl.password"] == "env:KAFKA_PASSWORD"
    assert parse_source_options(options, "stream").client.unknown == ()


def test_the_databricks_notebook_of_an_ingest_has_settings_that_are_right() -> None:
    """Its own code up to the start, with what the bundle gives it."""
    bundle = yaml.safe_load((DATABRICKS / "databricks.yml").read_text(encoding="utf-8"))
    given = {name: variable.get("default", "broker:9094") for name, variable in bundle["variables"].items()}
    notebook = (DATABRICKS / "ingest_shop.py").read_text(encoding="utf-8")
    code = notebook[notebook.index("from pykafka_wire") : notebook.index("ingest.start(")]
    found: dict[str, Any] = {**given, "checkpoint": given["ingest_checkpoint"]}
    exec(code, found)  # the constructor checks every setting
    assert (found["ingest"].settings.topics, found["ingest"].settings.into) == (r"shop\..*", "main.shop")
    assert found["ingest"].settings.kafka["sasl.password"] == "env:KAFKA_PASSWORD"


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-delta.conf"])
def test_a_session_runs_with_the_spark_files(spark: Any, name: str) -> None:
    written = read_spark_conf(CONF / name)
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
