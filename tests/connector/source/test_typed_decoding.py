"""Typed columns of decoded records, without brokers: slices, places in errors, and schemas that a header names."""

from __future__ import annotations

import tracemalloc
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.columns.selected_columns import column_names
from pykafka_wire.columns.spark_schema import arrow_schema, typed_source_schema
from pykafka_wire.errors import OptionError, ValueFormatError
from pykafka_wire.options.typed_columns import TypedColumns
from pykafka_wire.source import typed_decoding
from pykafka_wire.source.dataframe_types import column_type
from pykafka_wire.source.reader_schema import find_reader_schemas, for_tasks
from pykafka_wire.source.task_reader import record_batches
from pykafka_wire.source.typed_decoding import column_decoders, slices
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.records.decode import DecodedRecords
from pykafka_wire.wire.topic_partitions import OffsetRange
from tests.connector.parsed_options import BROKERS, batch
from tests.connector.source.typed_topics import ID, record
from tests.connector.values.scripted_registry import scripted_registry

RANGES = [OffsetRange(topic="orders", partition=partition, start_offset=0, end_offset=10**9) for partition in (0, 1)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def decoded(values: Sequence[bytes | None], headers: Sequence[Any] | None = None) -> DecodedRecords:
    """Records at offsets from 100 on; the second half is of partition 1."""
    n_records = len(values)
    return DecodedRecords(
        n_records=n_records,
        slice_index=(np.arange(n_records) >= n_records // 2).astype(np.int32),
        offset=np.arange(100, 100 + n_records),
        timestamp=np.zeros(n_records, dtype=np.int64),
        timestamp_type=np.zeros(n_records, dtype=np.int32),
        key=None,
        value=pa.array(values, pa.binary()),
        headers=pa.array(headers or [None] * n_records, HEADERS),
        next_offsets=np.zeros(2, dtype=np.int64),
    )


def batches(records: DecodedRecords, **options: str) -> list[Any]:
    """The record batches of a read with these options, all columns in them but the key."""
    parsed = batch(**options)
    columns: TypedColumns = parsed.typed_columns
    readers = find_reader_schemas(columns, columns.typed, Cluster(parsed.client), parsed.subscription)
    types = {name: column_type(reader, columns, getattr(columns, name)) for name, reader in readers.items()}
    schema = typed_source_schema(column_names({}, False, columns.added_columns), types)
    schema = type(schema)([field for field in schema.fields if field.name != "key"])
    arrow = arrow_schema(schema)
    decoders = column_decoders(columns, arrow, for_tasks(readers, columns))
    return list(record_batches(records, RANGES, arrow, decoders))


def rows(records: DecodedRecords, **options: str) -> list[tuple[Any, ...]]:
    found = [row for each in batches(records, **options) for row in each.to_pylist()]
    return [(row["partition"], row["offset"], row["value"], row.get("valueError")) for row in found]


def test_a_large_response_is_decoded_in_slices_and_no_row_moves() -> None:
    values = [b"%d" % n + b" " * 900 if n % 7 else None for n in range(30_000)]
    records = decoded(values)
    sizes = [sum(len(value) for value in piece.value.to_pylist() if value) for piece in slices(records)]
    assert len(sizes) > 1 and max(sizes) <= 2 * 1024 * 1024 and sum(sizes) == sum(map(len, filter(None, values)))
    found = batches(records, valueFormat="json", valueSchema="BIGINT")
    assert len(found) == len(sizes)
    assert [row["value"] for each in found for row in each.to_pylist()] == [n if n % 7 else None for n in range(30_000)]
    assert [offset for each in found for offset in each["offset"].to_pylist()] == list(range(100, 30_100))
    assert [p for each in found for p in each["partition"].to_pylist()] == [0] * 15_000 + [1] * 15_000


def test_one_value_beyond_the_size_of_a_slice_is_a_slice() -> None:
    large = b'"' + b"x" * 9 * 1024 * 1024 + b'"'
    assert [piece.n_records for piece in slices(decoded([b"1", large, b"2", b"3"]))] == [1, 1, 2]


def test_values_that_are_large_as_columns_are_decoded_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_decoding, "_MAX_COLUMN_BYTES", 1 << 20)
    many, few = b"[" + b",".join([b"{}"] * 5_000) + b"]", b"[{}]"  # 16 KB, and 240 KB or more in columns
    values = [many, few, b"x", None] * 10
    fields = ", ".join(f"{name} BIGINT" for name in "abcdef")
    options = {"valueFormat": "json", "valueSchema": f"ARRAY<STRUCT<{fields}>>", "onValueError": "divert"}
    found = batches(decoded(values), **options)
    assert len(found) >= 4 and max(each.num_rows for each in found) > 4
    assert max(each["value"].nbytes for each in found) <= 1 << 20
    read = [row for each in found for row in each.to_pylist()]
    assert [row["offset"] for row in read] == list(range(100, 140))
    assert [row["value"] and len(row["value"]) for row in read] == [5_000, 1, None, None] * 10
    assert [row["valueError"] is None for row in read] == [True, True, False, True] * 10
    with pytest.raises(ValueFormatError, match="orders-0 offset 102 "):
        batches(decoded(values), **options | {"onValueError": "fail"})
    # One value is decoded whatever it takes.
    assert [each.num_rows for each in batches(decoded([many]), **options)] == [1]


def test_the_first_value_that_fails_is_named_with_its_place() -> None:
    records = decoded([b"1", None, b"2", b"x", b"y"])
    with pytest.raises(
        ValueFormatError, match=r"the value of the record at orders-1 offset 103 cannot be decoded as json: "
    ):
        rows(records, valueFormat="json", valueSchema="BIGINT")
    found = rows(records, valueFormat="json", valueSchema="BIGINT", onValueError="divert")
    assert [row[:3] for row in found] == [(0, 100, 1), (0, 101, None), (1, 102, 2), (1, 103, None), (1, 104, None)]
    assert [row[3] is None for row in found] == [True, True, True, False, False]


def test_a_schema_in_a_header_goes_before_what_looks_like_a_frame() -> None:
    guid = uuid.uuid4()
    written = record(*({"name": name, "type": "long"} for name in "abcdef"))
    responses: dict[str, Any] = {
        "/subjects/orders-value/versions/latest": {"id": 1, "schema": written},
        "/schemas/ids/1": {"schema": written},
        f"/schemas/guids/{guid}": {"schema": written},
    }
    payload = b"\0\0\0\0\2\4"  # six longs; also the frame of id 2 and one byte
    header = [{"key": "other", "value": b"x"}, {"key": "__value_schema_id", "value": b"\1" + guid.bytes}]
    framed = b"\0\0\0\0\1" + payload
    with scripted_registry(responses) as url:
        options = {"valueFormat": "avro", "schema.registry.url": url, "onValueError": "divert"}
        found = rows(decoded([payload, framed, payload], [header, None, [{"key": "other", "value": None}]]), **options)
    value = dict(zip("abcdef", (0, 0, 0, 0, 1, 2), strict=True))
    assert [row[2] for row in found] == [value, value, None]
    assert "no such schema" in found[2][3]


def test_damaged_values_shift_no_row() -> None:
    rng = np.random.default_rng(16)
    good = [b"\0\0\0\0\1" + bytes([2 * n]) for n in range(60)]
    values: list[bytes | None] = []
    for n in range(3_000):
        value = bytearray(good[n % 60])
        if n % 3 == 0:
            for _ in range(rng.integers(1, 4)):
                value[rng.integers(len(value))] = rng.integers(256)
            value = value[: rng.integers(len(value) + 1)]
        values.append(bytes(value))
    responses = {
        "/subjects/orders-value/versions/latest": {"id": 1, "schema": record(ID)},
        "/schemas/ids/1": {"schema": record(ID)},
    }
    with scripted_registry(responses) as url:
        found = rows(decoded(values), valueFormat="avro", onValueError="divert", **{"schema.registry.url": url})
    assert [row[1] for row in found] == list(range(100, 3_100))
    for n, (_, _, value, error) in enumerate(found):
        assert (value is None) == (error is not None)
        if n % 3:
            assert value == {"id": n % 60}


def test_only_the_reasons_are_read_where_the_schema_names_only_them() -> None:
    columns = batch(valueFormat="json", valueSchema="id INT", onValueError="divert").typed_columns
    schema = pa.schema([("offset", pa.int64()), ("valueError", pa.string())])
    (decoder,) = column_decoders(columns, schema, {})
    found = decoder.columns(decoded([b'{"id": 1}', b"["]), RANGES)
    assert list(found) == ["valueError"]
    assert found["valueError"].null_count == 1


def test_slices_are_views() -> None:
    records = decoded([b"x" * 1000] * 20_000)
    tracemalloc.start()
    try:
        list(slices(records))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024  # of 20 MB


PROTO = 'syntax = "proto3"; message Order { int64 id = 1; repeated Part parts = 2; } message Part { int32 number = 1; }'
PART = {"type": "record", "name": "Part", "fields": [{"name": "number", "type": "int"}]}


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_fields_that_the_reader_s_schema_lacks_are_null(kind: str) -> None:
    """A restarted query: the checkpoint's schema is older than the DataFrame's type."""
    if kind == "avro":
        response = {"schema": record(ID, {"name": "parts", "type": {"type": "array", "items": PART}})}
        value = b"\0\0\0\0\1\x0e\x02\x06\x00"
    else:
        response = {"schemaType": "PROTOBUF", "schema": PROTO}
        value = b"\0\0\0\0\1\0\x08\x07\x12\x02\x08\x03"
    parts = pa.list_(pa.struct([("note", pa.string()), ("number", pa.int32())]))
    wanted = pa.schema([("value", pa.struct([("note", pa.string()), ("id", pa.int64()), ("parts", parts)]))])
    with scripted_registry({"/schemas/ids/1": response}) as url:
        columns = batch(valueFormat=kind, **{"schema.registry.url": url}).typed_columns
        (decoder,) = column_decoders(columns, wanted, {"value": {"format": kind, "id": 1, "subject": "orders-value"}})
        found = decoder.columns(decoded([value]), RANGES)["value"]
    assert found.type == wanted.field("value").type
    assert found.to_pylist() == [{"note": None, "id": 7, "parts": [{"note": None, "number": 3}]}]


def test_a_view_for_inserts_alone_has_the_columns_of_its_topic() -> None:
    responses: dict[str, Any] = {"/subjects/orders-value/versions/latest": {"id": 5, "schema": record(ID)}}
    responses["/schemas/ids/5"] = {"schema": record(ID)}
    with scripted_registry(responses) as url:
        options = BROKERS | {"topic": "orders", "valueFormat": "avro", "schema.registry.url": url}
        schema: Any = PykafkaWireDataSource(options).schema()
    assert schema["value"].dataType.simpleString() == "struct<id:bigint>"
    with pytest.raises(OptionError, match="use exactly one of subscribe, subscribePattern and assign"):
        PykafkaWireDataSource(options).reader(schema)
