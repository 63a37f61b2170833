"""The headers in front of every request and response, after the frame's int32 length (KIP-482 for version 2 and 1)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import int16, int32, string
from pykafka_wire.wire.protocol.message import Message


class RequestHeader(Message, versions=(1, 2), flexible=2):
    """Version 2, which adds tagged fields, stands before requests of flexible versions."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    # Not compact in version 2 either: a broker must read the header of an ApiVersions request newer than itself.
    client_id: str | None = string(nullable_since=1, compact=False)


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    """Version 1, which adds tagged fields, stands before responses of flexible versions, ApiVersions excepted."""

    correlation_id: int = int32()
