"""Whether a range has offsets that its table has already, of other records."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykafka_wire.ingest.landing.attempt import TableProgress
from pykafka_wire.ingest.landing.table_writer import commits_of
from pykafka_wire.ingest.records.ranges import TopicRange
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit


def batch(start: int, end: int) -> TopicRange:
    return TopicRange(topic="t", topic_id="", start={0: start}, end={0: end})


@examples(500)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), data=st.data())
def test_micro_batches_of_an_older_checkpoint_are_no_truncated_log(sizes: list[int], data: st.DataObject) -> None:
    """The table has all of some micro-batches, and the query begins again at one of these."""
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    newest = data.draw(st.integers(0, len(sizes) - 1))
    restored = data.draw(st.integers(0, newest))
    progress = TableProgress(micro_batch=newest, position={0: ends[newest]})
    start, number = (ends[restored - 1] if restored else 0), restored
    while start < ends[-1] + 1:
        end = start + data.draw(st.integers(1, 5))  # cut otherwise than at first
        assert not progress.reuses_offsets(batch(start, end), number, progress.position or {})
        if end > (progress.position or {})[0]:
            progress.position, progress.micro_batch = {0: end}, number
        start, number = end, number + 1


@given(position=st.integers(1, 50), number=st.integers(0, 9), truncated=st.integers(0, 49), later=st.integers(1, 5))
def test_a_later_micro_batch_below_the_table_s_end_is_of_a_truncated_log(
    position: int, number: int, truncated: int, later: int
) -> None:
    progress = TableProgress(micro_batch=number, position={0: position})
    # A start repeats the last micro-batch.
    assert not progress.reuses_offsets(batch(position - 1, position), number, {0: position})
    assert not progress.reuses_offsets(batch(position, position + 1), number + later, {0: position})
    is_below = truncated < position
    assert progress.reuses_offsets(batch(truncated, truncated + 60), number + later, {0: position}) is is_below


@given(ends=st.lists(st.integers(1, 9), min_size=2, max_size=8), truncated=st.integers(1, 70), data=st.data())
def test_a_log_that_is_truncated_after_a_replay_is_noticed(
    ends: list[int], truncated: int, data: st.DataObject
) -> None:
    """Spark repeats some micro-batches that the table has, and then the log is shorter."""
    position = sum(ends)
    newest = len(ends) - 1
    progress = TableProgress(micro_batch=newest, position={0: position})
    for number in range(data.draw(st.integers(0, newest)), newest + 1):
        repeated = batch(sum(ends[:number]), sum(ends[: number + 1]))
        assert not progress.reuses_offsets(repeated, number, {0: position})
    start = max(0, position - truncated)
    assert progress.reuses_offsets(batch(start, start), newest + 1, {0: position})
    assert progress.reuses_offsets(batch(start, position + 9), newest + 2, {0: position})


@dataclass
class Log:
    """A topic of one partition: the records, each with a number of its own, and the topic's id."""

    records: list[int]
    topic_id: int = 0
    n_made: int = 0

    def append(self, n: int) -> None:
        self.records += range(self.n_made, self.n_made + n)
        self.n_made += n


@examples(300)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "truncate", "create again"]), st.integers(0, 4), st.integers(0, 3)
        ),
        max_size=10,
    ),
    has_ids=st.booleans(),
)
def test_a_running_ingest_lands_every_record_of_a_micro_batch_or_stops(
    steps: list[tuple[str, int, int]], has_ids: bool
) -> None:
    """The oracle is the log: at each offset that a micro-batch read, the table has the record that the log had then."""
    log, table, read = Log([]), list[int](), 0
    progress = TableProgress(is_open=True, position={0: 0}, topic_id="0" if has_ids else "")
    for number, (step, n_lost, n_new) in enumerate([("append", 0, 3), *steps]):
        if step == "truncate":
            del log.records[max(0, len(log.records) - n_lost) :]
        elif step == "create again":
            log.records.clear()
            log.topic_id += 1
        log.append(n_new)
        # The planner notices a shorter log by its leader epochs, and another topic by the topic's id.
        start = max(0, len(log.records) - n_new) if step != "append" and n_lost else min(read, len(log.records))
        start = min(start, read) if step != "create again" else 0
        read = len(log.records)
        topic_range = TopicRange(
            topic="t", topic_id=str(log.topic_id) if has_ids else "", start={0: start}, end={0: read}
        )
        assert progress.position is not None
        if not progress.is_at(topic_range):
            if progress.is_of_other_topic(topic_range) or progress.reuses_offsets(
                topic_range, number, progress.position
            ):
                return  # the table stops
            for commit in commits_of(topic_range, progress.position, 100):
                table[commit.start[0] :] = log.records[commit.start[0] : commit.end[0]]
                progress.position, progress.micro_batch = {0: commit.end[0]}, number
        assert table[start:read] == log.records[start:read]


@dataclass
class LedLog:
    """The log of one partition: the records, each with the leader epoch that it was written in."""

    records: list[tuple[int, int]]
    epoch: int = 0
    n_made: int = 0

    def append(self, n: int) -> None:
        self.records += [(self.n_made + i, self.epoch) for i in range(n)]
        self.n_made += n

    def truncate(self, n_lost: int) -> None:
        """Lose the newest records by the election of another leader."""
        del self.records[max(0, len(self.records) - n_lost) :]
        self.epoch += 1

    def end_of(self, epoch: int) -> int:
        """Return where a leader epoch ends, as OffsetForLeaderEpoch responds."""
        return next((offset for offset, (_, later) in enumerate(self.records) if later > epoch), len(self.records))


@dataclass(frozen=True)
class Step:
    """A micro-batch, and what has happened before.

    Attributes:
        n_lost: the number of records that an election makes one partition lose; None without an election.
        n_new: the number of new records of that partition.
        is_whole: whether the range has the other partition, too. A query that had left out the topic may lack it.
        is_landed: whether the range is landed: no range is while the table waits after a failure, or while no ingest runs.
    """

    partition: int
    n_lost: int | None
    n_new: int
    is_whole: bool
    is_landed: bool
    is_after_restart: bool


STEPS = st.builds(
    Step,
    partition=st.integers(0, 1),
    n_lost=st.none() | st.integers(0, 4),
    n_new=st.integers(0, 5),
    is_whole=st.booleans(),
    is_landed=st.booleans(),
    is_after_restart=st.booleans(),
)


@examples(500)
@given(steps=st.lists(STEPS, max_size=12))
@example(  # partition 0 is truncated and grows again, while the table waits after a commit of partition 1 alone
    steps=[
        Step(1, None, 1, is_whole=False, is_landed=True, is_after_restart=False),
        Step(0, 2, 5, is_whole=True, is_landed=False, is_after_restart=False),
        Step(0, None, 1, is_whole=True, is_landed=True, is_after_restart=True),
    ]
)
def test_a_table_that_was_in_a_pause_while_its_log_was_truncated_stops(steps: list[Step]) -> None:
    """The oracle is the log: a table that does not stop holds the log's records."""
    logs = [LedLog([]), LedLog([])]
    for log in logs:
        log.append(3)
    tables: list[list[tuple[int, int]]] = [[], []]
    planned = {0: 0, 1: 0}
    progress = TableProgress(is_open=True, position={0: 0, 1: 0})
    first = Step(0, None, 0, is_whole=True, is_landed=True, is_after_restart=False)
    for number, step in enumerate([first, *steps]):
        log = logs[step.partition]
        if step.n_lost is not None:
            log.truncate(step.n_lost)
        partitions = (0, 1) if step.is_whole else (step.partition,)
        start = {p: min(planned[p], len(logs[p].records)) for p in partitions}
        log.append(step.n_new)
        end = {p: len(logs[p].records) for p in partitions}
        planned |= end
        epochs = {p: logs[p].epoch for p in partitions}
        topic_range = TopicRange(topic="t", topic_id="", start=start, end=end, epochs=epochs)
        if step.is_after_restart:  # the table's newest commit is all that is known
            progress = TableProgress(
                is_open=True, position=progress.position, micro_batch=progress.micro_batch, epochs=progress.epochs
            )
        position = progress.position or {}
        if not step.is_landed or progress.is_at(topic_range):
            continue
        compared = progress.compared_epochs(topic_range)
        is_truncated = any(logs[p].end_of(epoch) < position[p] for p, epoch in compared.items())
        if progress.reuses_offsets(topic_range, number, position) or is_truncated:
            return  # the table stops
        progress.note_epochs(topic_range, position)
        for commit in commits_of(topic_range, position, 100):
            for p, until in commit.end.items():
                tables[p] += logs[p].records[commit.start[p] : until]
            progress.position, progress.micro_batch = {**position, **commit.end}, number
            progress.epochs = progress.epochs_of(commit)
        for p in partitions:
            assert tables[p] == logs[p].records[: len(tables[p])]
