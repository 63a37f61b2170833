"""Files as tasks write them, without Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa

from pykafka_wire.ingest.files.parquet import FileLayout
from pykafka_wire.ingest.files.tasks import ReadRecords, RowsTask, Written
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.tables.files_table import FilesTable


def written_files(files: FilesTable, table: Table, batch: pa.RecordBatch) -> tuple[Written, FileLayout]:
    """Write rows into files of a table, and return them with their layout; nothing is committed."""
    files.refresh()
    assert files.spark_reason() is None
    layout = files.layout(files.arrow_schema, table)
    results = [
        pickle.loads(result.column(0)[0].as_py()) for result in RowsTask(files.folder, layout, ()).run(iter([batch]))
    ]
    return Written(files=tuple(result for result in results if not isinstance(result, ReadRecords))), layout
