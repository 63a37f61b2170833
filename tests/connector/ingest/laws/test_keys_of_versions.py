"""A key is read with the fields of its own schema, in Avro and Protobuf: a field that the key lacks is null, never a default."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.records.key_columns import KEY_FRAME
from pykafka_wire.ingest.records.key_schemas import FRAME_BYTES, key_schemas, renamed_fields
from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.registry.framing import encode_frame, header_values
from tests.connector.ingest.laws.generated import examples
from tests.connector.values.scripted_registry import scripted_registry

KINDS = {"a": "int32", "b": "string", "c": "optional int32", "d": "string"}
#: The fields of each version, and of each key its version and whether its values are the defaults.
WORLDS = st.tuples(
    st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    st.sampled_from(["proto2", "proto3"]),
)


def _protobuf_text(fields: set[str], syntax: str) -> str:
    lines = []
    for name in sorted(fields):
        kind = KINDS[name] if syntax == "proto3" else f"optional {KINDS[name].removeprefix('optional ')}"
        lines.append(f"{kind} {name} = {ord(name)};")
    return f'syntax = "{syntax}"; message Other {{}} message Key {{ {" ".join(lines)} }}'


def _avro_text(fields: set[str]) -> str:
    kinds = {name: "int" if "int" in kind else "string" for name, kind in KINDS.items()}
    columns = [
        {"name": name, "type": kinds[name], "default": 0 if kinds[name] == "int" else ""} for name in sorted(fields)
    ]
    return json.dumps({"type": "record", "name": "Key", "fields": columns})


def _values(fields: set[str], is_default: bool) -> dict[str, Any]:
    return {
        name: (0 if "int" in KINDS[name] else "") if is_default else (7 if "int" in KINDS[name] else "x")
        for name in fields
    }


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_key_has_the_fields_of_its_own_schema(kind: str) -> None:
    @examples(60)
    @given(WORLDS)
    def law(world: tuple[list[set[str]], list[tuple[int, bool]], str]) -> None:
        versions, chosen, syntax = world
        texts = [_avro_text(fields) if kind == "AVRO" else _protobuf_text(fields, syntax) for fields in versions]
        responses: dict[str, Any] = {"/subjects/s/versions": [*range(1, len(texts) + 1)]}
        for version, text in enumerate(texts, 1):
            schema = {"schema": text, "schemaType": kind}
            responses |= {f"/subjects/s/versions/{version}": schema, f"/schemas/ids/{version}": schema}
        keys = [(number % len(versions), is_default) for number, is_default in chosen]
        with scripted_registry(responses) as url:
            registry = Registry(url)
            schemas = key_schemas(registry, "s", None if kind == "AVRO" else "Key")
            assert (schemas is None) is (len(set(map(frozenset, versions))) == 1)
            for version, is_default in keys:
                values = _values(versions[version], is_default)
                if kind == "AVRO":
                    content = io.BytesIO()
                    fastavro.schemaless_writer(content, json.loads(texts[version]), values)
                    key = encode_frame(version + 1, content.getvalue())
                else:
                    message = link("k", {"k": texts[version]}).descriptor.message_types_by_name["Key"]
                    key = encode_frame(
                        version + 1, b"\x02\x02" + GetMessageClass(message)(**values).SerializeToString()
                    )
                text = texts[-1]
                if schemas is not None:
                    (names,) = schemas.names([key[:FRAME_BYTES]]).values()
                    assert names == tuple(sorted(versions[version]))
                    text = schemas.text(names) or text
                reader = Schema(kind=kind, text=text)
                read_as: Any = (
                    Avro(registry=registry, reader_schema=reader)
                    if kind == "AVRO"
                    else Protobuf(registry=registry, reader_schema=reader, message="Key")
                )
                read = read_column(read_as, read_as.column_type(), pa.array([key], pa.binary()))
                assert (read.column.to_pylist(), dict(read.reasons)) == ([values], {}), (key, text)
                if schemas is not None:
                    whole = Schema(kind=kind, text=schemas.whole or "")
                    read_as = (
                        Avro(registry=registry, reader_schema=whole)
                        if kind == "AVRO"
                        else Protobuf(registry=registry, reader_schema=whole, message="Key")
                    )
                    read = read_column(read_as, read_as.column_type(), pa.array([key], pa.binary()))
                    nulls = dict.fromkeys(set().union(*versions))
                    assert read.column.to_pylist() == [nulls | values]

    law()


@pytest.mark.spark
def test_the_header_that_names_the_schema_of_a_key_is_the_one_by_which_the_key_is_read(spark: Any) -> None:
    make = random.Random(0)
    names = ("__key_schema_id", "__key_schema_id", "__value_schema_id", "n")
    rows: list[Any] = []
    for number in range(200):
        headers = [(make.choice(names), make.choice((None, make.randbytes(17)))) for _ in range(make.randrange(5))]
        rows.append((number, make.choice((None, make.randbytes(8))), make.choice((None, headers))))
    kind = "number INT, key BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    frames = spark.createDataFrame(rows, kind).selectExpr("number", f"{KEY_FRAME} AS frame").collect()
    headers = pa.array(
        [[{"key": name, "value": value} for name, value in of or ()] for _, _, of in rows],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    named = header_values(headers, "__key_schema_id").to_pylist()
    expected = {
        number: header if header is not None else None if key is None else key[:FRAME_BYTES]
        for (number, key, _), header in zip(rows, named, strict=True)
    }
    assert {number: None if frame is None else bytes(frame) for number, frame in frames} == expected


@pytest.mark.unit
@pytest.mark.parametrize(
    "versions",
    [
        ("int64 id=1;", "int64 ident=1;"),
        ("int64 id=1;", "int64 old_id=1; int64 id=2;"),
        ("int64 id=1;", "int64 ident=1;", "string id=2; int64 ident=1;"),
        ("string id=1; string region=2;", "string id=1; string area=2; string region=3;"),
    ],
)
def test_a_renamed_field_is_known_also_if_another_field_has_its_former_name(versions: tuple[str, ...]) -> None:
    texts = [f'syntax = "proto3"; message K {{ {fields} }}' for fields in versions]
    answers: dict[str, Any] = {
        f"/subjects/k/versions/{n}": {"schema": text, "schemaType": "PROTOBUF"} for n, text in enumerate(texts, 1)
    }
    answers["/subjects/k/versions"] = [*range(1, len(texts) + 1)]
    with scripted_registry(answers) as url:
        renamed = renamed_fields(Registry(url), "k")
    former, newest = (
        ("region", "area") if "region" in versions[0] else ("id", "ident" if "ident" in versions[1] else "old_id")
    )
    assert renamed == {former: newest}
