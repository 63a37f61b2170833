"""Kafka's APIs as data, one module per family.

Owns which module declares which API. Families are imported when they are first asked for.

The declarations hold every version that Apache Kafka 4.4.0 declares stable; tests compare them with Kafka's own schemas
and their bytes with Kafka's own serializers. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from pykafka_wire.wire.errors import UnsupportedVersionError
from pykafka_wire.wire.protocol.message import Message, Request

#: API key -> (module of this package, API's name).
APIS: Final[dict[int, tuple[str, str]]] = {
    0: ("produce", "Produce"),
    1: ("fetch", "Fetch"),
    2: ("list_offsets", "ListOffsets"),
    3: ("metadata", "Metadata"),
    8: ("group_offsets", "OffsetCommit"),
    9: ("group_offsets", "OffsetFetch"),
    10: ("metadata", "FindCoordinator"),
    11: ("group", "JoinGroup"),
    12: ("group", "Heartbeat"),
    13: ("group", "LeaveGroup"),
    14: ("group", "SyncGroup"),
    15: ("group", "DescribeGroups"),
    16: ("group", "ListGroups"),
    17: ("handshake", "SaslHandshake"),
    18: ("handshake", "ApiVersions"),
    19: ("admin", "CreateTopics"),
    20: ("admin", "DeleteTopics"),
    22: ("produce", "InitProducerId"),
    23: ("list_offsets", "OffsetForLeaderEpoch"),
    24: ("transactions", "AddPartitionsToTxn"),
    25: ("transactions", "AddOffsetsToTxn"),
    26: ("transactions", "EndTxn"),
    28: ("transactions", "TxnOffsetCommit"),
    32: ("admin", "DescribeConfigs"),
    36: ("handshake", "SaslAuthenticate"),
    37: ("admin", "CreatePartitions"),
    44: ("admin", "IncrementalAlterConfigs"),
    61: ("transactions", "DescribeProducers"),
    65: ("transactions", "DescribeTransactions"),
    66: ("transactions", "ListTransactions"),
    68: ("consumer_group", "ConsumerGroupHeartbeat"),
    69: ("consumer_group", "ConsumerGroupDescribe"),
}


def api(api_key: int) -> type[Request[Message]]:
    """Return the request class of an API, its module imported. Raises UnsupportedVersionError for one that is not declared."""
    if api_key not in APIS:
        raise UnsupportedVersionError(f"API key {api_key} is not known", api=f"API {api_key}")
    module, name = APIS[api_key]
    cls = getattr(import_module(f"{__name__}.{module}"), f"{name}Request")
    return cast("type[Request[Message]]", cls)
