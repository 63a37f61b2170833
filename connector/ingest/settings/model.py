"""The settings of an ingest, as a user writes them in Python or in a TOML file.

Owns the names, the defaults and the meanings. :mod:`~pykafka_wire.ingest.settings.mistakes` checks settings, and
:mod:`~pykafka_wire.ingest.settings.settings_file` reads them. Each field of :class:`Settings` and :class:`Table` declares one setting, and docs/ingest-settings.md is
generated from these fields. A secret is a reference (``env:NAME``, ``file:/path``, ``provider:module:function``) and stays a
reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal

from pykafka_wire.columns import value_formats
from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.ingest.settings.query_group import GROUP_PREFIX
from pykafka_wire.options.option import duration_ms
from pykafka_wire.page.address import PageSettings, host_and_port
from pykafka_wire.places import qualified, unescaped
from pykafka_wire.wire.security.secret_references import resolve

ModeName = Literal["append", "upsert", "cdc"]
MODES: Final = ("append", "upsert", "cdc")
#: Formats of a key. None means the format of the key's subject in the registry, or ``binary`` without a subject.
KEY_FORMATS: Final = tuple(reversed(value_formats.FORMATS))
FORMATS: Final = ("registry", *KEY_FORMATS)
CONFLICTS: Final = ("stop", "divert")
CONNECT_TYPES: Final = ("auto", "true", "false", "variant")
REMOVED_FIELDS: Final = ("landed", "all")
WRITERS: Final = ("auto", "spark")
#: Settings that are fixed when a table is made, unless ``redefine`` names them.
REDEFINABLE: Final = ("mode", "format", "where")
WIDENINGS: Final = ("feature", "rewrite")
COMPACTING: Final = ("auto", "true", "false", "often")
TABLE_FORMATS: Final = ("delta", "iceberg")
#: The default name of the table of rejects.
DEFAULT_REJECTS: Final = "_rejects"
#: The most topics whose tables are remembered.
_MAX_TOPICS: Final = 10_000
#: How an ingest reads its topics, unless its settings say otherwise.
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg])i?b")
#: The placeholder in a table's name that stands for the topic's name.
TOPIC_PLACEHOLDER: Final = "{topic}"
#: The attribute of a log record about a table's state; its value is the table's name. The screen already shows the state, so it can
#: skip the record.
TABLE_STATE: Final = "pykafka_wire_table"

#: Debezium's topics that belong to no table, by the last part of their names, after ``topic.prefix``.
_HELPERS: Final = {"transaction": "transactions' beginnings and ends", "message": "messages of pg_logical_emit_message"}


def _row(
    meaning: str, *, default: str | None = None, choices: tuple[str, ...] = (), experimental: bool = False
) -> dict[str, Any]:
    """Return the metadata of a field: what the field declares besides its type and default.

    Args:
        meaning: the text in docs/ingest-settings.md.
        default: the default in docs/ingest-settings.md, if the field's own default says too little.
        choices: the only allowed values; empty if any value is allowed.
        experimental: whether the setting may change in a minor version (docs/public-api.md).
    """
    return {"meaning": meaning, "default": default, "choices": choices, "is_experimental": experimental}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The settings that decide how a topic's records become typed columns. Tables with equal ReadSettings read a topic alike.

    A reader sees ReadSettings and :class:`ContractSettings`, and no other setting of a table.
    """

    mode: ModeName
    format: str
    schema: str | None
    json_timestamps: bool
    key_format: str | None
    key_schema: str | None
    types: tuple[str, ...]
    connect_types: str
    removed_fields: str
    unavailable_value: str
    options: Mapping[str, str] = field(hash=False)

    @property
    def new_connect_types(self) -> str:
        """Return :attr:`connect_types` for a new table."""
        return self.connect_types if self.connect_types != "auto" else "true" if self.mode == "cdc" else "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractSettings:
    """The settings that decide which typed records a table takes, which columns it selects, and which rows it rejects.

    Attributes:
        merges: the value of :attr:`Table.merges`.
    """

    where: str | None
    types: tuple[str, ...]
    select: tuple[str, ...]
    expect: Mapping[str, str] = field(hash=False)
    merges: bool

    @property
    def has_sql(self) -> bool:
        """Return whether the table's rows need Spark's SQL."""
        return self.where is not None or bool(self.select or self.expect)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An entry of ``[[table]]``: how the topics that match a pattern become tables. Each field is a setting of docs/ingest-settings.md."""

    topic: str = field(metadata=_row("the topic's name, or a regular expression that matches the whole name"))
    name: str | None = field(default=None, metadata=_row("the table's name; `{topic}` stands for the topic's name", default="`{topic}`"))
    where: str | None = field(default=None, metadata=_row("a condition in Spark's SQL: the table takes only records that meet it; see [one topic, several tables](ingest-several-tables.md)", experimental=True))
    types: tuple[str, ...] = field(default=(), metadata=_row("full names of the Avro records or Protobuf messages that the table takes", experimental=True))
    select: tuple[str, ...] = field(default=(), metadata=_row("the value's columns, as expressions of Spark's SQL", experimental=True))
    expect: Mapping[str, str] = field(default_factory=dict, metadata=_row("named conditions in Spark's SQL; a record that does not meet all of them is rejected", experimental=True))
    mode: ModeName = field(default="append", metadata=_row("`append`; `upsert`, by key, where a record without a value deletes the row; or `cdc`, for Debezium's changes", choices=MODES))
    format: str = field(default="registry", metadata=_row("`registry` (the format of the subject's newest schema), `avro`, `protobuf`, `json`, `string` or `binary`", choices=FORMATS))
    schema: str | None = field(default=None, metadata=_row("for `json`: the columns as Spark DDL, which are otherwise inferred; with `cdc`, the columns of the row. For `avro` and `protobuf` without a registry: the text of the schema, which is Avro's JSON or the .proto file; with `cdc` and Avro, the schema of the envelope"))
    json_timestamps: bool = field(default=False, metadata=_row("whether an inferred column is `TIMESTAMP` if all its values are timestamps with a zone, such as `2026-01-31T12:00:00Z`", experimental=True))
    key_format: str | None = field(default=None, metadata=_row("the format of keys, as `format`. With `cdc` and JSON, and for keys in Connect's envelope, the default is `json`", default="the registry's format of the key, else `binary`", choices=KEY_FORMATS))
    key_schema: str | None = field(default=None, metadata=_row("the schema of keys, as `schema`"))
    on_conflict: str = field(default="stop", metadata=_row("what happens if a new schema does not fit the table: `stop` the table, or `divert` the values to the rejects", choices=CONFLICTS))
    connect_types: str = field(default="auto", metadata=_row("whether Avro's values get [the types that Kafka Connect and Debezium name](avro-types.md#types-of-kafka-connect-and-debezium): `true`, `false`, `variant`; `auto` is `true` for new tables of `cdc`. A table keeps its first value, in its property `pykafka-wire.connect-types`", choices=CONNECT_TYPES))
    removed_fields: str = field(default="landed", metadata=_row("which fields become columns if only older versions of an Avro subject have them: `landed`, those that are columns of the table already; or `all`, also when a first start reads old records", choices=REMOVED_FIELDS))
    min_rows: int | str = field(default=0, metadata=_row("a topic waits until it has this many new records; with `auto` [its rate decides](ingest-maintenance.md#few-files) …"))
    max_delay: str = field(default="1m", metadata=_row("… or until the oldest new record has waited this long: a number with ms, s, m, h or d, or `auto`"))
    unavailable_value: str = field(default="__debezium_unavailable_value", metadata=_row("Debezium's placeholder for a value that it did not send; with `upsert` and `cdc` the row keeps its earlier value. Empty: no placeholder"))
    partition_by: tuple[str, ...] = field(default=(), metadata=_row("columns by which a new table is partitioned"))
    cluster_by: tuple[str, ...] = field(default=(), metadata=_row("columns by which a new table is clustered"))
    write: str = field(default="auto", metadata=_row("[who writes the files](ingest.md#who-writes-the-files): `auto` (Spark's tasks, through Arrow, where the table allows it) or `spark` (always Spark's own writer)", choices=WRITERS))
    target_file_size: str = field(default="128mb", metadata=_row("the size of data files: a number with kb, mb or gb", experimental=True))
    compact: str = field(default="auto", metadata=_row("whether the ingest [merges small files](ingest-maintenance.md#compaction) and deletes files that no reader needs any more: `true`, `false`, `auto`, which is `false` only for Delta tables of a catalog, since their platform does it, or `often`, which also merges the ingest's own files every few seconds", choices=COMPACTING, experimental=True))
    keep: str = field(default="7d", metadata=_row("how long readers can still read earlier versions of a table: a number with h or d, at least `24h`", experimental=True))
    redefine: tuple[str, ...] = field(default=(), metadata=_row("which of `mode`, `format` and `where` may differ from the settings that the table was created with; without its name here, a setting that differs stops the table", choices=REDEFINABLE))
    widen: str = field(default="feature", metadata=_row("how a column of a Delta table in a folder gets a wider type: `feature` is Delta's type widening, which [other readers refuse](ingest-query.md#query-what-has-landed); `rewrite` writes all rows of the table again", choices=WIDENINGS, experimental=True))
    properties: Mapping[str, str] = field(default_factory=dict, metadata=_row("Delta's table properties for a new table, such as `delta.targetFileSize`"))
    position: Mapping[str, str] = field(default_factory=dict, metadata=_row("the next offset of each partition, such as `{0 = 1234}`: an existing table holds all records before it. Needed to [adopt a table](ingest-position.md#adopt-a-table) of another program, or a table that lost its position; ignored if the table has a position", experimental=True))
    options: Mapping[str, str] = field(default_factory=dict, metadata=_row("further [options](options.md) of the source, such as `valueMessage` or `failOnDataLoss`; none that chooses which records are read"))
    # fmt: on

    @property
    def is_subset(self) -> bool:
        """Return whether the table takes only a subset of its topic's records, so that other tables may take the rest."""
        return self.where is not None or bool(self.types)

    @property
    def subset_text(self) -> str | None:
        """Return the subset of its topic's records that the table takes, as text; None for all records."""
        parts = [f"types {', '.join(self.types)}"] if self.types else []
        parts += [f"where {self.where}"] if self.where is not None else []
        return ", ".join(parts) or None

    @property
    def merges(self) -> bool:
        """Return whether records are changes, of which the newest of each key is merged; otherwise each record is a row."""
        return self.mode != "append"

    @property
    def reading(self) -> ReadSettings:
        """Return the settings that decide how the topic's records become typed columns."""
        return ReadSettings(
            mode=self.mode, format=self.format, schema=self.schema, json_timestamps=self.json_timestamps,
            key_format=self.key_format, key_schema=self.key_schema,
            types=tuple(self.types), connect_types=self.connect_types, removed_fields=self.removed_fields,
            unavailable_value=self.unavailable_value, options=self.options,
        )  # fmt: skip

    @property
    def contract(self) -> ContractSettings:
        """Return the settings that decide which typed records the table takes, and which rows it rejects."""
        return ContractSettings(
            where=self.where, types=tuple(self.types), select=tuple(self.select), expect=self.expect, merges=self.merges
        )

    @property
    def has_sql(self) -> bool:
        """Return whether the table's rows need Spark's SQL."""
        return self.contract.has_sql

    @property
    def target_bytes(self) -> int:
        """Return :attr:`target_file_size` in bytes."""
        match = _SIZE.fullmatch(self.target_file_size.strip().lower())
        if match is None or not int(match[1]):
            raise IngestError(f"target_file_size is {self.target_file_size!r}: give a number with kb, mb or gb")
        return int(match[1]) * int(1024 ** ("kmg".index(match[2]) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One table of one topic.

    Attributes:
        name: the table's name, without schema or folder.
        table: the table's settings.
    """

    topic: str
    name: str
    table: Table = field(hash=False)

    @property
    def key(self) -> str:
        """Return the table's key, unique in the ingest: the topic, and the table's name where the topic may have several tables."""
        return f"{self.topic}:{self.name}" if self.table.is_subset else self.topic


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an ingest. Each field is a setting of docs/ingest-settings.md, or holds the settings of tables.

    Attributes:
        defaults: the settings of every table that :attr:`tables` does not match.
        tables: the settings of single topics. The first entry that matches a topic applies. If that entry takes a subset of the
            records, every matching entry that takes a subset applies.
    """

    checkpoint: str = field(metadata=_row("folder of Spark's checkpoint; every ingest has its own"))
    name: str | None = field(default=None, metadata=_row("the ingest's name in `pykafka-wire top`, `lag` and metrics; its consumer group is `ingest.NAME-ID`", default="the name of the checkpoint's folder"))
    kafka: Mapping[str, str] = field(metadata=_row("client settings under Kafka's names; `bootstrap.servers` is needed. `isolation.level` is `read_committed` unless set"))
    topics: str = field(metadata=_row("a regular expression that matches the whole name of each topic to land"))
    into: str = field(metadata=_row("the folder of the tables (a path or URI), or `schema`, or `catalog.schema`"))
    registry: str | None = field(default=None, metadata=_row("the schema registry's URL"))
    registry_options: Mapping[str, str] = field(default_factory=dict, metadata=_row("the registry's [options](registry.md), under the names of Confluent's clients"))
    table_format: str = field(default="delta", metadata=_row("`delta`, or [`iceberg`](delta-and-iceberg.md#iceberg)", choices=TABLE_FORMATS, experimental=True))
    catalog: Mapping[str, str] = field(default_factory=dict, metadata=_row("properties of Iceberg's catalog, under pyiceberg's names; they add to pyiceberg's own configuration", experimental=True))
    storage: Mapping[str, str] = field(default_factory=dict, metadata=_row("the address of the [object store](ingest-files.md#in-an-object-store) of Delta tables and its credentials, under deltalake's names; by default both come from the cloud's usual chain", experimental=True))
    prefix: str = field(default="_kafka_", metadata=_row("the start of the names of Kafka's columns in each table"))
    headers: bool = field(default=False, metadata=_row("whether tables have a column with the records' headers"))
    rejects: str = field(default=DEFAULT_REJECTS, metadata=_row("name of the table of rejects: values that could not be read"))
    starting_offsets: str = field(default="earliest", metadata=_row("`earliest` or `latest`: where a first start begins. Topics that appear later are read from their beginning", choices=("earliest", "latest")))
    max_rows: int = field(default=10_000_000, metadata=_row("the maximum number of records in a micro-batch, over all topics"))
    parallel: int = field(default=4, metadata=_row("how many tables are written at the same time"))
    every: str = field(default="10s", metadata=_row("the time between two micro-batches: a number with ms, s, m, h or d"))
    ui: int | str | None = field(default=None, metadata=_row("where [the page](page.md) listens: a port of this machine, 0 for a free one, or `host:port`"))
    ui_token: str | None = field(default=None, metadata=_row("the token that the page asks for, as a reference: `env:NAME` or `file:/path`", default="a new token at each start; no token at 127.0.0.1"))
    ui_values: bool = field(default=False, metadata=_row("whether the page shows values of rejected records"))
    metrics_port: int | str | None = field(default=None, metadata=_row("where [metrics](metrics.md#tables-of-an-ingest) are served to Prometheus: a port or `host:port`, as for `ui`"))
    defaults: Table = field(default_factory=lambda: Table(topic=".*"))
    tables: tuple[Table, ...] = ()
    # fmt: on

    def __post_init__(self) -> None:
        for name in ("checkpoint", "into"):  # Python and Spark would read an escaped path differently
            object.__setattr__(self, name, unescaped(getattr(self, name)))

    def lands(self, topic: str) -> bool:
        """Return whether the ingest lands a topic."""
        return re.fullmatch(self.topics, topic) is not None

    def helpers(self, topics: Iterable[str]) -> dict[str, str]:
        """Return Debezium's own topics, recognised by their names, with a description of their contents. They hold no rows, so they are
        not landed unless a [[table]] names them. Heartbeats are recognised in every mode, other topics only where the mode is cdc.
        """
        every = list(topics)
        known = {table.topic for table in self.tables}
        helpers = {
            topic: "heartbeats"
            for topic in every
            if topic.startswith("__debezium-heartbeat") and not {topic, re.escape(topic)} & known
        }
        changes = {topic for topic in every if self.table_for(topic).mode == "cdc" and topic not in helpers}
        parts = [topic.split(".") for topic in changes]
        prefixes = {".".join(part[:n]) for part in parts for n in range(1, len(part) - 1)}
        for topic in sorted(topic for topic in changes if not {topic, re.escape(topic)} & known):
            prefix, _, last = topic.rpartition(".")
            if topic in prefixes:
                helpers[topic] = "changes of schemas"
            elif prefix in prefixes and last in _HELPERS and topic.count(".") == prefix.count(".") + 1:
                helpers[topic] = _HELPERS[last]
        return helpers

    def table_for(self, topic: str) -> Table:
        """Return the settings of a topic's table, or of its first table."""
        return self.destinations(topic)[0].table

    def name_of(self, topic: str) -> str:
        """Return the name of a topic's table, or of its first table, without schema or folder."""
        return self.destinations(topic)[0].name

    def _matching(self, topic: str) -> list[Table]:
        """Return the entries of :attr:`tables` that match a topic."""
        return [self.tables[place] for place in _places_of(tuple(table.topic for table in self.tables), topic)]

    def destinations(self, topic: str) -> list[Destination]:
        """Return the tables of a topic."""
        matching = self._matching(topic)
        matching = matching or [replace(self.defaults, topic=re.escape(topic))]
        tables = [table for table in matching if table.is_subset] if matching[0].is_subset else matching[:1]
        plain = re.sub(r"[^A-Za-z0-9_]", "_", topic)
        return [
            Destination(topic=topic, name=(table.name or TOPIC_PLACEHOLDER).replace(TOPIC_PLACEHOLDER, plain), table=table) for table in tables
        ]

    def destination(self, key: str) -> Destination:
        """Return the destination with a :attr:`Destination.key`. Raises KeyError if the settings have no such table."""
        topic = key.partition(":")[0]  # no name of a topic has a colon
        return {destination.key: destination for destination in self.destinations(topic)}[key]

    def unused_for(self, topic: str) -> Table | None:
        """Return the first table that would get no records of a topic, since an earlier table takes all of them."""
        matching = self._matching(topic)
        is_whole = bool(matching) and not matching[0].is_subset
        return next((table for table in matching if table.is_subset), None) if is_whole else None

    def place(self, name: str) -> str:
        """Return a table's place for people: its folder, or its name with the schema."""
        return f"{self.into.rstrip('/')}/{name}" if self.is_folder else f"{self.into}.{name}"

    @property
    def schema(self) -> str:
        """Return the schema of the tables in SQL, if :attr:`into` is a schema."""
        return ".".join(f"`{part}`" for part in self.into.split("."))

    @property
    def waits(self) -> dict[str, str]:
        """Return the stream's option ``minOffsetsPerTopic``, if a topic waits for records; otherwise nothing."""
        tables = [*self.tables, self.defaults]
        if not any(table.min_rows for table in tables):
            return {}
        waits = {table.topic: {"offsets": table.min_rows or 1, "delay": table.max_delay} for table in reversed(tables)}
        return {"minOffsetsPerTopic": json.dumps(dict(reversed(waits.items())))}

    @property
    def title(self) -> str:
        """Return the ingest's name: :attr:`name`, else the last part of the checkpoint's path that does not start with ``_``."""
        parts = [part for part in re.split(r"[/:]+", self.checkpoint) if part and not part.startswith("_")]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "_", parts[-1] if parts else "ingest")

    @property
    def group_options(self) -> dict[str, str]:
        """Return the stream's consumer group as an option of the source, unless the settings name a group."""
        is_named = any(name.removeprefix("kafka.").lower() == "group.id" for name in self.kafka)
        return {} if is_named else {"groupIdPrefix": GROUP_PREFIX + self.title}

    @property
    def is_folder(self) -> bool:
        """Return whether the tables are folders, and not tables of a catalog."""
        return "/" in self.into or ":" in self.into

    def in_file_system(self, default: str) -> Settings:
        """Return these settings with absolute URIs. ``default`` is the URI of Spark's default file system (``fs.defaultFS``)."""
        into = qualified(self.into, default) if self.is_folder else self.into
        return replace(self, checkpoint=qualified(self.checkpoint, default), into=into)

    @property
    def every_ms(self) -> int:
        """Return :attr:`every` in milliseconds."""
        if self.every.strip().isdecimal() and int(self.every):
            raise OptionError(f"every is {self.every!r}: give a unit, too, such as {self.every.strip()}s.")
        return duration_ms(self.every, "every")

    def page(self) -> PageSettings | None:
        """Return the page's address and settings; None without a page. Raises OptionError if the page's token is not found."""
        if self.ui is None:
            return None
        return PageSettings.parse(str(self.ui), shows_values=self.ui_values, token=self.ui_token)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Return the host and port of the metrics server; None without one."""
        return None if self.metrics_port is None else host_and_port(str(self.metrics_port), "the metrics server")

    @property
    def kafka_options(self) -> dict[str, str]:
        """Return the options of every read: the brokers and the client settings. Records of aborted transactions are not read, unless
        the settings ask for them.
        """
        return COMMITTED | {
            f"kafka.{name.removeprefix('kafka.')}": value for name, value in self.kafka.items()
        }

    @property
    def storage_options(self) -> dict[str, str]:
        """Return :attr:`storage` with resolved secrets."""
        return {name: resolve(value, f"storage.{name}") for name, value in self.storage.items()}

    @property
    def source_registry_options(self) -> dict[str, str]:
        """Return the registry as options of the source."""
        return {"schema.registry.url": self.registry, **self.registry_options} if self.registry else {}

@lru_cache(maxsize=_MAX_TOPICS)
def _places_of(patterns: tuple[str, ...], topic: str) -> tuple[int, ...]:
    """Return the places of the patterns that match a whole topic name. With a thousand tables, matching takes a millisecond."""
    return tuple(place for place, pattern in enumerate(_compiled(patterns)) if pattern.fullmatch(topic) is not None)


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))
