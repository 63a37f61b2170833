"""Contexts of Confluent's registry, each with ids of its own, and versions that were deleted though schemas refer to them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.reader_schema import registry_in
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.registry.address import Registry, context_of
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.registered_schema import Schema
from tests.connector.values.scripted_registry import scripted_registry


def record(field: str, kind: Any = "long") -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": field, "type": kind}]})


SUBJECT = ":.prod:orders-value"


def test_ids_are_looked_up_in_the_context_of_the_subject_and_never_in_another_one() -> None:
    """Confluent's API, whose registry is not on Maven Central."""
    responses = {
        "/schemas/ids/1": {"schema": record("of_default")},
        f"/schemas/ids/1?subject={SUBJECT}": {"schema": record("of_prod")},
        f"/subjects/{SUBJECT}/versions/latest": {"id": 1, "schema": record("of_prod"), "subject": SUBJECT},
    }
    with scripted_registry(responses) as url:
        given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "valueFormat": "avro", "schema.registry.url": url}
        columns = parse_source_options(given | {"valueSubject": SUBJECT}, "batch").typed_columns
        registry = registry_in(columns, columns.value)
        assert registry is not None and registry.context == ":.prod:"
        assert RegistryClient(registry).latest(SUBJECT) == (1, Schema(kind="AVRO", text=record("of_prod")))
        rows = pa.array([encode_frame(1, b"\x02"), encode_frame(2, b"\x02")])
        found = read_column(
            Avro(registry=registry), pa.struct([("of_prod", pa.int64()), ("of_default", pa.int64())]), rows
        )
        assert found.column.to_pylist()[0] == {"of_prod": 1, "of_default": None}
        assert list(found.reasons) == [1]
        default = registry_in(columns, columns.key)
        assert default is not None and default.context is None
        assert RegistryClient(default).by_id(1).text == record("of_default")
        # A read with a schema of one's own looks ids up there, too, and is not told that the subject has no effect.
        options = parse_source_options(given | {"valueSubject": SUBJECT, "valueSchema": record("of_prod")}, "batch")
        assert options.warnings == ()


def test_a_reference_without_a_context_is_of_that_of_the_schema_that_refers_to_it() -> None:
    reference = {"name": "Part", "subject": "part", "version": 1}
    of_other = {"name": "Other", "subject": ":.dev:other", "version": 2}
    part = json.dumps({"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]})
    other = json.dumps({"type": "enum", "name": "Other", "symbols": ["A"]})
    whole = json.dumps(
        {
            "type": "record",
            "name": "W",
            "fields": [{"name": "part", "type": "Part"}, {"name": "other", "type": "Other"}],
        }
    )
    responses = {
        f"/schemas/ids/7?subject={SUBJECT}": {"schema": whole, "references": [reference, of_other]},
        "/subjects/:.prod:part/versions/1": {"schema": part},
        "/subjects/part/versions/1": {"schema": part.replace('"n"', '"wrong"')},
        "/subjects/:.dev:other/versions/2": {"schema": other},
    }
    with scripted_registry(responses) as url:
        value_format = Avro(registry=Registry(url, subject=SUBJECT))
        column_type = pa.struct([("part", pa.struct([("n", pa.int32())])), ("other", pa.string())])
        found = read_column(value_format, column_type, pa.array([encode_frame(7, b"\x04\x00")]))
        assert found.column.to_pylist() == [{"part": {"n": 2}, "other": "A"}]


@pytest.mark.parametrize(
    ("subject", "context"),
    [(":.prod:a", ":.prod:"), (":.:a", None), ("a", None), (None, None), (":.a.b:x:y", ":.a.b:")],
)
def test_the_context_of_a_subject(subject: str | None, context: str | None) -> None:
    assert context_of(subject) == context


def test_a_deleted_version_that_a_schema_refers_to_is_read() -> None:
    """As Confluent's registry responds: 404 without ``deleted=true``."""
    part = json.dumps({"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]})
    responses = {
        "/schemas/ids/7": {
            "schema": json.dumps(["null", "Part"]),
            "references": [{"name": "Part", "subject": "part", "version": 1}],
        },
        "/subjects/part/versions/1?deleted=true": {"schema": part},
    }
    with scripted_registry(responses) as url:
        value_format = Avro(registry=Registry(url))
        rows = pa.array([encode_frame(7, b"\x02\x04")])
        found = read_column(value_format, pa.struct([("n", pa.int32())]), rows)
        assert found.column.to_pylist() == [{"n": 2}]
        del responses["/subjects/part/versions/1?deleted=true"]


def test_an_id_of_eight_bytes_is_named_as_apicurios() -> None:
    with scripted_registry({}) as url:
        rows = pa.array([b"\0" + (5).to_bytes(8, "big") + b"\x02"])
        found = read_column(Avro(registry=Registry(url)), pa.struct([("n", pa.int64())]), rows)
        assert "as Apicurio's serializers write it by default" in found.reasons[0]
        assert "apicurio.registry.as-confluent=true" in found.reasons[0]
    with pytest.raises(DecodeError):
        RegistryClient(Registry(url)).by_id(0)
