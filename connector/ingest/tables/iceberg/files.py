"""Files of Iceberg tables on pyiceberg's file systems, with the catalog's credentials: the folder for new files, rows of files, and
files that no snapshot names.

Spark itself reads the file systems of Hadoop. It can access an object store only with a jar and credentials of its own; without
them, tasks read the files.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest.files.types import by_ids, conform, small_type
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

#: The schemes that Hadoop's client supports without a further jar, and paths without a scheme.
_OF_HADOOP: Final = frozenset(("", "file", "hdfs", "viewfs"))
#: Names of data files, manifests and manifest lists, of any program. A name with a UUID identifies one file, whatever its path.
_UNIQUE: Final = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*\.(parquet|avro)")
#: The end of the names of metadata files.
_METADATA: Final = ".metadata.json"
#: Names that every writer of Iceberg's data files keeps. Java's and pyiceberg write others as names of Avro: x-y as x_x2Dy.
_KEPT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The number of rows that are decoded at a time.
_BATCH_ROWS: Final = 65_536
#: The folders in a table's location that are searched. Other tables may be in other folders there.
_FOLDERS: Final = ("data", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergFolder:
    """The folder of a table's files, for tasks.

    Attributes:
        properties: the properties of the table's file system, including the catalog's credentials.
    """

    location: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, stored: Any, name: str = "data") -> IcebergFolder:
        """Return a folder in the location of a pyiceberg table, by the folder's name."""
        return cls(location=f"{stored.location().rstrip('/')}/{name}", properties=dict(stored.io.properties))

    def open(self) -> tuple[FileSystem, str]:
        """Return the pyarrow file system, and the folder's path in it."""
        filesystem, (folder,) = self._open([self.location])
        return filesystem, folder

    def dataset(self, paths: Sequence[str], schema: pa.Schema) -> Any:
        """Return the rows of files as a pyarrow dataset with the columns of ``schema``. A column that a file lacks is null.

        Args:
            paths: one or more paths on the same file system.
        """
        import pyarrow.dataset

        filesystem, places = self._open(paths)
        return pyarrow.dataset.dataset(places, schema=schema, format="parquet", filesystem=filesystem)

    def rows_by_ids(self, paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files with the columns of ``schema``, found by their field ids, in the files' own types. A column that
        a file lacks is null.
        """
        import pyarrow.parquet as pq

        for path in paths:
            filesystem, (place,) = self._open([path])
            with filesystem.open_input_file(place) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                    rows = batch.to_struct_array()
                    rows = rows.cast(small_type(rows.type))
                    found = by_ids(rows, pa.field("rows", rows.type), pa.field("rows", pa.struct(schema)))
                    yield pa.RecordBatch.from_struct_array(found)

    def _open(self, locations: Sequence[str]) -> tuple[FileSystem, list[str]]:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        io = PyArrowFileIO(dict(self.properties))
        places = [io.parse_location(location, io.properties) for location in locations]
        scheme, netloc, _ = places[0]
        return io.fs_by_scheme(scheme, netloc), [path for _, _, path in places]


class _FilesTask(SentToWorkers):
    """Reads files of a table in tasks, by the names of columns or by their ids."""

    def __init__(
        self, folder: IcebergFolder, paths: Sequence[str], schema: pa.Schema, with_ids: pa.Schema | None
    ) -> None:
        self._folder = folder
        self._paths = tuple(paths)
        self._schema = schema
        self._with_ids = with_ids

    def run(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files with these numbers; for ``mapInArrow``."""
        for batch in numbers:
            paths = [self._paths[number] for number in batch.column(0).to_pylist()]
            for rows in self._rows(paths):
                arrays = [conform(column, field.type) for column, field in zip(rows.columns, self._schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._with_ids is not None:
            return self._folder.rows_by_ids(paths, self._with_ids)
        batches: Iterator[pa.RecordBatch] = self._folder.dataset(paths, self._schema).to_batches()
        return batches


def delete_orphans(stored: Any, before: datetime, check_running: Callable[[], None]) -> int:
    """Delete files of a pyiceberg table that no snapshot names and that are older than ``before``; return their number.

    Such files come from failed attempts, from replaced data in expired snapshots, and from the manifests of these. Deletes nothing
    if another table has the same location: a table that was renamed keeps its location, which is also the default location of a
    table that is created under the old name.

    Args:
        check_running: raises an error if the run has ended; called before each deletion.
    """
    if (other := _metadata_of_another(stored)) is not None:
        _log.warning(
            "The files of table %s that no snapshot names stay, since another table, perhaps a renamed or dropped one, has the "
            "same location: %s",
            ".".join(stored.name()),
            other,
        )
        return 0
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


def has_metadata(location: str, properties: Mapping[str, str]) -> bool:
    """Return whether a location has the metadata of a table, perhaps of a dropped one; False if the location cannot be read.

    Args:
        properties: the properties of the file system.
    """
    folder = IcebergFolder(location=f"{location.rstrip('/')}/metadata", properties=dict(properties))
    try:
        filesystem, path = folder.open()
        files = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    except Exception as error:  # of a file system
        _log.debug("The location %s of a new table cannot be read.", location, exc_info=error)
        return False
    return any(file.base_name.endswith(_METADATA) for file in files)


def _metadata_of_another(stored: Any) -> str | None:
    """Return the path of another table's metadata file in the metadata folder of a pyiceberg table; None if there is none."""
    from pyiceberg.serializers import Compressor

    location = stored.metadata_location.rpartition("/")[0]
    own = {stored.metadata_location, *(entry.metadata_file for entry in stored.metadata.metadata_log)}
    own_names = {path.rpartition("/")[2] for path in own}
    filesystem, folder = IcebergFolder(location=location, properties=dict(stored.io.properties)).open()
    for file in filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True)):
        if not file.base_name.endswith(_METADATA) or file.base_name in own_names:
            continue
        path = f"{location}/{file.base_name}"
        try:
            with stored.io.new_input(path).open() as stream:
                document = json.loads(Compressor.get_compressor(path).stream_decompressor(stream).read())
        except (
            FileNotFoundError,
            ValueError,
            EOFError,
        ):  # just deleted; or cut off, which no table's current metadata is
            continue
        if document.get("table-uuid") != str(stored.metadata.table_uuid):
            return path
    return None


def _names_in(stored: Any) -> set[str]:
    """Return the file names, without folders, that the table's snapshots and statistics refer to."""
    snapshots = stored.metadata.snapshots
    manifests = {
        manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(stored.io)
    }
    paths = {snapshot.manifest_list for snapshot in snapshots} | manifests.keys()
    for manifest in manifests.values():
        paths |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(stored.io)}
    paths |= {part.statistics_path for part in (*stored.metadata.statistics, *stored.metadata.partition_statistics)}
    return {path.rpartition("/")[2] for path in paths}


def have_kept_names(kind: pa.DataType) -> bool:
    """Return whether all fields of a type have in every data file the names that they have in the table."""
    if pa.types.is_struct(kind):
        return all(_KEPT_NAME.fullmatch(field.name) and have_kept_names(field.type) for field in kind)
    if pa.types.is_map(kind):
        return have_kept_names(kind.key_type) and have_kept_names(kind.item_type)
    return have_kept_names(kind.value_type) if pa.types.is_list(kind) else True


def read_files(
    session: SparkSession,
    folder: IcebergFolder,
    paths: Sequence[str],
    schema: StructType,
    with_ids: pa.Schema | None = None,
) -> DataFrame:
    """Return the rows of files.

    Args:
        with_ids: the columns with their field ids, if files may have other names of columns than the table.
    """
    if with_ids is None and all(urlsplit(path).scheme in _OF_HADOOP for path in paths):
        return session.read.schema(schema).parquet(*paths)
    task = _FilesTask(folder, paths, arrow_schema(schema), with_ids)
    return session.range(len(paths)).mapInArrow(task.run, schema)
