"""Which APIs and versions a broker speaks, and the features its cluster has finalized (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from pykafka_wire.wire.schema import Message, Request, Struct, array, boolean, int16, int32, int64, string


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


class ApiVersionsResponse(Message, versions=(0, 4), flexible=3):
    """A broker that lacks the version asked for answers in version 0 with error 35 and the versions it has (KIP-511)."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, ignorable=True, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, ignorable=True, tag=2)
    zk_migration_ready: bool = boolean(since=3, ignorable=True, tag=3)


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions=(0, 4), flexible=3):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
