"""Snapshots that an Iceberg table forgets, and files that no snapshot names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.options.option import duration_ms

#: Between two looks for what Iceberg may forget.
_EXPIRE_EVERY: Final = 50


class ExpiringUpkeep:
    """Of a table whose format says how to forget what it was before."""

    def __init__(self, settings: Settings, table: Table, name: str) -> None:
        self.is_alone = table.merges
        self.spark_commits = False
        self._settings = settings
        self._table = table
        self._name = name
        self._next_look = 1

    def is_time(self, n_commits: int) -> bool:
        if n_commits < self._next_look:
            return False
        self._next_look = n_commits + _EXPIRE_EVERY
        return True

    def is_needed(self, session: SparkSession) -> bool:
        return True

    def run(self, session: SparkSession, check_running: Callable[[], None]) -> None:
        """Forget snapshots that are older than ``keep``, and delete the files of that age that no snapshot names."""
        from pykafka_wire.ingest.tables.iceberg.table import IcebergTable  # whose library is optional

        table, keep_ms = IcebergTable(session, self._settings, self._name), duration_ms(self._table.keep, "keep")
        table.expire(keep_ms)
        if self._table.compact != "false":
            table.clean(keep_ms, check_running)
