"""`readStream.name(…)` (Spark 4.2+): sources are added to a query and removed from it under one checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: As docs/checkpoints.md says. The offset log has the sources' names from format 2 on; a checkpoint keeps the format it began with.
SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def evolving(spark: Any) -> Iterator[Any]:
    """The session, in which each streaming source must have a name."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name in SETTINGS:
        spark.conf.unset(name)


def test_sources_are_added_and_removed_under_one_checkpoint(
    evolving: Any, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    topics = {name: topic(1) for name in ("orders", "returns", "refunds")}
    brokers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"}
    checkpoint, table = str(tmp_path / "checkpoint"), str(tmp_path / "table")
    written: list[tuple[str, int]] = []
    counts = dict.fromkeys(topics, 0)

    def add(**numbers: int) -> None:
        for name, number in numbers.items():
            outside.fill(topics[name], [number])
            written.extend((topics[name], counts[name] + each) for each in range(number))
            counts[name] += number

    def source(name: str) -> Any:
        reader = evolving.readStream.format("pykafka-wire").name(name).options(**brokers, subscribe=topics[name])
        return reader.load().select("topic", "offset")

    def run(*names: str) -> None:
        """The union of these sources, to its end."""
        union = functools.reduce(lambda one, other: one.union(other), map(source, names))
        writer = union.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start(table).awaitTermination(120)
        rows = evolving.read.parquet(table).collect()
        assert sorted((row.topic, row.offset) for row in rows) == sorted(written)

    add(orders=3, returns=2)
    run("orders", "returns")
    add(orders=1, refunds=4)
    run("refunds", "orders", "returns")  # one is new, and the others have other places
    add(refunds=1)
    run("refunds", "orders")  # one is gone
    add(orders=2)
    # Another query may begin where one of them ends.
    at_its_end = {**brokers, "subscribe": topics["orders"], "startingOffsets": f"checkpoint:{checkpoint}#/orders"}
    assert evolving.read.format("pykafka-wire").options(**at_its_end).load().count() == 2


def test_a_source_that_the_jvm_connector_added_is_read_from_its_start(
    evolving: Any, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    orders, returns = topic(1), topic(1)
    brokers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    checkpoint = str(tmp_path / "checkpoint")

    def run(**started: str) -> None:
        names = {orders: "orders", returns: "returns"}
        frames = [
            evolving.readStream.format("kafka")
            .name(names[each])
            .options(**brokers, subscribe=each, startingOffsets=start)
            .load()
            for each, start in started.items()
        ]
        union = functools.reduce(lambda one, other: one.union(other), frames)
        writer = union.writeStream.format("noop").option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    outside.fill(orders, [3])
    outside.fill(returns, [5])
    run(**{orders: "earliest"})
    outside.fill(orders, [1])
    run(**{orders: "earliest", returns: f'{{"{returns}":{{"0":2}}}}'})

    micro_batch = evolving.read.format("pykafka-wire").options(**brokers, microBatch=f"{checkpoint}#1").load()
    rows = sorted((row.topic, row.offset) for row in micro_batch.collect())
    assert rows == sorted([(orders, 3), (returns, 2), (returns, 3), (returns, 4)])
