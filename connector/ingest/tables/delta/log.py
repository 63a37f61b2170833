"""A Delta table's commits and schema, read from the files of its log, without Spark.

A commit is a file with one action in each line, named by its version. Spark also writes a checksum file (``.crc``) with the table's
size and schema; deltalake does not. Each commit is read once, and only the newest commits are read.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from pykafka_wire.ingest.tables.delta.own_files import is_compaction
from pykafka_wire.ingest.tables.delta.uri_folder import UriFolder
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.places import table_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
from pykafka_wire.ingest.tables.log import COMPACTION, KEPT_COMMITS, LoggedCommit, schema_changes
from pykafka_wire.ingest_status import TableSize

_log = logging.getLogger(__name__)
#: The most bytes read of a commit file. A longer one adds thousands of files, and its rest is ignored.
_MAX_BYTES: Final = 8 * 2**20
#: The number of versions looked up at once.
_AHEAD: Final = 8
_LOG: Final = "_delta_log"


@dataclass(slots=True)
class DeltaLog:
    """The log of one table. Not thread-safe.

    Attributes:
        folder: the table's folder, a local path or URI. ``storage`` has the options of
            :class:`~pykafka_wire.ingest.tables.delta.uri_folder.UriFolder`.
        version: the version of the newest commit that was read, -1 before the first.
        commits: the newest commits, oldest first.
        base: the schema before the first of these commits; None if they start with the table, or if the schema is unknown.
        is_whole: whether the commits start with the table's first commit.
    """

    folder: str
    storage: Mapping[str, str] = field(default_factory=dict)
    version: int = -1
    commits: deque[LoggedCommit] = field(default_factory=lambda: deque(maxlen=KEPT_COMMITS))
    base: StructType | None = None
    is_whole: bool = True
    _files: tuple[FileSystem, str] | None = None
    #: The newest known version.
    _seen: int = -1
    _sized_at: int = -1
    _size: TableSize | None = None

    def refresh(self) -> None:
        """Read new commits.

        Raises:
            OptionError: pyarrow does not support the folder's file system.
            OSError: the log cannot be read.
        """
        newest = self._newest()
        first = max(self.version + 1, newest - KEPT_COMMITS + 1)
        if first > self.version + 1:  # after a gap, the earlier commits no longer belong to the window
            self.commits.clear()
            self.is_whole = False
            self.base = self._checksum(first - 1)[1] or self._stored(first - 1)[1]
        for version in range(first, newest + 1):
            commit = self._commit(version)
            if commit is not None:
                if len(self.commits) == KEPT_COMMITS:
                    self.is_whole, self.base = False, self.commits[0].schema or self.base
                self.commits.append(commit)
        self.version = newest
        if self.schema is None:  # none of the commits in the window has set a schema
            schemas = (self._checksum(version)[1] for version in range(newest, max(-1, newest - _AHEAD), -1))
            self.base = next(filter(None, schemas), None) or self._stored(newest)[1]

    def size(self) -> TableSize | None:
        """Return the table's size: the size in a checksum file or of the last call, plus the changes by later commits.

        Raises:
            OptionError, OSError: as :meth:`refresh`.
        """
        newest = self._newest()
        if newest == self._sized_at:
            return self._size
        oldest = newest - _AHEAD
        known = (self._sized_at, self._size)
        if self._size is None or self._sized_at < oldest:
            known = (-1, TableSize(0, 0) if oldest < 0 else None)
        for version in range(newest, max(known[0], oldest), -1):
            size, _ = self._checksum(version)
            if size is not None:
                known = version, size
                break
        size = known[1]
        for version in range(known[0] + 1, newest + 1) if size is not None else ():
            size = None if size is None else self._changed(size, version)
        self._sized_at, self._size = newest, size or self._stored(newest)[0]
        return self._size

    def _changed(self, size: TableSize, version: int) -> TableSize | None:
        """Return a size after the changes of a commit; None if the commit's file does not show them."""
        data = self._read(f"{version:020d}.json")
        if data is None or len(data) == _MAX_BYTES:
            return None
        files, n_bytes = size.files, size.bytes
        try:
            for action in map(json.loads, data.splitlines()):
                for kind, sign in (("add", 1), ("remove", -1)):
                    if kind in action:
                        files, n_bytes = files + sign, n_bytes + sign * action[kind]["size"]
        except (ValueError, KeyError):
            return None
        return TableSize(files, n_bytes)

    def schemas(self) -> Iterator[tuple[LoggedCommit, StructType | None, StructType]]:
        """Yield each commit that changes the schema, with the schema before it (None before the first) and after it."""
        return schema_changes(self.base, self.commits)

    @property
    def schema(self) -> StructType | None:
        """Return the current schema; None if neither commits nor checksum files have it."""
        schemas = [commit.schema for commit in self.commits if commit.schema is not None]
        return schemas[-1] if schemas else self.base

    def _newest(self) -> int:
        """Return the newest version: first from a listing of the folder, later by looking up the next versions."""
        import pyarrow.fs

        filesystem, folder = self._opened()
        if self._seen < 0:
            files = filesystem.get_file_info(pyarrow.fs.FileSelector(f"{folder}{_LOG}", allow_not_found=True))
            names = (file.base_name.partition(".") for file in files)
            self._seen = max((int(stem) for stem, _, kind in names if kind == "json" and stem.isdigit()), default=-1)
            return self._seen
        while True:
            paths = [f"{folder}{_LOG}/{self._seen + 1 + ahead:020d}.json" for ahead in range(_AHEAD)]
            there = [file.type == pyarrow.fs.FileType.File for file in filesystem.get_file_info(paths)]
            self._seen += there.index(False) if False in there else _AHEAD
            if False in there:
                return self._seen

    def _opened(self) -> tuple[FileSystem, str]:
        """Return the file system, and the path prefix of the table's folder."""
        if self._files is None:
            filesystem, folder = UriFolder(uri=self.folder, storage=self.storage).open()
            self._files = filesystem, f"{folder}/" if folder else ""
        return self._files

    def _read(self, name: str) -> bytes | None:
        filesystem, folder = self._opened()
        try:
            with filesystem.open_input_file(f"{folder}{_LOG}/{name}") as file:
                content: bytes = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return None
        return content

    def _checksum(self, version: int) -> tuple[TableSize | None, StructType | None]:
        try:
            checksum = json.loads(self._read(f"{version:020d}.crc") or b"null") or {}
        except ValueError:  # another program is writing the file
            return None, None
        files, size = checksum.get("numFiles"), checksum.get("tableSizeBytes")
        known = TableSize(files, size) if isinstance(files, int) and isinstance(size, int) else None
        return known, _schema(checksum.get("metadata"))

    def _stored(self, version: int) -> tuple[TableSize | None, StructType | None]:
        """Return the size and schema of a version through the library deltalake; nothing if it is missing or cannot read the
        table."""
        try:
            import deltalake

            table = deltalake.DeltaTable(table_uri(self.folder), version=version, storage_options=dict(self.storage))
            sizes = [int(n_bytes) for n_bytes in table.get_add_actions(flatten=True).column("size_bytes").to_pylist()]
            schema = StructType.fromJson(json.loads(table.schema().to_json()))
        except Exception as error:  # the page then shows less
            _log.debug("The library deltalake cannot read %s: %s", self.folder, error)
            return None, None
        return TableSize(len(sizes), sum(sizes)), schema

    def _commit(self, version: int) -> LoggedCommit | None:
        """Return a commit; None if its file no longer exists."""
        data = self._read(f"{version:020d}.json")
        if data is None:
            return None
        info: Mapping[str, Any] = {}
        schema: StructType | None = None
        adds: list[Mapping[str, Any]] = []
        replaced: list[int] = []
        for line in data.splitlines():
            try:
                action = json.loads(line)
            except ValueError:  # the cut last line of a file that is too long
                continue
            if "commitInfo" in action:
                info = action["commitInfo"]
            elif "metaData" in action:
                schema = _schema(action["metaData"])
            elif action.get("add", {}).get("dataChange", False):
                adds.append(action["add"])
            elif "remove" in action and not action["remove"].get("dataChange", True):
                replaced.append(int(action["remove"].get("size") or 0))
        committed_ms = info.get("inCommitTimestamp", info.get("timestamp", 0))
        return LoggedCommit(
            version=version,
            at=committed_ms / 1000,
            operation=COMPACTION if is_compaction(info.get("userMetadata")) else str(info.get("operation", "")),
            rows=_n_rows(adds),
            files=len(adds),
            bytes=sum(int(add.get("size", 0)) for add in adds),
            landed=Landed.from_json(info.get("userMetadata")),
            schema=schema,
            replaced_files=len(replaced),
            replaced_bytes=sum(replaced),
        )


def _schema(metadata: Mapping[str, Any] | None) -> StructType | None:
    text = (metadata or {}).get("schemaString")
    return StructType.fromJson(json.loads(text)) if text else None


def _n_rows(adds: list[Mapping[str, Any]]) -> int | None:
    counts = [json.loads(add.get("stats") or "{}").get("numRecords") for add in adds]
    return None if None in counts else sum(counts)
