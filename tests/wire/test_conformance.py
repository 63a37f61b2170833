"""Our bytes against Kafka's own Java serializers, both ways, for every API at every version.

The messages are drawn from Kafka's schemas, not from our field tables. Seeds are fixed: a failure can be repeated.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from pykafka_wire.wire.errors import ProtocolError, WireError
from pykafka_wire.wire.protocol import messages
from pykafka_wire.wire.protocol.fields import Struct
from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.protocol.messages import group
from pykafka_wire.wire.protocol.messages.handshake import RequestHeader, ResponseHeader
from tests.conformance import generate, kafka

#: Of each (message, version): the default message, one with every field set, and random ones.
SAMPLES = 28

#: Where we refuse what Java takes, on purpose: it looks neither at a tagged field's declared size nor at the order of
#: tags, and reads a varint above 2**31 - 1 as a negative number, thus as null or none.
STRICTER_THAN_JAVA = re.compile(r"tagged field|exceeds 31 bits")

CLASSES: dict[str, type[Message]] = {
    "RequestHeader": RequestHeader,
    "ResponseHeader": ResponseHeader,
    "ConsumerProtocolSubscription": group.ConsumerProtocolSubscription,
    "ConsumerProtocolAssignment": group.ConsumerProtocolAssignment,
}
for _key in messages.APIS:
    _request = messages.api(_key)
    CLASSES[_request.__name__] = _request
    CLASSES[_request.response.__name__] = _request.response

Encode = Callable[[Message, int], bytes]


def encode(message: Message, version: int) -> bytes:
    return b"".join(message.encode(version))


@pytest.fixture(scope="module")
def oracle(java: None) -> Iterator[kafka.Oracle]:
    with kafka.Oracle() as running:
        yield running


def versions(schema: kafka.KafkaMessage) -> range:
    return range(schema.versions[0], schema.versions[1] + 1)


def trees(schema: kafka.KafkaMessage, version: int) -> Iterator[generate.Tree]:
    rng = random.Random(f"{schema.name} {version}")
    yield {}
    yield generate.Generator(rng, full=True).tree(schema.fields, version)
    for _ in range(SAMPLES - 2):
        yield generate.Generator(rng).tree(schema.fields, version)


def differences(oracle: kafka.Oracle, name: str, encode: Encode = encode) -> Iterator[str]:
    """What our bytes and Java's do not agree on, over all samples of all versions of a message, in both directions."""
    schema, cls = kafka.message(name), CLASSES[name]
    cases = [(version, tree) for version in versions(schema) for tree in trees(schema, version)]
    lines = [
        f"json {schema.java_class} {version} {generate.json_line(schema, version, tree)}" for version, tree in cases
    ]
    for (version, tree), line, response in zip(cases, lines, oracle.ask(lines), strict=True):
        ours = generate.to_struct(cls, schema.fields, tree)
        assert isinstance(ours, Message)
        theirs = response.split(" ")[0]
        if encode(ours, version).hex() != theirs:
            yield f"{line}\n  Java: {response}\n  ours: {encode(ours, version).hex()}"
        elif cls.decode(bytes.fromhex(theirs), version) != ours:
            yield f"{line}\n  decoded as {cls.decode(bytes.fromhex(theirs), version)}"


@pytest.mark.parametrize("name", CLASSES)
def test_bytes_are_those_of_javas_serializer_both_ways(oracle: kafka.Oracle, name: str) -> None:
    assert not list(differences(oracle, name))


def test_a_planted_one_byte_fault_is_found(oracle: kafka.Oracle) -> None:
    encoded = 0

    def faulty(message: Message, version: int) -> bytes:
        nonlocal encoded
        encoded += 1
        data = bytearray(encode(message, version))
        if encoded == 200:
            data[len(data) // 2] ^= 1
        return bytes(data)

    assert len(list(differences(oracle, "FetchResponse", faulty))) == 1


def test_there_are_ten_thousand_samples_and_every_field_is_seen_away_from_its_default() -> None:
    total = 0
    for name in CLASSES:
        schema = kafka.message(name)
        for version in versions(schema):
            total += SAMPLES
            _, full = islice(trees(schema, version), 2)
            assert not list(_left_at_default(schema.fields, version, full)), (name, version)
    print(
        f"\n{total:,} messages, {SAMPLES} of each of {total // SAMPLES} versions, every field seen away from its default"
    )
    assert SAMPLES >= 10
    assert total >= 10_000


def _left_at_default(
    fields: tuple[kafka.KafkaField, ...], version: int, tree: generate.Tree
) -> Iterator[kafka.KafkaField]:
    for field in fields:
        if field.in_version(version):
            value = tree.get(field.key)
            if value is None or generate.is_default(field, value):
                yield field
            elif field.type == "struct":
                for item in value if field.is_array else [value]:
                    yield from _left_at_default(field.fields, version, item)


@pytest.mark.parametrize("name", CLASSES)
def test_unknown_tagged_fields_come_through_java_and_back(oracle: kafka.Oracle, name: str) -> None:
    schema, cls = kafka.message(name), CLASSES[name]
    rng = random.Random(name)
    cases = []
    for version in versions(schema):
        if cls.is_flexible(version):
            for tree in islice(trees(schema, version), 6):
                message = _with_unknown_tags(rng, generate.to_struct(cls, schema.fields, tree))
                assert isinstance(message, Message)
                cases.append((version, tree, message))
    lines = [f"bytes {schema.java_class} {version} {encode(message, version).hex()}" for version, _, message in cases]
    for (version, tree, message), line, response in zip(cases, lines, oracle.ask(lines), strict=True):
        data, _, text = response.partition(" ")
        assert data == line.split(" ")[3], line
        assert cls.decode(bytes.fromhex(data), version) == message
        assert json.loads(text) == _as_java_prints(schema.fields, version, tree)


def _with_unknown_tags(rng: random.Random, message: Struct) -> Struct:
    """The message with tags that no version knows, in it and in the structures within."""
    values = {}
    for field in message.fields:
        value = getattr(message, field.name)
        if isinstance(value, list):
            value = [_with_unknown_tags(rng, item) if isinstance(item, Struct) else item for item in value]
        elif isinstance(value, Struct) and field.tag is None:  # a tagged one might no longer equal its default
            value = _with_unknown_tags(rng, value)
        values[field.name] = value
    tags = {
        tag: rng.randbytes(rng.choice((0, 1, 127, 128))) for tag in (100, 127, 128, 0x7FFFFFFE) if rng.random() < 0.4
    }
    return type(message)(**values, unknown_tags=tags)


def _as_java_prints(fields: tuple[kafka.KafkaField, ...], version: int, tree: generate.Tree) -> generate.Tree:
    """JSON as Java writes it: tagged fields only away from their default, records blank, fields of the version only."""
    shown: generate.Tree = {}
    for field in fields:
        if field.in_version(version):
            value = tree.get(field.key, generate.default(field))
            if field.tag is not None and generate.is_default(field, value):
                continue
            if field.type == "records":
                shown[field.key] = None if value is None else ""
            elif field.type == "struct" and isinstance(value, list):
                shown[field.key] = [_as_java_prints(field.fields, version, item) for item in value]
            elif field.type == "struct" and value is not None:
                shown[field.key] = _as_java_prints(field.fields, version, value)
            else:
                shown[field.key] = generate.to_json((field,), version, tree)[field.key]
    return shown


@pytest.mark.parametrize("name", CLASSES)
def test_both_sides_agree_on_which_malformed_bytes_to_refuse(oracle: kafka.Oracle, name: str) -> None:
    schema, cls = kafka.message(name), CLASSES[name]
    rng = random.Random(f"mutate {name}")
    cases = []
    for version in versions(schema):
        for tree in islice(trees(schema, version), 12):
            message = generate.to_struct(cls, schema.fields, tree)
            if cls.is_flexible(version) and rng.random() < 0.3:
                message = _with_unknown_tags(rng, message)
            assert isinstance(message, Message)
            data = encode(message, version)
            cases += [(version, generate.mutate(rng, data)) for _ in range(2)]
    lines = [f"bytes {schema.java_class} {version} {data.hex()}" for version, data in cases]
    for (version, data), line, response in zip(cases, lines, oracle.ask(lines), strict=True):
        try:
            decoded = cls.decode(data, version)
        except ProtocolError as error:
            assert response.startswith("!") or STRICTER_THAN_JAVA.search(error.message), f"{line}\n{error}\n{response}"
        else:
            assert not response.startswith("!"), f"{line}\nours: {decoded}\nJava: {response}"
            if not _has_map_keys(schema.fields):  # Java drops a second entry with the same key
                assert encode(decoded, version).hex() == response.split(" ")[0], line


def _has_map_keys(fields: tuple[kafka.KafkaField, ...]) -> bool:
    return any(field.map_key or _has_map_keys(field.fields) for field in fields)


@pytest.mark.parametrize("name", CLASSES)
def test_both_sides_agree_on_fields_that_a_version_lacks(oracle: kafka.Oracle, name: str) -> None:
    """Ignored where ignorable, refused otherwise; also null where a version does not allow it."""
    schema, cls = kafka.message(name), CLASSES[name]
    rng = random.Random(f"absent {name}")
    cases = []
    for version in versions(schema):
        for field in schema.fields:
            if not field.in_version(version):
                value = generate.Generator(rng, full=True).tree((field,), field.since)
                cases.append((version, value))
            elif field.nullable_since is not None and not field.nullable_in(version):
                cases.append((version, {field.key: None}))
    lines = [
        f"json {schema.java_class} {version} {generate.json_line(schema, version, tree)}" for version, tree in cases
    ]
    for (version, tree), line, response in zip(cases, lines, oracle.ask(lines), strict=True):
        message = generate.to_struct(cls, schema.fields, tree)
        assert isinstance(message, Message)
        if "Can't read version" in response:  # Java's JSON form has no place for a structure that the version lacks
            continue
        try:
            ours = encode(message, version).hex()
        except WireError:
            ours = "!"
        assert ours == response.split(" ")[0], f"{line}\n{response}"
