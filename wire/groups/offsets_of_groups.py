"""Committed offsets of many groups: a request for each coordinator, however many groups it has (KIP-709).

For an overview of a cluster's groups, as :func:`~pykafka_wire.wire.cluster.groups.list_groups` has found them. One group's offsets
are :mod:`~pykafka_wire.wire.groups.committed_offsets`'.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.groups import ListedGroup
from pykafka_wire.wire.error_codes import error_info
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.groups.committed_offsets import (
    FIRST_BATCHED_VERSION,
    GROUP_ID_NOT_FOUND,
    LAST_VERSION_BY_NAME,
    CommittedOffset,
    fetch_offsets,
    offsets_of_group,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: Groups of one request: their offsets are in one response. At 1,000 partitions a group it has some 50 MB.
_MAX_GROUPS: Final = 1_000

Offsets = dict[TopicPartition, CommittedOffset]


def fetch_offsets_of_groups(
    cluster: Cluster, groups: Iterable[ListedGroup], *, deadline: Deadline | None = None
) -> dict[str, Offsets]:
    """The groups' committed offsets by the groups' names, without groups whose offsets cannot be fetched: they may be forbidden, or
    were deleted a moment ago.

    Before Kafka 3.0 each group takes a request of its own, and so does one whose coordinator has moved.

    Raises:
        TransportError: a coordinator has not responded in time.
    """
    by_node: dict[int, list[str]] = {}
    for group in groups:
        by_node.setdefault(group.coordinator, []).append(group.name)
    found: dict[str, Offsets] = {}
    alone: list[str] = []
    for node, names in by_node.items():
        if not cluster.supports(node, OffsetFetchRequest, FIRST_BATCHED_VERSION, deadline=deadline):
            alone += names
            continue
        for first in range(0, len(names), _MAX_GROUPS):
            for entry in _fetch(cluster, node, names[first : first + _MAX_GROUPS], deadline):
                if error_info(entry.error_code).retriable:  # its broker is not, or not yet, the coordinator
                    alone.append(entry.group_id)
                elif (offsets := _offsets(entry)) is not None:
                    found[entry.group_id] = offsets
    for name in alone:
        try:
            found[name] = fetch_offsets(cluster, name, None, deadline=deadline)
        except BrokerError as error:
            logger.debug("group %s: its offsets cannot be fetched: %s", name, error)
    return found


def _fetch(
    cluster: Cluster, node: int, names: Sequence[str], deadline: Deadline | None
) -> Sequence[OffsetFetchResponseGroup]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
    response = cluster.request(node, request, deadline=deadline, version_cap=LAST_VERSION_BY_NAME)
    wanted = set(names)
    return [entry for entry in response.groups if entry.group_id in wanted]


def _offsets(entry: OffsetFetchResponseGroup) -> Offsets | None:
    """The offsets of one group; None where it, or one of its topics, is refused."""
    codes = {entry.error_code, *(code for _, _, code, _ in offsets_of_group(entry))} - {0, GROUP_ID_NOT_FOUND}
    if codes:
        logger.debug("group %s: its offsets cannot be fetched: error codes %s", entry.group_id, sorted(codes))
        return None
    return {
        TopicPartition(topic, partition): committed
        for topic, partition, code, committed in offsets_of_group(entry)
        if not code and committed.offset >= 0
    }
