"""Groups as their coordinators report them. Nothing here changes anything.

KIP-430 (authorized operations), KIP-518 (states in lists), KIP-848 (the consumer protocol, with a description of its own).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster, CoordinatorKind, Deadline
from pykafka_wire.wire.cluster.describe import Operation, operations_of
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.errors import UnsupportedVersionError, broker_error
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupDescribeRequest, Member
from pykafka_wire.wire.protocol.messages.group import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)

#: From version 6 a group that does not exist is an error, and says nothing of permissions.
_LAST_DESCRIBE_WITH_DEAD: Final = 5
_GROUP_ID_NOT_FOUND: Final = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group as its coordinator sees it; ``operations`` is None where brokers are too old to report them."""

    state: str
    members: Sequence[str]
    operations: frozenset[Operation] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in the list of its coordinator.

    Attributes:
        protocol_type: ``consumer`` for groups of consumers, empty for one that only has committed offsets.
        state: empty where brokers are older than Kafka 2.6.
        kind: ``Consumer`` for the protocol of KIP-848, ``Classic``, ``Share``, …; empty before Kafka 3.8.
        coordinator: the node id of the broker that has listed it.
    """

    name: str
    protocol_type: str
    state: str
    kind: str
    coordinator: int


def list_groups(cluster: Cluster, *, deadline: Deadline | None = None) -> list[ListedGroup]:
    """Every group that we may see, of all coordinators, by name.

    Raises:
        BrokerError: a broker refuses the list.
        TransportError: a broker of the cluster does not respond: its groups would be missing.
    """
    retry = cluster.retry(deadline)

    def ask() -> list[ListedGroup]:
        # Those of now: other brokers take over the groups of one that leaves the cluster, and give some to a new one.
        nodes = cluster.metadata.brokers(refresh=True, deadline=retry.deadline)
        pending = {node: cluster.send(node, ListGroupsRequest(), deadline=retry.deadline) for node in nodes}
        return _listed(cluster, pending, retry.deadline)

    return retry.run(ask, "ListGroups of all brokers")


def _listed(
    cluster: Cluster, pending: Mapping[int, ResponseFuture[ListGroupsResponse]], deadline: Deadline
) -> list[ListedGroup]:
    found: dict[str, ListedGroup] = {}
    for node, each in pending.items():
        response = each.result(deadline.at_most_ms(cluster.settings.request_timeout_ms), deadline)
        if response.error_code:
            raise broker_error(response.error_code, broker=node, api="ListGroups", version=each.version)
        for group in response.groups:
            found[group.group_id] = ListedGroup(
                name=group.group_id,
                protocol_type=group.protocol_type,
                state=group.group_state,
                kind=group.group_type.capitalize(),  # brokers send small letters; this is how Kafka's tools print it
                coordinator=node,
            )
    return [found[name] for name in sorted(found)]


def describe_group(cluster: Cluster, group: str) -> Group:
    """A group's state, its members (client id and host) and what we may do with it. One that does not exist is Dead.

    Raises:
        BrokerError: it may not be described.
    """
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    responses = cluster.by_coordinator(CoordinatorKind.GROUP, {group: request}, version_cap=_LAST_DESCRIBE_WITH_DEAD)
    described = responses[group].groups[0]
    if described.error_code not in (0, _GROUP_ID_NOT_FOUND):
        raise broker_error(described.error_code, api="DescribeGroups", detail=f"(group {group!r})")
    # Brokers that are not Apache's; Apache's only from version 6 on.
    missing = described.error_code == _GROUP_ID_NOT_FOUND
    found = Group(
        state="Dead" if missing else described.group_state,
        members=_members(described.members),
        operations=None if missing else operations_of(described.authorized_operations),
    )
    # DescribeGroups takes a group of the protocol of KIP-848 for one that does not exist.
    return (_describe_consumer_group(cluster, group) or found) if found.state == "Dead" else found


def _describe_consumer_group(cluster: Cluster, group: str) -> Group | None:
    """A group of the consumer protocol of KIP-848; None for any other, and where brokers do not know the protocol."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    try:
        responses = cluster.by_coordinator(CoordinatorKind.GROUP, {group: request})
    except UnsupportedVersionError:
        return None
    described = responses[group].groups[0]
    if described.error_code == _GROUP_ID_NOT_FOUND:
        return None
    if described.error_code:
        raise broker_error(described.error_code, api="ConsumerGroupDescribe", detail=f"(group {group!r})")
    return Group(
        state=described.group_state,
        members=_members(described.members),
        operations=operations_of(described.authorized_operations),
    )


def _members(members: Iterable[DescribedGroupMember | Member]) -> list[str]:
    return [f"{member.client_id} at {member.client_host.lstrip('/')}" for member in members]
