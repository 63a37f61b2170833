"""The folder of a Delta table's files, for tasks: a local path, or a URI with deltalake's storage options."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pykafka_wire.ingest.files.parquet import UnwritableError
from pykafka_wire.places import local_folder, open_folder, table_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class UriFolder:
    """A folder given as a local path or a URI.

    Attributes:
        storage: the location of an object store and its credentials, under deltalake's names; without it, the cloud's default
            credential chain applies.
        mark: a path that exists in the folder. A machine that does not see it in its own file system has a different folder.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""

    def open(self) -> tuple[FileSystem, str]:
        """Return the pyarrow file system, and the folder's path in it.

        Raises:
            UnwritableError: the folder is on another machine.
        """
        local = local_folder(self.uri)
        if local is not None:
            import pyarrow.fs

            if self.mark and not Path(local, self.mark).exists():
                raise UnwritableError(f"{self.uri}, which does not exist on {platform.node()}")
            return pyarrow.fs.LocalFileSystem(), local
        if self.storage:
            import pyarrow.fs
            from deltalake.fs import DeltaStorageHandler

            return pyarrow.fs.PyFileSystem(DeltaStorageHandler(table_uri(self.uri), dict(self.storage))), ""
        return open_folder(self.uri, "into")
