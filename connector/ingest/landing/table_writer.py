"""One topic's ranges into its table: a position, and two ways to write.

A range starts where the table itself ends, by its position (:mod:`~pykafka_wire.ingest.tables.position`). So a table that was
written before a crash is skipped, one that was not is written, and one that was stopped continues where it stopped. Tasks write a
range (:mod:`.by_tasks`), or Spark does (:mod:`.by_spark`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.failures import Remedy, code_of, reason_of_record, remedy_of, sentence_of
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows
from pykafka_wire.ingest.landing.by_spark import SparkLanding
from pykafka_wire.ingest.landing.by_tasks import FileLanding
from pykafka_wire.ingest.landing.isolation import Search, Span
from pykafka_wire.ingest.landing.opening import TableOpening
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.key_columns import KeysDifferError
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.position import AlreadyLandedError, IsolatedRecord, Landed, lost_position, new_attempt
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.wire.exhaustive_match import assert_never

_log = logging.getLogger(__name__)


def commits_of(part: TopicRange, position: Mapping[int, int], max_rows: int) -> list[TopicRange]:
    """Return what a table lacks that stands at ``position``, up to the end of a micro-batch: a range for each commit.

    A table that was stopped, or is made late, may lack far more than the micro-batch has. That is divided by ``max_rows``.

    Args:
        part: of the micro-batch.
    """
    start = {p: position[p] for p in part.end}
    own_start = {p: max(offset, part.start[p]) for p, offset in start.items()}
    whole = replace(part, start=start, end={p: max(end, own_start[p]) for p, end in part.end.items()})
    n_earlier = sum(own_start[p] - start[p] for p in start)
    if whole.n_offsets <= max_rows or not n_earlier:
        return [whole] if whole.n_offsets else []
    n = -(-n_earlier // max_rows)
    ends = [{p: start[p] + (own_start[p] - start[p]) * i // n for p in start} for i in range(1, n + 1)]
    earlier = [replace(part, start=begin, end=end) for begin, end in zip([start, *ends], ends, strict=False)]
    return [each for each in (*earlier, replace(whole, start=own_start)) if each.n_offsets]


class TableWriter:
    """Brings the table of one attempt up to its topic."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Take the attempt; the table is not looked at yet."""
        self._attempt = attempt
        self._progress = attempt.progress
        self._spark = SparkLanding(attempt)
        self._tasks = FileLanding(attempt)
        self._rejects = TableRejects(attempt)
        self._opening = TableOpening(attempt, self._tasks, self._rejects)
        #: Where the table ends, or a new one begins.
        self._position: dict[int, int] = {}

    def land(self, part: TopicRange, micro_batch: int, beginning: Callable[[], Beginning]) -> None:
        """Bring the table up to the end of a micro-batch's range, from where it is.

        Args:
            beginning: where the query began with the topic, for a new table.
        """
        progress, position = self._progress, self._progress.position
        if position is None or not progress.is_open:
            position = self._open(part, beginning)
        self._check_topic(part, micro_batch, position)
        if not part.end.keys() <= position.keys():  # partitions that were added
            position = self._opening.begin(part, beginning(), is_new=False) | position
        commits = commits_of(part, position, self._attempt.settings.max_rows)
        if part not in commits:
            self._attempt.shared.end(self._attempt.name)
        self._position = position
        for commit in commits:
            try:
                if progress.is_searched:
                    self._search(commit, micro_batch)
                else:
                    self._write_by_key(commit, micro_batch)
            except Exception as error:
                if self._known is None and remedy_of(error) is Remedy.CHANGE:
                    self._opening.remember_begin(commit)
                raise
        progress.is_searched = progress.is_proven = False

    def _open(self, part: TopicRange, beginning: Callable[[], Beginning]) -> dict[int, int]:
        """Look at the table, and return where it ends, or a new one begins."""
        progress = self._progress
        landed, is_made = self._opening.open(part, beginning)
        position, progress.topic_id, progress.micro_batch = dict(landed.end), landed.topic_id, landed.micro_batch
        progress.sequence = landed.sequence
        progress.first_position = progress.first_position or position
        progress.schema_id = progress.schema_id or landed.schema_id
        if is_made:
            progress.position = position
            self._rejects.complete(landed)
            if progress.newest_ms is None:  # after a restart
                progress.newest_ms = self._opening.newest_ms(landed)
            progress.is_open = True
        return position

    def _check_topic(self, part: TopicRange, micro_batch: int, position: Mapping[int, int]) -> None:
        """Raise IngestError where offsets of the range are not those of the records that the table has."""
        topic_id, name = self._progress.topic_id, self._attempt.name
        if topic_id and part.topic_id and topic_id != part.topic_id:
            raise IngestError(
                f"topic {part.topic} was deleted and created again, and table {name} holds the old one's records, at "
                "offsets that the new one uses again: give the topic another table by name in [[table]], or drop the table."
            )
        if self._progress.uses_offsets_again(part, micro_batch, position):
            raise IngestError(
                f"the log of topic {part.topic} was truncated below offsets that table {name} holds, and its new records "
                "have offsets that the table has already. Compare them by pykafka-wire ingest --verify, and give the topic "
                "another table by name in [[table]]."
            )

    def _search(self, commit: TopicRange, micro_batch: int) -> None:
        """Land a range, but for the few records that keep the range from being landed: they become rejects."""

        def write(read: Span, whole: Span, rejected: Sequence[IsolatedRecord]) -> int:
            self._attempt.run.check_running()
            n_before = self._progress.rows
            part = replace(commit, start=read.start, end=read.end)
            self._write_by_key(part, micro_batch, rejected, whole.start)
            return self._progress.rows - n_before

        def n_records(span: Span) -> int:
            return (
                self._attempt.reader.source.n_records(
                    self._attempt.session, replace(commit, start=span.start, end=span.end)
                )
                if span.n_offsets
                else 0
            )

        search = Search(
            write=write, reason_of=reason_of_record, n_records=n_records, is_proven=self._progress.is_proven
        )
        try:
            n_found = search.land(Span(commit.start, commit.end))
        finally:
            self._progress.is_proven = search.is_proven
        _log.warning(
            "Table %s: %d records of topic %s up to %s could not be landed, though those around them could; they are rejects.",
            self._attempt.name,
            n_found,
            commit.topic,
            dict(commit.end),
        )

    def _write_by_key(
        self,
        commit: TopicRange,
        micro_batch: int,
        isolated: Sequence[IsolatedRecord] = (),
        begin: Mapping[int, int] | None = None,
    ) -> None:
        """Write a range, by one commit, or one for each time that the columns of its changes' keys change, in the order of the
        topic.

        Args:
            isolated: records before the range, which become rejects with its first commit.
            begin: where that commit begins, by default where the range does; between the two there are no other records.
        """
        try:
            self._write(commit, micro_batch, isolated, begin)
        except KeysDifferError:
            for part in self._attempt.reader.keys.parts(self._attempt.session, commit):
                self._write(part, micro_batch, isolated, begin)
                isolated, begin = (), None

    def cause(self) -> tuple[object, ...]:
        """Return what a stopped table may wait for: the registry's newest schema, and the table's version."""
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
        """Return the table; None before its first rows make it."""
        return self._attempt.target if self._progress.is_open else None

    def _write(
        self, part: TopicRange, micro_batch: int, isolated: Sequence[IsolatedRecord], begin: Mapping[int, int] | None
    ) -> None:
        """Commit a range to the table, with the ``isolated`` records before it, from ``begin`` on, and write the rejects."""
        attempt, progress = self._attempt, self._progress
        schema = attempt.reader.schemas.value_schema()
        landed = attempt.landed(
            part if begin is None else replace(part, start=begin),
            micro_batch, schema_id=schema.schema_id, sequence=progress.sequence + 1, attempt=new_attempt(),
            isolated=tuple(isolated),
        )  # fmt: skip
        attempt.run.check_running()
        try:
            written = self._write_rows(part, schema, landed)
        except AlreadyLandedError as error:
            # The newest commit that is known has not changed, and yet the table has a later one.
            if progress.refused == landed.sequence:
                raise lost_position(attempt.target.identifier) from error
            progress.refused = landed.sequence
            raise
        except Exception as error:
            of_delta = code_of(error).startswith("DELTA_") and remedy_of(error) is Remedy.CHANGE
            is_divertible = of_delta and self._known is not None
            if attempt.table.on_conflict != "divert" or not is_divertible or schema.schema_id is None:
                raise
            schema = self._older_schema(error)
            landed = replace(landed, schema_id=schema.schema_id)
            written = self._write_rows(part, schema, landed)
        # Spark's commits to Delta take one transaction id, which is no position. While Spark compacts the table, deltalake may not
        # commit to it.
        if not (attempt.target.records_commits or progress.by_spark is None or attempt.is_spark_alone):
            self._opening.record(landed)
        self._rejects.write(part, schema, landed, written)
        self._count(written, landed, schema)

    def _count(self, written: WrittenRows, landed: Landed, schema: ValueSchema) -> None:
        """Move the table's position behind a commit, and count the rows of the commit."""
        progress, counts = self._progress, written.counts
        progress.schema_id = schema.schema_id
        progress.rows += counts.n - counts.n_rejects
        progress.commits += 1
        if counts.newest_ms:
            progress.newest_ms = max(progress.newest_ms or counts.newest_ms, counts.newest_ms)
        progress.position = self._position = {**self._position, **landed.end}
        progress.micro_batch, progress.sequence, progress.is_open = landed.micro_batch, landed.sequence, True
        progress.landed_at, progress.refused = time.monotonic(), None

    def _write_rows(self, part: TopicRange, schema: ValueSchema, landed: Landed) -> WrittenRows:
        """Commit the rows of a range."""
        known, progress = self._known, self._progress
        result = self._tasks.write(part, schema, landed, known)
        match result:
            case WrittenRows():
                progress.by_spark, written = None, result
            case SparkAlone(reason):
                if progress.by_spark != reason:
                    progress.by_spark = reason
                    _log.info("Spark writes the files of table %s: %s", self._attempt.name, reason)
                if known is None and self._attempt.target.exists:  # made for the files that Spark has to write
                    known = self._attempt.target
                written = self._spark.write(part, schema, landed, known)
            case _:
                assert_never(result)
        return written

    def _older_schema(self, error: Exception) -> ValueSchema:
        """Return the schema that the table was last written with; values that it cannot read go to the rejects."""
        last = self._attempt.target.landed()
        if last is None or last.schema_id is None:
            raise error
        _log.warning(
            "Table %s cannot take the newest schema and goes on with %s: %s",
            self._attempt.name,
            last.schema_id,
            sentence_of(error),
        )
        return self._attempt.reader.schemas.value_schema(last.schema_id)
