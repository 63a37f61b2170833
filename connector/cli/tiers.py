"""The local and remote parts of a topic's log with tiered storage, for ``topics describe`` and ``doctor`` (KIP-405, KIP-1005)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.cli.offsets import offsets_at
from pykafka_wire.cli.output import counted
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST_LOCAL, LATEST_TIERED
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import UnsupportedVersionError
from pykafka_wire.wire.topic_partitions import TopicPartition

#: The topic config that enables tiered storage.
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOffsets:
    """Attributes:
    earliest_local: the first offset in the leader's local log. Earlier offsets are only in the remote store.
    latest_tiered: the last offset copied to the remote store; -1 if there is none yet.
    """

    earliest_local: int
    latest_tiered: int


def tier_offsets(
    cluster: Cluster, places: Collection[TopicPartition], *, deadline: Deadline | None = None
) -> dict[TopicPartition, TierOffsets]:
    """Return the tier offsets of each topic-partition; empty if no record is in the remote store, or if the brokers are too old.

    Raises:
        WireError: the look-up failed.
    """
    try:
        local = offsets_at(cluster, places, EARLIEST_LOCAL, deadline=deadline)
        tiered = offsets_at(cluster, places, LATEST_TIERED, deadline=deadline)
    except UnsupportedVersionError:
        return {}
    if not any(offset >= 0 for offset in tiered.values()):
        return {}
    return {tp: TierOffsets(earliest_local=local[tp], latest_tiered=tiered[tp]) for tp in places}


def remote_share(
    tiers: Mapping[TopicPartition, TierOffsets],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> str:
    """Return the share of offsets that are only in the remote store, as text.

    Args:
        starts: the first offset of each topic-partition, local or remote.
        ends: the next offset of each topic-partition.
    """
    n_remote = sum(max(0, tier.earliest_local - starts[tp]) for tp, tier in tiers.items())
    n_copied = sum(max(0, tier.latest_tiered + 1 - starts[tp]) for tp, tier in tiers.items())
    n_partitions = sum(tier.earliest_local > starts[tp] for tp, tier in tiers.items())
    n_all = sum(ends[tp] - starts[tp] for tp in tiers)
    share = f"{100 * n_remote / n_all:.0f} %" if n_all else "none"
    return (
        f"{share} of {counted(n_all, 'offset')} only in the remote store, in {counted(n_partitions, 'partition')}; "
        f"{n_copied} copied there in all"
    )
