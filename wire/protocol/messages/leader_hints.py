"""Who leads a topic-partition now, as the responses to Fetch and Produce say it with NOT_LEADER_OR_FOLLOWER (KIP-951)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import Struct, int32, string


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
