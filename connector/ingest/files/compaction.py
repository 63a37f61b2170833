"""Merges small files of a table into larger ones, in the process that has written them: chooses the files, and copies their rows.

The number of rows puts a file into a tier. :data:`FAN_IN` files of one partition and one tier become one file of a higher tier. So
a row is written once for each tier, and the number of tiers limits the number of small files. Knows nothing of commits.

The merged file has the columns and types of the original files, so readers see the same rows as before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pykafka_wire.ingest.files.parquet import FileLayout, FileWriter, WrittenFile, delete_files
from pykafka_wire.ingest.files.types import has_only_fields_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: This many files of one tier become one. With five commits a second, a table without partitions is compacted every seven seconds.
FAN_IN: Final = 32
_FAN_IN_BITS: Final = FAN_IN.bit_length() - 1
#: A file is small if it is below this fraction of the target size. Other files stay as they are.
SMALL_FRACTION: Final = 1 / 4
#: The most bytes of the files that one commit replaces; but at least the files of one partition and tier.
_COMMIT_BYTES: Final = 256 * 1024 * 1024
#: The most files that one commit replaces: their footers are in memory, and each is opened in turn.
_COMMIT_FILES: Final = 1024
#: The number of rows that are decoded at a time.
_BATCH_ROWS: Final = 65_536
#: The start of the name of the library that writes this package's files. Spark's files may have dates of an older calendar.
_OWN_LIBRARY: Final = "parquet-cpp-arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A current file of a table, added by the ingest.

    Attributes:
        path: the path relative to the table's folder.
        partition: the file's partition values, in the form of the table's log or manifest.
    """

    path: str
    n_bytes: int
    n_rows: int
    partition: Hashable = ()


#: A file with its footer (pyarrow's metadata).
_Opened: TypeAlias = "tuple[LiveFile, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Merged files, and the files that they replace.

    Attributes:
        replaced: the replaced files, all of one partition.
        files: the merged files; empty if the files cannot be merged.
        schema: the pyarrow schema of all these files.
    """

    replaced: Sequence[LiveFile]
    files: Sequence[WrittenFile]
    schema: pa.Schema


def due(files: Iterable[LiveFile], target_bytes: int) -> list[list[LiveFile]]:
    """Return groups of files, of which each is to become one file, groups with few rows first; a group keeps the order of
    ``files``.
    """
    tiers: dict[tuple[Hashable, int], list[LiveFile]] = defaultdict(list)
    for file in files:
        if file.n_bytes < target_bytes * SMALL_FRACTION:
            tiers[file.partition, _tier(file.n_rows)].append(file)
    groups, n_bytes, n_files = list[list[LiveFile]](), 0, 0
    for _, waiting in sorted(tiers.items(), key=lambda item: item[0][1]):
        group = _of_size(waiting, target_bytes)
        n_group = sum(file.n_bytes for file in group)
        if len(group) < FAN_IN and (n_group < target_bytes or len(group) == 1):
            continue
        n_bytes += n_group
        n_files += len(group)
        if groups and (n_bytes > _COMMIT_BYTES or n_files > _COMMIT_FILES):
            break
        groups.append(group)
    return groups


def _tier(n_rows: int) -> int:
    """Return the tier of a file: :data:`FAN_IN` files of one tier have about the rows of one file of the next tier."""
    return max(0, n_rows.bit_length() - 1) // _FAN_IN_BITS


def _of_size(files: Sequence[LiveFile], target_bytes: int) -> list[LiveFile]:
    """Return the first files that together have the target size."""
    group, n_bytes = list[LiveFile](), 0
    for file in files[:_COMMIT_FILES]:
        if n_bytes >= target_bytes:
            break
        group.append(file)
        n_bytes += file.n_bytes
    return group


def compact(
    filesystem: FileSystem,
    folder: str,
    groups: Iterable[Sequence[LiveFile]],
    table: pa.Schema,
    target_bytes: int,
    check_running: Callable[[], None] = lambda: None,
) -> list[Compacted]:
    """Merge the files of each group into files of up to ``target_bytes``. After an error all merged files are deleted.

    Args:
        table: the table's pyarrow schema, without columns that its files do not have.
        check_running: raises an error if the run has ended; called before each file.

    Raises:
        OSError, UnwritableError: a file cannot be read or written.
    """
    made = list[Compacted]()
    try:
        for group in groups:
            for schema, opened in _by_schema(filesystem, folder, group, table):
                replaced = [file for file, _ in opened]
                if schema is None or len(opened) == 1:
                    made.append(Compacted(replaced=replaced, files=(), schema=schema))
                    continue
                rows = _rows(filesystem, folder, opened, check_running)
                layout = FileLayout(schema=schema, target_bytes=target_bytes)
                files = _write(filesystem, folder, replaced[0].path, rows, layout)
                made.append(Compacted(replaced=replaced, files=files, schema=schema))
    except BaseException:
        discard_compacted(filesystem, folder, made)
        raise
    return made


def discard_compacted(filesystem: FileSystem, folder: str, made: Iterable[Compacted]) -> None:
    """Delete merged files for which no commit was begun."""
    delete_files(filesystem, folder, [file.path for each in made for file in each.files])


def _by_schema(
    filesystem: FileSystem, folder: str, files: Iterable[LiveFile], table: pa.Schema
) -> list[tuple[pa.Schema | None, list[_Opened]]]:
    """Return the files with their footers, by schema; files that cannot be merged have the key None."""
    found: list[tuple[pa.Schema | None, list[_Opened]]] = []
    for file in files:
        with filesystem.open_input_file(_place(folder, file.path)) as stream:
            footer = pq.read_metadata(stream)
        schema = _compactable_schema(file, footer, table)
        same = (opened for known, opened in found if _are_equal(known, schema))
        if (alike := next(same, None)) is None:
            found.append((schema, alike := []))
        alike.append((file, footer))
    return found


def _compactable_schema(file: LiveFile, footer: Any, table: pa.Schema) -> pa.Schema | None:
    is_own = (footer.created_by or "").startswith(_OWN_LIBRARY) and footer.num_rows == file.n_rows
    schema = footer.schema.to_arrow_schema()
    return schema if is_own and has_only_fields_of(pa.struct(schema), pa.struct(table)) else None


def _are_equal(one: pa.Schema | None, other: pa.Schema | None) -> bool:
    return one is other or (one is not None and other is not None and one.equals(other, check_metadata=True))


def _rows(
    filesystem: FileSystem, folder: str, files: Iterable[_Opened], check_running: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    for file, footer in files:
        check_running()
        with filesystem.open_input_file(_place(folder, file.path)) as stream:
            # Without pyarrow's threads, which landings need.
            yield from pq.ParquetFile(stream, metadata=footer).iter_batches(_BATCH_ROWS, use_threads=False)


def _write(
    filesystem: FileSystem, folder: str, sibling: str, rows: Iterable[pa.RecordBatch], layout: FileLayout
) -> list[WrittenFile]:
    """Write rows into files in the folder of the file ``sibling``."""
    parent, slash, _ = sibling.rpartition("/")
    writer = FileWriter(filesystem, _place(folder, parent) if parent else folder, layout)
    return [replace(file, path=f"{parent}{slash}{file.path}") for file in writer.write(rows)]


def _place(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path
