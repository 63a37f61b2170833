"""Fills in values that the database did not send with a change (TOAST), from older changes or from the table's rows.

The search goes back from a change to the creation of its row. If the row had another primary key before, it continues with the
changes under that key, and the table's row. Debezium writes a change of the key as a delete of the old key and a create of the new
key, each with a header that names the other key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import BinaryType, BooleanType, DataType, DecimalType, IntegralType, StringType, StructType

from pykafka_wire.errors import RegistryError
from pykafka_wire.ingest.changes.key_times import with_equal_times
from pykafka_wire.ingest.spark.errors import code_of, sentence_of
from pykafka_wire.ingest.spark.server_rows import computed_on_server
from pykafka_wire.ingest.spark.sql import any_of, quoted
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE

_log = logging.getLogger(__name__)

#: Errors that say nothing about records: another attempt may find the values.
_OUTAGES: Final = frozenset(
    {
        *("PYKAFKA_WIRE_AUTHENTICATION", "PYKAFKA_WIRE_DEADLINE_EXCEEDED", "PYKAFKA_WIRE_NO_BROKER_AVAILABLE"),
        *("PYKAFKA_WIRE_TRANSPORT", RegistryError.code),
    }
)
#: A function that takes places (``target``, ``current``, ``until``), and returns ``target`` and, as ``old``, the table's row with
#: the key ``current`` that is older than ``until``.
RowsUnder = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRange:
    """A range in which unsent values are searched for.

    Attributes:
        changes: all changes of the range, with their headers and :data:`REJECTED`.
        start: the range's first offset of each partition.
        may_be_compacted: returns whether the topic may lack records of the range.
        rows_under: finds rows of the table as it was before the range; None if it had no rows.
    """

    changes: DataFrame
    start: Mapping[int, int]
    may_be_compacted: Callable[[], bool]
    rows_under: RowsUnder | None


#: The column that says whether a change was rejected. If it could not be read, :data:`CREATED` is null.
REJECTED: Final = "_pykafka_wire_rejected"
#: Debezium's headers of a create and of a delete: the other key as text, as Connect's default header converter writes it.
_OLD_KEY, _NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
#: The columns with these keys in the type of the row's key; null if there are none.
_FROM, _TO = "_pykafka_wire_from", "_pykafka_wire_to"
#: Key types whose text in the header equals the key itself.
_PLAIN: Final = (StringType, IntegralType, BooleanType, DecimalType)
#: The most key changes of a row that are followed in one range, since each costs a Spark job. Beyond them, values are null.
_MAX_MOVES: Final = 20
#: A place in the topic; older records are searched. Records of the same partition are compared by offset; others, or all if the
#: place has no partition, by timestamp.
_PLACE: Final = "STRUCT<partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"


def is_older(partition: str, offset: str, timestamp: str, until: str = "until") -> str:
    """Return the condition that a record is older than the place ``until``. Without a partition, the same millisecond does not
    count as older. A row without a place, of another program, is older."""
    return (
        f"coalesce(CASE WHEN {until} IS NULL THEN true WHEN {until}.partition IS NULL THEN {timestamp} < {until}.timestamp"
        f" WHEN {partition} = {until}.partition THEN {offset} < {until}.offset ELSE {timestamp} <= {until}.timestamp END, true)"
    )


def filled(newest_changes: DataFrame, ranges: Iterable[SearchRange]) -> DataFrame:
    """Return changes with unsent values filled in from older changes of the same row.

    The history of a row starts where the row was created or deleted in the range, which :data:`CREATED` says. Older values belong
    to another row, unless the row had another key before; then its older values are in the range or in the table. A row that keeps
    its key keeps its values in the table. A delete that is followed by a key update and another delete ends no row: Connect has
    written all three again.

    Args:
        ranges: first the range of the changes, read again, since few ranges have unsent values; then larger ranges, for rows
            whose old key was deleted before the range.

    Raises:
        Exception: of the first range; or brokers or the registry do not respond, while a larger range is read.

    After a crash Connect writes changes again. If an existing row is created without a delete before, Connect has written the
    create again, and the row keeps its values. But if compaction may have removed that delete, the table's row may be a different
    row, and topic and table look the same in both cases. Then the values are those under the old key, or unknown.
    """
    row_type, key_type = (newest_changes.schema[name].dataType for name in ("value", "key"))
    lacking = newest_changes.where(F.col(UNAVAILABLE).isNotNull())
    names = sorted(row[0] for row in lacking.select(F.explode(UNAVAILABLE)).distinct().collect())
    if not isinstance(row_type, StructType) or not names:
        return newest_changes
    search = _Search(names=tuple(names), row_type=row_type)
    larger = iter(ranges)
    known = search.run(lacking.select(F.col("key").alias("target")), next(larger))
    while not (targets := search.moved(known).select("target")).isEmpty():
        try:
            searched = next(larger, None)
            if searched is None or searched.changes.schema["key"].dataType != key_type:
                break
            known = computed_on_server(search.with_more(known, search.run(targets, searched)))
        except Exception as error:  # of reading records and files older than the range
            if code_of(error) in _OUTAGES:
                raise
            _log.warning("The search for unsent values in earlier commits failed. %s", sentence_of(error))
            break

    is_same = F.col("key").eqNullSafe(F.col("target")) & F.col(UNAVAILABLE).isNotNull()
    joined = newest_changes.join(known.withColumnRenamed("begun", "is_begun"), is_same, "left")
    is_lacking = {name: F.coalesce(F.array_contains(UNAVAILABLE, name), F.lit(False)) for name in names}
    fields = []
    for field in row_type:
        value = F.col(f"value.{quoted(field.name)}")
        if field.name in is_lacking:
            value = F.when(is_lacking[field.name], F.col(search.place(field.name)).getField("value")).otherwise(value)
        fields.append(value.alias(field.name))
    nulls = [F.when(is_lacking[name] & F.col(search.place(name)).isNull(), F.lit(name)) for name in names]
    unknown = F.array_compact(F.array(*nulls))
    columns = {
        "value": F.when(F.col("value").isNotNull(), F.struct(*fields)),
        UNAVAILABLE: F.when(F.size(unknown) > 0, unknown),
        CREATED: F.coalesce("is_begun", F.lit(False)),
    }
    return joined.select(*(columns.get(name, F.col(name)).alias(name) for name in newest_changes.columns))


def _events(changes: DataFrame, row_type: StructType) -> DataFrame:
    """Return all changes of a range in the row type, with the keys that their headers name."""
    key_type, fields = changes.schema["key"].dataType, changes.schema["value"].dataType
    if fields != row_type and isinstance(fields, StructType):
        values = [
            (
                F.col(f"value.{quoted(field.name)}").try_cast(field.dataType)
                if field.name in fields.names
                else F.lit(None)
            )
            .cast(field.dataType)
            .alias(field.name)
            for field in row_type
        ]
        changes = changes.withColumn("value", F.when(F.col("value").isNotNull(), F.struct(*values)))
    events = changes.withColumn(_FROM, _other_key(_OLD_KEY, key_type)).withColumn(_TO, _other_key(_NEW_KEY, key_type))
    marks = (DELETE, CREATED, UNAVAILABLE, REJECTED, _FROM, _TO)
    return events.where(F.col("key").isNotNull()).select("key", "value", "partition", "offset", "timestamp", *marks)


def _other_key(header: str, key_type: DataType) -> Column:
    """Return the key in a header, in the type of the row's key; null if there is none, or if its text does not fit the type."""
    return with_equal_times(_key_of_header(header, key_type), key_type)


def _key_of_header(header: str, key_type: DataType) -> Column:
    is_of_fields = isinstance(key_type, StructType) and all(isinstance(field.dataType, _PLAIN) for field in key_type)
    if not (is_of_fields or isinstance(key_type, BinaryType | StringType)):
        return F.lit(None).cast(key_type)
    of_name = F.filter("headers", lambda candidate: candidate["key"] == F.lit(header))
    text = F.try_element_at(of_name, F.lit(1)).getField("value").cast("string")
    # Written by Connect's JsonConverter, with or without schemas.enable. Connect's default converter does not escape line breaks.
    payload = F.get_json_object(text, "$.payload")
    if not isinstance(key_type, StructType):  # keys that are read as text or bytes
        is_enveloped = F.get_json_object(text, "$.schema").isNotNull() & payload.isNotNull()
        return F.when(is_enveloped, payload).otherwise(text).cast(key_type)
    read = [
        F.from_json(text_column, key_type, {"allowUnquotedControlChars": "true"}) for text_column in (payload, text)
    ]
    options = [(key, [key.getField(name).isNotNull() for name in key_type.names]) for key in read]
    return F.coalesce(*(F.when(reduce(lambda a, b: a & b, there), key) for key, there in options))


def _without_gaps(places: DataFrame, searched: SearchRange) -> DataFrame:
    """Return the ``target`` of each place for which all earlier changes of the key in the range are known: the partition has a
    change at each offset, so compaction has removed none, and all changes are readable.
    """
    partition, key = F.col("partition").alias("in_partition"), F.col("key").alias("of_key")
    is_unread = F.col(REJECTED) & F.col(CREATED).isNull()
    is_gap = F.lit(False)
    if searched.may_be_compacted():
        starts = F.create_map(*(F.lit(part) for pair in searched.start.items() for part in pair))
        number = F.row_number().over(Window.partitionBy("partition").orderBy("offset"))
        is_gap = F.col("offset") - F.element_at(starts, F.col("partition")) >= number
    marked = searched.changes.select(partition, key, "offset", is_gap.alias("is_gap"), is_unread.alias("is_unread"))
    is_bad = F.col("is_gap") | (F.col("is_unread") & F.col("of_key").isNull())
    of_partition = marked.groupBy("in_partition").agg(F.min(F.when(is_bad, F.col("offset"))).alias("bad"))
    of_key = (
        marked.where("is_unread AND of_key IS NOT NULL")
        .groupBy("in_partition", "of_key")
        .agg(F.min("offset").alias("unread"))
    )
    is_in = F.col("in_partition") == F.col("until.partition")
    joined = places.join(of_partition, is_in, "left").drop("in_partition")
    joined = joined.join(of_key, is_in & (F.col("of_key") == F.col("target")), "left")
    is_whole = [F.coalesce(F.col("until.offset") < F.col(name), F.lit(True)) for name in ("bad", "unread")]
    return joined.where(is_whole[0] & is_whole[1]).select("target")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A search for the values of some columns.

    The result has one row for each searched row: ``target``, its key; for each of ``names`` a struct with the ``value``, null if
    unknown; ``begun``, whether the row was created or deleted in the range; and ``origin``: its earlier key, if it had one, the
    place of the create with the new key, and whether the new key has no delete in the range.
    """

    names: tuple[str, ...]
    row_type: StructType

    def place(self, name: str) -> str:
        """Return the result column for a column of the row."""
        return f"known{self.names.index(name)}"

    @property
    def _places(self) -> list[str]:
        return [self.place(name) for name in self.names]

    def run(self, targets: DataFrame, searched: SearchRange) -> DataFrame:
        """Search a range for the rows ``target``."""
        events = _events(searched.changes, self.row_type)
        nowhere = F.lit(None).cast(_PLACE)
        places = targets.select("target", F.col("target").alias("current"), nowhere.alias("until"))
        known = computed_on_server(self._look(places, events))
        if searched.rows_under is not None:
            known = self._of_repeated(known, events, searched)
        return self._follow(known, events, searched.rows_under)

    def _of_repeated(self, known: DataFrame, events: DataFrame, searched: SearchRange) -> DataFrame:
        """Return the result with the values of rows whose create was written again.

        ``origin`` is removed if neither the table's row nor the row with the old key is certain to be the same row.
        """
        repeated = self.moved(known).where("origin.is_undeleted")
        if searched.rows_under is None or repeated.isEmpty():
            return known
        place = F.struct("origin.partition", "origin.offset", "origin.timestamp").cast(_PLACE)
        places = repeated.select("target", F.col("target").alias("current"), place.alias("until"), "origin")
        held = computed_on_server(searched.rows_under(places.drop("origin")))
        places = places.join(held.select("target"), "target", "left_semi")
        whole = computed_on_server(_without_gaps(places, searched))
        of_table = held.join(whole, "target", "left_semi")
        known = self.with_more(known, of_table.select("target", *self._of_table(of_table)))
        doubtful = places.join(whole, "target", "left_anti").select("target", "origin")
        in_partition = F.col("partition") == F.col("origin.partition")
        is_later = F.when(in_partition, F.col("offset") > F.col("origin.offset")).otherwise(
            F.col("timestamp") >= F.col("origin.timestamp")
        )
        is_of_old = F.col("key").eqNullSafe(F.col("origin.key")) & ~F.col(DELETE) & is_later
        ambiguous = events.join(F.broadcast(doubtful), is_of_old).select("target", F.lit(True).alias("is_ambiguous"))
        joined = known.join(ambiguous.distinct(), "target", "left")
        return computed_on_server(
            joined.withColumn("origin", F.when(F.col("is_ambiguous").isNull(), F.col("origin"))).drop("is_ambiguous")
        )

    def _look(self, places: DataFrame, events: DataFrame) -> DataFrame:
        """Search the changes with the key ``current`` that are older than ``until``, for the rows ``target``."""
        is_of_row = F.col("key").eqNullSafe(F.col("current")) & F.expr(is_older("partition", "offset", "timestamp"))
        matches = events.join(F.broadcast(places), is_of_row)
        is_lacking = {name: F.coalesce(F.array_contains(UNAVAILABLE, name), F.lit(False)) for name in self.names}
        has_row = ~F.col(DELETE) & ~F.col(REJECTED)
        sent = {name: F.when(has_row & ~is_lacking[name], F.col("offset")) for name in self.names}
        values = [
            F.max_by(F.struct(F.col(f"value.{quoted(name)}").alias("value")), sent[name]).alias(self.place(name))
            for name in self.names
        ]
        values += [F.max(sent[name]).alias(f"{self.place(name)}_offset") for name in self.names]
        # An unreadable record may be a create.
        may_create = F.coalesce(CREATED, F.lit(True)) | F.col(_FROM).isNotNull()
        later = Window.partitionBy("target", "partition").orderBy("offset").rowsBetween(1, Window.unboundedFollowing)
        next_creates = F.first(F.when(~F.col(DELETE), may_create), ignorenulls=True).over(later)
        # A repeated create repeats the delete before it, at the place ``until``.
        is_end = F.coalesce(next_creates | F.col("until.partition").isNull(), F.lit(True))
        matches = matches.withColumn("ends", F.col(DELETE) & is_end)
        is_begin = F.col("ends") | F.coalesce(CREATED, F.lit(False)) | F.col(_FROM).isNotNull()
        begun = F.when(is_begin, F.col("offset"))
        origin = F.struct(F.col(_FROM).alias("key"), F.col("key").alias("to"), "partition", "offset", "timestamp")
        of_partition = matches.groupBy("target", "partition").agg(
            F.max_by("timestamp", "offset").alias("at"),
            F.max(begun).alias("begun"),
            F.max_by(origin, begun).alias("origin"),
            F.count_if(DELETE).alias("n_deletes"),
            *values,
        )
        # The newest partition decides. A value counts if it was sent after the row was created.
        order = F.struct("at", "partition")
        latest = [
            F.max_by(
                F.struct(order.alias("order"), F.col(place).alias("row")),
                F.when(F.col(f"{place}_offset") >= F.coalesce("begun", F.lit(-1)), order),
            ).alias(place)
            for place in self._places
        ]
        begun_order = F.when(F.col("begun").isNotNull(), order)
        last_origin = F.max_by("origin", begun_order).withField("is_undeleted", F.sum("n_deletes") == 0)
        known = of_partition.groupBy("target").agg(
            F.max(begun_order).alias("begun"), last_origin.alias("origin"), *latest
        )
        rows = [
            F.when(F.col("begun").isNull() | (F.col(f"{place}.order") >= F.col("begun")), F.col(f"{place}.row")).alias(
                place
            )
            for place in self._places
        ]
        return known.select("target", F.col("begun").isNotNull().alias("begun"), "origin", *rows)

    def _follow(self, known: DataFrame, events: DataFrame, rows_under: RowsUnder | None) -> DataFrame:
        """Return the result with the values of rows that had another key, from before the key changed."""
        moved, chain = self.moved(known), None
        for _ in range(_MAX_MOVES):
            if moved.isEmpty():
                break
            if chain is None:
                keys = events.where(F.col(_FROM).isNotNull()).select(F.col(_FROM).alias("key")).distinct()
                chain = computed_on_server(events.join(keys, "key", "left_semi"))
            places = computed_on_server(self._places_before(moved, chain))
            seen = computed_on_server(places.join(self._look(places, chain), "target", "left"))
            known = self.with_more(known, seen)
            if rows_under is not None:
                of_table = rows_under(seen.where(~F.coalesce("begun", F.lit(False))).select(*places.columns))
                known = self.with_more(known, of_table.select("target", *self._of_table(of_table)))
            known = computed_on_server(known)
            lacking = known.select("target", *self._places)
            moved = self.moved(lacking.join(seen.select("target", "begun", "origin"), "target"))
        return known

    def moved(self, known: DataFrame) -> DataFrame:
        """Return the rows that had another key and for which some values are still unknown."""
        is_unknown = any_of([F.col(place).isNull() for place in self._places])
        return known.where(is_unknown & F.col("origin.key").isNotNull()).select("target", "origin")

    def _places_before(self, moved: DataFrame, events: DataFrame) -> DataFrame:
        """Return the places where rows left their old keys ``current``: the delete of the old key that names the new key."""
        # The tombstone after a delete has the same header, but the row ended at the delete.
        of_key = Window.partitionBy("partition", "key").orderBy("offset")
        before = F.lag(F.when(F.col(DELETE), F.col(_TO))).over(of_key)
        gone = events.withColumn("before", before).where(F.col(_TO).isNotNull() & F.col(DELETE))
        gone = gone.where(~F.col("before").eqNullSafe(F.col(_TO)))
        gone = gone.select("key", _TO, F.struct("partition", "offset", "timestamp").cast(_PLACE).alias("place"))
        is_move = (
            F.col("key").eqNullSafe(F.col("origin.key"))
            & F.col(_TO).eqNullSafe(F.col("origin.to"))
            & (F.col("place.timestamp") <= F.col("origin.timestamp"))
        )
        last = F.max_by("place", F.struct("place.timestamp", "place.offset"))
        places = moved.join(gone, is_move, "left").groupBy("target", "origin").agg(last.alias("place"))
        # The delete is outside the range: search only what is older than the create.
        of_creation = F.struct(F.lit(None), F.lit(None), "origin.timestamp").cast(_PLACE)
        until = F.coalesce("place", of_creation)
        return places.select("target", F.col("origin.key").alias("current"), until.alias("until"))

    def _of_table(self, rows: DataFrame) -> list[Column]:
        old = rows.schema["old"].dataType
        held = {name.lower() for name in old.names} if isinstance(old, StructType) else set()
        columns = []
        for name in self.names:
            wanted = self.row_type[name].dataType
            value = (
                F.struct(F.col("old").getField(name).try_cast(wanted).alias("value"))
                if name.lower() in held
                else F.lit(None)
            )
            columns.append(value.cast(StructType().add("value", wanted)).alias(self.place(name)))
        return columns

    def with_more(self, known: DataFrame, more: DataFrame) -> DataFrame:
        """Return the result, with unknown values taken from ``more``."""
        more = more.select("target", *(F.col(place).alias(f"more_{place}") for place in self._places))
        columns = [F.coalesce(place, f"more_{place}").alias(place) for place in self._places]
        return known.join(more, "target", "left").select("target", "begun", "origin", *columns)
