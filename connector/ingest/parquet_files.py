"""A task's part of a table: record batches to Parquet files, and what a table's log has to know of each file.

Knows nothing of Spark, of Kafka, and of what a commit is. A writer that fails deletes its files. A file that no commit names is an
orphan: a task that was killed, or that ran twice, leaves one, and the table's upkeep removes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: Arrow's bytes that wait for their row groups, over all files of a task.
_BUFFERED_BYTES: Final = 64 * 1024 * 1024
#: Of each column of each batch that waits, beside its values: Arrow's objects and the padding of its buffers.
_PIECE_BYTES: Final = 1024
#: So many files are open at a time: an open file keeps the bytes of an upload.
_OPEN_FILES: Final = 32
#: Iceberg's default. Files are a third smaller than with snappy, for a tenth more CPU.
_COMPRESSION: Final = "zstd"
_COMPRESSION_LEVEL: Final = 1
#: Hive's name of the folder of null, which readers of Delta and of folders know.
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
#: Hive's and Spark's set of characters that names of folders have as ``%`` and two digits.
_ESCAPED: Final = frozenset((*map(chr, range(1, 32)), *"\"#%'*/:=?\\\x7f{[]^"))
#: File systems that have folders; an object store would keep an empty object for each.
_WITH_FOLDERS: Final = ("local", "hdfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How the files of a table are written.

    Attributes:
        schema: pyarrow's, of the rows, columns of partitions among them.
        partition_by: columns of which a file has one value each.
        keeps_partitions: whether these are columns of the files, too: Iceberg's are, Delta's are not.
        target_bytes: a file that has so many is closed, and the next one begun.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    keeps_partitions: bool = False
    target_bytes: int = 128 * 1024 * 1024

    @property
    def file_schema(self) -> pa.Schema:
        """Return pyarrow's schema of a file."""
        if self.keeps_partitions:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file of a table.

    Attributes:
        path: relative to the table's folder.
        n_bytes: of the file.
        partition: the values of ``partition_by``, in its order.
        metadata: Parquet's, with the minima, maxima and counts of nulls.
        null_counts: of lists and maps, by column: Parquet counts their elements' alone.
        nan_columns: dotted paths of columns with NaN, which Parquet leaves out of minima and maxima.
    """

    path: str
    n_bytes: int
    n_rows: int
    partition: tuple[Any, ...]
    metadata: pq.FileMetaData
    null_counts: Mapping[str, int]
    nan_columns: frozenset[str]


class UnwritableError(Exception):
    """A file cannot be written to the table's folder, or not to its end."""


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableError(f"{path}: {error}") from error


class FileWriter:
    """Writes the rows of one task into files of a table."""

    def __init__(self, filesystem: FileSystem, folder: str, layout: FileLayout) -> None:
        """Take the table's ``folder`` in ``filesystem``, which is pyarrow's."""
        self._filesystem = filesystem
        self._folder = folder
        self._layout = layout
        self._parts: dict[tuple[Any, ...], _Part] = {}
        #: Those of the parts whose file is open.
        self._opened: dict[tuple[Any, ...], _Part] = {}
        self._closed: list[str] = []
        self._n_buffered = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        """Write rows, and yield each file when it is complete. All of them are deleted where the writing does not end well.

        Raises:
            UnwritableError: the folder does not take it.
        """
        try:
            yield from self._write(batches)
        except BaseException:  # GeneratorExit, too: nobody learns of the files
            for part in self._opened.values():
                part.abandon()
            delete_files(
                self._filesystem, self._folder, [*self._closed, *(part.path for part in self._opened.values())]
            )
            raise

    def _write(self, batches: Iterable[Any]) -> Iterator[WrittenFile]:
        for batch in batches:
            for values, rows in _by_values(batch, self._layout.partition_by):
                if not self._layout.keeps_partitions:  # an empty text is null in Delta's log
                    values = tuple(None if value == "" else value for value in values)
                self._n_buffered += self._part(values).add(rows)
            if self._n_buffered >= _BUFFERED_BYTES:
                yield from self._make_room()
        for values, part in self._parts.items():
            self._flush(part)
            yield self._close(values)

    def _part(self, values: tuple[Any, ...]) -> _Part:
        if values not in self._parts:
            layout = self._layout
            folders = [folder_name(name, value) for name, value in zip(layout.partition_by, values, strict=True)]
            self._parts[values] = _Part(self._filesystem, self._folder, "".join(folders), layout, values)
        return self._parts[values]

    def _make_room(self) -> Iterator[WrittenFile]:
        """Write the largest parts, until half of what may wait is left: not the next one for each batch, if parts are many."""
        for values, part in sorted(self._parts.items(), key=lambda item: item[1].n_buffered, reverse=True):
            if self._n_buffered < _BUFFERED_BYTES // 2:
                return
            if values not in self._parts:
                continue
            self._flush(part)
            if part.n_bytes >= self._layout.target_bytes:
                yield self._close(values)
                del self._parts[values]
            if len(self._opened) > _OPEN_FILES:
                largest = max(self._opened, key=lambda values: self._opened[values].n_bytes)
                self._flush(self._parts[largest])
                yield self._close(largest)
                del self._parts[largest]

    def _flush(self, part: _Part) -> None:
        self._n_buffered -= part.n_buffered
        self._opened[part.values] = part
        part.flush()

    def _close(self, values: tuple[Any, ...]) -> WrittenFile:
        file = self._opened[values].close()
        del self._opened[values]
        self._closed.append(file.path)
        return file


class _Part:
    """A file, from its first row on; it is opened when its first row group is written."""

    def __init__(
        self, filesystem: FileSystem, folder: str, subfolder: str, layout: FileLayout, values: tuple[Any, ...]
    ) -> None:
        self.values = values
        self.n_buffered = 0
        self._filesystem = filesystem
        self._folder = folder
        self.path = f"{subfolder}{uuid.uuid4()}.parquet"
        self._schema = schema = layout.file_schema
        self._piece_bytes = _PIECE_BYTES * sum(1 for _ in leaves(schema))
        self._buffered: list[pa.RecordBatch] = []
        self._stream: Any = None
        self._writer: Any = None
        self._n_rows = 0
        self._null_counts = {field.name: 0 for field in schema if _is_list(field.type)}
        self._floats = [path for path, kind in leaves(schema) if pa.types.is_floating(kind)]
        self._nan_columns: set[str] = set()

    @property
    def n_bytes(self) -> int:
        """Return what is written."""
        return 0 if self._stream is None else int(self._stream.tell())

    def add(self, batch: pa.RecordBatch) -> int:
        """Keep rows until they are written; return the bytes of memory that they take."""
        self._buffered.append(batch.select(self._schema.names))
        n_bytes = int(batch.nbytes) + self._piece_bytes
        self.n_buffered += n_bytes
        return n_bytes

    def flush(self) -> None:
        """Write what is buffered as one row group."""
        if not self._buffered:
            return
        if self._writer is None:
            with _writing(self.path):
                self._open()
        table = pa.Table.from_batches(self._buffered, schema=self._schema)
        self._buffered, self.n_buffered = [], 0
        self._n_rows += table.num_rows
        for name in self._null_counts:
            self._null_counts[name] += table[name].null_count
        for path in self._floats:
            name = ".".join(path)
            if name not in self._nan_columns and pc.any(pc.is_nan(_column(table, path))).as_py():
                self._nan_columns.add(name)
        with _writing(self.path):
            self._writer.write_table(table, row_group_size=table.num_rows)

    def _open(self) -> None:
        path = f"{self._folder}/{self.path}" if self._folder else self.path
        if self._filesystem.type_name in _WITH_FOLDERS:
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        self._stream = self._filesystem.open_output_stream(path)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema,
            compression=_COMPRESSION,
            compression_level=_COMPRESSION_LEVEL,
            store_decimal_as_integer=True,  # as Spark does
            store_schema=False,
        )

    def abandon(self) -> None:
        """Let go of a file that is not to be ended."""
        for opened in (self._writer, self._stream):
            with suppress(Exception):  # what has failed once fails again
                opened.close()
        if self._writer is not None:
            self._writer.is_open = False  # else it is closed once more when it is forgotten

    def close(self) -> WrittenFile:
        """End a file that was flushed."""
        with _writing(self.path):
            self._writer.close()
            n_bytes = self.n_bytes
            self._stream.close()
        return WrittenFile(
            path=self.path,
            n_bytes=n_bytes,
            n_rows=self._n_rows,
            partition=self.values,
            metadata=self._writer.writer.metadata,
            null_counts=self._null_counts,
            nan_columns=frozenset(self._nan_columns),
        )


def delete_files(filesystem: FileSystem, folder: str, paths: Iterable[str]) -> None:
    """Delete files of a table's folder that no commit names, as far as that is possible: others are orphans."""
    for path in paths:
        with suppress(OSError):
            filesystem.delete_file(f"{folder}/{path}" if folder else path)


def leaves(schema: pa.Schema | pa.StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield paths and types of columns and of structs' fields, in order; a list or a map is a leaf."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from leaves(field.type, (*path, field.name))
        else:
            yield (*path, field.name), field.type


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


def _column(table: pa.Table, path: Sequence[str]) -> Any:
    column = table[path[0]]
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def folder_name(name: str, value: Any) -> str:
    """Return the folder of a partition, with a slash behind it."""
    if value is None:
        return f"{_escaped(name)}={_NULL_FOLDER}/"
    return f"{_escaped(name)}={_escaped(partition_text(value))}/"


def partition_text(value: Any) -> str:
    """Return a value of a partition as Delta's log and the names of folders have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def _by_values(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the rows of each combination of values, in their order."""
    if not batch.num_rows:
        return
    if not names:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        encoded = pc.dictionary_encode(batch[name], null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = batch.take(pa.array(order[start:end]))
        yield tuple(rows[name][0].as_py() for name in names), rows
