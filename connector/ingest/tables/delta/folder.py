"""A Delta table in a folder, to which the library deltalake commits files, without the JVM and within milliseconds.

The commits look like Spark's: the position is in ``userMetadata``, and the sequence number is a transaction id. In addition each
commit stores the position as transaction ids, which outlive the table's history. Needs no Spark session. If the library cannot
commit to the table, :meth:`DeltaFolder.spark_reason` says why, and Spark commits.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.files.compaction import Compacted, LiveFile
from pykafka_wire.ingest.files.parquet import FileLayout, UnwritableError, WrittenFile, partition_text
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta import transactions as delta_transactions
from pykafka_wire.ingest.tables.delta.history import RECENT, is_copy, landed_in, newest_position, rewrite_of
from pykafka_wire.ingest.tables.delta.own_files import OwnFiles, compaction_metadata
from pykafka_wire.ingest.tables.delta.statistics import INDEXED_COLUMNS, statistics
from pykafka_wire.ingest.tables.delta.uri_folder import UriFolder
from pykafka_wire.ingest.tables.files_table import TableChangedError
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed
from pykafka_wire.ingest.tables.topic_table import (
    QUERY_PROPERTY,
    VACUUMED_PROPERTY,
    made_properties,
    owner_properties,
    partition_columns,
    start_position,
)
from pykafka_wire.places import local_folder, stored_uri, table_uri
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: Writer features of Delta that deltalake supports, or that an append satisfies without doing anything.
_WRITER_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"}
)
#: The highest writer version before table features: 4 includes change data feed and generated columns; 5 is column mapping.
_MAX_WRITER_VERSION: Final = 4
_BY_FEATURES: Final = 7
#: The schemes that both deltalake and pyarrow support.
_SCHEMES: Final = ("s3", "gs", "abfss", "hdfs")
#: The most attempts to commit a compaction: other programs may commit after the table was read.
_ATTEMPTS: Final = 5
#: So many commits are between two checkpoints of the log. Each commit reads the log since the newest checkpoint: with deltalake's
#: hundred, a commit of one file took twice the CPU.
_CHECKPOINT_COMMITS: Final = 20
_LOG: Final = "_delta_log"
_INTERVAL_PROPERTY: Final = "delta.checkpointInterval"
_INDEXED_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"
#: Names of rules in a column's metadata: a default, and the length of a CHAR or VARCHAR. Other rules have names of Delta.
_RULES: Final = frozenset({"CURRENT_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"})


class _Plan(NamedTuple):
    """The state of the table for which files are written.

    Attributes:
        version: the version of the newest commit.
        entry: the log entry of that commit, which differs if the table was dropped and created again.
        shape: the table's id, protocol, columns, partitions and properties.
    """

    version: int
    entry: bytes | None
    shape: tuple[object, ...]


class _State(NamedTuple):
    """Facts that the log states of the table at one version.

    Attributes:
        shape: the table's id, protocol, columns, partitions and properties.
        spark_reason: why files cannot be committed to the table; None if they can.
    """

    version: int
    arrow_schema: pa.Schema
    shape: tuple[object, ...]
    spark_reason: str | None


class DeltaFolder:
    """One table. Not thread-safe."""

    needs_session = False

    def __init__(self, folder: str, storage: Mapping[str, str] | None = None) -> None:
        """Store a local path or URI, and the ``storage`` options of :class:`UriFolder`."""
        self.identifier = f"delta.`{folder}`"
        self.rewritten_by: str | None = None
        self._uri = table_uri(folder)
        self.folder = UriFolder(uri=folder, storage=storage or {}, mark=_LOG)
        self._plan: _Plan | None = None
        self._newest: _State | None = None
        #: The last version for which a checkpoint was considered; 0 for none.
        self._checked = 0
        self._own = OwnFiles()

    @staticmethod
    def settings_reason(settings: Settings, table: Table) -> str | None:
        """Return why the settings do not allow tasks to commit files to the table; None if they do. Does not read the table."""
        if table.write == "spark":
            return 'write = "spark" is set'
        if table.merges:
            return f"{table.mode} needs MERGE"
        if not settings.is_folder:
            return "it is a table of a catalog"
        if table.cluster_by:
            return "cluster_by needs Spark"
        scheme = settings.into.partition(":")[0].lower() if ":" in settings.into else "file"
        if scheme != "file" and stored_uri(settings.into).partition(":")[0] not in _SCHEMES:
            return f"only Spark supports the scheme {scheme}:"
        # PySpark requires pandas for mapInArrow.
        missing = next((name for name in ("deltalake", "pandas") if find_spec(name) is None), None)
        return None if missing is None else f"the library {missing} is not installed: pip install 'pykafka-wire[delta]'"

    @cached_property
    def _table(self) -> Any:  # Any: deltalake is optional
        import deltalake

        return deltalake.DeltaTable(self._uri, storage_options=dict(self.folder.storage))

    def unreachable(self) -> str | None:
        """Return why this process cannot access the folder or read its table; None if it can. Spark may have other credentials."""
        shown = without_secrets(self.folder.uri)
        if local_folder(self.folder.uri) is None:
            try:
                filesystem, path = self.folder.open()
                filesystem.get_file_info(path)
            except (OSError, ValueError, OptionError) as error:
                return f"Python cannot access {shown}: {error}"
        try:
            return self._unreadable() if self.exists else None
        except Exception as error:  # deltalake raises errors of many classes
            return f"the library deltalake cannot open a table in {shown}: {without_secrets(str(error))}"

    def _unreadable(self) -> str | None:
        """Return why the library cannot read the table, such as an unsupported feature or type; None if it can."""
        try:
            _ = self.arrow_schema
        except Exception as error:  # deltalake raises errors of many classes
            return f"the library deltalake cannot read the table: {without_secrets(str(error))}"
        return None

    @property
    def exists(self) -> bool:
        import deltalake

        return deltalake.DeltaTable.is_deltatable(self._uri, dict(self.folder.storage))

    def landed(self) -> Landed | None:
        """Return the position in the newest commit of an ingest, or the recorded position; None if the table has neither."""
        landed, commits = newest_position(self._table.history, (1, RECENT, None))
        self.rewritten_by = rewrite_of(commits)
        return None if landed is None and is_copy(commits) else landed or self._recorded()

    def _recorded(self) -> Landed | None:
        properties = self.properties()
        query, topic = (properties.get(name, "") for name in (QUERY_PROPERTY, TOPIC_PROPERTY))
        return delta_transactions.recorded_position(self._table, properties, query, topic)

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the newest commit is also stored outside the table's history."""
        recorded = self._recorded()
        return recorded is not None and recorded.sequence >= landed.sequence

    def refresh(self) -> None:
        """Read the commits after the last refresh."""
        self._table.update_incremental()

    @property
    def is_same(self) -> bool:
        """Return whether the log still has the newest entry that this object has laid out files for; False before."""
        return self._plan is not None and self._entry(self._plan.version) == self._plan.entry

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the table's schema as a pyarrow schema."""
        return self._state.arrow_schema

    @property
    def _state(self) -> _State:
        """Return the facts of the version that was read last. The facts of a version are derived once, since
        this takes as long as a refresh."""
        version = int(self._table.version())
        if self._newest is None or self._newest.version != version:
            schema = pa.schema(self._table.schema().to_arrow())
            self._newest = _State(version, schema, self._shape(), self._spark_reason(schema))
        return self._newest

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(self._stored_schema)

    @property
    def _stored_schema(self) -> dict[str, Any]:
        """Return Delta's schema, as stored in the log."""
        schema: dict[str, Any] = json.loads(self._table.schema().to_json())
        return schema

    def properties(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    @property
    def reader_features(self) -> frozenset[str]:
        """Return Delta's names of the features that readers of the table must know."""
        return frozenset(self._table.protocol().reader_features or ())

    def topic_columns(self) -> list[StructField]:
        """Return all columns: appended rows have null in a user's columns."""
        return [*self.schema.fields]

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def spark_reason(self) -> str | None:
        """Return why files cannot be committed to the table in its present state; None if they can."""
        return self._unreadable() or self._state.spark_reason

    def _spark_reason(self, schema: pa.Schema) -> str | None:
        protocol, metadata = self._table.protocol(), self._table.metadata()
        features = set(protocol.writer_features or ())
        if protocol.min_writer_version == _BY_FEATURES:
            if more := sorted(features - _WRITER_FEATURES):
                return f"it has the table feature {', '.join(more)}"
        elif protocol.min_writer_version > _MAX_WRITER_VERSION:
            return f"it needs writers of version {protocol.min_writer_version}"
        if any(name.startswith("delta.constraints.") for name in metadata.configuration):
            return "it has a constraint"
        if not all(map(_is_plain, self._stored_schema["fields"])):
            return "it has a column that is NOT NULL, generated, or has a default"
        return _of_partitions(schema, self.partition_by)

    def create_of(self, rows: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table without rows, as :meth:`SparkDeltaTable.create` does, from the pyarrow schema ``rows``."""
        import deltalake
        from deltalake.transaction import CommitProperties

        of_owner, metadata = dict[str, str](), dict[str, str]()
        if initial_position is not None:
            of_owner = owner_properties(initial_position) | start_position(initial_position)
            metadata = {"userMetadata": initial_position.to_json()}
        deltalake.DeltaTable.create(
            self._uri,
            deltalake.Schema.from_arrow(_nullable(rows)),
            mode="error",
            partition_by=partition_columns(
                table, rows.names, [field.name for field in rows if pa.types.is_nested(field.type)]
            ),
            configuration={QUERY_PROPERTY: query} | of_owner | made_properties(table),
            storage_options=dict(self.folder.storage),
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(custom_metadata=metadata),
        )

    def layout(self, schema: pa.Schema, table: Table) -> FileLayout:
        """Return the layout of files for rows with the pyarrow ``schema``, and remember the table's state for
        :meth:`append_files`."""
        self._write_checkpoint(self._remember_state())
        return FileLayout(schema=schema, partition_by=self.partition_by, target_bytes=table.target_bytes)

    def _remember_state(self) -> int:
        """Remember the table's state, and return its version."""
        state = self._state
        self._plan = _Plan(state.version, self._entry(state.version), state.shape)
        return state.version

    def _shape(self) -> tuple[object, ...]:
        metadata, protocol = self._table.metadata(), self._table.protocol()
        properties = {name: value for name, value in metadata.configuration.items() if name != VACUUMED_PROPERTY}
        return (
            *(metadata.id, metadata.partition_columns, properties, self._table.schema().to_json()),
            *(protocol.min_reader_version, protocol.min_writer_version),
            *(sorted(features or ()) for features in (protocol.reader_features, protocol.writer_features)),
        )

    def _entry(self, version: int) -> bytes | None:
        """Return the log entry of a version; None if the log has none."""
        try:
            filesystem, folder = self.folder.open()
            with filesystem.open_input_stream("/".join(filter(None, (folder, f"{_LOG}/{version:020}.json")))) as entry:
                return bytes(entry.read())
        except (FileNotFoundError, UnwritableError):
            return None

    def append_files(self, written: Written, layout: FileLayout, landed: Landed) -> None:
        """Add files to the table and set its position to ``landed``, in one commit.

        Raises:
            AlreadyLandedError: the table has another commit with this sequence number, or its position is not where this commit
                starts.
            TableChangedError: the table has changed since the layout was made.
            errors of deltalake: the commit is not in the table when it is read afresh: another commit came first, or the store
                failed.
        """
        from deltalake.transaction import CommitProperties

        self._check_plan()
        self._check_follows(landed)
        metrics = {
            "numFiles": len(written.files),
            "numOutputRows": written.n_rows,
            "numOutputBytes": written.n_bytes,
        }
        properties = CommitProperties(
            custom_metadata={
                "userMetadata": landed.to_json(),
                "operationMetrics": {name: str(value) for name, value in metrics.items()},
            },
            app_transactions=delta_transactions.transactions_of(landed),
        )
        try:
            self._table.create_write_transaction(
                [*self._actions(written.files, layout)],
                "append",
                self._table.schema(),
                partition_by=list(layout.partition_by),
                commit_properties=properties,
            )
        except (
            Exception
        ) as error:  # deltalake raises errors of many classes; the table shows whether the commit succeeded
            if not self._has(landed):
                raise
            _log.info("A commit to table %s succeeded, although the library reported: %s", self.identifier, error)

    def _write_checkpoint(self, version: int) -> None:
        """Write a checkpoint of Delta's log if one is due at a version that was just read, so that reading the log costs little.

        deltalake writes one by itself, but only every hundred commits, or as the table's property says.
        """
        before, self._checked = self._checked or max(0, version - 1), version
        if version // _CHECKPOINT_COMMITS == before // _CHECKPOINT_COMMITS or _INTERVAL_PROPERTY in self.properties():
            return
        try:
            self._table.create_checkpoint()
        except Exception as error:  # deltalake raises errors of many classes; readers do without a checkpoint
            _log.debug("No checkpoint of table %s was written.", self.identifier, exc_info=error)

    def _check_follows(self, landed: Landed) -> None:
        """Raise AlreadyLandedError if the table has this sequence number, or if its position is not where this commit starts.

        The table was just refreshed. If its newest commit is of an ingest, as usual, then the entry of that commit shows both.
        """
        plan = self._plan
        held = None if plan is None or plan.version != self._table.version() else _landed_of(plan.entry)
        if held is not None:
            newest = held.sequence
        else:
            newest, held = delta_transactions.newest_sequence(self._table) or 0, self.landed()
        if newest >= landed.sequence or not landed.follows(held):
            raise AlreadyLandedError(self.identifier, is_begun=False)

    def _has(self, landed: Landed) -> bool:
        """Return whether the table, read afresh, contains this commit."""
        try:
            self.refresh()
            return any(commit.attempt == landed.attempt for commit in landed_in(self._table.history(RECENT)))
        except Exception as error:  # the caller reports the first error
            _log.debug("Table %s cannot be read after a failed commit.", self.identifier, exc_info=error)
            return False

    def _check_plan(self) -> None:
        """Raise TableChangedError if the table has changed since the layout was made.

        Raises:
            TableChangedError: the table was created again, or its columns, partitions, properties or protocol have changed.
        """
        plan = self._plan
        assert plan is not None, "files have a layout"
        # A refresh takes some milliseconds, even if there is nothing to read.
        if self._entry(plan.version + 1) is not None:
            self.refresh()
        # If the table was created again, its log may lack the version or have more versions: compare the log entry.
        if self._state.shape != plan.shape or not self.is_same:
            raise TableChangedError(
                f"Table {self.identifier} was changed or created again while files were written for it: its rows are written again."
            )

    def own_files(self) -> Mapping[str, LiveFile]:
        """Read the table again, and return its current files that the ingest has added, by path, the oldest first.

        Raises:
            TableChangedError: the table was changed or created again since the last call.
        """
        if self._plan is not None:
            self._check_plan()
        else:
            self.refresh()
        self._own.follow(self._remember_state(), self._entry)
        return self._own.files

    def replace_files(self, made: Sequence[Compacted]) -> None:
        """Replace files by files with the same rows, in one commit, if the table has only got new files meanwhile.

        deltalake commits only the version that follows the version that was read, so no other commit can remove a file in between.

        Raises:
            TableChangedError: the table was changed, or lacks one of the files; no commit was begun.
            errors of deltalake: the commit is not in the table when it is read afresh: other commits keep coming first, or the
                store failed.
        """
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._check_plan()
            except TableChangedError as error:
                raise failure or error from None
            self._own.follow(int(self._table.version()), self._entry)
            if failure is not None and all(file.path in self._own.files for each in made for file in each.files):
                return
            if not all(file.path in self._own.files for each in made for file in each.replaced):
                raise failure or TableChangedError(
                    f"The table {self.identifier} no longer has files that were compacted."
                )
            try:
                self._commit_replacement(made)
                return
            except (
                Exception
            ) as error:  # deltalake raises errors of many classes; the table shows whether the commit succeeded
                failure = error
        assert failure is not None
        raise failure

    def _commit_replacement(self, made: Iterable[Compacted]) -> None:
        from deltalake.transaction import CommitProperties

        actions = [action for each in made for action in self._replacement(each)]
        replaced = [file for each in made for file in each.replaced]
        added = [file for each in made for file in each.files]
        metrics = {
            "numRemovedFiles": len(replaced),
            "numRemovedBytes": sum(file.n_bytes for file in replaced),
            "numAddedFiles": len(added),
            "numAddedBytes": sum(file.n_bytes for file in added),
        }
        properties = CommitProperties(
            custom_metadata={
                "userMetadata": compaction_metadata(len(replaced), len(added)),
                "operationMetrics": {name: str(value) for name, value in metrics.items()},
                "isBlindAppend": False,
            },
            max_commit_retries=0,
        )
        self._table.create_write_transaction(
            actions, "append", self._table.schema(), partition_by=list(self.partition_by), commit_properties=properties
        )

    def _replacement(self, each: Compacted) -> Iterator[Any]:
        from deltalake.transaction import AddAction, RemoveAction

        n_indexed, now_ms = self._n_indexed, int(time.time() * 1000)
        for replaced in each.replaced:
            yield RemoveAction(
                path=replaced.path,
                data_change=False,
                deletion_timestamp=now_ms,
                size=replaced.n_bytes,
                partition_values=_values(replaced),
            )
        for file in each.files:
            yield AddAction(
                path=file.path,
                size=file.n_bytes,
                partition_values=_values(each.replaced[0]),
                modification_time=now_ms,
                data_change=False,
                stats=statistics(file, each.schema, n_indexed),
            )

    @property
    def _n_indexed(self) -> int:
        return int(self._table.metadata().configuration.get(_INDEXED_PROPERTY, INDEXED_COLUMNS))

    def _actions(self, files: Iterable[WrittenFile], layout: FileLayout) -> Iterable[Any]:
        from deltalake.transaction import AddAction

        n_indexed, now_ms = self._n_indexed, int(time.time() * 1000)
        for file in files:
            values = {
                name: None if value is None else partition_text(value, layout.schema.field(name).type)
                for name, value in zip(layout.partition_by, file.partition, strict=True)
            }
            yield AddAction(
                path=file.path,  # deltalake writes it as a URI
                size=file.n_bytes,
                partition_values=values,
                modification_time=now_ms,
                data_change=True,
                stats=statistics(file, layout.file_schema, n_indexed),
            )


def _values(file: LiveFile) -> dict[str, str | None]:
    """Return a file's partition values, in the form of the log."""
    assert isinstance(file.partition, tuple)
    return dict(file.partition)


def _landed_of(entry: bytes | None) -> Landed | None:
    """Return the position in a log entry; None for the entry of another program."""
    info = [json.loads(line) for line in (entry or b"").splitlines() if line.startswith(b'{"commitInfo"')]
    return next(landed_in(line["commitInfo"] for line in info), None)


def _of_partitions(schema: pa.Schema, names: Iterable[str]) -> str | None:
    for name in names:
        kind = schema.field(name).type
        is_known = any(
            test(kind)
            for test in (
                pa.types.is_string,
                pa.types.is_integer,
                pa.types.is_date,
                pa.types.is_boolean,
                pa.types.is_decimal,
            )
        )
        if not is_known:
            return f"it is partitioned by {name}, which has the type {kind}"
    return None


def _is_plain(field: Mapping[str, Any]) -> bool:
    """Return whether a field of Delta's schema accepts every value of its type, and null."""
    has_rules = any(name.startswith("delta.") or name in _RULES for name in field.get("metadata", {}))
    return field["nullable"] is not False and not has_rules and _is_plain_type(field["type"])


def _is_plain_type(kind: pa.DataType) -> bool:
    if not isinstance(kind, dict):
        return True
    if kind["type"] == "struct":
        return all(map(_is_plain, kind["fields"]))
    if kind["type"] == "array":
        return bool(kind["containsNull"]) and _is_plain_type(kind["elementType"])
    return bool(kind["valueContainsNull"]) and _is_plain_type(kind["keyType"]) and _is_plain_type(kind["valueType"])


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema that allows nulls everywhere except in map keys, as tables made by Spark do."""
    return pa.schema([pa.field(field.name, _nullable_type(field.type)) for field in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable_type(kind.value_type)))
    return kind
