"""Tables that have Kafka's columns: which offsets of which topics they hold, and where a query continues after them.

A table's own rows are the position: the highest offset of each topic-partition. It does not know about records behind that, which
were filtered out or are not there for another reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykafka_wire.checkpoints.positions import Position
from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.checkpoints.reference import TABLE_PREFIX
from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.masking import without_secrets
from pykafka_wire.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The prefixes that Kafka's columns may have: that of ``pykafka-wire ingest``, beside which the record's own fields may have any
#: name, and none.
_PREFIXES: Final = ("_kafka_", "")


def table_at(spark: SparkSession, table: str) -> DataFrame:
    """A table by its name, or a Delta table by its path, which has a slash.

    Raises:
        OffsetsError: there is none.
    """
    from pyspark.errors import AnalysisException

    try:
        return pinned(spark, f"delta.`{table}`" if "/" in table else table)[0]
    except AnalysisException as error:
        raise OffsetsError(
            f"the table {without_secrets(table)} cannot be read ({str(error).splitlines()[0][:300]}): give its name, as "
            "catalog.schema.table, or the path of a Delta table."
        ) from error


def pinned(spark: SparkSession, identifier: str) -> tuple[DataFrame, int | None]:
    """A table as it is now, and its version, None where it is no Delta table.

    What is written later is not in it. Otherwise a DataFrame of a Delta table shows that, too, each time that it is run.
    """
    from pyspark.errors import AnalysisException

    try:
        version = spark.sql(f"DESCRIBE HISTORY {identifier} LIMIT 1").collect()[0].version
    except AnalysisException:
        return spark.table(identifier), None
    return spark.sql(f"SELECT * FROM {identifier} VERSION AS OF {version}"), version


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaColumns:
    """The columns ``topic``, ``partition``, ``offset`` and ``timestamp`` of a table, by the names that it has for them.

    Attributes:
        prefix: before their names.
        has_topic, has_timestamp: whether these two, which a table may do without, are there.
    """

    rows: DataFrame
    table: str
    prefix: str
    has_topic: bool
    has_timestamp: bool

    @classmethod
    def of(cls, rows: DataFrame, table: str, prefix: str | None) -> KafkaColumns:
        """
        Raises:
            OffsetsError: the table has no columns ``partition`` and ``offset``.
        """
        names = {name.lower() for name in rows.columns}
        for each in _PREFIXES if prefix is None else (prefix,):
            if {f"{each}partition".lower(), f"{each}offset".lower()} <= names:
                has = {f"has_{name}": f"{each}{name}".lower() in names for name in ("topic", "timestamp")}
                return cls(rows=rows, table=table, prefix=each, **has)
        raise OffsetsError(
            f"the table {without_secrets(table)} has no columns partition and offset"
            + (", nor _kafka_partition and _kafka_offset" if prefix is None else f" with the prefix {prefix!r}")
            + f": it has {', '.join(rows.columns[:20])}. Select Kafka's columns into the table."
        )

    def check_topics(self, topics: Sequence[str]) -> None:
        """Raises OffsetsError where nothing in a row says which of several topics it is of."""
        if not self.has_topic and len(topics) > 1:
            raise OffsetsError(
                f"the table {without_secrets(self.table)} has no column {self.prefix}topic, and the query reads {len(topics)} "
                f"topics ({', '.join(topics[:10])}): select the topic into the table, too."
            )

    def of_topic(self, topic: str) -> DataFrame:
        """``partition``, ``offset`` and ``timestamp`` (null where there is none) of the rows of a topic."""
        from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

        rows = self.rows.where(F.col(f"{self.prefix}topic") == topic) if self.has_topic else self.rows
        timestamp = F.col(f"{self.prefix}timestamp") if self.has_timestamp else F.lit(None).cast("timestamp")
        return rows.select(
            F.col(f"{self.prefix}partition").cast("int").alias("partition"),
            F.col(f"{self.prefix}offset").cast("bigint").alias("offset"),
            timestamp.alias("timestamp"),
        )


def table_position(spark: SparkSession, table: str, *, topic: str | None = None, prefix: str | None = None) -> str:
    """Where a table ends, as text for ``startingOffsets``: behind the highest offset of each topic-partition that it has.

    Args:
        table: a name, or the path of a Delta table.
        topic: whose records the table has, if it has no column for that.
        prefix: before the names of Kafka's columns; by default those with ``_kafka_``, else those without one.

    Raises:
        OffsetsError: there is no such table, it has no columns ``partition`` and ``offset``, or it is empty.
    """
    from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

    columns = KafkaColumns.of(table_at(spark, table), table, prefix)
    if not columns.has_topic and topic is None:
        raise OffsetsError(
            f"the table {without_secrets(table)} has no column {columns.prefix}topic: name the topic whose records it has "
            "(topic=…)."
        )
    named = F.col(f"{columns.prefix}topic") if columns.has_topic else F.lit(topic)
    found = (
        columns.rows.select(
            named.alias("topic"),
            F.col(f"{columns.prefix}partition").alias("partition"),
            F.col(f"{columns.prefix}offset").alias("offset"),
        )
        .where("partition IS NOT NULL AND offset IS NOT NULL")
        .groupBy("topic", "partition")
        .agg(F.max("offset").alias("last"))
    )
    ends = {TopicPartition(row.topic, row.partition): row.last + 1 for row in found.collect()}
    if topic is not None:
        ends = {tp: end for tp, end in ends.items() if tp.topic == topic}
    return TABLE_PREFIX + position_of(ends, table).to_json(without_secrets(table))


def position_of(ends: dict[TopicPartition, int], table: str) -> Position:
    """The position behind a table's rows.

    Raises:
        OffsetsError: the table has none.
    """
    if not ends:
        raise OffsetsError(
            f"the table {without_secrets(table)} has no rows with an offset, so that it has no end: start at earliest."
        )
    return Position(
        batch_id=None,
        is_committed=True,
        offsets=QueryOffsets(offsets=ends),
        topics=frozenset(tp.topic for tp in ends),
    )
