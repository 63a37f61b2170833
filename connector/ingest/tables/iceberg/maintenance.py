"""The maintenance of an Iceberg table: expires snapshots, and deletes files that no snapshot names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.compaction import OwnCompaction
from pykafka_wire.options.option import duration_ms

#: The number of a run's commits between two expirations.
_EXPIRE_EVERY: Final = 50


class IcebergMaintenance:
    """Maintains an Iceberg table. Compaction of other programs' files is left to the user's engine."""

    def __init__(self, settings: Settings, table: Table, name: str, compaction: OwnCompaction | None) -> None:
        """Store the settings, and the compaction of the ingest's own files; None if the ingest does not compact them."""
        self.blocks_landing = table.merges
        self.spark_commits = False
        self.compaction = compaction
        self._settings = settings
        self._table = table
        self._name = name
        self._next_check = 1

    def is_check_due(self, n_commits: int) -> bool:
        if n_commits < self._next_check:
            return False
        self._next_check = n_commits + _EXPIRE_EVERY
        return True

    def is_needed(self, session: SparkSession) -> bool:
        return True

    def run(self, session: SparkSession, check_running: Callable[[], None]) -> None:
        """Expire snapshots older than ``keep``, and delete files of that age that no snapshot names."""
        from pykafka_wire.ingest.tables.iceberg.table import IcebergTable  # whose library is optional

        table, keep_ms = IcebergTable(session, self._settings, self._name), duration_ms(self._table.keep, "keep")
        table.expire(keep_ms)
        if self._table.compact != "false":
            table.clean(keep_ms, check_running)
