"""The rejects of one table: records that could not be read, or not be landed, as bytes with the reason.

Rejects are written after the commit whose range they belong to, by the same schema. When a table is opened, those of its newest
commit are written if they are missing.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.changes.newest import REASON
from pykafka_wire.ingest.failures import DATA_LOSS, UNKNOWN_TOPIC, code_of
from pykafka_wire.ingest.files.tasks import REJECTS
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows
from pykafka_wire.ingest.ranges import TopicRange, before
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import AlreadyLandedError, IsolatedRecord, Landed, new_attempt

_log = logging.getLogger(__name__)


class TableRejects:
    """Writes, completes and forgets the rejects of the table of one attempt."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Take the attempt; the table of rejects may not exist yet."""
        self._attempt = attempt
        self._rejects = format_of(attempt.settings).open_table(
            attempt.session, attempt.settings, attempt.settings.rejects
        )

    def write(self, part: TopicRange, schema: ValueSchema, landed: Landed, written: WrittenRows) -> None:
        """Write the rejects of a commit, if it has any, as bytes with the reason, in one commit, and count them.

        They are the records of a range that could not be read, and the isolated ones.

        Args:
            part: the range that was read.
        """
        n_rejects = written.counts.n_rejects + len(landed.isolated)
        if not n_rejects:
            return
        self._write_all(part, schema, landed, written.rejects if written.counts.n_rejects else REJECTS.empty_table())
        progress = self._attempt.progress
        progress.rejects += n_rejects
        progress.held_rejects += n_rejects
        if self._attempt.table.merges:
            progress.stale += n_rejects
            _log.warning(
                "Table %s: %d changes of topic %s were rejected: their rows may be older than the topic's until newer changes "
                "come, or the rejects are replayed. ingest --verify names them.",
                self._attempt.name,
                n_rejects,
                part.topic,
            )

    def complete(self, landed: Landed) -> None:
        """Write the rejects of the table's newest commit, if the driver was killed between the two.

        Nothing is read again where the commit says that it has none, or the table of rejects has them.
        """
        part = TopicRange(topic=landed.topic, topic_id=landed.topic_id, start=landed.start, end=landed.end)
        n_landed = self._n_landed(landed)
        is_whole = (landed.n_rejects == 0 and not landed.isolated) or n_landed == part.n_offsets
        if not part.n_offsets or is_whole:
            return
        self._attempt.run.await_rejects()
        of_this = (F.col("table") == self._attempt.name) & (F.col("micro_batch") == landed.micro_batch)
        # A table that is made anew has others of this number.
        of_this = of_this & before(part.end) & ~before(part.start)
        if not self._rejects.rows.where(of_this).isEmpty():
            return  # they are one commit
        try:
            if n_landed is not None and self._attempt.reader.source.n_records(self._attempt.session, part) == n_landed:
                return  # offsets without a record
            schema = self._attempt.reader.schemas.value_schema(landed.schema_id)
            bad = self._late(replace(part, start=landed.read_start), schema, landed)
            self._commit(self._with_isolated(bad, landed), part, landed)
            self._attempt.progress.held_rejects += self._rejects.rows.where(of_this).count()
        except Exception as error:
            if code_of(error) not in (UNKNOWN_TOPIC, DATA_LOSS):
                raise
            _log.warning(
                "The records of the newest commit of table %s are no longer in topic %s: if there were rejects among them, and the "
                "driver was killed before it wrote them, they are lost.",
                self._attempt.name,
                landed.topic,
            )

    def forget(self, part: TopicRange) -> None:
        """Delete the rejects of a table of this name that was dropped, from where the new table begins: it lands them anew."""
        files = format_of(self._attempt.settings).open_files(
            self._attempt.session,
            self._attempt.settings,
            Table(topic=".*"),
            self._rejects,
            self._attempt.settings.rejects,
        )
        if not (self._rejects if isinstance(files, SparkAlone) else files).exists:
            return
        self._attempt.run.await_rejects()
        if self._attempt.progress.held_rejects:
            _log.info(
                "The rejects of the table %s that was dropped are deleted: the new one lands its topic anew.",
                self._attempt.name,
            )
            self._rejects.delete_from(self._attempt.name, part.start)
            self._attempt.progress.held_rejects = 0

    def _write_all(self, part: TopicRange, schema: ValueSchema, landed: Landed, rejects: pa.Table | None) -> None:
        whole = replace(part, start=landed.start)
        if rejects is None:
            bad = self._bad(part, schema)
            self._commit(self._with_isolated(bad, landed), whole, landed)
        else:
            rejected = pa.concat_tables([rejects, pa.Table.from_pylist([*map(_reject_of, landed.isolated)], REJECTS)])
            bad = self._attempt.session.createDataFrame(rejected.rename_columns([*rejected.column_names[:2], REASON]))
            self._commit(bad, whole, landed, _span(whole, rejected))

    def _n_landed(self, landed: Landed) -> int | None:
        """Return how many records of a commit are rows; None where its rows do not say it.

        Only an append has a row for each record: a MERGE has one for all changes of a row, and none for a delete. Records that the
        table does not take are no rows either.
        """
        is_whole = not self._attempt.table.merges and not self._attempt.table.is_part
        return landed.n_added if is_whole else None

    def _late(self, part: TopicRange, schema: ValueSchema, landed: Landed) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of a commit's records that could not be read.

        The settings may have changed since. No row of the table is a reject; what it lacks is one, whether it can be read by now or
        not, where the commit's number of rows shows which records those are: they have been appended, and none deleted since.
        """
        held = self._attempt.target.places.where(
            F.col("offset").between(min(part.start.values()), max(part.end.values()))
        )
        bad = self._bad(part, schema).join(held, ["partition", "offset"], "left_anti")
        n_landed = self._n_landed(landed)
        if n_landed is None:
            return bad
        raw = self._attempt.reader.source.raw(self._attempt.session, part).select("partition", "offset")
        lacking = raw.join(held, ["partition", "offset"], "left_anti")
        if lacking.count() > raw.count() - n_landed:
            return bad
        reason = F.coalesce(F.col(REASON), F.lit("it could not be read by the settings of its time"))
        return lacking.join(bad, ["partition", "offset"], "left").withColumn(REASON, reason)

    def _bad(self, part: TopicRange, schema: ValueSchema) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of records that cannot be read."""
        rows = self._attempt.reader.read(self._attempt.session, part, schema, self._attempt.target)
        return rows.where(F.col(REASON).isNotNull()).select("partition", "offset", REASON)

    def _with_isolated(self, bad: DataFrame, landed: Landed) -> DataFrame:
        """Return records that could not be read, and a commit's isolated ones."""
        if not landed.isolated:
            return bad
        isolated = pa.Table.from_pylist([*map(_reject_of, landed.isolated)], REJECTS)
        return bad.unionByName(self._attempt.session.createDataFrame(isolated.rename_columns([*bad.columns])))

    def _commit(self, bad: DataFrame, part: TopicRange, landed: Landed, span: TopicRange | None = None) -> None:
        """Commit the rejects of ``part``, all of which are in ``span``, unless those of the table's commit are there already."""
        raw = self._attempt.reader.source.raw(self._attempt.session, span or part)
        rejected = raw.join(F.broadcast(bad), ["partition", "offset"]).select(
            F.lit(self._attempt.name).alias("table"),
            *("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
            F.col(REASON).alias("reason"),
            F.lit(landed.micro_batch).cast("bigint").alias("micro_batch"),
        )
        self._attempt.run.await_rejects()
        self._attempt.run.check_running()
        # By the table's id, too: one that is made anew has numbers that its predecessor's rejects have taken.
        application = f":{self._attempt.name}:{self._attempt.target.id}"
        try:
            self._rejects.append(rejected, replace(landed, application=application, attempt=new_attempt()))
        except AlreadyLandedError:
            # Written before a crash, and replayed since, or written by another driver that has found the commit without them.
            _log.debug("The rejects of the newest commit of table %s were written before.", self._attempt.name)


def _reject_of(record: IsolatedRecord) -> dict[str, object]:
    return record._asdict()


def _span(part: TopicRange, rejects: pa.Table) -> TopicRange:
    """Return the offsets of a range from the first reject of each partition to the last one."""
    ends = rejects.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    start = {end["partition"]: end["offset_min"] for end in ends}
    end = {end["partition"]: end["offset_max"] + 1 for end in ends}
    return replace(part, start={**part.end, **start}, end={**part.end, **end})
