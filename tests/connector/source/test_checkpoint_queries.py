"""A query moves from Spark's own connector to this one by one option, and on to another query of this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire import checkpoint_position
from pykafka_wire.errors import OffsetsError

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_a_query_moves_over_by_one_option(spark: Any, queries: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name = topic(2)
    outside.fill(name, [4, 3])
    old = tmp_path / "old-checkpoint"
    options = {"kafka.bootstrap.servers": outside.servers, "subscribe": name, "startingOffsets": "earliest"}

    def places(frame: Any) -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for row in frame.collect())

    jvm: list[list[tuple[int, int]]] = []
    for _ in range(2):  # two micro-batches of the JVM connector
        query = (
            spark.readStream.format("kafka")
            .options(**options)
            .load()
            .writeStream.foreachBatch(lambda batch, _: jvm.append(places(batch)))
            .option("checkpointLocation", str(old))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        outside.fill(name, [2, 2])
    assert [len(rows) for rows in jvm] == [7, 4]

    queries.run(subscribe=name, startingOffsets=f"checkpoint:{old}")
    moved = [(partition, offset) for partition, offset, _ in queries.rows()]
    assert moved == [(0, 6), (0, 7), (1, 5), (1, 6)]

    def batch(**asked: str) -> list[tuple[int, int]]:
        reader = spark.read.format("pykafka-wire").option("kafka.bootstrap.servers", outside.servers)
        return places(reader.options(**asked).load())

    # The session reads the checkpoint where pyarrow cannot.
    unread = checkpoint_position(spark, f"file:{old}")
    assert batch(subscribe=name, startingOffsets=unread) == moved
    assert batch(subscribe=name, startingOffsets=checkpoint_position(spark, f"{old}#0"), endingOffsets=unread) == jvm[1]
    with pytest.raises(OffsetsError, match="there is no checkpoint of a query in file:"):
        checkpoint_position(spark, f"file:{tmp_path}/nothing")
    # Each micro-batch of either can be read again.
    assert [batch(microBatch=f"{old}#{n}") for n in (0, 1)] == jvm
    assert batch(microBatch=f"file:{queries.checkpoint}#0") == moved
    (end,) = [json.loads(line) for line in (old / "offsets" / "1").read_text().splitlines()[2:]]
    assert batch(subscribe=name, endingOffsets=f"checkpoint:{old}#1") == batch(
        subscribe=name, endingOffsets=json.dumps(end)
    )
