"""A table of changes is the same in however many commits its backlog is landed, also if keys have moved to another partition.

The topic holds changes of rows in the order of time, each in any partition. A table lacks all of them. The oracle is the table
after one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.landing.table_writer import commits_of
from pykafka_wire.ingest.records.ranges import TopicRange, middle_in_time
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

N_PARTITIONS = 3


@dataclass(frozen=True)
class Change:
    """A change of a row; ``value`` is None for a delete. Of two changes in different partitions, that with the higher ``place`` is
    newer."""

    key: int
    value: int | None
    partition: int
    offset: int
    time: int

    @property
    def place(self) -> tuple[int, int]:
        return self.time, self.partition

    def is_newer(self, other: Change) -> bool:
        return self.offset > other.offset if self.partition == other.partition else self.place > other.place


class Topic:
    """The changes by partition, at their offsets."""

    def __init__(self, changes: Sequence[tuple[int, int, bool]], cut: int) -> None:
        """Take the partition and the key of each change, and whether it deletes its row. Two changes have the same time. The newest
        micro-batch begins with the time ``cut``."""
        self.partitions: list[list[Change]] = [[] for _ in range(N_PARTITIONS)]
        self.cut: dict[int, int] = {}
        for number, (partition, key, is_delete) in enumerate(changes):
            if number == 2 * cut:
                self.cut = self.ends
            records = self.partitions[partition]
            value = None if is_delete else number
            records.append(Change(key, value, partition, len(records), time=number // 2))
        self.cut = self.cut or self.ends

    @property
    def ends(self) -> dict[int, int]:
        return {p: len(records) for p, records in enumerate(self.partitions)}

    def within(self, topic_range: TopicRange) -> list[Change]:
        return [each for p, end in topic_range.end.items() for each in self.partitions[p][topic_range.start[p] : end]]

    def middle_in_time(self, topic_range: TopicRange) -> Mapping[int, int] | None:
        def offsets_at(moment: int) -> dict[int, int]:
            later = [each for records in self.partitions for each in reversed(records) if each.time >= moment]
            return {each.partition: each.offset for each in later}

        return middle_in_time(topic_range, offsets_at)


def merge(rows: dict[int, Change], changes: Sequence[Change]) -> None:
    """Apply the newest change of each row, unless the row is newer. Nothing is left of a deleted row."""
    newest: dict[int, Change] = {}
    for change in changes:
        if change.key not in newest or change.is_newer(newest[change.key]):
            newest[change.key] = change
    for key, change in newest.items():
        if key in rows and not change.is_newer(rows[key]):
            continue
        rows.pop(key, None)
        if change.value is not None:
            rows[key] = change


@examples(300)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, N_PARTITIONS - 1), st.integers(0, 2), st.booleans()), min_size=1, max_size=30
    ),
    cut=st.integers(1, 15),
    max_rows=st.integers(1, 10),
)
def test_a_deleted_row_stays_deleted_in_however_many_commits_a_backlog_is_landed(
    changes: list[tuple[int, int, bool]], cut: int, max_rows: int
) -> None:
    topic = Topic(changes, cut)
    newest = TopicRange(topic="t", topic_id="", start=topic.cut, end=topic.ends)
    begin = dict.fromkeys(topic.ends, 0)
    expected, landed = dict[int, Change](), dict[int, Change]()
    merge(expected, topic.within(TopicRange(topic="t", topic_id="", start=begin, end=topic.ends)))
    position = begin
    for commit in commits_of(newest, begin, max_rows, topic.middle_in_time):
        assert commit.start == position and commit.n_offsets
        merge(landed, topic.within(commit))
        position = dict(commit.end)
    assert (landed, position) == (expected, topic.ends)
