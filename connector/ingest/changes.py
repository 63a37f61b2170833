"""Records as changes of rows: ``upsert`` by key, and ``cdc`` for Debezium's envelopes.

A row's changes are in one partition of its topic, in order, since the row's key is the record's: there the highest offset is the
newest change. When the topic gets more partitions, or the keys other bytes, a row's changes go on in another partition, whose
offsets cannot be compared with the first one's: then the latest timestamp is the newest change, and of equal ones that in the
higher partition. The later micro-batch is not, since micro-batches of a backlog reach two partitions at different times. The table
keeps partition, offset and timestamp beside the row: so a change that is applied twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings import Table
from pykafka_wire.ingest.tables import DELETE, Landed, LandedTable, quoted

#: Why a record is no row of its table, null for one that is.
REASON: Final = "_pykafka_wire_reason"
#: The type of a column of JSON none of whose values has a type: each is null, or empty.
UNTYPED: Final = StructType()
#: Debezium's envelope, in it where its converter adds the schema to each value.
_PAYLOAD: Final = "payload"
#: Debezium's operations that have a row: created, updated, read by a snapshot.
_WITH_ROW: Final = ("c", "u", "r")


def envelope_ddl(columns: str, column: str) -> str:
    """The type of Debezium's JSON, with ``schemas.enable`` or without, of a row's columns, or of its primary key's."""
    if column == "key":
        return f"{columns}, {_PAYLOAD} STRUCT<{columns}>"
    change = f"op STRING, after STRUCT<{columns}>"
    return f"{change}, {_PAYLOAD} STRUCT<{change}>"


def changes(rows: DataFrame, table: Table) -> DataFrame:
    """``key`` and ``value`` of the row itself, :data:`DELETE`, and :data:`REASON`, also for a record that is no change of a row.

    Args:
        rows: typed ``key`` and ``value``, and :data:`REASON`.

    Raises:
        IngestError: the values of ``cdc`` are not Debezium's.
    """
    no_change: list[Column] = []
    row, is_delete = F.col("value"), F.col("value").isNull()
    if table.mode == "cdc" and rows.schema["value"].dataType != UNTYPED:
        value = rows.schema["value"].dataType
        row, operation = _field("value", value, "after"), _field("value", value, "op")
        is_delete = is_delete | operation.eqNullSafe("d")
        is_row = operation.isin(*_WITH_ROW).eqNullSafe(True) & row.isNotNull()
        text = F.concat(F.lit("no change of a row: its op is "), F.coalesce(operation, F.lit("missing")))
        no_change = [F.when(~is_delete & ~is_row, text)]
    key = _key(rows.schema["key"].dataType)
    has_none = F.to_json(F.struct(key.alias("key"))).isin("{}", '{"key":{}}')
    no_key = F.when(has_none, F.lit("the record has no key, which names its row"))
    return (
        rows.withColumn(DELETE, is_delete)
        .withColumn(REASON, F.coalesce(F.col(REASON), no_key, *no_change))
        .withColumn("key", key)
        .withColumn("value", row)
    )


def _key(data_type: DataType) -> Column:
    """The row's key, without Debezium's envelope."""
    if isinstance(data_type, StructType) and _PAYLOAD in data_type.names:
        payload = data_type[_PAYLOAD].dataType
        if isinstance(payload, StructType):
            fields = [_field("key", data_type, name).alias(name) for name in payload.names]
            # Not a struct of nulls: a record without a key has none.
            return F.when(F.coalesce(*(each.isNotNull() for each in fields)), F.struct(*fields))
    return F.col("key")


def _field(column: str, data_type: DataType, name: str) -> Column:
    """A field of Debezium's, with its envelope or without."""
    places = [("", data_type)]
    if isinstance(data_type, StructType) and _PAYLOAD in data_type.names:
        places.insert(0, (f".{_PAYLOAD}", data_type[_PAYLOAD].dataType))
    found = [
        F.col(f"{column}{path}.{quoted(name)}")
        for path, each in places
        if isinstance(each, StructType) and name in each.names
    ]
    if not found:
        raise IngestError(
            f"mode cdc reads Debezium's envelopes, and the {column} has no field {name}: it is {data_type.simpleString()[:200]}. "
            "Use mode upsert or append for this topic."
        )
    return F.coalesce(*found)


def newest(changed: DataFrame) -> DataFrame:
    """Of each key the newest change: in a partition by offset, among partitions by timestamp, then by number."""
    of_partition = changed.groupBy("key", "partition").agg(F.max_by(F.struct(*changed.columns), "offset").alias("row"))
    of_all = of_partition.groupBy("key").agg(F.max_by("row", F.struct("row.timestamp", "partition")).alias("row"))
    return of_all.select("row.*")


@contextmanager
def computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Read rows from Kafka once, and keep them while the context is open: MERGE reads its source twice."""
    rows = rows.persist()
    try:
        rows.count()
        yield rows
    finally:
        rows.unpersist()


def merge_changes(target: LandedTable, rows: DataFrame, prefix: str, landed: Landed | None) -> None:
    """Merge the newest change of each row into its table.

    Args:
        rows: of the table's columns, and :data:`DELETE`; :func:`computed`.
        prefix: of Kafka's columns.
        landed: as :meth:`LandedTable.merge`'s.
    """
    key = rows.schema[prefix + "key"].dataType
    fields = [f".{quoted(name)}" for name in key.names] if isinstance(key, StructType) else [""]
    target.merge(rows, [quoted(prefix + "key") + field for field in fields], _newer(prefix), landed)


def _newer(prefix: str) -> str:
    """The condition by which the change ``new`` is newer than the row ``old``, as :func:`newest` has it."""
    partition, offset, timestamp = (quoted(prefix + name) for name in ("partition", "offset", "timestamp"))
    new, old = (f"struct({each}.{timestamp}, {each}.{partition})" for each in ("new", "old"))
    return f"IF(new.{partition} <=> old.{partition}, new.{offset} > old.{offset}, {new} > {old})"
