"""The frame of a request and of its response: length, header and message.

Owns which header version goes with a message version. The state machine of a connection is its only user: it chooses versions
and matches responses with requests. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, cast

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol.message import Request, ResponseT
from pykafka_wire.wire.protocol.messages.header import RequestHeader, ResponseHeader
from pykafka_wire.wire.protocol.primitives import MAX_INT32, Piece, Pieces, encode_length32, n_bytes
from pykafka_wire.wire.protocol.writing import segments

_API_VERSIONS_KEY: Final = 18
#: A tag section without tags (KIP-482).
_NO_TAGS: Final = 0


def request_header_version(request: type[Request[ResponseT]], version: int) -> int:
    return 2 if request.is_flexible(version) else 1


def response_header_version(request: type[Request[ResponseT]], version: int) -> int:
    # A client that asks in a version too new for the broker must be able to read the response (KIP-511).
    return 1 if request.is_flexible(version) and request.api_key != _API_VERSIONS_KEY else 0


def encode_request(
    request: Request[ResponseT], version: int, correlation_id: int, client_id: str | None
) -> list[Piece]:
    """The whole frame of a request, length first, in segments: record batches are uncopied views.

    Raises ProtocolError and UnsupportedVersionError as :meth:`Message.encode` does.
    """
    cls = type(request)
    header = RequestHeader(
        request_api_key=cls.api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    pieces: Pieces = [b""]
    header.write(pieces, request_header_version(cls, version))
    request.write(pieces, version)
    size = sum(map(n_bytes, pieces))
    if size > MAX_INT32:
        raise ProtocolError(f"a request of {size} bytes does not fit in a frame", api=cls.name, version=version)
    pieces[0] = encode_length32(size)
    return segments(pieces)


def decode_response(
    request: type[Request[ResponseT]], version: int, frame: bytes | bytearray | memoryview
) -> tuple[int, ResponseT]:
    """The correlation id and the response that a frame holds, its length stripped. Record batches are views of `frame`.

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
