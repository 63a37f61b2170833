"""JSON beside Spark's from_json and to_json: random types and documents, and the list of what differs, with Spark's results.

`make test` tries some types, `make conformance-values` more (CONFORMANCE_VALUES).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json import column_reader
from pykafka_wire.values.json.column_writer import DocumentWriter
from pykafka_wire.values.json.format import Json
from tests.connector.values.json_samples import SCALARS, JsonSamples
from tests.connector.values.same_values import same

pytestmark = pytest.mark.spark
#: Types of one query, and documents of each.
N_TYPES, N_DOCUMENTS = 6, 30
#: Documents of each type of flat objects: of fewer than 512 none is read by its layout (connector/values/json/flat_objects.py).
N_FLAT, N_OTHERS = 600, 50
N_QUERIES = max(int(os.environ.get("CONFORMANCE_VALUES", "0")) // 500, 1)
OPTIONS = {"timeZone": "UTC", "columnNameOfCorruptRecord": "_corrupt"}


def from_json(spark: Any, columns: list[tuple[pa.DataType, list[str]]]) -> list[tuple[list[Any], list[bool]]]:
    """For each column what Spark reads, as Arrow scalars, and which of its documents it calls corrupt."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType

    names = [f"c{nth}" for nth in range(len(columns))]
    table = pa.table({name: pa.array(texts) for name, (_, texts) in zip(names, columns, strict=True)})
    frame = spark.createDataFrame(table).coalesce(1)
    selected = []
    for name, (column_type, _) in zip(names, columns, strict=True):
        schema = from_arrow_schema(pa.schema(list(column_type)), prefer_timestamp_ntz=True).add(
            "_corrupt", StringType()
        )
        selected.append(F.from_json(name, schema, OPTIONS).alias(name))
    found = frame.select(*selected).toArrow().combine_chunks()
    results = []
    for name, (column_type, _) in zip(names, columns, strict=True):
        (column,) = found.column(name).chunks
        fields = [column.field(field.name).cast(field.type) for field in column_type]
        corrupt = column.field("_corrupt").is_valid().to_pylist()
        results.append((list(pa.StructArray.from_arrays(fields, fields=list(column_type))), corrupt))
    return results


def unsigned(value: Any) -> Any:
    """Return a value with 0.0 for -0.0: from_json drops the sign of ``-0``, not that of ``-0.0``."""
    if isinstance(value, dict):
        return {name: unsigned(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [unsigned(inner) for inner in value]
    return value + 0.0 if isinstance(value, float) else value


def ours(column_type: pa.DataType, texts: list[str]) -> tuple[Any, Any]:
    found = read_column(Json(), column_type, pa.array([text.encode() for text in texts], pa.binary()))
    return found.column, found.reasons


@pytest.fixture(scope="module")
def columns() -> list[list[tuple[pa.DataType, list[str]]]]:
    found = []
    for query in range(N_QUERIES):
        of_query = []
        for nth in range(N_TYPES):
            samples = JsonSamples(query * N_TYPES + nth, maps=nth % 2 == 1)
            column_type = samples.struct()
            of_query.append((column_type, [samples.document(column_type).decode() for _ in range(N_DOCUMENTS)]))
        found.append(of_query)
    return found


def test_random_documents_are_read_as_from_json_reads_them(spark: Any, columns: Any) -> None:
    for of_query in columns:
        for (column_type, texts), (theirs, corrupt) in zip(of_query, from_json(spark, of_query), strict=True):
            column, reasons = ours(column_type, texts)
            for row, text in enumerate(texts):
                assert not corrupt[row] and row not in reasons, (column_type, text, reasons.get(row))
                assert same(unsigned(column[row].as_py()), unsigned(theirs[row].as_py())), (column_type, text)


def test_flat_documents_that_are_read_by_their_layout_are_read_as_from_json_reads_them(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = JsonSamples(0)
    kinds = [pa.struct([("id", pa.int64()), ("value", kind), ("name", pa.string())]) for kind in SCALARS]
    columns = []
    for kind in kinds:
        others = [b"{ " + samples.document(kind)[1:] for _ in range(N_OTHERS)]  # the blank: none has the layout
        columns.append((kind, [text.decode() for text in [*(samples.flat(kind) for _ in range(N_FLAT)), *others]]))
    read, by_layout = column_reader.FlatReader.read, Counter[str]()

    def counted(self: Any, documents: Any, rows: Any) -> Any:
        parts, left = read(self, documents, rows)
        by_layout[str(column_type)] += len(rows) - len(left)
        return parts, left

    monkeypatch.setattr(column_reader.FlatReader, "read", counted)
    for (column_type, texts), (theirs, corrupt) in zip(columns, from_json(spark, columns), strict=True):
        column, reasons = ours(column_type, texts)
        assert N_FLAT // 2 < by_layout[str(column_type)] <= N_FLAT, column_type
        for row, text in enumerate(texts):
            assert not corrupt[row] and row not in reasons, (column_type, text, reasons.get(row))
            assert same(unsigned(column[row].as_py()), unsigned(theirs[row].as_py())), (column_type, text)


def test_random_columns_are_written_as_to_json_writes_them(spark: Any, columns: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.types import from_arrow_schema

    for of_query in columns:
        read = [ours(column_type, texts)[0] for column_type, texts in of_query]
        names = [f"c{nth}" for nth in range(len(read))]
        table = pa.table(read, names=names)
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        frame = spark.createDataFrame(table, schema).coalesce(1)
        written = frame.select(*(F.to_json(name, {"timeZone": "UTC"}).alias(name) for name in names)).toArrow()
        for name, column in zip(names, read, strict=True):
            for text, theirs in zip(DocumentWriter(column.type).write(column), written.column(name), strict=True):
                singles = "float" in str(column.type)
                here, there = (parsed(each, singles) for each in (text.as_py().decode(), theirs.as_py()))
                assert here == there, (column.type, text, theirs)


def parsed(text: str, singles: bool) -> Any:
    """With the order of the fields. Numbers with a fraction are the nearest floats, single ones where a type has any."""

    def value(each: Any) -> Any:
        if isinstance(each, list):
            return [value(item) for item in each]
        if isinstance(each, tuple):
            return tuple(value(item) for item in each)
        if isinstance(each, str):  # microseconds, which to_json cuts off
            return re.sub(r"(T[0-9:]{8}\.[0-9]{3})[0-9]{3}(Z?)$", r"\1\2", each)
        if isinstance(each, Decimal):
            return float(np.float32(float(each))) if singles else float(each)
        return each

    return value(
        json.loads(text, object_pairs_hook=lambda pairs: [("{", *pair) for pair in pairs], parse_float=Decimal)
    )


ERROR = object()
#: DDL, JSON text of the field, what is read here, and what from_json reads; ERROR is a reason here, a corrupt record there.
DIFFERENCES: list[tuple[pa.DataType, str, Any, Any]] = [
    (pa.int32(), '"5"', 5, ERROR),
    (pa.int32(), "5.0", 5, ERROR),
    (pa.int32(), "1e2", 100, ERROR),
    (pa.int8(), "200", ERROR, -56),
    (pa.float64(), "1e400", ERROR, math.inf),
    (pa.float32(), "1e39", ERROR, math.inf),
    (pa.float64(), '"+INF"', ERROR, math.inf),
    (pa.decimal128(5, 2), "1.239", ERROR, Decimal("1.24")),
    (pa.string(), "1.50", "1.50", "1.5"),
    (pa.string(), "1e2", "1E+2", "100.0"),
    (pa.string(), '"\\ud800"', ERROR, "?"),
    (pa.date32(), '"5"', ERROR, 5),
    (pa.timestamp("us", "UTC"), "5000000", ERROR, 5_000_000 * 10**6),
    (pa.timestamp("us", "UTC"), "126230400000", ERROR, 126_230_400_000 * 10**6),
    (pa.timestamp("us", "UTC"), "-5", ERROR, -5 * 10**6),
    (pa.decimal128(10, 2), '"1234"', ERROR, Decimal("1234.00")),
    (pa.timestamp("us", "UTC"), '"2026-03-01T12:30:00+19:00"', 1_772_299_800 * 10**6, ERROR),
]
#: Documents that are not JSON, or not one document, for STRUCT<a: INT>.
NO_DOCUMENTS = {"{'a':1}": 1, '{"a":1} x': 1, '{"a":1}{"a":2}': 1, '[{"a":1}]': None, "": None}


def test_what_differs_from_from_json_is_as_documented(spark: Any) -> None:
    columns = [(pa.struct([("a", kind)]), [f'{{"a":{text}}}']) for kind, text, _, _ in DIFFERENCES]
    for (kind, text, here, there), (column_type, texts), (theirs, corrupt) in zip(
        DIFFERENCES, columns, from_json(spark, columns), strict=True
    ):
        column, reasons = ours(column_type, texts)
        found = ERROR if reasons else plain(column.field("a")[0])
        assert found is here or found == here, (kind, text, found)
        response = ERROR if corrupt[0] else plain(theirs[0]["a"])
        assert response is there or response == there, (kind, text, response)
    lax = [(pa.struct([("a", pa.int32())]), list(NO_DOCUMENTS))]
    ((theirs, _),) = from_json(spark, lax)
    assert [each["a"].as_py() for each in theirs] == list(NO_DOCUMENTS.values())
    assert len(ours(*lax[0])[1]) == len(NO_DOCUMENTS)


def plain(scalar: Any) -> Any:
    """Times as integers: Python does not have all of Spark's."""
    is_time = pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type)
    return scalar.value if is_time else scalar.as_py()


#: What both refuse: the value of a field of each type.
WRONG = [
    (pa.int32(), ("true", "1.5", "2147483648", '"x"', "[1]", "{}", "NaN", "01", "+1", "Inf")),
    (pa.int64(), ("9223372036854775808", "1.5", "-9223372036854775809")),
    (pa.float64(), ("true", '"1.5"', '"x"', "Inf", "-NaN", "01", ".5")),
    (pa.decimal128(5, 2), ("12345", '"x"', '""', "NaN", "true", '" 1"')),
    (pa.bool_(), ('"true"', "1", "0")),
    (pa.date32(), ('"2026-02-30"', "5", '""', '"2026-03-01x"', '"today"', '"26-03-01"')),
    (pa.timestamp("us", "UTC"), ('"2026-02-30T00:00:00"', '"2026-03-01T24:00:00"', '"2026-03-01t12:30:00z"', "1.5", '""', '"5"')),
    (pa.timestamp("us"), ('"2026-03-01T12:30:00Z"', '"2026-03-01T12:30:00+01:00"', "5", '"x"')),
    (pa.binary(), ('"AAA"', '"*"', "5", "[1]", '"-_-_"')),
    (pa.list_(pa.int32()), ("{}", "5", '["x"]', '[1,"x"]')),
    (pa.map_(pa.string(), pa.int32()), ("[]", '{"a":"x"}', "5")),
    (pa.struct([("b", pa.int32())]), ('{"b":"x"}', "5", '"x"')),
]  # fmt: skip
#: What both accept in the same way, and no random document has.
UNUSUAL = [
    (
        pa.date32(),
        (
            '"2026-3-1"',
            '"2026-03"',
            '"2026"',
            '"2026-03-01T12:00:00Z"',
            '" 2026-03-01 "',
            '"2026-03-01 x"',
            '"+2026-03-01"',
            '"-0001-03-01"',
            '"12345-03-01"',
        ),
    ),
    (
        pa.timestamp("us", "UTC"),
        (
            '"2026-3-1 1:2:3"',
            '"2026-03-01T12"',
            '"2026"',
            '"2026-03-01T12:30:00+1:30"',
            '"2026-03-01T12:30:00 Europe/Berlin"',
            '"2026-03-29T02:30:00Europe/Berlin"',
            '"2026-10-25T02:30:00 Europe/Berlin"',
            '"2026-03-01T12:30:00GMT+1"',
            '" 2026-03-01T12:30:00Z "',
            '"2026-03-01T12:30:00.Z"',
            '"2026-03-01T12:30:00-18:00"',
            '"2026-03-01 12:30:00.123456789"',
            '"0000-01-01T00:00:00"',
            '"12345-01-01T00:00:00Z"',
        ),
    ),
    (pa.timestamp("us"), ('"2026-3-1 1:2:3"', '"2026-03-01"', '"2026-03-01T12:30:00.1"')),
    (pa.float64(), ("NaN", "Infinity", "-Infinity", '"NaN"', '"-Infinity"', "9007199254740993", "1e-400")),
    (pa.float32(), ("0.1", "16777217", "1.0000001788139343261718750000000000000001")),
    (pa.string(), ('{"b": 1,  "c":[1, 2]}', "[ ]", "true", "1", '"a\\u0000b"', '"\\ud83d\\ude00"')),
    (pa.decimal128(5, 2), ('"1E2"', "1e2", "12.5", '"12.50"')),
    (pa.map_(pa.string(), pa.int32()), ('{"a":null}', "{}", '{"":1}')),
]


def test_values_of_other_types_are_refused_and_unusual_forms_are_read_as_from_json_does(spark: Any) -> None:
    columns = [
        (
            pa.struct([("a", kind), ("row", pa.int64())]),
            [f'{{"a":{text},"row":{row}}}' for row, text in enumerate(texts)],
        )
        for kind, texts in (*WRONG, *UNUSUAL)
    ]
    longest = max(len(texts) for _, texts in columns)
    padded = [(kind, texts + ["{}"] * (longest - len(texts))) for kind, texts in columns]
    for nth, ((column_type, texts), (theirs, corrupt)) in enumerate(
        zip(columns, from_json(spark, padded), strict=True)
    ):
        column, reasons = ours(column_type, texts)
        for row, text in enumerate(texts):
            assert (row in reasons) is (nth < len(WRONG)) is corrupt[row], (column_type, text, reasons.get(row))
            if row not in reasons:
                assert column.field("row")[row].as_py() == row
                assert same(plain(column.field("a")[row]), plain(theirs[row]["a"])), (column_type, text)
