"""Which APIs and versions a broker speaks, and the features its cluster has finalized (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.protocol.fields import Struct, array, boolean, int16, int32, int64, string
from pykafka_wire.wire.protocol.message import Message, Request


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
    """The release whose APIs a broker declares: ``Kafka 2.8``. `versions`: API key -> (lowest, highest)."""
    for release, key, version in _CAME_WITH:
        if versions.get(key, (0, -1))[1] >= version:
            return f"Kafka {release}"
    return "a Kafka older than 2.1"
