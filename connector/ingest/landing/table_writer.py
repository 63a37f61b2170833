"""One topic's ranges into its table, and its rejects.

What a table gets starts where the table itself ends, by its position (:mod:`~pykafka_wire.ingest.tables.position`). So a table
that was written before a
crash is skipped, one that was not is written, and one that was stopped continues where it stopped. A new table begins where the
query began with its topic. Rejects are written after the commit whose range they belong to, by the same schema. When a table is
opened, those of its newest commit are written if they are missing.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # not the built-in one before Python 3.11
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes.newest import (
    REASON,
    TAKEN,
    UNTAKEN,
    UNTYPED,
    Counts,
    Untaken,
    check_keys,
    computed,
    merge_changes,
    newest,
    rows_under,
    searchable,
    truncations,
    without_truncated,
    without_truncates,
)
from pykafka_wire.ingest.changes.unsent_values import SearchRange, filled
from pykafka_wire.ingest.failures import (
    DATA_LOSS,
    UNKNOWN_TOPIC,
    Remedy,
    code_of,
    reason_of_record,
    remedy_of,
    sentence_of,
)
from pykafka_wire.ingest.files.tasks import REJECTS, Written
from pykafka_wire.ingest.landing.by_tasks import FileLanding
from pykafka_wire.ingest.landing.isolation import Search, Span
from pykafka_wire.ingest.ranges import TopicRange, before
from pykafka_wire.ingest.records.contracts import Census
from pykafka_wire.ingest.records.json.types import column_ddl
from pykafka_wire.ingest.records.key_columns import KeysDifferError
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.records.table_columns import columns_without_value, table_rows
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_log import kept_range, may_be_compacted
from pykafka_wire.ingest.records.untaken import count_untaken, untaken_places
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from pykafka_wire.ingest.sql import quoted
from pykafka_wire.ingest.tables.definition import redefined
from pykafka_wire.ingest.tables.files_table import FilesTable
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE, remember_truncations
from pykafka_wire.ingest.tables.position import (
    AlreadyLandedError,
    IsolatedRecord,
    Landed,
    lost_position,
    new_attempt,
    position_property,
    stated,
)
from pykafka_wire.ingest.tables.topic_table import (
    COLUMNS_PROPERTY,
    QUERY_PROPERTY,
    check_owner,
    made_properties,
    owner_properties,
)
from pykafka_wire.ingest_status import TableFigures

_log = logging.getLogger(__name__)

#: So many commits before a range are looked into for a row that has got another key in it, each by a read of its records and of
#: the table: Debezium writes the delete of the old key and the creation of the new one within milliseconds.
_EARLIER_COMMITS: Final = 3
#: Spark delivers counts within milliseconds of a write's end.
_COUNTED_WITHIN_S: Final = 60.0
#: Kafka's columns without which no change finds its row.
_OF_CHANGES: Final = ("partition", "offset", "timestamp", "key")


@dataclass(slots=True, kw_only=True)
class TableProgress(TableFigures):
    """How far one table is, changed by the one writer that it has at a time: its figures, and what its next commit needs to know.

    Attributes:
        is_open: whether the position is the table's own; after a failure the table is looked at again.
        micro_batch: the number of the micro-batch that the table's last commit is of.
        sequence: the number of the table's last commit (:class:`~pykafka_wire.ingest.tables.position.Landed`).
        refused: the number of the last commit that the table had already.
        is_searched: whether the next attempt looks for the records that keep the table from being landed.
        is_proven: what :class:`~pykafka_wire.ingest.landing.isolation.Search` has found out so far.
    """

    is_open: bool = False
    topic_id: str = ""
    micro_batch: int = -1
    sequence: int = 0
    refused: int | None = None
    is_searched: bool = False
    is_proven: bool = False

    def is_behind(self, part: TopicRange) -> bool:
        position = self.position or {}
        return any(end > position.get(partition, part.start[partition]) for partition, end in part.end.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the writers of all tables of one run share.

    Attributes:
        query: Spark's id of the query.
        await_rejects: returns when the table of rejects is there.
        check_running: raises when the query has ended: another one may write the tables then.
    """

    settings: Settings
    readers: TableReaders
    query: str
    await_rejects: Callable[[], None]
    check_running: Callable[[], None] = field(default=lambda: None)


def _counted(seen: Observation) -> dict[str, Any]:
    """Return what was counted while rows were written.

    Raises:
        RuntimeError: Spark has not delivered the counts. The rows are committed: the table's next look shows it.
    """
    counted: Future[dict[str, Any]] = Future()

    def wait() -> None:
        try:
            counted.set_result(seen.get)
        except Exception as error:
            counted.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        return counted.result(_COUNTED_WITHIN_S)
    except FutureTimeoutError:
        raise RuntimeError("Spark has written rows, and has not said how many; the table is looked at again") from None


def commits_of(part: TopicRange, position: Mapping[int, int], max_rows: int) -> list[TopicRange]:
    """Return what a table lacks that stands at ``position``, up to the end of a micro-batch: a range for each commit.

    A table that was stopped, or is made late, may lack far more than the micro-batch has. That is divided by ``max_rows``.

    Args:
        part: of the micro-batch.
    """
    start = {p: position[p] for p in part.end}
    own_start = {p: max(offset, part.start[p]) for p, offset in start.items()}
    whole = replace(part, start=start, end={p: max(end, own_start[p]) for p, end in part.end.items()})
    n_earlier = sum(own_start[p] - start[p] for p in start)
    if whole.n_offsets <= max_rows or not n_earlier:
        return [whole] if whole.n_offsets else []
    n = -(-n_earlier // max_rows)
    ends = [{p: start[p] + (own_start[p] - start[p]) * i // n for p in start} for i in range(1, n + 1)]
    earlier = [replace(part, start=begin, end=end) for begin, end in zip([start, *ends], ends, strict=False)]
    return [each for each in (*earlier, replace(whole, start=own_start)) if each.n_offsets]


class TableWriter:
    """Writes one topic's range into its table, and its rejects, in one Spark session."""

    def __init__(
        self,
        session: SparkSession,
        surroundings: Surroundings,
        destination: Destination,
        progress: TableProgress,
        *,
        by_spark: bool = False,
        shared: SharedRead | None = None,
    ) -> None:
        """Open the table.

        Args:
            by_spark: whether only Spark may commit to it now.
            shared: what it reads together with other tables.
        """
        self._session = session
        self._surroundings = surroundings
        self._settings = surroundings.settings
        self._reader = surroundings.readers.of(destination)
        self._query = surroundings.query
        self._topic = destination.topic
        self._name = destination.name
        self._progress = progress
        self._table = destination.table
        self._shared = shared or SharedRead()
        self._target = format_of(self._settings).open_table(session, self._settings, self._name)
        self._rejects = format_of(self._settings).open_table(session, self._settings, self._settings.rejects)
        self._by_spark = by_spark
        #: The table as files are committed to it, once it was opened.
        self._files: FilesTable | None = None
        #: The table is a folder that does not exist yet: its first rows make it.
        self._is_missing = False
        #: Where the table ends, or a new one begins.
        self._position: dict[int, int] = {}

    def land(self, part: TopicRange, micro_batch: int, beginning: Callable[[], Beginning]) -> None:
        """Bring the table up to the end of a micro-batch's range, from where it is.

        Args:
            beginning: where the query began with the topic, for a new table.
        """
        progress, position = self._progress, self._progress.position
        if position is None or not progress.is_open:
            landed = self._open(part, beginning)
            position, progress.topic_id, progress.micro_batch = dict(landed.end), landed.topic_id, landed.micro_batch
            progress.sequence = landed.sequence
            progress.first_position = progress.first_position or position
            progress.schema_id = progress.schema_id or landed.schema_id
            if not self._is_missing:
                progress.position = position
                self._complete_rejects(landed)
                if progress.newest_ms is None:  # after a restart
                    progress.newest_ms = self._newest_ms(landed)
                progress.is_open = True
        if progress.topic_id and part.topic_id and progress.topic_id != part.topic_id:
            raise IngestError(
                f"topic {part.topic} was deleted and created again, and table {self._name} holds the old one's records, at "
                "offsets that the new one uses again: give the topic another table by name in [[table]], or drop the table."
            )
        if 0 <= progress.micro_batch < micro_batch and any(
            position.get(p, start) > start for p, start in part.start.items()
        ):
            raise IngestError(
                f"the log of topic {part.topic} was truncated below offsets that table {self._name} holds, and its new records "
                "have offsets that the table has already. Compare them by pykafka-wire ingest --verify, and give the topic "
                "another table by name in [[table]]."
            )
        if not part.end.keys() <= position.keys():  # partitions that were added
            position = self._begin(part, beginning(), is_new=False) | position
        commits = commits_of(part, position, self._settings.max_rows)
        if part not in commits:
            self._shared.end(self._name)
        self._position = position
        for commit in commits:
            try:
                if progress.is_searched:
                    self._search(commit, micro_batch)
                else:
                    self._write_by_key(commit, micro_batch)
            except Exception as error:
                if self._is_missing and remedy_of(error) is Remedy.CHANGE:
                    self._remember_begin(commit)
                raise
        progress.is_searched = progress.is_proven = False

    def _search(self, commit: TopicRange, micro_batch: int) -> None:
        """Land a range, but for the few records that keep the range from being landed: they become rejects."""

        def write(read: Span, whole: Span, rejected: Sequence[IsolatedRecord]) -> int:
            self._surroundings.check_running()
            n_before = self._progress.rows
            part = replace(commit, start=read.start, end=read.end)
            self._write_by_key(part, micro_batch, rejected, whole.start)
            return self._progress.rows - n_before

        def n_records(span: Span) -> int:
            return self._n_records(replace(commit, start=span.start, end=span.end)) if span.n_offsets else 0

        search = Search(
            write=write, reason_of=reason_of_record, n_records=n_records, is_proven=self._progress.is_proven
        )
        try:
            n_found = search.land(Span(commit.start, commit.end))
        finally:
            self._progress.is_proven = search.is_proven
        _log.warning(
            "Table %s: %d records of topic %s up to %s could not be landed, though those around them could; they are rejects.",
            self._name,
            n_found,
            commit.topic,
            dict(commit.end),
        )

    def _write_by_key(
        self,
        commit: TopicRange,
        micro_batch: int,
        isolated: Sequence[IsolatedRecord] = (),
        begin: Mapping[int, int] | None = None,
    ) -> None:
        """Write a range, by one commit, or one for each time that the columns of its changes' keys change, in the order of the
        topic.

        Args:
            isolated: records before the range, which become rejects with its first commit.
            begin: where that commit begins, by default where the range does; between the two there are no other records.
        """
        try:
            self._write(commit, micro_batch, isolated, begin)
        except KeysDifferError:
            for part in self._reader.keys.parts(self._session, commit):
                self._write(part, micro_batch, isolated, begin)
                isolated, begin = (), None

    def cause(self) -> tuple[object, ...]:
        """Return what a stopped table may wait for: the registry's newest schema, and the table's version."""
        try:
            schema: object = self._reader.schemas.value_schema().schema_id
        except Exception as error:
            schema = code_of(error)
        try:
            version: object = self._target.version
        except Exception as error:
            version = code_of(error)
        return schema, version

    def _open(self, part: TopicRange, beginning: Callable[[], Beginning]) -> Landed:
        """Return what the table holds. A table that is new begins where the query began with the topic, and is made if there
        are rows."""
        files = self._by_files()
        table = self._target if isinstance(files, str) else files
        if not table.exists:
            part = replace(part, start=self._begin(part, beginning(), is_new=True))
            self._forget_rejects(part)
            self._is_missing = self._target.is_folder or not part.n_offsets
            return self._begins_at(part) if self._is_missing else self._create(part)
        landed, rewritten_by = table.landed(), table.rewritten_by
        is_owned = QUERY_PROPERTY in table.properties()
        if landed is not None and landed.query == self._query and not is_owned:
            self._target.set_properties(self._table, landed)
            table = self._target
        elif landed is None and not is_owned and self._table.position:
            return self._adopt(part)
        check_owner(table, self._query, part.topic)
        if changed := redefined(table.properties(), self._table, self._name):
            self._target.alter(changed)
            _log.warning("Table %s is redefined, as the settings allow: %s.", self._name, changed)
        if landed is None:
            landed = self._stated(part)
            self._target.alter(position_property(landed))
        elif not table.is_recorded(landed):
            self._record(landed)
        if rewritten_by is not None:
            _log.warning(
                "Table %s was changed by another program after the ingest's newest commit, by %s. The table continues at its "
                "position, %s: records before it are not landed again. To land the topic anew, drop the table or give it "
                "another name.",
                self._name,
                rewritten_by,
                dict(landed.end),
            )
        return landed

    def _stated(self, part: TopicRange) -> Landed:
        """Return what the table holds by the position that the settings state.

        Raises:
            IngestError: the settings state none, or one that does not fit the topic's partitions.
        """
        position = {int(partition): int(offset) for partition, offset in self._table.position.items()}
        if not position:
            raise lost_position(self._target.identifier)
        if position.keys() != part.end.keys():
            raise IngestError(
                f"position of the table of topic {part.topic} has the partitions {sorted(position)}, and the topic has "
                f"{sorted(part.end)}: give the next offset of each partition in [[table]], 0 for one without rows."
            )
        _log.warning("Table %s holds topic %s up to %s, as its position states.", self._name, part.topic, position)
        return stated(self._begins_at(part), position)

    def _adopt(self, part: TopicRange) -> Landed:
        """Make a table of another program this ingest's, from the position on that the settings state.

        Raises:
            IngestError, AnalysisException: the position or the columns do not fit; the table has no owner.
        """
        landed = self._stated(part)
        names = {name.lower() for name in self._target.schema.names}
        missing = [self._settings.prefix + name for name in _OF_CHANGES if self._settings.prefix + name not in names]
        if self._table.merges and missing:
            raise IngestError(
                f"the table {self._target.identifier} cannot be adopted in mode {self._table.mode}, whose changes find their rows "
                f"by the columns {', '.join(missing)}, which it lacks: use mode append, or let the ingest make the table."
            )
        rows = self._session.createDataFrame([], self._first_columns(part))
        self._target.add_columns(rows)
        of_topic = {COLUMNS_PROPERTY: json.dumps(sorted(name.lower() for name in rows.columns))}
        self._target.alter(
            owner_properties(landed)
            | made_properties(self._table)
            | position_property(landed)
            | (of_topic if self._table.merges else {})
        )
        self._files = None  # has the table as it was
        return landed

    def _forget_rejects(self, part: TopicRange) -> None:
        """Delete the rejects of a table of this name that was dropped, from where the new table begins: it lands them anew."""
        files = format_of(self._settings).open_files(
            self._session, self._settings, Table(topic=".*"), self._rejects, self._settings.rejects
        )
        if not (self._rejects if isinstance(files, str) else files).exists:
            return
        self._surroundings.await_rejects()
        if self._progress.held_rejects:
            _log.info(
                "The rejects of the table %s that was dropped are deleted: the new one lands its topic anew.",
                self._name,
            )
            self._rejects.delete_from(self._name, part.start)
            self._progress.held_rejects = 0

    def _newest_ms(self, landed: Landed) -> int | None:
        """Return the timestamp of the newest record of the table's last commit; of the whole table where that has no rows."""
        if landed.micro_batch < 0 or not landed.start:
            return None
        if landed.newest_ms is not None:
            return landed.newest_ms
        rows = KafkaColumns.of(self._target.rows, self._name, self._settings.prefix).of_topic(landed.topic)
        # Delta leaves files out by the offsets alone.
        offsets = F.col("offset").between(min(landed.start.values()), max(landed.end.values()))
        for some in (rows.where(offsets & before(landed.end) & ~before(landed.start)), rows):
            maximum = some.agg(F.unix_millis(F.max("timestamp"))).head()
            if maximum is not None and maximum[0] is not None:
                return int(maximum[0])
        return None

    def _begin(self, part: TopicRange, beginning: Beginning, *, is_new: bool) -> dict[int, int]:
        """Return where a table that is new begins in each partition, or one that is not in those that were added.

        What is older than the query's log remembers is read from its first record that is still there, or from where the oldest
        micro-batch ends if the query began at the latest records. Added partitions are read whole: what they have lost is an error.
        """
        oldest = {p: end if end == part.start[p] else 0 for p, end in beginning.oldest.items()}
        if is_new and self._settings.starting_offsets == "latest":
            oldest = dict(beginning.oldest)
        elif is_new and oldest:
            whole = replace(part, start=dict.fromkeys(oldest, 0), end={p: part.end[p] for p in oldest})
            oldest = dict(kept_range(self._settings.kafka_options, whole).start)
        return {p: beginning.known[p] if p in beginning.known else oldest.get(p, part.start[p]) for p in part.end}

    def _remember_begin(self, part: TopicRange) -> None:
        """Make a table without rows that remembers where its topic begins: Spark's log forgets it."""
        with suppress(Exception):  # what has failed is reported; the log remembers it for long enough, as a rule
            if not self._target.exists:
                self._create(part)

    def _landed(self, part: TopicRange, micro_batch: int, **more: Any) -> Landed:
        return Landed(
            query=self._query, micro_batch=micro_batch, topic=part.topic, topic_id=part.topic_id,
            start=part.start, end=part.end, **more,
        )  # fmt: skip

    def _begins_at(self, part: TopicRange) -> Landed:
        return self._landed(replace(part, end=part.start), -1)

    def _create(self, part: TopicRange) -> Landed:
        """Make the table without rows."""
        begins_at = self._begins_at(part)
        self._target.create(self._first_columns(part), self._table, self._query, begins_at)
        return begins_at

    def _first_columns(self, part: TopicRange) -> str:
        """Return the columns of a new table; those that are known in any case where the values' type is not, so that the
        table remembers where its topic begins.
        """
        try:
            schema = self._reader.schemas.value_schema()
            rows = self._reader.read(self._session, part, schema, None)
            if self._table.merges:
                rows = self._reader.contract.fitting(rows, has_unsent=False)
            return column_ddl(table_rows(rows, self._settings).schema)
        except Exception as error:
            if remedy_of(error) is not Remedy.CHANGE:
                raise
            return columns_without_value(self._settings)

    def _write(
        self, part: TopicRange, micro_batch: int, isolated: Sequence[IsolatedRecord], begin: Mapping[int, int] | None
    ) -> None:
        """Commit a range to the table, with the ``isolated`` records before it, from ``begin`` on, and write the rejects."""
        schema = self._reader.schemas.value_schema()
        landed = self._landed(
            part if begin is None else replace(part, start=begin),
            micro_batch, schema_id=schema.schema_id, sequence=self._progress.sequence + 1, attempt=new_attempt(),
            isolated=tuple(isolated),
        )  # fmt: skip
        self._surroundings.check_running()
        try:
            counted, rejects = self._write_rows(part, schema, landed)
        except AlreadyLandedError as error:
            # The newest commit that is known has not changed, and yet the table has a later one.
            if self._progress.refused == landed.sequence:
                raise lost_position(self._target.identifier) from error
            self._progress.refused = landed.sequence
            raise
        except Exception as error:
            of_delta = code_of(error).startswith("DELTA_") and remedy_of(error) is Remedy.CHANGE
            is_divertible = of_delta and not self._is_missing
            if self._table.on_conflict != "divert" or not is_divertible or schema.schema_id is None:
                raise
            schema = self._older_schema(error)
            landed = replace(landed, schema_id=schema.schema_id)
            counted, rejects = self._write_rows(part, schema, landed)
        progress = self._progress
        # Spark's commits to Delta take one transaction id, which is no position. While Spark compacts the table, deltalake may not
        # commit to it.
        if not (self._target.records_commits or progress.by_spark is None or self._by_spark):
            self._record(landed)
        n_rejects = counted.n_rejects + len(isolated)
        if n_rejects:
            self._write_rejects(part, schema, landed, rejects if counted.n_rejects else REJECTS.empty_table())
            if self._table.merges:
                progress.stale += n_rejects
                _log.warning(
                    "Table %s: %d changes of topic %s were rejected: their rows may be older than the topic's until newer changes "
                    "come, or the rejects are replayed. ingest --verify names them.",
                    self._name,
                    n_rejects,
                    part.topic,
                )
        self._count_untaken(part, counted.untaken)
        progress.schema_id = schema.schema_id
        progress.rows += counted.n - counted.n_rejects
        progress.rejects += n_rejects
        progress.held_rejects += n_rejects
        progress.commits += 1
        if counted.newest_ms:
            progress.newest_ms = max(progress.newest_ms or counted.newest_ms, counted.newest_ms)
        progress.position = self._position = {**self._position, **landed.end}
        progress.micro_batch, progress.sequence, progress.is_open = micro_batch, landed.sequence, True
        progress.landed_at, progress.refused = time.monotonic(), None

    def _record(self, landed: Landed) -> None:
        """Record the table's position where cleaning the table's history does not remove it."""
        try:
            self._target.record(landed)
        except Exception as error:  # the next commit, or the next start, records it
            _log.warning(
                "The position of table %s was not recorded: it is in the table's history alone until the next commit. %s",
                self._name,
                sentence_of(error),
            )

    def _older_schema(self, error: Exception) -> ValueSchema:
        """Return the schema that the table was last written with; values that it cannot read go to the rejects."""
        last = self._target.landed()
        if last is None or last.schema_id is None:
            raise error
        _log.warning(
            "Table %s cannot take the newest schema and goes on with %s: %s",
            self._name,
            last.schema_id,
            sentence_of(error),
        )
        return self._reader.schemas.value_schema(last.schema_id)

    def _count_untaken(self, part: TopicRange, untaken: Untaken | None) -> None:
        """Count and name the records that no table of the topic takes; ``untaken`` are those, where the read has shown them."""
        if not self._counts_untaken:
            return
        if untaken is None:
            try:
                untaken = self._looked_for_untaken(part)
            except Exception as error:  # of another table of the topic, as a rule
                _log.warning(
                    "The records of topic %s that none of its tables takes were not counted up to %s; ingest --verify counts "
                    "them. %s",
                    self._topic,
                    dict(part.end),
                    sentence_of(error),
                )
                return
        self._progress.untaken += untaken.n
        if untaken.n:
            _log.warning(
                "%d records of topic %s are taken by none of its tables; the first is at partition:offset %s. ingest --verify "
                "names them.",
                untaken.n,
                self._topic,
                untaken.first,
            )

    def _looked_for_untaken(self, part: TopicRange) -> Untaken:
        readers, by_tasks = self._surroundings.readers.of_topic(self._topic), None
        if self._progress.by_spark is None:
            by_tasks = count_untaken(self._session, readers, part)
        if by_tasks is None:
            others = untaken_places(self._session, readers, part)
            untaken = Untaken.of(others.agg(*Untaken.columns(F.lit(True))).collect()[0].asDict())
        else:
            untaken = Untaken.at(*by_tasks)
        self._reader.has_failed_census = False
        return untaken

    @property
    def _counts_untaken(self) -> bool:
        """Return whether this is the table that counts the records that no table of the topic takes: the first one."""
        first, *_ = self._settings.destinations(self._topic)
        return first.table.is_part and first.name == self._name

    def _census(self) -> Census | None:
        """Return what shows in the read of this table which records no table takes; None where only other reads do."""
        tables = self._reader.census_contracts
        if not tables:
            return None
        return Census(tables=tables, seen=Observation() if not self._table.merges else None)

    def _write_rows(self, part: TopicRange, schema: ValueSchema, landed: Landed) -> tuple[Counts, Any]:
        """Write rows, and count the records that were written, and that could not be read.

        Returns:
            The counts, and the rejects as :class:`~pykafka_wire.ingest.files.tasks.Written` has them, None where they are unknown.
        """
        census = self._census()
        try:
            return self._write_with_census(part, schema, landed, census)
        except (PySparkException, Py4JJavaError, IngestError) as error:
            if census is None or len(census.tables) == 1 or code_of(error).startswith("DELTA_"):
                raise
            # It may be the condition of another table, which is that table's trouble.
            self._reader.has_failed_census = True
            _log.debug("Table %s is written without looking at other tables' conditions.", self._name, exc_info=error)
            return self._write_with_census(part, schema, landed, None)

    def _write_with_census(
        self, part: TopicRange, schema: ValueSchema, landed: Landed, census: Census | None
    ) -> tuple[Counts, Any]:
        written = self._write_files(part, schema, landed, census)
        if isinstance(written, Written):
            self._progress.by_spark = None
            n = written.n_rows + written.n_rejects
            untaken = self._observed_untaken(census) if written.untaken is None else Untaken.at(*written.untaken)
            counted = Counts(n=n, n_rejects=written.n_rejects, newest_ms=written.newest_ms, untaken=untaken)
            return counted, written.rejects
        if self._progress.by_spark != written:
            self._progress.by_spark = written
            _log.info("Spark writes the files of table %s: %s", self._name, written)
        # An observation is of one job, which the tasks may have been.
        return self._write_by_spark(part, schema, landed, census and self._census()), None

    def _observed_untaken(self, census: Census | None) -> Untaken | None:
        """Return the records that no table takes, as they were seen while the table was written; None if they were not."""
        if census is None or census.seen is None:
            return None
        try:
            return Untaken.of(_counted(census.seen))
        except RuntimeError:  # Spark has left the count out; the rows are committed by now
            return None

    def _write_by_spark(self, part: TopicRange, schema: ValueSchema, landed: Landed, census: Census | None) -> Counts:
        known = None if self._is_missing else self._target
        read = self._reader.plan(self._session, part, schema, known, is_landed=True)

        def ranges() -> Iterator[SearchRange]:
            again = self._reader.changes(self._session, read, schema, with_headers=True)
            return self._search_ranges(again, part, schema)

        if not self._table.merges:
            shared = self._shared.of_range(part)
            with shared.records(self._session, self._reader, read, census) as rows:
                return self._write_read(rows, ranges, part, landed, census)
        rows = self._reader.changes(self._session, read, schema, census=census)
        return self._write_read(rows, ranges, part, landed, census)

    def _write_read(
        self,
        rows: DataFrame,
        ranges: Callable[[], Iterator[SearchRange]],
        part: TopicRange,
        landed: Landed,
        census: Census | None,
    ) -> Counts:
        seen = Observation()
        # Without a type of keys all records are rejects.
        is_append = not self._table.merges or rows.schema["key"].dataType == UNTYPED
        timestamp = "timestamp"
        marks = [name for name in (TAKEN, UNTAKEN) if name in rows.columns]
        if is_append and self._table.merges:
            rows = without_truncates(self._reader.contract.fitting(rows.drop(*marks), has_unsent=False))
            marks = []
        if is_append:  # before they are counted: Spark copies each row there, and a struct costs more than its fields
            rows = table_rows(rows, self._settings, REASON)
            timestamp = quoted(self._settings.prefix + timestamp)
        newest_ms = F.unix_millis(F.max(F.when(F.col(REASON).isNull(), F.col(timestamp))))
        rows = rows.observe(seen, *self._reader.mode.counts(rows), newest_ms.alias("newest_ms"))
        good = rows.where(F.col(REASON).isNull()).drop(REASON, *marks)
        if is_append and not self._table.merges:
            self._append(good, landed)
            counted = replace(Counts.of(_counted(seen)), untaken=self._observed_untaken(census))
        elif is_append:
            with computed(good) as rows:
                counted = Counts.of(_counted(seen))
                check_keys(counted, part.topic, self._target.identifier)
                self._append(rows, replace(landed, n_rejects=counted.n_rejects))
        else:
            with computed(newest(good)) as changed:
                counted = Counts.of(_counted(seen))
                check_keys(counted, part.topic, self._target.identifier)
                self._merge(changed, ranges, counted, replace(landed, n_rejects=counted.n_rejects))
        return counted

    def _search_ranges(self, again: DataFrame, part: TopicRange, schema: ValueSchema) -> Iterator[SearchRange]:
        """Return where values that were not sent may be: in the changes of a range, and in those of commits before it."""

        compacted = partial(may_be_compacted, self._settings.kafka_options, part.topic)
        whole = SearchRange(changes=searchable(again), start=part.start, may_be_compacted=compacted, rows_under=None)
        # A selected column is not what the database has sent.
        if self._is_missing or self._table.select:
            yield whole
            return
        prefix = self._settings.prefix
        yield replace(whole, rows_under=rows_under(self._target, prefix))
        for landed, rows in islice(self._target.earlier(), _EARLIER_COMMITS):
            start = {p: min(offset, landed.start.get(p, offset)) for p, offset in part.start.items()}
            larger = kept_range(self._settings.kafka_options, replace(part, start=start))
            read = self._reader.read(self._session, larger, schema, self._target, with_headers=True)
            of_table = None if rows is None else rows_under(self._target, prefix, rows)
            yield replace(whole, changes=searchable(read), start=larger.start, rows_under=of_table)

    def _merge(
        self, changed: DataFrame, ranges: Callable[[], Iterator[SearchRange]], counted: Counts, landed: Landed
    ) -> None:
        """Apply the newest changes of a range; ``ranges`` are where values are looked for that were not sent with them."""
        truncated = truncations(changed) if counted.n_truncates else []
        is_remembered = self._reader.mode.has_envelopes and not self._is_missing
        kept = without_truncated(changed, remember_truncations(self._target, truncated) if is_remembered else truncated)
        marks = [DELETE]
        if counted.n_unavailable:
            kept = filled(kept, ranges())
            marks += [UNAVAILABLE, CREATED]
        kept = self._reader.contract.fitting(kept, has_unsent=counted.n_unavailable > 0)
        rows = table_rows(kept, self._settings, *marks)
        if self._is_missing:
            self._append(rows.where(~F.col(DELETE)).drop(*marks), landed)
            remember_truncations(self._target, truncated)
        else:
            merge_changes(self._target, rows, self._settings.prefix, landed, truncated)

    def _append(self, rows: DataFrame, landed: Landed) -> None:
        if self._is_missing:
            self._target.append_first(rows, self._table, landed)
            self._is_missing = False
        else:
            self._target.append(rows, landed)

    def _by_files(self) -> FilesTable | str:
        """Return the table as files are committed to it, without the JVM; or the reason why Spark has to write them."""
        if self._by_spark:
            return "its small files are made large ones at the moment, by Spark"
        if self._files is None:
            files = format_of(self._settings).open_files(
                self._session, self._settings, self._table, self._target, self._name
            )
            if isinstance(files, str):
                return files
            self._files = files
        return self._files

    def _write_files(
        self, part: TopicRange, schema: ValueSchema, landed: Landed, census: Census | None
    ) -> Written | str:
        """Let tasks write the files, and commit them; or return the reason why Spark has to write them."""
        files = self._by_files()
        if isinstance(files, str):
            return files
        if not self._is_missing:
            files.refresh()
            if (reason := files.reason_against()) is not None:
                return reason
        known = None if self._is_missing else files
        read = self._reader.plan(self._session, part, schema, known)
        begins_at = self._begins_at(replace(part, start=landed.start)) if self._is_missing else None
        shared = self._shared.of_range(part)
        landing = FileLanding(self._session, self._settings, self._reader, self._table, self._target, shared)
        written = landing.land(files, read, landed, begins_at, census)
        self._is_missing = self._is_missing and isinstance(written, str) and not self._target.exists
        return written

    def _complete_rejects(self, landed: Landed) -> None:
        """Write the rejects of the table's newest commit, if the driver was killed between the two.

        Nothing is read again where the commit says that it has none, or the table of rejects has them.
        """
        part = TopicRange(topic=landed.topic, topic_id=landed.topic_id, start=landed.start, end=landed.end)
        n_landed = self._n_landed(landed)
        is_whole = (landed.n_rejects == 0 and not landed.isolated) or n_landed == part.n_offsets
        if not part.n_offsets or is_whole:
            return
        self._surroundings.await_rejects()
        of_this = (F.col("table") == self._name) & (F.col("micro_batch") == landed.micro_batch)
        # A table that is made anew has others of this number.
        of_this = of_this & before(part.end) & ~before(part.start)
        if not self._rejects.rows.where(of_this).isEmpty():
            return  # they are one commit
        try:
            if n_landed is not None and self._n_records(part) == n_landed:
                return  # offsets without a record
            schema = self._reader.schemas.value_schema(landed.schema_id)
            bad = self._late_rejects(replace(part, start=landed.read_start), schema, landed)
            self._commit_rejects(self._with_isolated(bad, landed), part, landed)
            self._progress.held_rejects += self._rejects.rows.where(of_this).count()
        except Exception as error:
            if code_of(error) not in (UNKNOWN_TOPIC, DATA_LOSS):
                raise
            _log.warning(
                "The records of the newest commit of table %s are no longer in topic %s: if there were rejects among them, and the "
                "driver was killed before it wrote them, they are lost.",
                self._name,
                landed.topic,
            )

    def _n_landed(self, landed: Landed) -> int | None:
        """Return how many records of a commit are rows; None where its rows do not say it.

        Only an append has a row for each record: a MERGE has one for all changes of a row, and none for a delete. Records that the
        table does not take are no rows either.
        """
        is_whole = not self._table.merges and not self._table.is_part
        return landed.n_added if is_whole else None

    def _n_records(self, part: TopicRange) -> int:
        """Return how many records a range has; offsets of transactions and of compacted topics have none."""
        return self._reader.source.rows(self._session, part, columns="offset").count()

    def _late_rejects(self, part: TopicRange, schema: ValueSchema, landed: Landed) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of a commit's records that could not be read.

        The settings may have changed since. No row of the table is a reject; what it lacks is one, whether it can be read by now or
        not, where the commit's number of rows shows which records those are: they have been appended, and none deleted since.
        """
        held = self._target.places.where(F.col("offset").between(min(part.start.values()), max(part.end.values())))
        bad = self._bad(part, schema).join(held, ["partition", "offset"], "left_anti")
        n_landed = self._n_landed(landed)
        if n_landed is None:
            return bad
        raw = self._reader.source.raw(self._session, part).select("partition", "offset")
        lacking = raw.join(held, ["partition", "offset"], "left_anti")
        if lacking.count() > raw.count() - n_landed:
            return bad
        reason = F.coalesce(F.col(REASON), F.lit("it could not be read by the settings of its time"))
        return lacking.join(bad, ["partition", "offset"], "left").withColumn(REASON, reason)

    def _bad(self, part: TopicRange, schema: ValueSchema) -> DataFrame:
        """Return ``partition``, ``offset`` and :data:`REASON` of records that cannot be read."""
        known = None if self._is_missing else self._target
        rows = self._reader.read(self._session, part, schema, known)
        return rows.where(F.col(REASON).isNotNull()).select("partition", "offset", REASON)

    def _write_rejects(self, part: TopicRange, schema: ValueSchema, landed: Landed, rejects: pa.Table | None) -> None:
        """Write records that could not be read, and the isolated ones, as bytes with the reason, in one commit.

        Args:
            part: the range that was read.
            rejects: its records that could not be read; None where they have to be looked for.
        """
        whole = replace(part, start=landed.start)
        if rejects is None:
            bad = self._bad(part, schema)
            self._commit_rejects(self._with_isolated(bad, landed), whole, landed)
        else:
            known = pa.concat_tables([rejects, pa.Table.from_pylist([*map(_reject_of, landed.isolated)], REJECTS)])
            bad = self._session.createDataFrame(known.rename_columns([*known.column_names[:2], REASON]))
            self._commit_rejects(bad, whole, landed, _span(whole, known))

    def _with_isolated(self, bad: DataFrame, landed: Landed) -> DataFrame:
        """Return records that could not be read, and a commit's isolated ones."""
        if not landed.isolated:
            return bad
        isolated = pa.Table.from_pylist([*map(_reject_of, landed.isolated)], REJECTS)
        return bad.unionByName(self._session.createDataFrame(isolated.rename_columns([*bad.columns])))

    def _commit_rejects(self, bad: DataFrame, part: TopicRange, landed: Landed, span: TopicRange | None = None) -> None:
        """Commit the rejects of ``part``, all of which are in ``span``, unless those of the table's commit are there already."""
        raw = self._reader.source.raw(self._session, span or part)
        rejected = raw.join(F.broadcast(bad), ["partition", "offset"]).select(
            F.lit(self._name).alias("table"),
            *("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
            F.col(REASON).alias("reason"),
            F.lit(landed.micro_batch).cast("bigint").alias("micro_batch"),
        )
        self._surroundings.await_rejects()
        self._surroundings.check_running()
        # By the table's id, too: one that is made anew has numbers that its predecessor's rejects have taken.
        application = f":{self._name}:{self._target.id}"
        try:
            self._rejects.append(rejected, replace(landed, application=application, attempt=new_attempt()))
        except AlreadyLandedError:
            # Written before a crash, and replayed since, or written by another driver that has found the commit without them.
            _log.debug("The rejects of the newest commit of table %s were written before.", self._name)


def _reject_of(record: IsolatedRecord) -> dict[str, object]:
    return record._asdict()


def _span(part: TopicRange, rejects: pa.Table) -> TopicRange:
    """Return the offsets of a range from the first reject of each partition to the last one."""
    ends = rejects.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    start = {end["partition"]: end["offset_min"] for end in ends}
    end = {end["partition"]: end["offset_max"] + 1 for end in ends}
    return replace(part, start={**part.end, **start}, end={**part.end, **end})
