"""What a table's log says of commits and schemas, whatever its format."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest_status import TableSize

#: So many commits are kept, and read at first.
KEPT_COMMITS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit.

    Attributes:
        at: seconds since the epoch.
        rows: by the statistics of the files that it adds, None without them.
        landed: what an ingest's commit holds, None of another program's.
        schema: of the table from this commit on, None where the commit does not set it.
    """

    version: int
    at: float
    operation: str
    rows: int | None
    files: int
    bytes: int
    landed: Landed | None
    schema: StructType | None


class ReadLog(Protocol):
    """The log of one table; a thread at a time reads it.

    Attributes:
        commits: the newest ones, in their order.
        is_whole: whether the commits begin with the table's first one.
        schema: the present one, None where it is not known.
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
    """Yield each commit that changes the schema, with the schema before it, at first ``base``, and after it."""
    before = base
    for commit in commits:
        if commit.schema is not None and commit.schema != before:
            yield commit, before, commit.schema
            before = commit.schema


def flat_types(schema: DataType, path: str = "") -> dict[str, str]:
    """Return the types of all columns and nested fields that are no structs themselves, by their paths, such as
    ``items[].price``."""
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
    """Return what a schema has that the one before it has not, and the reverse: as
    :class:`~pykafka_wire.page.snapshots.SchemaChange` has them."""
    old, new = ({} if before is None else flat_types(before)), flat_types(after)
    added = [{"kind": "added", "column": path, "type": kind} for path, kind in new.items() if path not in old]
    widened = [
        {"kind": "widened", "column": path, "type": kind, "from": old[path]}
        for path, kind in new.items()
        if old.get(path, kind) != kind
    ]
    removed = [{"kind": "removed", "column": path, "type": kind} for path, kind in old.items() if path not in new]
    return (*added, *widened, *removed)
