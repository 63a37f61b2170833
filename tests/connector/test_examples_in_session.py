"""What the examples do, in the session that tests share: a Spark of its own for each would take minutes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.values import Registry

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    """An example as a module, whose functions take the session that the tests share."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_stretch_of_a_topic_read_once(
    kafka: Any, topic: Any, spark: Any, outside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(2, {"retention.ms": "-1"})
    values = [b'{"order":%d,"pieces":2}' % number for number in range(10)] + [b"poison"]
    outside.produce(
        name,
        [
            outside.Record(value=value, partition=1, timestamp_ms=1_700_000_000_000 + at)
            for at, value in enumerate(values)
        ],
    )
    read = example("batch_read").orders_between
    read(spark, kafka.bootstrap_servers, name, None, None)
    printed = capsys.readouterr().out
    assert "|10    |20    |" in printed
    assert "partition 1, offset 10: it is not JSON" in printed
    read(spark, kafka.bootstrap_servers, name, "1700000000004", "1700000000006")
    assert "|2     |4     |" in capsys.readouterr().out


@pytest.mark.long
def test_the_newest_value_of_each_key_in_delta(
    kafka: Any, topic: Any, spark: Any, outside: Any, tmp_path: Path
) -> None:
    name, table = topic(1), str(tmp_path / "customers")
    start = example("upsert_to_delta").start

    def merged(*records: tuple[bytes, bytes | None]) -> dict[str, str]:
        outside.produce(name, [outside.Record(key=key, value=value) for key, value in records])
        assert start(spark, kafka.bootstrap_servers, name, table).awaitTermination(120)
        return {row.key: row.value for row in spark.read.format("delta").load(table).collect()}

    assert merged((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2")) == {"a": "2", "b": "1", "c": "1"}
    assert merged((b"b", b"3"), (b"c", None), (b"d", None), (b"a", None), (b"a", b"4")) == {"a": "4", "b": "3"}


def test_a_secured_cluster_read_with_a_password_from_a_file(
    secured_kafka: Any, spark: Any, topic: Any, outside_of: Any, tmp_path: Path
) -> None:
    name = topic(1, cluster=secured_kafka.cluster)
    outside_of(secured_kafka.cluster.bootstrap_servers).fill(name, [3])
    password = tmp_path / "password"
    password.write_text("alice-secret\n")
    read = example("secured_cluster").read
    login = {"ca": secured_kafka.certificates.authority_path, "user": "alice", "password_file": password}
    records = read(spark, secured_kafka.cluster.bootstrap("SASLTLS"), name, **login)
    assert sorted(bytes(row.value) for row in records.select("value").collect()) == [b"0", b"1", b"2"]


def test_avro_cleaned_under_a_schema_registry(
    kafka: Any, topic: Any, spark: Any, outside: Any, registry_url: str
) -> None:
    source, target, broken = topic(1), topic(1), topic(1)
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "pieces", "type": "int"}],
    }
    confluent = SchemaRegistryClient({"url": registry_url})
    serializer = AvroSerializer(confluent, json.dumps(schema))
    value = serializer({"id": 5, "pieces": 2}, SerializationContext(source, MessageField.VALUE))
    outside.produce(source, [outside.Record(key=b"k", value=value), outside.Record(key=b"l", value=b"no Avro")])
    example("schema_registry").clean(spark, kafka.bootstrap_servers, Registry(registry_url), source, target, broken)
    (good,), (bad,) = outside.consume(target), outside.consume(broken)
    assert good.key == b"k"
    assert AvroDeserializer(confluent)(good.value, SerializationContext(target, MessageField.VALUE)) == {
        "id": 5,
        "pieces": 2,
    }
    assert (bad.key, bad.value) == (b"l", b"no Avro")
    assert b"do not begin" in dict(bad.headers)["error"]
