"""Proves, without Spark, that a small table has each record of its topic exactly once.

Only equality is proved here: Spark compares a table that differs from its topic, is large, or cannot be read by Python alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY, names_in
from pykafka_wire.ingest.proof.comparison import Comparison
from pykafka_wire.ingest.proof.proof import Proof, proof_of
from pykafka_wire.ingest.proof.stored import range_of
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.topic_log import TopicLog
from pykafka_wire.ingest.records.topic_source import TopicSource
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.tables.definition import SUBSET_PROPERTY
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.rejects import TOPIC_ID
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY

_log = logging.getLogger(__name__)

#: The most offsets of a topic's range, and the most rows of a table, that are compared here.
_MAX_RECORDS: Final = 100_000
_PLACE: Final = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
_ROWS: Final = _PLACE.append(pa.field("timestamp", pa.timestamp("us", "UTC")))

#: Opens a table's rows, as a pyarrow dataset or table.
_OpenTable = Callable[[], Any]


class _ForSparkError(Exception):
    """Only Spark can compare the table."""


def proofs_of_small_tables(settings: Settings, topics: Sequence[str]) -> dict[str, Proof]:
    """Return the proofs of small tables that equal their topics, by :attr:`Destination.key`."""
    try:
        tables = format_of(settings).datasets(settings) or {}
    except Exception as error:  # pyarrow, deltalake and pyiceberg raise errors of many classes
        _log.debug("The tables cannot be listed without Spark.", exc_info=error)
        return {}
    proofs = {}
    for destination in (destination for topic in topics for destination in settings.destinations(topic)):
        try:
            proofs[destination.key] = _proof(settings, tables, destination)
        except Exception as error:  # Spark may be able to read the table; else it reports the error
            _log.debug("Spark compares table %s.", destination.name, exc_info=error)
    return proofs


def _proof(settings: Settings, tables: Mapping[str, _OpenTable], destination: Destination) -> Proof:
    """Return the proof of a table that equals its topic. Raises any error if Spark has to compare the table."""
    topic, name = destination.topic, destination.name
    if destination.table.merges or destination.table.is_subset:
        raise _ForSparkError("the table has not each record of its topic")
    now = datetime.now(timezone.utc)
    stored = format_of(settings)
    landed, properties = stored.stored_position(settings, name), stored.stored_properties(settings, name) or {}
    if (
        landed is None
        or properties.get(TOPIC_PROPERTY) != topic
        or properties.keys() & {COLUMNS_PROPERTY, SUBSET_PROPERTY}
    ):
        raise _ForSparkError("the table does not show what it has")
    topic_range = range_of(landed, properties)
    log = TopicLog.of(settings.kafka_options, topic_range)
    kept = log.kept(topic_range)
    if not log.first or kept.n_offsets > _MAX_RECORDS:
        raise _ForSparkError("the topic is large, or was deleted")
    held = _rows_of_topic(tables[name], name, settings.prefix, topic)
    rejects = _rejects(tables.get(settings.rejects), destination, settings.rejects, topic_range)
    every_row = pa.concat_tables([held, rejects])
    if not _places(every_row).equals(_places(_records(settings, destination, kept))):
        raise _ForSparkError("the table differs from its topic")
    if stored.stored_position(settings, name) != landed:
        raise _ForSparkError("the ingest has moved the table's position meanwhile")
    proof = proof_of(
        log,
        topic_range,
        name,
        Comparison(n_expected=every_row.num_rows),
        lambda behind: _newest_times(every_row, behind),
        now,
    )
    return replace(proof, n_rejected=rejects.num_rows)


def _rows_of_topic(open_table: _OpenTable, table: str, prefix: str, topic: str) -> pa.Table:
    """Return ``partition``, ``offset`` and ``timestamp`` of a table's rows of a topic."""
    rows = open_table()
    names = names_in(rows.schema.names, table, prefix)
    found = _columns(rows, names)
    return (
        (found.filter(pc.equal(found["topic"], topic)) if "topic" in names else found).select(_ROWS.names).cast(_ROWS)
    )


def _rejects(open_rejects: _OpenTable | None, destination: Destination, table: str, landed: TopicRange) -> pa.Table:
    """Return ``partition``, ``offset`` and ``timestamp`` of a table's rejects before the end of its range."""
    if open_rejects is None:  # there is no reject
        return _ROWS.empty_table()
    rows = open_rejects()
    ids = {TOPIC_ID: TOPIC_ID} if landed.topic_id and TOPIC_ID in rows.schema.names else {}
    found = _columns(rows, {**names_in(rows.schema.names, table, ""), "table": "table", **ids})
    found = found.filter(pc.equal(found["topic"], destination.topic))
    if pc.any(pc.not_equal(found["table"], destination.name)).as_py():
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


def _records(settings: Settings, destination: Destination, topic_range: TopicRange) -> pa.Table:
    """Return ``partition`` and ``offset`` of a range's records."""
    source = TopicSource(settings, destination.table.reading)
    columns = {"columns": ",".join(_PLACE.names), "failOnDataLoss": "true"}
    batches = source.read_here(topic_range, {**source.options(topic_range), **columns}, list)
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
