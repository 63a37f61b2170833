"""Law 1, where the columns of keys change: each record is in one part, and the keys of a part have the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.records.key_runs import split_by_runs
from pykafka_wire.ingest.records.ranges import TopicRange
from tests.connector.ingest.laws.generated import examples

#: The column names of each record's key, by partition; empty for a record whose key has no columns.
TOPICS = st.dictionaries(
    st.integers(0, 3), st.lists(st.sampled_from(["", "a", "ab"]), max_size=12).map(tuple), min_size=1
)


@dataclass(frozen=True)
class Run:
    partition: int
    offset: int
    timestamp: int
    names: list[str]


def runs_of(topic: Mapping[int, tuple[str, ...]]) -> list[Run]:
    """Return the first record of each run. Timestamps are offsets, in all partitions alike."""
    runs = []
    for partition, keys in sorted(topic.items()):
        before = ""
        for offset, names in enumerate(keys):
            if names and names != before:
                runs.append(Run(partition, offset, offset, list(names)))
                before = names
    return runs


@examples(1_000)
@given(TOPICS)
def test_each_record_is_in_one_part_whose_keys_have_the_same_columns(topic: dict[int, tuple[str, ...]]) -> None:
    start = dict.fromkeys(topic, 0)
    whole = TopicRange(topic="t", topic_id="", start=start, end={p: len(keys) for p, keys in topic.items()})
    parts = split_by_runs(whole, runs_of(topic))
    assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
    assert all(one.end == other.start for one, other in pairwise(parts))
    for part in parts:
        read = {names for p, keys in topic.items() for names in keys[part.start[p] : part.end[p]] if names}
        assert len(read) <= 1, part


@examples(1_000)
@given(st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_halves_are_the_whole_and_neither_is_empty(offsets: dict[int, tuple[int, int]]) -> None:
    whole = TopicRange(
        topic="t",
        topic_id="",
        start={partition: start for partition, (start, _) in offsets.items()},
        end={partition: start + n for partition, (start, n) in offsets.items()},
    )
    if whole.n_offsets < 2:
        return
    first, second = whole.halves()
    assert (first.start, first.end, second.end) == (whole.start, second.start, whole.end)
    assert first.n_offsets and second.n_offsets and first.n_offsets + second.n_offsets == whole.n_offsets
