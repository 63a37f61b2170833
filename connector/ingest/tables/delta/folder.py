"""A Delta table in a folder, to which files are committed by the library deltalake: without the JVM, in some milliseconds.

The commits are those of Spark's way: the position in ``userMetadata``, and the sequence number as a transaction id. Beside it, each
commit has the position as transaction ids, which outlive the table's history. Needs no Spark session. Where the library cannot
commit, or a table asks for more than files with right types, :meth:`DeltaFolder.reason_against` says why, and Spark commits.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pykafka_wire.checkpoints.files import local_folder, stored_uri, table_uri
from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.files.parquet import FileLayout, UnwritableError, WrittenFile, partition_text
from pykafka_wire.ingest.files.tasks import UriFolder, Written
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta import transactions as delta_transactions
from pykafka_wire.ingest.tables.delta.spark_table import rewrite_of
from pykafka_wire.ingest.tables.delta.statistics import INDEXED_COLUMNS, statistics
from pykafka_wire.ingest.tables.files_table import TableChangedError
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed
from pykafka_wire.ingest.tables.topic_table import (
    QUERY_PROPERTY,
    TOPIC_PROPERTY,
    VACUUMED_PROPERTY,
    made_properties,
    owner_properties,
    partition_columns,
    start_position,
)
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: What a table may ask of its writers, by Delta's names: deltalake does it, or an append has nothing to do for it.
_WRITER_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"}
)
#: Writers of older protocols: 4 is change data feed and generated columns, 5 column mapping.
_MAX_WRITER_VERSION: Final = 4
_BY_FEATURES: Final = 7
#: Schemes that deltalake and pyarrow know both.
_SCHEMES: Final = ("s3", "gs", "abfss", "hdfs")
#: So many commits are looked at first: others' are few between two of ours.
_RECENT: Final = 20
_LOG: Final = "_delta_log"
_INDEXED_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"


class _Plan(NamedTuple):
    """The table that files are written for.

    Attributes:
        version: of its newest commit.
        entry: the log's, of that commit, in which a table that was dropped and made anew differs.
        shape: its id, protocol, columns, partitions and properties.
    """

    version: int
    entry: bytes | None
    shape: tuple[object, ...]


class DeltaFolder:
    """One table; not for several threads at once."""

    def __init__(self, folder: str, storage: Mapping[str, str] | None = None) -> None:
        """Take a local path or a URI as ``folder``, and :class:`UriFolder`'s ``storage``."""
        self.identifier = f"delta.`{folder}`"
        self.rewritten_by: str | None = None
        self._uri = table_uri(folder)
        self.folder = UriFolder(uri=folder, storage=storage or {}, mark=_LOG)
        self._plan: _Plan | None = None

    @staticmethod
    def settings_against(settings: Settings, table: Table) -> str | None:
        """Return why files cannot be committed to a table of these settings, found without looking at it; None if they can."""
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
            return f"{scheme}: is a scheme that only Spark knows"
        # PySpark demands pandas of whoever calls mapInArrow.
        missing = next((name for name in ("deltalake", "pandas") if find_spec(name) is None), None)
        return None if missing is None else f"the library {missing} is not installed: pip install 'pykafka-wire[delta]'"

    @cached_property
    def _table(self) -> Any:  # Any: deltalake is optional
        import deltalake

        return deltalake.DeltaTable(self._uri, storage_options=dict(self.folder.storage))

    def unreachable(self) -> str | None:
        """Return why this process cannot reach the folder, or read its table; None if it can. Spark may have other means."""
        shown = without_secrets(self.folder.uri)
        if local_folder(self.folder.uri) is None:
            try:
                filesystem, path = self.folder.open()
                filesystem.get_file_info(path)
            except (OSError, ValueError, OptionError) as error:
                return f"Python cannot reach {shown}: {error}"
        try:
            return self._unreadable() if self.exists else None
        except Exception as error:  # deltalake's are of many classes
            return f"the library deltalake cannot look for a table in {shown}: {without_secrets(str(error))}"

    def _unreadable(self) -> str | None:
        """Return why the library cannot read the table, such as a feature or a type that it does not know; None if it can."""
        try:
            _ = self.arrow_schema
        except Exception as error:  # deltalake's are of many classes
            return f"the library deltalake cannot read the table: {without_secrets(str(error))}"
        return None

    @property
    def exists(self) -> bool:
        import deltalake

        return deltalake.DeltaTable.is_deltatable(self._uri, dict(self.folder.storage))

    def landed(self) -> Landed | None:
        """Return what the newest commit of an ingest holds, or the position that is recorded; None where the table has neither."""
        for limit in (1, _RECENT, None):
            commits = self._table.history(limit)
            self.rewritten_by = rewrite_of(commits)
            if (landed := next(_landed_in(commits), None)) is not None:
                return landed
        return self._recorded()

    def _recorded(self) -> Landed | None:
        properties = self.properties()
        query, topic = (properties.get(name, "") for name in (QUERY_PROPERTY, TOPIC_PROPERTY))
        return delta_transactions.recorded_position(self._table, properties, query, topic)

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the table's newest commit stays when the table's history is cleaned."""
        recorded = self._recorded()
        return recorded is not None and recorded.sequence >= landed.sequence

    def refresh(self) -> None:
        """Look at what was committed since."""
        self._table.update_incremental()

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return pyarrow's schema of the table."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(self._stored_schema)

    @property
    def _stored_schema(self) -> dict[str, Any]:
        """Return Delta's schema, as its log has it."""
        schema: dict[str, Any] = json.loads(self._table.schema().to_json())
        return schema

    def properties(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    def topic_columns(self) -> list[StructField]:
        """Return all columns: rows are added alone, and a user's column is null there."""
        return [*self.schema.fields]

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def reason_against(self) -> str | None:
        """Return why files cannot be committed to the table as it is; None if they can."""
        if (reason := self._unreadable()) is not None:
            return reason
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
        return _of_partitions(self.arrow_schema, self.partition_by)

    def create_of(self, rows: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Make the table without rows, as :meth:`LandedTable.create`, with columns of pyarrow's schema ``rows``."""
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
        """Return how files of rows of pyarrow's ``schema`` are written for the table as it is now."""
        version = int(self._table.version())
        self._plan = _Plan(version, self._entry(version), self._shape())
        return FileLayout(schema=schema, partition_by=self.partition_by, target_bytes=table.target_bytes)

    def _shape(self) -> tuple[object, ...]:
        metadata, protocol = self._table.metadata(), self._table.protocol()
        properties = {name: value for name, value in metadata.configuration.items() if name != VACUUMED_PROPERTY}
        return (
            *(metadata.id, metadata.partition_columns, properties, self._table.schema().to_json()),
            *(protocol.min_reader_version, protocol.min_writer_version),
            *(sorted(features or ()) for features in (protocol.reader_features, protocol.writer_features)),
        )

    def _entry(self, version: int) -> bytes | None:
        """Return what the folder's log has at a version now; None where it has nothing."""
        try:
            filesystem, folder = self.folder.open()
            with filesystem.open_input_stream("/".join(filter(None, (folder, f"{_LOG}/{version:020}.json")))) as entry:
                return bytes(entry.read())
        except (FileNotFoundError, UnwritableError):
            return None

    def append_files(self, written: Written, layout: FileLayout, landed: Landed) -> None:
        """Make files rows of the table, and ``landed`` its position, by one commit.

        Raises:
            AlreadyLandedError: the table has another commit of this number, or its position is not where this one starts.
            TableChangedError: the table is not the one that the layout is for.
            deltalake's errors: the table, read afresh, has no such commit; another one came between, or the store failed.
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
        except Exception as error:  # deltalake's are of many classes; the table tells what has become of the commit
            if not self._has(landed):
                raise
            _log.info("A commit to table %s is there, although it was answered with: %s", self.identifier, error)

    def _check_follows(self, landed: Landed) -> None:
        """Raise AlreadyLandedError if the table has this number, or its position is not where this commit starts."""
        newest, held = delta_transactions.newest_sequence(self._table), self.landed()
        if (newest or 0) >= landed.sequence or (held is not None and not landed.follows(held)):
            raise AlreadyLandedError(self.identifier, is_begun=False)

    def _has(self, landed: Landed) -> bool:
        """Return whether the table, read afresh, has a commit of this name."""
        try:
            self.refresh()
            return any(commit.attempt == landed.attempt for commit in _landed_in(self._table.history(_RECENT)))
        except Exception as error:  # what has failed first is reported
            _log.debug("Table %s cannot be read after a commit that has failed.", self.identifier, exc_info=error)
            return False

    def _check_plan(self) -> None:
        """Check that the table is as it was when files were laid out for it.

        Raises:
            TableChangedError: the table was made anew, or its columns, partitions, properties or protocol were changed, since files
                were laid out for it.
        """
        plan = self._plan
        assert plan is not None, "files have a layout"
        self.refresh()
        # A log that is another table's by now may lack the version, or have more: only the commits of the table itself tell.
        if self._shape() != plan.shape or self._entry(plan.version) != plan.entry:
            raise TableChangedError(
                f"The table {self.identifier} was changed or made anew while files were written for it: its rows are written again."
            )

    def _actions(self, files: Iterable[WrittenFile], layout: FileLayout) -> Iterable[Any]:
        from deltalake.transaction import AddAction

        n_indexed = int(self._table.metadata().configuration.get(_INDEXED_PROPERTY, INDEXED_COLUMNS))
        now_ms = int(time.time() * 1000)
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


def _landed_in(commits: Iterable[Mapping[str, Any]]) -> Iterator[Landed]:
    for commit in commits:
        n_added = (commit.get("operationMetrics") or {}).get("numOutputRows")
        landed = Landed.from_json(commit.get("userMetadata"), None if n_added is None else int(n_added))
        if landed is not None:
            yield landed


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
            return f"its partitions are by {name}, which is {kind}"
    return None


def _is_plain(field: Mapping[str, Any]) -> bool:
    """Return whether a field of Delta's schema takes any value of its type, or none."""
    has_rules = any(name.startswith("delta.") or name == "CURRENT_DEFAULT" for name in field.get("metadata", {}))
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
    """Return a schema that takes nulls everywhere but in the keys of maps, as Spark makes its tables."""
    return pa.schema([pa.field(field.name, _nullable_type(field.type)) for field in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable_type(kind.value_type)))
    return kind
