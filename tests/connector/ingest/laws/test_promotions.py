"""An Iceberg table changes a type only as Iceberg's specification allows, and every reader still finds the older rows.

The oracle is https://iceberg.apache.org/spec/#schema-evolution for tables of version 2, and that keys of maps keep their types, as
Iceberg's library for Java requires.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampType,
)

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import ColumnConflictError
from pykafka_wire.ingest.files.types import conform, file_type
from pykafka_wire.ingest.settings.model import Settings, Table
from tests.connector.ingest.laws.changes_of_types import Change, drawn_changes, extremes, is_kept, is_same, placed, put
from tests.connector.ingest.laws.generated import examples

pytest.importorskip("pyiceberg")

from pykafka_wire.ingest.tables.iceberg.catalog import make_namespace
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable

#: The number of rows of a write: a type has up to three extreme values.
_ROWS: Final = 3


def is_promoted(change: Change) -> bool:
    """Return whether Iceberg's specification lists the change of a type."""
    held, rows = change.held, change.rows
    if isinstance(held, DecimalType) and isinstance(rows, DecimalType):
        is_listed = rows.precision > held.precision and rows.scale == held.scale
    else:
        is_listed = (type(held), type(rows)) in ((IntegerType, LongType), (FloatType, DoubleType))
    return is_listed and change.place != "key"


def as_iceberg(kind: DataType) -> DataType:
    """Return the type that a table gets: Iceberg has no smaller type of whole numbers than int."""
    return IntegerType() if isinstance(kind, (ByteType, ShortType)) else kind


def as_arrow(value: Any, kind: DataType) -> Any:
    """Return a value of a type as pyarrow reads and writes it."""
    if isinstance(kind, TimestampType):
        return value.replace(tzinfo=timezone.utc)
    return bytes(value) if isinstance(value, bytearray) else value


@given(random=st.integers(1, 2**32).map(Random))
@examples(3)
def test_a_type_changes_only_as_the_specification_allows(
    tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    folder: Path = tmp_path_factory.mktemp("lake")
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    kafka = {"bootstrap.servers": "b:1"}
    into = f"c{uuid.uuid4().hex[:8]}.n"
    settings = Settings(
        checkpoint="c", kafka=kafka, topics="t", into=into, table_format="iceberg", catalog=catalog
    )  # fmt: skip
    make_namespace(settings)
    drawn = [Change(as_iceberg(each.held), each.rows, each.place) for each in drawn_changes(random)]
    table: Any = IcebergTable(None, settings, "t")  # type: ignore[arg-type]  # neither reads nor writes by Spark

    def schema_of(numbers: Sequence[int], *, is_new: bool) -> StructType:
        kinds = [placed(drawn[n].place, drawn[n].rows if is_new else drawn[n].held, is_new=is_new) for n in numbers]
        fields = [StructField(f"c{n}", kind) for n, kind in zip(numbers, kinds, strict=True)]
        return StructType([StructField("id", IntegerType()), *fields])

    def value_of(number: int, row: int, *, is_new: bool) -> Any:
        kind = drawn[number].rows if is_new else drawn[number].held
        values = extremes(kind)
        return as_arrow(values[row % len(values)], kind)

    def write(numbers: Sequence[int], first_id: int, *, is_new: bool) -> None:
        schema = arrow_schema(schema_of(numbers, is_new=is_new))
        columns = [pa.array(range(first_id, first_id + _ROWS), schema.field("id").type)]
        for n in numbers:
            values = [put(drawn[n].place, value_of(n, row, is_new=is_new), is_new=is_new) for row in range(_ROWS)]
            kind = schema.field(f"c{n}").type
            columns.append(pa.array([_entries(value, kind) for value in values], kind))
        rows = pa.StructArray.from_arrays(columns, fields=list(schema))
        stored = conform(rows, file_type(rows.type, pa.struct(table.arrow_schema)))
        table._table.append(pa.Table.from_struct_array(stored))
        table.refresh()

    every = range(len(drawn))
    table.create_of(arrow_schema(schema_of(every, is_new=False)), Table(topic=".*"), "query", None)
    write(every, 0, is_new=False)
    held = table.arrow_schema
    stored = [n for n in every if is_kept(drawn[n].held, drawn[n].rows) or is_promoted(drawn[n])]
    for n in set(every) - set(stored):
        with pytest.raises(ColumnConflictError, match=rf"c{n}\b"):
            table.add_types(schema_of([n], is_new=True))
            pytest.fail(f"{drawn[n]} was accepted: {table.arrow_schema.field(f'c{n}')}")
        table.refresh()
        assert table.arrow_schema == held
    table.add_types(schema_of(stored, is_new=True))
    table.refresh()
    write(stored, 10, is_new=True)
    found = {row["id"]: row for row in table._table.scan().to_arrow().to_pylist()}
    assert len(found) == 2 * _ROWS
    for first_id, numbers in ((0, every), (10, stored)):
        for n in numbers:
            for row in range(_ROWS):
                written = value_of(n, row, is_new=first_id == 10)
                read = _taken(drawn[n].place, found[first_id + row][f"c{n}"])
                assert is_same(written, read), (drawn[n], written, read)


def _entries(value: Any, kind: pa.DataType) -> Any:
    """Return a value in the form of pyarrow: maps as entries, structs as dicts."""
    if pa.types.is_struct(kind):
        return {field.name: each for field, each in zip(kind, value, strict=True)}
    if pa.types.is_list(kind):
        return [_entries(each, kind.value_type) for each in value]
    return list(value.items()) if pa.types.is_map(kind) else value


def _taken(place: str, value: Any) -> Any:
    """Return the value at a place of a column that pyarrow has read."""
    if place in ("field", "field of elements"):
        whole = value if place == "field" else value[0]
        assert whole["y"] == "of y"
        return whole["x"]
    if place == "column":
        return value
    return value[0] if place == "element" else value[0][0] if place == "key" else value[0][1]
