"""What a process remembers of the schemas it writes with, and what of it is sent to the tasks."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pykafka_wire.errors import OptionError, RegistryError, SchemaError
from pykafka_wire.options.sink import SinkOptions, parse_sink_options
from pykafka_wire.sink import written_schema
from pykafka_wire.sink.written_schema import look_up_encoding
from tests.connector.values.scripted_registry import scripted_registry

TYPES = StructType([StructField("value", StructType([StructField("id", LongType())]))])
BATCH = pa.record_batch([pa.array([{"id": 1}, None])], names=["value"])


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, *fields]})


def options(topic: str, **more: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": "nobody:1", "topic": topic, "valueFormat": "avro", **more})


def written(options: SinkOptions) -> list[bytes | None]:
    """What a task writes: its encoding comes by pickle."""
    encoding = pickle.loads(pickle.dumps(look_up_encoding(options, TYPES)))
    (batch,) = encoding.encode(iter([BATCH]), options.topic)
    return list(batch.column(0).to_pylist())


def test_a_task_loads_nothing_but_what_writes() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    encoding = look_up_encoding(options("orders", valueSchema=json.dumps(schema)), TYPES)
    task = """
import pickle, sys
import pyarrow as pa
encoding = pickle.load(sys.stdin.buffer)
(batch,) = encoding.encode(iter([pa.record_batch([pa.array([{"id": 1}])], names=["value"])]), "orders")
assert batch.column(0).to_pylist() == [b"\\x02"]
prefix = "pykafka_wire.values."
print(*sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)))
"""
    done = subprocess.run([sys.executable, "-c", task], input=pickle.dumps(encoding), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    loaded = ["avro", "avro.column_writer", "avro.connect_names", "avro.schema", "avro.types", "bulk", "bulk.arrays"]
    loaded += ["bulk.writing", "connect_types", "numeric_times", "single_json", "single_json.variant_type"]
    assert done.stdout.decode().split() == loaded  # no registry, and nothing that reads


def test_an_outage_after_the_first_look_up_does_not_end_a_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(written_schema, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = "/subjects/outage-value/versions/latest"
    responses: dict[str, Any] = {path: {"id": 1, "schema": record()}}
    with scripted_registry(responses) as url:
        asked = options("outage", **{"schema.registry.url": url})
        assert written(asked) == [b"\0\0\0\0\x01\x02", None]
        responses[path] = {"id": 2, "schema": record({"name": "note", "type": ["null", "string"]})}
        assert written(asked)[0] == b"\0\0\0\0\x01\x02"  # asked a moment ago
        now[0] += 301
        assert written(asked)[0] == b"\0\0\0\0\x02\x02\x00"
    now[0] += 301
    with caplog.at_level(logging.WARNING):
        assert written(asked)[0] == b"\0\0\0\0\x02\x02\x00"
    assert "the known schema is used" in caplog.text
    with pytest.raises(RegistryError):
        look_up_encoding(options("another", **{"schema.registry.url": url}), TYPES)


def test_what_goes_to_the_tasks_holds_no_secret_and_no_address() -> None:
    path = "/subjects/quiet-value/versions/latest"
    with scripted_registry({path: {"id": 1, "schema": record()}}) as url:
        asked = options("quiet", **{"schema.registry.url": url, "basic.auth.user.info": "me:hunter2"})
        content = pickle.dumps((look_up_encoding(asked, TYPES), asked.for_tasks()))
    assert b"hunter2" not in content and url.encode() not in content


@pytest.mark.parametrize(
    ("response", "error", "text"),
    [
        ({"id": 1, "schema": "{}"}, OptionError, "the schema of the column value cannot be used"),
        ({"id": 1, "schema": "{}", "schemaType": "JSON"}, OptionError, "is JSON, and valueFormat is avro"),
        (
            {"id": 1, "schema": '"int"'},
            SchemaError,
            "the column is STRUCT<id: BIGINT> and the schema's type is int",
        ),
        (None, SchemaError, "set schema.registry.auto.register=true to register the one of the column: {"),
    ],
)
def test_a_subject_that_does_not_help_is_an_error(response: Any, error: type[Exception], text: str) -> None:
    responses = {} if response is None else {"/subjects/bad-value/versions/latest": response}
    with scripted_registry(responses) as url, pytest.raises(error) as raised:
        look_up_encoding(options("bad", **{"schema.registry.url": url}), TYPES)
    assert text in str(raised.value)


def test_a_record_strategy_needs_a_schema_or_a_subject() -> None:
    asked = options(
        "t", **{"schema.registry.url": "http://nobody:1", "value.subject.name.strategy": "RecordNameStrategy"}
    )
    with pytest.raises(OptionError, match="name the subject in valueSubject"):
        look_up_encoding(asked, TYPES)
