"""Which offsets of planned ranges retention has deleted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pykafka_wire.errors import Loss
from pykafka_wire.source.planning.offset_lookups import earliest_offsets
from pykafka_wire.source.progress.data_loss import DataLossReporter
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.topic_partitions import OffsetRange


def skip_aged_out(
    cluster: Cluster, ranges: Sequence[OffsetRange], losses: DataLossReporter, *, query: str = ""
) -> list[OffsetRange]:
    """``ranges`` without the offsets that retention has deleted.

    Raises:
        DataLossError: some are deleted, and ``failOnDataLoss`` is true.
    """
    earliest = earliest_offsets(cluster, (r.topic_partition for r in ranges if r.n_offsets))
    first = {tp: offset for tp, offset in earliest.items() if offset > 0}
    kept = [
        replace(r, start_offset=min(first[r.topic_partition], r.end_offset))
        if r.start_offset < first.get(r.topic_partition, 0) and r.n_offsets
        else r
        for r in ranges
    ]
    lost = [
        (old.topic_partition, old.start_offset, new.start_offset)
        for old, new in zip(ranges, kept, strict=True)
        if new is not old
    ]
    losses.report(Loss.START_OFFSET_OUT_OF_RANGE, lost, query=query, topic_ids={r.topic: r.topic_id for r in ranges})
    return kept
