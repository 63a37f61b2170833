"""One attempt to land a table: what its parts share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pykafka_wire.ingest.changes.newest import Counts
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReader, TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.ingest_status import TableFigures


@dataclass(slots=True, kw_only=True)
class TableProgress(TableFigures):
    """How far one table is, changed by the one writer that it has at a time: its figures, and what its next commit needs to know.

    Attributes:
        is_open: whether the position is the table's own; after a failure the table is looked at again.
        micro_batch: the number of the micro-batch that the table's last commit is of.
        sequence: the number of the table's last commit (:class:`~pykafka_wire.ingest.tables.position.Landed`).
        refused: the number of the last commit that the table had already.
        is_searched: whether the next attempt looks for the records that keep the table from being landed.
        is_proven: what :class:`~pykafka_wire.ingest.landing.isolation.Search` has found out so far.
        replayed: the last micro-batch that has brought a range again which the table has, since the checkpoint is older: its number
            and its end; None while micro-batches bring new ranges.
    """

    is_open: bool = False
    topic_id: str = ""
    micro_batch: int = -1
    sequence: int = 0
    refused: int | None = None
    is_searched: bool = False
    is_proven: bool = False
    replayed: tuple[int, Mapping[int, int]] | None = None

    def uses_offsets_again(self, part: TopicRange, micro_batch: int, position: Mapping[int, int]) -> bool:
        """Return whether a range has offsets that the table has, of other records: its topic's log was truncated, and has grown.

        An older checkpoint brings the same records again: a micro-batch before the table's last commit, or that commit's with a
        lower end, and those that go on where the one before has ended.
        """
        is_before = any(position.get(partition, start) > start for partition, start in part.start.items())
        is_below = any(position.get(partition, end) > end for partition, end in part.end.items())
        is_older = micro_batch < self.micro_batch or (micro_batch == self.micro_batch and is_below)
        is_replay = is_before and (is_older or self._goes_on(part, micro_batch))
        self.replayed = (micro_batch, part.end) if is_replay else None
        return is_before and not is_replay and 0 <= self.micro_batch < micro_batch

    def _goes_on(self, part: TopicRange, micro_batch: int) -> bool:
        """Return whether a range begins where the replayed micro-batch has ended, or is that one's."""
        if self.replayed is None:
            return False
        number, ends = self.replayed
        return number == micro_batch or all(start >= ends.get(p, start) for p, start in part.start.items())

    def is_behind(self, part: TopicRange) -> bool:
        position = self.position or {}
        return any(end > position.get(partition, part.start[partition]) for partition, end in part.end.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What the attempts of one run share.

    Attributes:
        query: Spark's id of the query.
        await_rejects: returns when the table of rejects is there.
        check_running: raises when the query has ended: another one may write the tables then.
    """

    settings: Settings
    readers: TableReaders
    query: str
    await_rejects: Callable[[], None]
    check_running: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAttempt:
    """One attempt to land a table, in one Spark session.

    Attributes:
        target: the table as Spark has it.
        shared: what the table reads together with other tables.
        is_spark_alone: only Spark may commit to the table during the attempt.
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
        """Return an attempt of a run; the table is not looked at yet."""
        return cls(
            session=session, run=run, destination=destination, progress=progress, reader=run.readers.of(destination),
            target=format_of(run.settings).open_table(session, run.settings, destination.name),
            shared=shared or SharedRead(), is_spark_alone=is_spark_alone,
        )  # fmt: skip

    @property
    def settings(self) -> Settings:
        return self.run.settings

    @property
    def name(self) -> str:
        return self.destination.name

    @property
    def table(self) -> Table:
        return self.destination.table

    def landed(self, part: TopicRange, micro_batch: int, **more: Any) -> Landed:
        """Return the position that a commit of a range stores in its table; ``more`` are further fields."""
        return Landed(
            query=self.run.query, micro_batch=micro_batch, topic=part.topic, topic_id=part.topic_id,
            start=part.start, end=part.end, **more,
        )  # fmt: skip

    def begins_at(self, part: TopicRange) -> Landed:
        """Return the position of a table without rows that begins where a range does."""
        return self.landed(replace(part, end=part.start), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """What one commit has written of a range.

    Attributes:
        rejects: the records that could not be read, of :data:`~pykafka_wire.ingest.files.tasks.REJECTS`; None where they have to be
            looked for.
    """

    counts: Counts
    rejects: pa.Table | None
