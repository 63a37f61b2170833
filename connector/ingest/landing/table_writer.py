"""Lands one topic's ranges in its table, from the position that the table stores.

A range begins at the table's own position (:mod:`~pykafka_wire.ingest.tables.position`). So after a crash, a range that was
committed is skipped, a range that was not committed is written, and a stopped table continues at its position. Tasks write a range
(:mod:`.by_tasks`), or Spark does (:mod:`.by_spark`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows
from pykafka_wire.ingest.landing.by_spark import SparkLanding
from pykafka_wire.ingest.landing.by_tasks import FileLanding
from pykafka_wire.ingest.landing.isolation import Search, Span
from pykafka_wire.ingest.landing.opening import TableOpener, added_partitions
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.landing.remedies import Remedy, reason_of_record, refuses_columns, remedy_of
from pykafka_wire.ingest.records.key_columns import KeysDifferError
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_log import truncated_offsets
from pykafka_wire.ingest.spark.errors import code_of, sentence_of
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.position import (
    AlreadyLandedError,
    Landed,
    RejectedRecord,
    lost_position_error,
    new_attempt,
)
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.wire.exhaustive_match import assert_never

_log = logging.getLogger(__name__)


def commits_of(
    topic_range: TopicRange,
    position: Mapping[int, int],
    max_rows: int,
    middle: Callable[[TopicRange], Mapping[int, int] | None] | None = None,
) -> list[TopicRange]:
    """Return the ranges that a table at ``position`` lacks up to the end of a micro-batch, one for each commit.

    A table that was stopped or is new may lack many more records than the micro-batch has. These records are divided by
    ``max_rows``.

    A commit has each partition of the position, also one that the range lacks. A query that had left out the topic for a while
    resumes it with the partitions that have new records.

    Args:
        topic_range: the range of the micro-batch.
        middle: returns where a range is divided, or None for half of the offsets of each partition; by default the offsets of all
            partitions are divided evenly.
    """
    others = {p: offset for p, offset in position.items() if p not in topic_range.end}
    topic_range = replace(topic_range, start={**topic_range.start, **others}, end={**topic_range.end, **others})
    start = {p: position[p] for p in topic_range.end}
    own_start = {p: max(offset, topic_range.start[p]) for p, offset in start.items()}
    whole = replace(topic_range, start=start, end={p: max(end, own_start[p]) for p, end in topic_range.end.items()})
    n_earlier = sum(own_start[p] - start[p] for p in start)
    if whole.n_offsets <= max_rows or not n_earlier:
        return [whole] if whole.n_offsets else []
    if middle is not None:
        earlier = [*_halved(replace(whole, end=own_start), max_rows, middle)]
    else:
        n = -(-n_earlier // max_rows)
        ends = [{p: start[p] + (own_start[p] - start[p]) * i // n for p in start} for i in range(1, n + 1)]
        earlier = [replace(topic_range, start=begin, end=end) for begin, end in zip([start, *ends], ends, strict=False)]
    return [each for each in (*earlier, replace(whole, start=own_start)) if each.n_offsets]


def _halved(
    topic_range: TopicRange, max_rows: int, middle: Callable[[TopicRange], Mapping[int, int] | None]
) -> Iterator[TopicRange]:
    """Yield a range in parts of at most ``max_rows``, in the order in which they are landed."""
    if topic_range.n_offsets <= max_rows:
        yield topic_range
        return
    for half in topic_range.halves(middle(topic_range)):
        yield from _halved(half, max_rows, middle)


class TableWriter:
    """Lands the table of one attempt up to the end of its topic."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Store the attempt. Does not open the table."""
        self._attempt = attempt
        self._progress = attempt.progress
        self._spark = SparkLanding(attempt)
        self._tasks = FileLanding(attempt)
        self._rejects = TableRejects(attempt)
        self._opening = TableOpener(attempt, self._tasks, self._rejects)
        #: The table's position, or the position where a new table begins.
        self._position: dict[int, int] = {}

    def land(self, topic_range: TopicRange, micro_batch: int, beginning: Callable[[], Beginning]) -> None:
        """Land the table from its position up to the end of a micro-batch's range.

        Args:
            beginning: returns where the query began to read the topic, for a new table.
        """
        progress, position = self._progress, self._progress.position
        if position is None or not progress.is_open:
            position = self._open(topic_range, beginning)
        self._check_topic(topic_range, micro_batch, position)
        if not topic_range.end.keys() <= position.keys():  # the topic has new partitions
            position = added_partitions(topic_range, beginning()) | position
        progress.note_epochs(topic_range, position)
        middle = self._middle if self._attempt.table.merges else None
        commits = commits_of(topic_range, position, self._attempt.settings.max_rows, middle)
        if topic_range not in commits:
            self._attempt.shared.end(self._attempt.name)
        self._position = position
        for commit in commits:
            try:
                if progress.is_searched:
                    self._search(commit, micro_batch)
                else:
                    self._write_by_key(commit, micro_batch)
            except Exception as error:
                if self._known is None and remedy_of(error, self._attempt.errors) is Remedy.CHANGE:
                    self._opening.store_beginning(commit)
                raise
        progress.is_searched = progress.is_proven = False

    def _open(self, topic_range: TopicRange, beginning: Callable[[], Beginning]) -> dict[int, int]:
        """Open the table, and return its position, or the position where a new table begins."""
        progress = self._progress
        landed, is_made = self._opening.open(topic_range, beginning)
        position, progress.topic_id, progress.micro_batch = dict(landed.end), landed.topic_id, landed.micro_batch
        progress.sequence, progress.epochs = landed.sequence, landed.epochs
        progress.first_position = progress.first_position or position
        progress.schema_id = progress.schema_id or landed.schema_id
        if is_made:
            progress.position = position
            self._rejects.write_missing(landed)
            if progress.newest_ms is None:  # after a restart
                progress.newest_ms = self._opening.newest_ms(landed)
            progress.is_open = True
        return position

    def _check_topic(self, topic_range: TopicRange, micro_batch: int, position: Mapping[int, int]) -> None:
        """Raise IngestError if the range has the same offsets as the table, but other records."""
        name = self._attempt.name
        if self._progress.is_of_other_topic(topic_range):
            raise IngestError(
                f"topic {topic_range.topic} was deleted and created again. Table {name} holds records of the deleted topic, at "
                "offsets that the new topic uses again: give the topic another table by name in [[table]], or drop the table."
            )
        epochs = self._progress.compared_epochs(topic_range)
        if self._progress.reuses_offsets(topic_range, micro_batch, position) or truncated_offsets(
            self._attempt.settings.kafka_options, topic_range.topic, position, epochs
        ):
            raise IngestError(
                f"the log of topic {topic_range.topic} was truncated below offsets that table {name} holds, and new records "
                "have the same offsets. Compare them with pykafka-wire ingest --verify, and give the topic another table by "
                "name in [[table]]."
            )

    def _search(self, commit: TopicRange, micro_batch: int) -> None:
        """Land a range except for the few records that cannot be landed; these become rejects."""

        def write(read: Span, whole: Span, rejected: Sequence[RejectedRecord]) -> int:
            self._attempt.run.check_running()
            n_before = self._progress.rows
            topic_range = replace(commit, start=read.start, end=read.end)
            self._write_by_key(topic_range, micro_batch, rejected, whole.start)
            return self._progress.rows - n_before

        def n_records(span: Span) -> int:
            return (
                self._attempt.reader.source.n_records(
                    self._attempt.session, replace(commit, start=span.start, end=span.end)
                )
                if span.n_offsets
                else 0
            )

        def middle(span: Span) -> Mapping[int, int] | None:
            if not self._attempt.table.merges:
                return None
            return self._middle(replace(commit, start=span.start, end=span.end))

        search = Search(
            write=write,
            middle=middle,
            reason_of=partial(reason_of_record, known=self._attempt.errors),
            n_records=n_records,
            is_proven=self._progress.is_proven,
        )
        try:
            n_found = search.land(Span(commit.start, commit.end))
        finally:
            self._progress.is_proven = search.is_proven
        _log.warning(
            "Table %s: %d records of topic %s up to %s could not be landed, but the records around them could: they are rejects "
            "now.",
            self._attempt.name,
            n_found,
            commit.topic,
            dict(commit.end),
        )

    def _middle(self, topic_range: TopicRange) -> Mapping[int, int] | None:
        """Return the middle of a range in time: changes of a row may be in two partitions, and a row that is deleted first would
        come back with an older change."""
        return self._attempt.reader.source.middle_in_time(topic_range)

    def _write_by_key(
        self,
        commit: TopicRange,
        micro_batch: int,
        isolated: Sequence[RejectedRecord] = (),
        begin: Mapping[int, int] | None = None,
    ) -> None:
        """Write a range: by one commit, or by several if the key columns of its changes change within the range.

        Args:
            isolated: records before the range, which become rejects with the first commit.
            begin: the start of the first commit, by default the start of the range. There are no other records in between.
        """
        try:
            self._write(commit, micro_batch, isolated, begin)
        except KeysDifferError:
            for topic_range in self._attempt.reader.keys.split(self._attempt.session, commit):
                self._write(topic_range, micro_batch, isolated, begin)
                isolated, begin = (), None

    def cause(self) -> tuple[object, ...]:
        """Return what a stopped table may wait for: the newest schema in the registry, and the table's version."""
        try:
            schema: object = self._attempt.reader.schemas.value_schema().schema_id
        except Exception as error:
            schema = code_of(error)
        try:
            version: object = self._attempt.target.version
        except Exception as error:
            version = code_of(error)
        return schema, version

    @property
    def _known(self) -> TopicTable | None:
        """Return the table; None if it does not exist yet."""
        return self._attempt.target if self._progress.is_open else None

    def _write(
        self,
        topic_range: TopicRange,
        micro_batch: int,
        isolated: Sequence[RejectedRecord],
        begin: Mapping[int, int] | None,
    ) -> None:
        """Commit a range from ``begin`` on, with the ``isolated`` records before it, and write the rejects."""
        attempt, progress = self._attempt, self._progress
        schema = attempt.reader.schemas.value_schema()
        landed = attempt.landed(
            topic_range if begin is None else replace(topic_range, start=begin),
            micro_batch, schema_id=schema.schema_id, sequence=progress.sequence + 1, attempt=new_attempt(),
            isolated=tuple(isolated),
        )  # fmt: skip
        attempt.run.check_running()
        try:
            written = self._write_rows(topic_range, schema, landed)
        except AlreadyLandedError as error:
            # The newest commit that is visible has not changed, but the table has a later one.
            if progress.refused == landed.sequence:
                raise lost_position_error(attempt.target.identifier) from error
            progress.refused = landed.sequence
            raise
        except Exception as error:
            is_divertible = self._known is not None and refuses_columns(error, attempt.errors)
            if attempt.table.on_conflict != "divert" or not is_divertible or schema.schema_id is None:
                raise
            schema = self._older_schema(error)
            landed = replace(landed, schema_id=schema.schema_id)
            written = self._write_rows(topic_range, schema, landed)
        # A commit of Spark to Delta stores one transaction id, which is not a position for each partition. While Spark compacts the
        # table, deltalake must not commit to it.
        if not (attempt.target.records_commits or progress.by_spark is None or attempt.is_spark_alone):
            self._opening.record(landed)
        self._rejects.write(topic_range, schema, landed, written)
        self._move_position(written, landed, schema)

    def _move_position(self, written: WrittenRows, landed: Landed, schema: ValueSchema) -> None:
        """Move the table's position to the end of a commit, and count the commit's rows."""
        progress, counts = self._progress, written.counts
        progress.schema_id = schema.schema_id
        progress.rows += counts.n - counts.n_rejects
        progress.commits += 1
        if counts.newest_ms:
            progress.newest_ms = max(progress.newest_ms or counts.newest_ms, counts.newest_ms)
        progress.position = self._position = {**self._position, **landed.end}
        progress.micro_batch, progress.sequence, progress.is_open = landed.micro_batch, landed.sequence, True
        progress.landed_at, progress.refused = time.monotonic(), None

    def _write_rows(self, topic_range: TopicRange, schema: ValueSchema, landed: Landed) -> WrittenRows:
        """Commit the rows of a range."""
        known, progress = self._known, self._progress
        result = self._tasks.write(topic_range, schema, landed, known)
        match result:
            case WrittenRows():
                progress.by_spark, written = None, result
            case SparkAlone(reason):
                if progress.by_spark != reason:
                    progress.by_spark = reason
                    _log.info("Spark writes the files of table %s: %s", self._attempt.name, reason)
                if known is None and self._attempt.target.exists:  # created for files that Spark has to write
                    known = self._attempt.target
                written = self._spark.write(topic_range, schema, landed, known)
            case _:
                assert_never(result)
        return written

    def _older_schema(self, error: Exception) -> ValueSchema:
        """Return the schema of the table's last commit. Values that cannot be read with it become rejects."""
        last = self._attempt.target.landed()
        if last is None or last.schema_id is None:
            raise error
        _log.warning(
            "Table %s does not accept the newest schema, and continues with schema %s: %s",
            self._attempt.name,
            last.schema_id,
            sentence_of(error, self._attempt.errors.advice),
        )
        return self._attempt.reader.older_schema(last.schema_id, self._attempt.target)
