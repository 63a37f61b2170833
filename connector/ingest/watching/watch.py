"""Observes a running ingest: its tables, Spark's progress, and the records that Spark's tasks have read.

The terminal, the page and the metrics share one watch. It asks neither brokers nor the registry.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from pykafka_wire.ingest.landing.landing import status_of
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.progress import ReadFigures, StageProgress, TaskRecords
from pykafka_wire.ingest.watching.history import KEPT, Observation, StatusHistory, TopicWaits
from pykafka_wire.ingest_status import IngestStatus, Moment, TableStatus
from pykafka_wire.options.option import AUTO, MOST_AUTO_OFFSETS, duration_ms
from pykafka_wire.task_metrics import TaskFigures
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

#: The format whose values are read twice if no type is declared, once to infer the type.
_INFERRED: Final = "json"
#: If a trigger takes longer than this to find new records, brokers do not respond.
_SILENT_S: Final = 15.0


class PlannedFormat(Protocol):
    """What is known about a table before the start."""

    @property
    def key(self) -> str: ...

    @property
    def format(self) -> str: ...


class WatchedIngest(Protocol):
    """The part of an ingest that a watch uses."""

    settings: Settings
    reads: ReadFigures | None

    @property
    def micro_batch(self) -> MicroBatch | None: ...

    @property
    def reported(self) -> Mapping[str, TableStatus]: ...

    def helper_topics(self, topics: Iterable[str]) -> Iterable[str]: ...


class IngestWatch:
    """Observes one run of an ingest. Thread-safe."""

    def __init__(self, ingest: WatchedIngest, planned: Sequence[PlannedFormat]) -> None:
        """Store the ingest; ``planned`` are the tables of all existing topics, including topics without records."""
        self._ingest = ingest
        self._lock = threading.Lock()
        self._history = StatusHistory(self._waits_of)
        self._formats = {table.key: table.format for table in planned}
        self._lost_readers: Mapping[str, Sequence[str]] = {}
        self._n_reads = {key: self._n_reads_of(key) for key in self._formats}
        self._tasks: TaskRecords | None = None
        self._of_batch: MicroBatch | None = None
        self._query: StreamingQuery | None = None
        self._silence = _Silence()
        #: The tables of all known topics, by table key, and the topics in the newest plan.
        self._known = {key: ingest.settings.destination(key) for key in self._formats}
        self._topics: frozenset[str] = frozenset()
        self._places: dict[str, str] = {}

    def start(self, spark: SparkSession) -> None:
        """Note that Spark is running."""
        self._tasks = TaskRecords(spark)

    def expect_lost_readers(self, sentences: Mapping[str, Sequence[str]]) -> None:
        """Note what the planned columns cost other readers, by table key."""
        self._lost_readers = sentences

    def follow(self, query: StreamingQuery) -> None:
        """Note that the query is running. A query of Spark Connect is not observed, since the server lands the tables."""
        self._query = query if hasattr(query, "_jsq") else None

    def status(self) -> IngestStatus:
        """Return the current status of the ingest."""
        with self._lock:
            batch = self._ingest.micro_batch
            is_planning, silent_s = self._take_progress(is_landing=batch is not None)
            reported = self._ingest.reported
            idle = (status_of(each) for key, each in self._destinations().items() if key not in reported)
            tables = [self._described(status) for status in (*reported.values(), *idle)]
            moment = Moment(time.time(), time.monotonic())
            return self._history.status(
                Observation(
                    moment=moment,
                    tables=tables,
                    batch=batch,
                    n_read=self._n_read(batch, tables),
                    is_started=self._query is not None,
                    is_planning=is_planning,
                    silent_s=silent_s,
                )
            )

    def _take_progress(self, *, is_landing: bool) -> tuple[bool, float | None]:
        """Return whether the query is planning, and for how long its brokers have not responded."""
        reads = self._ingest.reads

        def figures_of(number: int) -> TaskFigures | None:
            return None if reads is None else reads.of_batch(number)

        if self._query is None:
            return False, None
        try:
            for progress in _progresses(self._query, self._history.newest_number):
                self._history.add_progress(progress, figures_of)
            is_planning = not is_landing and bool(self._query.status["isTriggerActive"])
            return is_planning, self._silence.seconds(self._query, time.monotonic(), is_landing=is_landing)
        except Exception:  # Spark has stopped: the last observation stays
            _log.debug("Spark's progress could not be read.", exc_info=True)
            return False, None

    def _destinations(self) -> Mapping[str, Destination]:
        """Return the tables of all known topics, by table key."""
        settings, topics = self._ingest.settings, frozenset(self._history.topics)
        if topics != self._topics:
            lands = [topic for topic in topics if settings.lands(topic)]
            helpers = set(self._ingest.helper_topics(lands))
            for topic in lands:
                if topic not in helpers:
                    self._known |= {each.key: each for each in settings.destinations(topic)}
            self._topics = topics
        return self._known

    def _described(self, status: TableStatus) -> TableStatus:
        key = status.key
        if key not in self._places:
            self._places[key] = without_secrets(self._ingest.settings.place(status.name))
        return replace(
            status,
            place=self._places[key],
            format=self._formats.get(key, status.format),
            lost_readers=() if status.commits else tuple(self._lost_readers.get(key, ())),
        )

    def _n_read(self, batch: MicroBatch | None, tables: Iterable[TableStatus]) -> dict[str, int]:
        """Return the number of records that each table's tasks have read in the running micro-batch."""
        if self._tasks is None:
            return {}
        if batch is not self._of_batch:
            self._of_batch = batch
            self._tasks.clear()
        read = {} if batch is None else self._tasks.look()
        return {
            table.key: read.get(table.name, StageProgress()).n_records // self._n_reads.get(table.key, 1)
            for table in tables
        }

    def _n_reads_of(self, key: str) -> int:
        is_declared = self._ingest.settings.destination(key).table.schema is not None
        return 2 if self._formats[key] == _INFERRED and not is_declared else 1

    def _waits_of(self, topic: str) -> TopicWaits:
        table = self._ingest.settings.table_for(topic)
        return TopicWaits(
            min_rows=table.min_rows if isinstance(table.min_rows, int) else MOST_AUTO_OFFSETS,
            max_delay_s=None if table.max_delay == AUTO else duration_ms(table.max_delay, "max_delay") / 1000,
        )


def _progresses(query: StreamingQuery, after: int) -> Iterator[Any]:  # Any: JSON
    """Yield the progress of the micro-batches after ``after``, and always of the newest trigger, oldest first.

    The JVM's objects are read as JSON: converting all of Spark's recent progress to Python objects would take a thousand calls.
    """
    java: Any = query._jsq
    newest = java.lastProgress()
    if newest is None:
        return
    n_new = min(int(newest.batchId()) - after, KEPT)
    if n_new > 1:
        recent = java.recentProgress()
        for progress in [recent[index] for index in range(max(0, len(recent) - KEPT), len(recent) - 1)]:
            if int(progress.batchId()) > after:
                yield json.loads(progress.json())
    yield json.loads(newest.json())


class _Silence:
    """Measures since when brokers have been asked for new records: a trigger has begun, but neither a micro-batch nor its end
    followed."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def seconds(self, query: StreamingQuery, now: float, *, is_landing: bool) -> float | None:
        """Return the seconds without a response; None if the time is usual, or before the first trigger has ended, while Spark
        starts."""
        java: Any = query._jsq
        newest = java.lastProgress()
        if is_landing or newest is None or not java.isActive() or not java.status().isTriggerActive():
            self._asked = None
            return None
        # An idle query runs triggers continuously, but reports one only every 10 s.
        told = str(newest.timestamp())
        if self._asked is None or self._asked[0] != told:
            self._asked = told, now
        seconds = now - self._asked[1]
        return seconds if seconds >= _SILENT_S else None
