"""Offsets by time and by epoch, the life of topics, and their configs: the requests around reading and writing.

Look-ups of many topic-partitions go out as one request a leader, to all leaders at the same time. Routing and retries are
:mod:`~pykafka_wire.wire.cluster.client`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pykafka_wire.wire.cluster.client import ANY, CONTROLLER, Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import UnsupportedVersionError, broker_error
from pykafka_wire.wire.protocol.message import ByVersion
from pykafka_wire.wire.protocol.messages.admin import (
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
)
from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykafka_wire.wire.topic_partitions import TopicPartition, group_by_topic

#: In place of a timestamp: the end of the log (with read_committed its last stable offset), its first offset that still
#: exists, the record with the highest timestamp (KIP-734), the first offset on the leader's own disk (KIP-405), and the last
#: offset in tiered storage (KIP-1005).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_CONSUMER_REPLICA: Final = -1
_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
#: The first ListOffsets that knows what stands for a timestamp, and its release: an older broker would take it for a time, and
#: respond with something else.
_SINCE: Final = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL: (8, "3.4"), LATEST_TIERED: (9, "3.9")}
_FIRST_DELETE_BY_ID: Final = 6
#: DYNAMIC_TOPIC_CONFIG of the protocol's ConfigSource.
_OF_TOPIC: Final = 1
_SET: Final = 0
_DELETE: Final = 1


class ListedOffset(NamedTuple):
    """An offset found by time. ``offset`` is -1 where no record is as late; ``timestamp`` is that record's in ms, -1 where
    the look-up was for an end of the log; ``leader_epoch`` is -1 if unknown."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: str = "read_uncommitted",
    deadline: Deadline | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """Return, for each topic-partition, the first offset whose record is at least as late as its timestamp.

    Args:
        timestamps: milliseconds since the epoch, or :data:`LATEST`, :data:`EARLIEST`, :data:`MAX_TIMESTAMP`,
            :data:`EARLIEST_LOCAL`, :data:`LATEST_TIERED`.

    Raises:
        UnsupportedVersionError: a leader is too old for :data:`MAX_TIMESTAMP`, :data:`EARLIEST_LOCAL` or :data:`LATEST_TIERED`.
        WireError: as :meth:`Cluster.by_leader`.
    """

    def build(partitions: Sequence[TopicPartition], version: int) -> ListOffsetsRequest:
        for special in {timestamps[tp] for tp in partitions} & _SINCE.keys():
            first, release = _SINCE[special]
            if version < first:
                what = "the highest timestamp" if special == MAX_TIMESTAMP else "which offsets are in tiered storage"
                raise UnsupportedVersionError(
                    f"the broker cannot look up {what}", api="ListOffsets", remedy=f"It needs Kafka {release} or newer."
                )
        return ListOffsetsRequest(
            replica_id=_CONSUMER_REPLICA,
            isolation_level=int(isolation_level == "read_committed"),
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=tp.partition,
                            current_leader_epoch=cluster.metadata.leader(tp)[1],
                            timestamp=timestamps[tp],
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in group_by_topic(partitions).items()
            ],
            timeout_ms=cluster.settings.request_timeout_ms,
        )

    def results(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, ListedOffset]]:
        for topic in response.topics:
            for p in topic.partitions:
                listed = ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                yield TopicPartition(topic.name, p.partition_index), p.error_code, listed

    return cluster.by_leader(
        timestamps, lambda tps: ByVersion(ListOffsetsRequest, partial(build, tps)), results, deadline=deadline
    )


def offsets_for_leader_epoch(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], *, deadline: Deadline | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return ``(epoch, end_offset)`` of the largest leader epoch that is not above the one asked for, as the leader knows it.

    An end offset below what was read in that epoch means that the log was cut (KIP-320); -1 where it is unknown.
    """

    def build(partitions: Sequence[TopicPartition]) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER_REPLICA,
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=tp.partition,
                            current_leader_epoch=cluster.metadata.leader(tp)[1],
                            leader_epoch=epochs[tp],
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in group_by_topic(partitions).items()
            ],
        )

    def results(response: OffsetForLeaderEpochResponse) -> Iterable[tuple[TopicPartition, int, tuple[int, int]]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield TopicPartition(topic.topic, p.partition), p.error_code, (p.leader_epoch, p.end_offset)

    return cluster.by_leader(epochs, build, results, deadline=deadline)


def list_topics(cluster: Cluster, *, internal: bool = False) -> list[str]:
    """Return the names of all topics that we may see, in order; with ``internal`` also those that Kafka keeps for itself."""
    every = cluster.metadata.topics(None)
    return sorted(name for name, topic in every.items() if internal or not topic.is_internal)


def create_topics(
    cluster: Cluster,
    topics: Mapping[str, tuple[int, int]],
    *,
    configs: Mapping[str, str] | None = None,
    exist_ok: bool = False,
    deadline: Deadline | None = None,
) -> None:
    """Create topics, ``{name: (partitions, replication factor)}``, and wait until they have leaders.

    -1 stands for the brokers' own default (KIP-464, Kafka 2.4).

    Raises:
        BrokerError: a topic could not be created; one that exists is an error unless ``exist_ok``.
    """
    deadline = deadline or Deadline.of_call(cluster.settings)
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=n_partitions,
                replication_factor=replication,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            )
            for name, (n_partitions, replication) in topics.items()
        ],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    response = cluster.request(CONTROLLER, request, deadline=deadline)
    for topic in response.topics:
        if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS or not exist_ok:
            _require_success("CreateTopics", topic.name, topic.error_code, topic.error_message)
    for topic in response.topics:
        # The number that was asked for; the brokers' own where they chose it; of a topic that existed one is enough to know it.
        n_partitions = 1 if topic.error_code else max(topics[topic.name][0], topic.num_partitions, 1)
        for partition in range(n_partitions):
            cluster.metadata.leader(TopicPartition(topic.name, partition), deadline=deadline)


def delete_topics(
    cluster: Cluster, names: Iterable[str], *, missing_ok: bool = False, deadline: Deadline | None = None
) -> None:
    """Delete topics by name. The controller has deleted them when this returns; brokers hear of it a moment later.

    Raises:
        BrokerError: a topic could not be deleted.
    """
    wanted = list(names)
    timeout_ms = cluster.settings.request_timeout_ms

    def build(version: int) -> DeleteTopicsRequest:
        if version < _FIRST_DELETE_BY_ID:
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in wanted], timeout_ms=timeout_ms)

    response = cluster.request(
        CONTROLLER,
        ByVersion(DeleteTopicsRequest, build),
        deadline=deadline,
        # A topic that is not there is the caller's to judge, not worth another try.
        error_codes=lambda response: (
            code for code in response.error_codes() if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
    )
    for deleted in response.responses:
        if deleted.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not missing_ok:
            _require_success("DeleteTopics", deleted.name, deleted.error_code, deleted.error_message)
        if deleted.name:
            cluster.metadata.invalidate(deleted.name)


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Give topics more partitions, ``{name: new total}``.

    Raises:
        BrokerError: a topic's partitions could not be added.
    """
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    for result in cluster.request(CONTROLLER, request).results:
        _require_success("CreatePartitions", result.name, result.error_code, result.error_message)
        cluster.metadata.invalidate(result.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A config of a topic; ``is_own`` if it is set for the topic, not the brokers' default. A sensitive value is None."""

    name: str
    value: str | None
    is_own: bool


def describe_topic_configs(
    cluster: Cluster, topics: Iterable[str], keys: Sequence[str] | None = None, *, deadline: Deadline | None = None
) -> dict[str, dict[str, str | None]]:
    """Return the settings of topics by name; all of them, or those in ``keys``. A sensitive one is None.

    Raises:
        BrokerError: a topic may not be described, or does not exist.
    """
    results = _describe_configs(cluster, ANY, _TOPIC_RESOURCE, topics, keys, deadline)
    return {result.resource_name: {c.name: c.value for c in result.configs} for result in results}


def describe_configs_of(cluster: Cluster, topic: str) -> list[TopicConfig]:
    """Return all configs of a topic, by name, and where each value comes from (KIP-226). Raises as
    :func:`describe_topic_configs`.
    """
    (result,) = _describe_configs(cluster, ANY, _TOPIC_RESOURCE, [topic], None)
    configs = [TopicConfig(name=c.name, value=c.value, is_own=c.config_source == _OF_TOPIC) for c in result.configs]
    return sorted(configs, key=lambda config: config.name)


def describe_broker_configs(cluster: Cluster, node_id: int, keys: Sequence[str] | None = None) -> dict[str, str | None]:
    """Return the settings of one broker; all of them, or those in ``keys``. A sensitive one is None.

    Raises:
        BrokerError: it may not be described.
    """
    (result,) = _describe_configs(cluster, node_id, _BROKER_RESOURCE, [str(node_id)], keys)
    return {c.name: c.value for c in result.configs}


def _describe_configs(
    cluster: Cluster,
    node_id: int,
    kind: int,
    names: Iterable[str],
    keys: Sequence[str] | None,
    deadline: Deadline | None = None,
) -> list[DescribeConfigsResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
            for name in names
        ]
    )
    response = cluster.request(node_id, request, deadline=deadline)
    for result in response.results:
        _require_success(
            "DescribeConfigs",
            result.resource_name if kind == _TOPIC_RESOURCE else None,
            result.error_code,
            result.error_message,
        )
    return response.results


def alter_topic_configs(cluster: Cluster, topic: str, *, values: Mapping[str, str], delete: Iterable[str] = ()) -> None:
    """Set configs of a topic, and delete others, so that the brokers' defaults apply again; all of them or none (KIP-339).

    Raises:
        BrokerError: a config is unknown or its value is invalid; the topic does not exist, or may not be altered.
        UnsupportedVersionError: the brokers are older than Kafka 2.3.
    """
    changes = [AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in values.items()]
    changes += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in delete]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=changes)]
    )
    for result in cluster.request(CONTROLLER, request).responses:
        _require_success("IncrementalAlterConfigs", topic, result.error_code, result.error_message)


def _require_success(api: str, topic: str | None, code: int, message: str | None) -> None:
    """Raise BrokerError for a part of a response that has an error code."""
    if code:
        raise broker_error(code, topic=topic, api=api, detail=message)
