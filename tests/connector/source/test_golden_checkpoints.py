"""Checkpoints of every version that wrote them are kept in tests/golden/checkpoints/ for ever: a query goes on from each.

A folder there is a checkpoint as Spark left it, of a query that read the topic golden-orders, of two partitions. Only the
topic's id belongs to the cluster of that day, and is put right.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.offsets import encode_uuid
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings

pytestmark = [pytest.mark.broker, pytest.mark.spark]

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "checkpoints"
TOPIC = "golden-orders"


def logged(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Our offsets at the end of a batch."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
    return json.loads(lines[-1])  # type: ignore[no-any-return]


def batches(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(file.name) for file in (checkpoint / log).glob("[0-9]*"))


@pytest.fixture
def orders(kafka: Any, topic: Any, outside: Any) -> str:
    """The topic, with ten records in each of its partitions; its id as checkpoints hold it."""
    topic(2, name=TOPIC)
    outside.fill(TOPIC, [10, 10])
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        return encode_uuid(cluster.topics([TOPIC])[TOPIC].topic_id)


@pytest.mark.parametrize("kept", sorted(path.name for path in GOLDEN.iterdir()))
def test_a_query_goes_on_from_an_old_checkpoint(kept: str, orders: str, queries: Any, outside: Any) -> None:
    shutil.copytree(GOLDEN / kept, queries.checkpoint)
    old = logged(queries.checkpoint, 0)["topic_ids"][TOPIC]
    for file in (queries.checkpoint / "offsets").glob("[0-9]*"):
        file.write_text(file.read_text(encoding="utf-8").replace(old, orders), encoding="utf-8")
    done, begun = batches(queries.checkpoint, "commits"), batches(queries.checkpoint, "offsets")
    last = logged(queries.checkpoint, begun[-1])
    reached = logged(queries.checkpoint, done[-1])["offsets"] if done else last["starts"]

    seen: dict[int, list[tuple[int, int]]] = {}

    def sink(batch: Any, batch_id: int) -> None:
        seen[batch_id] = sorted((row.partition, row.offset) for row in batch.collect())

    frame = queries.stream(subscribe=TOPIC, startingOffsets="latest")
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(queries.checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)

    def between(starts: dict[str, int], ends: dict[str, int]) -> list[tuple[int, int]]:
        return [(p, offset) for p in (0, 1) for offset in range(starts[str(p)], ends[str(p)])]

    if len(begun) > len(done):
        assert seen[begun[-1]] == between(reached[TOPIC], last["offsets"][TOPIC])
    assert sorted(place for rows in seen.values() for place in rows) == between(reached[TOPIC], {"0": 10, "1": 10})
    now = queries.logged_offsets()
    assert (now["query"], now["group"]) == (last["query"], last["group"])
    assert outside.committed(last["group"]) == {(TOPIC, 0): 10, (TOPIC, 1): 10}


def test_there_are_old_checkpoints() -> None:
    assert {path.name for path in GOLDEN.iterdir()} >= {"v1-batch-1-begun"}
