"""What planning asks of brokers: the subscribed topics, the ends of logs, offsets for timestamps and groups, and what retention has
deleted.

Runs on the driver only. Look-ups of many topic-partitions are sent together, one request to each broker.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache

from pykafka_wire.errors import Loss, OffsetsError, OptionError
from pykafka_wire.options.source import Subscription
from pykafka_wire.options.starting_offsets import EARLIEST, LATEST, OffsetSpec
from pykafka_wire.source.data_loss import DataLossReporter
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import ListedOffset, list_offsets, offsets_for_leader_epoch
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)


def find_topics(
    cluster: Cluster, subscription: Subscription, *, max_age_ms: float = 0, may_be_missing: bool = False
) -> dict[str, TopicMetadata]:
    """Return metadata of the subscribed topics; a pattern may match none.

    Raises:
        UnknownTopicError: a topic named by the user does not exist, and ``may_be_missing`` is false.
    """
    if subscription.pattern:
        every = cluster.metadata.topics(None, max_age_ms=max_age_ms)
        matching = {
            name: topic for name, topic in every.items() if not topic.is_internal and subscription.matches(name)
        }
        _warn_of_no_match(subscription.pattern, bool(matching))
        return matching
    names = subscription.topics or tuple(dict.fromkeys(tp.topic for tp in subscription.assigned))
    if may_be_missing:
        every = cluster.metadata.topics(None, max_age_ms=max_age_ms)
        return {name: every[name] for name in names if name in every}
    return cluster.metadata.topics(names, max_age_ms=max_age_ms)


@lru_cache(maxsize=64)
def _warn_of_no_match(pattern: str, has_match: bool) -> None:
    # Cached: a stream lists its topics again and again, and warns once.
    if not has_match:
        _log.warning(
            "[PYKAFKA_WIRE_NO_TOPIC] subscribePattern %r matches no topic that this principal may describe. Nothing is read until "
            "such a topic exists. Check the pattern (internal topics never match) and the "
            "Describe permission.",
            pattern,
        )


def topic_partitions(subscription: Subscription, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """Return the topic-partitions of ``topics`` that a subscription reads, sorted.

    Raises:
        OptionError: ``assign`` names a partition that the topic does not have.
    """
    if subscription.assigned:
        assigned = [tp for tp in subscription.assigned if tp.topic in topics]
        for topic, partition in assigned:
            n_partitions = len(topics[topic].partitions)
            if partition not in topics[topic].partitions:
                raise OptionError(
                    f"assign names partition {partition} of topic {topic}, which has {n_partitions} partitions "
                    f"(0 to {n_partitions - 1})."
                )
        return assigned
    return sorted(TopicPartition(name, partition) for name, topic in topics.items() for partition in topic.partitions)


def topic_ids_of(topics: Mapping[str, TopicMetadata]) -> dict[str, uuid.UUID]:
    """Return ids of topics by name; old brokers have none."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id != ZERO_UUID}


def latest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation_level: str
) -> dict[TopicPartition, ListedOffset]:
    """Return the end of each log; with ``read_committed`` its last stable offset."""
    return list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=isolation_level)


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the first offset of each log that still exists."""
    listed = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {tp: first.offset for tp, first in listed.items()}


def skip_aged_out(
    cluster: Cluster, ranges: Sequence[OffsetRange], losses: DataLossReporter, *, query: str = ""
) -> list[OffsetRange]:
    """Return ``ranges`` without the offsets that retention has deleted.

    Raises:
        DataLossError: some are deleted, and ``failOnDataLoss`` is true.
    """
    earliest = earliest_offsets(cluster, [r.topic_partition for r in ranges if r.n_offsets])
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


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, ListedOffset]
) -> dict[TopicPartition, int]:
    """Return where the present leaders' logs end for these leader epochs, as far as another epoch leads now (KIP-320).

    Args:
        latest: the ends of these logs.
    """
    others = {tp: epoch for tp, epoch in epochs.items() if latest[tp].leader_epoch not in (-1, epoch)}
    return {tp: end for tp, (_, end) in offsets_for_leader_epoch(cluster, others).items()} if others else {}


def diverging_offsets(
    cluster: Cluster,
    positions: Mapping[TopicPartition, Position],
    latest: Mapping[TopicPartition, ListedOffset] | None = None,
) -> dict[TopicPartition, int]:
    """Return where the leaders' logs differ from those that positions are from: they were truncated below these positions, and may
    have grown past them again (KIP-320). A position without a leader epoch cannot be compared; under its own epoch a log is not
    truncated.

    Args:
        latest: the ends of these logs, where they are known; they are looked up when None.
    """
    epochs = {tp: position.leader_epoch for tp, position in positions.items() if position.leader_epoch >= 0}
    if not epochs:
        return {}
    ends_now = latest_offsets(cluster, epochs, "read_uncommitted") if latest is None else latest
    ends = epoch_ends(cluster, epochs, ends_now)
    return {tp: end for tp, end in ends.items() if 0 <= end < positions[tp].offset}


def resolve_positions(
    cluster: Cluster,
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    *,
    option: str,
    isolation_level: str,
    group: str | None = None,
) -> dict[TopicPartition, Position]:
    """Return the offset of each topic-partition that ``spec`` asks for, with the leader epoch that a group has committed with it.

    Args:
        spec: any but a checkpoint's, which :mod:`~pykafka_wire.source.planning.checkpoint_reads` looks up.
        option: the option's name, for errors.
        group: the group whose committed offsets are asked for by ``group``.

    Raises:
        OptionError: offsets or timestamps do not name exactly the subscribed topic-partitions.
        OffsetsError: no record is at or after a timestamp, or the group has no offset, and the strategy is error.
    """
    if spec.kind in ("offsets", "timestamps"):
        _require_same_partitions(spec.by_partition, partitions, option)
    if spec.kind == "group":
        return _group_positions(cluster, spec, partitions, group or "", isolation_level)
    if spec.kind == "earliest":
        asked = dict.fromkeys(partitions, EARLIEST)
    elif spec.kind == "latest":
        asked = dict.fromkeys(partitions, LATEST)
    elif spec.kind == "timestamp":
        asked = dict.fromkeys(partitions, spec.timestamp_ms)
    else:
        asked = dict(spec.by_partition)
    known = {tp: offset for tp, offset in asked.items() if spec.kind == "offsets" and offset >= 0}
    lookups = {tp: value for tp, value in asked.items() if tp not in known}
    # Before the timestamps are looked up: a record that is appended between the two look-ups is after this end, and is read.
    by_end = spec.kind in ("timestamp", "timestamps") and spec.on_missing == "latest"
    ends = latest_offsets(cluster, lookups if by_end else (), isolation_level)
    by_timestamp = {
        tp: listed.offset for tp, listed in list_offsets(cluster, lookups, isolation_level=isolation_level).items()
    }
    missing = [tp for tp in lookups if by_timestamp[tp] < 0]  # no record at or after the timestamp
    if missing:
        if not by_end:
            moments = ", ".join(f"{tp} at {_time_text(lookups[tp])}" for tp in missing[:10])
            raise OffsetsError(
                f"{option}: there is no record at or after the timestamp in {moments}. Choose an earlier timestamp, or set "
                "startingOffsetsByTimestampStrategy to latest."
            )
        by_timestamp |= {tp: ends[tp].offset for tp in missing}
    return {tp: Position(offset) for tp, offset in (known | by_timestamp).items()}


def _group_positions(
    cluster: Cluster, spec: OffsetSpec, partitions: Collection[TopicPartition], group: str, isolation_level: str
) -> dict[TopicPartition, Position]:
    committed = fetch_offsets(cluster, group, list(partitions), require_stable=True)
    by_group = {
        tp: Position(committed[tp].offset, committed[tp].leader_epoch)
        for tp in partitions
        if tp in committed and committed[tp].offset >= 0
    }
    missing = [tp for tp in partitions if tp not in by_group]
    if not missing:
        return by_group
    if spec.on_missing == "error":
        raise OffsetsError(
            f"group {group} has committed no offset for {', '.join(map(str, missing[:10]))}: set "
            "startingOffsetsByGroupStrategy to earliest or latest."
        )
    where = EARLIEST if spec.on_missing == "earliest" else LATEST
    listed = list_offsets(cluster, dict.fromkeys(missing, where), isolation_level=isolation_level)
    return by_group | {tp: Position(found_offset.offset) for tp, found_offset in listed.items()}


def _require_same_partitions(
    named: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], option: str
) -> None:
    missing = sorted(set(partitions) - set(named))
    surplus = sorted(set(named) - set(partitions))
    if missing or surplus:
        parts = [f"it leaves out {', '.join(map(str, missing[:10]))}"] if missing else []
        parts += [f"it names {', '.join(map(str, surplus[:10]))}, which are not subscribed"] if surplus else []
        raise OptionError(f"{option} must name exactly the subscribed topic-partitions: {' and '.join(parts)}.")


def _time_text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{timestamp_ms} ms (micro- or nanoseconds?)"
