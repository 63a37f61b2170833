"""Checks outside the stream: compare tables with their topics, and replay rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from typing import Any, Final, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import StructType

from pykafka_wire.checkpoints.positions import beginning_of, position_at
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.spark_files import SparkFiles
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import IngestError, OffsetsError, UnfitRecordsError
from pykafka_wire.ingest.changes.newest import (
    REASON,
    TAKEN,
    computed,
    merge_changes,
    newest,
    rows_under,
    searchable,
    stale_changes,
    truncations,
    without_truncated,
)
from pykafka_wire.ingest.changes.unsent_values import SearchRange, filled
from pykafka_wire.ingest.proof.comparison import Comparison
from pykafka_wire.ingest.proof.proof import Proof, mistake_of, prove
from pykafka_wire.ingest.proof.stored import range_of
from pykafka_wire.ingest.records.contracts import Contract
from pykafka_wire.ingest.records.key_columns import KeysDifferError
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.reader import TableReader, TableReaders
from pykafka_wire.ingest.records.table_columns import table_rows
from pykafka_wire.ingest.records.topic_log import has_records, kept_range, may_be_compacted
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.row_settings import row_settings
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.merging import (
    CREATED,
    DELETE,
    UNAVAILABLE,
    Truncation,
    remember_truncations,
    truncations_of,
)
from pykafka_wire.ingest.tables.rejects import RejectOwner, Rejects, count_by_owner
from pykafka_wire.ingest.tables.topic_table import TOPIC_PROPERTY, TopicTable

_ReadT = TypeVar("_ReadT")

#: The most rejected changes that are listed.
_MAX_NAMED: Final = 20


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


def verify(spark: SparkSession, settings: Settings, topics: list[str]) -> Iterator[Proof]:
    """Compare each table, together with its rejects, with its topic, up to the table's position.

    A topic of which the ingest has read no record needs no table.

    Raises:
        NoBrokerAvailableError, AuthenticationError: no topic can be compared.
    """
    readers, rejects = TableReaders(settings), _StoredRejects(spark, settings)
    for destination in (destination for topic in topics for destination in settings.destinations(topic)):
        topic, name = destination.topic, destination.name
        target = format_of(settings).open_table(spark, settings, name)
        proof = Proof(topic=topic, table=name, start={}, until={}, comparison=None)
        try:
            if target.exists:
                with row_settings(spark):
                    proof = _verified(spark, settings, readers, target, destination, rejects.of(destination))
                yield proof
            elif has_records(settings.kafka_options, topic) and _was_read(spark, settings, topic):
                yield replace(
                    proof,
                    mistake=f"table {target.identifier} does not exist: check whether the ingest has landed {topic}",
                )
            else:
                yield replace(proof, comparison=Comparison(n_expected=0))
        except Exception as error:
            yield replace(proof, mistake=mistake_of(error))


def _was_read(spark: SparkSession, settings: Settings, topic: str) -> bool:
    """Return whether a topic should have a table, since the query has read records of it, as far as the query's log shows."""
    try:
        log = QueryLog(SparkFiles(spark, settings.checkpoint))
    except OffsetsError:  # no ingest has run
        return True

    def position(number: int) -> dict[int, int]:
        reference = CheckpointReference(path=settings.checkpoint, batch_id=number)
        offsets = position_at(log, reference, lambda tp: tp.topic == topic).offsets.offsets
        return {tp.partition: offset for tp, offset in offsets.items()}

    number = log.planned[-1]
    newest, known = position(number), beginning_of(log, number, topic).known
    forgotten = position(log.planned[0]) if settings.starting_offsets == "latest" else dict.fromkeys(newest, 0)
    return newest != forgotten | dict(known)


def _verified(
    spark: SparkSession,
    settings: Settings,
    readers: TableReaders,
    target: TopicTable,
    destination: Destination,
    rejects: Rejects,
) -> Proof:
    topic, name, table, reader = destination.topic, destination.name, destination.table, readers.of(destination)
    rows, version = target.pinned()
    topic_range = _landed_range(target, topic, version)
    held = KafkaColumns.of(rows, name, settings.prefix).of_topic(topic)
    fits = Contract(replace(table.contract, select=()), settings.prefix)

    def readable(topic_range: TopicRange, read: Callable[[TopicRange], _ReadT]) -> _ReadT:
        return _without_isolated(topic_range, read, lambda: _isolated(reader, target, rejects))

    def taken(topic_range: TopicRange) -> DataFrame:
        schema = reader.schemas.value_schema()
        rows = readable(topic_range, lambda whole: reader.read(spark, whole, schema, None))
        return rows.select("partition", "offset")

    n_rejected = 0
    if not table.merges and rejects.exists:
        rejected = KafkaColumns.of(rejects.rows, settings.rejects, "").of_topic(topic).where(before(topic_range.end))
        if table.is_subset and not rejected.isEmpty():
            # A reject that can be read now, but that the table does not take, is neither missing nor surplus.
            rejected = rejected.join(
                taken(kept_range(settings.kafka_options, topic_range)), ["partition", "offset"], "left_semi"
            )
        n_rejected = rejected.count()
        held = held.unionByName(rejected)

    stale: list[DataFrame] = []

    def newest_of_each_key(topic_range: TopicRange) -> DataFrame:
        with_headers = table.where is not None
        read = readable(topic_range, lambda whole: _changes(spark, reader, whole, target, with_headers=with_headers))
        pieces = [rows for _, rows in read]
        good = [newest(rows.where(F.col(REASON).isNull())) for rows in pieces]
        truncated = truncations_of(target) if reader.mode.has_envelopes else []
        if reader.mode.has_envelopes:
            truncated += [truncation for changed in good for truncation in truncations(changed)]
        good = [without_truncated(changed, truncated) for changed in good]
        if table.where is not None:
            ranges = [
                [
                    SearchRange(
                        changes=searchable(rows),
                        start=topic_range.start,
                        may_be_compacted=lambda: True,
                        rows_under=None,
                    )
                ]
                for rows in pieces
            ]
            good = [fits.fitting(filled(*pair), has_unsent=False) for pair in zip(good, ranges, strict=True)]
        rejected = _in_order([stale_changes(rows, truncated) for rows in pieces], good)
        stale.append(rejected.select("partition", "offset").orderBy("partition", "offset"))
        return _in_order(good, good).where(~F.col(DELETE))

    expected = newest_of_each_key if table.merges else taken if table.is_subset else None

    proof = prove(
        spark,
        settings.kafka_options,
        topic_range,
        held,
        name,
        expected=expected,
    )
    proof = replace(proof, n_rejected=n_rejected)
    if table.is_subset and destination == settings.destinations(topic)[0]:
        proof = replace(proof, **_unrouted(spark, settings, readers.of_topic(topic), topic_range))
    if not stale:
        return proof
    places = tuple((row.partition, row.offset) for row in stale[0].limit(_MAX_NAMED).collect())
    return replace(proof, stale=places, n_stale=len(places) if len(places) < _MAX_NAMED else stale[0].count())


def _without_isolated(
    topic_range: TopicRange, read: Callable[[TopicRange], _ReadT], isolated: Callable[[], Mapping[tuple[int, int], str]]
) -> _ReadT:
    """Read a range. If some records keep the others from being read, read it with these records as rejects.

    Args:
        isolated: returns the reasons of such records that the table of rejects has.
    """
    try:
        return read(topic_range)
    except UnfitRecordsError:
        found = isolated()
        if not found:
            raise
        return read(replace(topic_range, isolated=found))


def _isolated(reader: TableReader, target: TopicTable, rejects: Rejects) -> Mapping[tuple[int, int], str]:
    """Return the reasons of a table's rejects that keep other records from being read, by partition and offset.

    The rejects show these records also if the table's history, which names them, was cleaned.
    """
    if not rejects.exists:
        return {}
    rows = rejects.rows.select("partition", "offset", "key", "value")
    return reader.unfit(rows.toLocalIterator(), reader.schemas.value_schema(), target)


def _changes(
    spark: SparkSession, reader: TableReader, topic_range: TopicRange, target: TopicTable, *, with_headers: bool
) -> list[tuple[TopicRange, DataFrame]]:
    """Return the changes of a range, read as they were landed: in pieces, in each of which all keys have the same columns."""
    schema = reader.schemas.value_schema()
    try:
        rows = reader.read(spark, topic_range, schema, target, is_landed=True, with_headers=with_headers)
        return [(topic_range, rows)]
    except KeysDifferError:
        pieces = reader.keys.split(spark, topic_range)
        return [(piece, reader.read(spark, piece, schema, target, with_headers=with_headers)) for piece in pieces]


def _in_order(pieces: list[DataFrame], newer: list[DataFrame]) -> DataFrame:
    """Return the changes of all pieces, without changes of rows that a ``newer`` change in a later piece has changed.

    A row is found by the key columns of the newer change. A column that the other change's key lacks is taken from its row.
    """
    if len(pieces) == 1:
        return pieces[0]
    unchanged = _as_texts(pieces[0])
    for piece, changed in zip(pieces[1:], newer[1:], strict=True):
        new = changed.select(_key_as_texts().alias("new_key"))
        unchanged = unchanged.join(new, _is_of_row(changed), "left_anti").unionByName(_as_texts(piece))
    return unchanged


def _key_as_texts() -> Column:
    return F.from_json(F.to_json("key"), "map<string, string>")


def _is_of_row(changed: DataFrame) -> Column:
    """Return whether an earlier change, as :func:`_as_texts` returns it, has the row of a change with the key ``new_key``.

    Args:
        changed: the changes with the later keys.
    """
    return reduce(
        and_,
        (
            F.coalesce(F.col("in_key")[name], F.col("in_row")[name]).eqNullSafe(F.col("new_key")[name])
            for name in changed.select("key.*").columns
        ),
    )


def _as_texts(changed: DataFrame) -> DataFrame:
    """Return places, and the values of keys and rows as texts, since the types of the pieces differ."""
    texts = {
        name: F.from_json(F.to_json(column), "map<string, string>").alias(name)
        if isinstance(changed.schema[column].dataType, StructType)
        else F.lit(None).cast("map<string, string>").alias(name)
        for name, column in (("in_key", "key"), ("in_row", "value"))
    }
    return changed.select("partition", "offset", DELETE, *texts.values())


def _unrouted(
    spark: SparkSession, settings: Settings, readers: Sequence[TableReader], topic_range: TopicRange
) -> dict[str, Any]:
    """Return the number of a range's records that no table of the topic takes, and the first places, as fields of a proof."""
    kept = kept_range(settings.kafka_options, topic_range)
    try:
        rows = _unrouted_places(spark, readers, kept).orderBy("partition", "offset")
        places = tuple((row.partition, row.offset) for row in rows.limit(_MAX_NAMED).collect())
        return {"unrouted": places, "n_unrouted": len(places) if len(places) < _MAX_NAMED else rows.count()}
    except Exception as error:  # another table of the topic cannot be read; its own proof reports that
        mistake_of(error)
        return {}


def _unrouted_places(spark: SparkSession, readers: Sequence[TableReader], topic_range: TopicRange) -> DataFrame:
    """Return ``partition`` and ``offset`` of the records of a range that no table of the topic takes."""
    places, raw = ["partition", "offset"], readers[0].source.raw(spark, topic_range)
    taken = []
    for reader in readers:
        rows = reader.read(spark, topic_range, reader.schemas.value_schema(), None)
        taken.append((rows.where(TAKEN) if TAKEN in rows.columns else rows).select(places))
    return raw.select(places).join(reduce(DataFrame.unionByName, taken), places, "left_anti")


def _landed_range(target: TopicTable, topic: str, version: int | None = None) -> TopicRange:
    """Return the range that a table holds by its position, now or at a version."""
    # A position recorded outside the history belongs to the newest commit of an ingest, which is before the version.
    landed, properties = next(target.history(version), None) or target.landed(), target.properties()
    if landed is None or properties.get(TOPIC_PROPERTY) != topic:
        raise IngestError(f"table {target.identifier} does not hold topic {topic} according to its properties.")
    return range_of(landed, properties)


def replay_rejects(spark: SparkSession, settings: Settings) -> Iterator[Replay]:
    """Read the rejects again from their topics. Records that can be read now are landed, and removed from the rejects.

    Run it only while the ingest does not run. If an earlier replay was interrupted, its landed records are found in the table, and
    not landed twice.

    Raises:
        NoBrokerAvailableError, AuthenticationError: no topic can be read.
    """
    readers, rejects = TableReaders(settings), _StoredRejects(spark, settings)
    replayed = set()
    for owner in rejects.owners:
        try:
            destination = rejects.destination(owner)
            if destination.key in replayed:
                continue
            replayed.add(destination.key)
            with row_settings(spark):
                replay = _Replayed(spark, settings, readers, destination, rejects.of(destination)).run()
            yield replay
        except Exception as error:
            advice = format_of(settings).errors.advice
            yield Replay(topic=owner.topic, table=owner.table, mistake=mistake_of(error, advice))


class _StoredRejects:
    """The rejects of an ingest, with the tables that they belong to."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._stored = format_of(settings).open_table(spark, settings, settings.rejects)
        #: Empty if the table of rejects does not exist, as after a crash in the first micro-batch.
        self.owners = [*count_by_owner(self._stored)] if self._stored.exists else []

    def of(self, destination: Destination) -> Rejects:
        """Return the rejects of a table, also those that it had under an older name."""
        names = {destination.name}
        if not destination.table.is_subset:
            names |= {each.table for each in self.owners if each.topic == destination.topic and self._is_renamed(each)}
        return Rejects(self._stored, [RejectOwner(destination.topic, name) for name in sorted(names)])

    def destination(self, owner: RejectOwner) -> Destination:
        """Return the table that rejects belong to.

        Raises:
            IngestError: the topic has several tables, but none of this name.
        """
        destinations = self._settings.destinations(owner.topic)
        if not destinations[0].table.is_subset:
            return destinations[0] if self._is_renamed(owner) else replace(destinations[0], name=owner.table)
        by_name = {destination.name: destination for destination in destinations}
        if owner.table not in by_name:
            raise IngestError(
                f"the settings have no table {owner.table} of topic {owner.topic}: restore its [[table]], or delete these rejects."
            )
        return by_name[owner.table]

    def _is_renamed(self, owner: RejectOwner) -> bool:
        """Return whether the only table of a topic has another name now: no table of the old name holds the topic."""
        if owner.table == self._settings.destinations(owner.topic)[0].name:
            return False
        old = format_of(self._settings).open_table(self._spark, self._settings, owner.table)
        return not old.exists or old.properties().get(TOPIC_PROPERTY) != owner.topic


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
        rejected = self._rejects.rows.select("partition", "offset").distinct()
        bounds = (
            rejected.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
        )
        whole = kept_range(self._settings.kafka_options, _landed_range(self._target, self._topic))
        if not whole.n_offsets:
            return Replay(topic=self._topic, table=self._name, gone=rejected.count())
        first = {row.partition: max(row.first, whole.start.get(row.partition, row.first)) for row in bounds}
        last = {row.partition: row.last + 1 for row in bounds}
        if self._table.merges:
            # Newer changes of the same rows decide, including deletes, and also in other partitions.
            first, last = {**whole.start, **first}, {**last, **whole.end}
        topic_range = replace(whole, start={p: min(first[p], last[p]) for p in first}, end=last)
        pieces = _without_isolated(
            topic_range, self._read, lambda: _isolated(self._reader, self._target, self._rejects)
        )
        read = reduce(DataFrame.unionByName, (rows.select("partition", "offset", REASON) for _, rows in pieces))
        again = read.join(F.broadcast(rejected), ["partition", "offset"], "left_semi")
        mended = again.where(F.col(REASON).isNull()).select("partition", "offset").persist()
        try:
            n_there, n_mended, n_rejected = again.count(), mended.count(), rejected.count()
            damaged = again.where(F.col(REASON).isNotNull()).groupBy(REASON).count() if n_there > n_mended else None
            worst = None if damaged is None else damaged.orderBy(F.desc("count"), REASON).first()
            if n_mended:
                self._land(pieces, mended)
                self._rejects.delete(mended)
            n_others = self._drop_others(topic_range, rejected, again) if n_there < n_rejected else 0
        finally:
            mended.unpersist()
        return Replay(
            topic=self._topic,
            table=self._name,
            landed=n_mended,
            damaged=n_there - n_mended,
            gone=n_rejected - n_there - n_others,
            others=n_others,
            reason=None if worst is None else worst[0],
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
            return _changes(self._spark, self._reader, topic_range, self._target, with_headers=True)
        schema = self._reader.schemas.value_schema()
        return [(topic_range, self._reader.read(self._spark, topic_range, schema, self._target, with_headers=True))]

    def _land(self, pieces: Sequence[tuple[TopicRange, DataFrame]], mended: DataFrame) -> None:
        """Land the mended records of a range, and the newer changes of their rows.

        Args:
            pieces: the range's records; in each piece all keys have the same columns.
        """
        if not self._table.merges:
            ((_, rows),) = pieces
            lacking = self._late(rows, mended).join(self._target.places, ["partition", "offset"], "left_anti")
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
                later = newest(good.where(F.col("key").isNotNull())).withColumn("new_key", _key_as_texts())
                changed = later.join(touched.unionByName(_as_texts(late)), _is_of_row(good), "left_semi").drop(
                    "new_key"
                )
            self._merge(topic_range, rows, changed, truncated)
            touched = _as_texts(changed) if touched is None else touched.unionByName(_as_texts(changed))

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
