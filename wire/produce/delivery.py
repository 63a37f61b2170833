"""How a producer's settings and its transaction have batches delivered: acks, idempotence, requests in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.produce.identity import TransactionScope
from pykafka_wire.wire.settings import ClientSettings

#: The broker remembers the last five batches of a producer per partition: with more in flight it could not distinguish a
#: retried batch from a new one (KAFKA-5494).
_MOST_IN_FLIGHT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What every Produce request of one producer has in common.

    Attributes:
        acks: as the protocol has it: -1 for ``all``.
        max_in_flight: the most requests without an answer that one broker may have.
        timeout_ms: how long a broker may wait for replication.
    """

    acks: int
    idempotent: bool
    max_in_flight: int
    timeout_ms: int
    transaction: TransactionScope | None

    @classmethod
    def of(cls, settings: ClientSettings, transaction: TransactionScope | None) -> Delivery:
        """The delivery that `settings` ask for; in a transaction, ``acks=all`` and idempotent whatever they say."""
        acks = -1 if transaction else {"all": -1, "-1": -1, "1": 1, "0": 0}[str(settings.acks)]
        idempotent = bool(transaction) or (settings.enable_idempotence and acks == -1)
        max_in_flight = settings.max_in_flight_requests_per_connection
        return cls(
            acks=acks,
            idempotent=idempotent,
            max_in_flight=min(max_in_flight, _MOST_IN_FLIGHT) if idempotent else max_in_flight,
            timeout_ms=settings.request_timeout_ms,
            transaction=transaction,
        )
