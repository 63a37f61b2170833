"""Two brokers of the client's own tests, to be killed and moved about, what moves leaders on them, and endpoints of clouds.

What is done to the brokers is done by librdkafka and kafka-python, so that only the reading and writing is ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.settings import ClientSettings
from tests.broker_features import BROKERS
from tests.quick_start import JVM_OPTIONS, QUICK_GROUPS
from tests.shared_servers import shared
from tests.wire.both_brokers import await_brokers
from tests.wire.fake_broker import FakeBroker
from tests.wire.scripted_pair import scripted_pair
from tests.wire.transaction_records import ClusterOf

if TYPE_CHECKING:
    from tests.wire.cloud_stubs import CloudStub
    from tests.wire.scripted_log import Partition

TIMEOUT_S = 30.0


@pytest.fixture
def cloud_stub() -> Iterator[CloudStub]:
    """The endpoints of the clouds' credentials; `point_here` makes the clouds' libraries ask there."""
    from tests.wire.cloud_stubs import CloudStub

    with CloudStub().serving() as stub:
        yield stub


@pytest.fixture
def two_brokers(java: None, request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster of two brokers, both running; a test may kill one."""
    # The cleaner's pause is 15 s by default; sessions are short so that a killed broker is missed soon.
    properties = {"log.cleaner.backoff.ms": "200", "broker.session.timeout.ms": "3000", **QUICK_GROUPS}
    brokers = shared(request, lambda: LocalCluster(2, properties, version=BROKERS, jvm_options=JVM_OPTIONS))
    for node in brokers.nodes:
        if not node.running:
            node.start()
    await_brokers(brokers)
    return brokers


@pytest.fixture
def place_topic() -> Callable[..., None]:
    """`place_topic(brokers, name, {0: [1, 2], 1: [2, 1]}, **config)`: replicas by partition, the leader first."""

    def place(brokers: LocalCluster, name: str, replicas: Mapping[int, list[int]], **config: str) -> None:
        assignment = [replicas[partition] for partition in sorted(replicas)]
        new = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
        admin = create(brokers, new)
        await_state(admin, name, {partition: nodes[0] for partition, nodes in replicas.items()})

    return place


@pytest.fixture
def move_leaders() -> Callable[[LocalCluster, str, list[int]], None]:
    """`move_leaders(brokers, name, [2, 1])`: makes the first of these nodes the leader of every partition."""
    from kafka import TopicPartition as Place
    from kafka.admin import KafkaAdminClient

    def move(brokers: LocalCluster, name: str, nodes: list[int]) -> None:
        observer = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
        partitions = list(observer.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions)
        reassigner = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
        reassigner.alter_partition_reassignments({Place(name, partition): nodes for partition in partitions})
        reassigner.close()
        await_state(observer, name, None, replicas=nodes)
        places = [TopicPartition(name, partition) for partition in partitions]
        observer.elect_leaders(ElectionType.PREFERRED, places).result(TIMEOUT_S)
        await_state(observer, name, dict.fromkeys(partitions, nodes[0]))

    return move


def create(brokers: LocalCluster, new: NewTopic) -> AdminClient:
    """Creates a topic, again while librdkafka drops the connection because the broker is missing from the metadata for a moment."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
        try:
            admin.create_topics([new])[new.topic].result(TIMEOUT_S)
        except KafkaException as failed:
            code = failed.args[0].code()
            if code == KafkaError._DESTROY_BROKER and time.monotonic() < deadline:
                continue
            if code != KafkaError.TOPIC_ALREADY_EXISTS:  # the dropped request may have made it
                raise
        return admin


def await_state(
    observer: AdminClient, name: str, leaders: Mapping[int, int] | None, *, replicas: list[int] | None = None
) -> None:
    """Waits until every partition has these leaders, and these replicas in this order, all in sync."""

    def is_there(known: Mapping[int, PartitionMetadata]) -> bool:
        led = leaders is None or {partition: state.leader for partition, state in known.items()} == leaders
        return led and (
            replicas is None
            or all(state.replicas == replicas and set(state.isrs) == set(replicas) for state in known.values())
        )

    _await_partitions(observer, name, is_there)


def await_in_sync(brokers: LocalCluster, name: str) -> None:
    """Waits until each partition has a replica on every broker, all in sync, so that any broker may be lost."""
    n_brokers = len(brokers.nodes)
    _await_partitions(
        AdminClient({"bootstrap.servers": brokers.bootstrap_servers}),
        name,
        lambda known: (
            bool(known) and all(len(state.replicas) == n_brokers == len(state.isrs) for state in known.values())
        ),
    )


def _await_partitions(
    observer: AdminClient, name: str, is_there: Callable[[Mapping[int, PartitionMetadata]], bool]
) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_there(known := observer.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions):
        states = {partition: (state.leader, state.replicas, state.isrs) for partition, state in known.items()}
        assert time.monotonic() < deadline, f"{name} did not get there: {states}"
        time.sleep(0.02)


@pytest.fixture
def cluster(cluster_of: ClusterOf, kafka: Any) -> Cluster:
    """A client of the session's brokers, at the settings' defaults."""
    return cluster_of(kafka)


@pytest.fixture
def pair() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """Two scripted brokers in memory."""
    with scripted_pair(in_memory=True) as brokers:
        yield brokers


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A scripted broker."""
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def log(fake: FakeBroker) -> Partition:
    """What :func:`fake` keeps of a topic-partition, with the errors that it is to respond with."""
    from tests.wire.scripted_log import Partition

    return Partition(fake)


@pytest.fixture
def fake_cluster(fake: FakeBroker) -> Iterator[Cluster]:
    """A client of :func:`fake`, whose requests hold one batch of ten records and no more."""
    options = {"retry.backoff.ms": "1", "request.timeout.ms": "2000", "max.request.size": "1300"}
    with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address, **options})) as cluster:
        yield cluster


@pytest.fixture
def producer(fake_cluster: Cluster) -> Producer:
    return Producer(fake_cluster)


@pytest.fixture
def cluster_of() -> Iterator[ClusterOf]:
    """Makes a client of brokers: ``cluster_of(brokers, transaction_timeout_ms=1000)``."""
    opened: list[Cluster] = []

    def make(brokers: Any, **options: object) -> Cluster:
        named = {name.replace("_", "."): str(value) for name, value in options.items()}
        opened.append(Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers, **named})))
        return opened[-1]

    yield make
    for cluster in opened:
        cluster.close()
