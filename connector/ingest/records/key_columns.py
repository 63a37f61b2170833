"""The key columns of one table's changes, and where they change within a range.

A primary key may gain or lose a column. Then earlier and later changes find their rows by different columns, so they must be
landed one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes.newest import is_of_fields, names_of
from pykafka_wire.ingest.records.json.survey import key_names
from pykafka_wire.ingest.records.key_runs import split_by_runs
from pykafka_wire.ingest.records.key_schemas import FRAME_BYTES, KeySchemas
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.table_schemas import TableSchemas
from pykafka_wire.ingest.records.topic_source import TopicSource
from pykafka_wire.ingest.settings.model import ReadSettings
from pykafka_wire.options.logged_once import is_first

_log = logging.getLogger(__name__)

#: SQL for the part of a record that names the key's schema: the last header of newer serializers, as the source reads it, or the
#: first bytes of the key.
KEY_FRAME: Final = (
    "coalesce(try_element_at(filter(headers, each -> each.key = '__key_schema_id'), -1).value, "
    f"substring(key, 1, {FRAME_BYTES}))"
)
#: More schemas than the keys of a range usually have: damaged keys may begin with any bytes.
_MAX_FRAMES: Final = 1000
#: The most changes of key columns fetched at once. A range with more is halved in time first.
_MAX_RUNS: Final = 1000


class KeysDifferError(IngestError):
    """The changes of a range have keys with different columns, and must be landed one after the other."""


class KeyColumns:
    """Finds the key columns of one table's changes."""

    def __init__(self, source: TopicSource, schemas: TableSchemas, reading: ReadSettings, checkpoint: str) -> None:
        """Store the topic, and the table's settings. ``checkpoint`` identifies the ingest of a warning."""
        self._source = source
        self._schemas = schemas
        self._key_schema = reading.key_schema
        self._mode = mode_of(reading.mode)
        self._checkpoint = checkpoint

    @property
    def declared(self) -> list[str]:
        """Return the declared key columns in lower case; empty if none are declared."""
        text = self._key_schema
        return sorted(names_of(text)) if text is not None and is_of_fields(text) else []

    def declared_of(self, names: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Return the columns of JSON keys, without columns that are not declared if some are."""
        declared = self.declared
        return {tuple(name for name in fields if not declared or name.lower() in declared) for fields in names}

    def check(self, topic: str, names: Collection[tuple[str, ...]], value: DataType | None) -> None:
        """Raise KeysDifferError if the primary key gains or loses a column within a range, and the row type ``value`` has that
        column.

        Keys whose columns differ in another way belong to different rows.
        """
        columns = {*value.names} if isinstance(value, StructType) else set()
        pairs = [({*one}, {*other}) for one in names for other in names if {*one} < {*other}]
        if any(more - less <= columns for less, more in pairs) or (self._mode.has_envelopes and len(names) > 1):
            raise KeysDifferError(f"the keys of topic {topic} have different columns: {sorted(names)[:2]}")

    def warn_of_others(
        self, topic: str, names: Iterable[tuple[str, ...]], held: DataType | None, value: DataType | None
    ) -> None:
        """Warn once per topic if keys of different columns may belong to the same rows: they differ in a column that the table's
        rows do not have.

        Args:
            held: the type of the table's keys, None if it has none.
            value: the type of the table's rows.
        """
        in_rows = {name.lower() for name in value.names} if isinstance(value, StructType) else set()
        seen = {frozenset(map(str.lower, fields)) for fields in names}
        known = (
            [frozenset(map(str.lower, held.names))] if isinstance(held, StructType) else sorted(seen, key=sorted)[:1]
        )
        for fields in sorted(seen, key=sorted):
            if known and (fields ^ known[0]) - in_rows and is_first(self._checkpoint, f"keys of {topic}"):
                _log.warning(
                    "Topic %s: keys have the columns %s, but earlier keys have %s. The rows have no such column, so the table "
                    "treats these as different rows, and keeps the earlier ones. If they are the same rows, land the topic in a "
                    "new table, or delete the rows with the earlier keys.",
                    topic,
                    ", ".join(sorted(fields)),
                    ", ".join(sorted(known[0])),
                )

    def schema_option(
        self, session: SparkSession, topic_range: TopicRange, held: DataType | None, *, is_landed: bool
    ) -> dict[str, str]:
        """Return the option for reading a range's keys of a registry, if the newest schema does not fit all of them.

        Args:
            held: the type of the table's keys, None if it has none.
            is_landed: whether the range is to be merged into the table.

        Raises:
            KeysDifferError: the range is to be merged, but its keys have different columns.
            IngestError: no schema has the columns of the keys, or a column has been renamed.
        """
        versions = self._schemas.key_versions() if self._mode.merges else ()
        self._check_names(topic_range.topic, held, versions)
        schemas = self._schemas.key_schemas(versions)
        if schemas is not None:
            _, by_frame = self._framed(session, topic_range, schemas)
            names = sorted({*by_frame.values()})
            if is_landed and len(names) > 1:
                raise KeysDifferError(f"the keys of topic {topic_range.topic} have different columns: {names[:2]}")
            if names:
                whole = schemas.whole if len(names) > 1 else schemas.text(names[0])
                return {} if whole is None else {"keySchema": whole}
        text = self._schemas.key_symbols_schema()
        return {} if text is None else {"keySchema": text}

    def _check_names(self, topic: str, held: DataType | None, versions: tuple[int, ...]) -> None:
        """Raise IngestError if the keys' newest schema has another name for a key column of the table."""
        if not isinstance(held, StructType):
            return
        columns = {name.lower() for name in held.names}
        for former, newest in self._schemas.renamed_key_fields(versions).items():
            if former.lower() in columns and newest.lower() not in columns:
                raise IngestError(
                    f"the newest key schema of topic {topic} names the field {former} {newest}, but the table finds its rows by "
                    f"{former}: rows would be there twice, and deletes would delete nothing. Set key_schema in [[table]] to the "
                    f"text of a schema in which the field is {former}, give the field its former name, or land the topic in a new "
                    "table."
                )

    def split(self, session: SparkSession, topic_range: TopicRange) -> list[TopicRange]:
        """Split a range so that the keys of each piece have the same columns. The pieces are landed one after the other."""
        in_order = Window.partitionBy("partition").orderBy("offset")
        named = self._names(session, topic_range).withColumn("before", F.lag("names").over(in_order))
        key_changes = named.where(~F.col("names").eqNullSafe(F.col("before"))).orderBy("partition", "offset")
        runs: list[Any] = key_changes.limit(_MAX_RUNS + 1).collect()
        if len(runs) > _MAX_RUNS and topic_range.n_offsets > 1:
            halves = topic_range.halves(self._source.middle_in_time(topic_range))
            return [piece for half in halves for piece in self.split(session, half)]
        return split_by_runs(topic_range, runs)

    def _framed(
        self, session: SparkSession, topic_range: TopicRange, schemas: KeySchemas
    ) -> tuple[DataFrame, dict[bytes, tuple[str, ...]]]:
        """Return ``partition``, ``offset``, ``timestamp`` and ``frame`` of a range's records, and the key's field names by
        frame."""
        rows = self._source.rows(session, topic_range, columns="partition,offset,timestamp,key,headers")
        framed = rows.select("partition", "offset", "timestamp", F.expr(KEY_FRAME).alias("frame"))
        counted = framed.where("frame IS NOT NULL").groupBy("frame").count().orderBy(F.desc("count"))
        return framed, schemas.names(bytes(row.frame) for row in counted.limit(_MAX_FRAMES).collect())

    def _names(self, session: SparkSession, topic_range: TopicRange) -> DataFrame:
        """Return ``partition``, ``offset`` and ``timestamp`` of records whose keys have fields, and ``names``: the field names."""
        schemas = self._schemas.key_schemas(self._schemas.key_versions())
        if schemas is None:
            named, declared = key_names(self._source.rows(session, topic_range)), self.declared
            if not declared:
                return named
            return named.withColumn("names", F.filter("names", lambda name: F.lower(name).isin(*declared)))
        framed, by_frame = self._framed(session, topic_range, schemas)
        names = F.lit(None).cast("array<string>")
        for frame, columns in by_frame.items():
            names = F.when(F.col("frame") == F.lit(frame), F.array(*map(F.lit, columns))).otherwise(names)
        return framed.select("partition", "offset", "timestamp", names.alias("names")).where("names IS NOT NULL")
