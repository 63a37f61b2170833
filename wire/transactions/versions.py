"""The two versions of Kafka's transaction protocol, and all that differs between them.

A cluster's version is its finalized feature ``transaction.version`` (KIP-890, KIP-584). One transaction keeps to one version:

=======  ===========  ===========================================  =================  ==========================================
version  Produce      topic-partitions and groups are added        TxnOffsetCommit    EndTxn
=======  ===========  ===========================================  =================  ==========================================
TV1      at most 11   by AddPartitionsToTxn and AddOffsetsToTxn    at most 4          at most 4; the epoch stays as it is
TV2      12 or newer  by the broker                                5 or newer         5 or newer; the epoch grows by one
=======  ===========  ===========================================  =================  ==========================================
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.protocol.message import Request
from pykafka_wire.wire.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest

_FEATURE: Final = "transaction.version"


class TransactionVersion(Enum):
    """A version of the protocol; its value is the level of ``transaction.version`` that it begins at."""

    TV1 = 1
    TV2 = 2

    @classmethod
    def of(cls, cluster: Cluster) -> TransactionVersion:
        """The cluster's. Brokers from before the feature, and clusters that have not finalized it, have TV1."""
        return cls.TV2 if cluster.finalized_feature(_FEATURE) >= cls.TV2.value else cls.TV1

    @property
    def produce_cap(self) -> int | None:
        """The highest version of Produce, None for any."""
        # From 12 on a broker adds the partition to the transaction. Every broker of a TV2 cluster has it, or the
        # feature could not have been finalized.
        return 11 if self is TransactionVersion.TV1 else None

    @property
    def adds_by_request(self) -> bool:
        """Whether the client adds topic-partitions and groups to the transaction before it writes to them."""
        return self is TransactionVersion.TV1

    @property
    def end_changes_epoch(self) -> bool:
        """Whether the end of a transaction fences requests that arrive after it."""
        return self is TransactionVersion.TV2

    def request_versions(self, request: type[Request[Any]]) -> tuple[int, int | None]:  # Any: whatever its response is
        """The lowest and the highest version (None for any) of TxnOffsetCommit or EndTxn."""
        last_of_tv1 = {TxnOffsetCommitRequest: 4, EndTxnRequest: 4}[request]
        return (0, last_of_tv1) if self is TransactionVersion.TV1 else (last_of_tv1 + 1, None)
