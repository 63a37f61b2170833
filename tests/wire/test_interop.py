"""Records written by other clients are read equal, and records written here are read equal by other clients.

The clients are kafka-python (pure Python) and confluent-kafka (librdkafka), two implementations independent of Java's;
Java's own word on what is written here is DumpLogSegments'.
"""

from __future__ import annotations

import itertools
import re
import time
import uuid
from typing import Any, NamedTuple

import confluent_kafka
import kafka as kafka_python
import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import release
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction

pytestmark = pytest.mark.broker

ALL_COLUMNS = Columns(key=True, value=True, headers=True, timestamp=True, timestamp_type=True)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


#: Every shape a record can have: nulls, empties, headers with duplicate keys and null values, text beyond ASCII, length
#: varints of one, two and three bytes, and a run that compresses.
SHAPES: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"key", b"value", ()),
    (None, b"no key", ()),
    (b"no value", None, ()),
    (None, None, ()),
    (b"", b"", ()),
    (b"k" * 63, b"v" * 64, ()),
    (b"k" * 8191, b"v" * 20_000, ()),
    (b"h", b"headers", (("a", b"1"), ("b", b""), ("a", b"2"), ("null", None))),
    ("ключ".encode(), "\U0001f600".encode(), (("schlüssel", "wért".encode()),)),
    *((str(i).encode(), b"the same again and again", ()) for i in range(300)),
]
#: Of this hour: retention goes by it, and would take old records away in the middle of a test.
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000


def records_to_write() -> list[Record]:
    return [Record(i, *shape, FIRST_TIMESTAMP + i * 7) for i, shape in enumerate(SHAPES)]


def read(cluster: Cluster, topic: str, *, isolation_level: str = "read_uncommitted") -> list[Record]:
    """All records of partition 0."""
    tp = TopicPartition(topic, 0)
    end = list_offsets(cluster, {tp: LATEST}, isolation_level=isolation_level)[tp].offset
    range_ = OffsetRange(topic=topic, partition=0, start_offset=0, end_offset=end)
    records: list[Record] = []
    for fetched in fetch_ranges(cluster, [range_], columns=ALL_COLUMNS, isolation_level=isolation_level):
        columns = fetched.records
        headers = columns.headers.to_pylist()
        records += [
            Record(offset, key, value, tuple((h["key"], h["value"]) for h in header or ()), timestamp)
            for offset, key, value, header, timestamp in zip(
                columns.offset.tolist(),
                columns.key.to_pylist(),
                columns.value.to_pylist(),
                headers,
                columns.timestamp.tolist(),
                strict=True,
            )
        ]
    return records


def encode(records: list[Record], codec: str, max_batch_bytes: int = 16_384) -> list[EncodedBatch]:
    header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return encode_batches(
        key=pa.array([record.key for record in records], pa.binary()),
        value=pa.array([record.value for record in records], pa.binary()),
        headers=pa.array(
            [[{"key": k, "value": v} for k, v in record.headers] or None for record in records], header_type
        ),
        timestamp=np.array([record.timestamp for record in records], np.int64),
        codec=Codec[codec.upper()],
        max_batch_bytes=max_batch_bytes,
    )


def write(cluster: Cluster, topic: str, records: list[Record], codec: str, *, max_batch_bytes: int = 16_384) -> None:
    producer = Producer(cluster)
    producer.append(topic, 0, encode(records, codec, max_batch_bytes))
    delivered = producer.flush()
    assert delivered[TopicPartition(topic, 0)].n_records == len(records)


@pytest.mark.parametrize("codec", CODECS)
def test_what_confluent_kafka_writes_is_read_equal(kafka: Any, topic: Any, cluster: Cluster, codec: str) -> None:
    name = topic(partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
    )
    for record in records_to_write():
        producer.produce(
            name,
            partition=0,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
        )
    assert producer.flush(20) == 0
    assert read(cluster, name) == records_to_write()


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_python_writes_is_read_equal(kafka: Any, topic: Any, cluster: Cluster, codec: str) -> None:
    name = topic(partitions=1)
    # kafka-python writes no null header value, and no record that has neither key nor value.
    records = [
        record._replace(
            value=b"" if record.key is None and record.value is None else record.value,
            headers=tuple((key, value or b"") for key, value in record.headers),
        )
        for record in records_to_write()
    ]
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
    )
    for record in records:
        producer.send(
            name,
            partition=0,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
        )
    producer.flush(20)
    producer.close()
    assert read(cluster, name) == records


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_is_read_equal_by_confluent_kafka(kafka: Any, topic: Any, cluster: Cluster, codec: str) -> None:
    name = topic(partitions=1)
    records = records_to_write()
    write(cluster, name, records, codec)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    got: list[Record] = []
    deadline = time.monotonic() + 20
    while len(got) < len(records) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            got.append(
                Record(
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
    consumer.close()
    assert got == records


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_is_read_equal_by_kafka_python(kafka: Any, topic: Any, cluster: Cluster, codec: str) -> None:
    name = topic(partitions=1)
    records = records_to_write()
    write(cluster, name, records, codec)
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False)
    tp = kafka_python.TopicPartition(name, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    got: list[Record] = []
    deadline = time.monotonic() + 20
    while len(got) < len(records) and time.monotonic() < deadline:
        for message in consumer.poll(1000).get(tp, ()):
            got.append(Record(message.offset, message.key, message.value, tuple(message.headers), message.timestamp))
    consumer.close()
    assert got == records


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_we_read_equal(topic: Any, cluster: Cluster, codec: str) -> None:
    name = topic(partitions=1)
    records = records_to_write()
    write(cluster, name, records, codec, max_batch_bytes=1 << 20)
    assert read(cluster, name) == records


def test_kafkas_dump_log_segments_accepts_what_we_write(kafka: Any, topic: Any, cluster: Cluster) -> None:
    if not isinstance(kafka, LocalCluster):
        pytest.skip("the segments of these brokers are on another machine")
    records = records_to_write()
    segments = {}
    for codec, transactional in itertools.product(CODECS, (False, True)):
        name = topic(partitions=1)
        if transactional:
            with Transaction.begin(cluster, f"dumped-{name}") as transaction:
                transaction.produce({TopicPartition(name, 0): encode(records, codec)})
                transaction.commit()
        else:
            write(cluster, name, records, codec)
        segment = kafka.folder / "broker-1" / "data" / f"{name}-0" / f"{0:020}.log"
        segments[str(segment)] = codec, transactional
    package = "org.apache.kafka" if release(kafka.version) >= (4,) else "kafka"
    printed = kafka.tool(f"{package}.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(segments))
    dumps = dict(dump.split("\n", 1) for dump in re.split(r"(?m)^Dumping ", printed)[1:])
    assert dumps.keys() == segments.keys()
    for segment, (codec, transactional) in segments.items():
        lines = dumps[segment].splitlines()
        batches = [line.lower() for line in lines if line.startswith("baseOffset: ")]
        assert all(" isvalid: true" in line and " magic: 2 " in line for line in batches), batches
        data = [line for line in batches if " iscontrol: false " in line]
        assert len(data) >= 2 and len(batches) == len(data) + transactional, batches
        assert all(f" istransactional: {transactional} ".lower() in line for line in data), data
        assert all(f" compresscodec: {codec} " in line for line in data), data
        # Each record as the tool found it in its batch: unpacked, with its key, value and headers measured.
        inner = [line for line in lines if line.startswith("| offset: ") and "endTxnMarker" not in line]
        found = [{name.lower(): value for name, value in re.findall(r"(\w+): (\[.*\]|\S+)", line)} for line in inner]
        assert [
            [each[name] for name in ("offset", "createtime", "keysize", "valuesize", "headerkeys")] for each in found
        ] == [
            [
                str(record.offset),
                str(record.timestamp),
                *("-1" if part is None else str(len(part)) for part in (record.key, record.value)),
                f"[{','.join(key for key, _ in record.headers)}]",
            ]
            for record in records
        ]


def test_aborted_transactions_and_markers_are_left_out_of_committed_reads_only(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(20)
    outcomes = [True, False, True, False, False, True, False]
    for i, commit in enumerate(outcomes):
        producer.begin_transaction()
        for j in range(3):
            producer.produce(name, partition=0, value=f"{i}.{j}".encode())
        producer.flush(20)
        if commit:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)

    everything = [f"{i}.{j}".encode() for i in range(len(outcomes)) for j in range(3)]
    committed = [f"{i}.{j}".encode() for i, commit in enumerate(outcomes) if commit for j in range(3)]
    assert [record.value for record in read(cluster, name)] == everything
    of_committed = read(cluster, name, isolation_level="read_committed")
    assert [record.value for record in of_committed] == committed
    # Each transaction takes three offsets and one for its marker.
    assert [record.offset for record in of_committed] == [4 * i + j for i in (0, 2, 5) for j in range(3)]


def test_an_open_transaction_hides_what_follows_it_from_committed_reads(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=1)
    plain = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    plain.produce(name, partition=0, value=b"before")
    plain.flush(20)
    transaction = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    )
    transaction.init_transactions(20)
    transaction.begin_transaction()
    transaction.produce(name, partition=0, value=b"open")
    transaction.flush(20)
    plain.produce(name, partition=0, value=b"after")
    plain.flush(20)
    assert [r.value for r in read(cluster, name, isolation_level="read_committed")] == [b"before"]
    assert [r.value for r in read(cluster, name)] == [b"before", b"open", b"after"]
    transaction.abort_transaction(20)
    # That the transaction has ended is logged by now, its marker is written a moment later.
    deadline = time.monotonic() + 20
    while True:
        values = [r.value for r in read(cluster, name, isolation_level="read_committed")]
        if values != [b"before"]:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert values == [b"before", b"after"]
