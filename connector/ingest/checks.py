"""What is done with tables beside the stream: compare them with their topics, and read rejects again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes import DELETE, REASON, changes, key_columns, newest
from pykafka_wire.ingest.comparison import Comparison, compare
from pykafka_wire.ingest.settings import Settings, Table
from pykafka_wire.ingest.tables import START_PROPERTY, TOPIC_PROPERTY, LandedTable, start_of
from pykafka_wire.ingest.topic_rows import TopicRange, TopicReader
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck:
    """A table beside its topic: ``mistake`` says why they could not be compared.

    Attributes:
        until: the offset up to which each partition was landed, and compared.
        n_gone: rows of the table whose records the topic no longer has.
    """

    topic: str
    table: str
    until: dict[int, int]
    n_gone: int
    comparison: Comparison | None
    mistake: str | None = None

    @property
    def is_right(self) -> bool:
        return self.mistake is None and self.comparison is not None and self.comparison.is_equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What became of a table's rejects: landed now, still damaged, or no longer in the topic."""

    topic: str
    table: str
    landed: int
    damaged: int
    gone: int


def verify(spark: SparkSession, settings: Settings, topics: list[str]) -> Iterator[TableCheck]:
    """Compare each table, with its rejects, with its topic, up to where the table says that it is landed."""
    reader = TopicReader(settings)
    for topic in topics:
        table, name = settings.table_for(topic), settings.name_of(topic)
        target = LandedTable(spark, settings, name)
        if not target.exists:
            continue
        try:
            yield _verified(spark, settings, reader, topic, table, target, name)
        except IngestError as error:
            yield TableCheck(topic=topic, table=name, until={}, n_gone=0, comparison=None, mistake=error.message)


def _verified(
    spark: SparkSession,
    settings: Settings,
    reader: TopicReader,
    topic: str,
    table: Table,
    target: LandedTable,
    name: str,
) -> TableCheck:
    part, gone_before = _whole_range(settings, target, topic)
    expected = _expected(spark, reader, part, table)
    prefix = settings.prefix
    landed = spark.table(target.identifier).select(
        F.col(f"{prefix}partition").alias("partition"), F.col(f"{prefix}offset").alias("offset")
    )
    if table.mode == "append":
        rejects = spark.table(settings.identifier(settings.rejects)).where(F.col("table") == name)
        landed = landed.union(rejects.select("partition", "offset"))
    is_gone = F.coalesce(_by_partition(gone_before), F.lit(-1)) > F.col("offset")
    n_gone = landed.where(is_gone).count() if any(gone_before.values()) else 0
    return TableCheck(
        topic=topic,
        table=name,
        until=dict(part.end),
        n_gone=n_gone,
        comparison=compare(expected, landed.where(~is_gone)),
    )


def _by_partition(offsets: dict[int, int]) -> Any:
    chosen: Any = F.lit(None).cast("bigint")
    for partition, offset in offsets.items():
        chosen = F.when(F.col("partition") == partition, offset).otherwise(chosen)
    return chosen


def _expected(spark: SparkSession, reader: TopicReader, part: TopicRange, table: Table) -> DataFrame:
    """The places of the records that the table and its rejects should hold."""
    if table.mode == "append":
        return spark.read.format("pykafka-wire").options(**reader.options(part), columns="partition,offset").load()
    rows = reader.read(spark, part, table, reader.value_schema(part.topic, table), None)
    last = newest(changes(rows, table).where(F.col(REASON).isNull()))
    return last.where(~F.col(DELETE)).select("partition", "offset")


def _whole_range(settings: Settings, target: LandedTable, topic: str) -> tuple[TopicRange, dict[int, int]]:
    """What the table says that it holds, as far as the topic still has it, and the topic's first offsets."""
    landed, properties = target.landed(), target.properties()
    if landed is None or properties.get(TOPIC_PROPERTY) != topic:
        raise IngestError(f"table {target.identifier} does not say that it holds topic {topic}.")
    started = start_of(properties[START_PROPERTY])
    options = {name.removeprefix("kafka."): value for name, value in settings.kafka.items()}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        first = first_offsets(cluster, topic, landed.end)
    start = {p: min(end, max(first.get(p, end), started.get(p, 0))) for p, end in landed.end.items()}
    part = TopicRange(topic=topic, topic_id=landed.topic_id, start=start, end=landed.end)
    return part, {p: offset for p, offset in first.items() if offset > started.get(p, 0)}


def first_offsets(cluster: Cluster, topic: str, partitions: Any) -> dict[int, int]:
    """The first offset that each partition of a topic still has; none for partitions that are gone."""
    from pykafka_wire.source.planning.offset_lookups import earliest_offsets
    from pykafka_wire.wire.topic_partitions import TopicPartition

    there = cluster.metadata.topics([topic])[topic].partitions
    wanted = [TopicPartition(topic, partition) for partition in partitions if partition in there]
    return {tp.partition: offset for tp, offset in earliest_offsets(cluster, wanted).items()}


def replay_rejects(spark: SparkSession, settings: Settings) -> Iterator[Replay]:
    """Read the rejects again from their topics; what can be read now goes into its table and leaves the rejects.

    Run it while the ingest does not run. What was landed by a replay that broke off is found in the table, and not landed twice.
    """
    reader = TopicReader(settings)
    rejects = LandedTable(spark, settings, settings.rejects)
    if not rejects.exists:
        raise IngestError(f"there is no table of rejects {rejects.identifier}: has this ingest run?")
    for row in spark.table(rejects.identifier).groupBy("topic", "table").count().orderBy("topic").collect():
        yield _Replayed(spark, settings, reader, row.topic, row.table).run()


class _Replayed:
    def __init__(self, spark: SparkSession, settings: Settings, reader: TopicReader, topic: str, name: str) -> None:
        self._spark = spark
        self._settings = settings
        self._reader = reader
        self._topic = topic
        self._name = name
        self._table = settings.table_for(topic)
        self._target = LandedTable(spark, settings, name)
        self._rejects = settings.identifier(settings.rejects)

    def run(self) -> Replay:
        rejected = (
            self._spark.table(self._rejects)
            .where(F.col("table") == self._name)
            .select("partition", "offset")
            .distinct()
        )
        bounds = (
            rejected.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
        )
        whole, _ = _whole_range(self._settings, self._target, self._topic)
        first = {row.partition: max(row.first, whole.start.get(row.partition, row.first)) for row in bounds}
        last = {row.partition: row.last + 1 for row in bounds}
        if self._table.mode != "append":  # newer changes of the same rows decide, deletes among them
            last = {partition: max(end, whole.end.get(partition, end)) for partition, end in last.items()}
        part = replace(whole, start={p: min(first[p], last[p]) for p in first}, end=last)
        schema = self._reader.value_schema(self._topic, self._table)
        rows = self._reader.read(self._spark, part, self._table, schema, self._target.schema)
        if self._table.mode != "append":
            rows = changes(rows, self._table)
        again = rows.join(F.broadcast(rejected), ["partition", "offset"], "left_semi")
        mended = again.where(F.col(REASON).isNull()).select("partition", "offset").persist()
        try:
            n_there, n_mended, n_rejected = again.count(), mended.count(), rejected.count()
            if n_mended:
                self._land(rows.where(F.col(REASON).isNull()), mended)
                self._forget(mended)
        finally:
            mended.unpersist()
        return Replay(
            topic=self._topic, table=self._name, landed=n_mended, damaged=n_there - n_mended, gone=n_rejected - n_there
        )

    def _land(self, good: DataFrame, mended: DataFrame) -> None:
        prefix = self._settings.prefix
        if self._table.mode == "append":
            there = self._spark.table(self._target.identifier).select(
                F.col(f"{prefix}partition").alias("partition"), F.col(f"{prefix}offset").alias("offset")
            )
            rows = good.join(F.broadcast(mended), ["partition", "offset"], "left_semi").join(
                there, ["partition", "offset"], "left_anti"
            )
            self._target.append(self._reader.table_rows(rows), None)
            return
        keys = good.join(F.broadcast(mended), ["partition", "offset"], "left_semi").select("key").distinct()
        rows = self._reader.table_rows(newest(good.join(keys, "key", "left_semi")), DELETE).persist()
        try:
            key = prefix + "key"
            self._target.merge(rows, key_columns(rows.schema[key].dataType, key), prefix + "offset", None)
        finally:
            rows.unpersist()

    def _forget(self, mended: DataFrame) -> None:
        mended.createOrReplaceTempView("pykafka_wire_mended")
        self._spark.sql(
            f"""MERGE INTO {self._rejects} AS old USING pykafka_wire_mended AS new
            ON old.table = '{self._name}' AND old.partition = new.partition AND old.offset = new.offset
            WHEN MATCHED THEN DELETE"""
        )
