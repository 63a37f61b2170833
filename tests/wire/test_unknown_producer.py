"""UNKNOWN_PRODUCER_ID and the next epoch (KIP-360): brokers before Kafka 2.5 respond with it once a producer's records are deleted.

Newer brokers take a producer that they have forgotten as it is. So the error is scripted here; that a real broker takes the next
epoch is shown on one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.produce.producer import Producer, TransactionScope
from pykafka_wire.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykafka_wire.wire.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.records.batches import read_header, stamp_producer
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import CLOSE, FakeBroker
from tests.wire.scripted_log import OUT_OF_ORDER, UNKNOWN_PRODUCER, Partition, response, write
from tests.wire.test_producer import encode, numbered, read, settings_of


@pytest.fixture
def cluster(fake_cluster: Cluster) -> Cluster:
    return fake_cluster


def unknown(append: Callable[[], ProduceResponse]) -> ProduceResponse:
    return response(UNKNOWN_PRODUCER)


def test_a_forgotten_producer_continues_under_its_next_epoch(cluster: Cluster, log: Partition) -> None:
    producer = Producer(cluster)
    write(producer, 0, 50)
    producer.flush()
    # Those in flight behind the first one, and the first retry, meet the same.
    log.faults = [unknown] * 4
    write(producer, 50, 100)
    (delivered,) = producer.flush().values()
    assert (delivered.n_records, delivered.first_offset) == (50, 50)
    assert log.values == numbered(0, 100)
    assert producer.identity == ProducerIdentity(0, log.epoch)
    assert 1 <= log.epoch <= 4
    assert log.producers == [0]  # no request for another producer id
    write(producer, 100, 120)
    producer.flush()
    assert log.values == numbered(0, 120)


def test_the_last_epoch_is_followed_by_a_new_producer_id(cluster: Cluster, log: Partition) -> None:
    producer = Producer(cluster)
    write(producer, 0, 10)
    producer.flush()
    producer._identity = ProducerIdentity(0, 2**15 - 1)
    write(producer, 10, 20)
    producer.flush()
    log.faults = [unknown]
    write(producer, 20, 30)
    producer.flush()
    assert log.values == numbered(0, 30)
    assert producer.identity == ProducerIdentity(1, 0)
    assert log.producers == [0, 1]


def test_a_batch_that_may_be_in_the_log_is_not_written_under_another_epoch(cluster: Cluster, log: Partition) -> None:
    producer = Producer(cluster)
    write(producer, 0, 10)
    producer.flush()

    def lose_the_response(append: Callable[[], ProduceResponse]) -> Any:
        append()
        return CLOSE

    log.faults = [lose_the_response, unknown]
    write(producer, 10, 20)
    with pytest.raises(BrokerError, match=r"UNKNOWN_PRODUCER_ID.*could repeat its records"):
        producer.flush()
    assert log.values == numbered(0, 20)


def test_it_is_tried_no_more_often_than_retries_allow(fake: FakeBroker, log: Partition) -> None:
    log.faults = [None, *[unknown] * 100]
    options = {"bootstrap.servers": fake.address, "retries": "3", "retry.backoff.ms": "1"}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        producer = Producer(cluster)
        write(producer, 0, 10)
        producer.flush()
        write(producer, 10, 20)
        with pytest.raises(BrokerError, match="UNKNOWN_PRODUCER_ID"):
            producer.flush()
    assert len(log.faults) == 100 - 4


def test_a_transaction_is_to_be_aborted(cluster: Cluster, log: Partition) -> None:
    scope = TransactionScope(transactional_id="x", identity=ProducerIdentity(7, 3), produce_cap=None)
    producer = Producer(cluster, transaction=scope)
    log.faults = [unknown]
    write(producer, 0, 10)
    with pytest.raises(BrokerError, match=r"UNKNOWN_PRODUCER_ID.*Abort the transaction"):
        producer.flush()


@pytest.mark.broker
def test_a_real_broker_takes_the_next_epoch_in_each_partition_at_its_time(
    topic: Any, kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    with Cluster(settings_of(kafka, max_request_size=1_300)) as cluster:
        producer = Producer(cluster)

        def append(partition: int, start: int, end: int) -> None:
            for first in range(start, end, 10):
                producer.append(name, partition, encode(numbered(first, first + 10)))

        for partition in range(2):
            append(partition, 0, 100)
        producer.flush()
        identity = producer.identity
        assert identity is not None
        send, n_forgotten = cluster.send, 0

        def forgetful(node: int, request: Any, **more: Any) -> Any:
            nonlocal n_forgotten
            asked = request.topic_data[0].partition_data if isinstance(request, ProduceRequest) else []
            if n_forgotten or [data.index for data in asked] != [0]:
                return send(node, request, **more)
            n_forgotten = 1
            # The broker has no such sequence, and writes nothing; its response is made that of one that has forgotten the producer.
            stamp_producer(asked[0].records, identity, 1_000_000)
            future = send(node, request, **more)
            set_response = future.set_response

            def forget(response: ProduceResponse) -> None:
                (of_topic,) = response.responses
                assert [each.error_code for each in of_topic.partition_responses] == [OUT_OF_ORDER]
                rejected = PartitionProduceResponse(index=0, error_code=UNKNOWN_PRODUCER, base_offset=-1)
                named = {"name": of_topic.name, "topic_id": of_topic.topic_id}
                set_response(ProduceResponse(responses=[TopicProduceResponse(partition_responses=[rejected], **named)]))

            future.set_response = forget
            return future

        monkeypatch.setattr(cluster, "send", forgetful)
        append(0, 100, 200)
        append(1, 100, 200)
        producer.flush()
        append(1, 200, 210)
        producer.flush()
        assert n_forgotten == 1
        assert (read(cluster, name, 0), read(cluster, name, 1)) == (numbered(0, 200), numbered(0, 210))
        assert producer.identity == ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)
        epochs = identity.producer_epoch, identity.producer_epoch + 1
        assert [epochs_written(cluster, name, partition) for partition in range(2)] == [epochs, epochs]


def epochs_written(cluster: Cluster, topic: str, partition: int) -> tuple[int, ...]:
    """The epochs of the batches in a partition, in their order, repetitions left out."""
    tp = TopicPartition(topic, partition)
    node, epoch = cluster.metadata.leader(tp)
    asked = FetchPartition(partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic=topic, topic_id=cluster.metadata.topic_id(topic), partitions=[asked])
    response = cluster.request(node, FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[wanted]))
    records = memoryview(response.responses[0].partitions[0].records)
    found: list[int] = []
    while records:
        header = read_header(records)
        found.append(header.producer_epoch)
        records = records[12 + header.batch_length :]
    return tuple(dict.fromkeys(found))
