"""Rows of a topic into a Delta folder, by files that tasks write and one commit: the driver's part.

Columns and wider types are given to the table by Spark, before the files that need them. What this way cannot do has a reason, and
is Spark's to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from pykafka_wire.ingest.landing.attempt import TableAttempt, WrittenRows
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.json.types import column_ddl
from pykafka_wire.ingest.records.reader import Read
from pykafka_wire.ingest.records.table_columns import TableColumn, table_columns
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.sessions.progress import receiver_of_own_reads, records_of_jobs
from pykafka_wire.ingest.tables.files_table import FilesTable, discarding
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import TopicTable
from pykafka_wire.source.input_partition import KafkaInputPartition

#: Spark's names of types that Delta, Arrow and Parquet have alike.
_TYPES: Final = frozenset(
    (
        *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)
#: Of one input partition, which has 32 MiB at most as they are estimated: a Spark job takes a tenth of a second, and these less.
_FEW_RECORDS: Final = 10_000
#: Characters of names that Delta takes with column mapping alone.
_REFUSED: Final = frozenset(" ,;{}()\n\t=")


class _Job(NamedTuple):
    """The columns of rows, and how they are written into files of a layout."""

    columns: Sequence[TableColumn]
    run: Callable[[Folder, FileLayout], Written]


class FileLanding:
    """Writes ranges into the table of one attempt, by tasks and a commit of files."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Take the attempt; the table's files are looked at when they are asked for."""
        self._attempt = attempt
        self._session = attempt.session
        self._settings = attempt.settings
        self._reader = attempt.reader
        self._table = attempt.table
        self._target = attempt.target
        self._files: FilesTable | None = None

    def files(self) -> FilesTable | SparkAlone:
        """Return the table as files are committed to it, without the JVM."""
        if self._attempt.is_spark_alone:
            return SparkAlone("its small files are made large ones at the moment, by Spark")
        if self._files is None:
            files = format_of(self._settings).open_files(
                self._session, self._settings, self._table, self._target, self._attempt.name
            )
            if isinstance(files, SparkAlone):
                return files
            self._files = files
        return self._files

    def reopen(self) -> None:
        """Open the table's files anew when they are next asked for."""
        self._files = None

    def write(
        self, part: TopicRange, schema: ValueSchema, landed: Landed, known: TopicTable | None
    ) -> WrittenRows | SparkAlone:
        """Let tasks write the files of a range, and commit them, if Spark does not have to write them.

        Args:
            known: the table, None before its first rows make it.

        Raises:
            AlreadyLandedError, TableChangedError: as :meth:`FilesTable.append_files`.
            IngestError, AnalysisException: the table cannot take the rows' types, or an expression is wrong.
        """
        files = self.files()
        if isinstance(files, SparkAlone):
            return files
        if known is not None:
            files.refresh()
            if (reason := files.reason_against()) is not None:
                return SparkAlone(reason)
        read = self._reader.plan(self._session, part, schema, None if known is None else files)
        begins_at = None if known is not None else self._attempt.begins_at(replace(part, start=landed.start))
        job = None if read.readings else self._tasks_alone(read)
        with self._behind_spark(read, part) if job is None else nullcontext(job) as job:
            written = self._write(job, files, landed, begins_at)
        if isinstance(written, SparkAlone):
            return written
        counts = Counts(n=written.n_rows + written.n_rejects, n_rejects=written.n_rejects, newest_ms=written.newest_ms)
        return WrittenRows(counts=counts, rejects=written.rejects)

    def _write(self, job: _Job, folder: FilesTable, landed: Landed, begins_at: Landed | None) -> Written | SparkAlone:
        if (other := next(filter(None, (_other_type(column.read_type) for column in job.columns)), None)) is not None:
            return SparkAlone(f"it has a column of the type {other}")
        rows = StructType([StructField(column.name, column.type) for column in job.columns])
        self._prepare(folder, rows, begins_at)
        if (reason := folder.reason_against()) is not None:
            return SparkAlone(reason)
        held = pa.struct(folder.arrow_schema)
        layout = folder.layout(pa.schema(file_type(pa.struct(arrow_schema(rows)), held)), self._table)
        if missing := [name for name in layout.partition_by if name not in layout.schema.names]:
            return SparkAlone(f"the records have no {missing[0]}, which its partitions are by")
        written = job.run(folder.folder, layout)
        if written.unwritable is not None:
            discard(written, folder.folder)
            return SparkAlone(f"tasks cannot write {written.unwritable}")
        known = replace(landed, n_rejects=written.n_rejects, newest_ms=written.newest_ms or None)
        with discarding(written, folder.folder):
            folder.append_files(written, layout, known)
        return written

    def _tasks_alone(self, read: Read) -> _Job | None:
        """Return rows that tasks read and write themselves; None where Spark has to evaluate what the table takes and selects."""
        schema, reader = open_source(read.options)
        contract = self._reader.task_contract(self._session, schema)
        if contract is None:
            return None
        columns = table_columns(contract.rows, self._settings)
        rows = RowsOfRead(
            columns=[contract.column(column.path) for column in columns],
            errors=read.errors,
            where=contract.where,
            expectations=contract.expectations,
        )

        def run(folder: Folder, layout: FileLayout) -> Written:
            partitions = reader.partitions()
            return self._run(FileTask(reader, partitions, rows, folder, layout), partitions)

        return _Job(columns, run)

    def _run(self, task: FileTask, partitions: Sequence[InputPartition]) -> Written:
        n_records = sum(
            offset_range.end_offset - offset_range.start_offset
            for part in partitions
            for offset_range in _kafka(part).ranges
        )
        if len(partitions) <= 1 and n_records <= _FEW_RECORDS:
            for part in partitions:
                _kafka(part).receiver = receiver_of_own_reads(self._session)
            return run_here(task, len(partitions))
        with records_of_jobs(self._session, n_records):
            return run_tasks(self._session, task, len(partitions))

    @contextmanager
    def _behind_spark(self, read: Read, part: TopicRange) -> Iterator[_Job]:
        """Lend rows that Spark makes: of JSON documents whose types are found in them, or that are in an envelope, and by
        expressions in SQL."""
        with self._attempt.shared.of_range(part).records(self._session, self._reader, read) as rows:
            columns = table_columns(rows.schema, self._settings)

            def run(folder: Folder, layout: FileLayout) -> Written:
                of_table = [F.col(column.sql).alias(column.name) for column in columns]
                place = [F.col(name).alias(f"_pykafka_wire_{name}") for name in PLACE]
                return write_rows(rows.select(*of_table, *place, REASON), folder, layout, (REASON,))

            yield _Job(columns, run)

    def _prepare(self, folder: FilesTable, rows: StructType, begins_at: Landed | None) -> None:
        """Make the table, or give it the columns and types of ``rows``."""
        if begins_at is None:
            if not fits(pa.struct(arrow_schema(rows)), pa.struct(folder.arrow_schema)):
                self._target.add_columns(self._session.createDataFrame([], rows))
                folder.refresh()
        elif self._table.properties or _needs_mapping(rows):  # features that Spark alone knows
            self._target.create(column_ddl(rows), self._table, begins_at.query, begins_at)
        else:
            folder.create_of(arrow_schema(rows), self._table, begins_at.query, begins_at)


def _kafka(partition: InputPartition) -> KafkaInputPartition:
    assert isinstance(partition, KafkaInputPartition)
    return partition


def _needs_mapping(data_type: DataType) -> bool:
    """Return whether a name has characters that a table without column mapping cannot have."""
    if isinstance(data_type, StructType):
        return any(_REFUSED.intersection(field.name) or _needs_mapping(field.dataType) for field in data_type)
    return any(
        _needs_mapping(getattr(data_type, part)) for part in ("elementType", "valueType") if hasattr(data_type, part)
    )


def _other_type(data_type: DataType) -> str | None:
    """Return the first type within a type that files have otherwise than Spark, as SQL; None if there is none."""
    inner: Iterable[DataType]
    if isinstance(data_type, StructType):
        inner = [field.dataType for field in data_type]
        return next(filter(None, map(_other_type, inner)), None) if inner else "STRUCT<>"
    if isinstance(data_type, ArrayType):
        return _other_type(data_type.elementType)
    if isinstance(data_type, MapType):
        return _other_type(data_type.keyType) or _other_type(data_type.valueType)
    text = str(data_type.simpleString())
    return None if text.partition("(")[0] in _TYPES else text
