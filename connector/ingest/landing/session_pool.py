"""Spark sessions for attempts that run at the same time: the settings that add metadata to a commit belong to a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.ingest.spark.row_settings import set_row_settings


class SessionPool:
    """Lends each session to one user at a time.

    Attributes:
        base: the session of the newest micro-batch, from which the others are cloned; None before the first micro-batch.
    """

    def __init__(self, prepare: Callable[[SparkSession], None]) -> None:
        """Begin without sessions.

        Args:
            prepare: sets what the table format needs in a new session.
        """
        self._prepare = prepare
        self.base: SparkSession | None = None
        self._lock = threading.Lock()
        self._idle: list[SparkSession] = []

    @contextmanager
    def borrow(self) -> Iterator[SparkSession]:
        """Lend a session. Requires :attr:`base`."""
        with self._lock:
            session = self._idle.pop() if self._idle else None
        if session is None:
            assert self.base is not None, "a micro-batch was landed"
            session = _made_of(self.base)
            self._prepare(session)
        try:
            yield session
        finally:
            with self._lock:
                self._idle.append(session)


def _made_of(base: SparkSession) -> SparkSession:
    """Return a new session with the settings of ``base``."""
    # PySpark's classic sessions have the method in Java alone.
    session: SparkSession = (
        base.cloneSession()
        if hasattr(base, "cloneSession")
        else type(base)(base.sparkContext, base._jsparkSession.cloneSession())
    )
    # A platform may install libraries after Spark has looked up its data sources.
    session.dataSource.register(PykafkaWireDataSource)
    set_row_settings(session)
    return session
