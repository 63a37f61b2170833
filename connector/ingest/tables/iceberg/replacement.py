"""Replaces files of an Iceberg table by files with the same rows, in a snapshot with the operation ``replace``.

pyiceberg (0.12) has no public method for such a snapshot, and its ``overwrite`` would show the rows to readers of changes. So this
module adds a snapshot producer to those of the library for appends and overwrites. https://iceberg.apache.org/spec/#snapshots
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer

#: From this format version on, rows have ids, which a rewrite of a file would have to keep.
_ROW_IDS_VERSION: int = 3


class ReplaceableFile(NamedTuple):
    """A data file of pyiceberg, with the path of the manifest that names it."""

    sequence: int
    manifest: str
    data_file: Any


class LiveManifests:
    """Reads the data files of a table from its manifests; each manifest is read once."""

    def __init__(self) -> None:
        self._read: dict[str, list[ManifestEntry]] = {}

    def files(self, stored: Any) -> dict[str, ReplaceableFile]:
        """Return the files in the current snapshot of a pyiceberg table that can be replaced, by path, the oldest first.

        Files of another partition spec and encrypted files cannot be replaced, nor any file of a table with deletes or row ids.
        """
        snapshot = stored.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(stored.io)
        if stored.metadata.format_version >= _ROW_IDS_VERSION or any(
            manifest.content == ManifestContent.DELETES for manifest in manifests
        ):
            return {}
        spec_id = stored.metadata.default_spec_id
        named = {manifest.manifest_path: manifest for manifest in manifests if manifest.partition_spec_id == spec_id}
        self._read = {
            path: self._read[path] if path in self._read else manifest.fetch_manifest_entry(stored.io)
            for path, manifest in named.items()
        }
        found = [
            ReplaceableFile(entry.sequence_number or 0, path, entry.data_file)
            for path, entries in self._read.items()
            for entry in entries
            if _is_replaceable(entry.data_file)
        ]
        return {file.data_file.file_path: file for file in sorted(found, key=lambda file: file.sequence)}

    def entries(self, path: str) -> list[ManifestEntry]:
        """Return the live entries of a manifest that names files that can be replaced."""
        return self._read[path]


def _is_replaceable(file: Any) -> bool:
    is_plain = file.key_metadata is None and not file.sort_order_id
    return bool(is_plain and file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET)


class ReplaceFiles(_SnapshotProducer["ReplaceFiles"]):  # type: ignore[misc]  # pyiceberg is optional
    """Makes a snapshot in which the ``added`` files take the place of the ``replaced`` ones."""

    def __init__(
        self,
        transaction: Any,
        io: Any,
        manifests: LiveManifests,
        replaced: Collection[ReplaceableFile],
        added: Iterable[Any],
    ) -> None:
        super().__init__(Operation.REPLACE, transaction, io)
        #: Of the manifests that name the replaced files.
        self._entries = {file.manifest: manifests.entries(file.manifest) for file in replaced}
        for file in replaced:
            self.delete_data_file(file.data_file)
        for data_file in added:
            self.append_data_file(data_file)

    def _build_delete_files_partition_predicate(self) -> None:
        """Do nothing: the manifests are known, so they need not be searched by partition values."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        deleted = [
            self._with_status(entry, ManifestEntryStatus.DELETED)
            for manifest in self._parent_manifests()
            for entry in self._entries.get(manifest.manifest_path, ())
            if entry.data_file in self._deleted_data_files
        ]
        assert len(deleted) == len(self._deleted_data_files), "the table was read"
        return deleted

    def _existing_manifests(self) -> list[Any]:
        kept = []
        for manifest in self._parent_manifests():
            if manifest.manifest_path not in self._entries:
                if manifest.has_added_files() or manifest.has_existing_files():
                    kept.append(manifest)
                continue
            entries = self._entries[manifest.manifest_path]
            if others := [entry for entry in entries if entry.data_file not in self._deleted_data_files]:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in others:
                        writer.add_entry(self._with_status(entry, ManifestEntryStatus.EXISTING))
                kept.append(writer.to_manifest_file())
        return kept

    def _parent_manifests(self) -> list[Any]:
        snapshot = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        assert snapshot is not None, "a table with files has a snapshot"
        return list(snapshot.manifests(self._io))

    def _with_status(self, entry: ManifestEntry, status: ManifestEntryStatus) -> ManifestEntry:
        is_deleted = status == ManifestEntryStatus.DELETED
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=self._snapshot_id if is_deleted else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        collector = SnapshotSummaryCollector()
        for file in self._added_data_files:
            collector.metrics.add_file(file)
        for file in self._deleted_data_files:
            collector.metrics.remove_file(file)
        parent = metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        # The library computes totals only for its own operations.
        totals = update_snapshot_summaries(
            Summary(operation=Operation.OVERWRITE, **collector.build(), **(snapshot_properties or {})),
            None if parent is None else parent.summary,
        )
        return Summary(operation=self._operation, **totals.additional_properties)
