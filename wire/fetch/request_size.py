"""The number of bytes that a Fetch requests of one range: an estimate of the rest of the range, by the size of earlier batches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykafka_wire.wire.fetch.batch_scan import BatchScan

#: The size of a record, batch overhead included, where no batch of the partition is known; it only has to be about right, since
#: it bounds how much is fetched beyond the end of a short range.
_FIRST_BYTES_PER_OFFSET: Final = 1024
#: Headroom over this estimate, and what is added to it: asking for too little costs one more round trip, and 64 KiB is four
#: batches as Java's producer makes them (batch.size 16 KiB).
_HEADROOM: Final = 1.25
_MIN_FETCH_BYTES: Final = 65_536


class BatchSize(NamedTuple):
    """How large batches are: for each offset, and the largest of them."""

    bytes_per_offset: float
    batch_bytes: int


@dataclass(slots=True, eq=False)
class RequestSize:
    """How many bytes to ask for of one range.

    Attributes:
        min_bytes: a floor, raised when a batch did not fit.
        batch_size: of the last batches of the range; before there were any, of those that were read before it, None if unknown.
        read_ahead_bytes: a floor where later ranges are expected to begin with what is beyond the end.
    """

    min_bytes: int = 0
    batch_size: BatchSize | None = None
    read_ahead_bytes: int = 0

    def wanted_bytes(self, n_offsets: int, max_bytes: int, *, is_start: bool) -> int:
        """Return how many bytes to ask for; beyond `max_bytes` only for one large batch.

        Args:
            n_offsets: how many offsets are left of the range.
            is_start: whether nothing of the range was read yet.
        """
        if self.batch_size is None:
            n_bytes = int(n_offsets * _FIRST_BYTES_PER_OFFSET * _HEADROOM) + _MIN_FETCH_BYTES
        else:
            # Batches come whole: the last one, and the first one of a range that begins inside of it.
            n_bytes = int(n_offsets * self.batch_size.bytes_per_offset) + (1 + is_start) * self.batch_size.batch_bytes
        return max(self.min_bytes, min(max(n_bytes, self.read_ahead_bytes), max_bytes))

    def learn(self, scan: BatchScan, position: int) -> None:
        """Take the size of the batches that were scanned from `position` on. They have come: no batch is too large any more."""
        if scan.n_bytes:
            n_offsets = max(1, scan.next_offset - min(scan.first_offset, position))
            starts = (*scan.batch_starts, scan.n_bytes)
            batch_bytes = max(after - start for start, after in itertools.pairwise(starts))
            self.batch_size = BatchSize(scan.n_bytes / n_offsets, batch_bytes)
        self.min_bytes = 0

    def enlarge(self, needed_bytes: int) -> bool:
        """Ask for the whole of a batch that did not fit. Return whether more is asked for now than before."""
        if self.min_bytes >= needed_bytes:
            return False
        self.min_bytes = needed_bytes
        return True
