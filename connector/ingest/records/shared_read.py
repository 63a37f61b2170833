"""A read that several tables of a topic take their parts of: Spark keeps its rows while one of the tables needs them.

Each table still lands on its own. What fails while a table computes the rows is that table's trouble: another one computes what
is not there yet. Of two tasks of one executor that need the same part, Spark lets one wait for the other; on two executors, tables
that are written side by side may both read it.

The rows belong to the session of the table that came first, which another table may get meanwhile. So what a commit needs is given
as options of the write, which Delta prefers to settings of the session.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.reader import Read, TableReader

#: An option in which tables may differ whose expressions name the headers or do not: what is shared has them for all.
_HEADERS: Final = "includeHeaders"


class _PersistedRows(NamedTuple):
    """Rows that Spark keeps; ``users`` are the names of tables whose attempts may still need them."""

    rows: DataFrame
    users: set[str]


class SharedRead:
    """What tables of one topic read of a micro-batch's range, and of no other range."""

    def __init__(
        self,
        part: TopicRange | None = None,
        readers: Collection[TableReader] = (),
        *,
        by_spark: Collection[str] = (),
        with_headers: bool = False,
    ) -> None:
        """Take the readers of tables that read their records alike, each of which calls :meth:`end`.

        Args:
            by_spark: names of those whose files Spark writes.
            with_headers: whether an expression of one of the topic's tables may name the headers.
        """
        self._part = part
        self._readers = {reader.name: reader for reader in readers}
        self._by_spark = frozenset(by_spark)
        self._with_headers = with_headers
        self._lock = threading.Lock()
        self._persisted: dict[frozenset[tuple[str, str]], _PersistedRows] = {}

    def of_range(self, part: TopicRange) -> SharedRead:
        """Return this one for a table that reads its range; else one that nobody shares."""
        return self if part == self._part else SharedRead()

    @contextmanager
    def records(
        self,
        session: SparkSession,
        reader: TableReader,
        read: Read,
    ) -> Iterator[DataFrame]:
        """Lend what :meth:`TableReader.records` returns of a read: of rows that are kept, where other tables need them, too."""
        rows = self._shared_rows(session, reader, read)
        yield reader.records(reader.rows(session, read) if rows is None else rows)

    def end(self, name: str) -> None:
        """Note that a table needs no rows any more; what nobody needs is not kept any longer."""
        with self._lock:
            self._readers.pop(name, None)
            for persisted in self._persisted.values():
                if name in persisted.users:
                    persisted.users.discard(name)
                    if not persisted.users:
                        with suppress(Exception):  # Spark ends, and what it keeps with it
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
        """Keep the rows of a read for the tables of these names, if they are several; another thread may have begun it."""
        options = frozenset(read.options.items())
        with self._lock:
            if options not in self._persisted:
                users = users & self._readers.keys()
                if len(users) < 2:
                    return None
                self._persisted[options] = _PersistedRows(reader.rows(session, read).persist(), users)
            return self._persisted[options]
