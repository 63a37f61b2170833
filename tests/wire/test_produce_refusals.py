"""What brokers refuse for what is in it: batches cut smaller, records kept, nothing lost, doubled or out of order."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError, RecordTooLargeError, WireError
from pykafka_wire.wire.process_clients import shared_producer
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.messages.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pykafka_wire.wire.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.records.batches import EncodedBatch, read_header
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from tests.broker_features import lacking
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.fake_broker import FakeBroker
from tests.wire.oracle import decode_batches
from tests.wire.test_producer import read, settings_of

NOW_MS = int(time.time() * 1000)


def encode(
    values: list[bytes],
    *,
    keys: list[bytes | None] | None = None,
    codec: Codec = Codec.NONE,
    max_batch_bytes: int = 16_384,
    timestamps: list[int] | None = None,
) -> list[EncodedBatch]:
    return encode_batches(
        key=None if keys is None else pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.array(timestamps or [NOW_MS] * len(values), np.int64),
        codec=codec,
        max_batch_bytes=max_batch_bytes,
    )


def numbered(start: int, end: int, size: int = 100) -> list[bytes]:
    return [str(i).encode().ljust(size, b".") for i in range(start, end)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("collects_rejected", [False, True])
def test_batches_larger_than_the_topic_allows_are_cut_until_they_fit(
    topic: Any, cluster: Cluster, codec: Codec, collects_rejected: bool
) -> None:
    name = topic(partitions=1, config={"max.message.bytes": "2000"})
    noise = np.random.default_rng(1)  # so that compression cannot make them fit
    values = [noise.bytes(100) for _ in range(400)]
    producer = Producer(cluster)
    producer.collect_rejected(collects_rejected)
    producer.append(name, 0, encode(values[:1]))
    producer.flush()
    producer.append(name, 0, encode(values[1:], codec=codec, max_batch_bytes=9_000))
    (delivered,) = producer.flush().values()
    assert (delivered.n_records, delivered.last_offset) == (399, 399)
    assert read(cluster, name) == values
    assert producer.take_rejected() == []
    assert producer.clean


def test_a_record_too_large_for_its_topic_names_its_row_and_size(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1, config={"max.message.bytes": "2000"})
    producer = Producer(cluster)
    producer.append(name, 0, encode([*numbered(0, 7), b"x" * 3_000, *numbered(8, 50)], max_batch_bytes=9_000))
    with pytest.raises(RecordTooLargeError) as caught:
        producer.flush()
    error = caught.value
    assert (error.topic, error.partition) == (name, 0)
    assert "1 records (row 7) has 30" in str(error)  # 3,000 bytes, and what goes around them
    assert "Raise max.message.bytes, or make the record smaller." in str(error)
    # The producer has failed: nothing may follow the gap, until it is reset.
    with pytest.raises(RecordTooLargeError):
        producer.append(name, 0, encode(numbered(50, 51)))
    producer.reset()
    producer.append(name, 0, encode([b"next"]))
    producer.flush()
    values = read(cluster, name)
    assert values == [*numbered(0, len(values) - 1), b"next"]


def test_records_too_large_are_kept_and_all_others_arrive_in_order(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=2, config={"max.message.bytes": "2000"})
    values = numbered(0, 300)
    for i in (3, 150, 151, 299):
        values[i] = values[i] * 30
    producer = Producer(cluster)
    producer.collect_rejected()
    for partition in range(2):
        producer.append(name, partition, encode(values, max_batch_bytes=4_000))
    producer.flush()
    kept = [(*r.topic_partition, int(row)) for r in producer.take_rejected() for row in r.row]
    assert sorted(kept) == [(name, partition, i) for partition in range(2) for i in (3, 150, 151, 299)]
    for partition in range(2):
        assert read(cluster, name, partition) == [v for v in values if len(v) == 100]
    producer.append(name, 0, encode([b"and on"]))
    producer.flush()
    assert read(cluster, name)[-1] == b"and on"


def test_a_record_that_may_be_in_the_log_after_all_is_not_left_out(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sequence would be the next record's, and the broker, which has it already, would drop that one as a repetition."""
    name = topic(partitions=2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy:
        proxy.stand_between(monkeypatch)
        with Cluster(settings_of(kafka, retry_backoff_ms=1_500, retry_backoff_max_ms=1_500)) as cluster:
            producer = Producer(cluster)
            producer.collect_rejected()
            for partition in range(2):
                producer.append(name, partition, encode([b"first"]))
            producer.flush()
            proxy.cut_response_after(0)
            producer.append(name, 0, encode([b"x" * 3_000]))
            with pytest.raises(DeadlineExceededError):
                producer.flush(Deadline.after_ms(300))  # the pause before the next try is longer
            deadline = Deadline.after_ms(60_000)
            while not proxy.n_cuts:
                assert not deadline.expired
                time.sleep(0.02)
            limit_batches(admin, name, 2_000)
            with Cluster(settings_of(kafka)) as outside:
                probe = Producer(outside)
                while True:
                    probe.append(name, 1, encode([b"x" * 3_000]))
                    try:
                        probe.flush()
                    except RecordTooLargeError:
                        break
                    assert not deadline.expired
            producer.append(name, 0, encode([b"next"]))
            with pytest.raises(RecordTooLargeError, match="An earlier try of this batch had no definite response"):
                producer.flush()
            assert read(cluster, name) == [b"first", b"x" * 3_000]
            producer.reset()
            producer.append(name, 0, encode([b"next"]))
            producer.flush()
            assert read(cluster, name) == [b"first", b"x" * 3_000, b"next"]


def test_a_record_that_no_connection_was_there_for_is_kept_when_a_later_try_is_refused(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the first tries has left, so it is in no log."""
    name = topic(partitions=1, config={"max.message.bytes": "2000"})
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    with Cluster(settings_of(kafka, retry_backoff_ms=20)) as cluster:
        producer = Producer(cluster)
        producer.collect_rejected()
        with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
            proxy.stand_between(patched)
            producer.append(name, 0, encode([b"first"]))
            producer.flush()
            proxy.close()
            # Until the end of its connections has arrived; a request would make it look for another leader.
            while any(slot.connection and slot.connection.usable for slot in cluster._connections._slots.values()):
                time.sleep(0.01)
            producer.append(name, 0, encode([b"x" * 3_000]))
            with pytest.raises(DeadlineExceededError):
                producer.flush(Deadline.after_ms(300))
        assert producer.counters.n_requests == 1
        producer.append(name, 0, encode([b"next"]))
        producer.flush()
        (refused,) = producer.take_rejected()
        assert refused.value.to_pylist() == [b"x" * 3_000]
        assert read(cluster, name) == [b"first", b"next"]


def limit_batches(admin: AdminClient, topic: str, n_bytes: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(n_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_record_larger_than_a_request_is_kept_without_being_sent(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1)
    with Cluster(settings_of(kafka, max_request_size=1_000)) as cluster:
        producer = Producer(cluster)
        producer.collect_rejected()
        producer.append(name, 0, encode([b"a", b"x" * 2_000, b"b"], max_batch_bytes=1_000))
        producer.flush()
        (refused,) = producer.take_rejected()
        assert refused.value.to_pylist() == [b"x" * 2_000]
        assert refused.row.tolist() == [1]
        assert "max.request.size (1000)" in str(refused.error)
        assert read(cluster, name) == [b"a", b"b"]


def test_invalid_records_are_kept_with_the_brokers_words_for_each(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1, config={"cleanup.policy": "compact"})
    values = numbered(0, 400)
    keys = [None if i % 50 in (0, 7) or 200 <= i < 240 else b"%d" % i for i in range(400)]  # one batch has none at all
    producer = Producer(cluster)
    producer.collect_rejected()
    producer.append(name, 0, encode([b"first"], keys=[b"k"]))
    producer.flush()
    producer.append(name, 0, encode(values, keys=keys, max_batch_bytes=1_500))
    producer.flush()
    refused = producer.take_rejected()
    assert sorted(int(row) for each in refused for row in each.row) == [i for i in range(400) if keys[i] is None]
    assert {each.error.name for each in refused} == {"INVALID_RECORD"}
    assert all("key" in reason for each in refused for reason in each.reasons)
    assert read(cluster, name) == [b"first", *(v for v, key in zip(values, keys, strict=True) if key)]


def test_timestamps_that_the_topic_does_not_take_are_kept(topic: Any, cluster: Cluster) -> None:
    bound = "difference" if lacking(["bounds of timestamps on either side"]) else "before"
    name = topic(partitions=1, config={f"message.timestamp.{bound}.max.ms": "3600000"})
    producer = Producer(cluster)
    producer.collect_rejected()
    producer.append(name, 0, encode([b"now", b"1970", b"now too"], timestamps=[NOW_MS, 0, NOW_MS]))
    producer.flush()
    (refused,) = producer.take_rejected()
    assert (refused.error.name, refused.timestamp.tolist()) == ("INVALID_TIMESTAMP", [0])
    assert "imestamp" in refused.reasons[0]
    assert read(cluster, name) == [b"now", b"now too"]


def test_rejected_records_left_by_a_task_do_not_pass_to_the_next_one(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1, config={"max.message.bytes": "2000"})
    settings = settings_of(kafka, client_id="keeps")
    with shared_producer(settings) as producer:
        producer.collect_rejected()
        producer.append(name, 0, encode([b"x" * 3_000]))
        producer.flush()
        assert not producer.clean
    with shared_producer(settings) as producer:
        assert not producer.collects_rejected
        assert producer.take_rejected() == []
        producer.append(name, 0, encode([b"x" * 3_000]))
        with pytest.raises(RecordTooLargeError):
            producer.flush()


def test_limits_are_the_topics_own_and_asked_for_once(topic: Any, cluster: Cluster) -> None:
    small, default = topic(partitions=1, config={"max.message.bytes": "2000"}), topic(partitions=1)
    producer = Producer(cluster)
    assert producer.max_batch_bytes(small) == 2_000
    assert producer.max_batch_bytes(default) == 1_048_588


def test_without_the_right_to_ask_for_limits_they_are_learnt_from_refusals() -> None:
    sizes: list[tuple[int, int]] = []

    def produce(request: ProduceRequest, version: int) -> ProduceResponse:
        data = bytes(request.topic_data[0].partition_data[0].records)
        code = 10 if len(data) > 2_000 else 0
        sizes.append((len(data), code))
        response = PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else 0)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[response])])

    def describe(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(error_code=29, resource_type=2, resource_name="t", configs=[])]
        )

    with FakeBroker() as fake:
        fake.speak({0: (3, 12), 22: (0, 4), 32: (1, 4)})
        fake.topics = {"t": {0: (1, 0)}}
        fake.on[ProduceRequest] = produce
        fake.on[DescribeConfigsRequest] = describe
        fake.on[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(producer_id=1)
        with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address})) as cluster:
            producer = Producer(cluster)
            assert producer.max_batch_bytes("t") is None
            producer.append("t", 0, encode(numbered(0, 30)))
            producer.flush()
            assert [code for _, code in sizes] == [10, 0, 0]
            assert producer.max_batch_bytes("t") == sizes[0][0] // 2
            assert fake.count(DescribeConfigsRequest) == 1


def test_a_broker_that_does_not_say_which_record_it_refuses_is_asked_with_halves() -> None:
    """As brokers before KIP-467 (Produce v7): the response has an error code and nothing else."""
    log: list[bytes | None] = []

    def produce(request: ProduceRequest, version: int) -> ProduceResponse:
        assert version == 7
        data = bytes(request.topic_data[0].partition_data[0].records)
        values = [record.value for record in decode_batches(data)]
        # Records are looked at first, then sequences.
        code = 87 if b"bad" in values else 45 if read_header(memoryview(data)).base_sequence != len(log) else 0
        response = PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else len(log))
        log.extend(() if code else values)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[response])])

    with FakeBroker() as fake:
        fake.speak({0: (3, 7), 22: (0, 1)})
        fake.topics = {"t": {0: (1, 0)}}
        fake.on[ProduceRequest] = produce
        fake.on[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(producer_id=1)
        values = [b"bad" if i in (0, 5, 9, 13) else b"%d" % i for i in range(14)]
        with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address})) as cluster:
            producer = Producer(cluster)
            producer.collect_rejected()
            producer.append("t", 0, encode(values))
            producer.flush()
            assert sorted(int(row) for each in producer.take_rejected() for row in each.row) == [0, 5, 9, 13]
            assert log == [value for value in values if value != b"bad"]
            producer.collect_rejected(False)
            producer.append("t", 0, encode([b"bad", b"good"]))
            with pytest.raises(WireError, match="INVALID_RECORD"):
                producer.flush()


def test_a_caller_who_is_slow_to_bring_more_loses_nothing(kafka: Any, topic: Any) -> None:
    """Time limits are for brokers: batches that wait for company, and responses that wait to be read, do not expire."""
    name = topic(partitions=1)
    limits = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 2_500, "max_request_size": 1_000}
    with Cluster(settings_of(kafka, **limits)) as cluster:
        producer = Producer(cluster)
        producer.append(name, 0, encode(numbered(0, 12), max_batch_bytes=1_000))  # more than a request: it leaves
        assert producer.counters.n_requests == 1
        time.sleep(3)
        producer.append(name, 0, encode(numbered(12, 13)))
        time.sleep(3)
        producer.flush()
        assert read(cluster, name) == numbered(0, 13)
        assert producer.counters.n_retries == 0


def test_with_linger_what_has_waited_leaves_before_requests_are_full(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1)
    with Cluster(settings_of(kafka, linger_ms=0)) as cluster:
        producer = Producer(cluster)
        producer.append(name, 0, encode([b"at once"]))
        assert producer.counters.n_requests == 1
        producer.flush()
    with Cluster(settings_of(kafka, linger_ms=200)) as cluster:
        producer = Producer(cluster)
        producer.append(name, 0, encode([b"in"]))
        assert producer.counters.n_requests == 0
        time.sleep(0.25)
        producer.append(name, 0, encode([b"company"]))
        assert producer.counters.n_requests == 1
        producer.flush()
        assert read(cluster, name) == [b"at once", b"in", b"company"]
