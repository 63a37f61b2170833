"""The table of rejects of one run: made beside the first rows of tables, which seldom need it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.failures import sentence_of
from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.topic_table import TopicTable, check_owner

_log = logging.getLogger(__name__)

_COLUMNS: Final = (
    "table STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, micro_batch BIGINT"
)


class RejectsTable:
    """Makes the table of rejects, and counts what it holds of each table at the start."""

    def __init__(
        self,
        settings: Settings,
        query: str,
        sessions: SessionPool,
        on_counted: Callable[[Mapping[str, int] | None], None],
    ) -> None:
        """Take the run; nothing is made yet.

        Args:
            query: Spark's id of the query.
            on_counted: takes how many rejects there are of each table, by its name; None for a table of rejects that is new.
        """
        self._settings = settings
        self._query = query
        self._sessions = sessions
        self._on_counted = on_counted
        self._remaking = threading.Lock()
        self._made: Future[None] | None = None

    def begin(self, threads: Executor) -> None:
        """Begin to make the table, once."""
        if self._made is None:
            self._made = threads.submit(self._make)

    def wait(self) -> None:
        """Return when the table is there; what has failed before is tried again, and one that was dropped meanwhile is made anew:
        rows alone would make it a table of nobody."""
        assert self._made is not None
        with self._remaking:
            is_failed = self._made.exception() is not None  # first, since it waits
            if is_failed or not self._exists():  # in this thread: the others may all wait for it
                self._make()
                self._made = Future()
                self._made.set_result(None)

    def check(self) -> None:
        """Raise IngestError if the table is another program's, or the process ends."""
        assert self._made is not None
        error = self._made.exception()
        if isinstance(error, IngestError):
            raise error
        if error is not None and not isinstance(error, Exception):
            raise IngestError(f"the table of rejects was not made, since the process ends: {error!r}") from error
        if error is not None:
            _log.warning("The table of rejects cannot be made; tables with rejects wait for it. %s", sentence_of(error))

    def _open(self, session: SparkSession) -> TopicTable:
        return format_of(self._settings).open_table(session, self._settings, self._settings.rejects)

    def _exists(self) -> bool:
        with self._sessions.lent() as session:
            return self._open(session).exists

    def _make(self) -> None:
        with self._sessions.lent() as session:
            table = self._open(session)
            if not table.exists:
                table.create(_COLUMNS, Table(topic=".*"), self._query, None)
                self._on_counted(None)
                return
            check_owner(table, self._query, topic=None)
            counted = table.rows.groupBy("table").agg(F.count(F.lit(1)).alias("n")).collect()
        self._on_counted({row.table: row.n for row in counted})
