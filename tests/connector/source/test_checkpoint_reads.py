"""Reads that start, end or take place where another query's checkpoint says, without a session; judged by offsets.

The checkpoints are written here, so that each has the offsets that its test needs. Queries that ran, of both connectors, are in
test_checkpoint_queries.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pykafka_wire.checkpoints.stored_tables import TOPIC_ID_PROPERTY, TOPIC_PROPERTY
from pykafka_wire.errors import DataLossError, Loss, OffsetsError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import topic_id_text
from tests.connector.source.conftest import SCHEMA
from tests.connector.written_checkpoint import ours, write_checkpoint

pytestmark = pytest.mark.broker

OTHER_ID = "u8lFmrR3SRiXzcHcDpYZ2w"


@pytest.fixture
def topic_id(kafka: Any) -> Callable[[str], str]:
    """The id of a topic, as checkpoints have it."""

    def find(name: str) -> str:
        with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
            return topic_id_text(cluster.metadata.topics([name])[name].topic_id)

    return find


@pytest.fixture
def batch_rows(kafka: Any) -> Callable[..., list[tuple[int, int]]]:
    """(partition, offset) of all rows of a batch read."""

    def read(**options: str) -> list[tuple[int, int]]:
        asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers} | options
        reader = KafkaBatchReader(parse_source_options(asked, "batch"), SCHEMA)
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())

    return read


def test_a_new_query_starts_where_a_checkpoint_stands(process: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name, other = topic(3), topic(1)
    outside.fill(name, [5, 5, 5])
    outside.fill(other, [3])
    # Partition 2 is new since; the other topic is the new query's alone, and a third one the old query's alone.
    batches = {n: [{name: {"0": 2 + n, "1": 4}, "gone": {"0": 7}}] for n in (0, 1, 2)}
    path = write_checkpoint(tmp_path, batches, committed=1)
    one = process(subscribe=f"{name},{other}", startingOffsets=f"checkpoint:{path}")
    start = one.initial()
    assert json.loads(start)["offsets"] == {name: {"0": 3, "1": 4}, other: {"0": 0}}
    rows = sorted([(0, 3), (0, 4), (1, 4), *((2, o) for o in range(5)), *((0, o) for o in range(3))])
    end = one.latest(start)
    assert one.rows(start, end) == rows
    # A replay of the first micro-batch starts there, too, although the old checkpoint has moved on, or is gone.
    replayed = process(subscribe=f"{name},{other}", startingOffsets=f"checkpoint:{tmp_path}/gone")
    assert replayed.rows(replayed.initial(), end) == rows

    planned = process(subscribe=name, startingOffsets=f"checkpoint:{path}#2")
    assert json.loads(planned.initial())["offsets"] == {name: {"0": 4, "1": 4}}
    assigned = process(assign=json.dumps({name: [1]}), startingOffsets=f"checkpoint:{path}")
    assert json.loads(assigned.initial())["offsets"] == {name: {"1": 4}}
    pattern = process(subscribePattern=f"^{name}$", startingOffsets=f"checkpoint:{path}")
    assert json.loads(pattern.initial())["offsets"] == {name: {"0": 3, "1": 4}}


def test_what_was_lost_since_the_checkpoint_is_a_loss(
    process: Any, topic: Any, outside: Any, tmp_path: Path, topic_id: Callable[[str], str]
) -> None:
    name = topic(2)
    outside.fill(name, [5, 5])
    ids = {name: topic_id(name)}

    def loss(offsets: dict[str, int], ids: dict[str, str]) -> tuple[Loss, list[Any]]:
        path = write_checkpoint(tmp_path, {0: [ours({name: offsets}, topic_ids=ids)]}, committed=0)
        one = process(subscribe=name, startingOffsets=f"checkpoint:{path}")
        with pytest.raises(DataLossError) as raised:
            one.latest(one.initial())
        return raised.value.loss, raised.value.lost

    assert loss({"0": 9, "1": 4}, ids) == (Loss.OFFSETS_CHANGED, [((name, 0), 5, 9)])
    assert loss({"0": 1, "5": 4}, ids) == (Loss.PARTITIONS_DELETED, [((name, 5), 4, -1)])
    assert loss({"0": 1, "1": 4}, {name: OTHER_ID})[0] == Loss.TOPIC_RECREATED
    path = write_checkpoint(tmp_path, {0: [ours({name: {"0": 1, "1": 4}}, topic_ids=ids)]}, committed=0)
    one = process(subscribe=name, startingOffsets=f"checkpoint:{path}")
    assert len(one.rows(one.initial(), one.latest(one.initial()))) == 5


def test_a_checkpoint_that_does_not_fit_fails_a_new_query(process: Any, topic: Any, tmp_path: Path) -> None:
    name = topic(1)
    path = write_checkpoint(tmp_path, {0: [{"payments": {"0": 2}}, {"refunds": {"0": 2}}]}, committed=0)
    one = process(subscribe=name, startingOffsets=f"checkpoint:{path}")
    with pytest.raises(OffsetsError, match=rf"none of the subscribed topics \({name}\)\. It has payments, refunds\."):
        one.latest(one.initial())
    missing = process(subscribe=name, startingOffsets=f"checkpoint:{path}/nothing")
    with pytest.raises(OffsetsError, match="there is no checkpoint of a query"):
        missing.latest(missing.initial())


def test_a_batch_read_lies_between_two_places_of_a_checkpoint(
    batch_rows: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    name = topic(2)
    outside.fill(name, [5, 5])
    path = write_checkpoint(tmp_path, {0: [{name: {"0": 2}}], 1: [{name: {"0": 4, "1": 1}}]}, committed=1)
    every = {"subscribe": name}
    assert batch_rows(**every, endingOffsets=f"checkpoint:{path}#0") == [(0, 0), (0, 1)]
    assert batch_rows(**every, startingOffsets=f"checkpoint:{path}") == [(0, 4), (1, 1), (1, 2), (1, 3), (1, 4)]
    between = {"startingOffsets": f"checkpoint:{path}#0", "endingOffsets": f"checkpoint:{path}#1"}
    assert batch_rows(**every, **between) == batch_rows(microBatch=f"{path}#1") == [(0, 2), (0, 3), (1, 0)]
    assert batch_rows(microBatch=f"{path}#1", assign=json.dumps({name: [1]})) == [(1, 0)]
    with pytest.raises(OffsetsError, match="the read starts after its end"):
        batch_rows(**every, startingOffsets=f"checkpoint:{path}#1", endingOffsets=f"checkpoint:{path}#0")


def test_a_dropped_topic_that_is_back_is_read_on_from_where_it_was_dropped(
    batch_rows: Any, topic: Any, outside: Any, tmp_path: Path, topic_id: Callable[[str], str]
) -> None:
    name, other = topic(2), topic(1)
    outside.fill(name, [5, 5])
    outside.fill(other, [2])

    def place(folder: str, topic_id: str, **more: Any) -> str:
        dropped = [{"topic": name, "id": topic_id, "offsets": {"0": 3, "1": 4}}]
        offset = ours({other: {"0": 2}, **more.pop("offsets", {})}, dropped=dropped, **more)
        return f"checkpoint:{write_checkpoint(tmp_path / folder, {0: [offset]}, committed=0)}"

    both = {"subscribe": f"{name},{other}"}
    back = place("back", topic_id(name))
    assert batch_rows(**both, startingOffsets=back) == [(0, 3), (0, 4), (1, 4)]
    before = [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert batch_rows(**both, endingOffsets=back) == before
    assert batch_rows(**both, startingOffsets=back, endingOffsets=back) == []
    # Under another id it is another topic: the query reads that from its first offset on.
    another = place("another", OTHER_ID)
    assert len(batch_rows(**both, startingOffsets=another)) == 10
    assert batch_rows(**both, endingOffsets=another) == [(0, 0), (0, 1)]
    # The id that was read last is gone, the one that was dropped before is back.
    of_two = {"offsets": {name: {"0": 1}}, "topic_ids": {name: OTHER_ID}}
    of_two_ids = place("of-two-ids", topic_id(name), **of_two)
    with pytest.raises(DataLossError) as raised:
        batch_rows(**both, startingOffsets=of_two_ids)
    assert raised.value.loss == Loss.TOPIC_RECREATED
    assert batch_rows(**both, startingOffsets=of_two_ids, failOnDataLoss="false") == [(0, 3), (0, 4), (1, 4)]


def test_a_partition_that_the_other_query_never_read_is_no_loss(
    process: Any, topic: Any, outside: Any, tmp_path: Path, caplog: Any
) -> None:
    name = topic(3)
    outside.fill(name, [5, 5, 5])
    outside.age_out(name, 0, 2)
    outside.age_out(name, 2, 3)
    for read, rows in [({"1": 2}, [(0, 2), (1, 2), (2, 3)]), ({"0": 2}, [(0, 2), (1, 0), (2, 3)])]:
        caplog.clear()
        path = write_checkpoint(tmp_path, {0: [{name: read}]}, committed=0)  # as of a query that had `assign`
        one = process(subscribe=name, startingOffsets=f"checkpoint:{path}")
        start = one.initial()
        assert one.rows(start, one.latest(start)) == [(p, o) for p, first in rows for o in range(first, 5)]
        assert f"{name}-2 at 3" in caplog.text


def test_a_micro_batch_whose_records_are_gone_fails_or_is_read_in_part(
    batch_rows: Any, topic: Any, outside: Any, tmp_path: Path, topic_id: Callable[[str], str]
) -> None:
    name, recreated = topic(2), topic(1)
    outside.fill(name, [5, 5])
    outside.fill(recreated, [5])
    outside.age_out(name, 0, 3)
    starts = {name: {"0": 1, "1": 1}, recreated: {"0": 0}, "deleted": {"0": 0}}

    def write(ends: dict[str, dict[str, int]]) -> str:
        ids = {name: topic_id(name), recreated: OTHER_ID}
        return f"{write_checkpoint(tmp_path, {0: [ours(ends, starts=starts, topic_ids=ids)]})}#0"

    for ends, cause, left in [
        ({name: {"0": 4}}, Loss.START_OFFSET_OUT_OF_RANGE, [(0, 3)]),
        ({name: {"0": 1, "1": 9}}, Loss.OFFSETS_CHANGED, [(1, o) for o in range(1, 5)]),
        ({recreated: {"0": 3}, name: {"1": 2}}, Loss.TOPIC_RECREATED, [(1, 1)]),
        ({"deleted": {"0": 3}, name: {"1": 2}}, Loss.PARTITIONS_DELETED, [(1, 1)]),
        ({name: {"1": 2, "7": 2}}, Loss.PARTITIONS_DELETED, [(1, 1)]),
    ]:
        place = write(ends)
        with pytest.raises(DataLossError) as raised:
            batch_rows(microBatch=place)
        assert raised.value.loss == cause
        assert batch_rows(microBatch=place, failOnDataLoss="false") == left
    # What the micro-batch did not read is no loss.
    assert batch_rows(microBatch=write({"deleted": {"0": 0}, recreated: {"0": 0}, name: {"0": 1, "1": 2}})) == [(1, 1)]


@pytest.mark.parametrize("is_other", [False, True])
def test_a_table_of_an_ingest_says_of_which_topic_its_rows_are(
    process: Any,
    batch_rows: Any,
    topic: Any,
    outside: Any,
    tmp_path: Path,
    topic_id: Callable[[str], str],
    is_other: bool,
) -> None:
    name = topic(1)
    outside.fill(name, [5])
    rows = pa.table({"_kafka_topic": [name] * 3, "_kafka_partition": [0] * 3, "_kafka_offset": [0, 1, 2]})
    properties = {TOPIC_PROPERTY: name, TOPIC_ID_PROPERTY: OTHER_ID if is_other else topic_id(name)}
    write_deltalake(tmp_path, rows)
    DeltaTable(tmp_path).alter.set_table_properties(properties, raise_if_not_exists=False)
    asked = {"subscribe": name, "startingOffsets": f"table:{tmp_path}"}
    if is_other:  # the topic was deleted and created again, and has other records at the same offsets
        with pytest.raises(DataLossError) as raised:
            batch_rows(**asked)
        assert raised.value.loss is Loss.TOPIC_RECREATED
        query = process(**asked)
        with pytest.raises(DataLossError) as raised:
            query.latest(query.initial())
        assert raised.value.loss is Loss.TOPIC_RECREATED
        asked["failOnDataLoss"] = "false"
    expected = [(0, offset) for offset in range(0 if is_other else 3, 5)]
    query = process(**asked)
    start = query.initial()
    assert batch_rows(**asked) == query.rows(start, query.latest(start)) == expected
