"""Spark tasks that write a table's files: Python converts Kafka's bytes to Parquet, and Spark receives one row for each file.

Spark plans, schedules and retries the tasks. Their files become rows of the table only through a commit by the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.files.conditions import BatchFields, Expression, columns_in, conjuncts
from pykafka_wire.ingest.files.parquet import FileLayout, FileWriter, UnwritableError, WrittenFile, delete_files
from pykafka_wire.ingest.files.types import conform
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition


#: The schema of the rows that tasks yield: a pickled :data:`_Result`.
_YIELDED: Final = "result binary"
_YIELDED_ARROW: Final = pa.schema([("result", pa.binary())])
#: The most rejects that a task returns. If there are more, the caller reads the range again.
MAX_REJECTS: Final = 10_000
#: The columns of a read that identify a record.
PLACE: Final = ("partition", "offset", "timestamp")
#: The schema of the rejects that a task returns.
REJECTS: Final = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """Statistics of the records that one task has read.

    Attributes:
        rejects: ``partition``, ``offset`` and ``reason`` of unreadable records, as a pyarrow table; None if there are too many.
        newest_ms: the timestamp of the newest readable record, in ms since the epoch; 0 if there is none.
    """

    n_rejects: int
    rejects: pa.Table
    newest_ms: int


#: A written file, the statistics of the records, or the reason why the task cannot write.
_Result: TypeAlias = WrittenFile | ReadRecords | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of all tasks of one read; ``rejects`` and ``newest_ms`` are as in :class:`ReadRecords`, for all tasks.

    Attributes:
        unwritable: why a task could not write, so that Spark has to write; None if all could.
    """

    files: Sequence[WrittenFile]
    unwritable: str | None = None
    n_rejects: int = 0
    rejects: pa.Table = None
    newest_ms: int = 0

    @property
    def n_rows(self) -> int:
        return sum(file.n_rows for file in self.files)

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)


class Folder(Protocol):
    """The folder for the files of a table. Tasks receive it pickled."""

    def open(self) -> tuple[FileSystem, str]:
        """Return the pyarrow file system, and the folder's path in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOfRead:
    """How a table's rows are made from a read.

    Attributes:
        columns: the columns of the files, in order.
        errors: the error columns of the read. A record with a non-null error is a reject.
        where, expectations, record: as in :class:`~pykafka_wire.ingest.records.contracts.TaskContract`.
    """

    columns: Sequence[Expression]
    errors: Sequence[str]
    where: Expression | None = None
    expectations: Sequence[tuple[Expression, str]] = ()
    record: tuple[str, ...] = ("value",)


class FileTask(SentToWorkers):
    """Reads input partitions, and writes their rows as files."""

    def __init__(
        self,
        reader: DataSourceReader,
        partitions: Sequence[InputPartition],
        read: RowsOfRead,
        folder: Folder,
        layout: FileLayout,
    ) -> None:
        """Store the values for tasks, which receive them pickled. ``read`` must match the columns of ``layout.schema``."""
        self._reader = reader
        self._partitions = tuple(partitions)
        self._read = read
        self.folder = folder
        self._layout = layout

    def run(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the input partitions with these numbers; for ``mapInArrow``."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from map(yielded, self.results(number))

    def results(self, number: int) -> Iterator[_Result]:
        """Write one input partition, and yield the results."""
        seen = _Seen()
        yield from _write(self._rows(self._reader.read(self._partitions[number]), seen), self.folder, self._layout)
        yield seen.records()

    def _rows(self, batches: Iterator[pa.RecordBatch], seen: _Seen) -> Iterator[pa.RecordBatch]:
        schema = self._layout.schema
        for batch in batches:
            fields = BatchFields(self._taken(batch, seen))
            arrays = [
                conform(fields.evaluate(column), wanted.type)
                for column, wanted in zip(self._read.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _taken(self, batch: pa.RecordBatch, seen: _Seen) -> pa.RecordBatch:
        """Return the records that are rows of the table; record the rejects."""
        read = self._read
        batch, reason = taken_records(batch, read)
        if read.expectations:
            fields = BatchFields(batch)
            broken = [
                pc.if_else(pc.invert(fields.evaluate(condition)), pa.scalar(text), pa.scalar(None, pa.string()))
                for condition, text in read.expectations
            ]
            reason = _first_reason([*([] if reason is None else [reason]), *broken])
        return seen.without_rejects(batch, reason)


def taken_records(batch: pa.RecordBatch, read: RowsOfRead) -> tuple[pa.RecordBatch, pa.Array | None]:
    """Return the records that a table takes, and their reasons for being unreadable; None if all are readable."""
    reason = _first_reason([batch[name] for name in read.errors])
    if read.where is None:
        return batch, reason
    taken = _takes(BatchFields(batch), read.where, reason, read.record)
    return batch.filter(taken), None if reason is None else reason.filter(taken)


def _takes(fields: BatchFields, where: Expression, reason: pa.Array | None, record: tuple[str, ...]) -> pa.Array:
    """Return whether a condition takes records. It also takes an unreadable record, unless the known part of the record contradicts
    the condition, as for :class:`~pykafka_wire.ingest.records.contracts.Contract`.
    """
    fulfilled = pc.coalesce(fields.evaluate(where), pa.scalar(False))
    if reason is None:
        return fulfilled
    contradicts = pa.scalar(False)
    for condition in conjuncts(where):
        is_false, used = pc.invert(pc.coalesce(fields.evaluate(condition), pa.scalar(True))), columns_in(condition)
        for name, path in (("value", record), ("key", ("key",))):
            if name in used:
                is_false = pc.and_(is_false, pc.is_valid(fields[path]))
        contradicts = pc.or_(contradicts, is_false)
    return pc.if_else(pc.is_valid(reason), pc.invert(contradicts), fulfilled)


def _first_reason(reasons: Sequence[pa.Array]) -> pa.Array | None:
    """Return the first reject reason of each record, null for rows; None if all records are rows."""
    some = [array for array in reasons if array.null_count < len(array)]
    return pc.coalesce(*some) if some else None


class _Seen:
    """Collects statistics of a task's records."""

    def __init__(self) -> None:
        self._rejects: list[pa.RecordBatch] = []
        self._n_rejects = 0
        self._newest_us = 0

    def without_rejects(self, batch: pa.RecordBatch, reason: pa.Array | None) -> pa.RecordBatch:
        """Return the records without a reject reason, and collect the others."""
        n_bad = 0 if reason is None else len(reason) - reason.null_count
        if reason is not None and n_bad:
            is_bad = pc.is_valid(reason)
            rejects = batch.filter(is_bad)
            batch = batch.filter(pc.invert(is_bad))
            if self._n_rejects + n_bad <= MAX_REJECTS:
                columns = [rejects["partition"], rejects["offset"], reason.filter(is_bad)]
                self._rejects.append(pa.RecordBatch.from_arrays(columns, schema=REJECTS))
            self._n_rejects += n_bad
        if batch.num_rows:
            self._newest_us = max(self._newest_us, pc.max(batch["timestamp"]).value)
        return batch

    def records(self) -> ReadRecords:
        rejects = pa.Table.from_batches(self._rejects, REJECTS) if self._n_rejects <= MAX_REJECTS else None
        return ReadRecords(n_rejects=self._n_rejects, rejects=rejects, newest_ms=self._newest_us // 1000)


def _write(rows: Iterable[pa.RecordBatch], folder: Folder, layout: FileLayout) -> Iterator[_Result]:
    """Write rows, and yield each file, or the reason if the folder is not writable; Spark may have other credentials."""
    try:
        filesystem, path = folder.open()
        yield from FileWriter(filesystem, path, layout).write(rows)
    except (UnwritableError, OptionError) as error:
        yield str(error)


def yielded(result: _Result) -> pa.RecordBatch:
    """Return a result in the form that tasks yield."""
    # From buffers: pyarrow imports pandas for values of Python, which takes a task half a second.
    data = pickle.dumps(result)
    offsets = np.array([0, len(data)], np.int32)
    array = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([array], schema=_YIELDED_ARROW)


class PartitionsTask(Protocol):
    """A job's work on its input partitions."""

    def run(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield results in the form of :func:`yielded` for the input partitions with these numbers; for ``mapInArrow``."""


def run_tasks(session: SparkSession, task: PartitionsTask, n_partitions: int) -> Written:
    """Run a task for each input partition, in one Spark job."""
    return _written(session.range(0, n_partitions, 1, n_partitions).mapInArrow(task.run, _YIELDED))


class RowsTask(SentToWorkers):
    """Writes the rows of a DataFrame as files."""

    def __init__(self, folder: Folder, layout: FileLayout, errors: Sequence[str]) -> None:
        """Store the values for tasks. If there are ``errors``, as in :class:`RowsOfRead`, then :data:`PLACE` and the error columns
        follow the columns of the layout."""
        self._folder = folder
        self._layout = layout
        self._errors = tuple(errors)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one Spark partition; for ``mapInArrow``."""
        seen = _Seen()
        yield from map(yielded, _write(self._rows(batches, seen), self._folder, self._layout))
        yield yielded(seen.records())

    def _rows(self, batches: Iterable[pa.RecordBatch], seen: _Seen) -> Iterator[pa.RecordBatch]:
        # Columns are matched by position, since names may differ in case or occur twice. Spark's timestamps have the session's
        # zone.
        schema = self._layout.schema
        for batch in batches:
            columns = batch.columns
            if self._errors:
                names = [*map(str, range(len(schema))), *PLACE, *self._errors]
                whole = pa.RecordBatch.from_arrays(columns, names)
                columns = seen.without_rejects(whole, _first_reason([whole[name] for name in self._errors])).columns
            arrays = [conform(column, field.type) for column, field in zip(columns, schema, strict=False)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_rows(rows: DataFrame, folder: Folder, layout: FileLayout, errors: Sequence[str] = ()) -> Written:
    """Write a DataFrame's rows as files in one Spark job. Its columns must match ``layout.schema``; ``errors`` as in
    :class:`RowsTask`."""
    # Number the columns: mapInArrow parses names as expressions, and names from data may have dots, backticks or an asterisk.
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    return _written(numbered.mapInArrow(RowsTask(folder, layout, errors).run, _YIELDED))


def discard(written: Written, folder: Folder) -> None:
    """Delete files for which no commit was begun."""
    with suppress(Exception):  # a broken file system may be the reason why they were not committed
        filesystem, path = folder.open()
        delete_files(filesystem, path, [file.path for file in written.files])


def run_here(task: FileTask, n_partitions: int) -> Written:
    """Process each input partition in this process: for few records, a Spark job would take longer."""
    results: list[_Result] = []
    try:
        for number in range(n_partitions):
            results.extend(task.results(number))
    except BaseException:
        discard(_of_results(results), task.folder)
        raise
    return _of_results(results)


def _written(yielded: DataFrame) -> Written:
    # The pickles come from this package's own tasks, as do all results of Spark's workers.
    return _of_results([pickle.loads(row.result) for row in yielded.collect()])  # noqa: S301


def _of_results(results: Sequence[_Result]) -> Written:
    read = [result for result in results if isinstance(result, ReadRecords)]
    rejects = [records.rejects for records in read]
    return Written(
        unwritable=next((result for result in results if isinstance(result, str)), None),
        files=tuple(result for result in results if isinstance(result, WrittenFile)),
        n_rejects=sum(records.n_rejects for records in read),
        rejects=pa.concat_tables(rejects) if rejects and all(reject is not None for reject in rejects) else None,
        newest_ms=max((records.newest_ms for records in read), default=0),
    )
