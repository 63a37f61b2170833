"""Spark writes a topic's range into a table: by an append, or by a MERGE of the newest changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.changes.newest import (
    REASON,
    TAKEN,
    UNTYPED,
    Counts,
    check_keys,
    computed,
    merge_changes,
    newest,
    rows_under,
    searchable,
    truncations,
    without_truncated,
    without_truncates,
)
from pykafka_wire.ingest.changes.unsent_values import SearchRange, filled
from pykafka_wire.ingest.files.tasks import MAX_REJECTS, REJECTS
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows, with_rejects
from pykafka_wire.ingest.landing.observations import counted
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import Read
from pykafka_wire.ingest.records.table_columns import table_rows
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_log import kept_range, may_be_compacted
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.spark.sql import column_ddl, quoted
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE, remember_truncations
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable

#: The number of commits before a range in which a row's earlier key is searched for. Each commit costs a read of its records and of
#: the table. Debezium writes the delete of the old key and the create of the new key within milliseconds.
_EARLIER_COMMITS: Final = 3


class SparkLanding:
    """Writes ranges into the table of one attempt, by Spark."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Store the attempt."""
        self._attempt = attempt
        self._settings = attempt.settings
        self._reader = attempt.reader
        self._target = attempt.target
        #: The properties that a new table gets with its first rows, since its columns will not show them.
        self._noted: Mapping[str, str] = {}

    def write(
        self, topic_range: TopicRange, schema: ValueSchema, landed: Landed, known: TopicTable | None
    ) -> WrittenRows:
        """Commit the rows of a range, or the changes in a range.

        Args:
            known: the table, or None if it does not exist yet.

        Raises:
            KeysDifferError: the keys in the range have different columns.
            AlreadyLandedError: as :meth:`TopicTable.append`.
            UnfitRecordsError: changes have no key.
        """
        session = self._attempt.session
        if known is not None:  # before the table's properties and columns are changed
            known.check_follows(landed)
        read = self._reader.plan(session, topic_range, schema, known, is_landed=True)
        if known is not None and read.noted:
            known.alter(read.noted)
        self._noted = read.noted
        return self._write(read, topic_range, schema, landed, known)

    def _write(
        self, read: Read, topic_range: TopicRange, schema: ValueSchema, landed: Landed, known: TopicTable | None
    ) -> WrittenRows:
        session = self._attempt.session
        if not self._attempt.table.merges:
            with self._attempt.shared.of_range(topic_range).records(session, self._reader, read) as records:
                return self._append_records(records, landed, known)
        changes = self._reader.changes(session, read, schema)
        if changes.schema["key"].dataType == UNTYPED:
            return self._append_rejects(changes, landed, known)
        if known is not None:
            self._reader.warn_of_other_keys(changes, known)
        return self._merge_changes(
            changes, self._search_ranges(read, topic_range, schema, landed, known), landed, known
        )

    def _append_records(self, records: DataFrame, landed: Landed, known: TopicTable | None) -> WrittenRows:
        # Counting rows makes Spark copy each row, and copying a struct costs more than copying its fields: count flat rows.
        rows, seen = self._observed(table_rows(records, self._settings, REASON), prefix=self._settings.prefix)
        self._append(rows, landed, known)
        return WrittenRows(counts=Counts.of(counted(seen)), rejects=None)

    def _append_rejects(self, changes: DataFrame, landed: Landed, known: TopicTable | None) -> WrittenRows:
        """Commit a range whose keys have no type: all records but TRUNCATEs are rejects, and the value columns are those of the
        table."""
        truncated = truncations(changes.where(F.col(REASON).isNull()))
        rows = without_truncates(self._reader.contract.fitting(changes, has_unsent=False))
        rows, seen = self._observed(table_rows(rows, self._settings, REASON), prefix=self._settings.prefix)
        with computed(rows) as appended:
            counts = self._checked(seen, landed)
            if truncated:
                known = known or self._created(appended, landed)
                remember_truncations(known, truncated)
            rejects = _rejects_of(changes, counts.n_rejects)
            self._append(appended, with_rejects(landed, counts.n_rejects, rejects), known)
        return WrittenRows(counts=counts, rejects=rejects)

    def _merge_changes(
        self, changes: DataFrame, ranges: Iterator[SearchRange], landed: Landed, known: TopicTable | None
    ) -> WrittenRows:
        """Merge the newest changes of a range.

        Args:
            ranges: the ranges to search for values that were not sent with the changes.
        """
        good, seen = self._observed(changes)
        with computed(newest(good.drop(TAKEN))) as changed:
            counts = self._checked(seen, landed)
            rejects = _rejects_of(changes, counts.n_rejects)
            self._merge(changed, ranges, counts, with_rejects(landed, counts.n_rejects, rejects), known)
        return WrittenRows(counts=counts, rejects=rejects)

    def _observed(self, rows: DataFrame, *, prefix: str = "") -> tuple[DataFrame, Observation]:
        """Return the rows without a reject reason, and an observation that counts all rows while Spark computes them.

        Args:
            prefix: the prefix of Kafka's columns in the rows.
        """
        seen, timestamp = Observation(), quoted(prefix + "timestamp")
        newest_ms = F.unix_millis(F.max(F.when(F.col(REASON).isNull(), F.col(timestamp))))
        rows = rows.observe(seen, *self._reader.mode.counts(rows), newest_ms.alias("newest_ms"))
        return rows.where(F.col(REASON).isNull()).drop(REASON), seen

    def _checked(self, seen: Observation, landed: Landed) -> Counts:
        """Return the counts of computed changes. Raises as :func:`~pykafka_wire.ingest.changes.newest.check_keys`."""
        counts = Counts.of(counted(seen))
        is_searched = self._attempt.progress.is_searched
        check_keys(counts, landed.topic, self._target.identifier, is_searched=is_searched)
        return counts

    def _search_ranges(
        self, read: Read, topic_range: TopicRange, schema: ValueSchema, landed: Landed, known: TopicTable | None
    ) -> Iterator[SearchRange]:
        """Yield the ranges that may hold values that were not sent: this range, then the ranges of earlier commits."""
        session = self._attempt.session
        again = self._reader.changes(session, read, schema, with_headers=True)
        compacted = partial(may_be_compacted, self._settings.kafka_options, topic_range.topic)
        whole = SearchRange(
            changes=searchable(again), start=topic_range.start, may_be_compacted=compacted, rows_under=None
        )
        # A column of ``select`` may differ from the value that the database has sent, so the table's rows are not searched.
        if known is None or self._attempt.table.select:
            yield whole
            return
        prefix = self._settings.prefix
        yield replace(whole, rows_under=rows_under(known, prefix))
        isolated = landed.isolated_reasons
        for earlier, rows in islice(known.earlier(), _EARLIER_COMMITS):
            start = {p: min(offset, earlier.start.get(p, offset)) for p, offset in topic_range.start.items()}
            isolated = {**isolated, **earlier.isolated_reasons}
            larger = replace(topic_range, start=start, isolated=isolated)
            larger = kept_range(self._settings.kafka_options, larger)
            changes = self._reader.read(session, larger, schema, known, with_headers=True)
            of_table = None if rows is None else rows_under(known, prefix, rows)
            yield replace(whole, changes=searchable(changes), start=larger.start, rows_under=of_table)

    def _merge(
        self,
        changed: DataFrame,
        ranges: Iterator[SearchRange],
        counts: Counts,
        landed: Landed,
        known: TopicTable | None,
    ) -> None:
        truncated = truncations(changed) if counts.n_truncates else []
        if truncated and known is None:
            fitting = self._reader.contract.fitting(changed, has_unsent=False)
            known = self._created(table_rows(fitting, self._settings), landed)
        is_remembered = self._reader.mode.has_envelopes and known is not None
        kept = without_truncated(changed, remember_truncations(self._target, truncated) if is_remembered else truncated)
        marks = [DELETE]
        if counts.n_unavailable:
            kept = filled(kept, ranges)
            marks += [UNAVAILABLE, CREATED]
        kept = self._reader.contract.fitting(kept, has_unsent=counts.n_unavailable > 0)
        rows = table_rows(kept, self._settings, *marks)
        if known is None:
            self._append(rows.where(~F.col(DELETE)).drop(*marks), landed, known)
        else:
            merge_changes(known, rows, self._settings.prefix, landed, truncated)

    def _created(self, rows: DataFrame, landed: Landed) -> TopicTable:
        """Return the table, created without rows at the start of its first range.

        The table stores the TRUNCATEs of the range before its rows: once it has the rows, a killed ingest does not read the range
        again.
        """
        begin = TopicRange(topic=landed.topic, topic_id=landed.topic_id, start=landed.start, end=landed.start)
        initial_position = self._attempt.initial_position(begin)
        self._target.create(column_ddl(rows.schema), self._new_table, self._attempt.run.query, initial_position)
        return self._target

    @property
    def _new_table(self) -> Table:
        """Return the settings of a new table. After a crash before its properties are set, the next range notes them."""
        table = self._attempt.table
        return replace(table, properties={**table.properties, **self._noted})

    def _append(self, rows: DataFrame, landed: Landed, known: TopicTable | None) -> None:
        if known is None:
            self._target.append_first(rows, self._new_table, landed)
        else:
            known.append(rows, landed)


def _rejects_of(rows: DataFrame, n_rejects: int) -> pa.Table | None:
    """Return the rejects among the rows of a range, with the schema :data:`~pykafka_wire.ingest.files.tasks.REJECTS`; None if there
    are too many, or if they differ from those that were counted."""
    if n_rejects > MAX_REJECTS:
        return None
    if not n_rejects:
        return REJECTS.empty_table()
    places = rows.where(F.col(REASON).isNotNull()).select("partition", "offset", F.col(REASON).alias("reason"))
    rejects = places.toArrow().cast(REJECTS)
    return rejects if rejects.num_rows == n_rejects else None
