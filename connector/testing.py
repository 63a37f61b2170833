"""pytest fixtures over a real Kafka, for tests of pipelines::

    # conftest.py, in the root folder of the tests
    pytest_plugins = ["pykafka_wire.testing"]

    # test_orders.py
    def test_orders(kafka, topic):
        orders = topic(partitions=3)
        ...  # kafka.bootstrap_servers

Brokers are started once in a session, and end with it: real ones on this machine, or those that ``PYKAFKA_WIRE_TEST_BOOTSTRAP``
names. Owns the fixtures and how long what they make lives; the processes are :mod:`pykafka_wire.local`'s. Nothing is registered as
an entry point, so that no other project's pytest loads it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pytest

from pykafka_wire.local import KafkaTools, LocalCluster, LocalRegistry, Node, named_cluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, create_topics, delete_topics, list_offsets
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

__all__ = ["KafkaFaults", "TopicFactory", "kafka", "kafka_faults", "kafka_options", "registry", "topic"]

#: The optimising compiler takes a third of a broker's start, and pays off after minutes.
_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1",)
_REGISTRY_VARIABLE: Final = "PYKAFKA_WIRE_TEST_REGISTRY"
_TOPIC_MS: Final = 30_000
#: The test's brokers may have been killed.
_DELETE_MS: Final = 5_000


class TopicFactory(Protocol):
    """Creates a topic on the session's brokers, or on others, and returns its name."""

    def __call__(
        self,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        cluster: KafkaTools | None = None,
    ) -> str:
        """Create a topic, and return its name.

        Args:
            config: of the topic, such as ``{"cleanup.policy": "compact"}``.
            name: a fresh one by default.
            cluster: brokers of the test's own.
        """


class KafkaFaults:
    """Faults of the session's local brokers. When the test ends, all of them run again.

    Args of each method: ``broker`` is a broker's id, from 1.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._nodes: Mapping[int, Node] = {node.node_id: node for node in cluster.nodes}

    def pause(self, broker: int = 1) -> None:
        """Pause a broker: it stops responding; connections stay open."""
        self._nodes[broker].pause()

    def resume(self, broker: int = 1) -> None:
        """Let a broker continue after :meth:`pause`."""
        self._nodes[broker].resume()

    def kill(self, broker: int = 1) -> None:
        """Kill a broker: it ends as by a power failure."""
        self._nodes[broker].kill()

    def restart(self, broker: int = 1) -> None:
        """Start a broker with the same address and data, after it was shut down if it was running. Returns when it is ready."""
        self._nodes[broker].stop()
        self._nodes[broker].start()

    def end(self) -> None:
        """Let all brokers run again."""
        for node in self._nodes.values():
            if node.running:
                node.resume()
            else:
                node.start()


@pytest.fixture(scope="session")
def kafka_options() -> Mapping[str, Any]:
    """Return arguments of :class:`~pykafka_wire.local.LocalCluster` for the session's brokers. Define a fixture of this name
    in your ``conftest.py`` for others, such as ``{"nodes": 2, "properties": {"message.max.bytes": "2000000"}}``."""
    return {}


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, kafka_options: Mapping[str, Any]) -> Iterator[KafkaTools]:
    """Yield the session's brokers: ``kafka.bootstrap_servers``. The first start ever downloads Kafka, which is shown past pytest's
    capture."""
    named = named_cluster()
    if named is not None:
        yield named
        return
    with contextlib.closing(LocalCluster(**{"jvm_options": _JVM_OPTIONS, **kafka_options})) as cluster:
        with _without_capture(request):
            cluster.start()
        yield cluster


@pytest.fixture
def kafka_faults(kafka: KafkaTools) -> Iterator[KafkaFaults]:
    """Pause, kill and restart the session's brokers. A test that asks for it is skipped where brokers are named."""
    if not isinstance(kafka, LocalCluster):
        pytest.skip("only brokers that these tests have started can be paused or killed")
    faults = KafkaFaults(kafka)
    yield faults
    faults.end()


@pytest.fixture(scope="session")
def registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a schema registry with the REST API of Confluent's: one on this machine for the session, or that which
    ``PYKAFKA_WIRE_TEST_REGISTRY`` names."""
    named = os.environ.get(_REGISTRY_VARIABLE, "").strip()
    if named:
        yield named
        return
    with contextlib.closing(LocalRegistry()) as local:
        with _without_capture(request):
            local.start()
        yield local.url


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """Create topics of fresh names: ``topic(partitions=3, config={…})``. They are deleted when the test ends."""
    created: list[tuple[ClientSettings, str]] = []

    def create(
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        cluster: KafkaTools | None = None,
    ) -> str:
        brokers: KafkaTools = cluster if cluster is not None else request.getfixturevalue("kafka")
        settings = ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})
        chosen = name or f"t-{uuid.uuid4().hex[:12]}"
        deadline = Deadline.after_ms(_TOPIC_MS)
        with Cluster(settings) as client:
            create_topics(client, {chosen: (partitions, -1)}, configs=config, deadline=deadline)
            created.append((settings, chosen))
            # A broker that is named as leader leads a moment later: what is written with acks=0 before then is lost.
            list_offsets(
                client,
                {TopicPartition(chosen, partition): LATEST for partition in range(partitions)},
                deadline=deadline,
            )
        return chosen

    yield create
    for settings, chosen in created:
        # The brokers may be gone, or the topic deleted: all well.
        with contextlib.suppress(WireError), Cluster(settings) as client:
            delete_topics(client, [chosen], deadline=Deadline.after_ms(_DELETE_MS))


@contextlib.contextmanager
def _without_capture(request: pytest.FixtureRequest) -> Iterator[None]:
    """Show at once what is printed, such as the warning of a download."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
        yield
