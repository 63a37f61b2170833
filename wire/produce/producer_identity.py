"""Who writes: the producer id and epoch that brokers tell producers apart by (KIP-98).

Owns these two numbers and, without a transactional id, the request for new ones, and the next epoch without a request (KIP-360).
With one, :mod:`~pykafka_wire.wire.transactions.coordinator` asks the transaction's coordinator.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.cluster.cluster import ANY, Cluster
from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.protocol.messages.init_producer_id import InitProducerIdRequest

logger = logging.getLogger(__name__)

#: Epochs are int16.
_LAST_EPOCH: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What InitProducerId returned. Without idempotence both are -1, and batches carry no producer id."""

    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def idempotent(self) -> bool:
        return self.producer_id >= 0

    def with_next_epoch(self) -> ProducerIdentity | None:
        """The same producer under the next epoch; None after the last one: a new producer id is needed.

        Only without a transactional id. With one, its coordinator gives epochs out.
        """
        if self.producer_epoch == _LAST_EPOCH:
            return None
        return ProducerIdentity(self.producer_id, self.producer_epoch + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionScope:
    """The one transaction that a producer writes in.

    Attributes:
        identity: what InitProducerId returned for the transactional id.
        produce_cap: the highest version of Produce that the transaction's version allows, None for any.
    """

    transactional_id: str
    identity: ProducerIdentity
    produce_cap: int | None


def request_producer_identity(cluster: Cluster) -> ProducerIdentity:
    """A new producer id, which any broker hands out.

    Raises:
        BrokerError: this user may not write idempotently.
        DeadlineExceededError: no broker answered in ``default.api.timeout.ms``.
    """
    response = cluster.request(ANY, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    if response.error_code:
        error = broker_error(response.error_code, api="InitProducerId")
        if error.name == "CLUSTER_AUTHORIZATION_FAILED":
            error.remedy = "Grant IdempotentWrite on the cluster, or set enable.idempotence=false."
        raise error
    logger.debug("producer id %d, epoch %d", response.producer_id, response.producer_epoch)
    return ProducerIdentity(response.producer_id, response.producer_epoch)
