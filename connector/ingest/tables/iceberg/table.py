"""An Iceberg table of an ingest: pyiceberg creates, changes and commits to it. Only MERGE needs a jar.

The position is in the summary of each snapshot, and in a table property, which does not expire with snapshots. Iceberg has no
transaction ids. So a commit requires that the table is still at the snapshot whose position was read, and that this position is
where the new rows begin. Then two drivers never add the same rows, and no rows are missing after a table was rolled back. The
library's own retries of a commit would drop the requirement, so they are turned off.

A catalog's response does not prove whether a commit was applied: a request that is sent twice is applied first, and then reported
as a conflict. So after each failure the table is read afresh, and files of a commit that was sent are never deleted.
:meth:`IcebergTable.clean` later deletes old files that no snapshot names.

Spark runs MERGE in a session with Iceberg's runtime, which cannot require a snapshot. So the MERGE writes to a branch created at
that snapshot, and pyiceberg then sets the table to the branch's end, with the requirement. A MERGE by an outdated driver never
becomes visible.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import (
    DataType,
    StructField,
    StructType,
)

from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.files.compaction import Compacted, LiveFile
from pykafka_wire.ingest.files.parquet import FileLayout, WrittenFile
from pykafka_wire.ingest.files.tasks import Written, discard, write_rows
from pykafka_wire.ingest.files.types import file_type, fits, merged_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.spark.sql import quoted
from pykafka_wire.ingest.tables.files_table import TableChangedError, discarding
from pykafka_wire.ingest.tables.iceberg import positions
from pykafka_wire.ingest.tables.iceberg.catalog import OnceCatalog, UnknownCommitError, opened, sql_name
from pykafka_wire.ingest.tables.iceberg.files import IcebergFolder, delete_orphans, has_metadata, read_files
from pykafka_wire.ingest.tables.iceberg.limits import (
    VERSION,
    check_numbers,
    check_partition_types,
    check_promotions,
    check_version,
    check_writable,
)
from pykafka_wire.ingest.tables.iceberg.long_properties import divided, joined
from pykafka_wire.ingest.tables.iceberg.statistics import partition_value, statistics
from pykafka_wire.ingest.tables.iceberg.stored_table import (
    are_by_name,
    partition_names,
    scanned,
    spark_schema,
    stored_schema,
    whole_files,
)
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE
from pykafka_wire.ingest.tables.position import (
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
    start_position,
    topic_columns_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pykafka_wire.ingest.tables.iceberg.replacement import LiveManifests, ReplaceableFile

_log = logging.getLogger(__name__)

#: The entry with the commit's number; for a commit of rejects, the number of the commit that they belong to.
_TRANSACTION: Final = "pykafka-wire.transaction"
#: The most attempts to commit, since other programs may commit between the refresh and the commit.
_ATTEMPTS: Final = 10
#: Properties that limit the number of metadata files: each commit writes one, and by default Iceberg keeps all of them.
_FEW_METADATA_FILES: Final = {
    "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100",
}  # fmt: skip
#: Merges manifests. Each commit adds a manifest and lists all of them; by default Iceberg merges from 100 on, but pyiceberg never
#: does.
_FEW_MANIFESTS: Final = {"commit.manifest-merge.enabled": "true"}
_RETRIES: Final = "commit.retry.num-retries"
#: Properties with which a table's owner keeps old snapshots and files.
_COLLECTED: Final = "gc.enabled"
_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
#: Of the snapshots inside the retention time, the newest ones are kept, and this many others at equal intervals: each commit writes
#: the list of all snapshots, which takes 0.6 ms of CPU for each (benchmarks/large_table.py).
_NEWEST: Final = 20
_SPACED: Final = 100
_TARGET_FILE_SIZE: Final = "write.target-file-size-bytes"
#: The prefix of the branches that MERGE writes to. In SQL, Iceberg's runtime addresses a branch by a prefix of the last table name.
_BRANCH: Final = "pykafka_wire_"
_OF_BRANCH: Final = "branch_"
_MAIN: Final = "main"
#: The prefix of session settings that the runtime copies into the summary of each snapshot.
_SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."


class IcebergTable:
    """One table of an ingest."""

    is_folder = False
    records_commits = True
    needs_session = True

    def __init__(self, session: SparkSession, settings: Settings, name: str) -> None:
        self._session = session
        self._prefix = settings.prefix
        self._catalog, namespace = opened(settings)
        self._name = (*namespace, name)
        self.identifier = f"{settings.into}.{name}"
        self._sql_name = sql_name(settings, name)
        self.rewritten_by: str | None = None
        self._loaded: Any = None
        #: The ids of the schema and the partition spec for which files are written.
        self._planned: tuple[int, int] | None = None
        self._manifests: LiveManifests | None = None
        #: The files that can be replaced, by path in the table's folder, when the table was last read.
        self._replaceable: dict[str, ReplaceableFile] = {}

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
        """Return Iceberg's id of the table. A table that is created again under the same name has another id."""
        return str(self._table.metadata.table_uuid)

    @property
    def is_same(self) -> bool:
        """Return True: :meth:`refresh` finds out."""
        return True

    def unreachable(self) -> str | None:
        """Return None: only this process accesses the table."""
        return None

    def refresh(self) -> None:
        """Load the table's current metadata.

        Raises:
            TableChangedError: the table was dropped and created again.
        """
        stored = self._catalog.load_table(self._name)
        if self._loaded is not None and stored.metadata.table_uuid != self._loaded.metadata.table_uuid:
            raise TableChangedError(f"the Iceberg table {self.identifier} was dropped and created again meanwhile")
        self._loaded = stored

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the table's schema as a pyarrow schema, with the field ids that files need."""
        return stored_schema(self._table)

    @property
    def schema(self) -> StructType:
        return spark_schema(self._table)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return partition_names(self._table)

    @property
    def version(self) -> int:
        """Return the id of the current snapshot; -1 if there is none."""
        snapshot = self._table.current_snapshot()
        return -1 if snapshot is None else int(snapshot.snapshot_id)

    @property
    def rows(self) -> DataFrame:
        """Return the table's current rows."""
        return self.pinned()[0]

    def pinned(self) -> tuple[DataFrame, int]:
        """Return the table's current rows and its version. The files are read without Iceberg's runtime."""
        self.refresh()
        return self._rows_of(self._snapshot_id), self.version

    def _rows_of(self, snapshot_id: int | None, names: Sequence[str] = ()) -> DataFrame:
        """Return the rows of a snapshot, with the table's current columns or the columns ``names``; no rows without a snapshot."""
        schema = StructType([self.schema[name] for name in names]) if names else self.schema
        paths = whole_files(self._table, snapshot_id)
        if paths is None:
            rows = scanned(self._table, snapshot_id, names)
            return self._session.createDataFrame(rows.select(schema.names), schema)
        if not paths:
            return self._session.createDataFrame([], schema)
        with_ids = pa.schema([self.arrow_schema.field(name) for name in schema.names])
        is_by_name = are_by_name(self._table, pa.struct(with_ids))
        return read_files(self._session, self.folder, paths, schema, None if is_by_name else with_ids)

    def places(self, topic: str) -> DataFrame:
        """Return ``partition`` and ``offset`` of the table's rows of a topic."""
        self.refresh()
        names = [self._prefix + name for name in ("topic", "partition", "offset")]
        rows = self._rows_of(self._snapshot_id, [name for name in names if name in self.schema.names])
        return KafkaColumns.of(rows, self.identifier, self._prefix).of_topic(topic).select("partition", "offset")

    @property
    def _snapshot_id(self) -> int | None:
        return None if self.version < 0 else self.version

    def properties(self) -> dict[str, str]:
        return joined(self._table.properties)

    def set_properties(self, table: Table, first: Landed) -> None:
        """Store the table's topic, and the offsets at which the table begins."""
        self.alter(owner_properties(first) | made_properties(table))

    def alter(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        with self._table.transaction() as transaction:
            transaction.set_properties(divided(positions.of_current_snapshot(properties, self._table.metadata)))

    def landed(self) -> Landed | None:
        """Return the position in the newest commit of an ingest, or the recorded position; None if the table has neither.

        For a table that was rolled back, the position in its snapshots counts. Its sequence number is that of the newest commit
        that the table ever had, since no number may be repeated: the rejects of a commit are known by its number.

        Raises:
            IngestError: the table's snapshots have no sequence numbers; or :meth:`_with_position` raises it.
        """
        self.refresh()
        check_numbers(self.identifier, self._table.metadata.format_version)
        metadata = self._with_position()
        self.rewritten_by = "a rollback to an older snapshot" if positions.is_rolled_back(metadata) else None
        return positions.numbered(metadata)

    def _held(self) -> Landed | None:
        return positions.held(self._with_position())

    def _with_position(self) -> Any:
        """Return the table's metadata, with the snapshots that show its position.

        Raises:
            IngestError: the snapshots contradict each other.
        """
        metadata = positions.with_expired(self._table)
        if positions.has_gap(metadata):
            raise IngestError(
                f"a snapshot of the ingest was cherry-picked into the Iceberg table {self.identifier}, but the table lacks records "
                "before those of the snapshot, or has some of the snapshot's records already. The missing records would be lost, "
                "or the others landed twice. Set the table back to a snapshot before the cherry-pick; then the ingest lands the "
                "records again."
            )
        return metadata

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the newest commit is also stored outside the table's snapshots."""
        recorded = positions.recorded(positions.with_expired(self._table))
        return recorded is not None and recorded.sequence >= landed.sequence

    def record(self, landed: Landed) -> None:
        """Record the position of a commit by an older version of this program; newer commits record it themselves."""
        self.alter(position_property(landed))

    def history(self, version: int | None = None) -> Iterator[Landed]:
        """Yield the position in each commit of an ingest, newest first, as far back as snapshots are kept.

        Args:
            version: the snapshot to begin with, by default the current one.
        """
        return positions.history(self._table.metadata, version)

    def _snapshots(self, version: int | None = None) -> Iterator[Any]:
        return positions.snapshots(self._table.metadata, version)

    def create(self, columns: str, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table without rows, from columns as DDL, and store its topic and the offsets at which it begins."""
        rows = DataType.fromDDL(columns)
        assert isinstance(rows, StructType)
        self.create_of(arrow_schema(rows), table, query, initial_position)

    def create_of(self, schema: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table as :meth:`create` does, from a pyarrow schema."""
        if (version := table.properties.get(VERSION)) is not None:
            check_numbers(self.identifier, version)
            check_version(self.identifier, version)
        nested = [field.name for field in schema if pa.types.is_nested(field.type)]
        by = partition_columns(table, schema.names, nested)
        check_partition_types(self.identifier, {name: str(schema.field(name).type) for name in by})
        made = {QUERY_PROPERTY: query, VACUUMED_PROPERTY: str(int(time.time()))}
        given = {**_FEW_METADATA_FILES, **made, **made_properties(table)}
        if table.merges:
            given[_TARGET_FILE_SIZE] = str(table.target_bytes)  # used by Spark's writer
        if initial_position is not None:
            given |= (
                owner_properties(initial_position)
                | {positions.BEGINS_AT: initial_position.to_json()}
                | start_position(initial_position)
            )

        def begin(**more: str) -> Any:
            properties = divided({**given, **table.properties})  # pyiceberg changes them
            return self._catalog.create_table_transaction(self._name, schema, properties=properties, **more)

        new = begin()
        location, io = new.table_metadata.location, new._table.io
        if has_metadata(location, io.properties):
            # It is of a table that was dropped or renamed: a cleanup of one table would delete the files of the other one.
            new = begin(location=f"{location.rstrip('/')}-{uuid.uuid4().hex[:8]}")
        with new as transaction:
            if by:
                with transaction.update_spec() as update:
                    for name in by:
                        update.add_identity(name)
        self._loaded = None

    def add_columns(self, rows: DataFrame) -> None:
        """Add the columns and wider types of ``rows`` to the table. Writes nothing if the table has them.

        Raises:
            IngestError: the table cannot store a column of the rows.
        """
        self.add_types(rows.schema)

    def add_types(self, rows: StructType) -> None:
        """Add columns and wider types as :meth:`add_columns` does, from the schema of rows."""
        from pyiceberg.exceptions import ValidationError

        if fits(pa.struct(arrow_schema(rows)), pa.struct(self.arrow_schema)):
            return
        check_promotions(self.identifier, self.schema, rows)
        wanted = merged_type(pa.struct(arrow_schema(rows)), pa.struct(self.arrow_schema))
        try:
            with self._table.update_schema(case_sensitive=False) as update:
                update.union_by_name(pa.schema(wanted))
                names = [field.name for field in self._table.schema().fields]
                first = next((name for name in names if name.startswith(self._prefix)), None)
                for name in [field.name for field in wanted if first is not None and field.name not in names]:
                    update.move_before(name, str(first))
        except (ValidationError, ValueError) as error:
            raise IngestError(f"the Iceberg table {self.identifier} cannot take the new columns ({error}).") from error

    def spark_reason(self) -> str | None:
        """Return None: files can be committed, and there is no other way to write to the table.

        Raises:
            IngestError: files cannot be committed to the table in its present state.
        """
        check_writable(self.identifier, self._table)
        return None

    def layout(self, schema: pa.Schema, table: Table) -> FileLayout:
        """Return the layout of files for rows with the pyarrow ``schema``. The files can be committed while the table keeps its
        columns and partition spec."""
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
        """Return the folder in which tasks write files."""
        return IcebergFolder.of(self._table)

    def append(self, rows: DataFrame, landed: Landed | None) -> None:
        """Append rows, and add new columns; ``landed`` is None for rows that do not move the table's position.

        Raises:
            IngestError: the table cannot take files of these rows.
            OSError: a task cannot write; nothing is committed.
        """
        self.refresh()
        self.spark_reason()
        self.add_columns(rows)
        rows = self._with_partition_columns(rows)
        held = pa.struct(self.arrow_schema)
        layout = self.layout(pa.schema(file_type(pa.struct(arrow_schema(rows.schema)), held)), Table(topic=".*"))
        written = write_rows(rows, self.folder, layout)
        if written.unwritable is not None:
            discard(written, self.folder)
            raise OSError(f"tasks cannot write files of the Iceberg table {self.identifier}: {written.unwritable}")
        with discarding(written, self.folder):
            self.append_files(written, layout, landed)

    def _with_partition_columns(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns of the table's partitions. A column that the rows lack, as inferred JSON may, is null."""
        given, types = {name.lower() for name in rows.columns}, {field.name: field.dataType for field in self.schema}
        lacking = [name for name in self.partition_by if name.lower() not in given]
        return rows.withColumns({name: F.lit(None).cast(types[name]) for name in lacking}) if lacking else rows

    def append_files(self, written: Written, layout: FileLayout, landed: Landed | None) -> None:
        """Add files to the table and set its position to ``landed``, in one commit.

        Raises:
            AlreadyLandedError: the table has this commit, or another position.
            TableChangedError: the table's columns or partitions have changed since the files were laid out.
            CommitFailedException: of pyiceberg: the table changed after another program's commit, or other commits keep coming
            first.
        """
        files = [*self._data_files(written.files, layout)]

        def check(*, is_begun: bool) -> None:
            if landed is not None:
                self._check_follows(landed, is_begun=is_begun)

        def build(transaction: Any) -> None:
            if landed is not None:
                number = transaction.table_metadata.next_sequence_number()
                transaction.set_properties(_position_of(landed, number))
            summary = {} if landed is None else _summary_of(landed)
            with transaction.update_snapshot(summary).merge_append() as append:
                for file in files:
                    append.append_data_file(file)

        self._commit(check, build)

    def own_files(self) -> Mapping[str, LiveFile]:
        """Read the table again, and return its current files that can be replaced, by path, the oldest first.

        Raises:
            TableChangedError: the table was created again.
        """
        self.refresh()
        self._planned = self._shape
        return self._live_files()

    def _live_files(self) -> dict[str, LiveFile]:
        from pykafka_wire.ingest.tables.iceberg.replacement import LiveManifests

        self._manifests = self._manifests or LiveManifests()
        begin = f"{self.folder.location}/"
        self._replaceable = {
            path.removeprefix(begin): file
            for path, file in self._manifests.files(self._table).items()
            if path.startswith(begin)
        }
        return {
            path: LiveFile(
                path=path,
                n_bytes=file.data_file.file_size_in_bytes,
                n_rows=file.data_file.record_count,
                partition=tuple(file.data_file.partition[number] for number in range(len(file.data_file.partition))),
            )
            for path, file in self._replaceable.items()
        }

    def replace_files(self, made: Sequence[Compacted]) -> None:
        """Replace files by files with the same rows, in one commit, if the table still has the files, columns and partitions.

        Raises:
            TableChangedError: the table has changed; no commit was sent.
            CommitFailedException: of pyiceberg: the table changed after another program's commit, or other commits keep coming
            first.
        """
        from pyiceberg.exceptions import CommitFailedException

        from pykafka_wire.ingest.tables.iceberg.replacement import ReplaceFiles

        def check(*, is_begun: bool) -> None:
            held = self._live_files()
            if not all(file.path in held for each in made for file in each.replaced):
                raise (CommitFailedException if is_begun else TableChangedError)(
                    f"the Iceberg table {self.identifier} no longer has files that were compacted"
                )

        def build(transaction: Any) -> None:
            replaced = [self._replaceable[file.path] for each in made for file in each.replaced]
            plan = self._statistics_plan()
            added = [
                self._data_file(file, each.schema, self._replaceable[each.replaced[0].path].data_file.partition, plan)
                for each in made
                for file in each.files
            ]
            assert self._manifests is not None, "the files were looked up"
            with ReplaceFiles(transaction, self._table.io, self._manifests, replaced, added):
                pass

        self._commit(check, build)

    def _commit(self, check: Callable[..., None], build: Callable[[Any], None]) -> None:
        """Commit a snapshot to the current table, if the table has the planned columns and partitions.

        Args:
            check: raises an error if the table does not allow the commit; ``is_begun`` says whether the commit was sent before.
            build: adds the snapshot to pyiceberg's transaction.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import Table as StoredTable

        sent = set[int]()
        for attempt in range(_ATTEMPTS):
            try:
                self.refresh()
            except TableChangedError as error:
                raise (CommitFailedException(str(error)) if attempt else error) from None
            if self._holds(sent):
                break
            check(is_begun=attempt > 0)
            if self._shape != self._planned:
                raise (CommitFailedException if attempt else TableChangedError)(
                    f"the columns or partitions of the Iceberg table {self.identifier} were changed after its files were planned"
                )
            stored = self._table
            properties = {**_FEW_MANIFESTS, **stored.metadata.properties, _RETRIES: "0"}
            metadata = stored.metadata.model_copy(update={"properties": properties})
            catalog: Any = OnceCatalog(stored.catalog, sent)
            once = StoredTable(stored.name(), metadata, stored.metadata_location, stored.io, catalog)
            try:
                with once.transaction() as transaction:
                    build(transaction)
                break
            except UnknownCommitError as error:
                if attempt == _ATTEMPTS - 1:
                    raise CommitFailedException(
                        f"other programs keep committing to the Iceberg table {self.identifier}"
                    ) from error
            except Exception as error:  # of a catalog and its client, of many classes
                if not self._has_landed(sent):
                    raise
                _log.info("A commit to table %s succeeded, although the catalog reported: %s", self.identifier, error)
                break
        # Even if the table was renamed or dropped since, the files belong to a table, so no later step may raise an error.
        self._loaded = None

    def _holds(self, snapshot_ids: Collection[int]) -> bool:
        """Return whether one of these snapshots is the table's current snapshot or one of its ancestors."""
        return bool(snapshot_ids) and any(snapshot.snapshot_id in snapshot_ids for snapshot in self._snapshots())

    def _has_landed(self, snapshot_ids: Collection[int]) -> bool:
        """Return whether the table, read afresh, holds one of these snapshots; False if that cannot be determined."""
        try:
            self.refresh()
            return self._holds(snapshot_ids)
        except Exception as error:  # the caller reports the first error
            _log.debug("Table %s cannot be read after a failed commit.", self.identifier, exc_info=error)
            return False

    def newest_number(self, application: str) -> int:
        """Return the same as :meth:`TopicTable.newest_number`."""
        if not self.exists:
            return 0
        if not application:
            held = self.landed()
            return 0 if held is None else held.sequence
        self.refresh()
        return int(self._table.properties.get(SEQUENCE + application, 0))

    def check_follows(self, landed: Landed) -> None:
        """Raise AlreadyLandedError if the table, read afresh, does not end where a commit begins."""
        self.refresh()
        self._check_follows(landed, is_begun=False)

    def _check_follows(self, landed: Landed, *, is_begun: bool) -> None:
        """Raise AlreadyLandedError if the table does not end where a commit begins, or if it already has the rejects."""
        if landed.application:
            is_there = self._has_rejects(landed)
        else:
            is_there = not landed.follows(self._held())
        if is_there:
            raise AlreadyLandedError(self.identifier, is_begun=is_begun)

    def _has_rejects(self, landed: Landed) -> bool:
        if landed.sequence:
            return int(self._table.properties.get(SEQUENCE + landed.application, 0)) >= landed.sequence
        # A commit of an older version stored its name in a snapshot's summary.
        names = ((snapshot.summary or {}).get(_TRANSACTION) for snapshot in self._table.metadata.snapshots)
        return f"{landed.transaction['txnAppId']}@{landed.micro_batch}" in names

    def _data_files(self, files: Sequence[WrittenFile], layout: FileLayout) -> Iterator[Any]:
        from pyiceberg.typedef import Record

        kinds, plan = [layout.schema.field(name).type for name in layout.partition_by], self._statistics_plan()
        for file in files:
            partition = Record(*map(partition_value, file.partition, kinds))
            yield self._data_file(file, layout.file_schema, partition, plan)

    def _statistics_plan(self) -> Mapping[int, Any]:
        """Return pyiceberg's plan of the statistics that the table keeps, by field id."""
        from pyiceberg.io.pyarrow import compute_statistics_plan

        plan: Mapping[int, Any] = compute_statistics_plan(self._table.schema(), self._table.properties)
        return plan

    def _data_file(self, file: WrittenFile, schema: pa.Schema, partition: Any, plan: Mapping[int, Any]) -> Any:
        """Return pyiceberg's description of a file with the pyarrow ``schema``."""
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.folder.location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=file.n_bytes,
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics(file, schema, plan),
        )

    def delete(self, condition: str, places: DataFrame | None) -> None:
        """Delete the rows that satisfy an SQL condition; with places, only those at the given ``partition`` and ``offset``."""
        if places is not None:
            offsets: dict[int, list[int]] = {}
            for row in places.collect():
                offsets.setdefault(row.partition, []).append(row.offset)
            if not offsets:
                return
            parts = [
                f"(partition = {partition} AND offset IN ({', '.join(map(str, given))}))"
                for partition, given in offsets.items()
            ]
            condition = f"({condition}) AND ({' OR '.join(parts)})"
        self.refresh()
        self._table.delete(condition)

    def append_first(self, rows: DataFrame, table: Table, landed: Landed) -> None:
        raise AssertionError("an Iceberg table is created before its rows are read")

    def earlier(self) -> Iterator[tuple[Landed, DataFrame | None]]:
        """Yield the position in each commit of an ingest, newest first, with the table's rows before the commit, while snapshots
        are kept."""
        kept = {snapshot.snapshot_id for snapshot in self._table.metadata.snapshots}
        for snapshot in self._snapshots():
            landed, before = positions.landed_in(snapshot), snapshot.parent_snapshot_id
            if landed is not None and (before is None or before in kept):
                yield landed, None if before is None else self._rows_of(before)

    def topic_columns(self) -> list[StructField]:
        """Return the columns that come from the topic, without columns that a user has added."""
        return topic_columns_of(self.schema, self.properties())

    def merge(self, changes: DataFrame, clauses: str, landed: Landed | None) -> None:
        """Run one MERGE of ``changes`` (alias ``new``) into the table (alias ``old``); ``landed`` is as in :meth:`append`.

        Raises:
            AlreadyLandedError: the table has this commit, or another position; nothing is changed.
            CommitFailedException: of pyiceberg: another program committed first; nothing is changed.
        """
        self.refresh()
        if landed is not None:
            self._check_follows(landed, is_begun=False)
        base = self.version
        if base < 0:  # a branch needs a snapshot
            self.append(changes.where(f"NOT {DELETE}").drop(DELETE, UNAVAILABLE, CREATED), landed)
            return
        branch = f"{_BRANCH}{uuid.uuid4().hex}"
        self._begin_branch(branch, base)
        # The session may have cached the table before new columns were added.
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
        """Create a branch at a snapshot, and remove the branches of failed or abandoned MERGEs."""
        from pyiceberg.table.refs import SnapshotRefType
        from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

        remnants = [branch for branch in self._table.metadata.refs if branch.startswith(_BRANCH)]
        begun = SetSnapshotRefUpdate(ref_name=name, type=SnapshotRefType.BRANCH, snapshot_id=base)
        at_base = AssertRefSnapshotId(ref=_MAIN, snapshot_id=base)
        self._catalog.commit_table(
            self._table, (at_base,), (*(RemoveSnapshotRefUpdate(ref_name=branch) for branch in remnants), begun)
        )

    def _publish(self, branch: str, base: int, landed: Landed | None) -> None:
        """Set the table to the end of a branch, with the position, if the table is still at the snapshot ``base``.

        Raises:
            CommitFailedException: of pyiceberg: the table is no longer at ``base``.
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
        # If another driver has removed the branch, the runtime creates it again, at the table's current snapshot.
        if merged is None or merged.parent_snapshot_id != base:
            raise CommitFailedException(
                f"a MERGE into the Iceberg table {self.identifier} is based on an older snapshot of it"
            )
        moved = SetSnapshotRefUpdate(ref_name=_MAIN, type=SnapshotRefType.BRANCH, snapshot_id=merged.snapshot_id)
        requirements = (
            AssertRefSnapshotId(ref=_MAIN, snapshot_id=base),
            AssertRefSnapshotId(ref=branch, snapshot_id=merged.snapshot_id),
        )
        position = (
            () if landed is None else (SetPropertiesUpdate(updates=_position_of(landed, merged.sequence_number)),)
        )
        try:
            self._catalog.commit_table(
                self._table, requirements, (moved, RemoveSnapshotRefUpdate(ref_name=branch), *position)
            )
        except Exception:  # of a catalog and its client, of many classes
            if not self._has_landed({merged.snapshot_id}):
                raise
        self._loaded = None

    def expire(self, keep_ms: int) -> None:
        """Expire snapshots older than ``keep_ms``, except the newest one with a position, and those that the table's owner, a
        branch or a tag keeps. Of the younger snapshots, some are kept at equal intervals; all are kept if the table's owner sets
        their maximum age. A snapshot that is kept keeps the one with its position, so that the table can be set back to it.

        Raises:
            CommitFailedException: of pyiceberg: other commits keep coming first.
        """
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(_ATTEMPTS):
            try:
                self._expire(keep_ms)
                return
            except CommitFailedException:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _expire(self, keep_ms: int) -> None:
        from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate

        self.refresh()
        metadata = self._table.metadata
        if metadata.properties.get(_COLLECTED, "true").lower() == "false":
            return
        kept_ms = max(keep_ms, int(metadata.properties.get(_MAX_AGE, 0)))
        n_kept = int(metadata.properties.get(_MIN_SNAPSHOTS, 1))
        chain = list(self._snapshots())
        # The search for the position starts at the newest snapshot.
        position = next((n for n, snapshot in enumerate(chain) if positions.landed_in(snapshot) is not None), None)
        n_newest = max(_NEWEST, (position or 0) + 1)
        in_chain = {snapshot.snapshot_id for snapshot in chain}
        newest = {snapshot.snapshot_id for snapshot in chain[:n_newest]}
        kept = set() if position is None else {chain[position].snapshot_id}
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
            # Another program may have staged a snapshot, to publish it later.
            is_staged = snapshot.snapshot_id not in in_chain and positions.landed_in(snapshot) is None
            is_close = snapshot.snapshot_id not in newest and snapshot.timestamp_ms - last_ms < spacing_ms
            if is_old or (is_close and not is_staged):
                expired.append(snapshot.snapshot_id)
            elif not is_staged:
                last_ms = snapshot.timestamp_ms
        needed = positions.with_positions({each.snapshot_id for each in metadata.snapshots} - {*expired}, metadata)
        if expired := [snapshot_id for snapshot_id in expired if snapshot_id not in needed]:
            # A branch or a tag that was set to an expired snapshot meanwhile would be removed, even the one with the table's rows.
            refs = [AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()]
            self._catalog.commit_table(self._table, tuple(refs), (RemoveSnapshotsUpdate(snapshot_ids=expired),))
            self._loaded = None

    def clean(self, keep_ms: int, check_running: Callable[[], None] = lambda: None) -> None:
        """Delete files older than ``keep_ms`` that no snapshot names, once a day, unless the table's owner has disabled it."""
        self.refresh()
        properties, now = self._table.metadata.properties, datetime.now(timezone.utc)
        is_kept = properties.get(_COLLECTED, "true").lower() == "false"
        if is_kept or now.timestamp() - float(properties.get(VACUUMED_PROPERTY, 0)) < VACUUM_EVERY_S:
            return
        n_deleted = delete_orphans(self._table, now - timedelta(milliseconds=keep_ms), check_running)
        if n_deleted:
            _log.info("%d files of table %s that no snapshot names were deleted.", n_deleted, self.identifier)
        self.alter({VACUUMED_PROPERTY: str(int(now.timestamp()))})


def _summary_of(landed: Landed) -> dict[str, str]:
    transaction = landed.transaction
    return {positions.SUMMARY: landed.to_json(), _TRANSACTION: f"{transaction['txnAppId']}@{transaction['txnVersion']}"}


def _position_of(landed: Landed, snapshot: int) -> dict[str, str]:
    """Return the properties that a commit sets: the table's position, or the number of the commit whose rejects it adds.

    Args:
        snapshot: the sequence number of the commit's snapshot.
    """
    if landed.application:
        return {SEQUENCE + landed.application: str(landed.sequence)}
    return divided(positions.property_of(landed, snapshot))
