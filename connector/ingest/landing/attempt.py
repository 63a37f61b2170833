"""One attempt to land a table: the values that its steps share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pykafka_wire.ingest.changes.newest import Counts
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReader, TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from pykafka_wire.ingest.tables.files_table import FilesTable
from pykafka_wire.ingest.tables.format import TableErrors
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import MAX_NAMED, Landed, RejectedRecord
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.ingest_status import TableFigures
from pykafka_wire.task_metrics import DriverReceiver


@dataclass(slots=True, kw_only=True)
class TableProgress(TableFigures):
    """The progress of one table: its figures, and the facts that its next commit needs. Only the table's writer changes it.

    Attributes:
        is_open: whether ``position`` was read from the table. After a failure the table is opened again.
        epochs: the leader epochs of ``position``, as in :class:`~pykafka_wire.ingest.tables.position.Landed`.
        micro_batch: the number of the micro-batch that the table's last commit belongs to.
        sequence: the sequence number of the table's last commit (:class:`~pykafka_wire.ingest.tables.position.Landed`).
        refused: the sequence number of the last commit that was refused because the table already had it.
        is_searched: whether the next attempt searches for the records that cannot be landed.
        is_proven: whether :class:`~pykafka_wire.ingest.landing.isolation.Search` has already proved that records are the cause.
        replayed: the last micro-batch that repeated a range which the table already holds, since the checkpoint is older: the
            micro-batch's number and end offsets; None while micro-batches bring new ranges.
        files: the table as the last attempt opened it for commits of files. Valid while ``is_open``: after a failure the table is
            opened again.
    """

    is_open: bool = False
    topic_id: str = ""
    epochs: Mapping[int, int] = field(default_factory=dict)
    micro_batch: int = -1
    sequence: int = 0
    refused: int | None = None
    is_searched: bool = False
    is_proven: bool = False
    replayed: tuple[int, Mapping[int, int]] | None = None
    files: FilesTable | None = None

    def reuses_offsets(self, topic_range: TopicRange, micro_batch: int, position: Mapping[int, int]) -> bool:
        """Return whether the range reuses offsets that the table holds for other records: the topic's log was truncated and grew
        again.

        An older checkpoint repeats the same records, which is no reuse. A micro-batch is such a repetition if it is older than the
        table's last commit, if it is the micro-batch of that commit with a lower end, or if it continues a repeated micro-batch.
        """
        is_before = any(position.get(partition, start) > start for partition, start in topic_range.start.items())
        is_below = any(position.get(partition, end) > end for partition, end in topic_range.end.items())
        is_older = micro_batch < self.micro_batch or (micro_batch == self.micro_batch and is_below)
        is_replay = is_before and (is_older or self._continues_replay(topic_range, micro_batch))
        self.replayed = (micro_batch, topic_range.end) if is_replay else None
        return is_before and not is_replay and 0 <= self.micro_batch < micro_batch

    def _continues_replay(self, topic_range: TopicRange, micro_batch: int) -> bool:
        """Return whether the range starts at the end of the repeated micro-batch, or belongs to that micro-batch."""
        if self.replayed is None:
            return False
        number, ends = self.replayed
        return number == micro_batch or all(start >= ends.get(p, start) for p, start in topic_range.start.items())

    def compared_epochs(self, topic_range: TopicRange) -> dict[int, int]:
        """Return the leader epochs of the position in partitions where a range has another epoch: the logs of these partitions may
        have been truncated since."""
        return {p: epoch for p, epoch in self.epochs.items() if topic_range.epochs.get(p, epoch) != epoch}

    def note_epochs(self, topic_range: TopicRange, position: Mapping[int, int]) -> None:
        """Store the leader epochs of a range that follows the position. A partition that is ahead of the range keeps its epoch."""
        ends = topic_range.end
        newer = {p: epoch for p, epoch in topic_range.epochs.items() if p in ends and position.get(p, 0) <= ends[p]}
        self.epochs = {**self.epochs, **newer}

    def epochs_of(self, topic_range: TopicRange) -> dict[int, int]:
        """Return the leader epochs that are stored with the commit of a range."""
        return {p: epoch for p, epoch in self.epochs.items() if p in topic_range.end}

    def is_at(self, topic_range: TopicRange) -> bool:
        """Return whether a range is empty and at the table's position. The table may lack records of any other range, or the range
        contradicts the position: the topic's log was truncated, or the topic was created again.
        """
        position = self.position or {}
        return (
            self.is_open
            and not self.is_of_other_topic(topic_range)
            and all(start == topic_range.end[p] == position.get(p, start) for p, start in topic_range.start.items())
        )

    def is_of_other_topic(self, topic_range: TopicRange) -> bool:
        """Return whether the topic was deleted and created again since the table's last commit, as far as brokers name its id."""
        return bool(self.topic_id and topic_range.topic_id) and self.topic_id != topic_range.topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The values that all attempts of one run share.

    Attributes:
        query: the id of Spark's query.
        await_rejects: waits until the table of rejects exists.
        check_running: raises an error if the query has ended. After that, another query may write the tables.
        receiver: gets the figures of the tables' reads; None if nobody asks for them.
    """

    settings: Settings
    readers: TableReaders
    query: str
    await_rejects: Callable[[], None]
    check_running: Callable[[], None] = field(default=lambda: None)
    receiver: DriverReceiver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAttempt:
    """One attempt to land a table, in one Spark session.

    Attributes:
        target: the table, as Spark reads and writes it.
        shared: a read of the topic that several tables share.
        is_spark_alone: whether only Spark may commit to the table during the attempt.
    """

    session: SparkSession
    run: RunContext
    destination: Destination
    progress: TableProgress
    reader: TableReader
    target: TopicTable
    shared: SharedRead
    is_spark_alone: bool

    @classmethod
    def begin(
        cls,
        session: SparkSession,
        run: RunContext,
        destination: Destination,
        progress: TableProgress,
        *,
        shared: SharedRead | None = None,
        is_spark_alone: bool = False,
    ) -> TableAttempt:
        """Return an attempt of a run. Does not open the table."""
        return cls(
            session=session, run=run, destination=destination, progress=progress, reader=run.readers.of(destination),
            target=format_of(run.settings).open_table(session, run.settings, destination.name),
            shared=shared or SharedRead(), is_spark_alone=is_spark_alone,
        )  # fmt: skip

    @property
    def settings(self) -> Settings:
        return self.run.settings

    @property
    def errors(self) -> TableErrors:
        """Return the errors of the table's format."""
        return format_of(self.run.settings).errors

    @property
    def name(self) -> str:
        return self.destination.name

    @property
    def table(self) -> Table:
        return self.destination.table

    def landed(self, topic_range: TopicRange, micro_batch: int, **more: Any) -> Landed:
        """Return the position that the commit of a range stores in its table; ``more`` sets further fields."""
        return Landed(
            query=self.run.query, micro_batch=micro_batch, topic=topic_range.topic, topic_id=topic_range.topic_id,
            start=topic_range.start, end=topic_range.end, epochs=self.progress.epochs_of(topic_range), **more,
        )  # fmt: skip

    def initial_position(self, topic_range: TopicRange) -> Landed:
        """Return the position of a table without rows that starts where the range starts."""
        return replace(self.landed(replace(topic_range, end=topic_range.start), -1), epochs={})


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """The result of one commit.

    Attributes:
        rejects: the records that could not be read, with the schema :data:`~pykafka_wire.ingest.files.tasks.REJECTS`; None if the
            caller has to read the range again to find them.
    """

    counts: Counts
    rejects: pa.Table | None


def with_rejects(landed: Landed, n_rejects: int, unreadable: pa.Table | None) -> Landed:
    """Return a commit's position with its rejects.

    Args:
        unreadable: the unreadable records, with the schema :data:`~pykafka_wire.ingest.files.tasks.REJECTS`; None if unknown.
    """
    named: tuple[RejectedRecord, ...] = ()
    if unreadable is not None and n_rejects <= MAX_NAMED and unreadable.num_rows == n_rejects:
        named = tuple(RejectedRecord(**record) for record in unreadable.to_pylist())
    return replace(landed, n_rejects=n_rejects, unreadable=named)
