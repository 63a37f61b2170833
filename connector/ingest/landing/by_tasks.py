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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest.changes.newest import REASON
from pykafka_wire.ingest.files.parquet import FileLayout
from pykafka_wire.ingest.files.tasks import (
    PLACE,
    FileTask,
    Folder,
    RowsOfRead,
    UntakenRecords,
    Written,
    discard,
    run_here,
    run_tasks,
    write_rows,
)
from pykafka_wire.ingest.files.types import file_type, fits
from pykafka_wire.ingest.records.contracts import Census, needs_headers
from pykafka_wire.ingest.records.json.types import column_ddl
from pykafka_wire.ingest.records.reader import Read, TableReader
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.records.table_columns import TableColumn, table_columns
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.sessions.progress import receiver_of_own_reads, records_of_jobs
from pykafka_wire.ingest.settings.model import ContractSettings, Settings, Table
from pykafka_wire.ingest.tables.files_table import FilesTable, discarding
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
    """Lands one table's rows by files."""

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        reader: TableReader,
        table: Table,
        target: TopicTable,
        shared: SharedRead,
    ) -> None:
        """Take the table as Spark has it as ``target``, and what it reads together with other tables."""
        self._session = session
        self._settings = settings
        self._reader = reader
        self._table = table
        self._target = target
        self._shared = shared

    def land(
        self, folder: FilesTable, read: Read, landed: Landed, begins_at: Landed | None, census: Census | None = None
    ) -> Written | str:
        """Commit the rows of a read; or the reason why Spark has to.

        Args:
            begins_at: what the table begins with, if it does not exist.

        Raises:
            AlreadyLandedError, TableChangedError: as :meth:`FilesTable.append_files`.
            IngestError, AnalysisException: the table cannot take the rows' types, or an expression, of the census, too, is wrong.
        """
        if census is not None and needs_headers(census.tables):
            read = read.with_option("includeHeaders", "true")
        job = None if read.readings else self._tasks_alone(read, () if census is None else census.tables)
        with self._behind_spark(read, census) if job is None else nullcontext(job) as job:
            return self._write(job, folder, landed, begins_at)

    def _write(self, job: _Job, folder: FilesTable, landed: Landed, begins_at: Landed | None) -> Written | str:
        if (other := next(filter(None, (_other_type(column.read_type) for column in job.columns)), None)) is not None:
            return f"it has a column of the type {other}"
        rows = StructType([StructField(column.name, column.type) for column in job.columns])
        self._prepare(folder, rows, begins_at)
        if (reason := folder.reason_against()) is not None:
            return reason
        held = pa.struct(folder.arrow_schema)
        layout = folder.layout(pa.schema(file_type(pa.struct(arrow_schema(rows)), held)), self._table)
        if missing := [name for name in layout.partition_by if name not in layout.schema.names]:
            return f"the records have no {missing[0]}, which its partitions are by"
        written = job.run(folder.folder, layout)
        if written.unwritable is not None:
            discard(written, folder.folder)
            return f"tasks cannot write {written.unwritable}"
        known = replace(landed, n_rejects=written.n_rejects, newest_ms=written.newest_ms or None)
        with discarding(written, folder.folder):
            folder.append_files(written, layout, known)
        return written

    def _tasks_alone(self, read: Read, census: Sequence[ContractSettings]) -> _Job | None:
        """Return rows that tasks read and write themselves; None where Spark has to evaluate what the table takes and selects."""
        schema, reader = open_source(read.options)
        contract = self._reader.task_contract(self._session, schema, census)
        if contract is None:
            return None
        columns = table_columns(contract.rows, self._settings)
        rows = RowsOfRead(
            columns=[contract.column(column.path) for column in columns],
            errors=read.errors,
            where=contract.where,
            expectations=contract.expectations,
            census=contract.census,
        )

        def run(folder: Folder, layout: FileLayout) -> Written:
            partitions = reader.partitions()
            task = FileTask(reader, partitions, rows, folder, layout)
            written = self._run(task, partitions)
            return replace(written, untaken=written.untaken or UntakenRecords()) if rows.census else written

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
    def _behind_spark(self, read: Read, census: Census | None) -> Iterator[_Job]:
        """Lend rows that Spark makes: of JSON documents whose types are found in them, or that are in an envelope, and by
        expressions in SQL."""
        with self._shared.records(self._session, self._reader, read, census) as rows:
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
