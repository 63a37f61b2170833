"""A read shared by several tables of a topic: Spark caches its rows while one of the tables needs them.

Each table is still landed on its own. If computing the rows fails for a table, only that table has failed; another table computes
the missing rows. If two tasks on one executor need the same partition, Spark lets one wait for the other; on two executors, tables
that are written at the same time may both read it.

The rows belong to the session of the first table, and another table may use that session meanwhile. So the metadata of a commit is
passed as options of the write, which Delta prefers to settings of the session.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import Read, TableReader

#: An option in which otherwise equal reads may differ. A shared read includes the headers for all tables.
_HEADERS: Final = "includeHeaders"


class _PersistedRows(NamedTuple):
    """Cached rows; ``users`` are the names of the tables whose attempts may still need them."""

    rows: DataFrame
    users: set[str]


class SharedRead:
    """The read of a micro-batch's range that tables of one topic share."""

    def __init__(
        self,
        topic_range: TopicRange | None = None,
        readers: Collection[TableReader] = (),
        *,
        by_spark: Collection[str] = (),
        with_headers: bool = False,
    ) -> None:
        """Store the readers of tables with equal read settings. Each of these tables calls :meth:`end`.

        Args:
            by_spark: the names of the tables whose files Spark writes.
            with_headers: whether an expression of one of the tables may use the headers.
        """
        self._range = topic_range
        self._readers = {reader.name: reader for reader in readers}
        self._by_spark = frozenset(by_spark)
        self._with_headers = with_headers
        self._lock = threading.Lock()
        self._persisted: dict[frozenset[tuple[str, str]], _PersistedRows] = {}

    def of_range(self, topic_range: TopicRange) -> SharedRead:
        """Return this object for a table that reads the shared range; otherwise an unshared read."""
        return self if topic_range == self._range else SharedRead()

    @contextmanager
    def records(
        self,
        session: SparkSession,
        reader: TableReader,
        read: Read,
    ) -> Iterator[DataFrame]:
        """Yield the result of :meth:`TableReader.records`, computed from cached rows if other tables need the rows, too."""
        rows = self._shared_rows(session, reader, read)
        yield reader.records(reader.rows(session, read) if rows is None else rows)

    def end(self, name: str) -> None:
        """Release the table's claim. Cached rows without a claim are dropped."""
        with self._lock:
            self._readers.pop(name, None)
            for persisted in self._persisted.values():
                if name in persisted.users:
                    persisted.users.discard(name)
                    if not persisted.users:
                        with suppress(Exception):  # Spark is stopping, and drops its cache
                            persisted.rows.unpersist()

    def _shared_rows(self, session: SparkSession, reader: TableReader, read: Read) -> DataFrame | None:
        if self._with_headers:
            read = read.with_option(_HEADERS, "true")
        options = frozenset(read.options.items())
        with self._lock:
            persisted, waiting = self._persisted.get(options), dict(self._readers)
        if persisted is None and len(waiting) > 1:
            users = {
                other
                for other, waiting_reader in waiting.items()
                if other in self._by_spark or waiting_reader.needs_spark(session, read)
            }
            persisted = self._persist(session, reader, read, users)
        return persisted.rows if persisted is not None and reader.name in persisted.users else None

    def _persist(
        self, session: SparkSession, reader: TableReader, read: Read, users: set[str]
    ) -> _PersistedRows | None:
        """Cache the rows of a read for several tables. Another thread may have done so already."""
        options = frozenset(read.options.items())
        with self._lock:
            if options not in self._persisted:
                users = users & self._readers.keys()
                if len(users) < 2:
                    return None
                self._persisted[options] = _PersistedRows(reader.rows(session, read).persist(), users)
            return self._persisted[options]
