"""The rules of one connection, on bytes alone: no socket, no clock."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

import pytest

from pykafka_wire.wire.connection.state_machine import (
    MAX_FRAME_BYTES,
    MAX_HANDSHAKE_FRAME_BYTES,
    Received,
    Sent,
    State,
    StateMachine,
)
from pykafka_wire.wire.errors import (
    AuthenticationError,
    BrokerError,
    CorrelationError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from pykafka_wire.wire.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pykafka_wire.wire.protocol.messages.handshake import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.protocol.messages.produce import ProduceRequest
from pykafka_wire.wire.security.token import SaslMechanism
from tests.wire.fake_broker import VERSIONS, frame_of, versions_response


class Tokens:
    """A mechanism that sends given tokens and keeps what it gets."""

    name = "TOKENS"

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = tokens
        self.got: list[bytes] = []

    def exchange(self) -> Generator[bytes, bytes, None]:
        for token in self.tokens:
            self.got.append((yield token))


def opened(mechanism: SaslMechanism | None = None, **more: Any) -> StateMachine:
    return StateMachine(client_id="me", software_version="1", mechanism=mechanism, **more)


def feed(connection: StateMachine, data: bytes, step: int = 1 << 20) -> list[Received]:
    """What comes out when `data` comes in, at most `step` bytes at a time."""
    out = []
    while data:
        room = connection.buffer()
        n_bytes = min(len(room), len(data), step)
        room[:n_bytes] = data[:n_bytes]
        data = data[n_bytes:]
        received = connection.received(n_bytes)
        if received is not None:
            out.append(received)
    return out


def sent_frame(connection: StateMachine) -> bytes:
    return b"".join(map(bytes, connection.outgoing()))


def respond(connection: StateMachine, response: Message, *, version: int | None = None, step: int = 1 << 20) -> None:
    """Respond to the handshake request that was just sent."""
    (sent,) = (event for event in connection.handshake_log() if isinstance(event, Sent))
    request = type(sent.request)
    frame = frame_of(request, sent.version if version is None else version, sent.correlation_id, response)
    assert feed(connection, frame, step) == []


def ready(**more: Any) -> StateMachine:
    connection = opened(**more)
    connection.outgoing()
    respond(connection, versions_response())
    assert connection.state is State.READY
    return connection


def frame(sent: Sent, response: Message) -> bytes:
    return frame_of(type(sent.request), sent.version, sent.correlation_id, response)


def test_a_connection_opens_with_api_versions_in_our_highest_version() -> None:
    connection = opened()
    size, key, version, correlation_id = struct.unpack_from(">ihhi", head := sent_frame(connection))
    assert (size, key, version, correlation_id) == (len(head) - 4, 18, 5, 0)
    assert connection.state is State.OPENING


def test_versions_are_negotiated_and_unknown_apis_passed_over() -> None:
    connection = opened()
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2)]
    respond(connection, versions_response({**VERSIONS, 3: (5, 99), 9999: (0, 1)}, finalized_features=features))
    assert connection.state is State.READY
    assert connection.api_versions[3] == (5, MetadataRequest.versions[1])
    assert connection.broker_versions[9999] == (0, 1)
    assert connection.finalized_features == {"transaction.version": 2}
    assert connection.supports(MetadataRequest, 5)
    assert not connection.supports(MetadataRequest, 4)
    assert connection.version_of(MetadataRequest, cap=7) == 7


def test_an_older_broker_is_asked_again_in_the_version_that_it_declares() -> None:
    connection = opened()
    respond(connection, versions_response({18: (0, 3)}, error_code=35), version=0)
    (again,) = (event for event in connection.handshake_log() if isinstance(event, Sent))
    assert (type(again.request), again.version) == (ApiVersionsRequest, 3)


def test_a_broker_that_declares_nothing_is_asked_again_in_version_zero() -> None:
    connection = opened()
    respond(connection, versions_response({}, error_code=35), version=0)
    respond(connection, versions_response({3: (0, 5)}))
    assert connection.state is State.READY
    assert connection.version_of(MetadataRequest) == 5


def test_a_refused_version_whose_list_of_versions_cannot_be_read_is_asked_again_in_version_zero() -> None:
    connection = opened()
    list(connection.handshake_log())
    mock_broker = bytes.fromhex("00000011 00000000 0023 01 0012 0000 0002 00000000")  # librdkafka 2.16.0
    assert feed(connection, mock_broker) == []
    respond(connection, versions_response({3: (0, 5)}))
    assert connection.state is State.READY


def test_a_broker_that_refuses_every_version_fails_the_connection() -> None:
    connection = opened()
    respond(connection, versions_response({}, error_code=35), version=0)
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        respond(connection, versions_response({}, error_code=35))
    assert connection.state is State.CLOSED


def test_nothing_is_sent_before_the_connection_is_ready() -> None:
    with pytest.raises(TransportError, match="asking for API versions"):
        opened().send(MetadataRequest())


def test_a_missing_api_and_versions_that_do_not_meet_are_named() -> None:
    connection = opened()
    respond(connection, versions_response({2: (90, 99)}))
    connection.outgoing()
    with pytest.raises(UnsupportedVersionError, match=r"API ConsumerGroupHeartbeat; its APIs are those of Kafka 3\.0"):
        connection.send(ConsumerGroupHeartbeatRequest())
    with pytest.raises(UnsupportedVersionError, match="ListOffsets in versions 90 to 99, this client in 1 to 11"):
        connection.send(ListOffsetsRequest())
    assert connection.n_in_flight == 0
    assert connection.outgoing() == []


def test_a_request_that_cannot_be_expressed_leaves_the_connection_as_it_was() -> None:
    connection = ready()
    with pytest.raises((ProtocolError, UnsupportedVersionError)):
        connection.send(MetadataRequest(topics=[], include_topic_authorized_operations=True), cap=4)
    sent = connection.send(MetadataRequest(topics=[]))
    assert sent.correlation_id == 1
    assert len(feed(connection, frame(sent, MetadataResponse()))) == 1


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1 << 20])
def test_responses_come_out_in_order_however_the_bytes_come_in(step: int) -> None:
    connection = ready()
    sent = [connection.send(MetadataRequest(topics=[])), connection.send(ListOffsetsRequest())]
    assert connection.n_in_flight == 2
    data = frame(sent[0], MetadataResponse(controller_id=7)) + frame(sent[1], ListOffsetsResponse(throttle_time_ms=9))
    out = feed(connection, data, step)
    assert [each.sent for each in out] == sent
    assert [each.response for each in out] == [
        MetadataResponse(controller_id=7),
        ListOffsetsResponse(throttle_time_ms=9),
    ]
    assert sum(each.size for each in out) == len(data)
    assert connection.n_in_flight == 0


def test_record_batches_are_views_of_the_frame() -> None:
    connection = ready()
    sent = connection.send(FetchRequest())
    records = b"r" * 1000
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=memoryview(records))])]
    )
    (received,) = feed(connection, frame(sent, response))
    assert isinstance(received.response, FetchResponse)
    found = received.response.responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found == records
    assert found.obj is not None


def test_a_request_without_a_response_is_not_waited_for() -> None:
    connection = ready()
    connection.send(ProduceRequest(acks=0))
    sent = connection.send(MetadataRequest(topics=[]))
    assert connection.n_in_flight == 1
    assert len(feed(connection, frame(sent, MetadataResponse()))) == 1


def test_a_frame_cut_off_anywhere_brings_no_response() -> None:
    template = ready()
    whole = frame(template.send(MetadataRequest(topics=[])), MetadataResponse(cluster_id="c", controller_id=1))
    for n_bytes in range(len(whole)):
        connection = ready()
        connection.send(MetadataRequest(topics=[]))
        assert feed(connection, whole[:n_bytes]) == []
        error = connection.closed()
        assert isinstance(error, TransportError)
        assert error.retriable
        assert connection.state is State.CLOSED


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_an_impossible_length_is_refused_before_anything_is_allocated(size: int) -> None:
    connection = ready()
    connection.send(MetadataRequest(topics=[]))
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        feed(connection, struct.pack(">i", size))
    assert connection.state is State.CLOSED


def test_a_handshake_frame_has_a_small_cap() -> None:
    connection = opened()
    with pytest.raises(ProtocolError, match=str(MAX_HANDSHAKE_FRAME_BYTES)):
        feed(connection, struct.pack(">i", MAX_HANDSHAKE_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server responds on this port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH server responds on this port"),
        (b"220 mail.example.com ESMTP\r\n", "a mail or FTP server responds on this port"),
        (bytes.fromhex("15030300020250"), "a TLS listener responds on this port"),
    ],
    ids=["HTTP", "SSH", "SMTP", "TLS"],
)
def test_the_response_of_another_kind_of_server_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as raised:
        feed(opened(), data)
    assert raised.value.remedy


def test_a_response_to_another_request_ends_the_connection_and_may_be_retried() -> None:
    connection = ready()
    sent = connection.send(MetadataRequest(topics=[]))
    data = frame_of(MetadataRequest, sent.version, sent.correlation_id + 1, MetadataResponse())
    with pytest.raises(CorrelationError, match="a response to request 2, where 1 is expected") as raised:
        feed(connection, data)
    assert raised.value.retriable
    assert isinstance(raised.value, TransportError)
    assert isinstance(raised.value, ProtocolError)
    assert connection.state is State.CLOSED


def test_a_response_that_nothing_asked_for_ends_the_connection() -> None:
    connection = ready()
    with pytest.raises(CorrelationError, match="a response without a request"):
        feed(connection, frame_of(MetadataRequest, 9, 0, MetadataResponse()))


@pytest.mark.parametrize("change", ["a byte more", "a byte less"])
def test_a_body_that_does_not_fit_its_message_ends_the_connection(change: str) -> None:
    connection = ready()
    sent = connection.send(MetadataRequest(topics=[]))
    body = frame(sent, MetadataResponse())[4:]
    body = body + b"\x01" if change == "a byte more" else body[:-1]
    with pytest.raises(ProtocolError) as raised:
        feed(connection, struct.pack(">i", len(body)) + body)
    assert (raised.value.api, raised.value.version) == ("Metadata", sent.version)
    assert not raised.value.retriable
    assert connection.state is State.CLOSED


def test_correlation_ids_wrap_to_zero() -> None:
    connection = ready()
    connection._next_correlation_id = 2**31 - 1
    sent = [connection.send(MetadataRequest(topics=[])) for _ in range(2)]
    assert [each.correlation_id for each in sent] == [2**31 - 1, 0]
    assert len(feed(connection, b"".join(frame(each, MetadataResponse()) for each in sent))) == 2


def handshaken(mechanism: Tokens) -> StateMachine:
    connection = opened(mechanism)
    respond(connection, versions_response())
    assert connection.state is State.AUTHENTICATING
    return connection


def test_a_mechanism_sends_its_tokens_and_gets_the_brokers() -> None:
    mechanism = Tokens(b"one", b"two")
    connection = handshaken(mechanism)
    respond(connection, SaslHandshakeResponse(mechanisms=["TOKENS"]))
    respond(connection, SaslAuthenticateResponse(auth_bytes=b"first"))
    assert connection.state is State.AUTHENTICATING
    respond(connection, SaslAuthenticateResponse(auth_bytes=b"second", session_lifetime_ms=5000))
    assert connection.state is State.READY
    assert mechanism.got == [b"first", b"second"]
    assert connection.session_lifetime_ms == 5000


def test_the_handshake_goes_out_in_version_1_and_names_the_mechanism() -> None:
    connection = handshaken(Tokens(b"one"))
    (sent,) = (event for event in connection.handshake_log() if isinstance(event, Sent))
    assert (sent.request, sent.version) == (SaslHandshakeRequest(mechanism="TOKENS"), 1)


def test_nothing_but_the_handshake_is_sent_while_authenticating() -> None:
    with pytest.raises(TransportError, match="authenticating"):
        handshaken(Tokens(b"one")).send(MetadataRequest())


def test_a_mechanism_that_the_broker_lacks_is_refused_with_those_that_it_has() -> None:
    connection = handshaken(Tokens(b"one"))
    with pytest.raises(AuthenticationError, match="does not accept TOKENS; it offers PLAIN, GSSAPI"):
        respond(connection, SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", "GSSAPI"]))
    assert connection.state is State.CLOSED


def test_a_listener_without_sasl_is_reported_as_such() -> None:
    with pytest.raises(AuthenticationError, match=r"has no SASL.*security.protocol to PLAINTEXT or SSL"):
        respond(handshaken(Tokens(b"one")), SaslHandshakeResponse(error_code=33, mechanisms=[]))


def test_a_refused_login_gives_the_brokers_reason_and_no_secret() -> None:
    connection = handshaken(Tokens(b"s3cret"))
    respond(connection, SaslHandshakeResponse(mechanisms=["TOKENS"]))
    with pytest.raises(AuthenticationError, match=r"SASL_AUTHENTICATION_FAILED.*no such user") as raised:
        respond(connection, SaslAuthenticateResponse(error_code=58, error_message="no such user", auth_bytes=b""))
    assert "s3cret" not in str(raised.value) + repr(raised.value)
    assert connection.state is State.CLOSED


def test_a_mechanism_learns_that_the_broker_has_refused() -> None:
    refusals = []

    class Curious(Tokens):
        def exchange(self) -> Generator[bytes, bytes, None]:
            try:
                yield b"one"
            except AuthenticationError as error:
                refusals.append(error.message)
                raise

    connection = handshaken(Curious())
    respond(connection, SaslHandshakeResponse(mechanisms=["TOKENS"]))
    with pytest.raises(AuthenticationError, match="expired"):
        respond(connection, SaslAuthenticateResponse(error_code=58, error_message="expired", auth_bytes=b""))
    assert len(refusals) == 1
    assert connection.state is State.CLOSED


def test_a_mechanism_that_distrusts_the_broker_ends_the_connection() -> None:
    class Distrustful(Tokens):
        def exchange(self) -> Generator[bytes, bytes, None]:
            yield b"one"
            raise AuthenticationError("the server's signature is wrong")

    connection = handshaken(Distrustful())
    respond(connection, SaslHandshakeResponse(mechanisms=["TOKENS"]))
    with pytest.raises(AuthenticationError, match="signature"):
        respond(connection, SaslAuthenticateResponse(auth_bytes=b"forged"))
    assert connection.state is State.CLOSED


def test_a_broker_without_sasl_apis_is_named() -> None:
    connection = opened(Tokens(b"one"))
    with pytest.raises(UnsupportedVersionError, match="SaslHandshake v1"):
        respond(connection, versions_response({3: (0, 5)}))


def test_the_handshake_log_has_requests_and_responses_once() -> None:
    connection = opened(Tokens(b"s3cret"))
    requests: list[type[Request[Any]]] = []
    replies: list[Message] = [
        versions_response(),
        SaslHandshakeResponse(mechanisms=["TOKENS"]),
        SaslAuthenticateResponse(auth_bytes=b""),
    ]
    for reply in replies:
        log = connection.handshake_log()
        sent = log[-1]
        assert isinstance(sent, Sent)
        assert sent.size > 0
        requests.append(type(sent.request))
        feed(connection, frame(sent, reply))
    (last,) = connection.handshake_log()
    assert isinstance(last, Received)
    assert last.response == SaslAuthenticateResponse(auth_bytes=b"")
    assert requests == [ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest]
    assert connection.handshake_log() == []


@pytest.mark.parametrize(
    ("n_responses", "remedy"),
    [(0, "security.protocol"), (1, "sasl.mechanism"), (3, "")],
    ids=["opening", "sasl", "ready"],
)
def test_a_closed_connection_says_what_may_be_wrong(n_responses: int, remedy: str) -> None:
    connection = opened(Tokens(b"one"))
    replies: list[Message] = [
        versions_response(),
        SaslHandshakeResponse(mechanisms=["TOKENS"]),
        SaslAuthenticateResponse(auth_bytes=b""),
    ]
    for reply in replies[:n_responses]:
        respond(connection, reply)
    assert remedy in connection.closed().remedy
