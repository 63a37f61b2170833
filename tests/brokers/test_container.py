from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers.container import ContainerCluster, docker_unavailable


def test_where_no_engine_responds_the_reason_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # nothing listens there
    reason = docker_unavailable()
    assert reason is not None
    assert reason.startswith("no Docker engine responds (")


@pytest.fixture
def container() -> Iterator[ContainerCluster]:
    reason = docker_unavailable()
    if reason is not None:
        pytest.skip(reason)
    with ContainerCluster({"message.max.bytes": "2000"}) as cluster:
        yield cluster


@pytest.mark.docker
def test_a_broker_in_a_container_serves_on_the_address_that_it_advertises(
    container: ContainerCluster, topic: Any
) -> None:
    name = topic(2, cluster=container)
    metadata = AdminClient({"bootstrap.servers": container.bootstrap_servers}).list_topics(timeout=30)
    assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()] == [container.bootstrap_servers]
    assert len(metadata.topics[name].partitions) == 2
