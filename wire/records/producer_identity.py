"""Which producer a batch or a transaction is of. Loads no NumPy, which takes longer than most commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Producer epochs are int16.
_LAST_EPOCH: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch that brokers tell producers apart by (KIP-98): what InitProducerId returned. Without idempotence
    both are -1, and batches carry no producer id."""

    producer_id: int = -1
    producer_epoch: int = -1

    def with_next_epoch(self) -> ProducerIdentity | None:
        """Return the same producer under the next epoch (KIP-360); None after the last one: a new producer id is needed.

        Only without a transactional id. With one, its coordinator gives epochs out.
        """
        if self.producer_epoch == _LAST_EPOCH:
            return None
        return ProducerIdentity(self.producer_id, self.producer_epoch + 1)
