"""What happens to a batch after a response, or without one."""

from __future__ import annotations

from dataclasses import dataclass

from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.produce.split_batches import RejectedRecords
from pykafka_wire.wire.records.batches import EncodedBatch


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The batch is in the log, at `base_offset` (-1 where the answer does not say)."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class Retried:
    """The batch is to be sent again as it is.

    Attributes:
        may_be_written: it may be in the log, though it is not acknowledged.
        find_leader: the broker that was asked may not lead the topic-partition any more.
    """

    error: WireError
    may_be_written: bool
    find_leader: bool


@dataclass(frozen=True, slots=True)
class Restarted:
    """The broker does not know the producer: the batch is to be sent again under the producer's next epoch."""

    error: WireError


@dataclass(frozen=True, slots=True)
class Replaced:
    """The batch was not written, and others take its place.

    Attributes:
        batches: of the same records or fewer, in the same order.
        rejected: the records that are in none of them, if any.
        too_large: the broker found the batch too large.
    """

    batches: list[EncodedBatch]
    rejected: list[RejectedRecords]
    too_large: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch cannot be delivered, and nothing may be written after it."""

    error: WireError
    cause: WireError | None = None


Outcome = Acknowledged | Retried | Restarted | Replaced | Failed
