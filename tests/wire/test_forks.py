"""What a forked child does with its parent's producers and transactions: no two processes write under one producer id."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire import Consumer
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.transport import Sockets
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import ForkedConsumerError, ForkedProducerError
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.record_producer import RecordProducer
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.test_producer import encode, numbered, read, settings_of

pytestmark = [pytest.mark.broker, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


def in_child(act: Callable[[], None]) -> None:
    """Runs `act` in a forked child, whose failure is this test's."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def settings_of_group(kafka: Any, name: str, **more: str) -> dict[str, str]:
    group = {"group.id": f"forked-{name}", "auto.offset.reset": "earliest"}
    return {"bootstrap.servers": kafka.bootstrap_servers, **group, **more}


def producer_of_ten(cluster: Cluster, name: str) -> Producer:
    """Return a producer that has written ten records to the topic's first partition."""
    producer = Producer(cluster)
    producer.append(name, 0, encode(numbered(0, 10)))
    producer.flush()
    return producer


def test_a_record_producer_writes_all_records_of_parent_and_child(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)

    def send(*numbers: int) -> None:
        for number in numbers:
            producer.send(name, b"%d" % number)
        assert producer.flush()[TopicPartition(name, 0)].n_records == len(numbers)

    with RecordProducer(settings_of(kafka)) as producer:
        send(0, 1, 2, 3, 4)
        in_child(lambda: send(5, 6, 7))
        send(8, 9, 10)
    assert sorted(read(cluster, name), key=int) == [b"%d" % number for number in range(11)]


def test_a_record_producer_with_records_to_send_leaves_them_to_the_parent(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=1)
    producer = RecordProducer(settings_of(kafka))
    producer.send(name, b"parent")

    def rejected_call() -> None:
        with pytest.raises(ForkedProducerError, match="reset"):
            producer.send(name, b"lost")
        with pytest.raises(ForkedProducerError, match="reset"):
            producer.flush()
        producer.reset()
        producer.send(name, b"child")
        assert producer.flush()[TopicPartition(name, 0)].n_records == 1
        producer.close()

    in_child(rejected_call)
    with producer:
        assert producer.flush()[TopicPartition(name, 0)].n_records == 1
    assert read(cluster, name) == [b"child", b"parent"]


def test_a_producer_starts_over_in_a_child(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    producer = Producer(cluster)

    def write(start: int, end: int) -> None:
        producer.append(name, 0, encode(numbered(start, end)))
        assert producer.flush()[TopicPartition(name, 0)].n_records == end - start

    def anew() -> None:
        assert producer.clean
        assert producer.identity is None
        write(10, 13)

    write(0, 10)
    in_child(anew)
    write(13, 20)
    assert read(cluster, name) == numbered(0, 20)


def test_a_producer_with_unacknowledged_batches_refuses_in_a_child(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    producer = Producer(cluster)
    producer.append(name, 0, encode(numbered(0, 10)))

    def rejected_call() -> None:
        with pytest.raises(ForkedProducerError, match="reset"):
            producer.append(name, 0, encode(numbered(0, 10)))
        with pytest.raises(ForkedProducerError, match="reset"):
            producer.flush()
        assert not producer.clean

    in_child(rejected_call)
    assert producer.flush()[TopicPartition(name, 0)].n_records == 10
    assert read(cluster, name) == numbered(0, 10)


def test_a_transaction_is_its_own_processs_alone(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    tp = TopicPartition(name, 0)

    def rejected_call(transaction: Transaction) -> None:
        for use in (
            lambda: transaction.produce({tp: encode(numbered(0, 10))}),
            lambda: transaction.commit_offsets("forks", {}),
            transaction.commit,
        ):
            with pytest.raises(ForkedProducerError, match="process that began it"):
                use()
        transaction.abort()  # which a child that leaves the block does, too

    with Transaction.begin(cluster, name) as transaction:
        transaction.produce({tp: encode(numbered(0, 10))})
        in_child(lambda: rejected_call(transaction))
        transaction.produce({tp: encode(numbered(10, 20))})
        transaction.commit()
    assert read(cluster, name)[:20] == numbered(0, 20)


def test_a_member_of_a_group_is_its_parents(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1)
    with RecordProducer(settings_of(kafka)) as producer:
        for number in range(5):
            producer.send(name, b"%d" % number)
        producer.flush()
    settings = settings_of_group(kafka, name)
    with Consumer({**settings, "enable.auto.commit": "false"}) as consumer:
        consumer.subscribe([name])
        polled: list[bytes | None] = []
        while len(polled) < 5:
            polled += [record.value for record in consumer.poll(500)]

        def rejected_call() -> None:
            with pytest.raises(ForkedConsumerError, match="in the child"):
                consumer.poll(100)
            with pytest.raises(ForkedConsumerError, match="in the child"):
                consumer.commit()
            consumer.close()  # takes the parent's member out of no group

        in_child(rejected_call)
        assert sorted(polled) == [b"0", b"1", b"2", b"3", b"4"]
        consumer.commit()
        assert consumer.committed() == {TopicPartition(name, 0): 5}
        assert consumer.assignment == (TopicPartition(name, 0),)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections, and responds to nothing: what is opened to it is still being opened at the fork."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextlib.contextmanager
def at_a_slow_address(server: socket.socket) -> Iterator[None]:
    """While this goes on, this process and its threads reach no broker, but an address that responds to nothing."""
    address = (int(socket.AF_INET), server.getsockname())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sockets, "addresses", lambda *_: [address])
        yield


@pytest.mark.parametrize("resets", [False, True])
def test_a_child_opens_a_connection_that_its_parent_was_opening(
    kafka: Any, topic: Any, cluster: Cluster, silent: socket.socket, resets: bool
) -> None:
    name = topic(partitions=1)
    producer = Producer(cluster)
    cluster.metadata.leader(TopicPartition(name, 0))

    def write() -> None:
        if resets:
            producer.reset()
        producer.append(name, 0, encode(numbered(0, 10)))
        assert producer.flush(Deadline.after_ms(20_000))[TopicPartition(name, 0)].n_records == 10

    with at_a_slow_address(silent):
        assert not list(producer._requests.reachable([1]))
    in_child(write)
    assert read(cluster, name) == numbered(0, 10)


@pytest.mark.parametrize("what", ["a look-up", "a commit", "a fetch"])
def test_a_child_goes_on_with_an_assigned_consumer_whose_parent_was_at(
    kafka: Any, topic: Any, cluster: Cluster, silent: socket.socket, what: str
) -> None:
    name = topic(partitions=1)
    tp = TopicPartition(name, 0)
    producer = producer_of_ten(cluster, name)
    settings = settings_of_group(kafka, name, **{"auto.commit.interval.ms": "0", "fetch.max.wait.ms": "60000"})

    def poll(consumer: Consumer, n_records: int) -> list[bytes | None]:
        polled: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while len(polled) < n_records:
            assert time.monotonic() < deadline
            polled += [record.value for record in consumer.poll(100)]
        return polled

    with Consumer(settings) as consumer:
        consumer.assign([tp])
        if what == "a look-up":
            with at_a_slow_address(silent):
                assert not consumer.poll(50)
            in_child(lambda: poll(consumer, 10) and None)
            return
        poll(consumer, 10)
        if what == "a commit":
            with at_a_slow_address(silent):
                consumer.poll(0)
        else:
            consumer.poll(500)  # which leaves a request that waits for records
        producer.append(name, 0, encode(numbered(10, 20)))
        producer.flush()

        def go_on() -> None:
            assert len(poll(consumer, 10)) == 10
            consumer.commit()
            assert consumer.committed() == {tp: 20}

        in_child(go_on)


@pytest.mark.parametrize("then", ["closes", "assigns others", "polls"])
def test_a_child_commits_no_position_of_its_parent(kafka: Any, topic: Any, cluster: Cluster, then: str) -> None:
    """The parent has gone on since, and the group must not go back."""
    name = topic(partitions=2)
    tp = TopicPartition(name, 0)
    producer = producer_of_ten(cluster, name)
    settings = settings_of_group(kafka, name, **{"auto.commit.interval.ms": "0" if then == "polls" else "3600000"})

    def poll_to(offset: int) -> None:
        deadline = time.monotonic() + 20
        while consumer.position(tp) < offset:
            assert time.monotonic() < deadline
            consumer.poll(100)

    def go_on() -> None:
        with Consumer(settings) as observer:
            observer.commit({tp: 15})  # as the parent does meanwhile
            if then == "closes":
                consumer.close()
            elif then == "assigns others":
                consumer.assign([TopicPartition(name, 1)])
                assert consumer.committed([tp]) == {tp: 15}
            else:
                consumer.poll(0)
                assert consumer.committed() == {tp: 15}
                producer.append(name, 0, encode(numbered(10, 20)))
                producer.flush()
                poll_to(20)
                consumer.poll(0)
                assert consumer.committed() == {tp: 20}  # its own
                return
            assert observer.committed([tp]) == {tp: 15}

    with Consumer(settings) as consumer:
        consumer.assign([tp])
        poll_to(10)
        in_child(go_on)


def test_a_child_has_no_part_in_its_parents_group(kafka: Any, topic: Any) -> None:
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"forked-{topic()}"}) as consumer:
        consumer.subscribe(["t"])
        tp = TopicPartition("t", 0)

        def rejected_call() -> None:
            for use in (consumer.group_metadata, consumer.committed, lambda: consumer.position(tp)):
                with pytest.raises(ForkedConsumerError):
                    use()

        in_child(rejected_call)
