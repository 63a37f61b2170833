"""What consumers put into JoinGroup and SyncGroup: subscriptions and assignments, the protocol type "consumer".

On the wire each is preceded by its version: :func:`encode_versioned` and :func:`decode_versioned`.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol.fields import Struct, array, binary, int32, string
from pykafka_wire.wire.protocol.message import Message


class OwnedTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable_since=0, default=None)
    owned_partitions: list[OwnedTopicPartitions] = array(OwnedTopicPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class AssignedTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions)
    user_data: bytes | None = binary(nullable_since=0, default=None)


MessageT = TypeVar("MessageT", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

_VERSION = struct.Struct(">h")


def encode_versioned(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The version and the message in it, as JoinGroup's and SyncGroup's bytes hold them."""
    return b"".join((_VERSION.pack(version), *message.encode(version)))


def decode_versioned(cls: type[MessageT], data: bytes | memoryview) -> MessageT:
    """The message in bytes that start with its version. A version newer than ours is read as our newest, what follows is
    left: versions only ever append fields (KIP-429).

    Raises ProtocolError for malformed bytes.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{cls.__name__} of {len(data)} bytes has no version", api=cls.__name__)
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"{cls.__name__} has version {version}", api=cls.__name__)
    newest = cls.versions[1]
    if version > newest:
        return cls.read(data, newest, _VERSION.size)[0]
    return cls.decode(data[_VERSION.size :], version)
