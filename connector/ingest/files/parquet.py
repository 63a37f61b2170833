"""A task's part of a table: record batches to Parquet files, and what a table's log has to know of each file.

Knows nothing of Spark, of Kafka, and of what a commit is. A writer that fails deletes its files. A file that no commit names is an
orphan: a task that was killed, or that ran twice, leaves one, and the table's maintenance removes it.
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
_ESCAPED: Final = frozenset((*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^"))
#: Bytes of a column's name, or a value, in the name of a folder. File systems take 255 for both, and object stores 1024 for a path.
_LONGEST_NAME: Final = 100
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
        partition: the values of ``partition_by``, in its order; dates and timestamps are days and µs since the epoch.
        columns: what is known of each of Parquet's columns, in the order of :func:`parquet_leaves`.
        null_counts: of lists and maps, by column: Parquet counts their elements' alone.
        split_offsets: where the row groups begin, in bytes.
    """

    path: str
    n_bytes: int
    n_rows: int
    partition: tuple[Any, ...]
    columns: Sequence[ColumnStatistics]
    null_counts: Mapping[str, int]
    split_offsets: Sequence[int]


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
        self._leaves = parquet_leaves(layout.file_schema)
        self._parts: dict[tuple[Any, ...], _Part] = {}
        self._opened: dict[tuple[Any, ...], _OpenFile] = {}
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
            for file in self._opened.values():
                file.abandon()
            paths = [*self._closed, *(file.path for file in self._opened.values())]
            delete_files(self._filesystem, self._folder, paths)
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
            yield from self._flush(part)
            yield self._close(values)

    def _part(self, values: tuple[Any, ...]) -> _Part:
        if values not in self._parts:
            self._parts[values] = _Part(values, self._layout.file_schema, len(self._leaves))
        return self._parts[values]

    def _make_room(self) -> Iterator[WrittenFile]:
        """Write the largest parts, until half of what may wait is left: not the next one for each batch, if parts are many."""
        for values, part in sorted(self._parts.items(), key=lambda item: item[1].n_buffered, reverse=True):
            if self._n_buffered < _BUFFERED_BYTES // 2:
                return
            if values not in self._parts:
                continue
            yield from self._flush(part)
            if self._opened[values].n_bytes >= self._layout.target_bytes:
                yield self._close(values)
                del self._parts[values]
            if len(self._opened) > _OPEN_FILES:
                largest = max(self._opened, key=lambda values: self._opened[values].n_bytes)
                yield from self._flush(self._parts[largest])
                yield self._close(largest)
                del self._parts[largest]

    def _flush(self, part: _Part) -> Iterator[WrittenFile]:
        """Write what waits as one row group; in a new file, where the one that is open could not say the truth of the rows."""
        if not part.n_buffered:
            return
        self._n_buffered -= part.n_buffered
        rows = part.take()
        known = survey(rows, self._leaves)
        opened = self._opened.get(part.values)
        if opened is not None and not opened.takes(known):
            part.without_bounds |= opened.without_bounds
            part.without_dictionary |= opened.without_dictionary
            yield self._close(part.values)
            opened = None
        if opened is None:
            part.without_bounds |= known.without_bounds
            part.without_dictionary |= known.without_dictionary
            opened = self._opened[part.values] = self._new_file(part)
            opened.open(self._filesystem, self._folder)
        opened.write(rows, known)

    def _new_file(self, part: _Part) -> _OpenFile:
        names = zip(self._layout.partition_by, part.values, strict=True)
        folders = "".join(folder_name(name, value, self._layout.schema.field(name).type) for name, value in names)
        return _OpenFile(f"{folders}{uuid.uuid4()}.parquet", self._layout.file_schema, self._leaves, part)

    def _close(self, values: tuple[Any, ...]) -> WrittenFile:
        file = self._opened[values].close(values)
        del self._opened[values]
        self._closed.append(file.path)
        return file


class _Part:
    """The rows of one partition that wait for their row group.

    Attributes:
        without_bounds, without_dictionary: as :class:`~pykafka_wire.ingest.files.statistics.RowGroup`'s, of all rows until now: so
            rows that need them now and then do not end a file each.
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
        """Keep rows until they are written; return the bytes of memory that they take."""
        self._buffered.append(batch.select(self._schema.names))
        n_bytes = int(batch.nbytes) + self._piece_bytes
        self.n_buffered += n_bytes
        return n_bytes

    def take(self) -> pa.Table:
        """Return the rows, which are kept no longer."""
        rows = pa.Table.from_batches(self._buffered, schema=self._schema)
        self._buffered, self.n_buffered = [], 0
        return rows


class _OpenFile:
    """A file until it is complete."""

    def __init__(self, path: str, schema: pa.Schema, leaves: Sequence[Leaf], part: _Part) -> None:
        self.path = path
        self.without_bounds = part.without_bounds
        self.without_dictionary = part.without_dictionary
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
        """Begin the file in a table's folder."""
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
        """Return what is written."""
        return 0 if self._stream is None else int(self._stream.tell())

    def takes(self, known: RowGroup) -> bool:
        """Return whether the file says the truth of rows that it gets."""
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
        """Let go of a file that is not to be ended."""
        for opened in (self._writer, self._stream):
            with suppress(Exception):  # what has failed once fails again
                opened.close()
        if self._writer is not None:
            self._writer.is_open = False  # else it is closed once more when it is forgotten

    def close(self, values: tuple[Any, ...]) -> WrittenFile:
        """End the file, whose rows have these values of partitions."""
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
            split_offsets=tuple(_begins_at(metadata.row_group(n).column(0)) for n in range(metadata.num_row_groups)),
        )


def _begins_at(chunk: Any) -> int:
    offsets = (chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
    return min(int(offset) for offset in offsets if offset is not None)


def delete_files(filesystem: FileSystem, folder: str, paths: Iterable[str]) -> None:
    """Delete files of a table's folder that no commit names, as far as that is possible: others are orphans."""
    for path in paths:
        with suppress(OSError):
            filesystem.delete_file(f"{folder}/{path}" if folder else path)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


def folder_name(name: str, value: Any, kind: pa.DataType) -> str:
    """Return the folder of a partition, with a slash behind it. The table's log or manifest has the value itself.

    Args:
        value: as :class:`WrittenFile` has it, of pyarrow's type ``kind``.
    """
    return f"{_escaped(name)}={_NULL_FOLDER if value is None else _escaped(partition_text(value, kind))}/"


def partition_text(value: Any, kind: pa.DataType) -> str:
    """Return a value of a partition as Delta's log and the names of folders have it; dates by Spark's rules."""
    if isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_date(kind):
        return any_date_text(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _escaped(text: str) -> str:
    """Return a text as a part of a folder's name, whose end is a digest where it is long."""
    escaped = "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)
    if len(escaped.encode()) <= _LONGEST_NAME:
        return escaped
    begin = escaped.encode()[: _LONGEST_NAME // 2].decode(errors="ignore")
    return f"{begin}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


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
        yield tuple(_partition_value(rows[name][0]) for name in names), rows


def _partition_value(value: pa.Scalar) -> Any:
    """Return a value as :class:`WrittenFile` has it: Python has no dates outside the years 1 to 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()
