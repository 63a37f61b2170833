"""Where records would end whose keys, values and headers have the same size in the whole batch: sensor readings, counters, markers.

Owns this guess only: arithmetic on the sizes of batches and of their first records. Whether it is right is
:mod:`~pykafka_wire.wire.records.record_scanner`'s to check. https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pykafka_wire.wire.records.varints import Ints

#: From this number on a delta takes a second byte: varints are zigzag numbers.
_TWO_BYTES: Final = 64


def regular_ends(first_sizes: Ints, batch_starts: Ints, batch_ends: Ints, counts: Ints) -> Ints | None:
    """The end of each record if a batch's records differ in size by their deltas only; int64[n_records]. None where the size of
    a batch rules that out.

    Offset deltas are 0, 1, 2 and so on. Timestamp deltas grow, too: from which record on they take a second byte follows from
    the size of the batch.

    Args:
        first_sizes: int64[n_batches], the size of each batch's first record, with its length.
        batch_starts, batch_ends, counts: as :func:`~pykafka_wire.wire.records.record_scanner.record_bounds` takes them.
    """
    n_long_offsets = np.maximum(counts - _TWO_BYTES, 0)
    n_long_timestamps = batch_ends - batch_starts - counts * first_sizes - n_long_offsets
    if ((n_long_timestamps < 0) | (n_long_timestamps > counts)).any():
        return None
    shorter = counts - np.maximum(n_long_offsets, n_long_timestamps)
    longest = np.minimum(n_long_offsets, n_long_timestamps)
    runs = np.stack([shorter, counts - shorter - longest, longest], axis=1).ravel()
    sizes = np.repeat((first_sizes[:, None] + np.arange(3)).ravel(), runs)
    # The first record of a batch begins behind the gap between two batches.
    sizes[np.cumsum(counts) - counts] += batch_starts - np.append(0, batch_ends[:-1])
    ends: Ints = np.cumsum(sizes)
    return ends
