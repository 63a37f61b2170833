"""Whole streaming queries: joins, unions, watermarks, and topics that change while a query runs. `make parity` runs these."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.connector.spark_errors import sentence_in

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark]


class Seen:
    """What each batch of a query held, as (topic, partition, offset)."""

    def __init__(self, queries: Any, frame: Any, **trigger: Any) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = {}
        self.before = lambda batch_id: None
        writer = frame.writeStream.foreachBatch(self._see).option("checkpointLocation", str(queries.checkpoint))
        self._writer = writer.trigger(**trigger)

    def _see(self, batch: Any, batch_id: int) -> None:
        self.before(batch_id)
        places = (
            (row.topic, row.partition, row.offset) for row in batch.select("topic", "partition", "offset").collect()
        )
        self.batches[batch_id] = sorted(places)

    def run(self) -> list[list[tuple[str, int, int]]]:
        """Batches that held rows, of a query that ends by itself."""
        query = self._writer.start()
        assert query.awaitTermination(120), "the query did not end"
        return [self.batches[n] for n in sorted(self.batches) if self.batches[n]]


@pytest.mark.parametrize(("partitions", "n_records"), [(3, 15), (5, 10)])
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_made_again_during_an_available_now_run(
    partitions: int, n_records: int, fail_on_data_loss: str, queries: Any, outside: Any
) -> None:
    """Fewer partitions, or fewer records, than the run was to read: it fails, or ends without them, and never hangs."""
    name = f"again-{uuid.uuid4().hex[:8]}"
    outside.create(name, 5)
    outside.fill(name, [15])
    options = {"subscribe": name, "maxOffsetsPerTrigger": "5", "failOnDataLoss": fail_on_data_loss}
    seen = Seen(queries, queries.stream(**options), availableNow=True)

    def make_again(batch_id: int) -> None:
        if batch_id == 1:
            outside.delete(name)
            outside.create(name, partitions)
            outside.fill(name, [n_records])

    seen.before = make_again  # type: ignore[assignment]
    if fail_on_data_loss == "true":
        with pytest.raises(PySparkException) as raised:
            seen.run()
        sentence = sentence_in(str(raised.value))
        assert sentence.startswith("[PYKAFKA_WIRE_DATA_LOSS] TOPIC_RECREATED: the topic was deleted and created again")
        assert f"{name}-0" in sentence and "set the option failOnDataLoss to false" in sentence
    else:
        seen.run()
    outside.delete(name)


def test_a_topic_deleted_while_a_batch_is_read(queries: Any, outside: Any) -> None:
    name = f"gone-{uuid.uuid4().hex[:8]}"
    outside.create(name, 1)
    outside.fill(name, [10])
    options = {"subscribe": name, "failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "5000"}
    seen = Seen(queries, queries.stream(**options), availableNow=True)
    seen.before = lambda batch_id: outside.delete(name) or outside.create(name, 1)  # type: ignore[assignment]
    assert seen.run() == []
    outside.delete(name)


def test_a_batch_that_failed_is_run_again_after_partitions_were_added(queries: Any, topic: Any, outside: Any) -> None:
    """SPARK-53560: the retried batch ends where it was logged to end, whatever the topic has become."""
    name = topic(1)
    outside.fill(name, [7])
    seen = Seen(queries, queries.stream(subscribe=name), availableNow=True)

    def fail(batch_id: int) -> None:
        raise RuntimeError("planned failure")

    seen.before = fail  # type: ignore[assignment]
    with pytest.raises(PySparkException, match="planned failure"):
        seen.run()
    outside.grow(name, 3)
    outside.fill(name, [1, 1, 0], first=100)
    seen.before = lambda batch_id: None
    assert seen.run() == [[(name, 0, o) for o in range(7)], [(name, 0, 7), (name, 1, 0)]]


def test_two_sources_each_keep_their_limit(queries: Any, topic: Any, outside: Any) -> None:
    """SPARK-22956: one of them has nothing more to read, while the other one goes on, over a restart, too."""
    short, long = topic(1), topic(1)
    outside.fill(short, [10])
    outside.fill(long, [20])

    def run() -> list[list[tuple[str, int, int]]]:
        both = queries.stream(subscribe=short, maxOffsetsPerTrigger="5").union(
            queries.stream(subscribe=long, maxOffsetsPerTrigger="5")
        )
        return Seen(queries, both, availableNow=True).run()

    def part(topic: str, first: int) -> list[tuple[str, int, int]]:
        return [(topic, 0, o) for o in range(first, first + 5)]

    assert run() == [
        sorted(part(short, 0) + part(long, 0)),
        sorted(part(short, 5) + part(long, 5)),
        part(long, 10),
        part(long, 15),
    ]
    outside.fill(long, [5])
    assert run() == [part(long, 20)]


@pytest.mark.parametrize("reuse", ["false", "true"])
def test_a_stream_joined_with_itself_has_one_offset(
    reuse: str, queries: Any, topic: Any, outside: Any, spark: Any
) -> None:
    name, table = topic(2), f"m_{uuid.uuid4().hex[:8]}"
    outside.fill(name, [2, 2])
    values = queries.stream(subscribe=name).selectExpr("cast(cast(value AS string) AS int) AS v", "partition AS k")
    spark.conf.set("spark.sql.exchange.reuse", reuse)
    try:
        writer = values.join(values, "k").writeStream.format("memory").queryName(table)
        query = writer.option("checkpointLocation", str(queries.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    finally:
        spark.conf.unset("spark.sql.exchange.reuse")
    assert spark.table(table).count() == 8
    # Spark 4.2 logs it for each place in the plan, for the JVM connector, too; two readers would have a query id each.
    assert len(set((queries.checkpoint / "offsets" / "0").read_text().splitlines()[2:])) == 1
    # The source is scanned twice unless Spark reuses the exchange.
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == (4 if reuse == "true" else 8)


def test_a_watermark_over_the_records_timestamps(queries: Any, topic: Any, outside: Any, spark: Any) -> None:
    name, table = topic(1, {"retention.ms": "-1"}), f"m_{uuid.uuid4().hex[:8]}"
    record, minute = outside.Record, 60_000
    outside.produce(
        name, [record(value=b"v", timestamp_ms=1_700_000_000_000 // minute * minute + ms) for ms in (0, 1, minute)]
    )
    counts = (
        queries.stream(subscribe=name)
        .withWatermark("timestamp", "10 seconds")
        .groupBy("timestamp")
        .count()
        .selectExpr("unix_millis(timestamp) % 60000 AS ms", "count")
    )
    query = counts.writeStream.format("memory").queryName(table).outputMode("append").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted((row.ms, row["count"]) for row in spark.table(table).collect()) == [(0, 1), (1, 1)]


def test_no_topic_left_is_no_progress(queries: Any, outside: Any) -> None:
    """SPARK-41375: an offset without a partition must not be logged, its topics would begin anew later."""
    prefix = f"left-{uuid.uuid4().hex[:8]}"
    outside.create(f"{prefix}-1", 2)
    outside.fill(f"{prefix}-1", [3, 1])
    options = {"subscribePattern": f"^{prefix}", "failOnDataLoss": "false"}
    queries.run(**options)
    logged = queries.logged_offsets()
    outside.delete(f"{prefix}-1")
    queries.run(**options)
    assert queries.logged_offsets() == logged


def test_records_that_come_after_planning_belong_to_the_next_batch(queries: Any, outside: Any, topic: Any) -> None:
    """SPARK-25495: what was fetched beyond a batch's end is neither lost nor doubled."""
    name = topic(1)
    outside.fill(name, [4])
    frame = queries.stream(subscribe=name)
    seen = Seen(queries, frame, processingTime="0 seconds")
    seen.before = lambda batch_id: outside.fill(name, [4], first=10) if batch_id == 0 else None  # type: ignore[assignment]
    query = seen._writer.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    held = [seen.batches[n] for n in sorted(seen.batches) if seen.batches[n]]
    assert held == [[(name, 0, o) for o in range(4)], [(name, 0, o) for o in range(4, 8)]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_topics_and_partitions_come_while_records_arrive(
    fail_on_data_loss: str, queries: Any, outside: Any, topic: Any, until: Any
) -> None:
    """40 changes, in an order that a seed fixes: records, new topics, new partitions; with failOnDataLoss=false old
    records age out and topics are deleted, too. Every record that was there comes once."""
    chance = random.Random(7)
    prefix = f"stress-{uuid.uuid4().hex[:8]}"
    partitions = {topic(1, name=f"{prefix}-0"): 1}
    options = {"subscribePattern": f"^{prefix}-", "failOnDataLoss": fail_on_data_loss}
    seen = Seen(queries, queries.stream(**options), processingTime="0 seconds")
    query = seen._writer.start()

    def delivered() -> list[tuple[str, int, int]]:
        return [place for batch in dict(seen.batches).values() for place in batch]

    try:
        for step in range(40):
            action, name = chance.random(), chance.choice(sorted(partitions))
            if action < 0.5:
                outside.fill(name, [chance.randrange(20) for _ in range(partitions[name])])
            elif action < 0.65:
                partitions[topic(2, name=f"{prefix}-{step + 1}")] = 2
            elif action < 0.8:
                partitions[name] += 1
                outside.grow(name, partitions[name])
            elif fail_on_data_loss == "false" and step % 2:
                outside.age_out(name, 0, -1)
            elif fail_on_data_loss == "false" and len(partitions) > 1:
                outside.delete(name)
                del partitions[name]
            if step % 10 == 9:
                query.processAllAvailable()
        still_there = {(name, r.partition, r.offset) for name in partitions for r in outside.consume(name)}
        # New topics and partitions are noticed a moment later, which is longer on a busy machine.
        until(lambda: query.exception() or still_there <= set(delivered()), timeout_s=300, what="every record")
        assert query.exception() is None
    finally:
        query.stop()
    assert len(set(delivered())) == len(delivered())
    if fail_on_data_loss == "true":
        assert still_there == set(delivered())
    read = json.loads(query.lastProgress["sources"][0]["endOffset"])["offsets"]
    assert {name for name, _, _ in still_there} <= read.keys()
