"""Estimates how many bytes of the log one offset takes, so that planning tells a small range from a large one.

The number of offsets is no measure of bytes: 1,000 of them may be 100 kB or 1 GB. Where it matters, one small Fetch per topic
samples the first batches of a range. An estimate affects only how work is shared out, never what is read. That of a micro-batch is
logged with its end, so that a replay shares it out in the same way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pykafka_wire.source.planning.trigger_limits import Offsets, share_bytes, total_bytes
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.fetch.batch_samples import sample_batches
from pykafka_wire.wire.topic_partitions import OffsetRange

_log = logging.getLogger(__name__)

#: Assumed where nothing was sampled: an ordinary record.
ASSUMED_BYTES: Final = 1024.0
#: Below so many offsets in all, a sample costs more than a badly balanced plan: 32 records of 1 MiB, the brokers' default
#: limit for a batch, are what one task takes anyway.
_MIN_OFFSETS_TO_SAMPLE: Final = 32
#: Where records become larger within a batch that a limit in bytes allows, it is halved so often at most. Each time takes a sample.
_HALVINGS: Final = 6
#: A topic's records seldom change their size: a sample is good for so long.
_MAX_AGE_S: Final = 300.0


class RecordSizes:
    """Estimates per topic, remembered for some minutes."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}

    def estimate(self, ranges: Sequence[OffsetRange]) -> dict[str, float]:
        """Return estimated bytes per offset for each topic in ``ranges``, for sharing out work; empty where there is too
        little of it."""
        if len(ranges) < 2 or sum(r.n_offsets for r in ranges) <= _MIN_OFFSETS_TO_SAMPLE:
            return {}
        self.sample(ranges)
        return {r.topic: self.known(r.topic) or ASSUMED_BYTES for r in ranges}

    def known(self, topic: str) -> float | None:
        """Return bytes per offset as last observed in a topic, None if never."""
        return self._known[topic][0] if topic in self._known else None

    def sample(self, ranges: Sequence[OffsetRange], *, fresh: bool = False) -> None:
        """Sample the beginning of each topic's largest range, unless that was done some minutes ago."""
        now = self._clock()
        unknown = [r for r in _largest(ranges) if fresh or self._age(r.topic, now) > _MAX_AGE_S]
        self._known |= {topic: (size, now) for topic, size in self._sample(unknown).items()}

    def sample_ends(self, ranges: Sequence[OffsetRange]) -> dict[str, float]:
        """Return bytes per offset by topic: the mean of what is known and of a sample at the end of each topic's largest
        range, for records may change their size within it."""
        ends = self._sample([replace(r, start_offset=r.end_offset - 1) for r in _largest(ranges)])
        return {topic: (size + ends.get(topic, size)) / 2 for topic, (size, _) in self._known.items()}

    def _sample(self, ranges: Sequence[OffsetRange]) -> dict[str, float]:
        try:
            samples = sample_batches(self._cluster, ranges)
        except WireError as error:
            _log.debug("No sample of record sizes: %s", error)  # nothing that must be exact depends on an estimate
            return {}
        return {topic: n_bytes / max(1, n_offsets) for topic, (n_bytes, n_offsets) in samples.items()}

    def _age(self, topic: str, now: float) -> float:
        return now - self._known[topic][1] if topic in self._known else float("inf")


def _largest(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the largest range of each topic."""
    largest: dict[str, OffsetRange] = {}
    for r in ranges:
        if r.n_offsets and (r.topic not in largest or r.n_offsets > largest[r.topic].n_offsets):
            largest[r.topic] = r
    return list(largest.values())


def sizes_for_limit(sizes: RecordSizes, starts: Offsets, ends: Offsets, max_bytes: int) -> dict[str, float]:
    """Return bytes per offset by topic, for a micro-batch of about ``max_bytes`` between ``starts`` and ``ends``: by the size
    of its first records; where its last records turn out to be larger, by both, or those of a batch of half the size, as long
    as that helps."""
    sizes.sample(ranges_between(starts, ends), fresh=True)
    first = estimated = mean = {tp.topic: sizes.known(tp.topic) or ASSUMED_BYTES for tp in ends}

    def share(bytes_per_offset: Mapping[str, float]) -> float:
        return min(1.0, max_bytes / total_bytes(starts, ends, bytes_per_offset))

    for _ in range(_HALVINGS):
        mean = first | sizes.sample_ends(ranges_between(starts, share_bytes(starts, ends, max_bytes, estimated)))
        if share(mean) >= share(estimated):
            return estimated
        if share(mean) >= share(estimated) / 2:
            break
        scale = 2 * max_bytes / (share(estimated) * total_bytes(starts, ends, estimated))
        estimated = {topic: size * scale for topic, size in estimated.items()}
    return mean


def ranges_between(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """Return one range for each topic-partition of ``ends``."""
    return [
        OffsetRange(topic=tp.topic, partition=tp.partition, start_offset=starts.get(tp, 0), end_offset=end)
        for tp, end in ends.items()
    ]
