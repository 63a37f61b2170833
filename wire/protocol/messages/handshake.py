"""What every connection begins with, and what stands before each message.

The headers of requests and responses, after the frame's int32 length (KIP-482); which APIs and versions a broker speaks, and the
features its cluster has finalized (KIP-35, KIP-511, KIP-584); the choice of a SASL mechanism, then its tokens (KIP-43, KIP-152,
session lifetime KIP-368).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.protocol.fields import Struct, array, binary, boolean, int16, int32, int64, string
from pykafka_wire.wire.protocol.message import Message, Request


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


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, versions=(0, 5), flexible=3):
    """A broker that lacks the version asked for responds in version 0 with error 35 and the versions it has (KIP-511)."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, ignorable=True, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, ignorable=True, tag=2)
    zk_migration_ready: bool = boolean(since=3, ignorable=True, tag=3)


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions=(0, 5), flexible=3):
    """A broker responds with REBOOTSTRAP_REQUIRED where cluster and node are given, and are not its own (KIP-1242)."""

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    node_id: int = int32(since=5, default=-1, ignorable=True)


#: Release -> an API and the version of it that came with that release, newest first. Brokers do not say what they are.
_CAME_WITH: Final[tuple[tuple[str, int, int], ...]] = (
    ("4.4 or newer", 18, 5),  # ApiVersions, KIP-1242
    ("4.0 to 4.3", 3, 13),  # Metadata, KIP-1102
    ("3.9", 1, 17),  # Fetch, KIP-853
    ("3.7 or 3.8", 1, 16),  # Fetch, KIP-951
    ("3.5 or 3.6", 1, 15),  # Fetch, KIP-903
    ("3.1 to 3.4", 1, 13),  # Fetch, KIP-516
    ("3.0", 2, 7),  # ListOffsets, KIP-734
    ("2.8", 3, 10),  # Metadata, KIP-516
    ("2.7", 1, 12),  # Fetch, KIP-595
    ("2.6", 48, 0),  # DescribeClientQuotas, KIP-546
    ("2.5", 22, 3),  # InitProducerId, KIP-360
    ("2.4", 3, 9),  # Metadata, KIP-482
    ("2.3", 1, 11),  # Fetch, KIP-392
    ("2.1 or 2.2", 1, 10),  # Fetch, KIP-110
)


def likely_release(versions: Mapping[int, tuple[int, int]]) -> str:
    """Return the release whose APIs a broker declares: ``Kafka 2.8``. `versions`: API key -> (lowest, highest)."""
    for release, key, version in _CAME_WITH:
        if versions.get(key, (0, -1))[1] >= version:
            return f"Kafka {release}"
    return "a Kafka older than 2.1"


class SaslHandshakeResponse(Message, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions=(0, 1)):
    """Version 1 puts the tokens that follow into SaslAuthenticate; version 0 would send them bare: never use it."""

    mechanism: str = string()


class SaslAuthenticateResponse(Message, versions=(0, 2), flexible=2):
    """`session_lifetime_ms`, if not 0, asks for authentication anew before it is over (KIP-368)."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = binary(secret=True)
    session_lifetime_ms: int = int64(since=1, ignorable=True)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = binary(secret=True)
