"""A topic's configs one by one: where each value comes from, and changes of single ones (KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.cluster.cluster import ANY, CONTROLLER, Cluster, Deadline
from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)

_TOPIC_RESOURCE: Final = 2
#: DYNAMIC_TOPIC_CONFIG of the protocol's ConfigSource.
_OF_TOPIC: Final = 1
_SET: Final = 0
_DELETE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A config of a topic; ``is_own`` if it is set for the topic, not the brokers' default. A sensitive value is None."""

    name: str
    value: str | None
    is_own: bool


def describe_configs_of(cluster: Cluster, topic: str, *, deadline: Deadline | None = None) -> list[TopicConfig]:
    """All configs of a topic, by name.

    Raises:
        BrokerError: it may not be described, or does not exist.
    """
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)]
    )
    response = cluster.request(
        ANY, request, deadline=deadline, error_codes=lambda response: (each.error_code for each in response.results)
    )
    result = response.results[0]
    if result.error_code:
        raise broker_error(result.error_code, topic=topic, api="DescribeConfigs", detail=result.error_message)
    found = [
        TopicConfig(name=each.name, value=each.value, is_own=each.config_source == _OF_TOPIC) for each in result.configs
    ]
    return sorted(found, key=lambda each: each.name)


def alter_topic_configs(
    cluster: Cluster,
    topic: str,
    *,
    values: Mapping[str, str],
    delete: Iterable[str] = (),
    deadline: Deadline | None = None,
) -> None:
    """Set configs of a topic, and delete others, so that the brokers' defaults apply again; all of them or none.

    Raises:
        BrokerError: a config is unknown or its value is invalid; the topic does not exist, or may not be altered.
        UnsupportedVersionError: the brokers are older than Kafka 2.3.
    """
    changes = [AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in values.items()]
    changes += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in delete]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=changes)]
    )
    response = cluster.request(
        CONTROLLER,
        request,
        deadline=deadline,
        error_codes=lambda response: (each.error_code for each in response.responses),
    )
    for result in response.responses:
        if result.error_code:
            raise broker_error(
                result.error_code, topic=topic, api="IncrementalAlterConfigs", detail=result.error_message
            )
