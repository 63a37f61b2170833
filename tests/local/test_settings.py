from __future__ import annotations

from pathlib import Path

import pytest

from pykafka_wire.local.settings import (
    ClusterPlan,
    Listener,
    broker_properties,
    common_properties,
    controller_properties,
    old_broker_properties,
    render,
)

PLAN = ClusterPlan(
    brokers=1,
    controller_port=20000,
    listeners={
        1: [
            Listener(name="INTERNAL", protocol="PLAINTEXT", port=20001),
            Listener(name="EXTERNAL", protocol="PLAINTEXT", port=20002),
            Listener(name="MTLS", protocol="SSL", port=20003),
        ]
    },
    properties={"log.dirs": "/elsewhere", "message.max.bytes": "2000"},
)


@pytest.mark.parametrize(("brokers", "replicas", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_internal_topics_survive_the_loss_of_one_broker(brokers: int, replicas: str, min_isr: str) -> None:
    properties = common_properties(brokers)
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.replication.factor"] == replicas
    assert properties["share.coordinator.state.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.min.isr"] == min_isr
    assert properties["min.insync.replicas"] == min_isr


def test_every_listener_is_bound_to_loopback_and_advertised() -> None:
    properties = broker_properties(PLAN, 1, Path("/cluster/broker-1"))
    assert properties["listeners"] == "INTERNAL://127.0.0.1:20001,EXTERNAL://127.0.0.1:20002,MTLS://127.0.0.1:20003"
    assert (
        properties["advertised.listeners"] == "INTERNAL://127.0.0.1:20001,EXTERNAL://localhost:20002,"
        "MTLS://localhost:20003"
    )
    assert (
        properties["listener.security.protocol.map"]
        == "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,MTLS:SSL"
    )


@pytest.mark.parametrize("of_node", [broker_properties, old_broker_properties])
def test_the_callers_settings_beat_the_projects_own(of_node: object) -> None:
    properties = of_node(PLAN, 1, Path("/cluster/broker-1"))  # type: ignore[operator]
    assert properties["log.dirs"] == "/elsewhere"
    assert properties["message.max.bytes"] == "2000"


def test_the_controller_has_them_too_since_it_applies_the_defaults_of_topics() -> None:
    assert controller_properties(PLAN, Path("/cluster/controller"))["message.max.bytes"] == "2000"


def test_kafka_2_gets_zookeeper_and_nothing_that_it_does_not_know() -> None:
    properties = old_broker_properties(PLAN, 1, Path("/cluster/broker-1"))
    assert properties["zookeeper.connect"] == "127.0.0.1:20000"
    assert not [name for name in properties if name.startswith(("process.", "controller.", "share.", "node."))]


def test_a_backslash_in_a_value_reaches_java_as_one() -> None:
    assert render({"ssl.principal.mapping.rules": r"RULE:^CN=(\w+).*$/$1/"}) == (
        "ssl.principal.mapping.rules=RULE:^CN=(\\\\w+).*$/$1/\n"
    )
