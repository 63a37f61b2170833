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
from pykafka_wire.wire.errors import UnsupportedVersionError
from pykafka_wire.wire.protocol.message import Request
from pykafka_wire.wire.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

_FEATURE: Final = "transaction.version"
#: Later versions of AddPartitionsToTxn, which TV2 does not need, are between brokers.
_LAST_OF_TV1: Final[dict[type[Request[Any]], int]] = {
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}


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

    def request_cap(self, request: type[Request[Any]]) -> int | None:  # Any: whatever its response is
        """The highest version of a request, None for any."""
        return _LAST_OF_TV1.get(request) if self is TransactionVersion.TV1 else None

    def require(self, request: type[Request[Any]], version: int) -> None:
        """Raises UnsupportedVersionError where the version that a broker speaks is too old for this one."""
        lowest = 0 if self is TransactionVersion.TV1 else _LAST_OF_TV1.get(request, -1) + 1
        if version < lowest:
            raise UnsupportedVersionError(
                f"the broker does not support {request.name} v{lowest}, which {self.name} needs",
                api=request.name,
                remedy="All brokers must have the version that transaction.version was finalized for.",
            )
