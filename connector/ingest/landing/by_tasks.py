"""The driver's part of a write by tasks: tasks write a topic's range as files, and the driver commits the files.

If the files need new columns or wider types, Spark adds these to the table first. If tasks cannot write a range, the result is a
:class:`SparkAlone` with the reason, and Spark writes the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest.changes.newest import REASON, Counts
from pykafka_wire.ingest.files.parquet import FileLayout
from pykafka_wire.ingest.files.tasks import (
    PLACE,
    FileTask,
    Folder,
    RowsOfRead,
    Written,
    discard,
    run_here,
    run_tasks,
    write_rows,
)
from pykafka_wire.ingest.files.types import file_type, fits
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows, with_rejects
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import Read
from pykafka_wire.ingest.records.table_columns import TableColumn, table_columns
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.spark.progress import records_of_jobs
from pykafka_wire.ingest.spark.sql import column_ddl
from pykafka_wire.ingest.tables.files_table import FilesTable, discarding
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.source.input_partition import KafkaInputPartition

#: Spark's names of the types that are the same in Delta, Arrow and Parquet.
_TYPES: Final = frozenset(
    (
        *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)
#: The driver itself reads a single input partition of at most this many records: that is faster than a Spark job, which takes 0.1
#: s. An input partition has at most an estimated 32 MiB.
_FEW_RECORDS: Final = 10_000
#: Characters that a column name may have only with Delta's column mapping.
_NEED_MAPPING: Final = frozenset(" ,;{}()\n\t=")


class _Job(NamedTuple):
    """The columns of rows, and the function that writes the rows as files of a layout."""

    columns: Sequence[TableColumn]
    run: Callable[[Folder, FileLayout], Written]


class FileLanding:
    """Writes ranges into the table of one attempt: tasks write files, and one commit adds them."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Store the attempt. Does not open the table's files."""
        self._attempt = attempt
        self._session = attempt.session
        self._settings = attempt.settings
        self._reader = attempt.reader
        self._table = attempt.table
        self._target = attempt.target
        self._files: FilesTable | None = None

    def files(self) -> FilesTable | SparkAlone:
        """Return the table for commits of files, without the JVM; or the reason why only Spark may commit."""
        if self._attempt.is_spark_alone:
            return SparkAlone("Spark is compacting its small files at the moment")
        progress = self._attempt.progress
        if self._files is None and progress.is_open and progress.files is not None and progress.files.is_same:
            self._files = progress.files
        if self._files is None:
            files = format_of(self._settings).open_files(
                self._session, self._settings, self._table, self._target, self._attempt.name
            )
            if isinstance(files, SparkAlone):
                return files
            self._files = files
            progress.files = None if files.needs_session else files
        return self._files

    def reopen(self) -> None:
        """Open the table's files again at the next use."""
        self._files = self._attempt.progress.files = None

    def write(
        self, topic_range: TopicRange, schema: ValueSchema, landed: Landed, known: TopicTable | None
    ) -> WrittenRows | SparkAlone:
        """Let tasks write the files of a range, and commit them; or return the reason why Spark has to write the range.

        Args:
            known: the table, or None if it does not exist yet.

        Raises:
            AlreadyLandedError, TableChangedError: as :meth:`FilesTable.append_files`.
            IngestError, AnalysisException: the table cannot take the rows' types, or an expression is wrong.
        """
        files = self.files()
        if isinstance(files, SparkAlone):
            return files
        if known is not None:
            files.refresh()
            if (reason := files.spark_reason()) is not None:
                return SparkAlone(reason)
        read = self._reader.plan(self._session, topic_range, schema, None if known is None else files)
        if known is not None and read.noted:
            self._target.alter(read.noted)
            files.refresh()
        initial_position = (
            None if known is not None else self._attempt.initial_position(replace(topic_range, start=landed.start))
        )
        job = None if read.by_spark else self._task_job(read, topic_range)
        with self._spark_job(read, topic_range) if job is None else nullcontext(job) as job:
            written = self._write(job, files, landed, initial_position, read.noted)
        if isinstance(written, SparkAlone):
            return written
        counts = Counts(n=written.n_rows + written.n_rejects, n_rejects=written.n_rejects, newest_ms=written.newest_ms)
        return WrittenRows(counts=counts, rejects=written.rejects)

    def _write(
        self,
        job: _Job,
        folder: FilesTable,
        landed: Landed,
        initial_position: Landed | None,
        noted: Mapping[str, str],
    ) -> Written | SparkAlone:
        if (
            other := next(filter(None, (_unsupported_type(column.read_type) for column in job.columns)), None)
        ) is not None:
            return SparkAlone(f"it has a column of the type {other}")
        rows = StructType([StructField(column.name, column.type) for column in job.columns])
        self._prepare(folder, rows, initial_position, noted)
        if (reason := folder.spark_reason()) is not None:
            return SparkAlone(reason)
        held = pa.struct(folder.arrow_schema)
        layout = folder.layout(pa.schema(file_type(pa.struct(arrow_schema(rows)), held)), self._table)
        if missing := [name for name in layout.partition_by if name not in layout.schema.names]:
            return SparkAlone(f"the records have no column {missing[0]}, by which the table is partitioned")
        written = job.run(folder.folder, layout)
        if written.unwritable is not None:
            discard(written, folder.folder)
            return SparkAlone(f"tasks cannot write {written.unwritable}")
        known = replace(with_rejects(landed, written.n_rejects, written.rejects), newest_ms=written.newest_ms or None)
        with discarding(written, folder.folder):
            folder.append_files(written, layout, known)
        return written

    def _task_job(self, read: Read, topic_range: TopicRange) -> _Job | None:
        """Return rows that tasks read and write without Spark; None if Spark has to evaluate SQL expressions of the table."""
        source = self._reader.source
        opened = source.opened(read.options)
        contract = self._reader.task_contract(self._session, opened.schema)
        if contract is None:
            return None
        columns = table_columns(contract.rows, self._settings)
        rows = RowsOfRead(
            columns=[contract.column(column.path) for column in columns],
            errors=read.errors,
            where=contract.where,
            expectations=contract.expectations,
            record=contract.record,
        )

        def run(folder: Folder, layout: FileLayout) -> Written:
            def unplanned() -> Written:
                partitions = opened.reader.partitions_of(topic_range.of_partitions)
                if not _are_for_driver(partitions):
                    return planned()
                return self._run(FileTask(opened.reader, partitions, rows, folder, layout), partitions)

            def planned() -> Written:
                _, reader = open_source(read.options)
                partitions = [_as_kafka(partition) for partition in reader.partitions()]
                return self._run(FileTask(reader, partitions, rows, folder, layout), partitions)

            return source.unplanned_or_planned(topic_range, unplanned, planned)

        return _Job(columns, run)

    def _run(self, task: FileTask, partitions: Sequence[KafkaInputPartition]) -> Written:
        if _are_for_driver(partitions):
            receiver = self._attempt.run.receiver
            for partition in partitions:
                partition.receiver = None if receiver is None else replace(receiver, is_here=True)
            return run_here(task, len(partitions))
        with records_of_jobs(self._session, _n_records(partitions)):
            return run_tasks(self._session, task, len(partitions))

    @contextmanager
    def _spark_job(self, read: Read, topic_range: TopicRange) -> Iterator[_Job]:
        """Yield rows that Spark computes: JSON documents with inferred types, records in an envelope, or SQL expressions."""
        with self._attempt.shared.of_range(topic_range).records(self._session, self._reader, read) as rows:
            columns = table_columns(rows.schema, self._settings)

            def run(folder: Folder, layout: FileLayout) -> Written:
                of_table = [F.col(column.sql).alias(column.name) for column in columns]
                place = [F.col(name).alias(f"_pykafka_wire_{name}") for name in PLACE]
                return write_rows(rows.select(*of_table, *place, REASON), folder, layout, (REASON,))

            yield _Job(columns, run)

    def _prepare(
        self, folder: FilesTable, rows: StructType, initial_position: Landed | None, noted: Mapping[str, str]
    ) -> None:
        """Create the table, with the properties ``noted``, or add the columns and types of ``rows`` to it."""
        table = replace(self._table, properties={**self._table.properties, **noted})
        if initial_position is None:
            if not fits(pa.struct(arrow_schema(rows)), pa.struct(folder.arrow_schema)):
                self._target.add_columns(self._session.createDataFrame([], rows))
                folder.refresh()
        elif table.properties or _needs_mapping(rows):  # only Spark can set these table features
            self._target.create(column_ddl(rows), table, initial_position.query, initial_position)
        else:
            folder.create_of(arrow_schema(rows), self._table, initial_position.query, initial_position)


def _n_records(partitions: Sequence[KafkaInputPartition]) -> int:
    return sum(offset_range.n_offsets for partition in partitions for offset_range in partition.ranges)


def _are_for_driver(partitions: Sequence[KafkaInputPartition]) -> bool:
    """Return whether the driver reads these input partitions itself, without a Spark job."""
    return len(partitions) <= 1 and _n_records(partitions) <= _FEW_RECORDS


def _as_kafka(partition: InputPartition) -> KafkaInputPartition:
    assert isinstance(partition, KafkaInputPartition)
    return partition


def _needs_mapping(data_type: DataType) -> bool:
    """Return whether a column name has characters that need column mapping."""
    if isinstance(data_type, StructType):
        return any(_NEED_MAPPING.intersection(field.name) or _needs_mapping(field.dataType) for field in data_type)
    return any(
        _needs_mapping(getattr(data_type, child)) for child in ("elementType", "valueType") if hasattr(data_type, child)
    )


def _unsupported_type(data_type: DataType) -> str | None:
    """Return the first nested type that Spark and files represent differently, as SQL; None if there is none."""
    inner: Iterable[DataType]
    if isinstance(data_type, StructType):
        inner = [field.dataType for field in data_type]
        return next(filter(None, map(_unsupported_type, inner)), None) if inner else "STRUCT<>"
    if isinstance(data_type, ArrayType):
        return _unsupported_type(data_type.elementType)
    if isinstance(data_type, MapType):
        return _unsupported_type(data_type.keyType) or _unsupported_type(data_type.valueType)
    text = str(data_type.simpleString())
    return None if text.partition("(")[0] in _TYPES else text
