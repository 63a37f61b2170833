"""The fields that the option ``columns`` selects have the values that they have in the whole value, in every format."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.field_selection import Selection, parse_columns, select_type, selected_paths
from pykafka_wire.source.reader_schema import ReaderSchema
from pykafka_wire.values.converter import Format, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.protobuf.linker import link
from tests.connector.values import protobuf_samples
from tests.connector.values.avro_samples import Samples
from tests.connector.values.json_samples import JsonSamples
from tests.connector.values.test_avro_columns import encoded, stored

N_SCHEMAS = 12


def selection_of(rng: random.Random, column_type: pa.DataType, depth: int = 0) -> Selection:
    """Some fields in any order, each whole or with some of its own."""
    if pa.types.is_list(column_type):
        return selection_of(rng, column_type.value_type, depth)
    if not pa.types.is_struct(column_type) or not column_type.num_fields or (depth and rng.random() < 0.3):
        return {}
    fields = rng.sample(list(column_type), rng.randint(1, column_type.num_fields))
    return {field.name: selection_of(rng, field.type, depth + 1) for field in fields}


def selected(value: Any, selection: Selection) -> Any:
    if value is None or not selection:
        return value
    if isinstance(value, list):
        return [selected(each, selection) for each in value]
    return {name: selected(value[name], fields) for name, fields in selection.items()}


def check(
    rng: random.Random, value_format: Format, reader: ReaderSchema | None, whole: Any, values: list[bytes]
) -> int:
    """How many values were compared."""
    selection = selection_of(rng, whole)
    assert parse_columns(", ".join(selected_paths({"value": selection}))) == {"value": selection}
    part = select_type(whole, selection, "value")
    if reader is not None:
        assert reader.column_type(None, selection) == part
    rows = pa.array(values, pa.binary())
    of_whole, of_part = (read_column(value_format, each, rows) for each in (whole, part))
    compared = [row for row in range(len(values)) if row not in of_whole.reasons]
    for row in compared:
        assert row not in of_part.reasons, (of_part.reasons[row], selection, values[row])
        expected = selected(stored(of_whole.column[row]), selection)
        assert repr(stored(of_part.column[row])) == repr(expected), (selection, values[row])  # of NaN, too
    return len(compared)


def avro(seed: int) -> int:
    samples = Samples(seed)
    schema, _ = samples.record()
    reader = ReaderSchema(format="avro", text=json.dumps(schema), message=None)
    values = [encoded(schema, samples.value(schema)) for _ in range(8)]
    return check(samples.random, reader.value_format(None), reader, reader.column_type(None), values)


def json_documents(seed: int) -> int:
    samples = JsonSamples(seed, maps=seed % 2 == 1)
    column_type = samples.struct()
    values = [samples.document(column_type, share_wrong=0.01) for _ in range(8)]
    return check(samples.random, Json(), None, column_type, values)


def protobuf(seed: int) -> int:
    rng = random.Random(seed)
    text = protobuf_samples.random_file(rng)
    new_message = GetMessageClass(link("file", {"file": text}).descriptor.message_types_by_name["M0"])
    messages = [new_message() for _ in range(8)]
    for message in messages:
        protobuf_samples.fill(rng, message, rng.random())
    reader = ReaderSchema(format="protobuf", text=text, message="M0")
    if not messages[0].DESCRIPTOR.fields:
        return 0  # which has no column
    values = [message.SerializePartialToString() for message in messages]
    return check(rng, reader.value_format(None), reader, reader.column_type(None), values)


@pytest.mark.parametrize("compare", [avro, json_documents, protobuf])
def test_selected_fields_have_the_values_of_the_whole(compare: Any) -> None:
    assert sum(compare(seed) for seed in range(N_SCHEMAS)) > N_SCHEMAS


def test_the_value_of_any_alone_is_its_bytes() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/any.proto"; message M { google.protobuf.Any any = 1; }'
    reader = ReaderSchema(format="protobuf", text=text, message=None)
    column_type = reader.column_type(None, {"any": {"value": {}}})
    assert column_type == pa.struct([("any", pa.struct([("value", pa.binary())]))])
    found = read_column(reader.value_format(None), column_type, pa.array([b"\x0a\x06\x0a\x01u\x12\x01v"]))
    assert (found.column.to_pylist(), found.reasons) == ([{"any": {"value": b"v"}}], {})
