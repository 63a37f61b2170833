"""Rules of data contracts: what Confluent's serializers would encrypt, check or change is not written, nor read as it is."""

from __future__ import annotations

import codecs
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import (
    FieldContext,
    FieldRuleExecutor,
    RuleConditionError,
    RuleContext,
    RuleExecutor,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.errors import OptionError, RegistryError, SchemaError
from pykafka_wire.options.typed_columns import TypedColumn
from pykafka_wire.sink.written_schema import WantedSchema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.writing import encode
from pykafka_wire.values.converter import Decoded, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
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
    reader = Avro(registry=registry, reader_schema=RegistryClient(registry).by_id(2))
    found = read(reader, encode_frame(1, ANNA), encode_frame(2, ANNA))
    assert (list(found.reasons), found.column[1].as_py()) == ([0], {"name": "anna"})
    assert "(JSONATA, UPGRADE)" in found.reasons[0]


def test_values_of_another_version_of_a_reference_have_to_pass_migrations(
    registry: Registry, responses: dict[str, Any]
) -> None:
    inner = ORDER.replace('"Order"', '"Name"')
    whole = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "row", "type": "Name"}]})
    for number in (1, 2):
        put(responses, number, {"migrationRules": [rule("UPGRADE", "JSONATA")]} if number == 2 else {}, whole)
        reference = {"name": "Name", "subject": "name", "version": number}
        responses[f"/schemas/ids/{number}"]["references"] = [reference]
        responses[f"/subjects/name/versions/{number}"] = {"schema": inner}
    reader = Avro(registry=registry, reader_schema=RegistryClient(registry).by_id(2))
    rows = pa.array([encode_frame(1, ANNA), encode_frame(2, ANNA)], pa.binary())
    found = read_column(reader, pa.struct([("row", TYPE)]), rows)
    assert (list(found.reasons), found.column[1].as_py()) == ([0], {"row": {"name": "anna"}})
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


class Rot13(FieldRuleExecutor):
    """In place of a cipher: an executor that changes each text field, and back."""

    def type(self) -> str:
        return "ENCRYPT"

    def new_transform(self, ctx: RuleContext) -> Any:
        def change(ctx: RuleContext, field: FieldContext, value: Any) -> Any:
            return codecs.encode(value, "rot13") if isinstance(value, str) else value

        return change


class Short(RuleExecutor):
    """A check, as CEL's is."""

    def type(self) -> str:
        return "CEL"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        if isinstance(message, dict) and len(message["name"]) > 8:
            raise RuleConditionError(ctx.rule)
        return message


class NoKeys(Short):
    """What an executor does whose service of keys does not respond."""

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        raise ConnectionError("refused")


def executors(*kinds: type) -> tuple[str, ...]:
    return tuple(f"{__name__}:{kind.__name__}" for kind in kinds)


def by_rules(registry: Registry, *kinds: type) -> Registry:
    return replace(registry, rule_executors=executors(*kinds))


def theirs(registry: Registry, value: Any, schema: str, *, is_json: bool = False) -> bytes:
    """A value as Confluent's own serializer writes it, with the same executor."""
    rules = RuleRegistry()
    rules.register_executor(Rot13())
    conf = {"auto.register.schemas": False, "use.latest.version": True, "subject.name.strategy": lambda *_: "s"}
    client = SchemaRegistryClient({"url": registry.url})
    serializer: Any = (
        JSONSerializer(schema, client, conf=conf, rule_registry=rules)
        if is_json
        else AvroSerializer(client, schema, conf=conf, rule_registry=rules)
    )
    return bytes(serializer(value, SerializationContext("t", MessageField.VALUE)))


def test_confluents_executors_change_values_back_when_they_are_read(
    registry: Registry, responses: dict[str, Any]
) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]})
    responses["/schemas/ids/1/subjects"] = ["s"]
    value = theirs(registry, {"name": "anna"}, ORDER)
    assert value == encode_frame(1, b"\x08naan")
    found = read(Avro(registry=by_rules(registry, Rot13)), value, encode_frame(1, b"\x08na"), value)
    assert found.column.to_pylist() == [{"name": "anna"}, None, {"name": "anna"}]
    assert found.reasons == {1: "the rules of subject s cannot be applied to it (EOFError)"}


def test_values_of_json_are_changed_back_with_every_digit(registry: Registry, responses: dict[str, Any]) -> None:
    document = json.dumps({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "number"}}})
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]}, document, "JSON")
    responses["/schemas/ids/1/subjects"] = ["s"]
    value = theirs(registry, {"name": "anna", "n": 1.5}, document, is_json=True).replace(
        b"1.5", b"12345678901234567890.50"
    )
    column_type = pa.struct([("name", pa.string()), ("n", pa.decimal128(38, 2))])
    found = read_column(Json(registry=by_rules(registry, Rot13)), column_type, pa.array([value], pa.binary()))
    assert found.column.to_pylist() == [{"name": "anna", "n": Decimal("12345678901234567890.50")}]


def test_confluents_executors_change_what_is_written(registry: Registry, responses: dict[str, Any]) -> None:
    put(
        responses,
        1,
        {"domainRules": [rule("WRITEREAD"), rule("WRITE", "CEL", doc="at most 8 letters")]},
    )
    own = by_rules(registry, Rot13, Short)
    writer = pickle.loads(pickle.dumps(wanted(own).look_up()))
    rows = pa.array([{"name": "anna"}, None, {"name": "bob"}], TYPE)
    assert encode(writer, rows).column.to_pylist() == [encode_frame(1, b"\x08naan"), None, encode_frame(1, b"\x06obo")]
    broken = encode(writer, pa.array([{"name": "annabella"}, {"name": "anna"}], TYPE))
    assert broken.reasons == {
        0: "the rules of subject s cannot be applied to it (SerializationError from RuleConditionError: at most 8 letters)"
    }
    with pytest.raises(SchemaError, match=r"\(CEL, WRITE\)"):  # one of them alone is not enough
        wanted(by_rules(registry, Rot13)).look_up()


def wanted(registry: Registry, *, topic: str = "s", format_: Any = "avro") -> WantedSchema:
    column = TypedColumn(name="value", format=format_, subject="s" if format_ == "avro" else None)
    return WantedSchema(column=column, type=TYPE, registry=registry, topic=topic, auto_register=False)


def test_an_executor_that_cannot_work_now_ends_the_query(registry: Registry, responses: dict[str, Any]) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD", "CEL")]})
    responses["/schemas/ids/1/subjects"] = ["s"]
    own = by_rules(registry, NoKeys)
    with pytest.raises(RegistryError, match=r"rules of subject s cannot be applied \(.*ConnectionError\)"):
        read(Avro(registry=own), encode_frame(1, ANNA))
    with pytest.raises(RegistryError, match="rules of subject s"):
        encode(wanted(own).look_up(), pa.array([{"name": "anna"}], TYPE))


def test_rules_are_applied_for_one_subject_alone(registry: Registry, responses: dict[str, Any]) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]})
    responses["/schemas/ids/1/subjects"] = ["s", "t"]
    found = read(Avro(registry=by_rules(registry, Rot13)), encode_frame(1, ANNA))
    assert "2 subjects have it" in found.reasons[0]


def test_what_is_no_executor_is_named(registry: Registry, responses: dict[str, Any]) -> None:
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]})
    for name in ("no.such.module:Thing", "json:NoSuchClass", "json"):
        with pytest.raises(OptionError, match=f"rule.executors names '{name}', which cannot be used"):
            wanted(replace(registry, rule_executors=(name,))).look_up()


def test_json_without_a_frame_is_not_written_to_a_subject_with_rules(
    registry: Registry, responses: dict[str, Any]
) -> None:
    assert encode(wanted(registry, format_="json").look_up(), pa.array([{"name": "anna"}], TYPE)).column.to_pylist()
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]}, "{}", "JSON")
    responses["/subjects/s-value/versions/latest"] = responses["/subjects/s/versions/latest"]
    with pytest.raises(SchemaError, match="subject s-value has the rule hideNames"):
        wanted(registry, format_="json").look_up()


def test_rules_reach_records_within_unions(registry: Registry, responses: dict[str, Any]) -> None:
    one, other = (
        {"type": "record", "name": name, "namespace": "n", "fields": [{"name": "x", "type": ["null", "string"]}]}
        for name in ("One", "Other")
    )
    fields = [
        {"name": "both", "type": ["null", one, other]},
        {"name": "list", "type": {"type": "array", "items": ["null", "n.One"]}},
    ]
    schema = json.dumps({"type": "record", "name": "Order", "namespace": "m", "fields": fields})
    put(responses, 1, {"domainRules": [rule("WRITEREAD")]}, schema)
    responses["/schemas/ids/1/subjects"] = ["s"]
    own = by_rules(registry, Rot13)
    inner = pa.struct([("x", pa.string())])
    column_type = pa.struct(
        [("both", pa.struct([("member0", inner), ("member1", inner)])), ("list", pa.list_(pa.field("element", inner)))]
    )
    value = {"both": {"member0": None, "member1": {"x": "anna"}}, "list": [{"x": "anna"}, None]}
    rows = pa.array([value], column_type)
    written = encode(replace(wanted(own), type=column_type).look_up(), rows).column
    assert written[0].as_py().count(b"naan") == 2 and b"anna" not in written[0].as_py()
    found = read_column(Avro(registry=own, reader_schema=schema), column_type, written)
    assert (found.column.to_pylist(), found.reasons) == ([value], {})
