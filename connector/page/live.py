"""The documents of a running ingest.

One thread takes snapshots, and requests are answered from the newest snapshot, so that no request waits. Other threads read the
history of a table, a few at a time; a history is kept for some seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from pykafka_wire.page.documents import Document, history_document, ingest_document, table_document, tables_document
from pykafka_wire.page.sampling import Samples
from pykafka_wire.page.snapshots import IngestSnapshot, PageSource

_log = logging.getLogger(__name__)

#: The time between two snapshots while somebody watches the page, and while nobody does.
_WATCHED_TICK_S: Final = 1.0
_UNWATCHED_TICK_S: Final = 5.0
#: After this time without a request, nobody is watching.
_WATCHED_S: Final = 30.0
#: The age at which a table's history is read again.
_HISTORY_FRESH_S: Final = 5.0
#: The number of threads that read histories, and the most histories that are kept or queued.
_READERS: Final = 2
_HISTORIES: Final = 32
#: The longest that a request waits for a history. The reading continues, for the next request.
_HISTORY_WAIT_S: Final = 8.0


class NotReadyError(Exception):
    """There is nothing to show yet; the text says what the page is waiting for."""


class LiveDocuments:
    """The documents of one ingest, for :class:`~pykafka_wire.page.app.Documents`."""

    def __init__(self, source: PageSource, samples: Samples) -> None:
        self._source = source
        self._samples = samples
        self._snapshot: IngestSnapshot | None = None
        #: Encoded documents of the newest snapshot, by name.
        self._encoded: dict[str, tuple[IngestSnapshot, bytes]] = {}
        self._asked_at = float("-inf")
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._histories = _Histories(source)
        threading.Thread(target=self._take_snapshots, name="pykafka-wire-page-snapshots", daemon=True).start()

    def ingest(self) -> bytes:
        """Return ``/api/ingest``."""
        return self._make_once("ingest", ingest_document)

    def tables(self) -> bytes:
        """Return ``/api/tables``."""
        return self._make_once("tables", tables_document)

    def table(self, topic: str) -> bytes | None:
        """Return ``/api/table``; None if there is no such topic."""
        document = table_document(self._newest(), topic, self._source, self._samples)
        return None if document is None else _encode(document)

    async def history(self, topic: str) -> bytes | None:
        """Return ``/api/table/history``; None if there is no such topic.

        Raises:
            NotReadyError: reading takes too long, or too many other histories are being read.
        """
        if all(table.key != topic for table in self._newest().tables):
            return None
        try:
            # Shielded: a request that no longer waits does not cancel the reading.
            reading = asyncio.shield(asyncio.wrap_future(self._histories.reading(topic)))
            return await asyncio.wait_for(reading, _HISTORY_WAIT_S)
        except asyncio.TimeoutError:  # a class of its own before Python 3.11
            raise NotReadyError("the table's log is still being read") from None

    def close(self) -> None:
        """Take no more snapshots."""
        self._closed.set()
        self._asked.set()
        self._histories.close()
        self._source.close()

    def _make_once(self, name: str, make: Callable[[IngestSnapshot, Samples], Document]) -> bytes:
        """Return a document as bytes, made only once for each snapshot, however many pages are open. Only the server's thread calls
        this method."""
        snapshot = self._newest()
        made_of, encoded = self._encoded.get(name, (None, b""))
        if made_of is not snapshot:
            encoded = _encode(make(snapshot, self._samples))
            self._encoded[name] = snapshot, encoded
        return encoded

    def _newest(self) -> IngestSnapshot:
        self._asked_at = time.monotonic()
        self._asked.set()
        if self._snapshot is None:
            raise NotReadyError("the ingest is starting")
        return self._snapshot

    def _take_snapshots(self) -> None:
        while not self._closed.is_set():
            is_watched = time.monotonic() - self._asked_at < _WATCHED_S
            try:
                snapshot = self._source.snapshot(is_watched=is_watched)
                if self._samples.is_due():
                    self._samples.add(snapshot)
                self._snapshot = snapshot
            except Exception:  # the page shows the age of its data, and the ingest continues
                _log.debug("The page could not take a snapshot.", exc_info=True)
            if is_watched:
                self._closed.wait(_WATCHED_TICK_S)
            else:
                self._asked.clear()
                self._asked.wait(_UNWATCHED_TICK_S)


class _Histories:
    """Histories of tables that are being read, or were read recently."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        #: The start of each reading and its document, by table key.
        self._readings: OrderedDict[str, tuple[float, Future[bytes]]] = OrderedDict()
        self._waiting: queue.SimpleQueue[tuple[str, Future[bytes]] | None] = queue.SimpleQueue()
        # Daemon threads, since a program waits for the threads of an executor at its end.
        for number in range(_READERS):
            threading.Thread(target=self._read, name=f"pykafka-wire-page-history-{number}", daemon=True).start()

    def reading(self, topic: str) -> Future[bytes]:
        """Return a recent history, or one that is being read.

        Raises:
            NotReadyError: too many other histories are being read.
        """
        now = time.monotonic()
        with self._lock:
            begun, reading = self._readings.get(topic, (float("-inf"), None))
            if reading is not None and (not reading.done() or now - begun < _HISTORY_FRESH_S):
                return reading
            for name in [name for name, (_, reading) in self._readings.items() if reading.done()]:
                if len(self._readings) >= _HISTORIES:
                    del self._readings[name]
            if len(self._readings) >= _HISTORIES:
                raise NotReadyError("the logs of many tables are being read")
            reading = Future()
            self._readings[topic] = now, reading
            self._readings.move_to_end(topic)
            self._waiting.put((topic, reading))
            return reading

    def close(self) -> None:
        for _ in range(_READERS):
            self._waiting.put(None)

    def _read(self) -> None:
        while (asked := self._waiting.get()) is not None:
            topic, reading = asked
            try:
                reading.set_result(_encode(history_document(topic, self._source.history(topic))))
            except Exception as error:
                reading.set_exception(error)


def _encode(document: Document) -> bytes:
    # No NaN, which browsers refuse. ASCII, since damaged names have surrogates, which UTF-8 cannot encode.
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
