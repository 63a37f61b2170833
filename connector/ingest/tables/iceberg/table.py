"""An Iceberg table that a topic lands in: made, changed and committed to by pyiceberg, without a jar but for MERGE.

The position is in the summary of each snapshot, and in a property of the table, which does not expire with snapshots. Iceberg has
no transaction ids: a commit requires that the table still stands at the snapshot whose position was looked at, and that position
must be where the rows begin: two drivers add nothing twice, and a table that was rolled back misses nothing. The library's own
repetition of commits would lose that, and is turned off for these.

What a catalog answers does not tell whether it has applied a commit: a request that is sent twice is applied and then a conflict.
So the table is read afresh after each failure, and no file of a commit that was sent is deleted: :meth:`IcebergTable.clean` deletes
those that no snapshot names when they are old.

MERGE is Spark's, in a session with Iceberg's runtime, which cannot require that snapshot. So it writes to a branch that is made at
the snapshot, and pyiceberg sets the table to the branch's end, with that requirement: what an older driver merges, nobody sees.
"""

from __future__ import annotations

import functools
import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from pykafka_wire.columns.spark_schema import arrow_schema, spark_type
from pykafka_wire.errors import IngestError, MissingLibraryError
from pykafka_wire.ingest.files.parquet import FileLayout, WrittenFile
from pykafka_wire.ingest.files.tasks import Written, discard, write_rows
from pykafka_wire.ingest.files.types import file_type, fits, merged_type, small_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.sql import quoted
from pykafka_wire.ingest.tables.files_table import TableChangedError, discarding
from pykafka_wire.ingest.tables.iceberg.files import IcebergFolder, delete_orphans, read_files
from pykafka_wire.ingest.tables.iceberg.statistics import partition_value, statistics
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE
from pykafka_wire.ingest.tables.position import (
    POSITION_PROPERTY,
    SEQUENCE,
    AlreadyLandedError,
    Landed,
    position_property,
)
from pykafka_wire.ingest.tables.topic_table import (
    QUERY_PROPERTY,
    VACUUM_EVERY_S,
    VACUUMED_PROPERTY,
    made_properties,
    merge_into,
    owner_properties,
    partition_columns,
    places_from,
    start_position,
    topic_columns_of,
)
from pykafka_wire.wire.security.secret_references import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: The entry of a snapshot's summary.
_SUMMARY: Final = "pykafka-wire"
#: Beside it: the commit by its number; of rejects, that of the commit that they are of.
_TRANSACTION: Final = "pykafka-wire.transaction"
#: What a table without a snapshot begins with.
_BEGINS_AT: Final = "pykafka-wire.begins-at"
#: Others may commit between the look at the table and the commit.
_ATTEMPTS: Final = 10
#: Each commit writes a metadata file; Iceberg keeps all of them by default.
_FEW_METADATA_FILES: Final = {
    "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100",
}  # fmt: skip
#: Each commit adds a manifest, and lists all of them; pyiceberg merges none by default, as Iceberg does from 100 on.
_FEW_MANIFESTS: Final = {"commit.manifest-merge.enabled": "true"}
_RETRIES: Final = "commit.retry.num-retries"
#: Properties by which a table's owner keeps what it was before.
_COLLECTED: Final = "gc.enabled"
_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
#: Of the snapshots within the time for which they are kept, the newest, and so many more: each commit writes all that a table has,
#: which takes 0.6 ms of CPU for each of them (benchmarks/large_table.py).
_NEWEST: Final = 20
_SPACED: Final = 100
_TARGET_FILE_SIZE: Final = "write.target-file-size-bytes"
#: How the branches begin that MERGE writes to. Iceberg's runtime knows a branch by a prefix of a table's last name.
_BRANCH: Final = "pykafka_wire_"
_OF_BRANCH: Final = "branch_"
_MAIN: Final = "main"
#: Session settings of the runtime: entries of the summary of each snapshot.
_SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
#: How a catalog's secret by reference begins.
_REFERENCES: Final = ("env:", "provider:", "literal:")


@functools.lru_cache(maxsize=8)
def _catalog(name: str, given: tuple[tuple[str, str], ...]) -> Any:  # Any: pyiceberg is optional
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"table_format is iceberg, which needs the module {error.name}, which is not installed: pip install "
            "'pykafka-wire[iceberg]', on the driver and on every executor."
        ) from error
    return load_catalog(name, **dict(given))


def _opened(settings: Settings) -> tuple[Any, tuple[str, ...]]:
    """Return the catalog, and the namespace in it."""
    name, *namespace = settings.into.split(".")
    given = {
        # file: is the beginning of a URI here.
        name: resolve(value, f"catalog.{name}") if value.startswith(_REFERENCES) else value
        for name, value in settings.catalog.items()
    }
    # Else a REST catalog may leave out snapshots without a name: the position may be in one, and their files are no orphans.
    given["snapshot-loading-mode"] = "all"
    return _catalog(name, tuple(sorted(given.items()))), tuple(namespace)


def make_namespace(settings: Settings) -> None:
    """Make the namespace of the tables, if the catalog does not have it."""
    catalog, namespace = _opened(settings)
    if not catalog.namespace_exists(namespace):
        catalog.create_namespace_if_not_exists(namespace)
        _log.info("The namespace %s was made.", settings.into)


def load_table(settings: Settings, name: str) -> Any:
    """Return pyiceberg's table of this name. Raises pyiceberg's NoSuchTableError."""
    catalog, namespace = _opened(settings)
    return catalog.load_table((*namespace, name))


def table_names(settings: Settings) -> list[str]:
    """Return the names of the namespace's tables."""
    catalog, namespace = _opened(settings)
    return sorted(identifier[-1] for identifier in catalog.list_tables(namespace))


def stored_dataset(settings: Settings, name: str) -> Any:
    """Return the table's rows as a dataset of pyarrow's, or as a table where files alone do not say what the rows are."""
    stored = load_table(settings, name)
    paths = _plain_files(stored, None)
    if not paths:
        return stored.scan().to_arrow()
    return IcebergFolder.of(stored).dataset(paths, pa.schema(arrow_type(stored.schema())))


def _plain_files(stored: Any, snapshot_id: int | None) -> list[str] | None:
    """Return the files whose rows are the table's, with columns of the names that it has; None where there are deletes or
    other names."""
    tasks = list(stored.scan(snapshot_id=snapshot_id).plan_files())
    pairs = {
        (field_id, schema.find_column_name(field_id))
        for schema in stored.schemas().values()
        for field_id in schema.field_ids
    }
    is_by_name = len(pairs) == len({number for number, _ in pairs}) == len({name for _, name in pairs})
    if not is_by_name or any(task.delete_files for task in tasks):
        return None
    return [task.file.file_path for task in tasks]


def arrow_type(schema: Any) -> Any:
    """Return the type of the rows of pyiceberg's schema, with the ids of fields."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return small_type(pa.struct(schema_to_pyarrow(schema)))


class _OnceCatalog:
    """The catalog for one commit of pyiceberg's, which deletes the commit's manifests where the catalog answers with a conflict."""

    def __init__(self, catalog: Any, sent: set[int]) -> None:
        """Take what gets the ids of the snapshots that are sent to the catalog."""
        self._catalog = catalog
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from pyiceberg.table.update import AddSnapshotUpdate

        added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
        self._sent.update(snapshot.snapshot_id for snapshot in added)
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, ValidationException) as error:
            raise _UnknownCommitError from error


class _UnknownCommitError(Exception):
    """The catalog has answered a commit with a conflict. It may have applied the commit all the same."""


class IcebergTable:
    """One table of an ingest."""

    is_folder = False
    records_commits = True

    def __init__(self, session: SparkSession, settings: Settings, name: str) -> None:
        self._session = session
        self._prefix = settings.prefix
        self._catalog, namespace = _opened(settings)
        self._name = (*namespace, name)
        self.identifier = f"{settings.into}.{name}"
        self._sql_name = settings.identifier(name)
        self.rewritten_by: str | None = None
        self._loaded: Any = None
        #: The ids of the schema and of the partition spec that files are written for.
        self._planned: tuple[int, int] | None = None

    @property
    def _table(self) -> Any:
        if self._loaded is None:
            self._loaded = self._catalog.load_table(self._name)
        return self._loaded

    @property
    def exists(self) -> bool:
        return bool(self._catalog.table_exists(self._name))

    @property
    def id(self) -> str:
        """Return Iceberg's id of the table; another table of this name has another."""
        return str(self._table.metadata.table_uuid)

    def unreachable(self) -> str | None:
        """Return None: nobody else reaches the table."""
        return None

    def refresh(self) -> None:
        """Look at what was committed since.

        Raises:
            TableChangedError: it is another table by now.
        """
        stored = self._catalog.load_table(self._name)
        if self._loaded is not None and stored.metadata.table_uuid != self._loaded.metadata.table_uuid:
            raise TableChangedError(f"the Iceberg table {self.identifier} was dropped and made anew meanwhile")
        self._loaded = stored

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return pyarrow's schema, with the ids of fields that files need."""
        return pa.schema(arrow_type(self._table.schema()))

    @property
    def schema(self) -> StructType:
        return StructType([StructField(field.name, spark_type(field.type)) for field in self.arrow_schema])

    @property
    def partition_by(self) -> tuple[str, ...]:
        spec, schema = self._table.spec(), self._table.schema()
        return tuple(schema.find_column_name(field.source_id) for field in spec.fields)

    @property
    def version(self) -> int:
        """Return the id of the current snapshot; -1 without one."""
        snapshot = self._table.current_snapshot()
        return -1 if snapshot is None else int(snapshot.snapshot_id)

    @property
    def rows(self) -> DataFrame:
        """Return the table as it is now."""
        return self.pinned()[0]

    def pinned(self) -> tuple[DataFrame, int]:
        """Return the table as it is now, and its version; the files are read without Iceberg's runtime."""
        self.refresh()
        return self._rows_of(self._snapshot_id), self.version

    def _rows_of(self, snapshot_id: int | None, names: Sequence[str] = ()) -> DataFrame:
        """Return the rows of a snapshot, with the columns that the table has now, or those of ``names``; none of no snapshot."""
        schema = StructType([self.schema[name] for name in names]) if names else self.schema
        paths = _plain_files(self._table, snapshot_id)
        if paths is None:
            rows = self._table.scan(snapshot_id=snapshot_id, selected_fields=tuple(names) or ("*",)).to_arrow()
            return self._session.createDataFrame(rows.select(schema.names), schema)
        if not paths:
            return self._session.createDataFrame([], schema)
        return read_files(self._session, self.folder, paths, schema)

    @property
    def places(self) -> DataFrame:
        """Return ``partition`` and ``offset`` of the table's rows."""
        self.refresh()
        names = [self._prefix + name for name in ("partition", "offset")]
        return self._rows_of(self._snapshot_id, names).toDF("partition", "offset")

    @property
    def _snapshot_id(self) -> int | None:
        return None if self.version < 0 else self.version

    def properties(self) -> dict[str, str]:
        return dict(self._table.properties)

    def set_properties(self, table: Table, first: Landed) -> None:
        """Note what the table holds, and where it begins."""
        self.alter(owner_properties(first) | made_properties(table))

    def alter(self, properties: Mapping[str, str]) -> None:
        """Give the table properties."""
        with self._table.transaction() as transaction:
            transaction.set_properties(dict(properties))

    def landed(self) -> Landed | None:
        """Return what the newest commit of an ingest holds, or the position that is recorded; None where the table has neither.

        A table that was rolled back holds what its snapshots say.
        """
        self.refresh()
        held, recorded = self._held(), self._recorded()
        is_rolled_back = held is not None and recorded is not None and held.sequence < recorded.sequence
        self.rewritten_by = "a rollback to an older snapshot" if is_rolled_back else None
        return held

    def _held(self) -> Landed | None:
        return next(self.history(), None) or self._recorded()

    def _recorded(self) -> Landed | None:
        return Landed.from_json(self._table.properties.get(POSITION_PROPERTY))

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the table's newest commit stays when the table's snapshots are forgotten."""
        recorded = self._recorded()
        return recorded is not None and recorded.sequence >= landed.sequence

    def record(self, landed: Landed) -> None:
        """Record the position of an older version's commit; all others have it as a property."""
        self.alter(position_property(landed))

    def history(self, version: int | None = None) -> Iterator[Landed]:
        """Yield what each commit of an ingest holds, the newest first, as far back as snapshots are kept.

        Args:
            version: the snapshot to begin with, by default the current one.
        """
        metadata = self._table.metadata
        older = metadata.current_snapshot_id if version in (None, -1) else version
        is_first = True
        for snapshot in self._snapshots(version):
            landed = landed_in(snapshot.summary.additional_properties)
            if landed is not None:
                yield landed
            older = snapshot.parent_snapshot_id
            is_first = (snapshot.sequence_number or 1) == 1  # pyiceberg gives those whose parents expire none
        if older is not None or not is_first:  # what was before is expired
            return
        initial_position = Landed.from_json(metadata.properties.get(_BEGINS_AT))
        if initial_position is not None:
            yield initial_position

    def _snapshots(self, version: int | None = None) -> Iterator[Any]:
        """Yield a snapshot, by default the current one, and those that it was made from, the newest first, as far back as
        they are kept.

        Others that the table keeps are of branches, or were rolled back.
        """
        metadata = self._table.metadata
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        snapshot = by_id.get(metadata.current_snapshot_id if version in (None, -1) else version)
        while snapshot is not None:
            yield snapshot
            snapshot = by_id.get(snapshot.parent_snapshot_id)

    def create(self, columns: str, table: Table, query: str, initial_position: Landed | None) -> None:
        """Make the table without rows, of columns as DDL, with the topic that it holds and the offsets that it begins at."""
        rows = DataType.fromDDL(columns)
        assert isinstance(rows, StructType)
        self.create_of(arrow_schema(rows), table, query, initial_position)

    def create_of(self, schema: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Make the table as :meth:`create` does, of pyarrow's schema."""
        nested = [field.name for field in schema if pa.types.is_nested(field.type)]
        by = partition_columns(table, schema.names, nested)
        made = {QUERY_PROPERTY: query, VACUUMED_PROPERTY: str(int(time.time()))}
        given = {**_FEW_METADATA_FILES, **made, **made_properties(table)}
        if table.merges:
            given[_TARGET_FILE_SIZE] = str(table.target_bytes)  # of Spark's writer
        if initial_position is not None:
            given |= (
                owner_properties(initial_position)
                | {_BEGINS_AT: initial_position.to_json()}
                | start_position(initial_position)
            )
        with self._catalog.create_table_transaction(
            self._name, schema, properties={**given, **table.properties}
        ) as transaction:
            if by:
                with transaction.update_spec() as update:
                    for name in by:
                        update.add_identity(name)
        self._loaded = None

    def add_columns(self, rows: DataFrame) -> None:
        """Give the table the columns and the wider types of rows; nothing is written where it has them.

        Raises:
            IngestError: it cannot take them.
        """
        from pyiceberg.exceptions import ValidationError

        if fits(pa.struct(arrow_schema(rows.schema)), pa.struct(self.arrow_schema)):
            return
        wanted = merged_type(pa.struct(arrow_schema(rows.schema)), pa.struct(self.arrow_schema))
        try:
            with self._table.update_schema(case_sensitive=False) as update:
                update.union_by_name(pa.schema(wanted))
                names = [field.name for field in self._table.schema().fields]
                first = next((name for name in names if name.startswith(self._prefix)), None)
                for name in [field.name for field in wanted if first is not None and field.name not in names]:
                    update.move_before(name, str(first))
        except (ValidationError, ValueError) as error:
            raise IngestError(f"the Iceberg table {self.identifier} cannot take the new columns ({error}).") from error

    def reason_against(self) -> str | None:
        """Return None: who writes to the table commits files, there is no other way.

        Raises:
            IngestError: files cannot be committed to the table as it is.
        """
        schema = self._table.schema()
        required = next((field.name for field in schema.fields if field.required), None)
        if required is not None:
            raise IngestError(
                f"the Iceberg table {self.identifier} requires a value of {required}, and a topic promises none: make the column "
                "optional, or give the topic another table by name in [[table]]."
            )
        other = next((field for field in self._table.spec().fields if str(field.transform) != "identity"), None)
        if other is not None:
            raise IngestError(
                f"the Iceberg table {self.identifier} has partitions by {other.transform} of "
                f"{schema.find_column_name(other.source_id)}, and an ingest writes partitions by values of columns: replace that "
                "field of the partition spec, or give the topic another table by name in [[table]]."
            )
        return None

    def layout(self, schema: pa.Schema, table: Table) -> FileLayout:
        """Return how files of rows of pyarrow's ``schema`` are written; they can be committed as long as the table has these
        columns."""
        self._planned = self._shape
        return FileLayout(
            schema=schema, partition_by=self.partition_by, keeps_partitions=True, target_bytes=table.target_bytes
        )

    @property
    def _shape(self) -> tuple[int, int]:
        metadata = self._table.metadata
        return metadata.current_schema_id, metadata.default_spec_id

    @property
    def folder(self) -> IcebergFolder:
        """Return where tasks write files."""
        return IcebergFolder.of(self._table)

    def append(self, rows: DataFrame, landed: Landed | None) -> None:
        """Add rows and new columns; ``landed`` is None for rows that do not move the table's position.

        Raises:
            IngestError: the table cannot take files of them.
            OSError: a task cannot write; nothing is committed.
        """
        self.refresh()
        self.reason_against()
        self.add_columns(rows)
        held = pa.struct(self.arrow_schema)
        layout = self.layout(pa.schema(file_type(pa.struct(arrow_schema(rows.schema)), held)), Table(topic=".*"))
        written = write_rows(rows, self.folder, layout)
        if written.unwritable is not None:
            discard(written, self.folder)
            raise OSError(f"tasks cannot write files of the Iceberg table {self.identifier}: {written.unwritable}")
        with discarding(written, self.folder):
            self.append_files(written, layout, landed)

    def append_files(self, written: Written, layout: FileLayout, landed: Landed | None) -> None:
        """Make files rows of the table, and ``landed`` its position, by one commit.

        Raises:
            AlreadyLandedError: the table has this micro-batch, or another position.
            TableChangedError: the table has other columns or partitions than the files by now.
            pyiceberg's CommitFailedException: so it is after another commit came between, or others come again and again.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import Table as StoredTable

        files, sent = [*self._data_files(written.files, layout)], set[int]()
        for attempt in range(_ATTEMPTS):
            self.refresh()
            if self._holds(sent):
                break
            if landed is not None:
                self._check_follows(landed, is_begun=attempt > 0)
            if self._shape != self._planned:
                raise (CommitFailedException if attempt else TableChangedError)(
                    f"the columns or partitions of the Iceberg table {self.identifier} were changed after its files were planned"
                )
            stored = self._table
            properties = {**_FEW_MANIFESTS, **stored.metadata.properties, _RETRIES: "0"}
            metadata = stored.metadata.model_copy(update={"properties": properties})
            catalog: Any = _OnceCatalog(stored.catalog, sent)
            once = StoredTable(stored.name(), metadata, stored.metadata_location, stored.io, catalog)
            summary = {} if landed is None else _summary_of(landed)
            try:
                with once.transaction() as transaction:
                    if landed is not None:
                        transaction.set_properties(_position_of(landed))
                    with transaction.update_snapshot(summary).merge_append() as append:
                        for file in files:
                            append.append_data_file(file)
                break
            except _UnknownCommitError as error:
                if attempt == _ATTEMPTS - 1:
                    raise CommitFailedException(
                        f"the Iceberg table {self.identifier} has commits again and again"
                    ) from error
            except Exception as error:  # of a catalog and its client, of many classes
                if not self._has_landed(sent):
                    raise
                _log.info("A commit to table %s is there, although it was answered with: %s", self.identifier, error)
                break
        # Whatever has become of the name since, the files are a table's: what follows must not raise.
        self._loaded = None

    def _holds(self, snapshot_ids: Collection[int]) -> bool:
        """Return whether one of these snapshots is the table's state, or one that it was made from."""
        return bool(snapshot_ids) and any(snapshot.snapshot_id in snapshot_ids for snapshot in self._snapshots())

    def _has_landed(self, snapshot_ids: Collection[int]) -> bool:
        """Return whether the table, read afresh, holds one of these snapshots; not where nobody can tell."""
        try:
            self.refresh()
            return self._holds(snapshot_ids)
        except Exception as error:  # what has failed first is reported
            _log.debug("Table %s cannot be read after a commit that has failed.", self.identifier, exc_info=error)
            return False

    def _check_follows(self, landed: Landed, *, is_begun: bool) -> None:
        """Raise AlreadyLandedError if the table does not end where a commit begins, or has the rejects already."""
        if landed.application:
            is_there = self._has_rejects(landed)
        else:
            held = self._held()
            is_there = held is None or not landed.follows(held)
        if is_there:
            raise AlreadyLandedError(self.identifier, is_begun=is_begun)

    def _has_rejects(self, landed: Landed) -> bool:
        if landed.sequence:
            return int(self._table.properties.get(SEQUENCE + landed.application, 0)) >= landed.sequence
        # An older version's commit, whose rejects have its name in a summary.
        names = (snapshot.summary.get(_TRANSACTION) for snapshot in self._table.metadata.snapshots)
        return f"{landed.transaction['txnAppId']}@{landed.micro_batch}" in names

    def _data_files(self, files: Sequence[WrittenFile], layout: FileLayout) -> Iterator[Any]:
        from pyiceberg.io.pyarrow import compute_statistics_plan
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        plan = compute_statistics_plan(self._table.schema(), self._table.properties)
        kinds = [layout.schema.field(name).type for name in layout.partition_by]
        for file in files:
            yield DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{self.folder.location}/{file.path}",
                file_format=FileFormat.PARQUET,
                partition=Record(*map(partition_value, file.partition, kinds)),
                file_size_in_bytes=file.n_bytes,
                sort_order_id=None,
                spec_id=self._table.metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics(file, layout.file_schema, plan),
            )

    def delete_places(self, name: str, places: DataFrame) -> None:
        """Delete the rejects of a table at ``partition`` and ``offset``."""
        offsets: dict[int, list[int]] = {}
        for row in places.collect():
            offsets.setdefault(row.partition, []).append(row.offset)
        if offsets:
            parts = [
                f"(partition = {partition} AND offset IN ({', '.join(map(str, rejected))}))"
                for partition, rejected in offsets.items()
            ]
            self.refresh()
            self._table.delete(f"table = '{name}' AND ({' OR '.join(parts)})")

    def delete_from(self, name: str, start: Mapping[int, int]) -> None:
        """Delete the rejects of a table from these offsets of their partitions on."""
        self.refresh()
        self._table.delete(places_from(name, start))

    def append_first(self, rows: DataFrame, table: Table, landed: Landed) -> None:
        raise AssertionError("an Iceberg table is made before its rows are read")

    def earlier(self) -> Iterator[tuple[Landed, DataFrame | None]]:
        """Return what each commit of an ingest holds, the newest first, with the rows before it, while snapshots are kept."""
        kept = {snapshot.snapshot_id for snapshot in self._table.metadata.snapshots}
        for snapshot in self._snapshots():
            landed, before = landed_in(snapshot.summary.additional_properties), snapshot.parent_snapshot_id
            if landed is not None and (before is None or before in kept):
                yield landed, None if before is None else self._rows_of(before)

    def topic_columns(self) -> list[StructField]:
        """Return the columns that are the topic's, and none that a user has added."""
        return topic_columns_of(self.schema, self.properties())

    def merge(self, changes: DataFrame, clauses: str, landed: Landed | None) -> None:
        """Run one MERGE of ``changes``, as ``new``, into the table, as ``old``; ``landed`` is as :meth:`append`'s.

        Raises:
            AlreadyLandedError: the table has this micro-batch, or another position; nothing is changed.
            pyiceberg's CommitFailedException: another commit came between; nothing is changed.
        """
        self.refresh()
        if landed is not None:
            self._check_follows(landed, is_begun=False)
        base = self.version
        if base < 0:  # no branch begins before the first snapshot
            self.append(changes.where(f"NOT {DELETE}").drop(DELETE, UNAVAILABLE, CREATED), landed)
            return
        branch = f"{_BRANCH}{uuid.uuid4().hex}"
        self._begin_branch(branch, base)
        # The session may have the table as it was before its new columns.
        self._session.sql(f"REFRESH TABLE {self._sql_name}")
        summary = {} if landed is None else _summary_of(landed)
        settings = {f"{_SNAPSHOT_PROPERTY}{name}": value for name, value in summary.items()}
        for name, value in settings.items():
            self._session.conf.set(name, value)
        try:
            merge_into(f"{self._sql_name}.{quoted(_OF_BRANCH + branch)}", changes, clauses)
        finally:
            for name in settings:
                self._session.conf.unset(name)
        self._publish(branch, base, landed)

    def _begin_branch(self, name: str, base: int) -> None:
        """Make a branch at a snapshot; those of MERGEs whose driver has ended, or that failed, are removed."""
        from pyiceberg.table.refs import SnapshotRefType
        from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

        remnants = [branch for branch in self._table.metadata.refs if branch.startswith(_BRANCH)]
        begun = SetSnapshotRefUpdate(ref_name=name, type=SnapshotRefType.BRANCH, snapshot_id=base)
        at_base = AssertRefSnapshotId(ref=_MAIN, snapshot_id=base)
        self._catalog.commit_table(
            self._table, (at_base,), (*(RemoveSnapshotRefUpdate(ref_name=branch) for branch in remnants), begun)
        )

    def _publish(self, branch: str, base: int, landed: Landed | None) -> None:
        """Make the end of a branch the table's, with the position, if the table still stands at ``base``.

        Raises:
            pyiceberg's CommitFailedException: it does not.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.refs import SnapshotRefType
        from pyiceberg.table.update import (
            AssertRefSnapshotId,
            RemoveSnapshotRefUpdate,
            SetPropertiesUpdate,
            SetSnapshotRefUpdate,
        )

        self.refresh()
        metadata = self._table.metadata
        merged = metadata.snapshot_by_id(metadata.refs[branch].snapshot_id) if branch in metadata.refs else None
        # Another driver may have removed the branch: then the runtime makes it again, wherever the table stands.
        if merged is None or merged.parent_snapshot_id != base:
            raise CommitFailedException(
                f"a MERGE into the Iceberg table {self.identifier} was made for an older state of it"
            )
        moved = SetSnapshotRefUpdate(ref_name=_MAIN, type=SnapshotRefType.BRANCH, snapshot_id=merged.snapshot_id)
        requirements = (
            AssertRefSnapshotId(ref=_MAIN, snapshot_id=base),
            AssertRefSnapshotId(ref=branch, snapshot_id=merged.snapshot_id),
        )
        position = () if landed is None else (SetPropertiesUpdate(updates=_position_of(landed)),)
        try:
            self._catalog.commit_table(
                self._table, requirements, (moved, RemoveSnapshotRefUpdate(ref_name=branch), *position)
            )
        except Exception:  # of a catalog and its client, of many classes
            if not self._has_landed({merged.snapshot_id}):
                raise
        self._loaded = None

    def expire(self, keep_ms: int) -> None:
        """Forget snapshots that are older, but for the newest with a position, and those that the table's owner, a branch or a tag
        keeps. Of the others some are kept, with equal times between them, unless the table's owner says how long all are kept.
        """
        self.refresh()
        metadata = self._table.metadata
        if metadata.properties.get(_COLLECTED, "true").lower() == "false":
            return
        kept_ms = max(keep_ms, int(metadata.properties.get(_MAX_AGE, 0)))
        n_kept = int(metadata.properties.get(_MIN_SNAPSHOTS, 1))
        chain = list(self._snapshots())
        position = (n for n, snapshot in enumerate(chain) if _SUMMARY in snapshot.summary.additional_properties)
        n_newest = max(_NEWEST, next(position, 0) + 1)  # the position is looked for from the newest one on
        newest = {snapshot.snapshot_id for snapshot in chain[:n_newest]}
        with_position = (
            snapshot.snapshot_id for snapshot in chain if _SUMMARY in snapshot.summary.additional_properties
        )
        kept = {next(with_position, None)}
        for name, ref in metadata.refs.items():
            oldest_ms = metadata.last_updated_ms - max(kept_ms, ref.max_snapshot_age_ms or 0)
            n_of_ref = ref.min_snapshots_to_keep or n_kept
            has_age = name != _MAIN or ref.max_snapshot_age_ms is not None
            kept |= {
                snapshot.snapshot_id
                for number, snapshot in enumerate(self._snapshots(ref.snapshot_id))
                if number == 0
                or (
                    ref.snapshot_ref_type == "branch"
                    and (number < n_of_ref or (has_age and snapshot.timestamp_ms >= oldest_ms))
                )
            }
        spacing_ms = 0 if _MAX_AGE in metadata.properties else kept_ms / _SPACED
        expired, last_ms = [], -math.inf
        for snapshot in sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
            if snapshot.snapshot_id in kept:
                continue
            is_old = snapshot.timestamp_ms < metadata.last_updated_ms - kept_ms
            is_close = snapshot.snapshot_id not in newest and snapshot.timestamp_ms - last_ms < spacing_ms
            if is_old or is_close:
                expired.append(snapshot.snapshot_id)
            else:
                last_ms = snapshot.timestamp_ms
        if expired:
            self._table.maintenance.expire_snapshots().by_ids(expired).commit()

    def clean(self, keep_ms: int, check_running: Callable[[], None] = lambda: None) -> None:
        """Delete files that no snapshot names and that are older, once a day, unless the table's owner keeps them."""
        self.refresh()
        properties, now = self._table.metadata.properties, datetime.now(timezone.utc)
        is_kept = properties.get(_COLLECTED, "true").lower() == "false"
        if is_kept or now.timestamp() - float(properties.get(VACUUMED_PROPERTY, 0)) < VACUUM_EVERY_S:
            return
        n_deleted = delete_orphans(self._table, now - timedelta(milliseconds=keep_ms), check_running)
        if n_deleted:
            _log.info("%d files of table %s were deleted, which no snapshot names.", n_deleted, self.identifier)
        self.alter({VACUUMED_PROPERTY: str(int(now.timestamp()))})


def _summary_of(landed: Landed) -> dict[str, str]:
    transaction = landed.transaction
    return {_SUMMARY: landed.to_json(), _TRANSACTION: f"{transaction['txnAppId']}@{transaction['txnVersion']}"}


def _position_of(landed: Landed) -> dict[str, str]:
    """Return the properties that a commit writes: a table's position, or the number of the commit whose rejects they are."""
    if landed.application:
        return {SEQUENCE + landed.application: str(landed.sequence)}
    return position_property(landed)


def landed_in(summary: Mapping[str, Any]) -> Landed | None:
    """Return what a snapshot of an ingest holds, by its summary; None for another program's."""
    n_added = summary.get("added-records")
    return Landed.from_json(summary.get(_SUMMARY), None if n_added is None else int(n_added))
