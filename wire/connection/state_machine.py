"""One connection to a broker, without I/O: requests go in and bytes come out, bytes go in and responses come out.

Owns framing, correlation, version negotiation and the steps of authentication. It knows no socket and no clock, so every
rule of it can be tested with bytes alone. The rules on one page:

- The first request is ApiVersions, in our highest version. A broker that lacks it responds in version 0 with error 35 and
  the versions that it has of this API; the question is put again in the highest of them, at last in version 0 (KIP-511). It
  names the broker that is meant and its cluster, where they are known; another broker responds REBOOTSTRAP_REQUIRED (KIP-1242).
- With a SASL mechanism, SaslHandshake (v1) and SaslAuthenticate follow, one token at a time. Until then nothing else is
  sent, and a frame may hold 64 KiB at most.
- Then the connection is ready: any number of requests may be in flight. A broker responds to them in order; a response out of
  order, a negative length or bytes that do not fit their message end the connection.

https://kafka.apache.org/protocol#protocol_network
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, cast

from pykafka_wire.wire.error_codes import ErrorCode, error_info
from pykafka_wire.wire.errors import (
    AuthenticationError,
    CorrelationError,
    MisroutedConnectionError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    broker_error,
)
from pykafka_wire.wire.protocol.encoding import coalesce
from pykafka_wire.wire.protocol.message import Message, Request, ResponseT
from pykafka_wire.wire.protocol.messages import api
from pykafka_wire.wire.protocol.messages.handshake import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    RequestHeader,
    ResponseHeader,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    likely_release,
)
from pykafka_wire.wire.protocol.primitives import Segment, encode_length32, n_bytes
from pykafka_wire.wire.security.token import SaslMechanism
from pykafka_wire.wire.single_varint import MAX_INT32

#: What a broker may send before it has authenticated us: its handshake responses take a few KiB.
MAX_HANDSHAKE_FRAME_BYTES: Final = 64 * 1024
#: What a frame may hold afterwards: Fetch responses are bounded by our own request, but a single batch larger than that still
#: comes whole, and brokers take requests up to socket.request.max.bytes, 100 MiB.
MAX_FRAME_BYTES: Final = 128 * 1024 * 1024
#: Of responses from this size on. Those of most requests but Fetch are smaller: a process that sends no other one needs no NumPy,
#: whose import takes longer than the requests.
_LARGE_FRAME_BYTES: Final = 16 * 1024
_MAX_CORRELATION_ID: Final = 2**31 - 1
_LENGTH: Final = struct.Struct(">i")
#: How the first four bytes of other servers begin. Read as a length, "HTTP" is a frame of 1213486160 bytes.
_OTHER_SERVERS: Final = {b"HTTP": "an HTTP server", b"SSH-": "an SSH server", b"220": "a mail or FTP server"}
#: The content types of a TLS alert and of a TLS handshake record, and the version byte after them (RFC 8446, 5.1).
_TLS_RECORDS: Final = (0x15, 0x16)
_TLS_MAJOR: Final = 3
_API_VERSIONS_KEY: Final = 18
#: A tag section without tags (KIP-482).
_NO_TAGS: Final = 0


class BrokerIdentity(NamedTuple):
    """The broker that a connection is meant for."""

    cluster_id: str
    node_id: int


class State(Enum):
    """Where a connection stands."""

    OPENING = "asking for API versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that waits for its response, if it expects one; ``size`` is the frame's, in bytes."""

    correlation_id: int
    request: Request[Any]  # Any: of whatever API
    version: int
    size: int
    expects_response: bool = True


@dataclass(frozen=True, slots=True)
class Received:
    """A response and its request; ``size`` is the frame's, in bytes."""

    sent: Sent
    response: Message
    size: int


class StateMachine:
    """The state of one connection; see the module for its rules."""

    def __init__(
        self,
        *,
        client_id: str,
        software_version: str,
        meant: BrokerIdentity | None = None,
        mechanism: SaslMechanism | None = None,
    ) -> None:
        self.state = State.OPENING
        #: API key -> (lowest, highest) version that both sides speak.
        self.api_versions: dict[int, tuple[int, int]] = {}
        #: API key -> (lowest, highest) version that the broker declares.
        self.broker_versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        #: Milliseconds after which the broker requires a new authentication, 0 for never (KIP-368).
        self.session_lifetime_ms = 0
        #: Whether the peer closed the connection instead of saying what it thinks of our credentials.
        self.cut_off = False
        self._client_id = client_id
        self._software_version = software_version
        self._meant = meant
        self._mechanism = mechanism
        self._exchange: Generator[bytes, bytes, None] | None = None
        self._next_correlation_id = 0
        self._in_flight: deque[Sent] = deque()
        self._outgoing: list[Segment] = []
        self._handshake_log: list[Sent | Received] = []
        self._head = bytearray(_LENGTH.size)
        self._frame: memoryview | None = None
        self._filled = 0
        self._ask_versions(ApiVersionsRequest.versions[1])

    # --- what goes out ------------------------------------------------------------------------------------------------

    @property
    def n_in_flight(self) -> int:
        """Return requests that wait for a response."""
        return len(self._in_flight)

    def version_of(self, request: type[Request[Any]], cap: int | None = None) -> int:
        """Return the highest version of an API that both sides speak, at most ``cap``.

        Raises:
            UnsupportedVersionError: there is none; names what the broker has.
        """
        declared = self.broker_versions.get(request.api_key)
        if declared is None:
            raise UnsupportedVersionError(
                f"the broker does not support the API {request.name}; its APIs are those of {likely_release(self.broker_versions)}",
                api=request.name,
                remedy="It needs a newer broker.",
            )
        low, high = self.api_versions.get(request.api_key, (1, 0))
        if cap is not None:
            high = min(high, cap)
        if high < low:
            raise UnsupportedVersionError(
                f"the broker supports {request.name} in versions {declared[0]} to {declared[1]}, this client in "
                f"{request.versions[0]} to {request.versions[1] if cap is None else cap}; its APIs are those of "
                f"{likely_release(self.broker_versions)}",
                api=request.name,
            )
        return high

    def supports(self, request: type[Request[Any]], version: int) -> bool:
        """Return whether both sides speak this version of an API."""
        low, high = self.api_versions.get(request.api_key, (1, 0))
        return low <= version <= high

    def send(self, request: Request[Any], cap: int | None = None) -> Sent:
        """Queue a request in the highest version that both sides speak, at most ``cap``; bytes are in :meth:`outgoing`.

        Raises:
            TransportError: the connection is not ready.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed.
        """
        if self.state is not State.READY:
            raise TransportError(f"the connection is {self.state.value}", api=type(request).name)
        return self._send(request, self.version_of(type(request), cap))

    def outgoing(self) -> list[Segment]:
        """Return the bytes to send, in segments, handed out once."""
        segments, self._outgoing = self._outgoing, []
        return segments

    def handshake_log(self) -> list[Sent | Received]:
        """Return what the handshake sent and got since the last call, in order."""
        log, self._handshake_log = self._handshake_log, []
        return log

    def _send(self, request: Request[Any], version: int) -> Sent:
        segments = encode_request(request, version, self._next_correlation_id, self._client_id)
        size = sum(memoryview(segment).nbytes for segment in segments)
        sent = Sent(self._next_correlation_id, request, version, size, request.expects_response)
        if self.state is not State.READY:
            self._handshake_log.append(sent)
        self._next_correlation_id = (self._next_correlation_id + 1) & _MAX_CORRELATION_ID
        if sent.expects_response:
            self._in_flight.append(sent)
        self._outgoing += segments
        return sent

    # --- what comes in ------------------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """Return where the next bytes belong, never empty: fill some of it, then call :meth:`received`."""
        if self._frame is None:
            return memoryview(self._head)[self._filled :]
        return self._frame[self._filled :]

    @property
    def n_missing(self) -> int:
        """Return how many bytes a response lacks that has begun; 0 where none has, or its size is not known yet."""
        return 0 if self._frame is None else len(self._frame) - self._filled

    def received(self, n_bytes: int) -> Received | None:
        """Take in ``n_bytes`` that were filled in; return the response that they complete, None while more is to come or it was
        ours to handle.

        Raises:
            CorrelationError: the response is to another request; the connection is closed.
            ProtocolError: the broker broke the protocol; the connection is closed.
            AuthenticationError: the broker refused us; the connection is closed.
        """
        self._filled += n_bytes
        if self._frame is None:
            if self._filled < _LENGTH.size:
                return None
            (size,) = _LENGTH.unpack(self._head)
            limit = MAX_FRAME_BYTES if self.state is State.READY else MAX_HANDSHAKE_FRAME_BYTES
            if not 4 <= size <= limit:
                raise self._no_frame(size, limit)
            # Not zeroed: every byte is written before one is read, and responses are megabytes.
            self._frame = _frame_memory(size)
            self._filled = 0
            return None
        if self._filled < len(self._frame):
            return None
        frame, self._frame, self._filled = self._frame, None, 0
        return self._receive(frame)

    def closed(self) -> TransportError:
        """Close, since the peer closed the connection or it broke. Returns the error that says what that cost."""
        state, self.state = self.state, State.CLOSED
        if state is State.OPENING:
            return TransportError(
                "the broker closed the connection before it responded",
                remedy="Check that the port is a Kafka listener and that its protocol is the one of {security.protocol}.",
            )
        if state is State.AUTHENTICATING:
            self.cut_off = bool(self._in_flight) and isinstance(self._in_flight[0].request, SaslAuthenticateRequest)
            return TransportError(
                "the broker closed the connection during authentication",
                remedy="Check {sasl.mechanism} and the credentials.",
            )
        return TransportError(f"the broker closed the connection, {self.n_in_flight} requests without a response")

    def _receive(self, frame: memoryview) -> Received | None:
        if not self._in_flight:
            raise self._out_of_step("a response without a request")
        sent = self._in_flight.popleft()
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if correlation_id != sent.correlation_id:
            raise self._out_of_step(f"a response to request {correlation_id}, where {sent.correlation_id} is expected")
        request, version = type(sent.request), sent.version
        unknown_version = (
            request is ApiVersionsRequest
            and version > 0
            and frame[4:6] == _LENGTH.pack(ErrorCode.UNSUPPORTED_VERSION)[2:]
        )
        if unknown_version:
            version = 0  # KIP-511: the response to a version that the broker does not know
        response: Message
        try:
            _, response = decode_response(request, version, frame)
        except ProtocolError as error:
            if not unknown_version:
                self.state = State.CLOSED
                error.api, error.version = request.name, version
                raise
            # librdkafka's mock brokers respond in a layout of no version. The code alone is reason to ask in version 0.
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        received = Received(sent, response, len(frame) + _LENGTH.size)
        if self.state is State.READY:
            return received
        self._handshake_log.append(received)
        self._handshake(sent, response)
        return None

    def _no_frame(self, size: int, limit: int) -> ProtocolError:
        """Return the error for four bytes that cannot be a frame's length."""
        self.state, state = State.CLOSED, self.state
        head = bytes(self._head)
        for start, server in _OTHER_SERVERS.items():
            if head.startswith(start):
                return ProtocolError(
                    f"{server} responds on this port, not a Kafka broker",
                    remedy="Check the host and the port: {bootstrap.servers} must name a Kafka listener.",
                )
        if head[0] in _TLS_RECORDS and head[1] == _TLS_MAJOR:
            return ProtocolError(
                "a TLS listener responds on this port, and this client speaks plaintext",
                remedy="Set {security.protocol} to SSL or SASL_SSL.",
            )
        error = ProtocolError(f"the broker sent a frame of {size} bytes, where 4 to {limit} are allowed")
        if state is State.OPENING:
            error.remedy = "Check that the port is a Kafka listener, and that {security.protocol} matches it."
        elif state is State.READY and size > limit:
            error.remedy = "Lower {fetch.max.bytes}. A single batch of that size cannot be read: start after it."
        return error

    def _out_of_step(self, what: str) -> CorrelationError:
        self.state = State.CLOSED
        return CorrelationError(f"the broker sent {what}")

    # --- the handshake ------------------------------------------------------------------------------------------------

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(
            client_software_name="pykafka-wire",
            client_software_version=self._software_version,
            cluster_id=None if self._meant is None else self._meant.cluster_id,
            node_id=-1 if self._meant is None else self._meant.node_id,
        )
        self._send(request, version)

    def _handshake(self, sent: Sent, response: Message) -> None:
        if isinstance(response, ApiVersionsResponse):
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and sent.version:
                declared = (entry.max_version for entry in response.api_keys if entry.api_key == sent.request.api_key)
                highest = next(declared, 0)
                self._ask_versions(highest if 0 < highest < sent.version else 0)
                return
            if response.error_code:
                self.state = State.CLOSED
                if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._meant is not None:
                    raise MisroutedConnectionError(
                        f"this is not broker {self._meant.node_id} of cluster {self._meant.cluster_id}",
                        api="ApiVersions",
                        version=sent.version,
                        remedy="Check that each broker's advertised.listeners leads to it, past DNS, proxies and load balancers.",
                    )
                raise broker_error(response.error_code, api="ApiVersions", version=sent.version)
            self._learn_versions(response)
            if self._mechanism is None:
                self.state = State.READY
            else:
                self.state = State.AUTHENTICATING
                self._require(SaslHandshakeRequest, 1)
                self._send(SaslHandshakeRequest(mechanism=self._mechanism.name), 1)
        elif isinstance(response, SaslHandshakeResponse):
            assert self._mechanism is not None
            if response.error_code:
                self.state = State.CLOSED
                if not response.mechanisms:
                    raise AuthenticationError(
                        "the listener has no SASL",
                        remedy="Use the port of a SASL listener, or set {security.protocol} to PLAINTEXT or SSL.",
                    )
                raise AuthenticationError(
                    f"the broker does not accept {self._mechanism.name}; it offers {', '.join(response.mechanisms)}",
                    remedy="Set {sasl.mechanism} to one that this listener offers.",
                )
            self._exchange = self._mechanism.exchange()
            self._next_token(None)
        elif isinstance(response, SaslAuthenticateResponse):
            self._authenticated(response)

    def _learn_versions(self, response: ApiVersionsResponse) -> None:
        for entry in response.api_keys:
            self.broker_versions[entry.api_key] = (entry.min_version, entry.max_version)
            try:
                low, high = api(entry.api_key).versions
            except UnsupportedVersionError:
                continue  # an API that this client has no use for
            self.api_versions[entry.api_key] = (max(low, entry.min_version), min(high, entry.max_version))
        self.finalized_features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def _require(self, request: type[Request[Any]], version: int) -> None:
        if not self.supports(request, version):
            self.state = State.CLOSED
            raise UnsupportedVersionError(
                f"the broker does not support {request.name} v{version}",
                remedy="SASL needs Kafka 1.0 or newer.",
                api=request.name,
            )

    def _next_token(self, challenge: bytes | None) -> None:
        """Send the mechanism's next token, or be ready where it has none left."""
        assert self._exchange is not None
        try:
            token = next(self._exchange) if challenge is None else self._exchange.send(challenge)
        except StopIteration:
            self._exchange = None
            self.state = State.READY
            return
        except AuthenticationError:
            self.state = State.CLOSED
            raise
        self._send(SaslAuthenticateRequest(auth_bytes=token), self.version_of(SaslAuthenticateRequest))

    def _authenticated(self, response: SaslAuthenticateResponse) -> None:
        assert self._mechanism is not None
        if response.error_code:
            self.state = State.CLOSED
            name = error_info(response.error_code).name
            error = AuthenticationError(
                f"the broker refused {self._mechanism.name} authentication ({name}): {response.error_message or 'no reason given'}",
                remedy="Check the user, its secret, and that the broker knows it for this mechanism.",
                api="SaslAuthenticate",
            )
            if self._exchange is not None:
                self._exchange.throw(error)  # the mechanism may have something to do or to say first
            raise error
        self.session_lifetime_ms = response.session_lifetime_ms
        self._next_token(response.auth_bytes)


def request_header_version(request: type[Request[ResponseT]], version: int) -> int:
    return 2 if request.is_flexible(version) else 1


def response_header_version(request: type[Request[ResponseT]], version: int) -> int:
    # A client that asks in a version too new for the broker must be able to read the response (KIP-511).
    return 1 if request.is_flexible(version) and request.api_key != _API_VERSIONS_KEY else 0


def encode_request(
    request: Request[ResponseT], version: int, correlation_id: int, client_id: str | None
) -> list[Segment]:
    """Return the whole frame of a request, length first, in segments: record batches are uncopied views.

    Raises ProtocolError and UnsupportedVersionError as :meth:`Message.encode` does.
    """
    cls = type(request)
    header = RequestHeader(
        request_api_key=cls.api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    segments: list[Segment] = [b""]
    header.write(segments, request_header_version(cls, version))
    request.write(segments, version)
    size = sum(map(n_bytes, segments))
    if size > MAX_INT32:
        raise ProtocolError(f"a request of {size} bytes does not fit in a frame", api=cls.name, version=version)
    segments[0] = encode_length32(size)
    return coalesce(segments)


def decode_response(
    request: type[Request[ResponseT]], version: int, frame: bytes | bytearray | memoryview
) -> tuple[int, ResponseT]:
    """Return the correlation id and the response that a frame holds, its length stripped. Record batches are views of `frame`.

    Raises ProtocolError for malformed bytes, and for bytes left over: they show that client and broker disagree on the layout, and
    then no field can be trusted. One zero byte after a response of a flexible version is accepted, since librdkafka's mock brokers
    (2.16.0), which people test with, write a second, empty tag section. Everything before it was read to its end, and it has no
    content. Java's client and franz-go ignore any bytes left over.
    """
    view = memoryview(frame)
    header, position = ResponseHeader.read(view, response_header_version(request, version))
    body = cast("type[ResponseT]", request.response)
    try:
        return header.correlation_id, body.decode(view[position:], version)
    except ProtocolError:
        if not (request.is_flexible(version) and view[-1] == _NO_TAGS):
            raise
        with suppress(ProtocolError):
            return header.correlation_id, body.decode(view[position:-1], version)
        raise


def _frame_memory(n_bytes: int) -> memoryview:
    """Return memory for a frame that is written before it is read, which large frames therefore have without zeros."""
    if n_bytes < _LARGE_FRAME_BYTES:
        return memoryview(bytearray(n_bytes))
    from pykafka_wire.wire.buffers import empty_buffer

    return empty_buffer(n_bytes).data
