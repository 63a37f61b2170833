"""Which broker coordinates a group or a transactional id (KIP-699 batches)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import Struct, array, int8, int16, int32, string
from pykafka_wire.wire.protocol.message import Message, Request


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=4, ignorable=True)


class FindCoordinatorResponse(Message, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)


class FindCoordinatorRequest(Request[FindCoordinatorResponse], api_key=10, versions=(0, 6), flexible=3):
    """`key` up to version 3, `coordinator_keys` from 4. `key_type` is 0 for groups, 1 for transactional ids."""

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)
