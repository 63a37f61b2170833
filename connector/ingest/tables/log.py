"""The commits and schemas in a table's log, whatever its format."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest_status import TableSize

#: The number of newest commits that are read at first, and kept.
KEPT_COMMITS: Final = 200


#: The operation of a compaction by the ingest itself.
COMPACTION: Final = "COMPACTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit in a table's log.

    Attributes:
        at: seconds since the epoch.
        rows: the number of added rows by the file statistics, None without statistics.
        files, bytes: of the added files, without files that have the rows of other files.
        replaced_files, replaced_bytes: of the files whose rows are in other files from this commit on.
        landed: the position in a commit of an ingest, None for another program's commit.
        schema: the table's schema from this commit on, None if the commit does not set it.
    """

    version: int
    at: float
    operation: str
    rows: int | None
    files: int
    bytes: int
    landed: Landed | None
    schema: StructType | None
    replaced_files: int = 0
    replaced_bytes: int = 0


class ReadLog(Protocol):
    """The log of one table. Not thread-safe.

    Attributes:
        commits: the newest commits, oldest first.
        is_whole: whether the commits start with the table's first commit.
        schema: the current schema, None if unknown.
    """

    commits: deque[LoggedCommit]
    is_whole: bool

    @property
    def schema(self) -> StructType | None: ...

    def refresh(self) -> None: ...

    def size(self) -> TableSize | None: ...

    def schemas(self) -> Iterator[tuple[LoggedCommit, StructType | None, StructType]]: ...


def schema_changes(
    base: StructType | None, commits: Iterable[LoggedCommit]
) -> Iterator[tuple[LoggedCommit, StructType | None, StructType]]:
    """Yield each commit that changes the schema, with the schema before and after it; before the first commit it is ``base``."""
    before = base
    for commit in commits:
        if commit.schema is not None and commit.schema != before:
            yield commit, before, commit.schema
            before = commit.schema


def flat_types(schema: DataType, path: str = "") -> dict[str, str]:
    """Return the types of all columns and nested fields that are not structs, by path, such as ``items[].price``."""
    if isinstance(schema, StructType):
        types: dict[str, str] = {}
        for column in schema:
            types |= flat_types(column.dataType, f"{path}.{column.name}" if path else column.name)
        return types
    if isinstance(schema, ArrayType) and _has_fields(schema.elementType):
        return flat_types(schema.elementType, f"{path}[]")
    if isinstance(schema, MapType) and _has_fields(schema.valueType):
        return flat_types(schema.valueType, f"{path}{{}}")
    return {path: str(schema.simpleString())}


def _has_fields(data_type: DataType) -> bool:
    inner = getattr(data_type, "elementType", getattr(data_type, "valueType", None))
    return isinstance(data_type, StructType) or (inner is not None and _has_fields(inner))


def changes_between(before: StructType | None, after: StructType) -> tuple[Mapping[str, str], ...]:
    """Return the differences between two schemas, in the form of :class:`~pykafka_wire.page.snapshots.SchemaChange`."""
    old, new = ({} if before is None else flat_types(before)), flat_types(after)
    added = [{"kind": "added", "column": path, "type": kind} for path, kind in new.items() if path not in old]
    widened = [
        {"kind": "widened", "column": path, "type": kind, "from": old[path]}
        for path, kind in new.items()
        if old.get(path, kind) != kind
    ]
    removed = [{"kind": "removed", "column": path, "type": kind} for path, kind in old.items() if path not in new]
    return (*added, *widened, *removed)
