"""The changes of a range that a table holds, read again as they were landed, and in the order in which they were landed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import StructType

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.errors import IngestError, UnfitRecordsError
from pykafka_wire.ingest.proof.stored import range_of
from pykafka_wire.ingest.records.key_columns import KeysDifferError
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReader
from pykafka_wire.ingest.tables.merging import DELETE
from pykafka_wire.ingest.tables.rejects import Rejects
from pykafka_wire.ingest.tables.topic_table import TopicTable

_ReadT = TypeVar("_ReadT")


def landed_range(target: TopicTable, topic: str, version: int | None = None) -> TopicRange:
    """Return the range that a table holds by its position, now or at a version."""
    # A position recorded outside the history belongs to the newest commit of an ingest, which is before the version.
    landed, properties = next(target.history(version), None) or target.landed(), target.properties()
    if landed is None or properties.get(TOPIC_PROPERTY) != topic:
        raise IngestError(f"table {target.identifier} does not hold topic {topic} according to its properties.")
    return range_of(landed, properties)


def without_isolated(
    topic_range: TopicRange,
    read: Callable[[TopicRange], _ReadT],
    reader: TableReader,
    target: TopicTable,
    rejects: Rejects,
) -> _ReadT:
    """Read a range. If some records keep the others from being read, read it with these records as rejects, as far as the table's
    rejects have them.
    """
    try:
        return read(topic_range)
    except UnfitRecordsError:
        found = _isolated(reader, target, rejects)
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


def changes_of(
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


def in_order(pieces: list[DataFrame], newer: list[DataFrame]) -> DataFrame:
    """Return the changes of all pieces, without changes of rows that a ``newer`` change in a later piece has changed.

    A row is found by the key columns of the newer change. A column that the other change's key lacks is taken from its row.
    """
    if len(pieces) == 1:
        return pieces[0]
    unchanged = as_texts(pieces[0])
    for piece, changed in zip(pieces[1:], newer[1:], strict=True):
        new = changed.select(key_as_texts().alias("new_key"))
        unchanged = unchanged.join(new, is_of_row(changed), "left_anti").unionByName(as_texts(piece))
    return unchanged


def key_as_texts() -> Column:
    return F.from_json(F.to_json("key"), "map<string, string>")


def is_of_row(changed: DataFrame) -> Column:
    """Return whether an earlier change, as :func:`as_texts` returns it, has the row of a change with the key ``new_key``.

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


def as_texts(changed: DataFrame) -> DataFrame:
    """Return places, and the values of keys and rows as texts, since the types of the pieces differ."""
    texts = {
        name: F.from_json(F.to_json(column), "map<string, string>").alias(name)
        if isinstance(changed.schema[column].dataType, StructType)
        else F.lit(None).cast("map<string, string>").alias(name)
        for name, column in (("in_key", "key"), ("in_row", "value"))
    }
    return changed.select("partition", "offset", DELETE, *texts.values())
