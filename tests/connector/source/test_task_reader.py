"""What a task takes for lost, what it leaves to Spark's next try, and what it does without."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import weakref
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.source import task_reader
from pykafka_wire.source.spark_task import batches_for_spark
from pykafka_wire.source.task_reader import _may_come_back, read_ranges
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import LogEndError, OffsetOutOfRangeError, WireError
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import DecodedRecords
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import OffsetRange
from tests.connector.parsed_options import batch

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
RANGE = OffsetRange(topic="t", partition=0, start_offset=10, end_offset=100)


def out_of_range(log_start_offset: int | None, log_end_offset: int | None) -> OffsetOutOfRangeError:
    error = OffsetOutOfRangeError(1, topic="t", partition=0)
    error.log_start_offset, error.log_end_offset = log_start_offset, log_end_offset
    return error


def log_end(high_watermark: int, last_stable_offset: int, log_end_offset: int | None = None) -> LogEndError:
    return LogEndError(
        "the log ends",
        topic="t",
        partition=0,
        position=50,
        end_offset=100,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_end_offset=log_end_offset,
    )


@pytest.mark.parametrize(
    ("error", "may_come_back"),
    [
        (out_of_range(20, 200), False),  # aged out
        (out_of_range(0, 5), False),  # the log was cut
        (out_of_range(0, 200), True),  # by now it is there again
        (out_of_range(None, None), True),  # nobody could be asked
        (log_end(high_watermark=100, last_stable_offset=50), True),  # a transaction is open
        (log_end(high_watermark=50, last_stable_offset=40, log_end_offset=60), False),  # the log lost its tail
        (log_end(high_watermark=50, last_stable_offset=40, log_end_offset=100), True),  # replicas trail
        (log_end(high_watermark=50, last_stable_offset=40), False),  # an old broker says no more
    ],
)
def test_only_what_is_proven_lost_is_skipped(error: WireError, may_come_back: bool) -> None:
    assert _may_come_back(RANGE, error) is may_come_back


#: A worker's part in reading the record batches that standard input holds, all columns, of two topics, and in writing them.
READ_AND_WRITE = """
import sys
import pyspark.worker
import pyarrow as pa
from pyspark.sql.types import *
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.source.task_reader import record_batch
from pykafka_wire.wire.records.decode import Columns, decode
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.topic_partitions import OffsetRange

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES = {
    "topic": StringType(), "partition": IntegerType(), "timestamp": TimestampType(), "key": BinaryType(),
    "value": BinaryType(), "headers": ArrayType(HEADER),
}

data = memoryview(sys.stdin.buffer.read())
ranges = [OffsetRange(topic=topic, partition=3, start_offset=0, end_offset=9) for topic in ("one", "other")]
records = decode([RecordSlice(data, 0, 9)] * 2, Columns(headers=True), read_committed=False)
schema = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
     ("timestampType", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("headers", records.headers.type)]
)
batch = record_batch(records, ranges, schema)
batch.validate(full=True)


class Counting:  # stands for the producer

    n_sent = 0

    def partitions_for(self, topic):
        return 5

    def max_batch_bytes(self, topic):
        return None

    def append(self, topic, partition, batches):
        self.n_sent += sum(each.n_records for each in batches)


for left_out in ((), ("partition", "headers"), ("partition", "key", "timestamp")):
    rows = batch.select([name for name in TYPES if name not in left_out])
    columns = StructType([StructField(name, TYPES[name]) for name in rows.schema.names])
    options = parse_sink_options({"kafka.bootstrap.servers": "localhost:9092"})
    counting = Counting()
    TaskWriter(options, columns).append_all(counting, iter([rows, rows]))
    assert counting.n_sent == 2 * rows.num_rows
print(batch.num_rows, "pandas" in sys.modules)
"""


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_a_worker_reads_and_writes_without_loading_pandas() -> None:
    values = pa.array([b"a", b"b", None], pa.binary())
    headers = pa.array([[{"key": "h", "value": b"1"}], None, None], pa.list_(HEADER))
    batches = encode_batches(
        key=values, value=values, headers=headers, timestamp=np.arange(3), codec=Codec.NONE, max_batch_bytes=1 << 20
    )
    data = b"".join(bytes(batch.data) for batch in batches)
    read = subprocess.run(
        [sys.executable, "-c", READ_AND_WRITE], input=data, capture_output=True, check=True, timeout=120
    )
    assert read.stdout.split() == [b"6", b"False"]


NESTED = pa.schema(
    [
        pa.field(
            "value",
            pa.struct([pa.field("id", pa.int64()), pa.field("lines", pa.list_(pa.map_(pa.string(), pa.date32())))]),
        ),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def nested_batch(key: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"value": {"id": 1, "lines": [[("a", 2)]]}, "key": key, "timestamp": 3}], NESTED)


def test_a_task_begins_with_an_empty_batch_where_spark_would_keep_a_large_one() -> None:
    large, small = nested_batch(bytes(2 << 20)), nested_batch(b"key")
    empty, *others = batches_for_spark(iter([large, small]), NESTED)
    assert (empty.num_rows, empty.schema) == (0, NESTED)
    assert others == [large, small]
    assert list(batches_for_spark(iter([small, large]), NESTED)) == [small, large]
    assert list(batches_for_spark(iter([]), NESTED)) == []


def test_the_records_of_a_response_are_freed_before_the_next_one_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []

    def fetched_ranges(*_: object, **__: object) -> Iterator[FetchedRecords]:
        for _ in range(3):
            fetched = fetched_records()
            offsets = weakref.ref(fetched.records.offset)
            yield fetched
            del fetched
            freed.append(offsets() is None)

    monkeypatch.setattr(task_reader, "fetch_ranges", fetched_ranges)
    options = batch()
    schema = pa.schema([("offset", pa.int64())])
    for found in read_ranges(options, [RANGE], schema, cluster=Cluster(options.client)):
        assert found.num_rows == 5
        del found
    assert freed == [True] * 3


def test_a_reader_that_is_dropped_early_has_ended_before_its_figures_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def fetched_ranges(*_: object, **__: object) -> Iterator[FetchedRecords]:
        try:
            yield fetched_records()
        finally:
            events.append("ended")

    class Receiver:
        def send(self, _: object) -> None:
            events.append("sent")

    monkeypatch.setattr(task_reader, "fetch_ranges", fetched_ranges)
    options = batch()
    schema = pa.schema([("offset", pa.int64())])
    batches = read_ranges(options, [RANGE], schema, cluster=Cluster(options.client), receiver=Receiver())
    next(batches)
    batches.close()
    assert events == ["ended", "sent"]


def fetched_records() -> FetchedRecords:
    records = DecodedRecords(
        n_records=5,
        slice_index=np.zeros(5, dtype=np.int32),
        offset=np.arange(10, 15),
        timestamp=np.empty(0, dtype=np.int64),
        timestamp_type=np.empty(0, dtype=np.int32),
        key=None,
        value=None,
        headers=None,
        next_offsets=np.array([15]),
    )
    return FetchedRecords(ranges=[RANGE], records=records, positions={0: 15}, n_bytes=0)
