"""The sink's columns, and records out of Arrow batches."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykafka_wire.errors import SchemaError, WriteError
from pykafka_wire.sink.arrow_input import rows_to_arrow
from pykafka_wire.sink.columns import RecordColumns, SinkColumns

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
ARROW_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def rows_of(option_topic: str | None = "t", /, **arrays: Any) -> RecordColumns:
    spark = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "headers": HEADERS,
        "timestamp": TimestampType(),
    }
    columns = SinkColumns.from_schema(schema(**{name: spark.get(name, StringType()) for name in arrays}), option_topic)
    return columns.records(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)))


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_a_value_is_enough_with_the_option_topic(kind: DataType) -> None:
    assert SinkColumns.from_schema(schema(value=kind), "t").names == ("value",)


def test_a_typed_column_may_have_any_type_and_others_name_the_option() -> None:
    types = schema(value=StructType([StructField("id", LongType())]), key=LongType())
    assert SinkColumns.from_schema(types, "t", {"key", "value"}).names == ("key", "value")
    with pytest.raises(
        SchemaError, match=r"'key' is bigint and must be string or binary: .* or set keyFormat \(json, avro"
    ):
        SinkColumns.from_schema(types, "t", {"value"})


def test_columns_are_found_whatever_their_order_and_others_are_left_alone() -> None:
    found = SinkColumns.from_schema(
        schema(
            extra=LongType(),
            partition=IntegerType(),
            value=StringType(),
            headers=HEADERS,
            topic=StringType(),
            key=BinaryType(),
        ),
        None,
    )
    assert set(found.names) == {"partition", "value", "headers", "topic", "key"}


def test_no_value_names_the_columns_there_are() -> None:
    with pytest.raises(SchemaError, match=r"no column 'value' \(they have id, text\).*to_json"):
        SinkColumns.from_schema(schema(id=LongType(), text=StringType()), "t")


def test_no_topic_at_all() -> None:
    with pytest.raises(SchemaError, match=r"no topic to write to: set the option topic, or .* column"):
        SinkColumns.from_schema(schema(value=StringType()), None)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("kye", "key"),
        ("Key", "key"),
        ("keys", "key"),
        ("partiton", "partition"),
        ("header", "headers"),
        ("Timestmap", "timestamp"),
    ],
)
def test_a_typing_error_is_refused_with_the_name_that_is_meant(typed: str, meant: str) -> None:
    types: dict[str, DataType] = {"value": StringType(), typed: StringType()}
    with pytest.raises(SchemaError, match=f"column '{typed}' would not be written: did you mean '{meant}'"):
        SinkColumns.from_schema(schema(**types), "t")


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (("value", "offset", "timestampType"), "t"),  # of the source: a copied row has them
        (("value", "key", "kye"), "t"),  # what it could mean is there
        (("value", "topc"), "t"),  # the option says the topic
        (("value", "id", "day", "time", "part", "keyword", "head"), "t"),
    ],
)
def test_other_names_are_no_typing_errors(names: tuple[str, ...], topic: str) -> None:
    found = SinkColumns.from_schema(schema(**dict.fromkeys(names, StringType())), topic).names
    assert set(found) == {"value", "key"} & set(names)


def test_a_topic_column_that_is_misspelt_is_named() -> None:
    with pytest.raises(SchemaError, match="did you mean 'topic'"):
        SinkColumns.from_schema(schema(value=StringType(), topc=StringType()), None)


def test_columns_that_are_left_out_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        SinkColumns.from_schema(
            schema(value=StringType(), offset=LongType(), weight=LongType(), colour=LongType()), "t"
        )
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("Columns that are not written to Kafka: weight, colour. ")


@pytest.mark.parametrize("name", ["value", "other"])  # Spark refuses one that is not written, too, but in a task
def test_two_columns_of_one_name(name: str) -> None:
    fields = [StructField(each, StringType()) for each in ("value", name, name)]
    with pytest.raises(SchemaError, match=f"more than one column '{name}': keep one of them"):
        SinkColumns.from_schema(StructType(fields[1:] if name == "value" else fields), "t")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("value", LongType()),
        ("key", IntegerType()),
        ("topic", BinaryType()),
        ("partition", LongType()),
        ("partition", StringType()),
        ("headers", ArrayType(StringType())),
        ("timestamp", LongType()),
    ],
)
def test_a_column_of_the_wrong_type(name: str, kind: DataType) -> None:
    types = {"value": StringType(), "topic": StringType()} | {name: kind}
    with pytest.raises(SchemaError, match=f"column '{name}' is .* and must be .*: cast it before the write"):
        SinkColumns.from_schema(schema(**types), None)


def test_the_option_topic_beats_a_topic_column() -> None:
    assert rows_of("t", value=pa.array([b"v"]), topic=pa.array(["x"])).topic is None
    assert SinkColumns.from_schema(schema(value=StringType(), topic=LongType()), "t").topic == "t"


def test_strings_become_their_utf8_bytes() -> None:
    rows = rows_of(value=pa.array(["grün", "", None]), key=pa.array(["ü", None, "k"]))
    assert rows.value.to_pylist() == ["grün".encode(), b"", None]
    assert rows.key.to_pylist() == ["ü".encode(), None, b"k"]
    assert rows.value.type == rows.key.type == pa.binary()


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()])
def test_large_arrow_types_are_taken_too(kind: Any) -> None:
    # Spark sends them under spark.sql.execution.arrow.useLargeVarTypes.
    rows = rows_of(value=pa.array(["a", None]).cast(kind))
    assert rows.value.type == pa.binary()
    assert rows.value.to_pylist() == [b"a", None]


def test_a_null_topic() -> None:
    with pytest.raises(WriteError, match=r"a row has a null topic: fill the column, .*option topic"):
        rows_of(None, value=pa.array([b"a", b"b"]), topic=pa.array(["t", None]))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key(header: Any) -> None:
    headers = pa.array([[{"key": "k", "value": None}], None, [header]], ARROW_HEADERS)
    with pytest.raises(WriteError, match="a header that is null or has a null key"):
        rows_of(value=pa.array([b"a", b"b", b"c"]), headers=headers)


def test_timestamps_are_milliseconds_and_a_null_is_now() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123_999, tzinfo=timezone.utc)
    before = int(time.time() * 1000)
    rows = rows_of(
        value=pa.array([b"a", b"b"]),
        timestamp=pa.array([moment, None], pa.timestamp("us", tz="Europe/Berlin")),
    )
    assert rows.timestamp_ms.dtype == np.int64
    assert rows.timestamp_ms[0] == 1_714_979_289_123
    assert before <= rows.timestamp_ms[1] <= time.time() * 1000


def test_without_a_timestamp_column_the_time_is_now() -> None:
    before = int(time.time() * 1000)
    rows = rows_of(value=pa.array([b"a", b"b"]))
    assert rows.timestamp_ms.shape == (2,)
    assert (before <= rows.timestamp_ms).all() and (rows.timestamp_ms <= time.time() * 1000).all()


def everything() -> RecordColumns:
    return rows_of(
        None,
        key=pa.array([b"k0", None, b"k2", b"k3"]),
        value=pa.array([b"v0", b"v1", None, b"v3"]),
        topic=pa.array(["a", "b", "a", "b"]),
        partition=pa.array([0, None, 2, 3], pa.int32()),
        headers=pa.array([[("h", b"x")], None, [], [("h", None)]], ARROW_HEADERS),
        timestamp=pa.array([0, 1_000, 2_000, 3_000], pa.timestamp("us", tz="UTC")),
    )


def test_taking_rows_keeps_all_their_columns_together() -> None:
    taken = everything().take(np.array([3, 0]))
    assert taken.n_records == 2
    assert taken.key.to_pylist() == [b"k3", b"k0"]
    assert taken.value.to_pylist() == [b"v3", b"v0"]
    assert taken.topic.to_pylist() == ["b", "a"]
    assert taken.partition.to_pylist() == [3, 0]
    assert taken.headers.to_pylist() == [[{"key": "h", "value": None}], [{"key": "h", "value": b"x"}]]
    assert taken.timestamp_ms.tolist() == [3, 0]


def test_rows_one_by_one_keep_their_time_wherever_the_worker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark 4.0 hands them to a streaming writer: naive datetimes, local to the process."""
    moment = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    types = schema(value=StringType(), timestamp=TimestampType(), headers=HEADERS, extra=LongType())
    names = SinkColumns.from_schema(types, "t").names
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        local = moment.astimezone().replace(tzinfo=None)
        assert local.hour == 7
        row = Row(value="v", timestamp=local, headers=[Row(key="k", value=b"1")], extra=object())
        (batch,) = rows_to_arrow(iter([row]), types, names)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert batch.to_pylist() == [{"value": "v", "headers": [{"key": "k", "value": b"1"}], "timestamp": moment}]


def test_typed_columns_of_rows_one_by_one_keep_their_values() -> None:
    inner = StructType([StructField("at", TimestampType()), StructField("n", IntegerType())])
    value = StructType([StructField("inner", ArrayType(inner)), StructField("counts", MapType(StringType(), inner))])
    types = schema(value=value)
    local = datetime(2026, 11, 21, 12)
    row = Row(value=Row(inner=[Row(at=local, n=1), None], counts={"a": Row(at=None, n=2)}))
    (batch,) = rows_to_arrow(iter([row, Row(value=None)]), types, ["value"])
    at = local.astimezone(timezone.utc)
    assert batch.column(0).to_pylist() == [
        {"inner": [{"at": at, "n": 1}, None], "counts": [("a", {"at": None, "n": 2})]},
        None,
    ]
