"""Permissions are taken away while a query runs: it ends at once, with the reason and without a secret. And what a
member of a group may not do."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from pykafka_wire.wire import Consumer
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import Operation, topic_operations
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets
from pykafka_wire.wire.settings import ClientSettings
from tests.connector.spark_errors import sentence_in

pytestmark = [pytest.mark.broker, pytest.mark.spark]

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALICE = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{JAAS} username="alice" password="alice-secret";',
    # Longer than any wait of the test: whoever tries again is found out.
    "kafka.default.api.timeout.ms": "600000",
    "kafka.delivery.timeout.ms": "600000",
}


def rule(kind: type, resource: ResourceType, name: str, operation: AclOperation) -> Any:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return kind(resource, name, literal, "User:alice", "*", operation, allow)


def may(cluster: Cluster, topic: str, operation: AclOperation) -> bool:
    found = topic_operations(cluster, [topic])[topic]
    return isinstance(found, frozenset) and Operation[operation.name] in found


@pytest.mark.parametrize("taken", [AclOperation.READ, AclOperation.WRITE], ids=["read", "write"])
def test_a_query_whose_permission_is_revoked_fails_with_the_reason(
    taken: AclOperation,
    guarded_kafka: Any,
    topic: Any,
    outside_of: Any,
    queries_of: Any,
    until: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    outside = outside_of(guarded_kafka.bootstrap_servers)
    source, sink = topic(cluster=guarded_kafka), topic(cluster=guarded_kafka)
    group = f"g-{uuid.uuid4().hex[:8]}"
    permissions = [
        (ResourceType.TOPIC, source, AclOperation.READ),
        (ResourceType.TOPIC, sink, AclOperation.WRITE),
        (ResourceType.TOPIC, sink, AclOperation.DESCRIBE),
        (ResourceType.GROUP, group, AclOperation.READ),
    ]
    for granted in outside.admin.create_acls([rule(AclBinding, *each) for each in permissions]).values():
        granted.result(30)
    outside.fill(source, [10])
    queries = queries_of(guarded_kafka.bootstrap("SASL"))
    query = (
        queries.stream(subscribe=source, **ALICE, **{"kafka.group.id": group})
        .select("value")
        .writeStream.format("pykafka-wire")
        .options(**ALICE, **{"kafka.bootstrap.servers": queries.servers, "topic": sink})
        .option("checkpointLocation", str(queries.checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        until(lambda: query.exception() or len(outside.consume(sink)) == 10, what="the first batch")
        assert query.isActive, query.exception()
        (gone,) = (each for each in permissions if each[2] == taken and each[0] == ResourceType.TOPIC)
        for deleted in outside.admin.delete_acls([rule(AclBindingFilter, *gone)]).values():
            deleted.result(30)
        # The broker learns of it from the controller, a moment later: until then a record more might pass.
        alice = {name.removeprefix("kafka."): value for name, value in ALICE.items()}
        with Cluster(ClientSettings.from_options({"bootstrap.servers": queries.servers} | alice)) as cluster:
            until(lambda: not may(cluster, gone[1], taken), what="the change of permissions")
        outside.fill(source, [10], first=10)
        until(lambda: not query.isActive, timeout_s=120, what="the end of the query")
        text = str(query.exception())
    finally:
        query.stop()
    sentence = sentence_in(text)
    if taken is AclOperation.READ:
        assert "TOPIC_AUTHORIZATION_FAILED" in sentence and gone[1] in sentence
        # Describe, which it includes, is gone too, so the first request that notices may be one for metadata.
        assert "the missing ACL: Read on the topic." in sentence or "ACL: Describe on the topic (Read or" in sentence
    else:
        # A principal that has Write on no topic at all is refused an id for its producer, which names the cluster.
        assert sentence.startswith("[PYKAFKA_WIRE_BROKER] ") and "AUTHORIZATION_FAILED (error" in sentence
        assert (
            "Grant the principal the missing ACL: Write on the topic" in sentence or "it has Write on none" in sentence
        )
    said = capfd.readouterr()
    assert "alice-secret" not in text + said.out + said.err
    assert len(outside.consume(sink)) == 10


@pytest.mark.needs("consumer protocol of KIP-848")
def test_a_member_of_a_group_is_denied_what_is_forbidden_and_continues_once_its_topic_is_allowed(
    guarded_kafka: Any, topic: Any, outside_of: Any, until: Any
) -> None:
    outside, name = outside_of(guarded_kafka.bootstrap_servers), topic(cluster=guarded_kafka)
    group = f"g-{uuid.uuid4().hex[:8]}"
    settings = {key.removeprefix("kafka."): value for key, value in ALICE.items()}
    settings |= {"bootstrap.servers": guarded_kafka.bootstrap("SASL"), "group.protocol": "consumer"}

    def grant(resource: ResourceType, named: str) -> None:
        for granted in outside.admin.create_acls([rule(AclBinding, resource, named, AclOperation.READ)]).values():
            granted.result(30)

    def may_use_the_group(cluster: Cluster) -> bool:
        with suppress(BrokerError):
            return fetch_offsets(cluster, group, None) == {}
        return False

    def is_assigned(consumer: Consumer) -> bool:
        with suppress(BrokerError):  # until the broker knows of the permission
            consumer.poll(200)
        return bool(consumer.assignment)

    with Consumer(settings | {"group.id": group}) as consumer:
        consumer.subscribe([name])
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            until(lambda: consumer.poll(200), what="the refusal of the group")
    grant(ResourceType.GROUP, group)
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        until(lambda: may_use_the_group(cluster), what="the permission for the group")
    with Consumer(settings | {"group.id": group}) as consumer:
        consumer.subscribe([name])
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            until(lambda: consumer.poll(200), what="the refusal of the topic")
        grant(ResourceType.TOPIC, name)
        until(lambda: is_assigned(consumer), what="an assignment")
