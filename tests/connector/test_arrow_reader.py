"""``read_topic``: bounded ranges of real topics as Arrow batches, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import psutil
import pyarrow as pa
import pytest

from pykafka_wire import read_topic
from pykafka_wire.columns.selected_columns import column_names
from pykafka_wire.columns.spark_schema import arrow_schema, typed_source_schema
from pykafka_wire.errors import OffsetsError, OptionError, SchemaError
from pykafka_wire.options.source import parse_schema_options
from pykafka_wire.source.dataframe_types import find_source_schema
from pykafka_wire.wire.errors import SettingsError
from tests.connector.source.typed_topics import COUNTRY, ID, NOTE, PARTS, TypedTopic, record

Options = dict[str, Any]


@pytest.fixture
def options(kafka: Any, topic: Any) -> Options:
    """Of a topic with two partitions."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic(2)}


def test_the_columns_are_those_of_the_data_source(options: Options, outside: Any) -> None:
    sent = outside.Record(value=b"v", key=b"k", partition=1, headers=(("h", b"1"), ("h", None)))
    outside.produce(options["subscribe"], [sent])
    for headers in (False, True):
        reader = read_topic(options | {"includeHeaders": headers})
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.schema == arrow_schema(typed_source_schema(column_names({}, headers), {}))
        (row,) = reader.read_all().to_pylist()
        assert row.pop("headers", None) == (
            [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if headers else None
        )
        assert row.pop("timestamp").tzinfo is not None
        assert row == {
            "key": b"k", "value": b"v", "topic": options["subscribe"], "partition": 1, "offset": 0, "timestampType": 0
        }  # fmt: skip
    chosen = read_topic(options, columns=["headers", "offset"]).read_all()
    assert chosen.to_pylist() == [{"headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], "offset": 0}]


def test_offsets_and_timestamps_bound_the_read(options: Options, outside: Any) -> None:
    name, now_ms = options["subscribe"], time.time_ns() // 1_000_000
    sent = [outside.Record(value=b"%d" % n, partition=n % 2, timestamp_ms=now_ms + 1_000 * (n // 2)) for n in range(20)]
    outside.produce(name, sent)

    def values(**bounds: Any) -> list[int]:
        return sorted(map(int, read_topic(options | bounds, columns=["value"]).read_all()["value"].to_pylist()))

    assert values() == list(range(20))
    starting, ending = {name: {"0": 3, "1": -2}}, {name: {"0": 5, "1": 1}}
    assert values(startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending)) == [1, 6, 8]
    assert values(startingTimestamp=now_ms + 8_000) == [16, 17, 18, 19]
    assert values(endingTimestamp=now_ms + 1_000) == [0, 1]
    del options["subscribe"]
    assert values(assign=json.dumps({name: [1]}), startingTimestamp=now_ms + 9_000) == [19]


def test_typed_columns_have_the_data_sources_types(registry_url: str, kafka: Any, topic: Any, outside: Any) -> None:
    typed = TypedTopic(registry_url, topic(1), outside)
    schema = record(ID, COUNTRY, PARTS, NOTE)
    row = {"id": 2, "country": "NO", "parts": [{"number": 7, "name": "wheel"}], "note": "n"}
    typed.write([typed.encoded(schema, row), b"no Avro", None], key=b"k\xc3\xb8")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": typed.name, "schema.registry.url": registry_url,
        "valueFormat": "avro", "onValueError": "divert", "keyFormat": "string",
    }  # fmt: skip
    reader = read_topic(options)
    assert reader.schema == arrow_schema(find_source_schema(parse_schema_options(options))[0])
    rows = reader.read_all().to_pylist()
    assert [found["value"] for found in rows] == [row, None, None]
    assert [found["key"] for found in rows] == ["kø"] * 3
    assert [bool(found["valueError"]) for found in rows] == [False, True, False]
    # A pattern's topics, and with them their subjects, are asked of brokers.
    del options["subscribe"]
    found = read_topic(options | {"subscribePattern": f"^{typed.name}$"}, columns=["value"])
    assert found.read_all().to_pylist()[0] == {"value": row}
    named = options | {"subscribe": typed.name, "onValueError": "null"}
    expected = [
        {"offset": 0, "value": {"parts": [{"name": "wheel"}], "id": 2}},
        *({"offset": n, "value": None} for n in (1, 2)),
    ]
    assert read_topic(named, columns=["offset", "value.parts.name", "value.id"]).read_all().to_pylist() == expected
    assert read_topic(named | {"columns": "offset, value.parts.name, value.id"}).read_all().to_pylist() == expected


@pytest.mark.parametrize(
    ("value_format", "schema", "value"),
    [
        (
            "avro",
            """{"type": "record", "name": "Node", "fields": [
                {"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"]},
                {"name": "label", "type": "string"}]}""",
            b"\x02\x02\x04\x00\x02b\x02a",
        ),
        (
            "protobuf",
            'syntax = "proto3"; message Node { int64 id = 1; Node next = 2; string label = 3; }',
            b"\x08\x01\x12\x05\x08\x02\x1a\x01b\x1a\x01a",
        ),
    ],
)
def test_fields_of_a_recursive_schema_are_read(
    value_format: str, schema: str, value: bytes, options: Options, outside: Any
) -> None:
    outside.produce(options["subscribe"], [outside.Record(value=value)])
    typed = options | {"valueFormat": value_format, "valueSchema": schema}
    for columns, row in (
        ("value.label, value.id", {"label": "a", "id": 1}),
        ("value.next.label, value.id", {"next": {"label": "b"}, "id": 1}),
    ):
        reader = read_topic(typed | {"columns": columns})
        assert reader.schema == arrow_schema(find_source_schema(parse_schema_options(typed | {"columns": columns}))[0])
        assert reader.read_all().to_pylist() == [{"value": row}]
    for columns in ("value", "value.next", "value.next.next"):
        with pytest.raises(SchemaError, match="in the option columns"):
            read_topic(typed | {"columns": columns})
    with pytest.raises(SchemaError, match=r"value\.next\.idd, which is no field of value\.next\. Did you mean id\?"):
        read_topic(typed | {"columns": "value.next.idd"})


def test_reading_needs_no_pyspark(options: Options, outside: Any) -> None:
    outside.produce(options["subscribe"], [outside.Record(value=b'{"id": 7}')])
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(f"""
            import sys
            class Blocker:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
                        raise ModuleNotFoundError(name, name=name)
            sys.meta_path.insert(0, Blocker())
            from pykafka_wire import read_topic
            typed = {{"valueFormat": "json", "valueSchema": "id BIGINT"}}
            print(read_topic({options!r} | typed, columns=["value"]).read_all().to_pylist())
        """)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.stdout == "[{'value': {'id': 7}}]\n", found.stderr


def connections(servers: str) -> set[Any]:
    """This process's connections to the brokers."""
    ports = {int(server.rpartition(":")[2]) for server in servers.split(",")}
    return {
        (each.laddr, each.raddr)
        for each in psutil.Process().net_connections("tcp")
        if each.raddr and each.raddr.port in ports and each.status == "ESTABLISHED"
    }


def _drop(reader: Any) -> None:
    del reader


def _close_early(reader: Any) -> None:
    reader.read_next_batch()
    reader.close()
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        reader.read_next_batch()


def _leave_block(reader: Any) -> None:
    with reader:
        reader.read_next_batch()


def _fail(reader: Any) -> None:
    with pytest.raises(pa.ArrowException, match=r"PYKAFKA_WIRE_VALUE.*offset 1 cannot be decoded"):
        reader.read_all()


@pytest.mark.parametrize(
    "end", [_drop, pa.RecordBatchReader.close, _close_early, _leave_block, pa.RecordBatchReader.read_all, _fail]
)
def test_the_end_of_a_reader_closes_its_connections(
    options: Options, outside: Any, kafka: Any, end: Callable[[Any], object]
) -> None:
    # More than one response: there is one in flight when the reader is closed early.
    outside.produce(options["subscribe"], [outside.Record(value=b"1"), outside.Record(value=b"x" * 200_000)])
    typed = {"valueFormat": "json", "valueSchema": "BIGINT", "onValueError": "fail" if end is _fail else "null"}
    bounds = {"kafka.fetch.max.bytes": 1_000, "kafka.max.partition.fetch.bytes": 1_000}
    before = connections(kafka.bootstrap_servers)
    reader = read_topic(options | typed | bounds, columns=["value"])
    opened = connections(kafka.bootstrap_servers) - before
    assert opened
    end(reader)
    del reader
    assert not opened & connections(kafka.bootstrap_servers)


def test_memory_is_bounded_and_records_are_fetched_while_they_are_taken(options: Options, outside: Any) -> None:
    value = bytes(1_000)
    outside.produce(options["subscribe"], [outside.Record(value=value, partition=n % 2) for n in range(16_000)])
    bounds = {"kafka.fetch.max.bytes": 100_000, "kafka.max.partition.fetch.bytes": 100_000}
    allocated = pa.total_allocated_bytes()
    max_bytes = n_rows = n_batches = 0
    for batch in read_topic(options | bounds, columns=["value"]):
        n_rows, n_batches = n_rows + batch.num_rows, n_batches + 1
        max_bytes = max(max_bytes, pa.total_allocated_bytes() - allocated)
        del batch
    assert (n_rows, n_batches >= 16) == (
        16_000,
        True,
    )  # librdkafka makes batches of up to 1 MB, and the largest comes alone
    assert max_bytes < 5_000_000


def test_mistakes_are_named_before_anything_is_read(options: Options) -> None:
    bad: list[tuple[dict[str, Any], Any, type[Exception], str]] = [
        ({}, ["vlaue"], SchemaError, "columns selects vlaue, which is no column of the source. Did you mean value"),
        ({}, ["valueError"], SchemaError, "only with onValueError=divert"),
        ({}, [""], OptionError, "in a list"),
        ({}, ["key", 5], OptionError, "in a list"),
        ({}, "value", OptionError, "in a list"),
        ({}, [], OptionError, "at least one"),
        ({}, ["key", "key"], OptionError, "twice"),
        ({"columns": "key"}, ["key"], OptionError, "leave one of them out"),
        ({}, ["value.id"], SchemaError, "value is binary, which has no fields"),
        ({"includeHeaders": None}, None, OptionError, "includeHeaders is a NoneType"),
        ({"startingOffset": "earliest"}, None, OptionError, "did you mean startingOffsets"),
        ({"valueFormat": "json"}, ["value"], OptionError, "valueSchema"),
        ({"startingTimestamp": "+1h"}, None, OptionError, "startingTimestamp"),
    ]
    for more, columns, error, text in bad:
        with pytest.raises(error, match=text):
            read_topic(options | more, columns=columns)
    starting = json.dumps({options["subscribe"]: {"0": 5, "1": 0}})
    with pytest.raises(OffsetsError, match="after its end"):
        read_topic(options | {"startingOffsets": starting})


def test_an_error_of_a_kafka_setting_names_the_option(options: Options) -> None:
    more = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me"}
    with pytest.raises(SettingsError, match=r" kafka\.sasl\.password refers to"):
        read_topic(options | more | {"kafka.sasl.password": "env:ABSENT_4711"})


def test_options_of_sparks_tasks_are_named_in_the_log(options: Options, caplog: pytest.LogCaptureFixture) -> None:
    read_topic(options | {"minPartitions": 4, "FilterPushdown": True}).close()
    assert [record.message.split(" is ")[0] for record in caplog.records if "Spark's tasks" in record.message] == [
        "The option minPartitions",
        "The option filterPushdown",
    ]
