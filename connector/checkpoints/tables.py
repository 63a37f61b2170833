"""Tables that have Kafka's columns, as a Spark session reads them: which offsets of which topics they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykafka_wire.checkpoints.reference import TABLE_PREFIX
from pykafka_wire.checkpoints.stored_tables import names_in, no_topic, position_of, topic_ids_in
from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.masking import without_secrets
from pykafka_wire.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_at(spark: SparkSession, table: str) -> DataFrame:
    """Return a table by its name, or a Delta table by its path, which has a slash.

    Raises:
        OffsetsError: there is none.
    """
    return pinned_table(spark, table)[0]


def identifier_of(table: str) -> str:
    """Return how SQL names a table that is given by its name, or by its path."""
    return f"delta.`{table}`" if "/" in table else table


def pinned_table(spark: SparkSession, table: str) -> tuple[DataFrame, int | None]:
    """Return what :func:`table_at` does, and the table's version, None where it is no Delta table."""
    from pyspark.errors import AnalysisException

    try:
        return pinned(spark, identifier_of(table))
    except AnalysisException as error:
        raise OffsetsError(
            f"the table {without_secrets(table)} cannot be read ({str(error).splitlines()[0][:300]}): give its name, as "
            "catalog.schema.table, or the path of a Delta table."
        ) from error


def pinned(spark: SparkSession, identifier: str) -> tuple[DataFrame, int | None]:
    """Return a table as it is now, and its version, None where it is no Delta table.

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
    """The columns ``topic``, ``partition``, ``offset`` and ``timestamp`` of a table.

    Attributes:
        names: the expressions of columns that the table has for them; it may do without the topic and the timestamp.
    """

    rows: DataFrame
    table: str
    names: Mapping[str, str]

    @classmethod
    def of(
        cls, rows: DataFrame, table: str, prefix: str | None, given: Mapping[str, str] | None = None
    ) -> KafkaColumns:
        """Look for Kafka's columns in a table's rows.

        Args:
            prefix: before Kafka's names of the columns.
            given: the table's own names by Kafka's, with dots before nested fields; others are looked for by ``prefix``.

        Raises:
            OffsetsError: the table has no columns for ``partition`` and ``offset``.
        """
        from pyspark.errors import AnalysisException

        if given is None or not {"partition", "offset"} <= given.keys():
            given = {**names_in(rows.columns, table, prefix), **(given or {})}
        try:
            rows.select(*given.values())
        except AnalysisException as error:
            raise OffsetsError(
                f"the table {without_secrets(table)} has not all of the columns {', '.join(given.values())}: it has "
                f"{', '.join(rows.columns[:20])}. A field of a struct is named with a dot, as meta.offset."
            ) from error
        return cls(rows=rows, table=table, names=given)

    def check_topics(self, topics: Sequence[str]) -> None:
        """Raise OffsetsError where nothing in a row says which of several topics it is of."""
        if "topic" not in self.names and len(topics) > 1:
            raise no_topic(self.table, topics)

    def of_topic(self, topic: str) -> DataFrame:
        """Return ``partition``, ``offset`` and ``timestamp`` (null where there is none) of the rows of a topic."""
        from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

        names = self.names
        rows = self.rows.where(F.col(names["topic"]) == topic) if "topic" in names else self.rows
        timestamp = F.col(names["timestamp"]) if "timestamp" in names else F.lit(None).cast("timestamp")
        return rows.select(
            F.col(names["partition"]).cast("int").alias("partition"),
            F.col(names["offset"]).cast("bigint").alias("offset"),
            timestamp.alias("timestamp"),
        )


def table_position(spark: SparkSession, table: str, *, topic: str | None = None, prefix: str | None = None) -> str:
    """Return where a table ends, as text for ``startingOffsets``: behind the highest offset of each topic-partition that it has.
    The table of an ingest also says of which topic its rows are, should the topic be deleted and created again.

    Args:
        table: a name, or the path of a Delta table.
        topic: whose records the table has, if it has no column for that.
        prefix: before the names of Kafka's columns; by default those with ``_kafka_``, else those without one.

    Raises:
        OffsetsError: there is no such table, it has no columns ``partition`` and ``offset``, or it is empty.
    """
    from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

    columns = KafkaColumns.of(table_at(spark, table), table, prefix)
    names = columns.names
    if "topic" not in names and topic is None:
        raise OffsetsError(
            f"the table {without_secrets(table)} has no column for the topic: name the topic whose records it has (topic=…)."
        )
    named = F.col(names["topic"]) if "topic" in names else F.lit(topic)
    last_offsets = (
        columns.rows.select(
            named.alias("topic"),
            F.col(names["partition"]).alias("partition"),
            F.col(names["offset"]).alias("offset"),
        )
        .where("partition IS NOT NULL AND offset IS NOT NULL")
        .groupBy("topic", "partition")
        .agg(F.max("offset").alias("last"))
    )
    ends = {TopicPartition(row.topic, row.partition): row.last + 1 for row in last_offsets.collect()}
    if topic is not None:
        ends = {tp: end for tp, end in ends.items() if tp.topic == topic}
    topic_ids = topic_ids_in(_properties(spark, identifier_of(table)))
    return TABLE_PREFIX + position_of(ends, table, topic_ids).to_json(without_secrets(table))


def _properties(spark: SparkSession, identifier: str) -> dict[str, str]:
    """Return a table's properties; none of a view."""
    from pyspark.errors import AnalysisException

    try:
        return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {identifier}").collect()}
    except AnalysisException:
        return {}
