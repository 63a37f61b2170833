"""Kafka's APIs as data, one module per family, and the framing of a request and of its response.

Owns which module declares which API, and the header version that goes with a message version. It knows no connection:
no correlation of answers with questions, no choice of versions. Families are imported when they are first asked for.

The declarations hold every version that Apache Kafka 4.3.1 declares stable; tests compare them with Kafka's own schemas
and their bytes with Kafka's own serializers. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import codec
from pykafka_wire.wire.protocol.messages.header import RequestHeader, ResponseHeader
from pykafka_wire.wire.protocol.primitives import MAX_INT32, Piece, Pieces, encode_length32, n_bytes
from pykafka_wire.wire.protocol.schema import Message, Request, ResponseT

#: API key -> (module of this package, API's name).
APIS: Final[dict[int, tuple[str, str]]] = {
    0: ("produce", "Produce"),
    1: ("fetch", "Fetch"),
    2: ("list_offsets", "ListOffsets"),
    3: ("metadata", "Metadata"),
    8: ("group_offsets", "OffsetCommit"),
    9: ("group_offsets", "OffsetFetch"),
    10: ("find_coordinator", "FindCoordinator"),
    11: ("group", "JoinGroup"),
    12: ("group", "Heartbeat"),
    13: ("group", "LeaveGroup"),
    14: ("group", "SyncGroup"),
    15: ("group_admin", "DescribeGroups"),
    16: ("group_admin", "ListGroups"),
    17: ("sasl", "SaslHandshake"),
    18: ("api_versions", "ApiVersions"),
    19: ("topics", "CreateTopics"),
    20: ("topics", "DeleteTopics"),
    22: ("init_producer_id", "InitProducerId"),
    23: ("list_offsets", "OffsetForLeaderEpoch"),
    24: ("transactions", "AddPartitionsToTxn"),
    25: ("transactions", "AddOffsetsToTxn"),
    26: ("transactions", "EndTxn"),
    28: ("transactions", "TxnOffsetCommit"),
    32: ("configs", "DescribeConfigs"),
    36: ("sasl", "SaslAuthenticate"),
    37: ("topics", "CreatePartitions"),
    47: ("group_offsets", "OffsetDelete"),
    60: ("metadata", "DescribeCluster"),
    61: ("transaction_admin", "DescribeProducers"),
    65: ("transaction_admin", "DescribeTransactions"),
    66: ("transaction_admin", "ListTransactions"),
    68: ("consumer_group", "ConsumerGroupHeartbeat"),
    69: ("consumer_group", "ConsumerGroupDescribe"),
    75: ("metadata", "DescribeTopicPartitions"),
}

_API_VERSIONS: Final = 18


def api(api_key: int) -> type[Request[Message]]:
    """The request class of an API, its module imported. Raises UnsupportedVersionError for one that is not declared."""
    if api_key not in APIS:
        raise UnsupportedVersionError(f"API key {api_key} is not known", api=f"API {api_key}")
    module, name = APIS[api_key]
    cls = getattr(import_module(f"{__name__}.{module}"), f"{name}Request")
    return cast("type[Request[Message]]", cls)


def request_header_version(request: type[Request[ResponseT]], version: int) -> int:
    return 2 if request.is_flexible(version) else 1


def response_header_version(request: type[Request[ResponseT]], version: int) -> int:
    # A client that asks in a version too new for the broker must be able to read the answer (KIP-511).
    return 1 if request.is_flexible(version) and request.api_key != _API_VERSIONS else 0


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
    return codec.segments(pieces)


def decode_response(
    request: type[Request[ResponseT]], version: int, frame: bytes | bytearray | memoryview
) -> tuple[int, ResponseT]:
    """The correlation id and the response that a frame holds, its length stripped. Record batches are views of `frame`.

    Raises ProtocolError for malformed bytes and for bytes left over.
    """
    view = memoryview(frame)
    header, position = ResponseHeader.read(view, response_header_version(request, version))
    response = cast("type[ResponseT]", request.response).decode(view[position:], version)
    return header.correlation_id, response
