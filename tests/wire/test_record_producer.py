"""Records and Arrow columns written by the producer, read by librdkafka."""

from __future__ import annotations

import contextlib
import datetime
import os
import tracemalloc
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from pykafka_wire.wire import RecordProducer, TopicPartition
from pykafka_wire.wire.errors import BrokerError, RecordsNotWrittenError, RecordTooLargeError, WireError

pytestmark = pytest.mark.broker


def consume(kafka: Any, topic: str, partitions: int, count: int) -> list[confluent_kafka.Message]:
    reader = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "outside"})
    reader.assign(
        [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in range(partitions)]
    )
    got: list[confluent_kafka.Message] = []
    while len(got) < count and (more := reader.consume(count - len(got), timeout=30)):
        got += more
    reader.close()
    assert len(got) == count
    return sorted(got, key=lambda message: (message.partition(), message.offset()))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_arrive_as_they_were_sent(kafka: Any, topic: Any, codec: str) -> None:
    name = topic(partitions=2)
    headers = [("h", b"1"), ("h", None)]
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}) as producer:
        producer.send(name, b"value", key=b"key", headers=headers, partition=1, timestamp_ms=1_700_000_000_123)
        producer.send(name, None, partition=1)
        delivered = producer.flush()
        assert delivered[TopicPartition(name, 1)].n_records == 2
        producer.send(name, b"at the end", partition=0)  # leaving the block flushes
    last, first, second = consume(kafka, name, 2, 3)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert last.value() == b"at the end"


@pytest.mark.parametrize("large", ["headers", "values of many topics"])
def test_records_that_wait_count_for_buffer_memory(kafka: Any, topic: Any, large: str) -> None:
    names = [topic(partitions=1)] if large == "headers" else [topic(partitions=1) for _ in range(12)]
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "buffer.memory": str(8 << 20), "linger.ms": "0"}
    with RecordProducer(settings) as producer:
        producer.send(names[0], b"v", headers=[("h", b"")])
        producer.flush()  # whatever is imported and remembered once
        tracemalloc.start()
        try:
            for number in range(2_400):
                content = b"%05d" % number * 4_000
                if large == "headers":
                    producer.send(names[0], b"v", headers=[("h", content)])
                else:
                    producer.send(names[number % len(names)], content)
                del content
            producer.flush()
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert held < 24 << 20


def test_records_of_topics_that_are_not_there_stop_no_other_topics_records(kafka: Any, topic: Any) -> None:
    """Not even where they take all the memory that may wait: they fail what is sent to their own topics, and flush."""
    name = topic(partitions=1)
    missing = [f"{name}-missing-{number}" for number in range(3)]
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "buffer.memory": str(8 << 20),
        "default.api.timeout.ms": "1000",
    }
    producer = RecordProducer(settings)
    n_queued = dict.fromkeys(missing, 0)
    for other in missing:
        with contextlib.suppress(WireError):
            for _ in range(8_700):  # 2 MB
                producer.send(other, b"x" * 90)
                n_queued[other] += 1
        for number in range(100):
            producer.send(name, b"%d" % number)
    assert list(n_queued.values()) == [8_700, 8_700, 0]
    for act in (producer.flush, lambda: producer.send(missing[0], b"x")):
        with pytest.raises(WireError, match=missing[0]):
            act()
    producer.send(name, b"last")
    producer.close()


def test_keys_choose_partitions_as_with_other_clients_and_others_stay_together(kafka: Any, topic: Any) -> None:
    name = topic(partitions=4)
    keys = [b"key-%d" % number for number in range(40)]
    theirs = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce(name, b"theirs", key)
    assert theirs.flush(30) == 0
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for key in keys:
            producer.send(name, b"ours", key=key)
        for _ in range(8):
            producer.send(name, b"no key")
    messages = consume(kafka, name, 4, 88)
    for key in keys:
        assert len({message.partition() for message in messages if message.key() == key}) == 1
    assert len({message.partition() for message in messages if message.key() is None}) == 1  # one batch, KIP-480


def test_arrow_columns_are_sent_whole_and_in_order_with_records(kafka: Any, topic: Any) -> None:
    name = topic()
    moment = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)
    table = pa.table(
        {
            "key": ["a", None],
            "value": [b"1", None],
            "headers": [[{"key": "h", "value": b"x"}], None],
            "timestamp": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
            "partition": pa.array([0, None], pa.int64()),
        }
    )
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(name, b"first")
        producer.send_arrow(name, table)
        producer.send_arrow(name, table.select(["value"]).to_batches()[0])
        with pytest.raises(ValueError, match="no column value, only key"):
            producer.send_arrow(name, table.select(["key"]))
    messages = consume(kafka, name, 1, 5)
    assert [(message.key(), message.value()) for message in messages] == [
        (None, b"first"), (b"a", b"1"), (None, None), (None, b"1"), (None, None),
    ]  # fmt: skip
    assert messages[1].headers() == [("h", b"x")]
    assert messages[1].timestamp()[1] == moment.timestamp() * 1000


def test_a_refused_record_fails_the_producer_until_it_is_reset(kafka: Any, topic: Any) -> None:
    small, name = topic(config={"max.message.bytes": "1000"}), topic()
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(small, b"x" * 5_000)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        producer.reset()
        producer.send(name, b"well")
        assert producer.flush()[TopicPartition(name, 0)].first_offset == 0


def test_after_a_record_that_is_too_large_no_flush_says_that_all_is_written(kafka: Any, topic: Any) -> None:
    name = topic()
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "max.request.size": "10000"}) as producer:
        producer.send(name, b"small")
        producer.send(name, b"x" * 20_000)
        with pytest.raises(RecordTooLargeError):
            producer.flush()
        with pytest.raises(RecordTooLargeError):
            producer.send(name, b"after")
        with pytest.raises(RecordTooLargeError):
            producer.flush()
        producer.reset()
        producer.send(name, b"again")
        producer.flush()


UNENCODABLE: dict[str, dict[str, Any]] = {
    "a number": {"value": 5},
    "a key that is a list": {"key": [b"k"]},
    "text that UTF-8 does not have": {"value": "\ud800"},
    "a header without a name": {"headers": [(None, b"x")]},
    "a header's name that UTF-8 does not have": {"headers": [("\ud800", b"x")]},
    "a header that is a number": {"headers": [("h", 5)]},
    "headers that are no pairs": {"headers": [("h", b"x", 1)]},
    "a timestamp beyond int64": {"timestamp_ms": 2**63},
    "a timestamp below zero": {"timestamp_ms": -5},
    "a timestamp in words": {"timestamp_ms": "now"},
    "a partition beyond int32": {"partition": 2**31},
    "a partition below zero": {"partition": -2},
}


def test_a_row_that_cannot_be_encoded_is_refused_and_the_others_are_written_once(kafka: Any, topic: Any) -> None:
    name = topic(partitions=2)
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for number, row in enumerate(UNENCODABLE.values()):
            producer.send(name, b"%d" % number, partition=number % 2)
            with pytest.raises((TypeError, ValueError), match=r".+"):
                producer.send(name, **{"value": b"never", **row})
            producer.flush()
    messages = consume(kafka, name, 2, len(UNENCODABLE))
    assert sorted(int(message.value()) for message in messages) == list(range(len(UNENCODABLE)))


@pytest.mark.parametrize("partition", [-1, -2, -(2**31)])
def test_columns_with_a_partition_below_zero_are_refused_as_such_a_record_is(partition: int) -> None:
    rows = pa.table({"value": [b"0", b"1", b"2"], "partition": [None, partition, 1]})
    producer = RecordProducer({"bootstrap.servers": "nobody.invalid:9092"})
    with pytest.raises(ValueError, match=f"partition has {partition}"):
        producer.send_arrow("t", rows)


def test_after_columns_that_cannot_be_encoded_no_flush_says_that_all_is_written(kafka: Any, topic: Any) -> None:
    name = topic(partitions=2)
    rows = pa.table(
        {
            "value": [b"0", b"1"],
            "headers": [[{"key": "h", "value": b"x"}], [{"key": None, "value": b"x"}]],
            "partition": [0, 1],
        }
    )
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        with pytest.raises(ValueError, match="null key"):
            producer.send_arrow(name, rows)
        for _ in range(2):
            with pytest.raises(RecordsNotWrittenError, match=r"null key.*reset"):
                producer.flush()
        with pytest.raises(RecordsNotWrittenError):
            producer.send(name, b"after")
        producer.reset()
        assert producer.flush() == {}
        producer.send(name, b"well")
        assert sum(each.n_records for each in producer.flush().values()) == 1


@pytest.mark.parametrize("limit", ["_ENCODE_BYTES", "_MAX_COLUMN_BYTES"])
def test_a_table_is_encoded_piece_by_piece_and_each_partition_keeps_its_order(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"pykafka_wire.wire.produce.record_sender.{limit}", 5_000)
    name = topic(partitions=3)
    headers = [[{"key": f"h{n}", "value": b"%d" % n}] * (n % 3) if n % 5 else None for n in range(1_000)]
    rows = pa.table(
        {
            "key": pa.array([b"k%d" % n if n % 4 else None for n in range(1_000)], pa.binary()),
            "value": pa.array([b"v%d" % n if n % 7 else None for n in range(1_000)], pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            "partition": [n * n % 3 for n in range(1_000)],
        }
    ).slice(10)
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send_arrow(name, rows)
    found = [
        (message.partition(), message.key(), message.value(), message.headers() or [])
        for message in consume(kafka, name, 3, 990)
    ]
    expected = [
        (
            row["partition"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in rows.to_pylist()
    ]
    assert found == sorted(expected, key=lambda row: row[0])


@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_a_batch_that_compression_makes_larger_is_cut(kafka: Any, topic: Any, codec: str) -> None:
    name, values = topic(), [os.urandom(1022) for _ in range(1500)]
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "max.request.size": "500000"}
    with RecordProducer(settings) as producer:
        for value in values:
            producer.send(name, value, partition=0)
    assert [message.value() for message in consume(kafka, name, 1, len(values))] == values
