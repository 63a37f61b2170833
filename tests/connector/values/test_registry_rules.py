"""Rules of data contracts: what Confluent's serializers would encrypt, check or change is not written, nor read as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleContext, RuleExecutor
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Decoded, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.client import Registry
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.schemas import WriterSchema
from tests.connector.values.scripted_registry import scripted_registry

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "name", "type": "string"}]})
TYPE = pa.struct([("name", pa.string())])
ANNA = b"\x08anna"


@pytest.fixture
def responses() -> dict[str, Any]:
    return {}


@pytest.fixture
def registry(responses: dict[str, Any]) -> Iterator[Registry]:
    with scripted_registry(responses) as url:
        yield Registry(url)


def put(responses: dict[str, Any], number: int, rules: dict[str, Any], schema: str = ORDER, kind: str = "AVRO") -> None:
    found = {"id": number, "version": number, "subject": "s", "schema": schema, "schemaType": kind, "ruleSet": rules}
    responses[f"/schemas/ids/{number}"] = responses["/subjects/s/versions/latest"] = found


def rule(mode: str, kind: str = "ENCRYPT", **more: Any) -> dict[str, Any]:
    return {"name": "hideNames", "kind": "TRANSFORM", "type": kind, "mode": mode, **more}


def read(value_format: Any, *rows: bytes) -> Decoded:
    return read_column(value_format, TYPE, pa.array(rows, pa.binary()))


@pytest.mark.parametrize("mode", ["WRITE", "WRITEREAD"])
def test_a_subject_with_rules_is_not_written(registry: Registry, responses: dict[str, Any], mode: str) -> None:
    put(responses, 1, {"domainRules": [rule(mode)]})
    with pytest.raises(SchemaError, match=rf"subject s has the rule hideNames \(ENCRYPT, {mode}\)"):
        WriterSchema.of(registry, "AVRO", "s", None)
    put(responses, 2, {"encodingRules": [rule(mode, "ENCRYPT_PAYLOAD")]})
    with pytest.raises(SchemaError, match=r"\(ENCRYPT_PAYLOAD, "):
        WriterSchema.of(registry, "AVRO", "s", None)


@pytest.mark.parametrize(("mode", "is_read"), [("READ", False), ("WRITEREAD", False), ("WRITE", True)])
def test_values_under_rules_have_a_reason(
    registry: Registry, responses: dict[str, Any], mode: str, is_read: bool
) -> None:
    put(responses, 1, {"domainRules": [rule(mode)]})
    put(responses, 2, {})
    found = read(Avro(registry=registry), encode_frame(1, ANNA), encode_frame(2, ANNA))
    assert found.column.to_pylist() == [{"name": "anna"} if is_read else None, {"name": "anna"}]
    assert list(found.reasons) == ([] if is_read else [0])
    assert is_read or f"has the rule hideNames (ENCRYPT, {mode}), which is not applied here" in found.reasons[0]


def test_a_rule_that_is_disabled_or_of_other_values_has_no_effect(
    registry: Registry, responses: dict[str, Any]
) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD", disabled=True)], "migrationRules": None})
    assert WriterSchema.of(registry, "AVRO", "s", None).schema_id == 1
    assert read(Avro(registry=registry), encode_frame(1, ANNA)).reasons == {}


def test_only_values_of_other_versions_have_to_pass_migrations(registry: Registry, responses: dict[str, Any]) -> None:
    newer = ORDER.replace('"name": "Order"', '"name": "Order", "doc": "2"')
    put(responses, 1, {})
    put(responses, 2, {"migrationRules": [rule("UPGRADE", "JSONATA")]}, newer)
    reader = Avro(registry=registry, reader_schema=registry.by_id(2))
    found = read(reader, encode_frame(1, ANNA), encode_frame(2, ANNA))
    assert (list(found.reasons), found.column[1].as_py()) == ([0], {"name": "anna"})
    assert "(JSONATA, UPGRADE)" in found.reasons[0]


def test_json_whose_type_is_the_registrys_is_looked_at_by_its_frame(
    registry: Registry, responses: dict[str, Any]
) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]}, "{}", "JSON")
    put(responses, 2, {}, "{}", "JSON")
    text = b'{"name": "anna"}'
    found = read(Json(registry=registry), encode_frame(1, text), encode_frame(2, text), text)
    assert found.column.to_pylist() == [None, {"name": "anna"}, {"name": "anna"}]
    assert "(ENCRYPT, WRITEREAD)" in found.reasons[0]


def test_confluents_serializer_applies_what_is_refused_here(registry: Registry, responses: dict[str, Any]) -> None:
    """The judge of what a rule set looks like: Confluent's own client changes the value by the same response of the registry."""

    class Hide(RuleExecutor):
        def type(self) -> str:
            return "ENCRYPT"

        def transform(self, ctx: RuleContext, message: Any) -> Any:
            return {"name": "xxxx"}

    put(responses, 1, {"domainRules": [rule("WRITEREAD")]})
    rules = RuleRegistry()
    rules.register_executor(Hide())
    conf = {"auto.register.schemas": False, "use.latest.version": True, "subject.name.strategy": lambda *_: "s"}
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), ORDER, conf=conf, rule_registry=rules)
    value = bytes(serializer({"name": "anna"}, SerializationContext("t", MessageField.VALUE)))
    assert value == encode_frame(1, b"\x08xxxx")
    assert list(read(Avro(registry=registry), value).reasons) == [0]
