"""A data source under Arrow's schemas, as Sail passes them; Sail itself runs in tests/connector/deployments/test_sail.py."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.errors import SchemaError

#: What Sail makes of the source's DDL, of a schema that the user has given, and of lists.
HEADERS = pa.list_(pa.field("item", pa.struct([("key", pa.string()), ("value", pa.binary())])))
TIMESTAMPS = {"from DDL": pa.timestamp("us"), "of the session": pa.timestamp("us", "Etc/UTC")}


def source(servers: str, **options: str) -> PykafkaWireDataSource:
    return PykafkaWireDataSource({"kafka.bootstrap.servers": servers, **options})


@pytest.mark.parametrize("kind", TIMESTAMPS)
def test_batches_have_the_schema_that_was_asked_for(kind: str, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.produce(name, [outside.Record(value=b"v", headers=(("h", b"1"),), timestamp_ms=1_700_000_000_123)])
    schema = pa.schema([("value", pa.binary()), ("timestamp", TIMESTAMPS[kind]), ("headers", HEADERS)])
    reader = source(kafka.bootstrap_servers, subscribe=name, includeHeaders="true").reader(schema)
    sent = pickle.loads(cloudpickle.dumps(reader))
    batches = [batch for partition in reader.partitions() for batch in sent.read(partition)]
    assert [batch.schema for batch in batches] == [schema]
    (row,) = (
        batches[0]
        .cast(pa.schema([schema.field("value"), ("timestamp", pa.int64()), schema.field("headers")]))
        .to_pylist()
    )
    assert row == {"value": b"v", "timestamp": 1_700_000_000_123_000, "headers": [{"key": "h", "value": b"1"}]}


def test_a_time_without_a_zone_is_written_as_utc(kafka: Any, topic: Any, outside: Any) -> None:
    """As such a reader has returned it."""
    name = topic(1)
    schema = pa.schema([("value", pa.string()), ("timestamp", pa.timestamp("us"))])
    writer = source(kafka.bootstrap_servers, topic=name).writer(schema, overwrite=False)
    rows = pa.record_batch(
        [pa.array(["v"]), pa.array([1_700_000_000_123_000], pa.int64()).cast(schema.field(1).type)], schema=schema
    )
    writer.commit([writer.write(iter([rows]))])
    assert [(each.value, each.timestamp_ms) for each in outside.consume(name)] == [(b"v", 1_700_000_000_123)]


def test_a_type_that_the_source_does_not_have_is_an_error() -> None:
    with pytest.raises(SchemaError, match="column 'offset' is bigint, not string"):
        source("localhost:9092", subscribe="t").reader(pa.schema([("offset", pa.string())]))
