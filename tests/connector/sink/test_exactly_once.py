"""Streams from Kafka to Kafka, exactly once: through Spark, over restarts, as another client's read_committed reader sees it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException, StreamingQueryException

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.digest import digest_of
from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransaction
from pykafka_wire.sink.exactly_once.marker import Marker, encode_marker, marker_group
from pykafka_wire.sink.exactly_once.tasks import EncodedTask
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import describe_transaction
from pykafka_wire.wire.errors import ProducerFencedError
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction

COPY = ["key", "value", "partition"]


class Copy:
    """A query that copies a topic, exactly once, up to what is there."""

    def __init__(self, queries: Any, source: str, columns: list[str], **options: str) -> None:
        self.queries = queries
        self.source = source
        self.columns = columns
        self.options = {
            "kafka.bootstrap.servers": queries.servers,
            "deliveryGuarantee": "exactly-once",
            "kafka.transactional.id": f"copy-{uuid.uuid4().hex[:8]}",
        } | options

    def run(self) -> Any:
        query = (
            self.queries.stream(subscribe=self.source, maxOffsetsPerTrigger="1000")
            .selectExpr(*self.columns)
            .writeStream.format("pykafka-wire")
            .options(**self.options)
            .option("checkpointLocation", str(self.queries.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120), "the query did not end"
        return query

    def forget_last(self, log: str = "commits") -> None:
        """As if Spark had died before it could log that its last micro-batch is done, or that it was planned."""
        folder = self.queries.checkpoint / log
        last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (folder / name).unlink(missing_ok=True)


@pytest.fixture(params=["driver", "tasks"])
def way(request: pytest.FixtureRequest) -> str:
    """The option `transactions`."""
    return str(request.param)


def by_partition(records: list[Any]) -> list[tuple[int, bytes, bytes]]:
    return [(record.partition, record.key, record.value) for record in records]


def test_each_record_once_and_in_order_though_micro_batches_run_again(
    way: str, queries: Any, topic: Any, outside: Any
) -> None:
    source, target = topic(2), topic(2)
    copy = Copy(queries, source, COPY, topic=target, transactions=way, **{"kafka.compression.type": "lz4"})
    outside.fill(source, [1500, 1000])
    assert len(copy.run().recentProgress) >= 3
    expected = by_partition(outside.consume(source))
    assert by_partition(outside.consume(target, isolation_level="read_committed")) == expected
    copy.forget_last()
    outside.fill(source, [10, 10], first=2500)
    copy.run()
    expected = by_partition(outside.consume(source))
    assert by_partition(outside.consume(target, isolation_level="read_committed")) == expected
    if way == "driver":  # all of it: nothing was written a second time and then aborted
        assert len(outside.consume(target)) == len(expected)


def test_changing_the_way_at_each_restart(queries: Any, topic: Any, outside: Any) -> None:
    source, target = topic(2), topic(2)
    copy = Copy(queries, source, COPY, topic=target)
    for turn, way in enumerate(["tasks", "driver", "tasks"]):
        if turn:
            copy.forget_last()
        outside.fill(source, [600, 400], first=1000 * turn)
        copy.options["transactions"] = way
        copy.run()
    expected = by_partition(outside.consume(source))
    assert by_partition(outside.consume(target, isolation_level="read_committed")) == expected


def test_topics_out_of_a_column(queries: Any, topic: Any, outside: Any) -> None:
    source, even, odd, marker = topic(2), topic(1), topic(1), topic(1)
    outside.fill(source, [300, 200])
    place = f"CASE WHEN CAST(CAST(value AS STRING) AS INT) % 2 = 0 THEN '{even}' ELSE '{odd}' END AS topic"
    copy = Copy(queries, source, ["value", place], markerTopic=marker)
    copy.run()
    copy.forget_last()
    copy.run()
    for name, remainder in ((even, 0), (odd, 1)):
        found = [int(record.value) for record in outside.consume(name, isolation_level="read_committed")]
        assert sorted(found) == [number for number in range(500) if number % 2 == remainder]
    assert outside.consume(marker) == []
    assert outside.committed(marker_group(copy.options["kafka.transactional.id"])) == {(marker, 0): 1}


def test_a_checkpoint_that_was_set_back_is_refused(way: str, queries: Any, topic: Any, outside: Any) -> None:
    source, target = topic(1), topic(1)
    copy = Copy(queries, source, COPY, topic=target, transactions=way)
    outside.fill(source, [2000])
    copy.run()
    for log in ("commits", "commits", "offsets"):
        copy.forget_last(log)
    with pytest.raises(
        StreamingQueryException, match=r"\[PYKAFKA_WIRE_EXACTLY_ONCE\] micro-batch 1 is in Kafka already"
    ):
        copy.run()
    assert len(outside.consume(target, isolation_level="read_committed")) == 2000


def test_a_micro_batch_beyond_the_cap_writes_nothing_and_names_the_remedy(
    queries: Any, topic: Any, outside: Any
) -> None:
    source, target = topic(1), topic(1)
    outside.fill(source, [500])
    copy = Copy(queries, source, COPY, topic=target, maxTransactionBytes="2000")
    with pytest.raises(StreamingQueryException, match=r"accepts 2000\. Set maxOffsetsPerTrigger"):
        copy.run()
    assert outside.consume(target) == []


def test_a_batch_write_is_refused_with_the_reason(spark: Any, kafka: Any) -> None:
    frame = spark.createDataFrame([("v",)], "value string").write.format("pykafka-wire").mode("append")
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t", "deliveryGuarantee": "exactly-once"}
    with pytest.raises(PySparkException, match="a batch write has no batch id"):
        frame.options(**asked, **{"kafka.transactional.id": "x"}).save()


# --- the messages of tasks, without Spark ---------------------------------------------------------------------------------


class Committer:
    """Commits messages of tasks under a transactional id of its own."""

    def __init__(self, cluster: Cluster, marker_topic: str) -> None:
        self.cluster = cluster
        self.options = ExactlyOnceOptions(transactional_id=f"m-{uuid.uuid4().hex[:8]}", marker_topic=marker_topic)

    def __call__(self, *messages: Any, batch_id: int = 0, **options: bool) -> Decision:
        chosen = replace(self.options, **options)  # type: ignore[arg-type]
        strategy = DriverTransaction(self.cluster, chosen, max_bytes=1000)
        return MicroBatchCommit(self.cluster, chosen, batch_id, strategy).run(messages)

    def epoch(self) -> int:
        found = describe_transaction(self.cluster, self.options.transactional_id)
        assert found is not None
        return found.producer_epoch


@pytest.fixture
def commit(kafka: Any, topic: Any) -> Iterator[Committer]:
    """Commits messages of tasks, as micro-batch 0 by default."""
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        yield Committer(cluster, topic(1))


def message(task: int, **changed: Any) -> EncodedTask:
    fields = {"query_id": "q", "batch_id": 0, "batches": {}, "n_records": 0, "n_bytes": 0, "digest": 0}
    return EncodedTask(task=task, **(fields | changed))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message(0), None],
        [message(1)],
        [message(0), message(0)],
        [message(0), message(1, query_id="other")],
        [message(0), message(1, batch_id=1)],
    ],
    ids=["none", "a task failed", "a task is missing", "a task twice", "two queries", "two micro-batches"],
)
def test_messages_that_are_no_micro_batch(commit: Committer, messages: list[Any]) -> None:
    with pytest.raises(ExactlyOnceError, match=r"micro-batch 0 was not written: .* one of each task"):
        commit(*messages)


def test_an_empty_micro_batch_leaves_a_marker_too(commit: Committer) -> None:
    assert commit(message(1), message(0)) is Decision.WRITE
    assert commit(message(0), message(1)) is Decision.SKIP


def test_other_rows_in_a_replay_are_refused_and_kept_out_on_request(
    commit: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    commit(message(0, n_records=3))
    with pytest.raises(ExactlyOnceError, match=r"with 3 records .* computed it with 4 .*set onMarkerMismatch=skip"):
        commit(message(0, n_records=4))
    assert commit(message(0, n_records=4), keep_on_marker_mismatch=True) is Decision.KEEP
    assert "this run computed other rows" in caplog.text
    assert commit(message(0, batch_id=1), batch_id=1) is Decision.WRITE


def test_micro_batch_0_is_refused_where_another_querys_marker_is(commit: Committer) -> None:
    commit(message(0, query_id="first"))
    with pytest.raises(ExactlyOnceError, match=r"marker is of query first, micro-batch 0 .*failOnMissingMarker=false"):
        commit(message(0, query_id="second"))
    assert commit(message(0, query_id="second"), fail_on_missing_marker=False) is Decision.WRITE


def test_micro_batch_0_is_refused_where_its_marker_was_deleted_and_at_every_further_try(
    commit: Committer, outside: Any
) -> None:
    commit(message(0))
    group = marker_group(commit.options.transactional_id)
    outside.admin.delete_consumer_groups([group])[group].result(30)
    epoch = commit.epoch()
    for _ in range(2):
        with pytest.raises(ExactlyOnceError, match=r"its kafka.transactional.id has committed a transaction"):
            commit(message(0))
    assert commit.epoch() == epoch  # nobody was fenced
    assert commit(message(0), fail_on_missing_marker=False) is Decision.WRITE


def test_a_driver_that_crashed_in_micro_batch_0_writes_it(commit: Committer) -> None:
    with Cluster(commit.cluster.settings) as crashed:
        place = TopicPartition(commit.options.marker_topic, 0)
        left = Transaction.begin(crashed, commit.options.transactional_id)
        marker = Marker(query_id="q", batch_id=0, n_records=0, digest=f"{0:016x}")
        (offset,) = encode_marker(marker, commit.options.transactional_id)
        left.commit_offsets(marker_group(commit.options.transactional_id), {place: offset})
    assert commit(message(0)) is Decision.WRITE


def test_tasks_together_beyond_the_cap(commit: Committer) -> None:
    with pytest.raises(ExactlyOnceError, match=r"it has at least 1200 bytes.*maxOffsetsPerTrigger"):
        commit(message(0, n_bytes=600), message(1, n_bytes=600))


def test_a_foreign_transaction_on_the_id_and_the_markers_life_are_named_at_the_start(
    kafka: Any, topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, transactional_id = topic(1), f"foreign-{uuid.uuid4().hex[:8]}"
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})
    options = ExactlyOnceOptions(transactional_id=transactional_id, marker_topic=name)
    with Cluster(settings) as others, Cluster(settings) as cluster:
        foreign = Transaction.begin(others, transactional_id)
        foreign.commit_offsets(transactional_id, {TopicPartition(name, 0): CommittedOffset(1)})
        MicroBatchCommit(cluster, options, 0, DriverTransaction(cluster, options, max_bytes=1000)).run([message(0)])
        with pytest.raises(ProducerFencedError):
            foreign.commit()
    said = " ".join(record.message for record in caplog.records if record.levelname == "WARNING")
    whose = f"producer {foreign.identity.producer_id}, epoch {foreign.identity.producer_epoch}, state Ongoing"
    assert f"{transactional_id!r} has an open transaction, which is ended now: {whose}" in said
    assert (
        f"marker of {transactional_id!r} expires 7.0 days after the last micro-batch (offsets.retention.minutes=10080)"
        in said
    )


def rows(*columns: tuple[bytes | None, bytes | None], **more: Any) -> RecordColumns:
    keys, values = zip(*columns, strict=True)
    now = np.zeros(len(columns), dtype=np.int64)
    given = {"headers": None, "topic": None, "partition": None} | more
    return RecordColumns(
        n_records=len(columns),
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        timestamp_ms=now,
        **given,
    )


def scalar_digest(values: list[bytes | None]) -> int:
    """The digest of rows with a value alone, one after the other."""
    mask = (1 << 64) - 1

    def mixed(number: int) -> int:
        number = ((number ^ number >> 33) * 0xFF51AFD7ED558CCD) & mask
        number = ((number ^ number >> 33) * 0xC4CEB9FE1A85EC53) & mask
        return number ^ number >> 33

    def factor(place: int) -> int:
        return mixed((place + 1) * 0x9E3779B97F4A7C15 & mask) | 1

    def hashed(value: bytes | None) -> int:
        if value is None:
            return 0
        if len(value) > 2048:
            half = len(value) // 2
            return (len(value) + 1) * factor(256) + (crc32c(value[:half]) << 32 | crc32c(value[half:]))
        words = [int.from_bytes(value[at : at + 8], "little") for at in range(0, len(value), 8)]
        return (len(value) + 1) * factor(256) + sum(word * factor(place) for place, word in enumerate(words))

    return sum(mixed(mixed((hashed(value) + factor(1)) & mask)) for value in values) & mask


@settings(max_examples=60)
@given(st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=2040, max_size=2060), max_size=12), st.data())
def test_a_digest_agrees_with_one_computed_row_by_row(values: list[bytes | None], data: st.DataObject) -> None:
    def digest(part: list[bytes | None], array: Any) -> int:
        empty = {"key": None, "headers": None, "topic": None, "partition": None}
        now = np.zeros(len(part), dtype=np.int64)
        return digest_of(RecordColumns(n_records=len(part), value=array, timestamp_ms=now, **empty))

    array = pa.array(values, pa.binary())
    assert digest(values, array) == scalar_digest(values)
    cut = data.draw(st.integers(0, len(values)))
    assert digest(values[cut:], array.slice(cut)) == scalar_digest(values[cut:])
    same = [value for value in values if value is not None and len(value) == 40] * 3
    assert digest(list(same), pa.array(same, pa.binary())) == scalar_digest(list(same))


#: Markers hold digests over an upgrade.
DIGEST = 0x822C9761EF04B856


def test_a_digest_never_changes() -> None:
    assert digest_of(rows((b"key", b"value"), (None, b"a longer value, of several words"))) == DIGEST


def test_a_digest_is_of_the_rows_whatever_their_order_and_their_tasks() -> None:
    a, b, c = (b"k", b"1"), (None, b"2"), (b"", None)
    assert digest_of(rows(a, b, c)) == (digest_of(rows(c, a)) + digest_of(rows(b))) % 2**64
    assert digest_of(rows((b"k", b"1"), (b"l", b"2"))) != digest_of(rows((b"k", b"2"), (b"l", b"1")))
    assert digest_of(rows(a, b)) != digest_of(rows(a, a))
    assert digest_of(rows((b"k", None))) != digest_of(rows((b"k", b"")))
    headers = pa.array([[("h", b"1")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    others = pa.array([[("h", b"2")]], headers.type)
    kinds = [
        rows(a),
        rows(a, topic=pa.array(["t"])),
        rows(a, partition=pa.array([1], pa.int32())),
        rows(a, headers=headers),
        rows(a, headers=others),
    ]
    assert len({digest_of(each) for each in kinds}) == len(kinds)
