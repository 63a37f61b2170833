"""What of a topic is in tiered storage only (KIP-405), for ``doctor``."""

from __future__ import annotations

from collections.abc import Iterable

from pykafka_wire.cli.checks import Check
from pykafka_wire.cli.output import counted
from pykafka_wire.wire.cluster.admin import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import UnsupportedVersionError
from pykafka_wire.wire.topic_partitions import TopicPartition


def tiers_check(cluster: Cluster, topic: str, partitions: Iterable[int], *, deadline: Deadline) -> Check | None:
    """How many of a topic's offsets are in the remote store only; None if none is, or the brokers are too old to know.

    Raises:
        WireError: the look-up failed.
    """
    places = [TopicPartition(topic, partition) for partition in sorted(partitions)]

    def offsets(special: int) -> list[int]:
        found = list_offsets(cluster, dict.fromkeys(places, special), deadline=deadline)
        return [found[tp].offset for tp in places]

    try:
        local = offsets(EARLIEST_LOCAL)
        tiered = offsets(LATEST_TIERED)
    except UnsupportedVersionError:
        return None
    if not any(last >= 0 for last in tiered):  # -1: the topic has no tiered storage, or nothing is copied yet
        return None
    starts, ends = offsets(EARLIEST), offsets(LATEST)
    n_remote = sum(max(0, first - start) for first, start in zip(local, starts, strict=True))
    n_copied = sum(max(0, last + 1 - start) for last, start in zip(tiered, starts, strict=True))
    n_all = sum(end - start for start, end in zip(starts, ends, strict=True))
    n_partitions = sum(first > start for first, start in zip(local, starts, strict=True))
    share = f"{100 * n_remote / n_all:.0f} %" if n_all else "none"
    return Check(
        name="tiered storage",
        where=topic,
        result="ok",
        found=f"{share} of {counted(n_all, 'offset')} only in the remote store, in {counted(n_partitions, 'partition')}; "
        f"{n_copied} copied there in all",
    )
