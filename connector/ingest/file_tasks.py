"""Spark tasks that write a table's files: rows go from Kafka's bytes to Parquet in Python, and Spark gets one row for each file.

Spark plans, schedules and repeats the tasks. What they have written becomes rows of the table by a commit alone, which is the
driver's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.checkpoints.files import open_folder
from pykafka_wire.ingest.file_types import conform
from pykafka_wire.ingest.parquet_files import FileLayout, FileWriter, WrittenFile
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition

#: Columns of what tasks yield: a pickled :class:`WrittenFile`, or the number of rows that could not be read.
_YIELDED: Final = "file binary, n_rejects bigint"
_YIELDED_ARROW: Final = pa.schema([("file", pa.binary()), ("n_rejects", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the tasks of one read have written."""

    files: Sequence[WrittenFile]
    n_rejects: int

    @property
    def n_rows(self) -> int:
        return sum(each.n_rows for each in self.files)


class AlreadyLandedError(Exception):
    """The table has the micro-batch already: another driver of the query has committed it."""

    def __init__(self) -> None:
        super().__init__("another driver of this query has written this micro-batch")


class Folder(Protocol):
    """Where the files of a table go; tasks get it pickled."""

    def open(self) -> tuple[Any, str]:
        """The file system, pyarrow's, and the folder in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UriFolder:
    """A folder of a local path or a URI; pyarrow finds the credentials."""

    uri: str

    def open(self) -> tuple[Any, str]:
        filesystem, folder = open_folder(self.uri, "into")
        return filesystem, folder


class FileTask(SentToWorkers):
    """Reads input partitions, and writes their rows into files."""

    def __init__(
        self,
        reader: DataSourceReader,
        partitions: Sequence[InputPartition],
        columns: Sequence[tuple[str, str | None]],
        errors: Sequence[str],
        folder: Folder,
        layout: FileLayout,
    ) -> None:
        """
        Args:
            columns: those of ``layout.schema``, in its order: a column of the read, and the field of it, if it is one.
            errors: columns of the read; a record in which one of them is not null is a reject.
        """
        self._reader = reader
        self._partitions = tuple(partitions)
        self._columns = tuple(columns)
        self._errors = tuple(errors)
        self._folder = folder
        self._layout = layout

    def run(self, numbers: Iterable[Any]) -> Iterator[Any]:
        """Write the input partitions of these numbers; for ``mapInArrow``."""
        filesystem, folder = self._folder.open()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                n_rejects = _Count()
                rows = self._rows(self._reader.read(self._partitions[number]), n_rejects)
                for file in FileWriter(filesystem, folder, self._layout).write(rows):
                    yield _yielded(pickle.dumps(file), 0)
                yield _yielded(None, n_rejects.value)

    def _rows(self, batches: Iterator[Any], n_rejects: _Count) -> Iterator[Any]:
        schema = self._layout.schema
        for batch in batches:
            if self._errors:
                is_good = pc.is_null(batch[self._errors[0]])
                for name in self._errors[1:]:
                    is_good = pc.and_(is_good, pc.is_null(batch[name]))
                n_good = pc.sum(is_good).as_py() or 0
                if n_good < batch.num_rows:
                    n_rejects.value += batch.num_rows - n_good
                    batch = batch.filter(is_good)
            flat: dict[str, list[Any]] = {}
            arrays = []
            for (source, field), wanted in zip(self._columns, schema, strict=True):
                array = batch[source]
                if field is not None:
                    if source not in flat:
                        flat[source] = array.flatten()
                    array = flat[source][array.type.get_field_index(field)]
                arrays.append(conform(array, wanted.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Count:
    value = 0


def _yielded(file: bytes | None, n_rejects: int) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([file], pa.binary()), pa.array([n_rejects])], schema=_YIELDED_ARROW)


def run_tasks(session: SparkSession, task: FileTask, n_partitions: int) -> Written:
    """Run a task for each input partition, as one Spark job."""
    if not n_partitions:
        return Written(files=(), n_rejects=0)
    return _written(session.range(0, n_partitions, 1, n_partitions).mapInArrow(task.run, _YIELDED))


class RowsTask(SentToWorkers):
    """Writes the rows of a DataFrame into files."""

    def __init__(self, folder: Folder, layout: FileLayout) -> None:
        self._folder = folder
        self._layout = layout

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write what Spark has in one partition; for ``mapInArrow``."""
        filesystem, folder = self._folder.open()
        for file in FileWriter(filesystem, folder, self._layout).write(map(self._conformed, batches)):
            yield _yielded(pickle.dumps(file), 0)

    def _conformed(self, batch: Any) -> Any:
        # By position: the names may differ in case. Spark's timestamps have the session's zone.
        schema = self._layout.schema
        arrays = [conform(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_rows(rows: DataFrame, folder: Folder, layout: FileLayout) -> Written:
    """Write a DataFrame's rows, of the columns of ``layout.schema`` in its order, as one Spark job."""
    return _written(rows.mapInArrow(RowsTask(folder, layout).run, _YIELDED))


def _written(yielded: DataFrame) -> Written:
    rows = yielded.collect()
    # Our own tasks have pickled them, as Spark's workers pickle all that they return.
    files = tuple(pickle.loads(row.file) for row in rows if row.file is not None)  # noqa: S301
    return Written(files=files, n_rejects=sum(row.n_rejects for row in rows))
