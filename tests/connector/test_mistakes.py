"""The most frequent mistakes, and the errors that users see: a code, the cause, the remedy.

Most are met on the driver before any task runs; there the source is called as Spark calls it, without a Spark session. What
only Spark can show is tried with one.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark import cloudpickle
from pyspark.errors import ParseException
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.errors import ConnectorError, DataLossError
from pykafka_wire.source.progress.group_commits import GroupCommitter
from pykafka_wire.source.stream_reader import KafkaStreamReader
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.secured import PASSWORDS, Secured

pytestmark = pytest.mark.broker

VALUE = StructType().add("value", "binary")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def filled(kafka: Any, outside: Any) -> Iterator[str]:
    """A topic of one partition that holds the offsets 15 to 19: those below have aged out."""
    name = f"filled-{uuid.uuid4().hex[:8]}"
    outside.create(name)
    outside.fill(name, [20])
    outside.age_out(name, 0, 15)
    yield name
    outside.delete(name)


def source(options: dict[str, str]) -> PykafkaWireDataSource:
    return PykafkaWireDataSource({"kafka.default.api.timeout.ms": "4000", **options})


def told(call: Callable[[], object]) -> str:
    """What a user reads; it begins with a code."""
    with pytest.raises((ConnectorError, WireError)) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("[PYKAFKA_WIRE_")
    return text


def on_read(options: dict[str, str], **more: str) -> str:
    given = {**options, **{name.replace("_", "."): value for name, value in more.items()}}
    return told(lambda: source(given).reader(VALUE).partitions())


def at(servers: str, topic: str = "orders", **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, **more}


def to(secured_kafka: Secured, listener: str, **more: str) -> dict[str, str]:
    options = {f"kafka.{name}": value for name, value in secured_kafka.options(listener, **more).items()}
    return {**options, "subscribe": "orders"}


def test_a_wrong_port() -> None:
    text = on_read(at("127.0.0.1:1"))
    assert text.startswith("[PYKAFKA_WIRE_NO_BROKER_AVAILABLE]")
    assert "127.0.0.1:1: 127.0.0.1: connection refused" in text
    assert "Check kafka.bootstrap.servers, the network and the listener's kafka.security.protocol." in text


def test_tls_on_a_plaintext_port(kafka: Any) -> None:
    text = on_read(at(kafka.bootstrap_servers), kafka_security_protocol="SSL")
    assert "the TLS handshake failed" in text
    assert "the peer closed the connection at the first TLS message, as a plaintext listener does" in text
    assert "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT" in text


def test_plaintext_on_a_tls_port(secured_kafka: Secured) -> None:
    text = on_read(at(secured_kafka.cluster.bootstrap("TLS")))
    assert "a TLS listener responds on this port, and this client speaks plaintext" in text
    assert "Set kafka.security.protocol to SSL or SASL_SSL." in text


def test_a_wrong_mechanism(secured_kafka: Secured) -> None:
    wrong = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": PASSWORDS["alice"]}
    text = on_read(to(secured_kafka, "OAUTHU", **wrong))
    assert text.startswith(
        "[PYKAFKA_WIRE_AUTHENTICATION] the broker does not accept SCRAM-SHA-512; it offers OAUTHBEARER"
    )
    assert "Set kafka.sasl.mechanism to one that this listener offers." in text


def test_a_typing_error_in_the_jaas_line(secured_kafka: Secured) -> None:
    line = f'{JAAS} username="alice" pasword="{PASSWORDS["alice"]}";'
    text = on_read(to(secured_kafka, "SASLPLAIN", sasl_mechanism="PLAIN", sasl_jaas_config=line))
    assert text.startswith(
        "[PYKAFKA_WIRE_SETTINGS] PLAIN needs a user and a password, and kafka.sasl.password is missing."
    )
    assert "sasl.jaas.config with a login module that names both" in text
    line = f'{JAAS} username="alice password="{PASSWORDS["alice"]}";'
    unended = on_read(to(secured_kafka, "SASLPLAIN", sasl_mechanism="PLAIN", sasl_jaas_config=line))
    assert "sasl.jaas.config has an unterminated quote." in unended
    assert 'Module required name="value"' in unended
    assert PASSWORDS["alice"] not in text + unended


def test_an_advertised_listener_that_cannot_be_reached(unreachable_kafka: Any) -> None:
    # The bootstrap server responds, and sends us to where nobody is.
    servers = f"127.0.0.1:{unreachable_kafka.nodes[0].listeners[0].port}"
    with Cluster(
        ClientSettings.from_options({"bootstrap.servers": servers, "default.api.timeout.ms": "2000"})
    ) as cluster:
        node = next(iter(cluster.metadata.brokers()))
        text = told(lambda: cluster.supports(node, _any_request(), 0))
    assert text.startswith("[PYKAFKA_WIRE_TRANSPORT] 127.0.0.1: connection refused [broker 1 (127.0.0.1:1)]")
    assert "advertised.listeners" in text


def _any_request() -> Any:
    from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest

    return ListOffsetsRequest


def test_a_missing_acl(guarded_kafka: Any, topic: Any) -> None:
    name = topic(cluster=guarded_kafka)
    alice = at(
        guarded_kafka.bootstrap("SASL"),
        name,
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{JAAS} username="alice" password="alice-secret";',
        },
    )
    text = on_read(alice)
    assert text.startswith("[PYKAFKA_WIRE_BROKER] TOPIC_AUTHORIZATION_FAILED (error 29)")
    assert name in text
    assert "ACL" in text


def test_a_topic_that_is_not_there(kafka: Any) -> None:
    text = on_read(at(kafka.bootstrap_servers, "not-there"))
    assert text.startswith("[PYKAFKA_WIRE_UNKNOWN_TOPIC] UNKNOWN_TOPIC_OR_PARTITION")
    assert (
        "[not-there, Metadata] Check the topic's name, that it exists, and the principal's Describe permission." in text
    )


def test_a_typing_error_in_a_topic_names_the_topics_that_are_called_alike(kafka: Any, filled: str) -> None:
    wrong = filled.replace("filled", "Filed")
    expected = f"Did you mean {filled}? Check the topic's name"
    assert expected in on_read(at(kafka.bootstrap_servers, wrong))
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": wrong}
    assert expected in told(lambda: source(options).writer(VALUE, False))
    assert expected in told(lambda: source(options).streamWriter(VALUE, False))


def test_a_pattern_that_matches_nothing(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    pattern = f"nothing-{uuid.uuid4().hex}.*"
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribePattern": pattern}
    with caplog.at_level(logging.WARNING):
        assert source(options).reader(VALUE).partitions() == []
        assert source(options).reader(VALUE).partitions() == []
    (warning,) = [record.getMessage() for record in caplog.records if pattern in record.getMessage()]
    assert warning.startswith("[PYKAFKA_WIRE_NO_TOPIC]")
    assert "Check the pattern" in warning


def test_a_checkpoint_of_another_topic(kafka: Any, filled: str) -> None:
    reader = source(at(kafka.bootstrap_servers, filled)).streamReader(VALUE)
    assert isinstance(reader, KafkaStreamReader)
    progress = QueryOffsets(offsets={TopicPartition("yesterdays-topic", 0): 12}).to_json()
    text = told(lambda: reader.latestOffset(progress, reader.getDefaultReadLimit()))
    assert text.startswith("[PYKAFKA_WIRE_DATA_LOSS] PARTITIONS_DELETED")
    assert "yesterdays-topic-0" in text
    assert (
        "yesterdays-topic is no longer among the topics of the query: was it deleted, or is the checkpoint another query's?"
        in text
    )
    assert "a new query with a new checkpoint" in text


def test_offsets_that_have_aged_out(kafka: Any, filled: str) -> None:
    options = at(kafka.bootstrap_servers, filled, startingOffsets=json.dumps({filled: {"0": 3}}))
    with pytest.raises(DataLossError) as caught:
        source(options).reader(VALUE).partitions()
    text = str(caught.value)
    assert text.startswith("[PYKAFKA_WIRE_DATA_LOSS] START_OFFSET_OUT_OF_RANGE")
    assert f"{filled}-0 [3, 15)" in text
    assert "set the option failOnDataLoss to false" in text
    assert "retention" in text


def test_two_queries_in_one_group(kafka: Any, filled: str, caplog: pytest.LogCaptureFixture) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        for query in ("one", "two"):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                place = {TopicPartition(filled, 0): 16}
                GroupCommitter(cluster).commit(QueryOffsets(offsets=place, query=query, group=group))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "holds offsets of another query" in warning
    assert "kafka.group.id of its own" in warning


def test_a_query_in_the_group_of_a_consumer_at_work(
    kafka: Any, filled: str, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        consumer.subscribe([filled])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), what="the assignment")
        with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
            place = {TopicPartition(filled, 0): 16}
            with caplog.at_level(logging.WARNING):
                GroupCommitter(cluster).commit(QueryOffsets(offsets=place, query="q", group=group))
    finally:
        consumer.close()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "[PYKAFKA_WIRE_BROKER]" in warning
    assert group in warning


def test_an_unknown_option(kafka: Any) -> None:
    text = told(lambda: source(at(kafka.bootstrap_servers, startingOffset="earliest")).reader(VALUE))
    assert text == "[PYKAFKA_WIRE_OPTION] unknown option 'startingOffset': did you mean startingOffsets?"


def test_an_unknown_client_setting(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source(at(kafka.bootstrap_servers, **{"kafka.fetch.max.byte": "1"})).reader(VALUE)
    assert "are ignored: kafka.fetch.max.byte (did you mean kafka.fetch.max.bytes?)" in caplog.text


def test_wrong_column_types(kafka: Any) -> None:
    number = StructType().add("value", "integer")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "orders"}
    text = told(lambda: source(options).writer(number, False))
    assert text == (
        "[PYKAFKA_WIRE_SCHEMA] column 'value' is int and must be string or binary: cast it before the write, or set valueFormat "
        "(json, avro or protobuf)."
    )
    text = told(lambda: source(at(kafka.bootstrap_servers)).reader(StructType().add("value", "string")))
    assert text.startswith("[PYKAFKA_WIRE_SCHEMA] column 'value' is binary, not string")
    assert "cast it in the query" in text


def test_a_null_topic_and_a_record_that_is_too_large(spark: Any, kafka: Any, filled: str) -> None:
    def on_write(rows: str, **options: str) -> str:
        writer = spark.sql(rows).write.format("pykafka-wire").mode("append")
        with pytest.raises(Exception) as caught:
            writer.options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}).save()
        return str(caught.value)

    text = on_write("SELECT CAST(NULL AS STRING) AS topic, 'v' AS value")
    assert (
        "[PYKAFKA_WIRE_WRITE] a row has a null topic: fill the column, filter such rows out, or set the option" in text
    )
    large = "SELECT repeat('x', 2000000) AS value"
    text = on_write(large, topic=filled)
    assert "[PYKAFKA_WIRE_RECORD_TOO_LARGE]" in text
    assert "Raise kafka.max.request.size, or make the record smaller." in text
    text = on_write(large, topic=filled, **{"kafka.max.request.size": "5000000"})
    assert "more than max.message.bytes allows" in text
    assert "Raise max.message.bytes, or make the record smaller." in text


def test_a_dash_in_sql(spark: Any) -> None:
    with pytest.raises(ParseException) as caught:
        spark.sql("CREATE TEMPORARY VIEW v USING pykafka-wire OPTIONS (subscribe 'x')")
    assert "must be back quoted as: `pykafka-wire`" in str(caught.value)


def test_a_transactional_id_that_another_has_taken(kafka: Any, topic: Any) -> None:
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})
    name = f"tx-{uuid.uuid4().hex[:8]}"
    with Cluster(settings) as cluster:
        first = Transaction.begin(cluster, name)
        Transaction.begin(cluster, name)
        offsets = {TopicPartition(topic(1), 0): CommittedOffset(1)}
        text = told(lambda: first.commit_offsets(f"{name}.group", offsets) or first.commit())
    assert text.startswith("[PYKAFKA_WIRE_PRODUCER_FENCED]")
    assert name in text


def test_a_worker_without_the_package(tmp_path: Path) -> None:
    reader = source(at("127.0.0.1:1")).reader(VALUE)
    (tmp_path / "reader").write_bytes(cloudpickle.dumps(reader))
    # A Python without this package: the same one, with neither its folder nor its finder.
    code = f"""
import pickle, sys
sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each).lower()]
sys.path = [each for each in sys.path if "editable" not in each]
sys.path_importer_cache.clear()
pickle.load(open({str(tmp_path / "reader")!r}, "rb"))
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert "[PYKAFKA_WIRE_NOT_INSTALLED] The Python of this Spark worker has no package pykafka_wire" in last
    assert sys.executable in last
    assert "spark.pyspark.python" in last


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ("pyspark.sql.datasource", "Spark 4.0 or newer is needed, on the driver and on executors"),
        ("pyspark", "pip install 'pykafka-wire[spark]'"),
    ],
)
def test_a_spark_that_is_too_old_or_missing(hidden: str, said: str) -> None:
    code = f"import sys; sys.modules[{hidden!r}] = None\nfrom pykafka_wire import PykafkaWireDataSource"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: [PYKAFKA_WIRE_SPARK_VERSION]")
    assert said in last
