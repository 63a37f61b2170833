"""Records as changes of rows: ``upsert`` by key, and ``cdc`` for Debezium's envelopes.

A row's changes are in one partition of its topic, in order, since the row's key is the record's: there the highest offset is the
newest change. When the topic gets more partitions, or the keys other bytes, a row's changes go on in another partition, whose
offsets cannot be compared with the first one's: then the latest timestamp is the newest change, and of equal ones the one that
Debezium saw last (``ts_ns``, in one micro-batch), then that in the higher partition. The later micro-batch is not, since
micro-batches of a backlog reach two partitions at different times. The table keeps partition, offset and timestamp beside the row:
so a change that is applied twice changes nothing.

A primary key may get or lose a column: rows are found by the columns that the change's key has, which the row itself has, too.

A TRUNCATE has no key, and may be in any partition. There it ends what has lower offsets; in the others what has an earlier
timestamp, or the same one and was seen by Debezium before it (``ts_ns``). The table remembers it as a property.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
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
from pykafka_wire.ingest.sql import clash, quoted
from pykafka_wire.ingest.tables.merging import (
    CREATED,
    DELETE,
    UNAVAILABLE,
    Merging,
    Truncation,
    key_gaps_of,
    merge_rows,
    truncations_of,
)
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.options.logged_once import is_first

_log = logging.getLogger(__name__)

#: Why a record is no row of its table, null for one that is.
REASON: Final = "_pykafka_wire_reason"
#: Whether a record is a TRUNCATE.
TRUNCATE: Final = "_pykafka_wire_truncate"
#: When Debezium saw a change, in nanoseconds; null where it does not say.
SEEN_NS: Final = "_pykafka_wire_seen_ns"
#: Whether a table takes a change; of tables with a condition.
TAKEN: Final = "_pykafka_wire_taken"
#: What changes have beside their table's columns.
MARKS: Final = (DELETE, UNAVAILABLE, CREATED, TRUNCATE, SEEN_NS)
NO_KEY: Final = "the record has no key, which names its row"
NOTHING: Final = "the record has neither key nor value"
#: The type of a column of JSON none of whose values has a type: each is null, or empty.
UNTYPED: Final = StructType()
#: Debezium's envelope, in it where its converter adds the schema to each value.
_PAYLOAD: Final = "payload"
#: Debezium's operations that have a row: created, updated, read by a snapshot.
_WITH_ROW: Final = ("c", "u", "r")
#: Of an INSERT, and of a row whose primary key has changed its value: then alone with values that were not sent.
_CREATE: Final = "c"
#: A message that an application has written into the database's log: of no table.
_MESSAGE: Final = "m"
#: Fields that Debezium's ExtractNewRecordState adds to a row.
_DELETED, _OP = "__deleted", "__op"
_FLATTENED: Final = (_DELETED, _OP)
#: The fields of an envelope that are read of JSON.
ENVELOPE_FIELDS: Final = ("op STRING", "ts_ns BIGINT")
_NUMBERS: Final = (ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
#: The placeholders of PostGIS columns, in Debezium's source: points that no map has.
_GEOMETRIES: Final = (
    "0101000020E6100000000000FC83D797C1000000FC83D797C1",
    "0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640",
)


def envelope_ddl(columns: str, column: str) -> str:
    """Return the type of Debezium's JSON, with ``schemas.enable`` or without, of a row's declared columns, or of its primary
    key's."""
    if column == "key":
        return f"{columns}, {_PAYLOAD} STRUCT<{columns}>"
    change = ", ".join((*ENVELOPE_FIELDS, f"after STRUCT<{columns}>"))
    return f"{change}, {_PAYLOAD} STRUCT<{change}>"


def changed_row(column: str, data_type: DataType, row: Column) -> Column:
    """Return an envelope of JSON, which may be in another one, with its row in the table's type."""
    fields = {name: _field(column, data_type, name)[0] for name in ("op", "ts_ns")}
    change = F.struct(*(column.alias(name) for name, column in fields.items()), row.alias("after"))
    return F.when(F.col(column).isNotNull(), change)


def with_flattened(columns: str) -> str:
    """Return the declared columns of a row in JSON, and beside them the fields by which a flattened event of Debezium's
    deletes."""
    more = _FLATTENED if is_of_fields(columns) else ()
    return ", ".join((columns, *(f"{name} STRING" for name in more if name not in names_of(columns))))


def without_flattened(rows: DataFrame, columns: str) -> DataFrame:
    """Return rows as they are declared, without what :func:`with_flattened` has added."""
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
    """Return whether declared columns are fields, and not one type."""
    return isinstance(DataType.fromDDL(columns), StructType) and not columns.lstrip().upper().startswith("STRUCT<")


class _Change(NamedTuple):
    """What a record does to a row, as columns of the record.

    Attributes:
        key_source: the type of a row whose columns the key may lack; None where keys have all their columns.
        other_reason: why a record is no change of a row, though it has a key.
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
    """Return records as changes: each holds the row under its key, or none; one that Debezium has flattened may delete its row.

    Args:
        records: typed ``key`` and ``value``, and :data:`REASON`.
        placeholder: Debezium's, of a value that was not sent; empty for none.

    Returns:
        ``key`` and ``value`` of the row itself, :data:`MARKS`, and :data:`REASON`, also for a record that is no change of a row.
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

    Args, Returns: as :func:`changes_of_rows`.

    Raises:
        IngestError: the values are not Debezium's.
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
    """Return the row's key without Debezium's envelope, and whether there is one: no struct of nulls.

    Args:
        row_type: of a row that has the columns of its key, None where it does not: a record from before the primary key got a
            column takes it from its row.
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
    has_key = reduce(lambda one, other: one | other, (column.isNotNull() for column in fields.values()))
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
    """Return a field of Debezium's, with its envelope or without, and its type; null of the type ``default`` where there is
    none."""
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
            f"mode cdc reads Debezium's envelopes, and the {column} has no field {name}: it is {data_type.simpleString()[:200]}. "
            "Use mode upsert or append for this topic."
        )
    value = F.coalesce(*(column for column, _ in candidates))
    return value if default is None else value.cast(default), candidates[0][1]


# Values that the database has not sent.


def _unavailable(row: Column, row_type: DataType, placeholder: str) -> Column:
    """Return the names of a row's columns that hold Debezium's placeholder, null where none does."""
    none = F.lit(None).cast("array<string>")
    if not isinstance(row_type, StructType) or not placeholder or clash(row_type):
        return none
    tests = {field.name: _is_placeholder(row.getField(field.name), field.dataType, placeholder) for field in row_type}
    held = {name: test for name, test in tests.items() if test is not None}
    if not held:
        return none
    names = F.array(*(F.when(test, F.lit(name)) for name, test in held.items()))
    is_any = reduce(lambda one, other: one | other, (F.coalesce(test, F.lit(False)) for test in held.values()))
    return F.when(is_any, F.array_compact(names))


def _is_placeholder(value: Column, data_type: DataType, placeholder: str) -> Column | None:
    """Return whether a value stands for one that was not sent, in the forms that Debezium gives it; None for types without one."""
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
    """Return the placeholder as text: itself, as bytes under each ``binary.handling.mode``, as hstore in JSON, and as a UUID."""
    content = placeholder.encode()
    name = str(
        uuid.UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3)
    )  # Java's UUID.nameUUIDFromBytes
    encoded = [base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode(), content.hex()]
    return list(dict.fromkeys([placeholder, *encoded, f'{{"{placeholder}":"{placeholder}"}}', name]))


# The newest change of each row.


def newest(changed: DataFrame) -> DataFrame:
    """Return the newest change of each key: in a partition by offset, among partitions by timestamp, then by the time at which
    Debezium saw it, then by number.

    Of the TRUNCATEs of each partition the last one.
    """
    of_partition = changed.groupBy("key", "partition").agg(F.max_by(F.struct(*changed.columns), "offset").alias("row"))
    truncated = F.when(F.col(f"row.{TRUNCATE}"), F.col("partition"))
    of_all = of_partition.groupBy("key", truncated.alias("truncated")).agg(
        F.max_by("row", F.struct("row.timestamp", f"row.{SEEN_NS}", "partition")).alias("row")
    )
    return of_all.select("row.*")


def searchable(changed: DataFrame) -> DataFrame:
    """Return changes, rejected ones among them, as values are looked for in them."""
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
    """Return the changes that no TRUNCATE is newer than."""
    kept = newest_changes.where(~F.col(TRUNCATE))
    if not truncated:
        return kept
    columns = ("partition", "offset", "timestamp", SEEN_NS)
    return kept.where(
        ~reduce(lambda a, b: a | b, (F.expr(truncation.ends(*map(quoted, columns))) for truncation in truncated))
    )


def stale_changes(changed: DataFrame, truncated: Sequence[Truncation]) -> DataFrame:
    """Return rejected changes that neither a newer change of their row nor a TRUNCATE has replaced; one whose key cannot be
    read may be of any row.

    A record without a key is of no row. A change with values that were not sent replaces no older one: those may be in that.
    """
    is_keyless = F.col(REASON).isin(NO_KEY, NOTHING)
    of_no_key = changed.where(F.col(REASON).isNotNull() & F.col("key").isNull() & ~is_keyless & ~F.col(TRUNCATE))
    is_whole = F.col(REASON).isNotNull() | F.col(UNAVAILABLE).isNull()
    of_keys = newest(changed.where(F.col("key").isNotNull() & is_whole)).where(F.col(REASON).isNotNull())
    return without_truncated(of_keys.unionByName(of_no_key), truncated)


def without_truncates(changed: DataFrame) -> DataFrame:
    """Return changes of rows alone."""
    return changed.where(~F.col(TRUNCATE))


@contextmanager
def computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Read rows from Kafka once, and keep them while the context is open: MERGE reads its source twice."""
    rows = rows.persist()
    try:
        rows.count()
        yield rows
    finally:
        rows.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What records of a range are, counted while they are read.

    ``newest_ms`` is the timestamp of the newest one that is no reject, in ms since the epoch; 0 where there is none.
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
    """Return the columns of :class:`Counts`, for an observation of rows or of changes.

    Args:
        has_primary_keys: whether each change should have a key without nulls: that of a database's table.
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
    is_null = reduce(lambda a, b: a | b, (F.col(f"{name}.{quoted(field.name)}").isNull() for field in key))
    return F.col(name).isNotNull() & is_null


def check_keys(counted: Counts, topic: str, identifier: str, *, is_searched: bool) -> None:
    """Warn, once for each table, of keys with a null.

    Args:
        identifier: the table's.
        is_searched: the records that cannot be landed are looked for.

    Raises:
        UnfitRecordsError: some changes have no key, so that nothing tells which row they change.
        IngestError: none of the changes that can be read has one: the cause is the topic.
    """
    if counted.n_null_keys and is_first("", "null in a key", identifier):
        _log.warning(
            "%d changes of topic %s have a null in their key: the database's table has no primary key, and Debezium takes the "
            "columns of a unique index for it, or those of message.key.columns. Rows with equal keys and nulls, which the database "
            "allows, are one row here. Give the table a primary key, or name columns without nulls in message.key.columns.",
            counted.n_null_keys,
            topic,
        )
    if counted.n_keyless:
        raise (UnfitRecordsError if is_searched or counted.newest_ms else IngestError)(
            f"topic {topic} has changes without a key: the database's table has no primary key, and nothing tells which row a "
            "change is of. Give the table a primary key, or Debezium's connector message.key.columns, and a new "
            "topic; or use mode append, which keeps every change with its op, before and after."
        )


def rows_under(target: TopicTable, prefix: str, rows: DataFrame | None = None) -> RowsUnder:
    """Return the table's rows under other keys, for :func:`~pykafka_wire.ingest.changes.unsent_values.filled`.

    Args:
        rows: those of an earlier version.
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
        rows: of the table's columns, :data:`DELETE`, and :data:`UNAVAILABLE` and :data:`CREATED` if there are such values;
            :func:`computed`.
        prefix: of Kafka's columns.
        landed: as :meth:`TopicTable.append`'s; None for a replay, where the change that a row has already may have got values that
            were not sent with it.
        truncated: TRUNCATEs that end rows of the table.
    """
    key_gaps = _key_gaps(target, rows, prefix)
    same_row = _same_row(target.schema, rows, prefix, key_gaps)
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
    """Return the condition by which the change ``new`` is one of the row ``old``: of the columns that the change's key has.

    A row from before the primary key got a column has it as a column of its own; in a column that all keys had, null is a value. A
    column that the change's key lacks is one that the primary key has lost if the row has it, too; else the keys are of different
    rows.

    Args:
        held: the columns of the table's rows.
        gaps: as :func:`_key_gaps`.
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
    """Return the names of the key's columns, in lower case, that keys of the table's rows may not have once these changes are
    merged."""
    known = key_gaps_of(target.properties())
    types = [
        schema[prefix + "key"].dataType for schema in (target.schema, rows.schema) if prefix + "key" in schema.names
    ]
    names = [{name.lower() for name in key_type.names} for key_type in types if isinstance(key_type, StructType)]
    return known | (names[0] ^ names[1]) if len(names) > 1 else known


def _warn_of_unknown_values(target: TopicTable, rows: DataFrame, same_row: str) -> None:
    """Warn of rows whose older values nobody has, since the table has no such row or it was created anew: the columns are null."""
    lacking = rows.where(F.col(UNAVAILABLE).isNotNull() & ~F.col(DELETE)).alias("new")
    new = lacking.join(target.rows.alias("old"), F.expr(f"{same_row} AND NOT new.{CREATED}"), "left_anti")
    n_unknown = new.count()
    if n_unknown:
        columns = sorted(row[0] for row in new.select(F.explode(UNAVAILABLE)).distinct().collect())
        _log.warning(
            "Table %s: %d new rows have columns whose value the database has not sent (%s), and there is no older row: they are "
            "null. An incremental snapshot of Debezium's sends them.",
            target.identifier,
            n_unknown,
            ", ".join(columns),
        )


def _newer(prefix: str, than: str) -> str:
    """Return the condition by which the change ``new`` is newer ``than`` the row ``old``, as :func:`newest` has it; with
    ``>=`` or it."""
    partition, offset, timestamp = (quoted(prefix + name) for name in ("partition", "offset", "timestamp"))
    new, old = (f"struct({side}.{timestamp}, {side}.{partition})" for side in ("new", "old"))
    return f"IF(new.{partition} <=> old.{partition}, new.{offset} {than} old.{offset}, {new} > {old})"
