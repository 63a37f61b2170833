"""Delta tables by their place alone, read by Spark; and tables of Spark's catalog, which may have another format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pykafka_wire.checkpoints.tables import identifier_of, pinned_table
from pykafka_wire.errors import OffsetsError
from pykafka_wire.ingest.tables.format import PlacedTable, TableWithoutSpark
from pykafka_wire.places import is_spark_s_to_resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlacedDeltaTables:
    """Delta tables by their place alone."""

    trace = "folder _delta_log (Delta)"

    def has_table(self, place: str) -> bool:
        return "/" not in place or ":" in place or Path(place, "_delta_log").is_dir()

    def properties(self, session: SparkSession, place: str) -> Mapping[str, str]:
        from pyspark.errors import PySparkException

        try:
            rows = session.sql(f"SHOW TBLPROPERTIES {identifier_of(place)}").collect()
        except PySparkException:  # the catalog has no properties, so the table belongs to no ingest
            return {}
        return {row.key: row.value for row in rows}

    @contextmanager
    def open(self, session: SparkSession, place: str, columns: Sequence[str] | None) -> Iterator[PlacedTable]:
        from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
        from pykafka_wire.ingest.tables.delta.history import landed_history
        from pykafka_wire.ingest.tables.delta.spark_table import commits_of

        rows, version = pinned_table(session, place)
        properties = self.properties(session, place)
        if version is None and TOPIC_PROPERTY in properties:
            raise OffsetsError(
                f"the table {place} belongs to an ingest and is not a Delta table: give its folder, or the path of its newest "
                "metadata file, which contains its position."
            )
        commits = partial(commits_of, session, identifier_of(place))
        history = iter(()) if version is None else landed_history(commits, version)
        yield PlacedTable(rows, properties, next(history, None))

    def opened(self, place: str) -> TableWithoutSpark | None:
        from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
        from pykafka_wire.ingest.tables.delta.opened_table import opened_table

        is_here = "/" in place and ":" not in place and not is_spark_s_to_resolve(place) and self.has_table(place)
        return opened_table(DeltaFolder(place)) if is_here else None

    def beside(self, place: str, name: str) -> str:
        folder, separator, _ = place.rstrip("/").rpartition("/" if "/" in place else ".")
        return f"{folder}{separator}{name}"
