"""Iceberg tables by their place alone: a folder, or the path of a metadata file.

pyiceberg copies the columns for Spark, so that the session needs no jar of Iceberg.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykafka_wire.errors import MissingLibraryError, OffsetsError
from pykafka_wire.ingest.tables.format import PlacedTable, TableWithoutSpark
from pykafka_wire.ingest.tables.iceberg.long_properties import joined
from pykafka_wire.places import local_folder
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METADATA: Final = ".metadata.json"


class PlacedIcebergTables:
    """Iceberg tables by their place alone."""

    trace = "metadata (Iceberg)"

    def has_table(self, place: str) -> bool:
        local = local_folder(place) if "/" in place else None
        return "/" in place and (
            place.endswith(_METADATA) or (local is not None and any(Path(local, "metadata").glob(f"*{_METADATA}")))
        )

    def properties(self, session: SparkSession, place: str) -> Mapping[str, str]:
        with _stored_at(place) as stored:
            return joined(stored.properties)

    @contextmanager
    def open(self, session: SparkSession, place: str, columns: Sequence[str] | None) -> Iterator[PlacedTable]:
        import pyarrow.parquet as pq

        from pykafka_wire.ingest.tables.iceberg.positions import held, with_expired

        with tempfile.TemporaryDirectory(prefix="pykafka-wire-") as folder:
            file = Path(folder, "columns.parquet")
            with _stored_at(place) as stored:
                batches = stored.scan(selected_fields=tuple(columns or ("*",))).to_arrow_batch_reader()
                with pq.ParquetWriter(file, batches.schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                properties, landed = joined(stored.properties), held(with_expired(stored))
            yield PlacedTable(session.read.parquet(file.as_uri()), properties, landed)

    def opened(self, place: str) -> TableWithoutSpark | None:
        from pykafka_wire.ingest.tables.iceberg.stored_table import opened_table

        if not self.has_table(place):
            return None
        with _stored_at(place) as stored:
            return opened_table(stored)

    def beside(self, place: str, name: str) -> str:
        folder, _, _ = re.sub(r"/metadata/[^/]*$", "", place).rstrip("/").rpartition("/")
        return f"{folder}/{name}"


@contextmanager
def _stored_at(place: str) -> Iterator[Any]:  # Any: pyiceberg is optional
    """Lend the table at a place.

    Raises:
        MissingLibraryError: pyiceberg is not installed.
        OffsetsError: the table cannot be read, or lacks a column.
    """
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"an Iceberg table is read by the module {error.name}, which is not installed: pip install 'pykafka-wire[iceberg]'."
        ) from error
    try:
        yield StaticTable.from_metadata(_newest_metadata(place))
    except (ValidationError, ValueError, OSError) as error:
        raise OffsetsError(
            f"the Iceberg table {without_secrets(place)} cannot be read ({' '.join(str(error).split())[:300]}): give its folder, "
            "or the path of its newest metadata file, and columns that it has."
        ) from error


def _newest_metadata(place: str) -> str:
    if place.endswith(_METADATA):
        return place
    folder = Path(local_folder(place) or place, "metadata")

    def number(file: Path) -> int:
        # v3.metadata.json of a Hadoop table, 00003-<uuid>.metadata.json of others.
        match = re.match(r"v?(\d+)", file.name)
        return int(match[1]) if match else -1

    return max(folder.glob(f"*{_METADATA}"), key=number).as_uri()
