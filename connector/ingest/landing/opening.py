"""How a table is opened: whose it is, up to where it holds its topic, and where a new one begins.

The table itself says up to where it is landed (:mod:`~pykafka_wire.ingest.tables.position`). A new table begins where the query
began with its topic.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.failures import Remedy, remedy_of, sentence_of
from pykafka_wire.ingest.landing.attempt import TableAttempt
from pykafka_wire.ingest.landing.by_tasks import FileLanding
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.ranges import TopicRange, before
from pykafka_wire.ingest.records.json.types import column_ddl
from pykafka_wire.ingest.records.table_columns import columns_without_value, table_rows
from pykafka_wire.ingest.records.topic_log import kept_range
from pykafka_wire.ingest.tables.definition import redefined
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.position import Landed, lost_position, position_property, stated
from pykafka_wire.ingest.tables.topic_table import (
    COLUMNS_PROPERTY,
    QUERY_PROPERTY,
    check_owner,
    made_properties,
    owner_properties,
)

_log = logging.getLogger(__name__)

#: Kafka's columns without which no change finds its row.
_OF_CHANGES: Final = ("partition", "offset", "timestamp", "key")


class OpenedTable(NamedTuple):
    """Where a table ends; one that is not made yet, where its first rows begin."""

    landed: Landed
    is_made: bool


class TableOpening:
    """Opens the table of one attempt, or makes it."""

    def __init__(self, attempt: TableAttempt, tasks: FileLanding, rejects: TableRejects) -> None:
        """Take the parts of the attempt that have to know a table that is new."""
        self._attempt = attempt
        self._tasks = tasks
        self._rejects = rejects

    def open(self, part: TopicRange, beginning: Callable[[], Beginning]) -> OpenedTable:
        """Return what the table holds. A table that is new begins where the query began with the topic, and is made if there
        are rows."""
        files = self._tasks.files()
        table = self._attempt.target if isinstance(files, SparkAlone) else files
        if not table.exists:
            part = replace(part, start=self.begin(part, beginning(), is_new=True))
            self._rejects.forget(part)
            if self._attempt.target.is_folder or not part.n_offsets:
                return OpenedTable(self._attempt.begins_at(part), is_made=False)
            return OpenedTable(self._create(part), is_made=True)
        landed, rewritten_by = table.landed(), table.rewritten_by
        is_owned = QUERY_PROPERTY in table.properties()
        if landed is not None and landed.query == self._attempt.run.query and not is_owned:
            self._attempt.target.set_properties(self._attempt.table, landed)
            table = self._attempt.target
        elif landed is None and not is_owned and self._attempt.table.position:
            return OpenedTable(self._adopt(part), is_made=True)
        check_owner(table, self._attempt.run.query, part.topic)
        if changed := redefined(table.properties(), self._attempt.table, self._attempt.name):
            self._attempt.target.alter(changed)
            _log.warning("Table %s is redefined, as the settings allow: %s.", self._attempt.name, changed)
        if landed is None:
            landed = self._stated(part)
            self._attempt.target.alter(position_property(landed))
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
        return OpenedTable(landed, is_made=True)

    def _stated(self, part: TopicRange) -> Landed:
        """Return what the table holds by the position that the settings state.

        Raises:
            IngestError: the settings state none, or one that does not fit the topic's partitions.
        """
        position = {int(partition): int(offset) for partition, offset in self._attempt.table.position.items()}
        if not position:
            raise lost_position(self._attempt.target.identifier)
        if position.keys() != part.end.keys():
            raise IngestError(
                f"position of the table of topic {part.topic} has the partitions {sorted(position)}, and the topic has "
                f"{sorted(part.end)}: give the next offset of each partition in [[table]], 0 for one without rows."
            )
        _log.warning(
            "Table %s holds topic %s up to %s, as its position states.", self._attempt.name, part.topic, position
        )
        return stated(self._attempt.begins_at(part), position)

    def _adopt(self, part: TopicRange) -> Landed:
        """Make a table of another program this ingest's, from the position on that the settings state.

        Raises:
            IngestError, AnalysisException: the position or the columns do not fit; the table has no owner.
        """
        landed, target, prefix = self._stated(part), self._attempt.target, self._attempt.settings.prefix
        names = {name.lower() for name in target.schema.names}
        missing = [prefix + name for name in _OF_CHANGES if prefix + name not in names]
        if self._attempt.table.merges and missing:
            raise IngestError(
                f"the table {target.identifier} cannot be adopted in mode {self._attempt.table.mode}, whose changes find their "
                f"rows by the columns {', '.join(missing)}, which it lacks: use mode append, or let the ingest make the table."
            )
        rows = self._attempt.session.createDataFrame([], self._first_columns(part))
        target.add_columns(rows)
        of_topic = {COLUMNS_PROPERTY: json.dumps(sorted(name.lower() for name in rows.columns))}
        target.alter(
            owner_properties(landed)
            | made_properties(self._attempt.table)
            | position_property(landed)
            | (of_topic if self._attempt.table.merges else {})
        )
        self._tasks.reopen()  # its files are of the table as it was
        return landed

    def newest_ms(self, landed: Landed) -> int | None:
        """Return the timestamp of the newest record of the table's last commit; of the whole table where that has no rows."""
        if landed.micro_batch < 0 or not landed.start:
            return None
        if landed.newest_ms is not None:
            return landed.newest_ms
        rows = KafkaColumns.of(self._attempt.target.rows, self._attempt.name, self._attempt.settings.prefix).of_topic(
            landed.topic
        )
        # Delta leaves files out by the offsets alone.
        offsets = F.col("offset").between(min(landed.start.values()), max(landed.end.values()))
        for some in (rows.where(offsets & before(landed.end) & ~before(landed.start)), rows):
            maximum = some.agg(F.unix_millis(F.max("timestamp"))).head()
            if maximum is not None and maximum[0] is not None:
                return int(maximum[0])
        return None

    def begin(self, part: TopicRange, beginning: Beginning, *, is_new: bool) -> dict[int, int]:
        """Return where a table that is new begins in each partition, or one that is not in those that were added.

        What is older than the query's log remembers is read from its first record that is still there, or from where the oldest
        micro-batch ends if the query began at the latest records. Added partitions are read whole: what they have lost is an error.
        """
        oldest = {p: end if end == part.start[p] else 0 for p, end in beginning.oldest.items()}
        if is_new and self._attempt.settings.starting_offsets == "latest":
            oldest = dict(beginning.oldest)
        elif is_new and oldest:
            whole = replace(part, start=dict.fromkeys(oldest, 0), end={p: part.end[p] for p in oldest})
            oldest = dict(kept_range(self._attempt.settings.kafka_options, whole).start)
        return {p: beginning.known[p] if p in beginning.known else oldest.get(p, part.start[p]) for p in part.end}

    def remember_begin(self, part: TopicRange) -> None:
        """Make a table without rows that remembers where its topic begins: Spark's log forgets it."""
        with suppress(Exception):  # what has failed is reported; the log remembers it for long enough, as a rule
            if not self._attempt.target.exists:
                self._create(part)

    def _create(self, part: TopicRange) -> Landed:
        """Make the table without rows."""
        begins_at = self._attempt.begins_at(part)
        self._attempt.target.create(self._first_columns(part), self._attempt.table, self._attempt.run.query, begins_at)
        return begins_at

    def _first_columns(self, part: TopicRange) -> str:
        """Return the columns of a new table; those that are known in any case where the values' type is not, so that the
        table remembers where its topic begins.
        """
        try:
            schema = self._attempt.reader.schemas.value_schema()
            rows = self._attempt.reader.read(self._attempt.session, part, schema, None)
            if self._attempt.table.merges:
                rows = self._attempt.reader.contract.fitting(rows, has_unsent=False)
            return column_ddl(table_rows(rows, self._attempt.settings).schema)
        except Exception as error:
            if remedy_of(error) is not Remedy.CHANGE:
                raise
            return columns_without_value(self._attempt.settings)

    def record(self, landed: Landed) -> None:
        """Record the table's position where cleaning the table's history does not remove it."""
        try:
            self._attempt.target.record(landed)
        except Exception as error:  # the next commit, or the next start, records it
            _log.warning(
                "The position of table %s was not recorded: it is in the table's history alone until the next commit. %s",
                self._attempt.name,
                sentence_of(error),
            )
