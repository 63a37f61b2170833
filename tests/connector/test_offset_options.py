"""Options that set where a read starts and ends."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pykafka_wire.errors import OptionError
from pykafka_wire.options.source import parse_schema_options, parse_source_options
from pykafka_wire.source.dataframe_types import find_source_schema
from tests.connector.parsed_options import BROKERS, ORDERS, batch, refusal, stream

# --- where to start and end


def test_a_timestamp_for_all_goes_before_timestamps_which_go_before_offsets() -> None:
    weakest = {"startingOffsets": "earliest"}
    middle = weakest | {"startingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    strongest = middle | {"startingTimestamp": "7"}
    assert stream(**weakest).starting_offsets.kind == "earliest"
    assert stream(**middle).starting_offsets.kind == "timestamps"
    assert stream(**strongest).starting_offsets.kind == "timestamp"
    assert stream(**strongest).starting_offsets.timestamp_ms == 7


def test_ends_have_the_same_order() -> None:
    middle = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    assert batch(**middle).ending_offsets.kind == "timestamps"
    assert batch(**middle, endingTimestamp="7").ending_offsets.kind == "timestamp"


def test_no_record_as_late_as_the_end_means_all_that_is_there() -> None:
    assert batch(endingTimestamp="7").ending_offsets.on_missing == "latest"
    assert batch(endingOffsetsByTimestamp='{"orders":{"0":5}}').ending_offsets.on_missing == "latest"


def test_the_strategy_where_no_record_is_as_late_as_the_start() -> None:
    assert stream(startingTimestamp="7").starting_offsets.on_missing == "error"
    assert (
        stream(startingTimestamp="7", startingOffsetsByTimestampStrategy="LATEST").starting_offsets.on_missing
        == "latest"
    )
    assert "startingOffsetsByTimestampStrategy is 'earliest': use error or latest." in refusal(
        ORDERS | {"startingOffsetsByTimestampStrategy": "earliest"}
    )


def test_a_relative_start_is_counted_from_now() -> None:
    found = stream(startingTimestamp="-10m").starting_offsets.timestamp_ms
    assert abs(found - (time.time() * 1000 - 600_000)) < 60_000


@pytest.mark.parametrize("value", ["latest", '{"orders":{"0":3,"1":-1}}'])
def test_a_batch_read_does_not_start_at_latest(value: str) -> None:
    assert "a batch read that starts at latest reads nothing" in refusal(ORDERS | {"startingOffsets": value}, "batch")
    stream(startingOffsets=value)


@pytest.mark.parametrize("value", ["earliest", '{"orders":{"0":3,"1":-2}}'])
def test_a_batch_read_does_not_end_at_earliest(value: str) -> None:
    assert "a batch read that ends at earliest reads nothing" in refusal(ORDERS | {"endingOffsets": value}, "batch")


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize("value", ["{", json.dumps({"orders": {"0": "x"}})])
def test_malformed_offsets(name: str, value: str) -> None:
    text = refusal(ORDERS | {name: value}, "batch")
    assert f"{name} is malformed (" in text and '{"topic":{"0":23,"1":-2}}' in text


@pytest.mark.parametrize(
    ("name", "value", "mode", "said"),
    [
        (
            "startingOffsets",
            "earlist",
            "stream",
            "did you mean earliest? Use earliest, latest, group, checkpoint:PATH, table:PATH, or",
        ),
        (
            "startingOffsets",
            "now",
            "batch",
            "use earliest, group, checkpoint:PATH, table:PATH, or JSON such as",
        ),
        ("startingOffsets", "chekpoint:/c", "stream", "did you mean checkpoint:PATH? Use earliest"),
        (
            "endingOffsets",
            "lates",
            "batch",
            "did you mean latest? Use latest, checkpoint:PATH, table:PATH, or JSON such as",
        ),
    ],
)
def test_a_word_that_is_no_place_is_named_with_those_that_are(name: str, value: str, mode: Any, said: str) -> None:
    assert f"{name} is '{value}': {said}" in refusal(ORDERS | {name: value}, mode)


def test_a_checkpoint_is_a_start_and_an_end() -> None:
    found = batch(startingOffsets="checkpoint:/c#3", endingOffsets=" Checkpoint:/c#4/1")
    assert [str(each.checkpoint) for each in (found.starting_offsets, found.ending_offsets)] == ["/c#3", "/c#4/1"]
    assert stream(startingOffsets="checkpoint:/c").starting_offsets.kind == "checkpoint"
    assert "startingOffsets is '/c#x': after # comes" in refusal(ORDERS | {"startingOffsets": "checkpoint:/c#x"})


def test_a_micro_batch_stands_alone() -> None:
    found = parse_source_options(BROKERS | {"microBatch": "/c#3"}, "batch")
    assert str(found.micro_batch) == "/c#3"
    assert str(batch(microBatch="checkpoint:/c#3/0").micro_batch) == "/c#3/0"
    text = refusal(ORDERS | {"microBatch": "/c#3", "endingOffsets": "latest"}, "batch")
    assert "microBatch is given beside endingOffsets" in text
    assert "microBatch applies to batch reads only" in refusal(ORDERS | {"microBatch": "/c#3"}, "stream")
    assert "name the micro-batch" in refusal(ORDERS | {"microBatch": "/c"}, "batch")


def test_a_micro_batch_under_a_registry_needs_its_topics() -> None:
    typed = {"microBatch": "/c#3", "valueFormat": "avro", "schema.registry.url": "http://localhost:1"}
    with pytest.raises(OptionError, match="name them with subscribe, or name valueSubject"):
        find_source_schema(parse_schema_options(BROKERS | typed))


def test_a_start_from_the_group_needs_a_group() -> None:
    assert "startingOffsets=group needs kafka.group.id" in refusal(ORDERS | {"startingOffsets": "group"})
    options = stream(
        **{"startingOffsets": "group", "kafka.group.id": "g", "startingOffsetsByGroupStrategy": "earliest"}
    )
    assert (options.starting_offsets.kind, options.starting_offsets.on_missing, options.group_id) == (
        "group",
        "earliest",
        "g",
    )


def test_a_read_does_not_end_at_the_group() -> None:
    assert "endingOffsets cannot be group" in refusal(ORDERS | {"endingOffsets": "group"}, "batch")
