"""The checkpoint's JSON: stable text, round trip, and clear refusals of what cannot be read."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.checkpoints.query_offsets import DroppedTopic, QueryOffsets, decode_uuid, nest_by_topic
from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.topic_partitions import TopicPartition, topic_id_text

GOLDEN = Path(__file__).resolve().parents[2] / "golden"

topics = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABC0123456789._-", min_size=1, max_size=12)
topic_partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))
by_partition = st.dictionaries(topic_partitions, st.integers(0, 2**63 - 1), max_size=8)
query_offsets = st.builds(
    QueryOffsets,
    offsets=by_partition,
    epochs=st.dictionaries(topic_partitions, st.integers(0, 2**31 - 1), max_size=8),
    topic_ids=st.dictionaries(topics, st.uuids(), max_size=4),
    starts=by_partition,
    dropped=st.lists(
        st.builds(
            DroppedTopic,
            topic=topics,
            topic_id=st.uuids(),
            offsets=st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=4),
        ),
        max_size=3,
    ).map(tuple),
    reader_schemas=st.dictionaries(
        st.sampled_from(["key", "value"]),
        st.dictionaries(st.sampled_from(["format", "id", "schema"]), st.text() | st.integers(), min_size=1),
    ),
    record_sizes=st.dictionaries(topics, st.integers(1, 2**40), max_size=3),
    query=st.text(max_size=10),
    group=st.text(max_size=10),
    initial=st.booleans(),
)


@settings(deadline=None)  # the machine may be busy
@given(query_offsets)
def test_survives_the_way_through_json(offsets: QueryOffsets) -> None:
    assert QueryOffsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@settings(deadline=None)  # the machine may be busy
@given(query_offsets)
def test_equal_offsets_have_equal_text_whatever_the_order_of_their_partitions(offsets: QueryOffsets) -> None:
    turned = QueryOffsets(
        offsets=dict(reversed(offsets.offsets.items())),
        epochs=dict(reversed(offsets.epochs.items())),
        topic_ids=dict(reversed(offsets.topic_ids.items())),
        starts=dict(reversed(offsets.starts.items())),
        dropped=tuple(replace(each, offsets=dict(reversed(each.offsets.items()))) for each in offsets.dropped),
        reader_schemas=dict(reversed(offsets.reader_schemas.items())),
        record_sizes=dict(reversed(offsets.record_sizes.items())),
        query=offsets.query,
        group=offsets.group,
        initial=offsets.initial,
    )
    assert json.dumps(turned.to_json()) == json.dumps(offsets.to_json())


@settings(deadline=None)  # the machine may be busy
@given(query_offsets)
def test_reading_and_writing_again_keeps_the_text(offsets: QueryOffsets) -> None:
    # Spark compares offsets as text: what comes out of a checkpoint must go back unchanged.
    text = json.dumps(offsets.to_json())
    assert json.dumps(QueryOffsets.from_json(json.loads(text)).to_json()) == text


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    nested = nest_by_topic({TopicPartition("t", 10): 1, TopicPartition("t", 9): 2, TopicPartition("a", 0): 3})
    assert json.dumps(nested) == '{"a": {"0": 3}, "t": {"9": 2, "10": 1}}'


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("offsets-v1*.json")), ids=lambda path: path.stem)
def test_golden_checkpoint_offsets_still_load(path: Path) -> None:
    text = path.read_text().strip()
    offsets = QueryOffsets.from_json(json.loads(text))
    assert offsets.offsets[TopicPartition("orders", 1)] == 980
    assert [(each.topic, each.offsets) for each in offsets.dropped] == (
        [("payments", {0: 7, 10: 3})] if path.stem.endswith("dropped") else []
    )
    value = {"format": "avro", "id": 17, "subject": "orders-value"}
    assert offsets.reader_schemas == ({"value": value} if path.stem.endswith("typed") else {})
    assert offsets.record_sizes == ({"orders": 118} if path.stem.endswith("record-sizes") else {})
    assert json.dumps(offsets.to_json()) == text


def test_there_are_golden_checkpoint_offsets() -> None:
    assert len(list(GOLDEN.glob("offsets-v1*.json"))) >= 2


def test_a_newer_version_is_refused_with_the_remedy() -> None:
    with pytest.raises(OffsetsError, match=r"\[PYKAFKA_WIRE_OFFSETS\].*version 2.*reads version 1.*upgrade"):
        QueryOffsets.from_json({"version": 2, "offsets": {}})


@pytest.mark.parametrize("found", [{"orders": {"0": 12}}, [], "x", None, 7, {"version": 1}])
def test_offsets_of_another_source_are_refused(found: Any) -> None:
    # The first is what the JVM connector's checkpoints hold.
    with pytest.raises(OffsetsError, match=r"another source.*checkpoint of its own"):
        QueryOffsets.from_json(found)


@pytest.mark.parametrize(
    "damage",
    [
        {"offsets": []},
        {"offsets": {"t": 5}},
        {"offsets": {"t": {"x": 5}}},
        {"offsets": {"t": {"0": "many"}}},
        {"offsets": {"t": {"0": None}}},
        {"offsets": {}, "epochs": 3},
        {"offsets": {}, "topic_ids": {"t": "short"}},
        {"offsets": {}, "topic_ids": {"t": 5}},
        {"offsets": {}, "starts": {"t": [1]}},
        {"offsets": {}, "dropped": {"t": 1}},
        {"offsets": {}, "reader_schemas": ["value"]},
        {"offsets": {}, "reader_schemas": {"value": 17}},
        {"offsets": {}, "record_sizes": {"t": "large"}},
        {"offsets": {}, "dropped": [{"topic": "t"}]},
        {"offsets": {}, "dropped": [{"topic": "t", "id": "AAAAAAAAAAAAAAAAAAAAAQ", "offsets": {"0": "x"}}]},
    ],
)
def test_damaged_offsets_are_refused_with_what_is_wrong(damage: dict[str, Any]) -> None:
    with pytest.raises(OffsetsError, match="damaged"):
        QueryOffsets.from_json({"version": 1} | damage)


@given(st.uuids())
def test_topic_ids_are_written_as_kafkas_tools_print_them(value: uuid.UUID) -> None:
    text = topic_id_text(value)
    assert len(text) == 22 and "=" not in text
    assert decode_uuid(text) == value


def test_a_topic_id_known_from_kafkas_own_source() -> None:
    # Uuid.METADATA_TOPIC_ID is (0, 1), printed so by Kafka's tools.
    assert topic_id_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
