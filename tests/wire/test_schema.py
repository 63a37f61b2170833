"""The declarations: as Python objects, and against Kafka's own schemas out of the kafka-clients jar."""

from __future__ import annotations

import pickle
import types
import typing
import uuid
from collections.abc import Iterator

import pytest

from pykafka_wire.wire.protocol import messages
from pykafka_wire.wire.protocol.fields import Field, Struct
from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.protocol.messages import group
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from pykafka_wire.wire.protocol.messages.handshake import (
    RequestHeader,
    ResponseHeader,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceData
from pykafka_wire.wire.topic_partitions import ZERO_UUID
from tests.conformance import kafka

CLASSES: dict[str, type[Message]] = {
    cls.__name__: cls for key in messages.APIS for cls in (messages.api(key), messages.api(key).response)
} | {
    cls.__name__: cls
    for cls in (
        RequestHeader,
        ResponseHeader,
        group.ConsumerProtocolSubscription,
        group.ConsumerProtocolAssignment,
    )
}

#: Every API of the project's table.
API_KEYS = (
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 28),
    *(32, 36, 37, 44, 61, 65, 66, 68, 69),
)


def test_every_api_is_declared() -> None:
    assert tuple(messages.APIS) == API_KEYS


@pytest.mark.parametrize("name", CLASSES)
def test_declarations_are_those_of_kafkas_schemas(name: str) -> None:
    schema, cls = kafka.message(name), CLASSES[name]
    assert cls.versions == schema.versions
    # A first flexible version above all versions would be none; Kafka has no such message here.
    assert cls.flexible == schema.flexible
    assert getattr(cls, "api_key", schema.api_key) == schema.api_key
    compare(cls, schema.fields, schema.versions, name)


def compare(cls: type[Struct], theirs: tuple[kafka.KafkaField, ...], bounds: tuple[int, int], path: str) -> None:
    assert [field.name for field in cls.fields] == [field.attribute for field in theirs], path
    for ours, field in zip(cls.fields, theirs, strict=True):
        where = f"{path}.{field.attribute}"
        in_bounds = range(bounds[0], bounds[1] + 1)
        for version in in_bounds:
            assert ours.in_version(version) == field.in_version(version), f"{where} in version {version}"
            if field.in_version(version):
                assert ours.nullable_in(version) == field.nullable_in(version), f"{where} null in version {version}"
        assert ours.tag == field.tag, where
        assert ours.ignorable == field.ignorable, where
        assert default(ours) == kafka_default(field), where
        one = ours
        if field.is_array:
            assert ours.kind == "array", where
            if isinstance(ours.item, Field):
                one = ours.item
        if field.type == "struct":
            assert isinstance(ours.item, type) and issubclass(ours.item, Struct), where
            assert field.is_array or ours.kind == "struct", where
            compare(ours.item, field.fields, (field.since, field.until), where)
        else:
            assert one.kind == field.type, where


def default(field: Field) -> object:
    value = field.new_default()
    return "a structure of defaults" if isinstance(value, Struct) else value


def kafka_default(field: kafka.KafkaField) -> object:
    if field.default == "null" or field.type == "records":
        return None
    if field.is_array:
        return []
    text = field.default or ""
    if field.type.startswith("int"):
        return int(text or "0", 0)
    return {
        "struct": "a structure of defaults",
        "bool": text == "true",
        "string": text,
        "bytes": text.encode(),
        "uuid": ZERO_UUID,
    }[field.type]


def structures(cls: type[Struct]) -> Iterator[type[Struct]]:
    yield cls
    for field in cls.fields:
        if isinstance(field.item, type):
            yield from structures(typing.cast("type[Struct]", field.item))


@pytest.mark.parametrize("name", CLASSES)
def test_annotations_say_what_the_field_table_says(name: str) -> None:
    """A type checker reads the one, the codec the other."""
    for cls in structures(CLASSES[name]):
        hints = {key: hint for key, hint in typing.get_type_hints(cls).items() if key in cls.__annotations__}
        hints = {key: hint for key, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar}
        assert list(hints) == [field.name for field in cls.fields]
        for field in cls.fields:
            assert hints[field.name] == annotation(field, cls), f"{cls.__name__}.{field.name}"


def annotation(field: Field, cls: type[Struct]) -> object:
    plain: dict[str, object] = {"bool": bool, "string": str, "bytes": bytes, "uuid": uuid.UUID, "records": memoryview}
    if field.kind == "records" and cls is PartitionProduceData:
        return bytes | bytearray | memoryview | None
    if field.kind == "array":
        item = field.item
        result = types.GenericAlias(list, (annotation(item, cls) if isinstance(item, Field) else item,))
    else:
        result = field.item if field.kind == "struct" else plain.get(field.kind, int)
    return typing.Optional[result] if field.nullable_since is not None else result  # noqa: UP045 (a computed type)


def test_the_constructor_takes_known_keywords_only() -> None:
    assert MetadataRequest(allow_auto_topic_creation=False).allow_auto_topic_creation is False
    with pytest.raises(TypeError, match="MetadataRequest has no field topic, partition"):
        MetadataRequest(topic="x", partition=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest(None)  # type: ignore[call-arg, arg-type]


def test_messages_are_immutable_and_share_no_defaults() -> None:
    request = MetadataRequest()
    with pytest.raises(AttributeError, match="MetadataRequest is immutable, topics cannot be set"):
        request.topics = None  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del request.topics
    with pytest.raises(AttributeError):
        request.bogus = 1  # type: ignore[attr-defined]
    assert request.topics is not MetadataRequest().topics


def test_messages_compare_by_class_and_value() -> None:
    one = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert one == MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert one != MetadataRequest(topics=[MetadataRequestTopic(name="b")])
    assert one != MetadataRequest(topics=one.topics, unknown_tags={1: b""})
    assert one != MetadataResponse()
    assert SaslAuthenticateRequest(auth_bytes=b"") != SaslAuthenticateResponse(auth_bytes=b"")
    with pytest.raises(TypeError):
        hash(one)


def test_messages_can_be_pickled() -> None:
    one = MetadataRequest(topics=[MetadataRequestTopic(name="a")], unknown_tags={1: b"x"})
    assert pickle.loads(pickle.dumps(one)) == one


def test_repr_shows_no_secret_and_no_payload() -> None:
    assert (
        repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")) == "SaslAuthenticateRequest(auth_bytes=<hidden>)"
    )
    assert "proof" not in repr(SaslAuthenticateResponse(auth_bytes=b"v=proof"))
    assert "records=<7 bytes>" in repr(PartitionData(records=memoryview(b"payload")))
    assert "records=<9 bytes>" in repr(PartitionProduceData(records=b"payloads!"))
    assert repr(MetadataRequestTopic(name="a", unknown_tags={1: b"x"})) == (
        f"MetadataRequestTopic(topic_id={ZERO_UUID!r}, name='a', unknown_tags={{1: b'x'}})"
    )


def test_a_request_knows_its_api_and_response() -> None:
    assert (FetchRequest.name, FetchRequest.api_key, FetchRequest.response) == ("Fetch", 1, FetchResponse)
    assert (FetchResponse.name, FetchResponse.versions, FetchResponse.flexible) == ("Fetch", (4, 18), 12)
    assert not FetchRequest.is_flexible(11)
    assert FetchRequest.is_flexible(12)
