"""Writes the record batches of one task as Parquet files, and collects what a table's log needs about each file.

Knows nothing of Spark, Kafka or commits. A failed writer deletes its files. A file that no commit names is an orphan: a task that
was killed, or that ran twice, leaves one, and the table's maintenance deletes it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pykafka_wire.ingest.files.statistics import (
    ColumnStatistics,
    Leaf,
    RowGroup,
    any_date_text,
    column_of,
    column_statistics,
    parquet_leaves,
    survey,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: Codes of combinations of values are smaller, so that each is an int64.
_MAX_CODES: Final = 1 << 62
#: The most bytes that a task buffers for row groups, over all its files.
_BUFFERED_BYTES: Final = 64 * 1024 * 1024
#: The memory overhead of each column in each buffered batch: Arrow objects and buffer padding.
_PIECE_BYTES: Final = 1024
#: The most open files at a time: an open file buffers the bytes of an upload.
_OPEN_FILES: Final = 32
#: Iceberg's default. Files are a third smaller than with snappy, for a tenth more CPU.
_COMPRESSION: Final = "zstd"
_COMPRESSION_LEVEL: Final = 1
#: Hive's folder name for null, which readers of Delta and of Hive-style folders know.
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
#: The characters that Hive and Spark escape in folder names, as ``%`` and two hex digits.
_ESCAPED: Final = frozenset((*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^"))
#: The most bytes of a column's name or value in a folder name. File systems allow 255 for both; object stores 1024 for a path.
_LONGEST_NAME: Final = 100
#: File systems with real folders. An object store would store an empty object for each folder.
_WITH_FOLDERS: Final = ("local", "hdfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How the files of a table are written.

    Attributes:
        schema: the rows' pyarrow schema, including partition columns.
        partition_by: the partition columns, each with one value in a file.
        keeps_partitions: whether partition columns are also columns of the files: yes in Iceberg, no in Delta.
        target_bytes: the size at which a file is closed, and the next one begun.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    keeps_partitions: bool = False
    target_bytes: int = 128 * 1024 * 1024

    @property
    def file_schema(self) -> pa.Schema:
        """Return the pyarrow schema of a file."""
        if self.keeps_partitions:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A written file of a table.

    Attributes:
        path: the path relative to the table's folder.
        n_bytes: the size of the file.
        partition: the values of the partition columns, in order; dates and timestamps as days and µs since the epoch.
        columns: the statistics of each Parquet column, in the order of :func:`parquet_leaves`.
        null_counts: the null counts of lists and maps, by column: Parquet counts only their elements.
        split_offsets: the positions of the row groups, in bytes.
    """

    path: str
    n_bytes: int
    n_rows: int
    partition: tuple[Any, ...]
    columns: Sequence[ColumnStatistics]
    null_counts: Mapping[str, int]
    split_offsets: Sequence[int]


class UnwritableError(Exception):
    """A file cannot be written to the table's folder, or not completely."""


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableError(f"{path}: {error}") from error


class FileWriter:
    """Writes the rows of one task as files of a table."""

    def __init__(self, filesystem: FileSystem, folder: str, layout: FileLayout) -> None:
        """Store the pyarrow ``filesystem``, the table's ``folder`` in it, and the layout."""
        self._filesystem = filesystem
        self._folder = folder
        self._layout = layout
        self._leaves = parquet_leaves(layout.file_schema)
        self._buffers: dict[tuple[Any, ...], _PartitionBuffer] = {}
        self._opened: dict[tuple[Any, ...], _OpenFile] = {}
        self._closed: list[str] = []
        self._n_buffered = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        """Write rows, and yield each completed file. If writing does not end normally, all files are deleted.

        Raises:
            UnwritableError: the folder does not accept a file.
        """
        try:
            yield from self._write(batches)
        except BaseException:  # also GeneratorExit: then nobody receives the files
            for file in self._opened.values():
                file.abandon()
            paths = [*self._closed, *(file.path for file in self._opened.values())]
            delete_files(self._filesystem, self._folder, paths)
            raise

    def _write(self, batches: Iterable[Any]) -> Iterator[WrittenFile]:
        for batch in batches:
            for values, rows in _by_values(batch, self._layout.partition_by):
                if not self._layout.keeps_partitions:  # Delta's log stores an empty text as null
                    values = tuple(None if value == "" else value for value in values)
                self._n_buffered += self._buffer(values).add(rows)
            if self._n_buffered >= _BUFFERED_BYTES:
                yield from self._make_room()
        for values, buffer in self._buffers.items():
            yield from self._flush(buffer)
            yield self._close(values)

    def _buffer(self, values: tuple[Any, ...]) -> _PartitionBuffer:
        if values not in self._buffers:
            self._buffers[values] = _PartitionBuffer(values, self._layout.file_schema, len(self._leaves))
        return self._buffers[values]

    def _make_room(self) -> Iterator[WrittenFile]:
        """Write the largest buffers until half of the limit is free. This avoids a write for each batch if there are many
        partitions."""
        for values, buffer in sorted(self._buffers.items(), key=lambda item: item[1].n_buffered, reverse=True):
            if self._n_buffered < _BUFFERED_BYTES // 2:
                return
            if values not in self._buffers:
                continue
            yield from self._flush(buffer)
            if self._opened[values].n_bytes >= self._layout.target_bytes:
                yield self._close(values)
                del self._buffers[values]
            if len(self._opened) > _OPEN_FILES:
                largest = max(self._opened, key=lambda values: self._opened[values].n_bytes)
                yield from self._flush(self._buffers[largest])
                yield self._close(largest)
                del self._buffers[largest]

    def _flush(self, buffer: _PartitionBuffer) -> Iterator[WrittenFile]:
        """Write the buffered rows as one row group; in a new file, if the open file's statistics would be wrong for these rows."""
        if not buffer.n_buffered:
            return
        self._n_buffered -= buffer.n_buffered
        rows = buffer.take()
        known = survey(rows, self._leaves)
        opened = self._opened.get(buffer.values)
        if opened is not None and not opened.takes(known):
            buffer.without_bounds |= opened.without_bounds
            buffer.without_dictionary |= opened.without_dictionary
            yield self._close(buffer.values)
            opened = None
        if opened is None:
            buffer.without_bounds |= known.without_bounds
            buffer.without_dictionary |= known.without_dictionary
            opened = self._opened[buffer.values] = self._new_file(buffer)
            opened.open(self._filesystem, self._folder)
        opened.write(rows, known)

    def _new_file(self, buffer: _PartitionBuffer) -> _OpenFile:
        names = zip(self._layout.partition_by, buffer.values, strict=True)
        folders = "".join(folder_name(name, value, self._layout.schema.field(name).type) for name, value in names)
        return _OpenFile(f"{folders}{uuid.uuid4()}.parquet", self._layout.file_schema, self._leaves, buffer)

    def _close(self, values: tuple[Any, ...]) -> WrittenFile:
        file = self._opened[values].close(values)
        del self._opened[values]
        self._closed.append(file.path)
        return file


class _PartitionBuffer:
    """The buffered rows of one partition.

    Attributes:
        without_bounds, without_dictionary: as in :class:`~pykafka_wire.ingest.files.statistics.RowGroup`, for all rows so far. A
            leaf stays in these sets: if a few rows need them, these rows do not close one file each.
    """

    def __init__(self, values: tuple[Any, ...], schema: pa.Schema, n_leaves: int) -> None:
        self.values = values
        self.n_buffered = 0
        self.without_bounds: frozenset[str] = frozenset()
        self.without_dictionary: frozenset[str] = frozenset()
        self._schema = schema
        self._piece_bytes = _PIECE_BYTES * n_leaves
        self._buffered: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> int:
        """Buffer rows; return the memory that they use, in bytes."""
        self._buffered.append(batch.select(self._schema.names))
        n_bytes = int(batch.nbytes) + self._piece_bytes
        self.n_buffered += n_bytes
        return n_bytes

    def take(self) -> pa.Table:
        """Return the buffered rows, and clear the buffer."""
        rows = pa.Table.from_batches(self._buffered, schema=self._schema)
        self._buffered, self.n_buffered = [], 0
        return rows


class _OpenFile:
    """A file that is being written."""

    def __init__(self, path: str, schema: pa.Schema, leaves: Sequence[Leaf], buffer: _PartitionBuffer) -> None:
        self.path = path
        self.without_bounds = buffer.without_bounds
        self.without_dictionary = buffer.without_dictionary
        self._schema = schema
        self._leaves = leaves
        self._stream: Any = None
        self._writer: Any = None
        self._n_rows = 0
        self._null_counts = {field.name: 0 for field in schema if _is_list(field.type)}
        self._n_nulls = {
            position: 0
            for position, leaf in enumerate(leaves)
            if leaf.name in self.without_bounds and not leaf.is_repeated
        }
        self._n_nans: dict[int, int] = {}
        self._long_texts: dict[int, list[tuple[str, str] | None]] = {}

    def open(self, filesystem: FileSystem, folder: str) -> None:
        """Create the file in a table's folder."""
        with _writing(self.path):
            self._open(filesystem, f"{folder}/{self.path}" if folder else self.path)

    def _open(self, filesystem: FileSystem, place: str) -> None:
        if filesystem.type_name in _WITH_FOLDERS:
            filesystem.create_dir(place.rpartition("/")[0], recursive=True)
        self._stream = filesystem.open_output_stream(place)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema,
            compression=_COMPRESSION,
            compression_level=_COMPRESSION_LEVEL,
            store_decimal_as_integer=True,  # as Spark does
            store_schema=False,
            write_statistics=self._all_but(self.without_bounds),
            use_dictionary=self._all_but(self.without_dictionary),
        )

    def _all_but(self, names: frozenset[str]) -> bool | list[str]:
        return [leaf.name for leaf in self._leaves if leaf.name not in names] if names else True

    @property
    def n_bytes(self) -> int:
        """Return the number of bytes written so far."""
        return 0 if self._stream is None else int(self._stream.tell())

    def takes(self, known: RowGroup) -> bool:
        """Return whether the file's statistics stay correct with these rows."""
        return known.without_bounds <= self.without_bounds and known.without_dictionary <= self.without_dictionary

    def write(self, rows: pa.Table, known: RowGroup) -> None:
        """Write rows as one row group."""
        self._n_rows += rows.num_rows
        for name in self._null_counts:
            self._null_counts[name] += rows[name].null_count
        for position in self._n_nulls:
            self._n_nulls[position] += column_of(rows, self._leaves[position].path).null_count
        for position, n_nans in known.n_nans.items():
            self._n_nans[position] = self._n_nans.get(position, 0) + n_nans
        for position, bounds in known.long_texts.items():
            self._long_texts.setdefault(position, []).append(bounds)
        with _writing(self.path):
            self._writer.write_table(rows, row_group_size=rows.num_rows)

    def abandon(self) -> None:
        """Drop a file that will not be completed."""
        for opened in (self._writer, self._stream):
            with suppress(Exception):  # the error that caused the drop occurs again
                opened.close()
        if self._writer is not None:
            self._writer.is_open = False  # otherwise its finalizer closes it once more

    def close(self, values: tuple[Any, ...]) -> WrittenFile:
        """Complete the file. Its rows have these partition values."""
        with _writing(self.path):
            self._writer.close()
            n_bytes = self.n_bytes
            self._stream.close()
        metadata = self._writer.writer.metadata
        return WrittenFile(
            path=self.path,
            n_bytes=n_bytes,
            n_rows=self._n_rows,
            partition=values,
            columns=tuple(
                column_statistics(
                    metadata,
                    position,
                    leaf.kind,
                    n_nulls=self._n_nulls.get(position),
                    n_nans=self._n_nans.get(position),
                    long_texts=self._long_texts.get(position, ()),
                )
                for position, leaf in enumerate(self._leaves)
            ),
            null_counts=self._null_counts,
            split_offsets=tuple(_start_of(metadata.row_group(n).column(0)) for n in range(metadata.num_row_groups)),
        )


def _start_of(chunk: Any) -> int:
    offsets = (chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
    return min(int(offset) for offset in offsets if offset is not None)


def delete_files(filesystem: FileSystem, folder: str, paths: Iterable[str]) -> None:
    """Delete files in a table's folder that no commit names. Files that cannot be deleted become orphans."""
    for path in paths:
        with suppress(OSError):
            filesystem.delete_file(f"{folder}/{path}" if folder else path)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


def folder_name(name: str, value: Any, kind: pa.DataType) -> str:
    """Return the folder name of a partition, with a trailing slash. The table's log or manifest stores the value itself.

    Args:
        value: a value as in :class:`WrittenFile`, of the pyarrow type ``kind``.
    """
    return f"{_escaped(name)}={_NULL_FOLDER if value is None else _escaped(partition_text(value, kind))}/"


def partition_text(value: Any, kind: pa.DataType) -> str:
    """Return a partition value as text for Delta's log and for folder names; dates in Spark's format."""
    if isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_date(kind):
        return any_date_text(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _escaped(text: str) -> str:
    """Return a text escaped for a folder name. A long text ends with a digest."""
    escaped = "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)
    if len(escaped.encode()) <= _LONGEST_NAME:
        return escaped
    begin = escaped.encode()[: _LONGEST_NAME // 2].decode(errors="ignore")
    return f"{begin}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _by_values(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the rows of each combination of values, in their original order."""
    if not batch.num_rows:
        return
    if not names:
        yield (), batch
        return
    codes, n_codes = np.zeros(batch.num_rows, dtype=np.int64), 1
    for name in names:
        encoded = pc.dictionary_encode(batch[name], null_encoding="encode")
        n_values = max(1, len(encoded.dictionary))
        if n_codes * n_values > _MAX_CODES:
            codes, n_codes = np.unique(codes, return_inverse=True)[1], batch.num_rows
        codes, n_codes = codes * n_values + encoded.indices.to_numpy(zero_copy_only=False), n_codes * n_values
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = batch.take(pa.array(order[start:end]))
        yield tuple(_partition_value(rows[name][0]) for name in names), rows


def _partition_value(value: pa.Scalar) -> Any:
    """Return a value as in :class:`WrittenFile`: Python has no dates outside the years 1 to 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()
