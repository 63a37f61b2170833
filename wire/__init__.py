"""A Kafka client in Python: the wire protocol, record batches in columns, routing, fetching and producing.

It knows nothing of Spark and can be used alone. What most need, importable from here, each with its page of documentation:

- :class:`Consumer`: assign or join a group, poll into Arrow columns or records, commit
- :class:`RecordProducer`: send records or Arrow columns, flush
- :class:`TransactionalProducer`: the same in transactions, with the offsets of what was read
- :class:`ClientSettings`, :class:`TopicPartition`, :class:`WireError`; :data:`EARLIEST` and :data:`LATEST` to seek to;
  :class:`SubscriptionPattern` to subscribe to

Below them: :class:`~pykafka_wire.wire.cluster.client.Cluster` and what is asked of brokers (``admin``, ``fetch``, ``produce``,
``groups``, ``transactions``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST
    from pykafka_wire.wire.connection.counters import ClientTotals
    from pykafka_wire.wire.consumer import Consumer, ConsumerRecord, ConsumerRecords
    from pykafka_wire.wire.errors import WireError
    from pykafka_wire.wire.groups.committed_offsets import GroupMetadata
    from pykafka_wire.wire.groups.membership import SubscriptionPattern
    from pykafka_wire.wire.record_producer import RecordProducer
    from pykafka_wire.wire.settings import ClientSettings
    from pykafka_wire.wire.topic_partitions import TopicPartition
    from pykafka_wire.wire.transactional_producer import RecordTransaction, TransactionalProducer

__all__ = [
    "EARLIEST",
    "LATEST",
    "ClientSettings",
    "ClientTotals",
    "Consumer",
    "ConsumerRecord",
    "ConsumerRecords",
    "GroupMetadata",
    "RecordProducer",
    "RecordTransaction",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionalProducer",
    "WireError",
]

_MODULES: Final = {
    "EARLIEST": "cluster.admin",
    "LATEST": "cluster.admin",
    "ClientSettings": "settings",
    "ClientTotals": "connection.counters",
    "Consumer": "consumer",
    "GroupMetadata": "groups.committed_offsets",
    "ConsumerRecords": "consumer",
    "ConsumerRecord": "consumer",
    "RecordProducer": "record_producer",
    "RecordTransaction": "transactional_producer",
    "SubscriptionPattern": "groups.membership",
    "TopicPartition": "topic_partitions",
    "TransactionalProducer": "transactional_producer",
    "WireError": "errors",
}


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    # Imported when first asked for: every module of the package passes through here.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
