"""Columns of an Iceberg table, read by pyiceberg: a session needs no jar of Iceberg for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pykafka_wire.checkpoints.files import local_folder
from pykafka_wire.errors import MissingLibraryError, OffsetsError
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:  # an optional library
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergMetadata:
    """What an Iceberg table says of itself: its properties, and the summaries of its snapshots, from the current one back."""

    properties: Mapping[str, str]
    summaries: Sequence[Mapping[str, str]]


def is_iceberg(table: str) -> bool:
    """Return whether a folder has the metadata of an Iceberg table, or a path is that of a metadata file."""
    local = local_folder(table)
    return table.endswith(".metadata.json") or (
        local is not None and any(Path(local, "metadata").glob("*.metadata.json"))
    )


def copy_columns(table: str, columns: Sequence[str] | None, file: Path) -> IcebergMetadata:
    """Copy columns of an Iceberg table's newest snapshot to a Parquet file, batch by batch; return what the table says of itself.

    Args:
        table: a folder on this machine, or the path or URI of a metadata file.
        columns: top-level columns; None for all.

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
        stored = StaticTable.from_metadata(_newest_metadata(table))
        batches = stored.scan(selected_fields=tuple(columns or ("*",))).to_arrow_batch_reader()
        with pq.ParquetWriter(file, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return IcebergMetadata(properties=dict(stored.properties), summaries=list(_summaries(stored)))
    except (ValidationError, ValueError, OSError) as error:
        raise OffsetsError(
            f"the Iceberg table {without_secrets(table)} cannot be read ({' '.join(str(error).split())[:300]}): give its folder, "
            "or the path of its newest metadata file, and columns that it has."
        ) from error


def _summaries(stored: Table) -> Iterator[Mapping[str, str]]:
    snapshot = stored.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None:
            yield snapshot.summary.additional_properties
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else stored.snapshot_by_id(parent)


def _newest_metadata(table: str) -> str:
    if table.endswith(".metadata.json"):
        return table
    folder = Path(local_folder(table) or table, "metadata")

    def number(file: Path) -> int:
        # v3.metadata.json of a Hadoop table, 00003-<uuid>.metadata.json of others.
        match = re.match(r"v?(\d+)", file.name)
        return int(match[1]) if match else -1

    return max(folder.glob("*.metadata.json"), key=number).as_uri()
