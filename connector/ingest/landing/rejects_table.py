"""The table of rejects of one run. It is created in the background, since few tables need it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.tables.files_table import FilesTable
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.rejects import RejectOwner, count_by_owner
from pykafka_wire.ingest.tables.topic_table import TopicTable, check_owner
from pykafka_wire.values.ddl import arrow_type

_log = logging.getLogger(__name__)

_COLUMNS: Final = (
    "table STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, micro_batch BIGINT, topic_id STRING"
)
_SCHEMA: Final = pa.schema(arrow_type(_COLUMNS))


class RejectsTable:
    """Creates the table of rejects, and counts its rows by table at the start."""

    def __init__(
        self,
        settings: Settings,
        query: str,
        sessions: SessionPool,
        on_counted: Callable[[Mapping[RejectOwner, int] | None], None],
    ) -> None:
        """Store the run's resources. Creates nothing.

        Args:
            query: the id of Spark's query.
            on_counted: receives the number of rejects of each table; None if the table of rejects is new.
        """
        self._settings = settings
        self._query = query
        self._sessions = sessions
        self._on_counted = on_counted
        self._remaking = threading.Lock()
        self._made: Future[None] | None = None

    def begin(self, threads: Executor) -> None:
        """Begin to create the table, once."""
        if self._made is None:
            self._made = threads.submit(self._make)

    def wait(self) -> None:
        """Wait until the table exists. A failed creation is tried again, and a table that was dropped meanwhile is created again:
        otherwise the next append would create a table without an owner."""
        assert self._made is not None
        with self._remaking:
            is_failed = self._made.exception() is not None  # waits for the creation
            if is_failed or not self._exists():  # in this thread: all other threads may be waiting for the table
                self._make()
                self._made = Future()
                self._made.set_result(None)

    def check(self) -> None:
        """Raise IngestError if the table belongs to another program, or if the process is ending."""
        assert self._made is not None
        error = self._made.exception()
        if isinstance(error, IngestError):
            raise error
        if error is not None and not isinstance(error, Exception):
            raise IngestError(
                f"the table of rejects was not created, since the process is ending: {error!r}"
            ) from error
        if error is not None:
            _log.warning(
                "The table of rejects cannot be created; tables with rejects wait for it. %s", sentence_of(error)
            )

    def _open(self, session: SparkSession) -> TopicTable:
        return format_of(self._settings).open_table(session, self._settings, self._settings.rejects)

    def _exists(self) -> bool:
        with self._sessions.borrow() as session:
            return self._open(session).exists

    def _make(self) -> None:
        of_rejects = Table(topic=".*", write=self._settings.defaults.write)
        with self._sessions.borrow() as session:
            table = self._open(session)
            files = format_of(self._settings).open_files(
                session, self._settings, of_rejects, table, self._settings.rejects
            )
            if not (table if isinstance(files, SparkAlone) else files).exists:
                self._create(table, files, of_rejects)
                self._on_counted(None)
                return
            check_owner(table, self._query, topic=None)
            counted = count_by_owner(table)
        self._on_counted(counted)

    def _create(self, table: TopicTable, files: FilesTable | SparkAlone, of_rejects: Table) -> None:
        if not isinstance(files, SparkAlone):
            try:
                # In milliseconds, for which Spark needs seconds.
                files.create_of(_SCHEMA, of_rejects, self._query, None)
                return
            except Exception as error:  # Spark may have other credentials
                _log.debug("The table of rejects is created by Spark: %s", error)
        table.create(_COLUMNS, of_rejects, self._query, None)
