"""Reads the rejects of an ingest again, and lands those that can be read now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.changes.newest import (
    REASON,
    computed,
    merge_changes,
    newest,
    rows_under,
    searchable,
    truncations,
    without_truncated,
)
from pykafka_wire.ingest.changes.unsent_values import SearchRange, filled
from pykafka_wire.ingest.proof.landed_changes import (
    as_texts,
    changes_of,
    is_of_row,
    key_as_texts,
    landed_range,
    without_isolated,
)
from pykafka_wire.ingest.proof.proof import mistake_of
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.table_columns import table_rows
from pykafka_wire.ingest.records.topic_log import kept_range, may_be_compacted
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.row_settings import row_settings
from pykafka_wire.ingest.tables.definition import check_definition
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.merging import (
    CREATED,
    DELETE,
    UNAVAILABLE,
    Truncation,
    remember_truncations,
    truncations_of,
)
from pykafka_wire.ingest.tables.rejects import RejectOwner, Rejects
from pykafka_wire.ingest.tables.stored_rejects import StoredRejects

#: A replay of a table's rejects ends with an error after so many records that the table refuses; sooner if none was landed before.
_MAX_REFUSED: Final = 50
_MAX_UNPROVEN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of replaying a table's rejects.

    Attributes:
        gone: rejects whose records the topic no longer has.
        others: rejects that can be read now, but that the table does not take.
        reason: the most frequent reason of the rejects that are still damaged.
        mistake: why the rejects could not be read again.
    """

    topic: str
    table: str
    landed: int = 0
    damaged: int = 0
    gone: int = 0
    others: int = 0
    reason: str | None = None
    mistake: str | None = None

    @property
    def is_right(self) -> bool:
        """Return whether the replay succeeded: some rejects were landed, or none is still damaged."""
        return self.mistake is None and (self.landed > 0 or self.damaged == 0)

    def __str__(self) -> str:
        if self.mistake is not None:
            return f"{self.table}: not replayed: {self.mistake}"
        why = "" if self.reason is None else f" ({self.reason})"
        others = f", {self.others} that the table does not take" if self.others else ""
        return f"{self.table}: {self.landed} landed, {self.damaged} still damaged{why}, {self.gone} no longer in the topic{others}"


def replay_rejects(spark: SparkSession, settings: Settings) -> Iterator[Replay]:
    """Read the rejects again from their topics. Records that can be read now are landed, and removed from the rejects.

    Run it only while the ingest does not run. If an earlier replay was interrupted, its landed records are found in the table, and
    not landed twice.

    Raises:
        NoBrokerAvailableError, AuthenticationError: no topic can be read.
    """
    readers, rejects = TableReaders(settings), StoredRejects(spark, settings)
    replayed = set[RejectOwner]()
    for owner in rejects.owners:
        try:
            destination = rejects.destination(owner)
            if RejectOwner.of(destination) in replayed:
                continue
            replayed.add(RejectOwner.of(destination))
            with row_settings(spark):
                replay = _Replayed(spark, settings, readers, destination, rejects.of(destination)).run()
            yield replay
        except Exception as error:
            advice = format_of(settings).errors.advice
            yield Replay(topic=owner.topic, table=owner.table, mistake=mistake_of(error, advice))


class _Replayed:
    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        readers: TableReaders,
        destination: Destination,
        rejects: Rejects,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._reader = readers.of(destination)
        self._topic = destination.topic
        self._name = destination.name
        self._table = destination.table
        self._target = format_of(settings).open_table(spark, settings, self._name)
        self._rejects = rejects

    def run(self) -> Replay:
        landed = landed_range(self._target, self._topic)
        self._rejects = self._rejects.of_topic(landed.topic_id)
        check_definition(self._target.properties(), self._table, self._name)
        # A table that was set back reads the records after its position again.
        rejected = self._rejects.rows.where(before(landed.end)).select("partition", "offset").distinct()
        bounds = (
            rejected.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
        )
        whole = kept_range(self._settings.kafka_options, landed)
        if not (bounds and whole.n_offsets):
            return Replay(topic=self._topic, table=self._name, gone=rejected.count())
        first = {row.partition: max(row.first, whole.start.get(row.partition, row.first)) for row in bounds}
        last = {row.partition: row.last + 1 for row in bounds}
        if self._table.merges:
            # Newer changes of the same rows decide, including deletes, and also in other partitions.
            first, last = {**whole.start, **first}, {**last, **whole.end}
        topic_range = replace(whole, start={p: min(first[p], last[p]) for p in first}, end=last)
        pieces = without_isolated(topic_range, self._read, self._reader, self._target, self._rejects)
        read = reduce(DataFrame.unionByName, (rows.select("partition", "offset", REASON) for _, rows in pieces))
        again = read.join(F.broadcast(rejected), ["partition", "offset"], "left_semi")
        mended = again.where(F.col(REASON).isNull()).select("partition", "offset").persist()
        try:
            n_there, n_mended, n_rejected = again.count(), mended.count(), rejected.count()
            damaged = again.where(F.col(REASON).isNotNull()).groupBy(REASON).count() if n_there > n_mended else None
            worst = None if damaged is None else damaged.orderBy(F.desc("count"), REASON).first()
            refused = self._land_mended(pieces, mended) if n_mended else []
            n_others = self._drop_others(topic_range, rejected, again) if n_there < n_rejected else 0
        finally:
            mended.unpersist()
        return Replay(
            topic=self._topic,
            table=self._name,
            landed=n_mended - len(refused),
            damaged=n_there - n_mended + len(refused),
            gone=n_rejected - n_there - n_others,
            others=n_others,
            reason=next(iter(refused), None) if worst is None else worst[0],
        )

    def _drop_others(self, topic_range: TopicRange, rejected: DataFrame, again: DataFrame) -> int:
        """Delete the rejects that are still in the topic, but that the table does not take; return their number."""
        if not self._table.is_subset or self._table.merges:
            return 0
        there = self._reader.source.raw(self._spark, topic_range).select("partition", "offset")
        others = rejected.join(there, ["partition", "offset"], "left_semi")
        others = others.join(again.select("partition", "offset"), ["partition", "offset"], "left_anti").persist()
        try:
            if n_others := others.count():
                self._rejects.delete(others)
        finally:
            others.unpersist()
        return n_others

    def _read(self, topic_range: TopicRange) -> list[tuple[TopicRange, DataFrame]]:
        if self._table.merges:
            return changes_of(self._spark, self._reader, topic_range, self._target, with_headers=True)
        schema = self._reader.schemas.value_schema()
        return [(topic_range, self._reader.read(self._spark, topic_range, schema, self._target, with_headers=True))]

    def _land_mended(self, pieces: Sequence[tuple[TopicRange, DataFrame]], mended: DataFrame) -> list[str]:
        """Land mended records, and remove them from the rejects. A record that the table refuses, such as by a constraint, stays a
        reject, and keeps no other one from being landed.

        Returns:
            the errors of the refused records.

        Raises:
            Exception: the error of all records, or of very many.
        """
        waiting: list[list[tuple[int, int]]] = []
        refused, n_landed, part = list[str](), 0, mended
        while True:
            try:
                self._land(pieces, part)
                self._rejects.delete(part)
                n_landed += 1
            except Exception as error:
                reason = mistake_of(error, format_of(self._settings).errors.advice)
                places = sorted((row.partition, row.offset) for row in part.collect())
                if half := len(places) // 2:
                    waiting += [places[half:], places[:half]]
                else:
                    refused.append(reason)
                    is_shared = not (n_landed or waiting)
                    if is_shared or len(refused) >= (_MAX_REFUSED if n_landed else _MAX_UNPROVEN):
                        raise
            if not waiting:
                return refused
            part = self._spark.createDataFrame(waiting.pop(), "partition INT, offset BIGINT")

    def _land(self, pieces: Sequence[tuple[TopicRange, DataFrame]], mended: DataFrame) -> None:
        """Land the mended records of a range, and the newer changes of their rows.

        Args:
            pieces: the range's records; in each piece all keys have the same columns.
        """
        if not self._table.merges:
            ((_, rows),) = pieces
            held = self._target.places(self._topic)
            lacking = self._late(rows, mended).join(held, ["partition", "offset"], "left_anti")
            self._target.append(table_rows(lacking, self._settings), None)
            return
        truncated: list[Truncation] = []
        if self._reader.mode.has_envelopes:
            truncated = [each for _, rows in pieces for each in truncations(self._late(rows, mended))]
            remember_truncations(self._target, truncated)
        touched: DataFrame | None = None
        for topic_range, rows in pieces:
            late = self._late(rows, mended)
            if touched is None and late.isEmpty():
                continue
            good = rows.where(F.col(REASON).isNull())
            if touched is None:
                changed = newest(good.join(late.select("key").distinct(), "key", "left_semi"))
            else:
                # A later change may have another key of the row.
                later = newest(good.where(F.col("key").isNotNull())).withColumn("new_key", key_as_texts())
                changed = later.join(touched.unionByName(as_texts(late)), is_of_row(good), "left_semi").drop("new_key")
            self._merge(topic_range, rows, changed, truncated)
            touched = as_texts(changed) if touched is None else touched.unionByName(as_texts(changed))

    def _late(self, rows: DataFrame, mended: DataFrame) -> DataFrame:
        good = rows.where(F.col(REASON).isNull())
        return good.join(F.broadcast(mended), ["partition", "offset"], "left_semi")

    def _merge(
        self, topic_range: TopicRange, rows: DataFrame, changed: DataFrame, truncated: Sequence[Truncation]
    ) -> None:
        """Merge some of the newest changes of a range.

        Args:
            rows: all records of the range.
            truncated: mended TRUNCATEs, which remove older rows of the table.
        """
        changed = without_truncated(changed, truncations_of(self._target))
        # A column of ``select`` may differ from the value that the database has sent, so the table's rows are not searched.
        of_table = None if self._table.select else rows_under(self._target, self._settings.prefix)
        compacted = partial(may_be_compacted, self._settings.kafka_options, topic_range.topic)
        whole = [
            SearchRange(
                changes=searchable(rows), start=topic_range.start, may_be_compacted=compacted, rows_under=of_table
            )
        ]
        changed = self._reader.contract.fitting(filled(changed, whole), has_unsent=True)
        with computed(table_rows(changed, self._settings, DELETE, UNAVAILABLE, CREATED)) as merged:
            merge_changes(self._target, merged, self._settings.prefix, None, truncated)
