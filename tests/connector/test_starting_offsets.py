"""Where a read starts and ends, as users write it."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.errors import OptionError
from pykafka_wire.options.starting_offsets import (
    EARLIEST,
    LATEST,
    parse_offset_spec,
    parse_partitions,
    parse_timestamp,
    parse_timestamp_spec,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

T0 = TopicPartition("topic", 0)
T1 = TopicPartition("topic", 1)


@pytest.mark.parametrize("word", ["earliest", "latest", "group"])
def test_words_count_whatever_their_case(word: str) -> None:
    for written in (word, word.upper(), f" {word.title()} "):
        assert parse_offset_spec(written, "startingOffsets").kind == word


def test_offsets_by_partition() -> None:
    spec = parse_offset_spec('{"topic":{"0":23,"1":-2},"other":{"12":-1}}', "startingOffsets")
    assert spec.kind == "offsets"
    assert spec.by_partition == {T0: 23, T1: EARLIEST, TopicPartition("other", 12): LATEST}


@given(
    st.dictionaries(
        st.text(alphabet="abc._-", min_size=1, max_size=4),
        st.dictionaries(st.integers(0, 10**6), st.integers(-2, 2**63 - 1), max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_every_json_of_offsets_is_understood(nested: dict[str, dict[int, int]]) -> None:
    spec = parse_offset_spec(json.dumps(nested), "startingOffsets")
    assert spec.by_partition == {TopicPartition(t, p): o for t, ps in nested.items() for p, o in ps.items()}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"topic":5}',
        '{"topic":[0,1]}',
        '{"topic":{"x":1}}',
        '{"topic":{"-1":1}}',
        '{"topic":{"0":"5"}}',
        '{"topic":{"0":true}}',
        '{"topic":{"0":-3}}',
        '{"topic":{"0":1.5}}',
        '{"topic":{"0":null}}',
    ],
)
def test_malformed_offsets_name_the_option_and_show_an_example(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_offset_spec(text, "endingOffsets")
    message = str(raised.value)
    assert message.startswith("[PYKAFKA_WIRE_OPTION] endingOffsets is malformed (")
    assert '{"topic":{"0":23,"1":-2}}, where -2 is earliest and -1 is latest' in message


@pytest.mark.parametrize("text", ["lately", "12", "[]"])
def test_what_is_neither_word_nor_json_is_named_with_the_words_and_an_example(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_offset_spec(text, "startingOffsets")
    message = str(raised.value)
    assert f"startingOffsets is '{text}': " in message
    assert (
        'earliest, latest, group, checkpoint:PATH, table:PATH, or JSON such as {"topic":{"0":23,"1":-2}}, '
        "where -2 is earliest" in message
    )


def test_an_end_can_be_refused_as_word_and_as_number() -> None:
    with pytest.raises(OptionError, match="startingOffsets is latest: because"):
        parse_offset_spec("latest", "startingOffsets").refuse(LATEST, "startingOffsets", "because")
    with pytest.raises(OptionError, match=r"startingOffsets has -1 \(latest\) for topic-1: because"):
        parse_offset_spec('{"topic":{"0":3,"1":-1}}', "startingOffsets").refuse(LATEST, "startingOffsets", "because")
    parse_offset_spec('{"topic":{"0":3,"1":-2}}', "startingOffsets").refuse(LATEST, "startingOffsets", "because")
    parse_offset_spec("earliest", "startingOffsets").refuse(LATEST, "startingOffsets", "because")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        (" 1700000000000 ", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20+00:00", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),  # no zone: UTC
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_timestamps(text: str, ms: int) -> None:
    assert parse_timestamp(text, "startingTimestamp") == ms


@given(st.integers(0, 253_402_300_799_999))
def test_iso_timestamps_are_exact_to_the_millisecond(ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    assert parse_timestamp(moment.isoformat(timespec="milliseconds"), "startingTimestamp") == ms


@pytest.mark.parametrize(
    ("text", "ago_ms"), [("-500ms", 500), ("-30s", 30_000), ("-10m", 600_000), ("-2h", 7_200_000), ("-1d", 86_400_000)]
)
def test_timestamps_relative_to_now(text: str, ago_ms: int) -> None:
    before = int(time.time() * 1000) - ago_ms
    found = parse_timestamp(text, "startingTimestamp")
    assert before <= found <= int(time.time() * 1000) - ago_ms


def test_relative_times_of_many_partitions_are_counted_from_one_moment() -> None:
    nested = json.dumps({"topic": {str(p): "-10m" for p in range(2000)}})
    spec = parse_timestamp_spec(nested, "startingOffsetsByTimestamp")
    assert len(set(spec.by_partition.values())) == 1


@pytest.mark.parametrize("text", ["", "soon", "-5", "10m", "-10 fortnights", "1e3", "2023-13-01", "1.5"])
def test_other_timestamps_are_refused_with_three_examples(text: str) -> None:
    with pytest.raises(OptionError, match=r"startingTimestamp has .*1700000000000.*2026-01-31T12:00:00Z.*-10m"):
        parse_timestamp(text, "startingTimestamp")


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "-999999d"])
def test_times_before_the_epoch_are_refused(text: str) -> None:
    # -1 and -2 are ListOffsets' own words for latest and earliest: such a time would silently mean one of the ends.
    with pytest.raises(OptionError, match=r"startingTimestamp has .*before 1970"):
        parse_timestamp(text, "startingTimestamp")


def test_timestamps_by_partition_in_every_form() -> None:
    text = '{"topic":{"0":1700000000000,"1":"2023-11-14T22:13:20Z"}}'
    spec = parse_timestamp_spec(text, "startingOffsetsByTimestamp")
    assert spec.kind == "timestamps"
    assert spec.by_partition == {T0: 1_700_000_000_000, T1: 1_700_000_000_000}


@pytest.mark.parametrize("text", ["{", '{"topic":{"0":null}}', '{"topic":{"0":true}}', '{"topic":{"0":1.5}}', "latest"])
def test_malformed_timestamps_name_the_option(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp is malformed"):
        parse_timestamp_spec(text, "startingOffsetsByTimestamp")


@pytest.mark.parametrize("raw", ['"soon"', "-5"])
def test_a_malformed_timestamp_within_json_names_the_option(raw: str) -> None:
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp has"):
        parse_timestamp_spec(f'{{"topic":{{"0":{raw}}}}}', "startingOffsetsByTimestamp")


def test_assigned_partitions_are_sorted_and_named_once() -> None:
    assert parse_partitions('{"topic":[1,0,1],"a":[3]}', "assign") == (TopicPartition("a", 3), T0, T1)


@pytest.mark.parametrize(
    "text",
    ["", "topic", "{}", "[]", '{"topic":[]}', '{"topic":0}', '{"topic":["0"]}', '{"topic":[-1]}', '{"t":[true]}'],
)
def test_malformed_assignments_show_an_example(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_partitions(text, "assign")
    assert str(raised.value).endswith('use JSON such as {"topic":[0,1]}.')


def test_more_milliseconds_than_kafka_counts_are_refused() -> None:
    assert parse_timestamp(str(2**63 - 1), "endingTimestamp") == 2**63 - 1
    with pytest.raises(OptionError, match=r"startingTimestamp has '9{30}'"):
        parse_timestamp("9" * 30, "startingTimestamp")
