"""The rejects of one table: records that could not be read or landed, as bytes with the reason.

Rejects are written after the commit of their range, by the schema of that commit. When a table is opened, missing rejects of its
newest commit are written.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.changes.newest import REASON
from pykafka_wire.ingest.files.tasks import REJECTS
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows
from pykafka_wire.ingest.landing.remedies import DATA_LOSS, UNKNOWN_TOPIC
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_log import kept_range
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.spark.errors import code_of
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed, RejectedRecord, new_attempt
from pykafka_wire.ingest.tables.rejects import TOPIC_ID, RejectOwner, Rejects
from pykafka_wire.ingest.tables.stored_rejects import StoredRejects

_log = logging.getLogger(__name__)


class TableRejects:
    """Writes and deletes the rejects of the table of one attempt."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Store the attempt. The table of rejects may not exist yet."""
        self._attempt = attempt
        self._stored = format_of(attempt.settings).open_table(
            attempt.session, attempt.settings, attempt.settings.rejects
        )
        self._rejects = Rejects(self._stored, [RejectOwner.of(attempt.destination)])

    @property
    def newest_number(self) -> int:
        """Return the highest number of the table's commits that had rejects; 0 if there was none, or if that is unknown."""
        return self._stored.newest_number(self._application)

    @property
    def _application(self) -> str:
        # A table may be renamed, and a table that is created again repeats the sequence numbers of the dropped one.
        return f":{self._attempt.target.id}"

    def write(self, topic_range: TopicRange, schema: ValueSchema, landed: Landed, written: WrittenRows) -> None:
        """Write and count the rejects of a commit, if it has any: the unreadable records of a range, and the isolated records.

        Args:
            topic_range: the range that was read.
        """
        n_rejects = written.counts.n_rejects + len(landed.isolated)
        if not n_rejects:
            return
        self._write_all(
            topic_range, schema, landed, written.rejects if written.counts.n_rejects else REJECTS.empty_table()
        )
        progress = self._attempt.progress
        progress.rejects += n_rejects
        progress.held_rejects += n_rejects
        if self._attempt.table.merges:
            progress.stale += n_rejects
            _log.warning(
                "Table %s: %d changes of topic %s were rejected: their rows may be outdated until newer changes arrive or the "
                "rejects are replayed. Run ingest --verify to list these rows.",
                self._attempt.name,
                n_rejects,
                topic_range.topic,
            )

    def write_missing(self, landed: Landed) -> None:
        """Write the rejects of the table's newest commit, if the driver was killed before it wrote them.

        Reads nothing if the commit says that it has no rejects, or if the table of rejects has them.
        """
        topic_range = TopicRange(topic=landed.topic, topic_id=landed.topic_id, start=landed.start, end=landed.end)
        n_landed = self._n_rows_of(landed)
        is_whole = (landed.n_rejects == 0 and not landed.isolated) or n_landed == topic_range.n_offsets
        if not topic_range.n_offsets or is_whole:
            return
        self._attempt.run.await_rejects()
        # An earlier table of the topic may have rejects with the same micro-batch number.
        of_this = (F.col("micro_batch") == landed.micro_batch) & before(topic_range.end) & ~before(topic_range.start)
        rejects = self._rejects.of_topic(landed.topic_id).rows.where(of_this)
        if not rejects.isEmpty():
            return  # the rejects of a micro-batch are one commit
        try:
            if (
                not landed.n_rejects
                and n_landed is not None
                and self._attempt.reader.source.n_records(self._attempt.session, topic_range) == n_landed
            ):
                return  # the missing offsets have no records
            schema = self._attempt.reader.schemas.value_schema(landed.schema_id)
            bad = self._unwritten(replace(topic_range, start=landed.read_start), schema, landed)
            self._commit(self._with_isolated(bad, landed), topic_range, landed)
            self._attempt.progress.held_rejects += rejects.count()
        except Exception as error:
            if code_of(error) not in (UNKNOWN_TOPIC, DATA_LOSS):
                raise
            _log.warning(
                "The records of the newest commit of table %s are no longer in topic %s. If the driver was killed before it wrote "
                "their rejects, these rejects are lost.",
                self._attempt.name,
                landed.topic,
            )

    def delete_dropped(self, topic_range: TopicRange) -> None:
        """Delete the topic's rejects of a dropped table from the offsets where the new table begins, since the new table reads
        these records again. Rejects of another topic, also of a deleted one of the same name, stay: no table reads their records
        again.
        """
        self._delete_from(
            topic_range, "The rejects of the dropped table %s are deleted: the new table lands its topic again."
        )

    def delete_rolled_back(self, topic_range: TopicRange) -> None:
        """Delete the rejects of a table that was rolled back, from its position on, since the table reads these records again."""
        self._delete_from(
            topic_range, "The rejects of table %s after its position are deleted: the table lands these records again."
        )

    def _delete_from(self, topic_range: TopicRange, message: str) -> None:
        """Delete the rejects from the start of a range on."""
        files = format_of(self._attempt.settings).open_files(
            self._attempt.session,
            self._attempt.settings,
            Table(topic=".*"),
            self._stored,
            self._attempt.settings.rejects,
        )
        if not (self._stored if isinstance(files, SparkAlone) else files).exists:
            return
        self._attempt.run.await_rejects()
        if self._attempt.progress.held_rejects:
            _log.info(message, self._attempt.name)
            stored = StoredRejects(self._attempt.session, self._attempt.settings).of(self._attempt.destination)
            rejects = stored.of_topic(topic_range.topic_id)
            # Rejects whose records the topic no longer has stay: they have the only copy.
            rejects.delete_from(kept_range(self._attempt.settings.kafka_options, topic_range).start)
            self._attempt.progress.held_rejects = stored.rows.count()

    def _write_all(
        self, topic_range: TopicRange, schema: ValueSchema, landed: Landed, rejects: pa.Table | None
    ) -> None:
        whole = replace(topic_range, start=landed.start)
        if rejects is None:
            bad = self._read(topic_range, schema).where(F.col(REASON).isNotNull())
            self._commit(self._with_isolated(bad, landed), whole, landed)
        else:
            rejected = pa.concat_tables([rejects, _table_of(landed.isolated)])
            bad = self._attempt.session.createDataFrame(rejected.rename_columns([*rejected.column_names[:2], REASON]))
            self._commit(bad, whole, landed, _span(whole, rejected))

    def _n_rows_of(self, landed: Landed) -> int | None:
        """Return the number of rows of a commit if each record that the table takes is a row; otherwise None. A MERGE has one row
        for all changes of a key, and none for a delete.
        """
        return None if self._attempt.table.merges else landed.n_added

    def _unwritten(self, topic_range: TopicRange, schema: ValueSchema, landed: Landed) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of a commit's records that could not be read.

        The settings may have changed since the commit, so the commit names its rejects, unless there are many.
        """
        if landed.unreadable:
            return self._as_rows(landed.unreadable)
        bad = self._unnamed(topic_range, schema, landed)
        if landed.n_rejects is not None and (n_readable := landed.n_rejects - bad.count()) > 0:
            _log.warning(
                "Table %s: the driver was killed before it wrote the %d rejects of micro-batch %d, and the present settings "
                "can read %d of these records. The table may lack them: run ingest --verify, which lists them.",
                self._attempt.name,
                landed.n_rejects,
                landed.micro_batch,
                n_readable,
            )
        return bad

    def _unnamed(self, topic_range: TopicRange, schema: ValueSchema, landed: Landed) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of a commit's rejects, which the commit does not name.

        A record that is a row of the table is not a reject. If the table still has all rows of the commit, every other record is a
        reject, even if it can be read now.
        """
        held = self._attempt.target.places(landed.topic).where(
            F.col("offset").between(min(topic_range.start.values()), max(topic_range.end.values()))
        )
        rows = self._read(topic_range, schema)
        lacking = rows.join(held, ["partition", "offset"], "left_anti")
        n_landed = self._n_rows_of(landed)
        if n_landed is None or lacking.count() > rows.count() - n_landed:
            return lacking.where(F.col(REASON).isNotNull())
        reason = F.coalesce(F.col(REASON), F.lit("it could not be read with the settings at that time"))
        return lacking.withColumn(REASON, reason)

    def _read(self, topic_range: TopicRange, schema: ValueSchema) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of the records that the table takes, or that cannot be read."""
        rows = self._attempt.reader.read(self._attempt.session, topic_range, schema, self._attempt.target)
        return rows.select("partition", "offset", REASON)

    def _with_isolated(self, bad: DataFrame, landed: Landed) -> DataFrame:
        """Return unreadable records together with the isolated records of a commit."""
        return bad.unionByName(self._as_rows(landed.isolated)) if landed.isolated else bad

    def _as_rows(self, records: Sequence[RejectedRecord]) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of rejects."""
        rejects = _table_of(records)
        return self._attempt.session.createDataFrame(rejects.rename_columns([*rejects.column_names[:2], REASON]))

    def _commit(self, bad: DataFrame, topic_range: TopicRange, landed: Landed, span: TopicRange | None = None) -> None:
        """Commit the rejects of a range, unless the table of rejects has them. All rejects are inside ``span``."""
        raw = self._attempt.reader.source.raw(self._attempt.session, span or topic_range)
        rejected = raw.join(F.broadcast(bad), ["partition", "offset"]).select(
            F.lit(self._attempt.name).alias("table"),
            *("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
            F.col(REASON).alias("reason"),
            F.lit(landed.micro_batch).cast("bigint").alias("micro_batch"),
            F.lit(landed.topic_id or None).cast("string").alias(TOPIC_ID),
        )
        self._attempt.run.await_rejects()
        self._attempt.run.check_running()
        try:
            self._stored.append(rejected, replace(landed, application=self._application, attempt=new_attempt()))
        except AlreadyLandedError:
            # The rejects were written before a crash and replayed since, or another driver that found the commit without rejects
            # has written them.
            _log.debug("The rejects of the newest commit of table %s exist already.", self._attempt.name)


def _table_of(records: Sequence[RejectedRecord]) -> pa.Table:
    return pa.Table.from_pylist([record._asdict() for record in records], REJECTS)


def _span(topic_range: TopicRange, rejects: pa.Table) -> TopicRange:
    """Return the offsets of a range from the first to the last reject of each partition."""
    ends = rejects.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    start = {end["partition"]: end["offset_min"] for end in ends}
    end = {end["partition"]: end["offset_max"] + 1 for end in ends}
    return replace(topic_range, start={**topic_range.end, **start}, end={**topic_range.end, **end})
