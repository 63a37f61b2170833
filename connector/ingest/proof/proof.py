"""A proof that a table holds each record that a query has read exactly once.

Compares the offsets in the table with the offsets in the topic, in the range that was read. The range comes from a query's
checkpoint, from an ingest's table, or from the lowest and highest offsets in the table. Most gaps are explained by the topic
itself: it does not return transaction markers, aborted or compacted records. Other gaps are explained by the log's first offset, by
rejects, and by the ledger of lost ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.files import StoredFiles
from pykafka_wire.checkpoints.positions import position_at, ranges_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import OffsetsError
from pykafka_wire.ingest.proof.comparison import Comparison, Explanations, LostRange, compare
from pykafka_wire.ingest.proof.stored import StoredTable
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.topic_log import TopicLog
from pykafka_wire.ingest.settings.model import COMMITTED
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.spark.sql import any_of
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.rejects import of_topic_id
from pykafka_wire.wire.errors import AuthenticationError, NoBrokerAvailableError
from pykafka_wire.wire.topic_partitions import TopicPartition, topic_id_text

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The last time that Python supports. A producer that sends microseconds by mistake writes later times.
_LAST_MS: Final = 253_402_300_799_999
_NO_ADVICE: Final[Mapping[str, str]] = {}
_KINDS: Final = (("lost", "lost"), ("doubled", "doubled"), ("unknown", "not in the topic"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of comparing a table with its topic; ``mistake`` says why they could not be compared.

    Attributes:
        start, until: the compared offsets, by partition, half-open.
        unread: the number of records in partitions of which the table has no row; only if the read range is unknown.
        n_absent: the number of offsets before the topic's first offset that the table lacks: markers, aborted, compacted or lost
            records.
        n_rejected: the number of records that are rejects, not rows of the table.
        n_stale, stale: the number and first places of rejected changes that no newer change has replaced: their rows are outdated
            or missing.
        n_unrouted, unrouted: the number and first places of records that no table of the topic takes; only for the topic's first
            table.
        n_unwritten: the number of rejects of an ingest's newest commit that are not in the table of rejects yet.
        lag: the number of offsets from :attr:`until` to the end of the log.
        complete_until: the table has all records with earlier timestamps, if timestamps increase; None if unknown.
    """

    topic: str
    table: str
    start: Mapping[int, int]
    until: Mapping[int, int]
    comparison: Comparison | None
    unread: Mapping[int, int] = field(default_factory=dict)
    n_absent: int = 0
    n_rejected: int = 0
    n_stale: int = 0
    stale: tuple[tuple[int, int], ...] = ()
    n_unrouted: int = 0
    unrouted: tuple[tuple[int, int], ...] = ()
    n_unwritten: int = 0
    lag: int = 0
    complete_until: datetime | None = None
    mistake: str | None = None

    @property
    def is_right(self) -> bool:
        is_equal = self.comparison is not None and self.comparison.is_equal
        return self.mistake is None and is_equal and not self.unread and not self.n_stale

    def __str__(self) -> str:
        comparison = self.comparison
        if comparison is None:
            return f"{self.table}: not compared: {self.mistake}"
        if not self.until:
            return f"{self.table}: no records of {self.topic} to land, no table"
        texts = [f"{comparison.n_expected} records of {self.topic}"]
        if self.n_rejected:
            texts[0] += f", {self.n_rejected} of them in the table of rejects"
        if comparison.is_equal and not self.n_stale:
            texts.append("each there once")
        if self.unread:
            named = ", ".join(f"{p}: {n} records" for p, n in sorted(self.unread.items()))
            texts.append(f"no row of partition{'s' if len(self.unread) > 1 else ''} {named}")
        for kind, text in _KINDS:
            number, places = getattr(comparison, f"n_{kind}"), getattr(comparison, kind)
            if number:
                named = ", ".join(map(str, places)) + (", …" if number > len(places) else "")
                texts.append(f"{number} {text} (partition, offset: {named})")
        if self.n_stale:
            named = ", ".join(map(str, self.stale)) + (", …" if self.n_stale > len(self.stale) else "")
            texts.append(f"{self.n_stale} rejected changes, whose rows are stale (partition, offset: {named})")
        if self.n_unrouted:
            named = ", ".join(map(str, self.unrouted)) + (", …" if self.n_unrouted > len(self.unrouted) else "")
            texts.append(f"{self.n_unrouted} others that no table takes (partition, offset: {named})")
        if self.n_unwritten and comparison.n_lost:
            texts.append(
                f"{self.n_unwritten} rejects of its newest commit are not in the table of rejects: an ingest writes them after the "
                "commit, or at its next start; or they were replayed"
            )
        for number, text in (
            (comparison.n_gone, "rows whose records the topic has deleted"),
            (comparison.n_compacted, "rows whose records compaction has removed from the topic"),
            (comparison.n_in_ledger, "offsets not there that the ledger names as lost"),
            (self.n_absent, "offsets before the topic's first offset that the table lacks"),
        ):
            if number:
                texts.append(f"{number} {text}")
        if self.complete_until is not None:
            until = self.complete_until.astimezone(timezone.utc).isoformat(timespec="milliseconds")
            texts.append(f"complete until {until}" + (f", {self.lag} records behind" if self.lag else ""))
        return f"{self.table}: " + "; ".join(texts)


def mistake_of(error: Exception, advice: Mapping[str, str] = _NO_ADVICE) -> str:
    """Return the sentence of an error of one topic, with ``advice`` as in :func:`~pykafka_wire.ingest.spark.errors.sentence_of`.

    Raises:
        NoBrokerAvailableError, AuthenticationError: ``error`` is one of these, and affects every topic.
    """
    if isinstance(error, NoBrokerAvailableError | AuthenticationError):
        raise error
    return sentence_of(error, advice)


def prove(
    spark: SparkSession,
    options: Mapping[str, str],
    topic_range: TopicRange,
    held: DataFrame,
    table: str,
    *,
    expected: Callable[[TopicRange], DataFrame] | None = None,
    ledger: Sequence[LostRange] = (),
) -> Proof:
    """Compare a table with one topic.

    Args:
        options: the options of the source, ``kafka.*``.
        topic_range: the range that the table should hold.
        held: ``partition``, ``offset`` and ``timestamp`` of the table's rows, and of rejects.
        expected: returns ``partition`` and ``offset`` of the records of a range that the table should hold; by default all records
            of the topic.

    Raises:
        OffsetsError: the topic was deleted, or created again.
    """
    now = datetime.now(timezone.utc)
    log = TopicLog.of(options, topic_range)
    if not log.first:
        raise OffsetsError(f"topic {topic_range.topic} was deleted: there is nothing to compare the rows with.")
    rest = log.kept(topic_range)
    asked = {**options, **rest.options(f"table {table}"), "columns": "partition,offset", "failOnDataLoss": "true"}
    wanted = spark.read.format("pykafka-wire").options(**asked).load() if expected is None else expected(rest)
    comparison = compare(
        wanted.select("partition", "offset"),
        held.select("partition", "offset"),
        Explanations(first=log.first, end=topic_range.end, is_compacted=log.is_compacted, ledger=ledger),
    )
    return proof_of(
        log,
        topic_range,
        table,
        comparison,
        lambda behind: _newest_times(held, behind),
        now,
        ledger,
        is_whole=expected is None,
    )


def proof_of(
    log: TopicLog,
    topic_range: TopicRange,
    table: str,
    comparison: Comparison,
    newest_times: Callable[[Collection[int]], Mapping[int, int | None]],
    now: datetime,
    ledger: Sequence[LostRange] = (),
    *,
    is_whole: bool = True,
) -> Proof:
    """Return the proof of a table that was compared with its topic.

    Args:
        newest_times: returns the timestamps, in ms since the epoch, of the newest rows of some partitions.
        now: the time before the comparison.
        is_whole: whether the table should hold all records of the topic.
    """
    behind = {p: end - topic_range.end[p] for p, end in log.end.items() if end > topic_range.end[p]}
    rest = log.kept(topic_range)
    deleted = {
        p: (topic_range.start.get(p, 0), start) for p, start in rest.start.items()
    }  # offsets that the topic no longer has
    n_before = sum(max(0, end - start) for start, end in deleted.values())
    n_in_ledger = sum(
        max(0, min(until if until is not None else deleted[p][1], deleted[p][1]) - max(start, deleted[p][0]))
        for p, start, until in ledger
        if p in deleted
    )
    return Proof(
        topic=topic_range.topic,
        table=table,
        start=rest.start,
        until=topic_range.end,
        comparison=replace(comparison, n_in_ledger=comparison.n_in_ledger + n_in_ledger),
        n_absent=max(0, n_before - comparison.n_gone - n_in_ledger) if is_whole else 0,
        lag=sum(behind.values()),
        complete_until=_complete_until(newest_times(behind), behind) if behind else now,
    )


def _complete_until(newest_times: Mapping[int, int | None], behind: Collection[int]) -> datetime | None:
    """Return the time of the newest row in the partition that is furthest behind; None if a partition has none."""
    times = [newest_times.get(partition) for partition in behind]
    known = [time for time in times if time is not None]
    return _EPOCH + timedelta(milliseconds=min(*known, _LAST_MS)) if len(known) == len(times) else None


def _newest_times(held: DataFrame, partitions: Collection[int]) -> Mapping[int, int | None]:
    times = F.unix_millis(F.max("timestamp")).alias("newest_ms")
    newest = held.where(F.col("partition").isin(*partitions)).groupBy("partition").agg(times)
    return {row.partition: row.newest_ms for row in newest.collect()}


def prove_landed(
    spark: SparkSession,
    options: Mapping[str, str],
    stored: StoredTable,
    topic_range: TopicRange,
    *,
    rejects: KafkaColumns | None = None,
    ledger: str | None = None,
) -> Proof:
    """Compare the table of an ingest with its own topic, up to the table's position.

    Args:
        topic_range: the result of :meth:`StoredTable.landed_range`.
        rejects: the rejects of the ingest.
        ledger: the folder in the option ``dataLossLedger`` of the topic's ``options``.

    Raises:
        NoBrokerAvailableError, AuthenticationError: the topic cannot be compared.
    """
    table = stored.columns.table
    try:
        held = stored.columns.of_topic(topic_range.topic)
        n_unwritten = 0
        if rejects is not None:
            of_table = _of_table(rejects, topic_range, table).of_topic(topic_range.topic)
            held = held.unionByName(of_table.where(before(topic_range.end)))
            n_unwritten = _n_unwritten(stored.landed, of_table)
        lost = [] if ledger is None else _ledger_of(spark, ledger, topic_range.topic)
        options = {**COMMITTED, **options}
        return replace(prove(spark, options, topic_range, held, table, ledger=lost), n_unwritten=n_unwritten)
    except Exception as error:
        return Proof(
            topic=topic_range.topic, table=table, start={}, until={}, comparison=None, mistake=mistake_of(error)
        )


def _of_table(rejects: KafkaColumns, topic_range: TopicRange, table: str) -> KafkaColumns:
    """Return the rejects of one table, if the table of rejects names several tables of the topic, and one of them has this name."""
    if "table" not in rejects.rows.columns or "topic" not in rejects.names:
        return rejects
    if (condition := of_topic_id(rejects.rows.columns, topic_range.topic_id)) is not None:
        rejects = replace(rejects, rows=rejects.rows.where(condition))
    of_topic = rejects.rows.where(F.col(rejects.names["topic"]) == topic_range.topic)
    names = [row.table for row in of_topic.select("table").distinct().collect()]
    place = re.sub(r"/metadata/[^/]*$", "", table).rstrip("/").replace("`", "")
    name = re.split(r"[/.]", place)[-1].lower()
    of_name = [other for other in names if other.lower() == name]
    return replace(rejects, rows=rejects.rows.where(F.col("table").isin(of_name))) if of_name else rejects


def _n_unwritten(landed: Landed | None, rejects: DataFrame) -> int:
    """Return the number of missing rejects of a table's newest commit: they are not written yet, or were replayed."""
    if landed is None or not landed.n_rejects:
        return 0
    n_written = rejects.where(before(landed.end) & ~before(landed.start)).count()
    return max(0, landed.n_rejects - n_written)


def prove_query(
    spark: SparkSession,
    options: Mapping[str, str],
    reference: CheckpointReference,
    columns: KafkaColumns,
    *,
    rejects: KafkaColumns | None = None,
    ledger: str | None = None,
) -> Iterator[Proof]:
    """Compare a table with each topic that a query has read, up to the query's newest committed micro-batch.

    Args:
        columns: the Kafka columns of the table.
        rejects: the columns of a table of records that were not landed in the table.
        ledger: the folder in the query's option ``dataLossLedger``.

    Raises:
        OffsetsError: the checkpoint or the table is not suitable.
        NoBrokerAvailableError, AuthenticationError: no topic can be compared.
    """
    log = QueryLog(StoredFiles(reference.path, "the checkpoint"))
    stands = position_at(log, reference, lambda _: True)
    topics = sorted({tp.topic for tp in stands.offsets.offsets})
    columns.check_topics(topics)
    # While the query runs, the table may have micro-batches that were planned after the checkpoint was first read.
    log = QueryLog(StoredFiles(reference.path, "the checkpoint"))
    newest = position_at(log, replace(reference, batch_id=log.planned[-1]), lambda _: True) if log.planned else stands
    first = replace(reference, batch_id=0)
    started = {
        r.topic_partition: r.start_offset for r in (ranges_of(log, first, lambda _: True) if 0 in log.planned else ())
    }
    retained = position_at(log, replace(reference, batch_id=log.planned[0]), lambda _: True).offsets.offsets
    for topic in topics:
        end = {tp.partition: offset for tp, offset in stands.offsets.offsets.items() if tp.topic == topic}
        planned = {tp.partition: offset for tp, offset in newest.offsets.offsets.items() if tp.topic == topic}
        held = columns.of_topic(topic)
        if started:
            start = {p: started.get(TopicPartition(topic, p), 0) for p in end}
        else:  # Spark has deleted micro-batch 0 from its log
            lowest = {
                row.partition: row.first
                for row in held.groupBy("partition").agg(F.min("offset").alias("first")).collect()
            }
            start = {p: min(lowest.get(p, end[p]), retained.get(TopicPartition(topic, p), end[p])) for p in end}
        held = held.where(_is_read(start, end, planned))
        if rejects is not None:
            of_rejects = rejects.of_topic(topic).where(_is_read(start, end, planned) & before(end))
            held = held.unionByName(of_rejects)
        topic_id = stands.offsets.topic_ids.get(topic)
        topic_range = TopicRange(
            topic=topic,
            topic_id=topic_id_text(topic_id) if topic_id is not None and topic_id.int else "",
            start=start,
            end=end,
        )
        try:
            lost = [] if ledger is None else _ledger_of(spark, ledger, topic)
            yield prove(spark, options, topic_range, held, columns.table, ledger=lost)
        except Exception as error:
            yield Proof(
                topic=topic, table=columns.table, start=start, until=end, comparison=None, mistake=mistake_of(error)
            )


def prove_table(
    spark: SparkSession,
    options: Mapping[str, str],
    columns: KafkaColumns,
    *,
    topic: str | None = None,
    is_whole: bool = False,
    rejects: KafkaColumns | None = None,
) -> Iterator[Proof]:
    """Compare a table that any program has written with each topic of which it has rows.

    The read range is unknown, so each partition is compared from the lowest to the highest offset in the table.

    Args:
        topic: the topic of the rows, if the table has no topic column; otherwise the topic to compare.
        is_whole: whether the table should begin where its topics begin.
        rejects: as in :func:`prove_query`.

    Raises:
        OffsetsError: the topic of the rows is unknown.
        NoBrokerAvailableError, AuthenticationError: no topic can be compared.
    """
    if topic is None and "topic" not in columns.names:
        raise OffsetsError(
            f"the table {columns.table} has no column with the topic: name the topic of its records (--topic)."
        )
    if topic is not None:
        topics = [topic]
    else:
        named = columns.rows.select(F.col(columns.names["topic"]).alias("topic")).where("topic IS NOT NULL").distinct()
        topics = sorted(row.topic for row in named.collect())
    for name in topics:
        held = columns.of_topic(name)
        if rejects is not None:
            held = held.unionByName(rejects.of_topic(name))
        proof = Proof(topic=name, table=columns.table, start={}, until={}, comparison=None)
        try:
            yield _prove_rows(spark, options, name, held, columns.table, is_whole=is_whole)
        except Exception as error:
            yield replace(proof, mistake=mistake_of(error))


def _prove_rows(
    spark: SparkSession, options: Mapping[str, str], topic: str, held: DataFrame, table: str, *, is_whole: bool
) -> Proof:
    if not held.where("partition IS NULL OR offset IS NULL").isEmpty():
        raise OffsetsError(
            f"rows of topic {topic} have no partition or no offset: they cannot be compared with records."
        )
    log = TopicLog.of(options, TopicRange(topic=topic, topic_id="", start={}, end={}))
    # A row after the log's end, or in a partition that the topic does not have, shows nothing about the read range.
    rows = (
        held.where(before(log.end))
        .groupBy("partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    bounds = {row.partition: (row.first, row.last) for row in rows.collect()}
    topic_range = TopicRange(
        topic=topic,
        topic_id="",
        start={p: min(first, log.first[p]) if is_whole else first for p, (first, _) in bounds.items()},
        end={p: last + 1 for p, (_, last) in bounds.items()},
    )
    n_records = {p: end - log.first[p] for p, end in log.end.items() if p not in bounds and end > log.first[p]}
    return replace(prove(spark, options, topic_range, held, table), unread=n_records)


def _is_read(start: Mapping[int, int], end: Mapping[int, int], planned: Mapping[int, int]) -> Column:
    """Return whether a row is after the query's start, and not in a micro-batch that is planned but not committed."""
    offset = F.col("offset")
    outside: list[Column] = []
    for p in end.keys() | planned.keys():
        until = end.get(p, 0)
        is_outside = (offset < start.get(p, 0)) | ((offset >= until) & (offset < planned.get(p, until)))
        outside.append((F.col("partition") == p) & is_outside)
    return ~any_of(outside)


def _ledger_of(spark: SparkSession, folder: str, topic: str) -> list[tuple[int, int, int | None]]:
    rows = (
        spark.read.parquet(folder)
        .where(F.col("topic") == topic)
        .select("partition", "start_offset", "end_offset")
        .collect()
    )
    return [(row.partition, row.start_offset or 0, row.end_offset) for row in rows]
