"""Records as changes of rows, and the newest change of each row: mode ``upsert`` by key, and mode ``cdc`` for Debezium's envelopes.

The key of a row is the key of its records. So all changes of a row are in one partition, in order, and the highest offset is the
newest change. When the topic gets more partitions, or the bytes of the keys change, later changes of a row are in another
partition, and the offsets of two partitions cannot be compared. Then the latest timestamp is the newest change; with equal
timestamps, the one that Debezium saw last (``ts_ns``, within one micro-batch), and then the one in the higher partition. The number
of the micro-batch is not used, since micro-batches of a backlog reach two partitions at different times. The table stores
partition, offset and timestamp in each row, so applying a change twice changes nothing.

A primary key may gain or lose a column. Rows are then found by the columns in the change's key, which are also columns of the row.

A TRUNCATE has no key, and may be in any partition. In its own partition it removes everything with lower offsets; in other
partitions everything with an earlier timestamp, or with the same timestamp if Debezium saw it earlier (``ts_ns``). The table stores
the last TRUNCATE as a property.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from pykafka_wire.errors import IngestError, UnfitRecordsError
from pykafka_wire.ingest.changes.key_times import equal_time_sql, with_equal_times
from pykafka_wire.ingest.changes.unsent_values import REJECTED, RowsUnder, is_older
from pykafka_wire.ingest.spark.sql import any_of, clash, quoted
from pykafka_wire.ingest.tables.merging import (
    CREATED,
    DELETE,
    UNAVAILABLE,
    Merging,
    Truncation,
    check_kafka_columns,
    key_gaps_of,
    merge_rows,
    truncations_of,
)
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.options.logged_once import is_first

_log = logging.getLogger(__name__)

#: The column with the reject reason of a record; null for a record that is a row.
REASON: Final = "_pykafka_wire_reason"
#: The column that says whether a record is a TRUNCATE.
TRUNCATE: Final = "_pykafka_wire_truncate"
#: The column with the time when Debezium saw a change, in nanoseconds; null if unknown.
SEEN_NS: Final = "_pykafka_wire_seen_ns"
#: The column that says whether a table takes a change; only for tables with a condition.
TAKEN: Final = "_pykafka_wire_taken"
#: The columns that changes have in addition to the columns of their table.
MARKS: Final = (DELETE, UNAVAILABLE, CREATED, TRUNCATE, SEEN_NS)
NO_KEY: Final = "the record has no key, which identifies its row"
NOTHING: Final = "the record has neither key nor value"
#: The type of a JSON column in which no value has a type: every value is null or empty.
UNTYPED: Final = StructType()
#: The field with Debezium's envelope, if its converter adds the schema to each value.
_PAYLOAD: Final = "payload"
#: Debezium's operations that carry a row: create, update, and read (by a snapshot).
_WITH_ROW: Final = ("c", "u", "r")
#: The operation of an INSERT, and of a row whose primary key has changed. Values may be unsent only in the second case.
_CREATE: Final = "c"
#: The operation of a message that an application has written to the database log; it belongs to no table.
_MESSAGE: Final = "m"
#: The fields that Debezium's ExtractNewRecordState adds to a row.
_DELETED, _OP = "__deleted", "__op"
_FLATTENED: Final = (_DELETED, _OP)
#: The fields of an envelope in JSON that are read.
ENVELOPE_FIELDS: Final = ("op STRING", "ts_ns BIGINT")
_NUMBERS: Final = (ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
#: Debezium's placeholders for unsent PostGIS columns: impossible points.
_GEOMETRIES: Final = (
    "0101000020E6100000000000FC83D797C1000000FC83D797C1",
    "0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640",
)


def envelope_ddl(columns: str, column: str) -> str:
    """Return the type of Debezium's JSON, with or without ``schemas.enable``, for the declared columns of a row or of its primary
    key."""
    if column == "key":
        return f"{columns}, {_PAYLOAD} STRUCT<{columns}>"
    change = ", ".join((*ENVELOPE_FIELDS, f"after STRUCT<{columns}>"))
    return f"{change}, {_PAYLOAD} STRUCT<{change}>"


def changed_row(column: str, field: Callable[[str, str], Column], row: Column) -> Column:
    """Return Debezium's envelope of a JSON column, perhaps inside Connect's envelope, with the row in the table's type.

    Args:
        field: returns a field of the envelope, by the names of the column and of the field.
    """
    change = F.struct(*(field(column, name).alias(name) for name in ("op", "ts_ns")), row.alias("after"))
    return F.when(F.col(column).isNotNull(), change)


def with_flattened(columns: str) -> str:
    """Return declared columns with the fields that mark a delete in Debezium's flattened events added."""
    more = _FLATTENED if is_of_fields(columns) else ()
    return ", ".join((columns, *(f"{name} STRING" for name in more if name not in names_of(columns))))


def without_flattened(rows: DataFrame, columns: str) -> DataFrame:
    """Return rows as declared, without the fields that :func:`with_flattened` has added."""
    value = rows.schema["value"].dataType
    added = [
        name
        for name in _FLATTENED
        if name not in names_of(columns) and isinstance(value, StructType) and name in value.names
    ]
    return rows.withColumn("value", F.col("value").dropFields(*added)) if added else rows


def names_of(columns: str) -> set[str]:
    """Return the names of declared columns in lower case."""
    declared = DataType.fromDDL(columns)
    return {name.lower() for name in declared.names} if isinstance(declared, StructType) else set()


def is_of_fields(columns: str) -> bool:
    """Return whether declared columns are a list of fields, not a single type."""
    return isinstance(DataType.fromDDL(columns), StructType) and not columns.lstrip().upper().startswith("STRUCT<")


class _Change(NamedTuple):
    """The effect of a record on a row, as columns of the record.

    Attributes:
        key_source: the type of a row that supplies missing key columns; None if keys are complete.
        other_reason: why a record with a key is not a change of a row.
    """

    row: Column
    row_type: DataType
    is_delete: Column
    is_created: Column
    is_truncate: Column
    seen_ns: Column
    key_source: DataType | None
    other_reason: Column


def changes_of_rows(records: DataFrame, placeholder: str) -> DataFrame:
    """Return records as changes: each holds the row of its key, or deletes it. An event that Debezium has flattened may delete its
    row.

    Args:
        records: typed ``key`` and ``value``, and :data:`REASON`.
        placeholder: Debezium's placeholder for an unsent value; empty for none.

        Returns:
            ``key`` and ``value`` of the row, :data:`MARKS`, and :data:`REASON`, also for a record that is not a change of a row.
    """
    value = records.schema["value"].dataType
    is_delete, is_created = F.col("value").isNull(), F.lit(None).cast("boolean")  # not known
    if isinstance(value, StructType):
        if _DELETED in value.names:
            is_delete = is_delete | F.col(f"value.{_DELETED}").cast("string").eqNullSafe("true")
        if _OP in value.names:
            is_delete = is_delete | F.col(f"value.{_OP}").cast("string").eqNullSafe("d")
            is_created = F.col(f"value.{_OP}").cast("string").eqNullSafe(_CREATE)
    change = _Change(
        row=F.col("value"), row_type=value, is_delete=is_delete, is_created=is_created, is_truncate=F.lit(False),
        seen_ns=F.lit(None).cast("bigint"), key_source=None, other_reason=F.lit(None).cast("string"),
    )  # fmt: skip
    return _marked(records, change, placeholder)


def changes_of_envelopes(records: DataFrame, placeholder: str) -> DataFrame:
    """Return Debezium's envelopes as changes of the rows in them.

    Args, Returns: as in :func:`changes_of_rows`.

    Raises:
        IngestError: the values are not Debezium's envelopes.
    """
    value = records.schema["value"].dataType
    if value == UNTYPED:
        change = _Change(
            row=F.col("value"), row_type=value, is_delete=F.col("value").isNull(),
            is_created=F.lit(None).cast("boolean"), is_truncate=F.lit(False), seen_ns=F.lit(None).cast("bigint"),
            key_source=value, other_reason=F.lit(None).cast("string"),
        )  # fmt: skip
    else:
        row, row_type = _field("value", value, "after")
        operation, _ = _field("value", value, "op")
        seen_ns, _ = _field("value", value, "ts_ns", "bigint")
        is_delete = F.col("value").isNull() | operation.eqNullSafe("d")
        is_truncate, is_created = operation.eqNullSafe("t"), operation.eqNullSafe(_CREATE)
        is_row = operation.isin(*_WITH_ROW).eqNullSafe(True) & row.isNotNull()
        text = F.concat(F.lit("no change of a row: its op is "), F.coalesce(operation, F.lit("missing")))
        text = F.concat(text, F.when(operation.isin(*_WITH_ROW), F.lit(", and it has no row")).otherwise(F.lit("")))
        change = _Change(
            row=row, row_type=row_type, is_delete=is_delete, is_created=is_created, is_truncate=is_truncate,
            seen_ns=seen_ns, key_source=row_type, other_reason=F.when(~is_delete & ~is_row & ~is_truncate, text),
        )  # fmt: skip
        records = records.where(~operation.eqNullSafe(_MESSAGE))
    marked = _marked(records, change, placeholder)
    return marked.withColumn("key", F.when(~F.col(TRUNCATE), F.col("key")))


def _marked(records: DataFrame, change: _Change, placeholder: str) -> DataFrame:
    """Return records as changes, with :data:`MARKS` and :data:`REASON`."""
    key, has_key = _key(records.schema["key"].dataType, change.row, change.key_source)
    key = with_equal_times(key, records.select(key).schema[0].dataType)
    nothing = F.when(F.col("value").isNull(), F.lit(NOTHING)).otherwise(F.lit(NO_KEY))
    no_key = F.when(~has_key & ~change.is_truncate, nothing)
    return (
        records.withColumn(DELETE, change.is_delete)
        .withColumn(TRUNCATE, change.is_truncate)
        .withColumn(CREATED, change.is_created)
        .withColumn(SEEN_NS, change.seen_ns)
        .withColumn(UNAVAILABLE, _unavailable(change.row, change.row_type, placeholder))
        .withColumn(REASON, F.coalesce(F.col(REASON), no_key, change.other_reason))
        .withColumn("key", key)
        .withColumn("value", change.row)
    )


def _key(data_type: DataType, row: Column, row_type: DataType | None) -> tuple[Column, Column]:
    """Return the row's key without Debezium's envelope, and whether there is a key: a struct of nulls is none.

    Args:
        row_type: the type of a row that includes its key columns, or None. If the key lacks a column that the primary key has
            gained, the column is taken from the row.
    """
    key = F.col("key")
    if not isinstance(data_type, StructType) or not data_type.names:
        return key, key.isNotNull() if data_type != UNTYPED else F.lit(False)
    fields = {name: F.col(f"key.{quoted(name)}") for name in data_type.names}
    payload = data_type[_PAYLOAD].dataType if _PAYLOAD in data_type.names else None
    if isinstance(payload, StructType) and {*payload.names} == {*fields} - {_PAYLOAD}:
        fields = {name: F.coalesce(F.col(f"key.{_PAYLOAD}.{quoted(name)}"), fields[name]) for name in payload.names}
        key = F.struct(*(column.alias(name) for name, column in fields.items()))
        data_type = payload
    has_key = any_of([column.isNotNull() for column in fields.values()])
    if isinstance(row_type, StructType) and len(fields) > 1:
        of_row = {field.name: field.dataType for field in row_type}
        whole = [
            (F.coalesce(column, row.getField(name)) if of_row.get(name) == data_type[name].dataType else column).alias(
                name
            )
            for name, column in fields.items()
        ]
        key = F.struct(*whole)
    return F.when(has_key, key), has_key


def _field(column: str, data_type: DataType, name: str, default: str | None = None) -> tuple[Column, DataType]:
    """Return a field of Debezium's, inside or outside an envelope, and its type; null with the type ``default`` if there is no such
    field."""
    places = [("", data_type)]
    if isinstance(data_type, StructType) and _PAYLOAD in data_type.names:
        payload = data_type[_PAYLOAD].dataType
        places[:0] = [(f".{_PAYLOAD}", payload)] if isinstance(payload, StructType) and "op" in payload.names else []
    candidates = [
        (F.col(f"{column}{path}.{quoted(name)}"), parent_type[name].dataType)
        for path, parent_type in places
        if isinstance(parent_type, StructType) and name in parent_type.names
    ]
    if not candidates and default is not None:
        return F.lit(None).cast(default), StringType()
    if not candidates:
        raise IngestError(
            f"mode cdc reads Debezium's envelopes, but the {column} has no field {name}: its type is "
            f"{data_type.simpleString()[:200]}. Use mode upsert or append for this topic."
        )
    value = F.coalesce(*(column for column, _ in candidates))
    return value if default is None else value.cast(default), candidates[0][1]


# Values that the database has not sent.


def _unavailable(row: Column, row_type: DataType, placeholder: str) -> Column:
    """Return the names of a row's columns that hold Debezium's placeholder; null if there are none."""
    none = F.lit(None).cast("array<string>")
    if not isinstance(row_type, StructType) or not placeholder or clash(row_type):
        return none
    tests = {field.name: _is_placeholder(row.getField(field.name), field.dataType, placeholder) for field in row_type}
    held = {name: test for name, test in tests.items() if test is not None}
    if not held:
        return none
    names = F.array(*(F.when(test, F.lit(name)) for name, test in held.items()))
    is_any = any_of([F.coalesce(test, F.lit(False)) for test in held.values()])
    return F.when(is_any, F.array_compact(names))


def _is_placeholder(value: Column, data_type: DataType, placeholder: str) -> Column | None:
    """Return whether a value is Debezium's placeholder, in one of the forms that the value's type allows; None for types without a
    placeholder.
    """
    content = placeholder.encode()
    texts = _texts(placeholder)
    if isinstance(data_type, StringType):
        return value.isin(*texts)
    if isinstance(data_type, BinaryType):
        return value == F.lit(content)
    if isinstance(data_type, MapType) and isinstance(data_type.keyType, StringType):
        return F.map_keys(value) == F.array(F.lit(placeholder))
    if isinstance(data_type, ArrayType):
        item = data_type.elementType
        if isinstance(item, StringType):
            return (F.size(value) == 1) & F.try_element_at(value, F.lit(1)).isin(*texts)
        if isinstance(item, BinaryType):
            return value == F.array(F.lit(content))
        if isinstance(item, _NUMBERS):
            return value == F.array(*(F.lit(code) for code in content)).try_cast(data_type)
        return None
    if isinstance(data_type, StructType):
        if placeholder in data_type.names:  # a map whose columns were inferred
            return value.getField(placeholder).cast("string") == F.lit(placeholder)
        if "wkb" in data_type.names:
            wkb, wkb_type = value.getField("wkb"), data_type["wkb"].dataType
            digits = F.hex(
                wkb if isinstance(wkb_type, BinaryType) else F.try_to_binary(wkb.cast("string"), F.lit("base64"))
            )
            return digits.isin(*_GEOMETRIES)
    return None


def _texts(placeholder: str) -> list[str]:
    """Return all texts of the placeholder: the placeholder itself, its bytes in each ``binary.handling.mode``, an hstore in JSON,
    and a UUID.
    """
    content = placeholder.encode()
    name = str(
        uuid.UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3)
    )  # Java's UUID.nameUUIDFromBytes
    encoded = [base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode(), content.hex()]
    return list(dict.fromkeys([placeholder, *encoded, f'{{"{placeholder}":"{placeholder}"}}', name]))


# The newest change of each row.


def newest(changed: DataFrame) -> DataFrame:
    """Return the newest change of each key: by offset within a partition; between partitions by timestamp, then by the time when
    Debezium saw the change, then by partition number.

    Of TRUNCATEs, return the last one in each partition.
    """
    of_partition = changed.groupBy("key", "partition").agg(F.max_by(F.struct(*changed.columns), "offset").alias("row"))
    truncated = F.when(F.col(f"row.{TRUNCATE}"), F.col("partition"))
    of_all = of_partition.groupBy("key", truncated.alias("truncated")).agg(
        F.max_by("row", F.struct("row.timestamp", f"row.{SEEN_NS}", "partition")).alias("row")
    )
    return of_all.select("row.*")


def searchable(changed: DataFrame) -> DataFrame:
    """Return changes, including rejected ones, as input for the search for unsent values."""
    is_unread = F.coalesce(~F.col(REASON).isin(NO_KEY, NOTHING), F.lit(False)) & F.col("value").isNull()
    columns = {
        REJECTED: F.col(REASON).isNotNull(),
        DELETE: F.col(DELETE) & ~is_unread,
        CREATED: F.when(~is_unread, F.col(CREATED)),
    }
    return changed.withColumns(columns).drop(REASON, TAKEN)


def truncations(newest_changes: DataFrame) -> list[Truncation]:
    """Return the TRUNCATEs among the newest changes."""
    rows = newest_changes.where(F.col(TRUNCATE)).select(
        "partition", "offset", F.unix_micros("timestamp").alias("timestamp_us"), F.col(SEEN_NS).alias("seen_ns")
    )
    return [Truncation(**row.asDict()) for row in rows.collect()]


def without_truncated(newest_changes: DataFrame, truncated: Sequence[Truncation]) -> DataFrame:
    """Return the changes for which no newer TRUNCATE exists."""
    kept = newest_changes.where(~F.col(TRUNCATE))
    if not truncated:
        return kept
    columns = ("partition", "offset", "timestamp", SEEN_NS)
    return kept.where(~any_of([F.expr(truncation.ends(*map(quoted, columns))) for truncation in truncated]))


def stale_changes(changed: DataFrame, truncated: Sequence[Truncation]) -> DataFrame:
    """Return rejected changes that neither a newer change of the same row nor a TRUNCATE has replaced. A change with an unreadable
    key may belong to any row.

    A record without a key belongs to no row. A change with unsent values does not replace an older change, which may have these
    values.
    """
    is_keyless = F.col(REASON).isin(NO_KEY, NOTHING)
    of_no_key = changed.where(F.col(REASON).isNotNull() & F.col("key").isNull() & ~is_keyless & ~F.col(TRUNCATE))
    is_whole = F.col(REASON).isNotNull() | F.col(UNAVAILABLE).isNull()
    of_keys = newest(changed.where(F.col("key").isNotNull() & is_whole)).where(F.col(REASON).isNotNull())
    return without_truncated(of_keys.unionByName(of_no_key), truncated)


def without_truncates(changed: DataFrame) -> DataFrame:
    """Return the changes without TRUNCATEs."""
    return changed.where(~F.col(TRUNCATE))


@contextmanager
def computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, and cache them inside the ``with`` block: MERGE reads its source twice."""
    rows = rows.persist()
    try:
        rows.count()
        yield rows
    finally:
        rows.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of a range's records, made while the records are read.

    ``newest_ms`` is the timestamp of the newest record that is no reject, in ms since the epoch; 0 if there is none.
    """

    n: int
    n_rejects: int
    newest_ms: int = 0
    n_keyless: int = 0
    n_null_keys: int = 0
    n_truncates: int = 0
    n_unavailable: int = 0

    @classmethod
    def of(cls, counted: Mapping[str, Any]) -> Counts:
        return cls(**{name: int(n or 0) for name, n in counted.items()})


def counts(rows: DataFrame, *, has_primary_keys: bool) -> list[Column]:
    """Return the columns of :class:`Counts` for an observation of rows or changes.

    Args:
        has_primary_keys: whether each change should have a key without nulls, the primary key of a database table.
    """
    columns_by_name = {
        "n": F.count_if(TAKEN) if TAKEN in rows.columns else F.count(F.lit(1)),
        "n_rejects": F.count(REASON),
    }
    if has_primary_keys:
        columns_by_name["n_keyless"] = F.count_if(F.col(REASON) == NO_KEY)
        columns_by_name["n_null_keys"] = F.count_if(
            _has_null("key", rows.schema)
            & F.col(REASON).isNull()
            & (F.col(TAKEN) if TAKEN in rows.columns else F.lit(True))
        )
    if TRUNCATE in rows.columns:
        columns_by_name |= {
            "n_truncates": F.count_if(F.col(TRUNCATE) & F.col(REASON).isNull()),
            "n_unavailable": F.count_if(F.col(UNAVAILABLE).isNotNull() & F.col(REASON).isNull()),
        }
    return [column.alias(name) for name, column in columns_by_name.items()]


def _has_null(name: str, schema: StructType) -> Column:
    """Return whether a key has a null in one of its columns."""
    key = schema[name].dataType if name in schema.names else None
    if not isinstance(key, StructType) or not key.names:
        return F.lit(False)
    is_null = any_of([F.col(f"{name}.{quoted(field.name)}").isNull() for field in key])
    return F.col(name).isNotNull() & is_null


def check_keys(counted: Counts, topic: str, identifier: str, *, is_searched: bool) -> None:
    """Check the keys of changes. Warn once per table about nulls in keys.

    Args:
        identifier: the table's identifier.
        is_searched: whether a search for records that cannot be landed is running.

    Raises:
        UnfitRecordsError: some changes have no key, so the changed row is unknown.
        IngestError: no readable change has a key: the topic is the cause.
    """
    if counted.n_null_keys and is_first("", "null in a key", identifier):
        _log.warning(
            "%d changes of topic %s have a null in their key: the database table has no primary key, so Debezium uses the columns "
            "of a unique index, or of message.key.columns. The database allows several rows with equal keys and nulls, which "
            "become one row here. Give the table a primary key, or name columns without nulls in message.key.columns.",
            counted.n_null_keys,
            topic,
        )
    if counted.n_keyless:
        raise (UnfitRecordsError if is_searched or counted.newest_ms else IngestError)(
            f"topic {topic} has changes without a key: the database table has no primary key, so the changed row is unknown. "
            "Give the table a primary key, or set message.key.columns in Debezium's connector, and use a new "
            "topic; or use mode append, which keeps every change with its op, before and after."
        )


def rows_under(target: TopicTable, prefix: str, rows: DataFrame | None = None) -> RowsUnder:
    """Return a function that finds a table's rows under other keys, for :func:`~pykafka_wire.ingest.changes.unsent_values.filled`.

    Args:
        rows: the rows of an earlier version, by default the current ones.
    """
    held = target.rows if rows is None else rows

    def join(places: DataFrame) -> DataFrame:
        new = places.withColumn(prefix + "key", F.col("current"))
        partition, offset, timestamp = (f"old.{quoted(prefix + name)}" for name in ("partition", "offset", "timestamp"))
        same_row = _same_row(held.schema, new, prefix, _key_gaps(target, new, prefix))
        is_row = f"{same_row} AND {is_older(partition, offset, timestamp, 'new.until')}"
        for truncation in truncations_of(target):
            is_row += f" AND NOT {truncation.ends(partition, offset, timestamp)}"
        joined = new.alias("new").join(held.alias("old"), F.expr(is_row))
        return joined.select("new.target", F.struct("old.*").alias("old"))

    return join


def merge_changes(
    target: TopicTable, rows: DataFrame, prefix: str, landed: Landed | None, truncated: Sequence[Truncation] = ()
) -> None:
    """Merge the newest change of each row into its table.

    Args:
        rows: the table's columns, :data:`DELETE`, and, if values are unsent, :data:`UNAVAILABLE` and :data:`CREATED`; cached by
            :func:`computed`.
        prefix: the prefix of Kafka's columns.
        landed: as in :meth:`TopicTable.append`; None for a replay: it may bring values that were unsent when the row got the
            change.
        truncated: TRUNCATEs that remove rows of the table.
    """
    held = target.schema
    check_kafka_columns(held, target.properties(), prefix, target.identifier)
    key_gaps = _key_gaps(target, rows, prefix)
    same_row = _same_row(held, rows, prefix, key_gaps)
    is_newer, unavailable = _newer(prefix, ">=" if landed is None else ">"), frozenset[str]()
    old = [f"old.{quoted(prefix + name)}" for name in ("partition", "offset", "timestamp")]
    is_truncated = " OR ".join(truncation.ends(*old) for truncation in truncated)
    if truncated:
        is_newer = f"({is_newer} OR {is_truncated})"
    if UNAVAILABLE in rows.columns:
        names = rows.select(F.explode(UNAVAILABLE)).distinct().collect()
        unavailable = frozenset(row[0] for row in names)
        _warn_of_unknown_values(target, rows, same_row)
    merging = Merging(
        same_row=same_row,
        is_newer=is_newer,
        unavailable=unavailable,
        is_truncated=f"({is_truncated})" if truncated else None,
        key_gaps=key_gaps,
    )
    merge_rows(target, rows, merging, landed)


def _same_row(held: StructType, rows: DataFrame, prefix: str, gaps: frozenset[str]) -> str:
    """Return the condition that the change ``new`` belongs to the row ``old``, by the columns in the change's key.

    If the primary key has gained a column, an older row has this column outside its key. If all keys have had a column, null is a
    value of it. A column that is missing in the change's key, but present in the row, was removed from the primary key. If it is
    missing in the row, too, the keys belong to different rows.

    Args:
        held: the columns of the table's rows.
        gaps: the result of :func:`_key_gaps`.
    """
    column, key = quoted(prefix + "key"), rows.schema[prefix + "key"].dataType
    if not isinstance(key, StructType):
        is_text = isinstance(key, StringType)
        return f"{equal_time_sql(f'old.{column}') if is_text else f'old.{column}'} <=> new.{column}"
    of_held = held[prefix + "key"].dataType if prefix + "key" in held.names else None
    in_key = {name.lower() for name in of_held.names} if isinstance(of_held, StructType) else set()
    in_row = {field.name.lower() for field in held}
    conditions = []
    for field in key:
        name, old = quoted(field.name), f"old.{column}.{quoted(field.name)}" if field.name.lower() in in_key else "NULL"
        if len(key) > 1 and field.name.lower() in in_row & gaps:
            old = f"coalesce({old}, old.{name})"
        if isinstance(field.dataType, StringType) and old != "NULL":
            old = equal_time_sql(old)
        conditions.append(f"{old} <=> new.{column}.{name}")
    lacking = in_key - in_row - {field.name.lower() for field in key}
    conditions += [f"old.{column}.{quoted(name)} IS NULL" for name in sorted(lacking)]
    return " AND ".join(conditions)


def _key_gaps(target: TopicTable, rows: DataFrame, prefix: str) -> frozenset[str]:
    """Return the key columns, in lower case, that keys of the table's rows may lack once these changes are merged."""
    known = key_gaps_of(target.properties())
    types = [
        schema[prefix + "key"].dataType for schema in (target.schema, rows.schema) if prefix + "key" in schema.names
    ]
    names = [{name.lower() for name in key_type.names} for key_type in types if isinstance(key_type, StructType)]
    return known | (names[0] ^ names[1]) if len(names) > 1 else known


def _warn_of_unknown_values(target: TopicTable, rows: DataFrame, same_row: str) -> None:
    """Warn about rows with unsent values for which the table has no older row: the columns are null."""
    lacking = rows.where(F.col(UNAVAILABLE).isNotNull() & ~F.col(DELETE)).alias("new")
    new = lacking.join(target.rows.alias("old"), F.expr(f"{same_row} AND NOT new.{CREATED}"), "left_anti")
    n_unknown = new.count()
    if n_unknown:
        columns = sorted(row[0] for row in new.select(F.explode(UNAVAILABLE)).distinct().collect())
        _log.warning(
            "Table %s: %d new rows have columns whose value the database has not sent (%s), and no older row has the values: the "
            "columns are null. An incremental snapshot of Debezium sends the values.",
            target.identifier,
            n_unknown,
            ", ".join(columns),
        )


def _newer(prefix: str, than: str) -> str:
    """Return the condition that the change ``new`` is newer than the row ``old`` in the order of :func:`newest`; if ``than`` is
    ``>=``, the same change also meets the condition. A row without a place, of another program, is older than every change.
    """
    partition, offset, timestamp = (quoted(prefix + name) for name in ("partition", "offset", "timestamp"))
    new, old = (f"struct({side}.{timestamp}, {side}.{partition})" for side in ("new", "old"))
    by_offset = f"coalesce(new.{offset} {than} old.{offset}, true)"
    return f"IF(new.{partition} <=> old.{partition}, {by_offset}, {new} > {old})"
