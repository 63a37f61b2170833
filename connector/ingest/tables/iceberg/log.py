"""An Iceberg table's snapshots and schemas, read from its metadata, in the same form as Delta's log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.iceberg.catalog import load_table
from pykafka_wire.ingest.tables.iceberg.positions import landed_in, summary_of
from pykafka_wire.ingest.tables.iceberg.stored_table import arrow_type
from pykafka_wire.ingest.tables.log import LoggedCommit, schema_changes
from pykafka_wire.ingest_status import TableSize

#: The most snapshots that are shown.
_KEPT: Final = 200


class IcebergLog:
    """The snapshots of one table, with the sequence numbers of the format. Not thread-safe."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self.commits: deque[LoggedCommit] = deque(maxlen=_KEPT)
        self.is_whole = True
        self.schema: StructType | None = None

    def refresh(self) -> None:
        """Read the snapshots that the table keeps.

        Raises:
            OSError: the table cannot be loaded.
        """
        stored = _loaded(self._settings, self._name)
        schemas = {schema.schema_id: _spark_schema(schema) for schema in stored.schemas().values()}
        snapshots = stored.metadata.snapshots[-_KEPT:]
        self.is_whole = not snapshots or snapshots[0].parent_snapshot_id is None
        self.commits.clear()
        before = None
        for number, snapshot in enumerate(snapshots):
            schema = schemas.get(snapshot.schema_id)
            summary = summary_of(snapshot)
            operation = "" if snapshot.summary is None else str(snapshot.summary.operation.value)
            # The files of such a snapshot have the rows of other files.
            added = {} if operation == "replace" else summary
            self.commits.append(
                LoggedCommit(
                    version=snapshot.sequence_number or number,
                    at=snapshot.timestamp_ms / 1000,
                    operation=operation,
                    rows=int(added.get("added-records", 0)),
                    files=int(added.get("added-data-files", 0)),
                    bytes=int(added.get("added-files-size", 0)),
                    landed=landed_in(snapshot),
                    schema=None if schema == before else schema,
                )
            )
            before = schema
        self.schema = schemas.get(stored.metadata.current_schema_id)

    def size(self) -> TableSize | None:
        """Return the table's size from its newest snapshot.

        Raises:
            OSError: the table cannot be loaded.
        """
        snapshot = _loaded(self._settings, self._name).current_snapshot()
        if snapshot is None:
            return TableSize(0, 0)
        summary = summary_of(snapshot)
        return TableSize(int(summary.get("total-data-files", 0)), int(summary.get("total-files-size", 0)))

    def schemas(self) -> Iterator[tuple[LoggedCommit, StructType | None, StructType]]:
        """Yield the same as :meth:`~pykafka_wire.ingest.tables.delta.log.DeltaLog.schemas`."""
        return schema_changes(None, self.commits)


def _loaded(settings: Settings, name: str) -> Any:  # Any: pyiceberg is optional
    try:
        return load_table(settings, name)
    except Exception as error:  # each catalog's library has errors of its own
        raise OSError(f"the catalog does not return the table {settings.place(name)}: {error}") from error


def _spark_schema(schema: Any) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in arrow_type(schema)])
