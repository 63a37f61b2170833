"""Opens a table: checks its owner, reads its position, and decides where a new table begins.

The position is stored in the table itself (:mod:`~pykafka_wire.ingest.tables.position`). A new table begins where the query began
to read its topic.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.landing.attempt import TableAttempt
from pykafka_wire.ingest.landing.by_tasks import FileLanding
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.landing.remedies import Remedy, remedy_of
from pykafka_wire.ingest.records.ranges import TopicRange, before
from pykafka_wire.ingest.records.table_columns import columns_without_value, table_rows
from pykafka_wire.ingest.records.topic_log import TopicLog, kept_range
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.spark.sql import column_ddl
from pykafka_wire.ingest.tables.definition import redefined
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.merging import check_kafka_columns
from pykafka_wire.ingest.tables.position import (
    Landed,
    check_unused,
    lost_position_error,
    stated_position,
    stated_properties,
)
from pykafka_wire.ingest.tables.topic_table import (
    COLUMNS_PROPERTY,
    QUERY_PROPERTY,
    check_owner,
    made_properties,
    owner_properties,
)

_log = logging.getLogger(__name__)


class OpenedTable(NamedTuple):
    """The position of an opened table; for a table that does not exist yet, the position of its first rows."""

    landed: Landed
    is_made: bool


def added_partitions(topic_range: TopicRange, beginning: Beginning) -> dict[int, int]:
    """Return where an existing table begins in partitions that its topic has got since.

    If the query's log has forgotten the micro-batch in which a partition was added, the partition is read from offset 0: all of its
    records were written after the table was made. Records that retention has deleted since are reported as lost.
    """
    return {p: beginning.known.get(p, 0) for p in topic_range.end}


class TableOpener:
    """Opens or creates the table of one attempt."""

    def __init__(self, attempt: TableAttempt, tasks: FileLanding, rejects: TableRejects) -> None:
        """Store the attempt, and the objects that need to know about a new table."""
        self._attempt = attempt
        self._tasks = tasks
        self._rejects = rejects

    def open(self, topic_range: TopicRange, beginning: Callable[[], Beginning]) -> OpenedTable:
        """Return the table's position. A new table begins where the query began to read the topic; a new catalog table is created,
        if there are rows."""
        files = self._tasks.files()
        table = self._attempt.target if isinstance(files, SparkAlone) else files
        if not table.exists:
            topic_range = replace(topic_range, start=self.beginning_offsets(topic_range, beginning()))
            self._rejects.delete_dropped(topic_range)
            if self._attempt.target.is_folder or not topic_range.n_offsets:
                return OpenedTable(self._attempt.initial_position(topic_range), is_made=False)
            return OpenedTable(self._create(topic_range), is_made=True)
        landed, rewritten_by = table.landed(), table.rewritten_by
        is_owned = QUERY_PROPERTY in table.properties()
        if landed is not None and landed.query == self._attempt.run.query and not is_owned:
            self._attempt.target.set_properties(self._attempt.table, landed)
            table = self._attempt.target
        elif landed is None and not is_owned and self._attempt.table.position:
            return OpenedTable(self._adopt(topic_range), is_made=True)
        check_owner(table, self._attempt.run.query, topic_range.topic)
        prefix, merges = self._attempt.settings.prefix, self._attempt.table.merges
        if is_owned or merges:  # a table that was set back to before its adoption gets the columns again
            check_kafka_columns(table.schema, table.properties(), prefix, self._attempt.name, merges=merges)
        if changed := redefined(table.properties(), self._attempt.table, self._attempt.name):
            self._attempt.target.alter(changed)
            _log.warning("Table %s is redefined, as the settings allow: %s.", self._attempt.name, changed)
        number = None if landed is None else self._number_after_restore(landed)
        if number is not None:
            rewritten_by = "a restore of an older copy of the table"
        if landed is not None and rewritten_by is not None:
            self._rejects.delete_rolled_back(replace(topic_range, start=landed.end))
        if landed is None:
            landed = self._position_from_settings(topic_range)
            self._attempt.target.alter(stated_properties(landed))
        elif not table.is_recorded(landed):
            self.record(landed)
        if rewritten_by is not None:
            _log.warning(
                "Table %s was changed by another program after the ingest's newest commit, by %s. The table continues at its "
                "position, %s: records before it are not landed again. To land the topic anew, drop the table or give it "
                "another name.",
                self._attempt.name,
                rewritten_by,
                dict(landed.end),
            )
        return OpenedTable(landed if number is None else replace(landed, sequence=number), is_made=True)

    def _number_after_restore(self, landed: Landed) -> int | None:
        """Return the highest number of a commit with rejects, if the table lacks that commit: an older copy was restored.

        Rejects of a number that had some would not be written again.
        """
        number = self._rejects.newest_number
        if number <= landed.sequence:
            return None
        # Read afterwards, since another driver may have committed meanwhile.
        return number if 0 < self._attempt.target.newest_number("") < number else None

    def _position_from_settings(self, topic_range: TopicRange) -> Landed:
        """Return the position that the settings state for the table.

        Raises:
            IngestError: the settings state no position, one that does not fit the topic's partitions or is after their ends, or one
                that was used before.
        """
        position = {int(partition): int(offset) for partition, offset in self._attempt.table.position.items()}
        if not position:
            raise lost_position_error(self._attempt.target.identifier)
        if position.keys() != topic_range.end.keys():
            raise IngestError(
                f"position of the table of topic {topic_range.topic} has the partitions {sorted(position)}, but the topic has "
                f"{sorted(topic_range.end)}: give the next offset of each partition in [[table]], 0 for a partition without rows."
            )
        ends = TopicLog.of(self._attempt.settings.kafka_options, topic_range).end
        if beyond := [f"{p} ends at {end}" for p, end in sorted(ends.items()) if position[p] > end]:
            raise IngestError(
                f"position of the table of topic {topic_range.topic} is {position}, but partition {', '.join(beyond)}: the records "
                "up to that position would never be landed. Correct it in [[table]]."
            )
        check_unused(position, self._attempt.target.identifier, self._attempt.target.properties())
        _log.warning(
            "Table %s holds topic %s up to %s, as the setting position states.",
            self._attempt.name,
            topic_range.topic,
            position,
        )
        return stated_position(self._attempt.initial_position(topic_range), position)

    def _adopt(self, topic_range: TopicRange) -> Landed:
        """Make this ingest the owner of another program's table, from the position that the settings state.

        Raises:
            IngestError, AnalysisException: the position or the columns do not fit; the table has no owner.
        """
        landed, target, prefix = (
            self._position_from_settings(topic_range),
            self._attempt.target,
            self._attempt.settings.prefix,
        )
        if self._attempt.table.merges:
            check_kafka_columns(target.schema, None, prefix, target.identifier)
        rows = self._attempt.session.createDataFrame([], self._first_columns(topic_range))
        target.add_columns(rows)
        of_topic = {COLUMNS_PROPERTY: json.dumps(sorted(name.lower() for name in rows.columns))}
        target.alter(
            owner_properties(landed)
            | made_properties(self._attempt.table)
            | stated_properties(landed)
            | (of_topic if self._attempt.table.merges else {})
        )
        self._tasks.reopen()  # the opened files have the old metadata
        return landed

    def newest_ms(self, landed: Landed) -> int | None:
        """Return the timestamp of the newest record of the table's last commit, or of the whole table if that commit has no
        rows."""
        if landed.micro_batch < 0 or not landed.start:
            return None
        if landed.newest_ms is not None:
            return landed.newest_ms
        rows = KafkaColumns.of(self._attempt.target.rows, self._attempt.name, self._attempt.settings.prefix).of_topic(
            landed.topic
        )
        # Delta skips files by the offsets alone, so filter by offsets first.
        offsets = F.col("offset").between(min(landed.start.values()), max(landed.end.values()))
        for some in (rows.where(offsets & before(landed.end) & ~before(landed.start)), rows):
            maximum = some.agg(F.unix_millis(F.max("timestamp"))).head()
            if maximum is not None and maximum[0] is not None:
                return int(maximum[0])
        return None

    def beginning_offsets(self, topic_range: TopicRange, beginning: Beginning) -> dict[int, int]:
        """Return where a new table begins in each partition.

        The query's log may have forgotten the beginning. Then a new table begins at the first record that still exists; or, if the
        query began at the latest records, at the end of the oldest micro-batch in the log.
        """
        oldest = dict(beginning.oldest)
        if oldest and self._attempt.settings.starting_offsets != "latest":
            whole = replace(topic_range, start=dict.fromkeys(oldest, 0), end={p: topic_range.end[p] for p in oldest})
            oldest = dict(kept_range(self._attempt.settings.kafka_options, whole).start)
        return {
            p: beginning.known[p] if p in beginning.known else oldest.get(p, topic_range.start[p])
            for p in topic_range.end
        }

    def store_beginning(self, topic_range: TopicRange) -> None:
        """Create the table without rows, so that it stores the topic's beginning: Spark's log forgets it."""
        with suppress(Exception):  # the caller reports the failure; usually Spark's log keeps the beginning long enough
            if not self._attempt.target.exists:
                self._create(topic_range)

    def _create(self, topic_range: TopicRange) -> Landed:
        """Create the table without rows."""
        initial_position = self._attempt.initial_position(topic_range)
        self._attempt.target.create(
            self._first_columns(topic_range), self._attempt.table, self._attempt.run.query, initial_position
        )
        return initial_position

    def _first_columns(self, topic_range: TopicRange) -> str:
        """Return the columns of a new table. If the type of the values is unknown, return only the columns that every table has, so
        that the table can store its topic's beginning.
        """
        try:
            schema = self._attempt.reader.schemas.value_schema()
            rows = self._attempt.reader.read(self._attempt.session, topic_range, schema, None)
            if self._attempt.table.merges:
                rows = self._attempt.reader.contract.fitting(rows, has_unsent=False)
            return column_ddl(table_rows(rows, self._attempt.settings).schema)
        except Exception as error:
            if remedy_of(error, self._attempt.errors) is not Remedy.CHANGE:
                raise
            return columns_without_value(self._attempt.settings)

    def record(self, landed: Landed) -> None:
        """Store the table's position where a cleanup of the table's history does not remove it."""
        try:
            self._attempt.target.record(landed)
        except Exception as error:  # the next commit or the next start stores the position
            _log.warning(
                "The position of table %s is only in the table's history until the next commit, since storing it failed: %s",
                self._attempt.name,
                sentence_of(error),
            )
