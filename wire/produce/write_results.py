"""What a producer has done, in numbers. Owns no more than the sums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerCounters:
    """What a producer did so far: acknowledged batches, records and bytes (compressed), requests, batches resent."""

    n_batches: int = 0
    n_records: int = 0
    n_bytes: int = 0
    n_requests: int = 0
    n_retries: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the log holds of one topic-partition since the last flush.

    Offsets are -1 where no answer says any: with ``acks=0`` none does, and a batch found there already
    (DUPLICATE_SEQUENCE_NUMBER) comes without one.
    """

    n_records: int
    n_bytes: int
    first_offset: int
    last_offset: int

    def plus(self, later: Delivered) -> Delivered:
        """Both together."""
        return Delivered(
            self.n_records + later.n_records,
            self.n_bytes + later.n_bytes,
            self.first_offset if self.first_offset >= 0 else later.first_offset,
            max(self.last_offset, later.last_offset),
        )
