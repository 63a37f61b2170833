"""Proves, without Spark, that a small table has each record of its topic exactly once.

Only equality is proved here: Spark compares a table that differs from its topic, is large, or cannot be read by Python alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY, names_in
from pykafka_wire.ingest.proof.comparison import Comparison
from pykafka_wire.ingest.proof.proof import Proof, proof_of
from pykafka_wire.ingest.proof.stored import range_of
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.topic_log import TopicLog
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.settings.model import COMMITTED, DEFAULT_REJECTS, Settings
from pykafka_wire.ingest.tables.definition import SUBSET_PROPERTY, check_definition
from pykafka_wire.ingest.tables.format import TableWithoutSpark
from pykafka_wire.ingest.tables.formats import format_at, format_of
from pykafka_wire.ingest.tables.rejects import TOPIC_ID
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY, QUERY_PROPERTY

_log = logging.getLogger(__name__)

#: The most offsets of a table's range, and the most rows of a table, that are compared here.
_MAX_RECORDS: Final = 100_000
_PLACE: Final = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
_ROWS: Final = _PLACE.append(pa.field("timestamp", pa.timestamp("us", "UTC")))

#: Returns a table's rows, as a pyarrow dataset or table.
_Rows = Callable[[], Any]


class _ForSparkError(Exception):
    """Only Spark can compare the table."""


def proofs_of_small_tables(settings: Settings, topics: Sequence[str]) -> dict[str, Proof]:
    """Return the proofs of small tables that equal their topics, by :attr:`Destination.key`."""
    table_format = format_of(settings)
    try:
        tables = table_format.datasets(settings) or {}
    except Exception as error:  # pyarrow, deltalake and pyiceberg raise errors of many classes
        _log.debug("The tables cannot be listed without Spark.", exc_info=error)
        return {}
    proofs = {}
    for destination in (destination for topic in topics for destination in settings.destinations(topic)):
        if destination.table.merges or destination.table.is_subset or destination.name not in tables:
            continue
        table = _SmallTable(
            name=destination.name,
            open=partial(table_format.opened, settings, destination.name),
            prefix=settings.prefix,
            rejects=tables.get(settings.rejects),
            options=settings.kafka_options,
            check=partial(check_definition, table=destination.table, shown=destination.name),
        )
        proof = _proof_without_error(table, destination.topic)
        if proof is not None:
            proofs[destination.key] = proof
    return proofs


def proof_of_small_table(place: str, options: Mapping[str, str], prefix: str | None) -> Proof | None:
    """Return the proof of a small table of an ingest that equals its own topic; None for any other table.

    Args:
        place: a path, or a name in Spark's catalog.
        options: as of :func:`~pykafka_wire.ingest.proof.proof.prove`.
        prefix: as in :meth:`KafkaColumns.of`.
    """
    if (found := format_at(place)) is None:
        return None
    try:
        opened, rejects = found.placed.opened(place), found.placed.opened(found.placed.beside(place, DEFAULT_REJECTS))
    except Exception as error:  # pyarrow, deltalake and pyiceberg raise errors of many classes
        _log.debug("Table %s cannot be opened without Spark.", place, exc_info=error)
        return None
    if opened is None or (topic := opened.properties.get(TOPIC_PROPERTY)) is None:
        return None
    owner = opened.properties.get(QUERY_PROPERTY)
    if rejects is not None and (owner is None or rejects.properties.get(QUERY_PROPERTY) != owner):
        rejects = None  # of another program
    table = _SmallTable(
        name=place,
        open=partial(found.placed.opened, place),
        prefix=prefix,
        rejects=None if rejects is None else rejects.rows,
        options={**COMMITTED, **options},
    )
    return _proof_without_error(table, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SmallTable:
    """A table, and what it is compared with.

    Attributes:
        name: the table's name, or its path.
        open: opens the table as it is now.
        prefix: as in :meth:`KafkaColumns.of`.
        rejects: the rejects of all tables of the ingest; None if there are none.
        options: the options of the source, ``kafka.*``.
        check: raises an error if the table's properties contradict the settings.
    """

    name: str
    open: Callable[[], TableWithoutSpark | None]
    prefix: str | None
    rejects: _Rows | None
    options: Mapping[str, str]
    check: Callable[[Mapping[str, str]], object] = lambda _: None


def _proof_without_error(table: _SmallTable, topic: str) -> Proof | None:
    """Return the proof of a table that equals its topic; None if Spark has to compare the table."""
    try:
        return _proof(table, topic)
    except Exception as error:  # Spark may be able to read the table; else it reports the error
        _log.debug("Spark compares table %s.", table.name, exc_info=error)
        return None


def _proof(table: _SmallTable, topic: str) -> Proof:
    now = datetime.now(timezone.utc)
    opened = table.open()
    landed = None if opened is None else opened.landed()
    if (
        opened is None
        or landed is None
        or opened.properties.get(TOPIC_PROPERTY) != topic
        or opened.properties.keys() & {COLUMNS_PROPERTY, SUBSET_PROPERTY}
    ):
        raise _ForSparkError("the table does not show that it has each record of the topic")
    table.check(opened.properties)
    topic_range = range_of(landed, opened.properties)
    if topic_range.n_offsets > _MAX_RECORDS:
        raise _ForSparkError("the table is large")
    log = TopicLog.of(table.options, topic_range)
    if not log.first:
        raise _ForSparkError("the topic was deleted")
    rejects = _rejects(table, topic_range)
    every_row = pa.concat_tables([_rows_of_topic(opened.rows, table, topic), rejects])
    if not _places(every_row).equals(_places(_records(table.options, log.kept(topic_range)))):
        raise _ForSparkError("the table differs from its topic")
    again = table.open()
    if again is None or again.landed() != landed:
        raise _ForSparkError("the ingest has moved the table's position meanwhile")
    proof = proof_of(
        log,
        topic_range,
        table.name,
        Comparison(n_expected=every_row.num_rows),
        lambda behind: _newest_times(every_row, behind),
        now,
    )
    return replace(proof, n_rejected=rejects.num_rows)


def _rows_of_topic(open_rows: _Rows, table: _SmallTable, topic: str) -> pa.Table:
    """Return ``partition``, ``offset`` and ``timestamp`` of a table's rows of a topic."""
    rows = open_rows()
    names = names_in(rows.schema.names, table.name, table.prefix)
    found = _columns(rows, names)
    return (
        (found.filter(pc.equal(found["topic"], topic)) if "topic" in names else found).select(_ROWS.names).cast(_ROWS)
    )


def _rejects(table: _SmallTable, landed: TopicRange) -> pa.Table:
    """Return ``partition``, ``offset`` and ``timestamp`` of a table's rejects before the end of its range."""
    if table.rejects is None:
        return _ROWS.empty_table()
    rows = table.rejects()
    ids = {TOPIC_ID: TOPIC_ID} if landed.topic_id and TOPIC_ID in rows.schema.names else {}
    found = _columns(rows, {**names_in(rows.schema.names, "of rejects", ""), "table": "table", **ids})
    found = found.filter(pc.equal(found["topic"], landed.topic))
    own_name = table.name.rstrip("/").rpartition("/")[2]
    if pc.any(pc.not_equal(found["table"], own_name)).as_py():
        raise _ForSparkError("the topic has rejects of a table of another name")
    if ids:  # a deleted topic of the same name may have had the same offsets
        found = found.filter(pc.fill_null(pc.equal(found[TOPIC_ID], landed.topic_id), True))
    ends = pa.array([landed.end.get(partition, 0) for partition in found["partition"].to_pylist()], pa.int64())
    return found.filter(pc.less(found["offset"], ends)).select(_ROWS.names).cast(_ROWS)


def _columns(rows: Any, names: Mapping[str, str]) -> pa.Table:
    """Return columns of a pyarrow dataset or table.

    Args:
        names: the rows' own names, by the names of the result.
    """
    n_rows = rows.num_rows if isinstance(rows, pa.Table) else rows.count_rows()
    if n_rows > _MAX_RECORDS:
        raise _ForSparkError("the table is large")
    own_names = [*names.values()]
    found = rows.select(own_names) if isinstance(rows, pa.Table) else rows.to_table(columns=own_names)
    return found.rename_columns([*names])


def _records(options: Mapping[str, str], topic_range: TopicRange) -> pa.Table:
    """Return ``partition`` and ``offset`` of a range's records."""
    asked = {**options, **topic_range.options(""), "columns": ",".join(_PLACE.names), "failOnDataLoss": "true"}
    _, reader = open_source(asked)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).cast(_PLACE) if batches else _PLACE.empty_table()


def _places(rows: pa.Table) -> pa.Table:
    return rows.select(_PLACE.names).sort_by([(name, "ascending") for name in _PLACE.names]).combine_chunks()


def _newest_times(rows: pa.Table, partitions: Collection[int]) -> dict[int, int | None]:
    """Return the newest timestamp of each of these partitions, in ms since the epoch; None without a timestamp."""
    inside = rows.filter(pc.is_in(rows["partition"], pa.array(partitions, pa.int32())))
    newest = inside.group_by("partition").aggregate([("timestamp", "max")])
    microseconds = newest["timestamp_max"].cast(pa.int64()).to_pylist()
    return {
        partition: None if time is None else time // 1000
        for partition, time in zip(newest["partition"].to_pylist(), microseconds, strict=True)
    }
