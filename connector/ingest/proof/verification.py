"""Compares the tables of an ingest with their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import beginning_of, position_at
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.spark_files import SparkFiles
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import OffsetsError
from pykafka_wire.ingest.changes.newest import (
    REASON,
    TAKEN,
    newest,
    searchable,
    stale_changes,
    truncations,
    without_truncated,
)
from pykafka_wire.ingest.changes.unsent_values import SearchRange, filled
from pykafka_wire.ingest.proof.comparison import Comparison
from pykafka_wire.ingest.proof.landed_changes import (
    changes_of,
    in_order,
    landed_range,
    without_isolated,
)
from pykafka_wire.ingest.proof.proof import Proof, mistake_of, prove
from pykafka_wire.ingest.records.contracts import Contract
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.reader import TableReader, TableReaders
from pykafka_wire.ingest.records.topic_log import has_records, kept_range
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.row_settings import row_settings
from pykafka_wire.ingest.tables.definition import check_definition
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.merging import (
    DELETE,
    truncations_of,
)
from pykafka_wire.ingest.tables.rejects import Rejects
from pykafka_wire.ingest.tables.stored_rejects import StoredRejects
from pykafka_wire.ingest.tables.topic_table import TopicTable

_ReadT = TypeVar("_ReadT")
_NO_PROOFS: Final[Mapping[str, Proof]] = {}

#: The most rejected changes that are listed.
_MAX_NAMED: Final = 20


def verify(
    spark: SparkSession, settings: Settings, topics: Sequence[str], known: Mapping[str, Proof] = _NO_PROOFS
) -> Iterator[Proof]:
    """Compare each table, together with its rejects, with its topic, up to the table's position.

    A topic of which the ingest has read no record needs no table.

    Args:
        known: proofs of tables that need no comparison, by :attr:`Destination.key`.

    Raises:
        NoBrokerAvailableError, AuthenticationError: no topic can be compared.
    """
    readers, rejects = TableReaders(settings), StoredRejects(spark, settings)
    for destination in (destination for topic in topics for destination in settings.destinations(topic)):
        topic, name = destination.topic, destination.name
        if destination.key in known:
            yield known[destination.key]
            continue
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
    check_definition(target.properties(), table, name)
    topic_range = landed_range(target, topic, version)
    rejects = rejects.of_topic(topic_range.topic_id)
    held = KafkaColumns.of(rows, name, settings.prefix).of_topic(topic)
    fits = Contract(replace(table.contract, select=()), settings.prefix)

    def readable(topic_range: TopicRange, read: Callable[[TopicRange], _ReadT]) -> _ReadT:
        return without_isolated(topic_range, read, reader, target, rejects)

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
        read = readable(topic_range, lambda whole: changes_of(spark, reader, whole, target, with_headers=with_headers))
        pieces = [_with_rejects(rows, rejects) for _, rows in read]
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
        rejected = in_order([stale_changes(rows, truncated) for rows in pieces], good)
        stale.append(rejected.select("partition", "offset").orderBy("partition", "offset"))
        return in_order(good, good).where(~F.col(DELETE))

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


def _with_rejects(changes: DataFrame, rejects: Rejects) -> DataFrame:
    """Return changes with a reason for each reject, also for one that can be read: a constraint may have refused it."""
    if not rejects.exists:
        return changes
    places = rejects.rows.select("partition", "offset").distinct().withColumn("_pykafka_wire_is_reject", F.lit(True))
    joined = changes.join(F.broadcast(places), ["partition", "offset"], "left")
    reason = F.coalesce(REASON, F.when(F.col("_pykafka_wire_is_reject"), F.lit("it is a reject")))
    return joined.select(*((reason if name == REASON else F.col(name)).alias(name) for name in changes.columns))


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
