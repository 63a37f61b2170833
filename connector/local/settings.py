"""The properties of a local cluster's processes: pure data; this module touches no file and no process.

Owns: every broker setting that differs from Kafka's own default, and why.
Must not know: how a process is started.

Kafka's documentation of broker settings: https://kafka.apache.org/documentation/#brokerconfigs.
``conf/broker.properties`` and ``conf/controller.properties`` show the same for two brokers; a test holds them equal.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
# Where `pykafka-wire cluster` listens if nothing else does: Kafka's own default, and that of Confluent's registry.
DEFAULT_PORT = 9092
DEFAULT_REGISTRY_PORT = 8081
INTERNAL = "INTERNAL"
EXTERNAL = "EXTERNAL"
CONTROLLER = "CONTROLLER"
# Brokers have the ids 1 to 3. This is the controller's where it is a process of its own, and ZooKeeper's.
CONTROLLER_ID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One broker listener: its name, its security protocol and its port."""

    name: str
    protocol: str
    port: int

    @property
    def advertised_host(self) -> str:
        # The external listener is advertised by a name, as real ones are. It resolves to ::1 first on most machines, where
        # nothing listens: a client has to try the second address. Certificates name localhost, not an address.
        return "localhost" if self.name == EXTERNAL or "SSL" in self.protocol else HOST

    @property
    def address(self) -> str:
        return f"{self.advertised_host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What every process of one cluster must agree on.

    Attributes:
        properties: broker settings, for brokers and controller alike.
        format_arguments: further arguments for the controller's StorageTool.
        cluster_id: 16 bytes in base64, as ``kafka.tools.StorageTool random-uuid`` prints them. The first byte is not one that
            begins with ``-``, which a command line would parse as an option; Kafka avoids it, too.
    """

    brokers: int
    controller_port: int
    listeners: Mapping[int, Sequence[Listener]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    format_arguments: Sequence[str] = ()
    jvm_options: Sequence[str] = ()
    cluster_id: str = field(default_factory=lambda: f"A{secrets.token_urlsafe(16)[1:]}")

    @property
    def controller_id(self) -> int:
        """Return the controller's id. With KRaft a single broker is the controller, too."""
        return 1 if self.brokers == 1 else CONTROLLER_ID


def common_properties(brokers: int) -> dict[str, str]:
    """Return the settings that brokers and controller share: in KRaft it is the controller that applies a topic's defaults."""
    replicas = str(brokers)
    # Two brokers with min ISR 2 would refuse writes as soon as one is lost.
    min_isr = "2" if brokers > 2 else "1"
    return {
        # A typo in a test must not create a topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_isr,
        # 50 by default: each is a log that every start opens.
        "offsets.topic.num.partitions": "10",
        "transaction.state.log.num.partitions": "10",
        "share.coordinator.state.topic.num.partitions": "10",
        # A test's group has one member; there is no need to wait 3 s for more.
        "group.initial.rebalance.delay.ms": "0",
        # 128 MiB by default, a third of the small heap.
        "log.cleaner.dedupe.buffer.size": "8388608",
        # Records of any timestamp are kept; retention would delete old ones within five minutes.
        "log.retention.ms": "-1",
        # A killed broker's partitions get new leaders after 6 s, not 9, and a slow follower leaves the ISR after 3 s, not 30.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500" if brokers > 1 else "2000",
        "replica.lag.time.max.ms": "3000",
        # An idle controller writes an empty record every 5 s, not twice a second. That, and the rarer heartbeats of a single
        # broker, which none can replace, halve what it computes while it is idle.
        "metadata.max.idle.interval.ms": "5000",
    }


def controller_properties(plan: ClusterPlan, folder: Path) -> dict[str, str]:
    """Return ``server.properties`` of the controller of several brokers, a process of its own: with combined nodes the loss
    of one that holds the quorum's majority would take the whole cluster down."""
    listeners = f"{CONTROLLER}://{HOST}:{plan.controller_port}"
    properties = {"listeners": listeners, "listener.security.protocol.map": _protocol_map(plan)}
    return _kraft_properties(plan, "controller", plan.controller_id, folder, properties)


def broker_properties(plan: ClusterPlan, node_id: int, folder: Path) -> dict[str, str]:
    """Return ``server.properties`` of broker `node_id` for Kafka 3.3 and newer, where there are several."""
    return _kraft_properties(plan, "broker", node_id, folder, _of_broker(plan, node_id))


def combined_properties(plan: ClusterPlan, folder: Path) -> dict[str, str]:
    """Return ``server.properties`` of the plan's only broker, which is the controller, too: half of the processes, of their
    memory and of what they compute while they are idle."""
    properties = broker_properties(plan, plan.controller_id, folder)
    listeners = f"{properties['listeners']},{CONTROLLER}://{HOST}:{plan.controller_port}"
    return {**properties, "process.roles": "broker,controller", "listeners": listeners}


def zookeeper_properties(plan: ClusterPlan, folder: Path) -> dict[str, str]:
    """Return the properties of the ZooKeeper that a broker older than 3.3 needs."""
    return {
        "dataDir": str(folder / "data"),
        "clientPort": str(plan.controller_port),
        "clientPortAddress": HOST,
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def old_broker_properties(plan: ClusterPlan, node_id: int, folder: Path) -> dict[str, str]:
    """Return ``server.properties`` of broker `node_id` for Kafka older than 3.3, which runs with ZooKeeper."""
    unknown = ("share.", "broker.session.", "broker.heartbeat.", "metadata.")
    return {
        "broker.id": str(node_id),
        "zookeeper.connect": f"{HOST}:{plan.controller_port}",
        "zookeeper.session.timeout.ms": "6000",
        **_of_broker(plan, node_id),
        "log.dirs": str(folder / "data"),
        **{name: value for name, value in common_properties(plan.brokers).items() if not name.startswith(unknown)},
        **plan.properties,
    }


def render(properties: Mapping[str, str]) -> str:
    """Return a Java properties file. Only backslashes are escaped: no other special character occurs in a value."""
    return "".join(f"{name}={value}".replace("\\", "\\\\") + "\n" for name, value in properties.items())


def _kraft_properties(
    plan: ClusterPlan, roles: str, node_id: int, folder: Path, own_properties: Mapping[str, str]
) -> dict[str, str]:
    return {
        "process.roles": roles,
        "node.id": str(node_id),
        "controller.quorum.voters": f"{plan.controller_id}@{HOST}:{plan.controller_port}",
        "controller.listener.names": CONTROLLER,
        **own_properties,
        "log.dirs": str(folder / "data"),
        **common_properties(plan.brokers),
        **plan.properties,
    }


def _of_broker(plan: ClusterPlan, node_id: int) -> dict[str, str]:
    """Return a broker's listeners, and its rack."""
    listeners = plan.listeners[node_id]
    return {
        "listeners": ",".join(f"{listener.name}://{HOST}:{listener.port}" for listener in listeners),
        "advertised.listeners": ",".join(f"{listener.name}://{listener.address}" for listener in listeners),
        "listener.security.protocol.map": _protocol_map(plan),
        "inter.broker.listener.name": INTERNAL,
        "broker.rack": f"r{node_id}",
        # Consumers that name their rack may read from a follower (KIP-392).
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }


def _protocol_map(plan: ClusterPlan) -> str:
    # The controller's must be named as soon as one listener is neither PLAINTEXT nor called by its protocol's name.
    protocols = {listener.name: listener.protocol for listeners in plan.listeners.values() for listener in listeners}
    return ",".join(f"{name}:{protocol}" for name, protocol in {CONTROLLER: "PLAINTEXT", **protocols}.items())
