"""Hostile Avro schemas and JSON types: what is not valid is refused, what is valid is read and written in bounded time and memory.

`make test` tries some, the same each time, `make fuzz-values` thousands of others (FUZZ_VALUES).
A failure names the seed of its schema or type, for FUZZ_SEED.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pykafka_wire.errors import DecodeError, OptionError, SchemaError
from pykafka_wire.values.avro import format as avro_format
from pykafka_wire.values.avro.column_writer import column_writer as avro_writer
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.avro.types import arrow_type
from pykafka_wire.values.bulk.reading import OneByOne
from pykafka_wire.values.bulk.writing import encode
from pykafka_wire.values.converter import Converter, Format
from pykafka_wire.values.json.column_writer import DocumentWriter as JsonWriter
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.values.registry.registered_schema import Schema
from tests.connector.values import fuzz_bounds, hostile_avro, hostile_json
from tests.connector.values.fuzz_bounds import check_rows, same

#: Each with some forty values.
N_SCHEMAS = int(os.environ.get("FUZZ_VALUES", "4000")) // 400
SEED = int(os.environ.get("FUZZ_SEED", "1")) or random.SystemRandom().randrange(2**32)
N_VALUES = 40
#: A value may take 64 MiB for items that take no bytes of it, and 64 bytes for each of its own: Python's empty list has as many.
MAX_GROWTH_BYTES = 128 << 20
GROWTH_PER_BYTE = 64
#: Of processor time, for a schema, and for the values of one type; more where these are large.
MAX_S = 10.0
BYTES_PER_S = 1 << 20


class Resolved:
    """Values of one schema without a frame, read by another one or by itself."""

    framing: Framing = "none"
    has_message_indexes = False

    def __init__(self, written: str, read: str | None) -> None:
        self._written = Schema(kind="AVRO", text=written)
        self._read = None if read is None else Schema(kind="AVRO", text=read)

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> Any:
        return avro_format._reader(None, self._written, (), self._read, None, column_type)


class RowByRow:
    """A format that leaves all rows to be read one by one."""

    def __init__(self, value_format: Any) -> None:
        self._format = value_format
        self.framing: Framing = value_format.framing
        self.has_message_indexes = False

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> OneByOne:
        return OneByOne(column_type, self._format.reader(schema_id, column_type).read_one)


def bounded(where: str, act: Callable[..., Any], *arguments: Any) -> Any:
    n_bytes = sum(each.nbytes for each in arguments if isinstance(each, pa.Array))
    return fuzz_bounds.bounded(
        where, MAX_GROWTH_BYTES + GROWTH_PER_BYTE * n_bytes, MAX_S + n_bytes / BYTES_PER_S, act, *arguments
    )


def test_no_hostile_avro_schema_ends_a_task_changes_a_row_or_takes_memory() -> None:
    print(f"FUZZ_SEED={SEED}")
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + N_SCHEMAS):
        rng = random.Random(seed)
        text = hostile_avro.text_of(rng)
        read = hostile_avro.reader_of(rng, text) if rng.random() < 0.4 else None
        where = f"FUZZ_SEED={seed}: {text[:2_000]} as {read and read[:2_000]}"
        try:
            written = bounded(where, parse, text)
            reader = written if read is None else bounded(where, parse, read)
        except DecodeError:
            continue
        counts["valid schemas"] += 1
        try:
            wanted = bounded(where, arrow_type, reader)
        except SchemaError:
            wanted = pa.struct([("f0", pa.string()), ("f1", pa.list_(pa.string()))])
        if rng.random() < 0.4:
            wanted = hostile_avro.type_of(rng, wanted)
        where += f" as {str(wanted)[:1_000]}"
        values = hostile_avro.Values(rng, written)
        rows = pa.array([values.payload() if rng.random() < 0.95 else None for _ in range(N_VALUES)], pa.binary())
        if (found := checked(rng, Resolved(text, read), wanted, rows, where, counts)) is not None and read is None:
            counts["written again"] += write(AvroSchema(written, text), wanted, found, where)
        for each in (avro_format._reader, avro_format._parse_schema):
            each.cache_clear()
    print(f"{N_SCHEMAS} schemas: {dict(counts)}")
    assert counts["valid schemas"] > N_SCHEMAS / 3
    assert N_SCHEMAS < 50 or counts["values"] / 20 < counts["diverted"] < 0.9 * counts["values"]
    assert N_SCHEMAS < 50 or counts["written again"] > counts["values"] / 50


def test_no_hostile_json_type_ends_a_task_changes_a_row_or_takes_memory() -> None:
    print(f"FUZZ_SEED={SEED}")
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + N_SCHEMAS):
        rng = random.Random(seed)
        wanted = hostile_json.type_of(rng)
        documents = [hostile_json.document(rng, wanted) if rng.random() < 0.95 else None for _ in range(N_VALUES)]
        where = f"FUZZ_SEED={seed}: {str(wanted)[:2_000]}"
        found = checked(rng, Json(), wanted, pa.array(documents, pa.binary()), where, counts)
        if found is not None:
            counts["written again"] += write(JsonFormat(), wanted, found, where)
    print(f"{N_SCHEMAS} types: {dict(counts)}")
    assert N_SCHEMAS < 50 or counts["values"] / 20 < counts["diverted"] < 0.9 * counts["values"]
    assert N_SCHEMAS < 50 or counts["written again"] > counts["values"] / 50


def checked(
    rng: random.Random, value_format: Any, wanted: pa.DataType, rows: Any, where: str, counts: Counter[str]
) -> Any:
    """The rows as ``wanted``, in columns and alone alike; None for a type that no value has."""
    try:
        converter = Converter(format=value_format, type=wanted, on_error="divert")
    except OptionError:
        return None
    found = bounded(where, converter, rows)
    alone = Converter(format=RowByRow(value_format), type=wanted, on_error="divert")
    counts["values"] += len(rows)
    counts["diverted"] += check_rows(
        rows, found, lambda place: alone(rows.slice(place, 1)) if rng.random() < 0.15 else None, where
    )
    return found.field("value")


class AvroSchema:
    def __init__(self, parsed: ParsedSchema, text: str) -> None:
        self._parsed = parsed
        self.reading: Format = Resolved(text, None)

    def writer(self, column_type: pa.DataType) -> Any:
        return avro_writer(self._parsed, column_type)


class JsonFormat:
    reading: Format = Json()

    def writer(self, column_type: pa.DataType) -> Any:
        return JsonWriter(column_type)


def write(schema: AvroSchema | JsonFormat, wanted: pa.DataType, column: Any, where: str) -> int:
    """How many values were written, and are the same when they are read again; 0 where the schema does not hold them."""
    try:
        writer = bounded(where, schema.writer, wanted)
    except SchemaError:
        return 0
    written = bounded(where, encode, writer, column)
    again = bounded(where, Converter(format=schema.reading, type=wanted, on_error="divert"), written.column)
    kept = [row for row in range(len(column)) if column[row].is_valid and row not in written.reasons]
    for row in kept:
        assert again.field("error")[row].as_py() is None, (again.field("error")[row], where)
        one, other = column.slice(row, 1), again.field("value").slice(row, 1)
        # As text, where Python has no such time, what lies beneath a null struct counts, too.
        assert one.equals(other) or same(one) == same(other), (row, where)
    return len(kept)
