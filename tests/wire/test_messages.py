"""Frames and every declared message: headers, the way from an API key to its class, round trips, malformed bytes."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.connection.state_machine import decode_response, encode_request
from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import messages
from pykafka_wire.wire.protocol.fields import Field, Struct
from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pykafka_wire.wire.protocol.messages.group import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from pykafka_wire.wire.protocol.messages.handshake import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslHandshakeRequest,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CLASSES = [cls for key in messages.APIS for cls in (messages.api(key), messages.api(key).response)]


# --- frames -----------------------------------------------------------------------------------------------------------


def test_a_request_frame_is_length_header_and_body() -> None:
    (frame,) = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 7, "me")
    assert bytes(frame).hex(" ") == (
        "00 00 00 13 00 11 00 01 00 00 00 07 00 02 6d 65 00 05 50 4c 41 49 4e"  # header version 1: no tags
    )


def test_a_flexible_request_has_a_header_with_tags_and_an_int16_client_id() -> None:
    (frame,) = encode_request(MetadataRequest(topics=None), 9, 7, "me")
    assert bytes(frame).hex(" ") == (
        "00 00 00 12 00 03 00 09 00 00 00 07 00 02 6d 65 00 "  # header version 2, no tags
        "00 01 00 00 00"
    )


def test_a_client_id_may_be_null() -> None:
    (frame,) = encode_request(SaslHandshakeRequest(), 1, 7, None)
    assert bytes(frame)[12:14] == b"\xff\xff"


def test_record_batches_of_a_request_are_segments_of_their_own() -> None:
    batch = bytearray(b"batch")
    partitions = [
        PartitionProduceData(index=0, records=batch),
        PartitionProduceData(index=1, records=b"other"),
    ]
    segments = encode_request(
        ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)]), 9, 1, "c"
    )
    assert [bytes(segment) for segment in segments if isinstance(segment, memoryview)] == [b"batch", b"other"]
    whole = b"".join(segments)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4


@pytest.mark.parametrize(
    ("version", "header"), [(0, "00 00 00 07"), (8, "00 00 00 07"), (9, "00 00 00 07 00"), (13, "00 00 00 07 00")]
)
def test_a_response_header_has_tags_in_flexible_versions(version: int, header: str) -> None:
    body = MetadataResponse(cluster_id="c" if version > 1 else None)
    frame = bytes.fromhex(header) + b"".join(body.encode(version))
    assert decode_response(MetadataRequest, version, memoryview(frame)) == (7, body)


@pytest.mark.parametrize("version", range(5))
def test_the_response_header_of_api_versions_never_has_tags(version: int) -> None:
    body = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = b"\0\0\0\x07" + b"".join(body.encode(version))
    assert decode_response(ApiVersionsRequest, version, frame) == (7, body)


def test_a_response_with_bytes_left_over_or_too_few_names_its_api() -> None:
    frame = b"\0\0\0\x07\0" + b"".join(MetadataResponse().encode(9))
    with pytest.raises(ProtocolError, match=r"MetadataResponse ends at byte \d+ of \d+ \[Metadata v9\]"):
        decode_response(MetadataRequest, 9, frame + b"\x01")
    with pytest.raises(ProtocolError, match=r"MetadataResponse ends at byte \d+ of \d+ \[Metadata v9\]"):
        decode_response(MetadataRequest, 9, frame + b"\0\0")
    with pytest.raises(ProtocolError, match=r"MetadataResponse ends at byte \d+ of \d+ \[Metadata v8\]"):
        decode_response(MetadataRequest, 8, b"\0\0\0\x07" + b"".join(MetadataResponse().encode(8)) + b"\0")
    with pytest.raises(ProtocolError, match=r"\[Metadata v9\]"):
        decode_response(MetadataRequest, 9, frame[:-1])
    with pytest.raises(ProtocolError, match="is incomplete"):
        decode_response(MetadataRequest, 9, b"\0\0")


def test_a_second_tag_section_as_librdkafkas_mock_brokers_write_it_is_accepted() -> None:
    frame = b"\0\0\0\x07\0" + b"".join(MetadataResponse().encode(9)) + b"\0"
    assert decode_response(MetadataRequest, 9, frame) == (7, MetadataResponse())


def test_records_of_a_response_are_views_of_its_frame() -> None:
    body = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=memoryview(b"batch"))])]
    )
    frame = bytearray(b"\0\0\0\x07\0" + b"".join(body.encode(12)))
    _, response = decode_response(FetchRequest, 12, memoryview(frame))
    records = response.responses[0].partitions[0].records
    at = frame.index(b"batch")
    frame[at : at + 5] = b"BATCH"
    assert records == b"BATCH"


def test_decoding_a_fetch_response_copies_no_records() -> None:
    size = 64 << 20
    body = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(records=memoryview(bytes(size)))])]
    )
    frame = memoryview(b"".join((b"\0\0\0\x07\0", *body.encode(13))))
    tracemalloc.start()
    try:
        _, response = decode_response(FetchRequest, 13, frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert records.nbytes == size
    assert peak < 1 << 20


def test_api_finds_the_request_class_of_every_key() -> None:
    for key, (_, name) in messages.APIS.items():
        request = messages.api(key)
        assert (request.api_key, request.name, request.__name__) == (key, name, f"{name}Request")
        assert request.response.__name__ == f"{name}Response"
        assert request.response.versions == request.versions
    with pytest.raises(UnsupportedVersionError, match="API key 4242"):
        messages.api(4242)


def test_importing_one_family_imports_no_other() -> None:
    """But for the structures that two of them share."""
    script = (
        "import sys, pykafka_wire.wire.protocol.messages.fetch; "
        "print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('pykafka_wire.wire.protocol.messages.')))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "['fetch', 'leader_hints']\n"


# --- every message ----------------------------------------------------------------------------------------------------

RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def values(field: Field, version: int) -> st.SearchStrategy[object]:
    """Values that the field can hold in a version."""
    if not field.in_version(version):
        return st.builds(field.new_default)
    strategy: st.SearchStrategy[object]
    if field.kind == "array":
        item = values(field.item, version) if isinstance(field.item, Field) else structs(field.item, version)  # type: ignore[arg-type]
        strategy = st.lists(item, max_size=3)
    elif field.kind == "struct":
        strategy = structs(field.item, version)  # type: ignore[arg-type]
    elif field.kind in RANGES:
        strategy = st.integers(-(1 << RANGES[field.kind]), (1 << RANGES[field.kind]) - 1)
    else:
        strategy = {
            "bool": st.booleans(),
            "string": st.text(max_size=140),
            "bytes": st.binary(max_size=140),
            "records": st.binary(max_size=140).map(memoryview),
            "uuid": st.builds(uuid.UUID, int=st.integers(0, 2**128 - 1)),
        }[field.kind]
    return st.none() | strategy if field.nullable_in(version) else strategy


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Struct]:
    return st.builds(cls, **{field.name: values(field, version) for field in cls.fields})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decoding_gives_back_what_was_encoded(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.integers(*cls.versions))
    message = data.draw(structs(cls, version))
    assert isinstance(message, Message)
    assert cls.decode(b"".join(message.encode(version)), version) == message


def sample(cls: type[Struct], version: int, rng: random.Random) -> Struct:
    """A message with something in every field of the version."""

    def value(field: Field) -> object:
        if isinstance(field.item, type):
            one: object = sample(field.item, version, rng)  # type: ignore[arg-type]
        elif field.item is not None:
            one = value(field.item)
        else:
            one = {
                "bool": True,
                "string": "név",
                "bytes": b"b",
                "records": b"rec",
                "uuid": uuid.UUID(int=rng.getrandbits(128)),
            }.get(field.kind, rng.randrange(128))
        return [one] if field.kind == "array" else one

    return cls(**{field.name: value(field) for field in cls.fields if field.in_version(version)})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_truncation_of_every_version_is_refused(cls: type[Message]) -> None:
    for version in range(cls.versions[0], cls.versions[1] + 1):
        message = sample(cls, version, random.Random(version))
        assert isinstance(message, Message)
        data = b"".join(message.encode(version))
        assert cls.decode(data, version) == message
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                cls.decode(memoryview(data)[:end], version)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_mutated_bytes_decode_or_raise_protocol_error_and_nothing_else(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in range(cls.versions[0], cls.versions[1] + 1):
        message = sample(cls, version, rng)
        assert isinstance(message, Message)
        data = b"".join(message.encode(version))
        for _ in range(60):
            mutated = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                if mutated:
                    mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            try:
                decoded = cls.decode(mutated, version)
            except ProtocolError as error:
                assert (error.api, error.version) == (cls.name, version)
            else:
                decoded.encode(version)  # what can be read can be written


# --- the consumer protocol inside JoinGroup and SyncGroup -----------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_stands_behind_its_version(version: int) -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")
    data = encode_versioned(subscription, version)
    assert data[:2] == bytes((0, version))
    assert decode_versioned(ConsumerProtocolSubscription, data) == subscription


def test_a_newer_assignment_is_read_as_the_newest_known() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopicPartitions(topic="a", partitions=[1])])
    data = b"\x00\x09" + encode_versioned(assignment, 3)[2:] + b"a field of version 9"
    assert decode_versioned(ConsumerProtocolAssignment, memoryview(data)) == assignment


def test_what_follows_the_last_field_is_left() -> None:
    """As by Java's reader."""
    assert decode_versioned(
        ConsumerProtocolAssignment, b"\0\0\0\0\0\0\xff\xff\xff\xff\0"
    ) == ConsumerProtocolAssignment(assigned_partitions=[])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0", b"\0\0\0\0\0\1\0\1a"])
def test_a_malformed_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolAssignment, data)
