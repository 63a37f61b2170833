"""Checkpoints of every version that wrote them are kept in tests/golden/checkpoints/ for ever: a query goes on from each.

A folder there is a checkpoint as Spark left it, of a query that read the topics it names; those in tests/golden/refused/ are
Spark's own connector's, and one as a newer version might write it. Only the topics' ids belong to the cluster of that day, and
are put right. Leader epochs are left: a cluster that knows nothing of them must not be taken for one that lost records.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import topic_id_text

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
KEPT = sorted(path.name for path in (GOLDEN / "checkpoints").iterdir())
N_RECORDS = 10

Place = tuple[str, int, int]


def logged(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Our offsets at the end of a batch."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
    return json.loads(lines[-1])  # type: ignore[no-any-return]


def batches(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(file.name) for file in (checkpoint / log).glob("[0-9]*"))


def places(starts: dict[str, Any], ends: dict[str, Any]) -> list[Place]:
    """(topic, partition, offset) between two offsets as checkpoints hold them."""
    return [
        (topic, int(partition), offset)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        for offset in range(starts[topic][partition], end)
    ]


@pytest.mark.parametrize("kept", KEPT)
def test_a_query_continues_from_an_old_checkpoint(
    kept: str, kafka: Any, topic: Any, queries: Any, outside: Any
) -> None:
    shutil.copytree(GOLDEN / "checkpoints" / kept, queries.checkpoint)
    done, begun = batches(queries.checkpoint, "commits"), batches(queries.checkpoint, "offsets")
    last = logged(queries.checkpoint, begun[-1])
    reached = logged(queries.checkpoint, done[-1])["offsets"] if done else last["starts"]
    ends = {name: dict.fromkeys(partitions, N_RECORDS) for name, partitions in last["offsets"].items()}
    for name, partitions in ends.items():
        topic(len(partitions), name=name)
        outside.fill(name, [N_RECORDS] * len(partitions))
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        ids = {name: topic_id_text(found.topic_id) for name, found in cluster.metadata.topics(sorted(ends)).items()}
    for file in (queries.checkpoint / "offsets").glob("[0-9]*"):
        text = file.read_text(encoding="utf-8")
        for name, old in last["topic_ids"].items():
            text = text.replace(old, ids[name])
        file.write_text(text, encoding="utf-8")

    seen: dict[int, list[Place]] = {}

    def sink(batch: Any, batch_id: int) -> None:
        seen[batch_id] = sorted((row.topic, row.partition, row.offset) for row in batch.collect())

    # These starts would not do for a new query: they name partitions that are not there.
    starting = json.dumps({name: {"99": 0} for name in ends})
    frame = queries.stream(subscribe=",".join(ends), startingOffsets=starting)
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(queries.checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)

    if len(begun) > len(done):
        assert seen[begun[-1]] == places(reached, last["offsets"])
    assert sorted(place for rows in seen.values() for place in rows) == places(reached, ends)
    now = queries.logged_offsets()
    assert (now["query"], now["group"]) == (last["query"], last["group"])
    assert outside.committed(last["group"]) == {(n, int(p)): N_RECORDS for n, ps in ends.items() for p in ps}


@pytest.mark.parametrize(
    ("kept", "why"),
    [("newer-version", r"offsets of version 2.*upgrade pykafka-wire"), ("jvm-connector", r"offsets of another source")],
)
def test_another_checkpoint_is_refused_and_left_as_it_was(
    kept: str, why: str, topic: Any, queries: Any, outside: Any
) -> None:
    shutil.copytree(GOLDEN / "refused" / kept, queries.checkpoint)
    name = topic(2)
    outside.fill(name, [5, 5])
    with pytest.raises(PySparkException, match=rf"\[PYKAFKA_WIRE_OFFSETS\].*{why}"):
        queries.run(subscribe=name)
    assert batches(queries.checkpoint, "offsets") == [0]
    assert (queries.checkpoint / "offsets" / "0").read_bytes() == (
        GOLDEN / "refused" / kept / "offsets" / "0"
    ).read_bytes()


def test_there_are_old_checkpoints() -> None:
    assert set(KEPT) >= {"v1-available-now", "v1-batch-0-begun", "v1-batch-1-begun", "v1-spark-4.0"}
