"""Files of Iceberg tables, by pyiceberg's file systems, which have the catalog's credentials: where tasks write them, their rows,
and those that no snapshot names.

Spark reads the file systems of Hadoop itself. It reaches an object store by a jar and credentials of its own alone: there tasks
read the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest.files.types import conform
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Schemes of Hadoop's client itself, and paths without one.
_OF_HADOOP: Final = frozenset(("", "file", "hdfs", "viewfs"))
#: Data files, manifests and lists of manifests, of any program. A name with a UUID is one file's, whatever path it is named by.
_UNIQUE: Final = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*\.(parquet|avro)")
#: The folders of a table, in its location; another table may be beside them.
_FOLDERS: Final = ("data", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergFolder:
    """Where files of a table are, for tasks.

    Attributes:
        properties: of the table's file system, the catalog's credentials among them.
    """

    location: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, stored: Any, name: str = "data") -> IcebergFolder:
        """Return a folder of pyiceberg's table, by its name in the table's location."""
        return cls(location=f"{stored.location().rstrip('/')}/{name}", properties=dict(stored.io.properties))

    def open(self) -> tuple[FileSystem, str]:
        """Return the file system, pyarrow's, and the folder in it."""
        filesystem, (folder,) = self._open([self.location])
        return filesystem, folder

    def dataset(self, paths: Sequence[str], schema: pa.Schema) -> Any:
        """Return the rows of files as a dataset of pyarrow's with the columns of ``schema``, which are null where a file has none.

        Args:
            paths: at least one, all of them of one file system.
        """
        import pyarrow.dataset

        filesystem, places = self._open(paths)
        return pyarrow.dataset.dataset(places, schema=schema, format="parquet", filesystem=filesystem)

    def _open(self, locations: Sequence[str]) -> tuple[FileSystem, list[str]]:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        io = PyArrowFileIO(dict(self.properties))
        places = [io.parse_location(location, io.properties) for location in locations]
        scheme, netloc, _ = places[0]
        return io.fs_by_scheme(scheme, netloc), [path for _, _, path in places]


class _FilesTask(SentToWorkers):
    """Reads files of a table."""

    def __init__(self, folder: IcebergFolder, paths: Sequence[str], schema: pa.Schema) -> None:
        self._folder = folder
        self._paths = tuple(paths)
        self._schema = schema

    def run(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files of these numbers; for ``mapInArrow``."""
        for batch in numbers:
            paths = [self._paths[number] for number in batch.column(0).to_pylist()]
            for rows in self._folder.dataset(paths, self._schema).to_batches():
                arrays = [conform(column, field.type) for column, field in zip(rows.columns, self._schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def delete_orphans(stored: Any, before: datetime, check_running: Callable[[], None]) -> int:
    """Delete files that pyiceberg's table names nowhere, and that were written before a moment; return how many.

    Such are the files of attempts that failed, what was replaced in snapshots that are forgotten by now, and their manifests.

    Args:
        check_running: raises if the run has ended; asked before each file.
    """
    named = _names_in(stored)
    n_deleted = 0
    for name in _FOLDERS:
        filesystem, path = IcebergFolder.of(stored, name).open()
        for file in filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=True)):
            is_old = file.is_file and file.mtime_ns < before.timestamp() * 1e9
            if is_old and _UNIQUE.fullmatch(file.base_name) and file.base_name not in named:
                check_running()
                filesystem.delete_file(file.path)
                n_deleted += 1
    return n_deleted


def _names_in(stored: Any) -> set[str]:
    """Return the names, without folders, of what the snapshots of a table consist of, and of their statistics."""
    snapshots = stored.metadata.snapshots
    manifests = {
        manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(stored.io)
    }
    paths = {snapshot.manifest_list for snapshot in snapshots} | manifests.keys()
    for manifest in manifests.values():
        paths |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(stored.io)}
    paths |= {part.statistics_path for part in (*stored.metadata.statistics, *stored.metadata.partition_statistics)}
    return {path.rpartition("/")[2] for path in paths}


def read_files(session: SparkSession, folder: IcebergFolder, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Return the rows of files, whose columns have the names of ``schema``."""
    if all(urlsplit(path).scheme in _OF_HADOOP for path in paths):
        return session.read.schema(schema).parquet(*paths)
    task = _FilesTask(folder, paths, arrow_schema(schema))
    return session.range(len(paths)).mapInArrow(task.run, schema)
