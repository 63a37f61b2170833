"""A read that several tables of a topic take their parts of: fetched and decoded once, and kept by Spark while one needs it.

Each table still lands on its own. What fails while a table computes the rows is that table's trouble: another one computes what is
not there yet. Spark lets one of two tasks that need the same part wait for the other one.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pykafka_wire.ingest.contracts import Census
from pykafka_wire.ingest.settings import Destination
from pykafka_wire.ingest.topic_rows import Read, TopicReader

#: An option in which tables may differ whose expressions name the headers or do not: what is shared has them for all.
_HEADERS: Final = "includeheaders"


@dataclass(slots=True, kw_only=True)
class _Kept:
    """Rows that Spark keeps.

    Attributes:
        waiting: names of tables that have not begun with them.
        n_using: tables that are at work with them.
    """

    rows: DataFrame
    waiting: set[str]
    n_using: int = 0
    is_kept: bool = True


class SharedRead:
    """What tables of one topic that are due together read; closed at the end of their micro-batch."""

    def __init__(self, destinations: Collection[Destination] = (), *, with_headers: bool = False) -> None:
        """Take tables that read their records alike, from the same position on.

        Args:
            with_headers: whether a condition of one of the topic's tables may name the headers.
        """
        self._destinations = tuple(destinations)
        self._with_headers = with_headers
        self._lock = threading.Lock()
        self._is_closed = False
        self._kept_by_options: dict[frozenset[tuple[str, str]], _Kept] = {}

    @contextmanager
    def records(
        self,
        session: SparkSession,
        reader: TopicReader,
        destination: Destination,
        read: Read,
        census: Census | None,
    ) -> Iterator[DataFrame]:
        """Lend what :meth:`TopicReader.records` returns of a read: of rows that are kept, where others of the tables need them
        as well."""
        kept = self._begin(session, reader, destination, read)
        if kept is None:
            with_headers = census is not None and reader.needs_headers(census.tables)
            rows = reader.rows(session, read, with_headers=with_headers)
            yield reader.records(rows, destination.table, census)
            return
        try:
            yield reader.records(kept.rows, destination.table, census)
        finally:
            with self._lock:
                kept.n_using -= 1
                self._release(kept)

    def close(self) -> None:
        """Keep nothing any longer than a table is at work with it, and nothing anew."""
        with self._lock:
            self._is_closed = True
            for kept in self._kept_by_options.values():
                self._release(kept)

    def _begin(self, session: SparkSession, reader: TopicReader, destination: Destination, read: Read) -> _Kept | None:
        options = frozenset(option for option in read.options.items() if option[0].lower() != _HEADERS)
        with self._lock:
            if options not in self._kept_by_options:
                users = {each.name for each in self._destinations if reader.is_spark_s(session, read, each)}
                if self._is_closed or len(users) < 2:
                    return None
                rows = reader.rows(session, read, with_headers=self._with_headers).persist()
                self._kept_by_options[options] = _Kept(rows=rows, waiting=users)
            kept = self._kept_by_options[options]
            if self._is_closed or not kept.is_kept:
                return None
            kept.waiting.discard(destination.name)
            kept.n_using += 1
            return kept

    def _release(self, kept: _Kept) -> None:
        if kept.is_kept and not kept.n_using and (self._is_closed or not kept.waiting):
            kept.is_kept = False
            with suppress(Exception):  # Spark ends, and its cache with it
                kept.rows.unpersist()
