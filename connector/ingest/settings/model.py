"""The settings of an ingest, as a user writes them in Python or in a TOML file.

Owns the names, the defaults and the checks that need neither brokers nor Spark: :func:`read_settings` reports all mistakes of a file
at once, each with its line. Each field of :class:`Settings` and :class:`Table` declares one setting, and docs/ingest-settings.md is
generated from these fields. A secret is a reference (``env:NAME``, ``file:/path``, ``provider:module:function``) and stays a
reference.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from pykafka_wire.columns import value_formats
from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.ingest.settings.query_group import GROUP_PREFIX
from pykafka_wire.options.names import check_names
from pykafka_wire.options.option import AUTO, duration_ms, either
from pykafka_wire.page.address import PageSettings, host_and_port
from pykafka_wire.places import qualified, unescaped
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings, default_text, unknown_settings
from pykafka_wire.wire.settings.documentation import mark_experimental

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
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
#: Longer than any micro-batch: tasks close files long before the commit, and VACUUM deletes files that no commit names.
_LEAST_KEPT_MS: Final = 24 * 3_600_000
#: The placeholder in a table's name that stands for the topic's name.
_TOPIC: Final = "{topic}"
#: The name of an ingest: the characters that Kafka allows in a consumer group.
_INGEST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
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
    options: Mapping[str, str] = field(default_factory=dict, metadata=_row("further [options](options.md) of the source, such as `valueMessage` or `failOnDataLoss`"))
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
            Destination(topic=topic, name=(table.name or _TOPIC).replace(_TOPIC, plain), table=table) for table in tables
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

    def check(self) -> None:
        """Raise IngestError with all mistakes that can be found without a broker."""
        mistakes = [text for _, text in _mistakes(self)]
        if mistakes:
            raise IngestError(_listed(mistakes, "the settings"))


@lru_cache(maxsize=_MAX_TOPICS)
def _places_of(patterns: tuple[str, ...], topic: str) -> tuple[int, ...]:
    """Return the places of the patterns that match a whole topic name. With a thousand tables, matching takes a millisecond."""
    return tuple(place for place, pattern in enumerate(_compiled(patterns)) if pattern.fullmatch(topic) is not None)


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


def _mistakes(settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield the mistakes of settings: the place in the file, as a path of names, and the text."""
    if not any(name.removeprefix("kafka.") == "bootstrap.servers" for name in settings.kafka):
        yield ("kafka",), 'kafka has no bootstrap.servers: add "bootstrap.servers" = "host:9092" to [kafka]'
    else:
        yield from _client_mistakes(settings.kafka)
    if settings.name is not None and not _INGEST_NAME.fullmatch(settings.name):
        yield ("name",), f"name is {settings.name!r}: use letters, digits, dots, _ and -"
    if settings.registry is not None and not re.match(r"(https?|glue)://.", settings.registry):
        yield ("registry",), f"registry is {settings.registry!r}: give its URL, such as https://registry:8081"
    for name in ("checkpoint", "into", "topics"):
        if not str(getattr(settings, name)).strip():
            yield (name,), f"{name} is empty: {_NEEDED[name]}"
    yield from _pattern_mistakes(("topics",), settings.topics)
    if not settings.is_folder and not all(re.fullmatch(r"[^`.\s]+", part) for part in settings.into.split(".")):
        yield ("into",), f"into is {settings.into!r}: give a folder with a slash in it, or schema, or catalog.schema"
    if settings.is_folder and "`" in settings.into:
        yield ("into",), f"into is {settings.into!r}: SQL cannot name a folder with ` in it, so give another one"
    if settings.is_folder and ":" not in settings.into and not settings.into.startswith("/"):
        yield ("into",), f"into is {settings.into!r}: give the absolute path of the folder, starting with /"
    yield from _choice_mistakes((), settings)
    yield from _iceberg_mistakes(settings)
    for name in ("max_rows", "parallel"):
        if getattr(settings, name) < 1:
            yield (name,), f"{name} is {getattr(settings, name)}: it must be at least 1"
    yield from _server_mistakes(settings)
    if not _NAME.fullmatch(settings.rejects):
        yield ("rejects",), f"rejects is {settings.rejects!r}: use letters, digits and _"
    yield from _table_mistakes(("defaults",), settings.defaults, settings)
    named: dict[str, int] = {settings.rejects.lower(): -1}
    for number, table in enumerate(settings.tables):
        place = ("table", str(number))
        yield from _pattern_mistakes((*place, "topic"), table.topic)
        yield from _table_mistakes(place, table, settings)
        if table.name is not None and _TOPIC not in table.name:
            other = named.setdefault(table.name.lower(), number)
            if other != number:
                owner = "the table of rejects" if other < 0 else f"topic {settings.tables[other].topic}"
                yield (
                    (*place, "name"),
                    f"name {table.name!r} is also the name of {owner}: give each [[table]] a name of its own",
                )
    yield from _subset_mistakes(settings.tables)


def _server_mistakes(settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield mistakes of the micro-batch interval, and of the addresses of the page and the metrics server."""
    checks: list[tuple[str, Callable[[], object]]] = [
        ("every", lambda: settings.every_ms),
        ("ui", lambda: None if settings.ui is None else host_and_port(str(settings.ui), "the page")),
        ("metrics_port", lambda: settings.metrics_address),
    ]
    for name, check in checks:
        try:
            check()
        except OptionError as error:
            yield (name,), error.message.removesuffix(".")
    if settings.ui_token is not None and not settings.ui_token.startswith(("env:", "file:")):
        yield ("ui_token",), "ui_token is the token itself: give env:NAME or file:/path, since others may read the settings"


def _subset_mistakes(tables: Sequence[Table]) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield mistakes of several tables of one topic. Two patterns may match the same topic: only the plan can find that, as it asks
    the brokers."""
    by_topic: dict[str, list[int]] = {}
    for number, table in enumerate(tables):
        by_topic.setdefault(table.topic, []).append(number)
    for topic, numbers in by_topic.items():
        has_parts = any(tables[number].is_subset for number in numbers)
        names = [tables[number].name or _TOPIC for number in numbers]
        for i, number in enumerate(numbers):
            place = ("table", str(number))
            if has_parts and not tables[number].is_subset:
                yield (
                    place,
                    (
                        f'topic {topic} has other tables with where or types, and this one has neither: give it where = "true" if it '
                        "should get all records"
                    ),
                )
            elif has_parts and _TOPIC in names[i] and names[i] in names[:i]:
                yield place, f"topic {topic} has two tables with the same name: give each [[table]] a name of its own"


def _iceberg_mistakes(settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield settings that Iceberg tables do not support."""
    if settings.table_format != "iceberg":
        if settings.catalog:
            yield ("catalog",), "catalog is given, but table_format is not iceberg: set table_format, or remove catalog"
        return
    if settings.is_folder or "." not in settings.into:
        yield ("into",), f"into is {settings.into!r}: with table_format iceberg give catalog.namespace"
    places = [("defaults",), *(("table", str(number)) for number in range(len(settings.tables)))]
    for place, table in zip(places, [settings.defaults, *settings.tables], strict=True):
        if table.cluster_by:
            yield (*place, "cluster_by"), "cluster_by needs Delta: use partition_by, or sort the table with your engine"
        if table.compact == "true":
            yield (*place, "compact"), "compact = true needs Delta: use often, or run rewrite_data_files with your engine"


_NEEDED: Final = {
    "checkpoint": "name a folder for Spark's checkpoint that only this ingest uses",
    "into": "name the folder of the tables, or schema, or catalog.schema",
    "topics": r"give a regular expression of topics, such as 'shop\..*'",
    "kafka": "give the brokers by --bootstrap, or in [kafka]",
}


def _client_mistakes(kafka: Mapping[str, str]) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield the mistakes of single client settings; if there are none, the mistakes of their combination."""
    given = {name.removeprefix("kafka."): (name, value) for name, value in kafka.items()}
    alone = [(name, {"bootstrap.servers": "broker:9092", setting: value}) for setting, (name, value) in given.items()]
    n_mistakes = 0
    for name, options in [*alone, ("", {setting: value for setting, (_, value) in given.items()})]:
        if name == "" and n_mistakes:
            return
        try:
            ClientSettings.from_options(options)
        except SettingsError as error:
            if name and error.setting not in (None, name.removeprefix("kafka.").lower()):
                continue  # the setting needs another setting, which may be given
            n_mistakes += 1
            yield ("kafka", name or error.setting or ""), error.text.rstrip(".")


def _pattern_mistakes(place: tuple[str, ...], pattern: str) -> Iterable[tuple[tuple[str, ...], str]]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield place, f"{pattern!r} is not a regular expression ({error}); write a dot in a topic's name as \\."


def _table_mistakes(place: tuple[str, ...], table: Table, settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    yield from _choice_mistakes(place, table)
    if table.name is not None and not _NAME.fullmatch(table.name.replace(_TOPIC, "_")):
        yield (*place, "name"), f"name is {table.name!r}: use letters, digits and _, and {{topic}} for the topic's name"
    yield from _contract_mistakes(place, table)
    if table.format == "registry" and not settings.registry and place[0] == "table":
        yield (
            (*place, "format"),
            f"topic {table.topic} has no format, and there is no registry: set registry, or format",
        )
    if table.format == "registry" and table.schema is not None:
        yield (*place, "schema"), "schema is given without a format: set format to json, avro or protobuf"
    if table.format in value_formats.NEED_SCHEMA and not settings.registry and table.schema is None:
        yield (*place, "schema"), f"format is {table.format} without a registry: set registry, or schema"
    for name, column_format, text in (
        ("schema", table.format, table.schema), ("key_schema", table.key_format, table.key_schema)
    ):  # fmt: skip
        if column_format == "json" and text is not None:
            yield from _ddl_mistakes((*place, name), text)
    for name in table.options:
        try:
            check_names([name], "batch")
        except OptionError as error:
            yield (*place, "options"), error.message.removesuffix(".")
    if table.mode == "cdc" and table.format in ("string", "binary"):
        yield (
            (*place, "format"),
            f"mode is cdc and format {table.format}: Debezium's envelopes are avro, json or protobuf",
        )
    if table.partition_by and table.cluster_by:
        yield (*place, "cluster_by"), "partition_by and cluster_by are both set, but Delta supports only one: remove one of them"
    if table.min_rows != AUTO and (isinstance(table.min_rows, str) or table.min_rows < 0):
        yield (*place, "min_rows"), f"min_rows is {table.min_rows}: it must be 0 or more, or auto"
    for name, duration, least_ms in (("max_delay", table.max_delay, 0), ("keep", table.keep, _LEAST_KEPT_MS)):
        try:
            if (name, duration) != ("max_delay", AUTO) and duration_ms(duration, name) < least_ms:
                yield (
                    (*place, name),
                    f"{name} is {duration}: give 24h or more, since files are written before their commits",
                )
        except OptionError as error:
            yield (*place, name), error.message.removesuffix(".")
    try:
        _ = table.target_bytes
    except IngestError as error:
        yield (*place, "target_file_size"), error.message


def _choice_mistakes(place: tuple[str, ...], settings: Settings | Table) -> Iterable[tuple[tuple[str, ...], str]]:
    for setting in fields(settings):
        value, choices = getattr(settings, setting.name), setting.metadata.get("choices")
        if not choices or (value is None and setting.default is None):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if item not in choices:
                yield (*place, setting.name), f"{setting.name} is {item!r}: use {either(choices)}"


def _contract_mistakes(place: tuple[str, ...], table: Table) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield the mistakes of the settings about rows (``where``, ``select``, ``expect``, ``types``) that can be found without Spark."""
    if place[0] == "defaults":
        for name in _OF_ONE_TABLE:
            if getattr(table, name):
                yield (*place, name), f"{name} belongs to a single table: set it in a [[table]]"
        return
    if not all(str(text).isdecimal() for place_and_offset in table.position.items() for text in place_and_offset):
        yield (*place, "position"), "position is the next offset of each partition, such as position = {0 = 1234, 1 = 1200}"
    texts = [("where", "where", table.where), *(("select", "select", text) for text in table.select)]
    texts += [("expect", f"expect.{name}", condition) for name, condition in table.expect.items()]
    for name, title, text in texts:
        if text is None:
            continue
        if mistake := _sql_mistake(text):
            yield (*place, name), f"{title} is {text!r}: {mistake}"
        if name != "select" and (call := _CHANGING.search(_without_texts(text))):
            yield (
                (*place, name),
                (
                    f"{title} calls {call[0].rstrip('( ')}, which returns another result each time, so the table's contents would "
                    "be random: use the record's own columns"
                ),
            )
    if table.has_sql and table.format == "json" and table.schema is None:
        yield (
            (*place, "schema"),
            "where, select and expect need the columns' types: declare the JSON's columns by schema",
        )
    if table.types and table.format not in ("registry", "avro", "protobuf"):
        yield (*place, "types"), f"types needs format avro or protobuf, but format is {table.format}: use where"
    if table.types and table.mode != "append":
        yield (
            (*place, "types"),
            (
                f"with mode {table.mode}, types would keep the rows of keys whose newest record has another type: use where, "
                "which deletes these rows"
            ),
        )


#: Settings of a single table, not allowed in ``[defaults]``.
_OF_ONE_TABLE: Final = ("where", "types", "select", "expect", "position")
#: The settings that only a [[table]] has.
_NOT_OF_DEFAULTS: Final = ("topic", "name", *_OF_ONE_TABLE)
#: The settings that are TOML tables of their own.
_SECTIONS: Final = ("kafka", "registry_options", "catalog", "storage")
#: Functions of Spark's SQL that return a different result each time.
_CHANGING: Final = re.compile(
    r"\b(?:(?:rand|randn|random|uniform|randstr|uuid|shuffle|now|localtimestamp|monotonically_increasing_id|spark_partition_id)\s*\("
    r"|(?:current_timestamp|current_date|current_time|curdate)\b)",
    re.IGNORECASE,
)
_CLOSING: Final = {")": "(", "]": "["}


def _sql_mistake(text: str) -> str | None:
    """Return the mistake in an SQL expression that shows in its quotes and brackets, or None; Spark checks the rest."""
    if not text.strip():
        return "it is empty"
    bare = _without_texts(text)
    if quote := re.search(r"['\"`]", bare):
        return f"a quote {quote[0]} is not closed"
    if ";" in bare:
        return "it is one expression, without a ;"
    opened: list[str] = []
    for bracket in re.findall(r"[()\[\]]", bare):
        if bracket not in _CLOSING:
            opened.append(bracket)
        elif not opened or opened.pop() != _CLOSING[bracket]:
            return f"a {bracket} closes nothing"
    return f"a {opened[-1]} is not closed" if opened else None


def _without_texts(sql: str) -> str:
    """Return an SQL expression without string literals and quoted names."""
    return re.sub(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""", " ", sql)


def _ddl_mistakes(place: tuple[str, ...], text: str) -> Iterable[tuple[tuple[str, ...], str]]:
    from pykafka_wire.values.ddl import DdlError, arrow_type  # loads pyarrow

    try:
        arrow_type(text)
    except DdlError as error:
        yield place, f"{place[-1]} is {text!r}: {error}"


def read_settings(path: Path, given: Mapping[str, Any] | None = None) -> Settings:
    """Read settings from a TOML file.

    Args:
        given: settings from the command line, which override the file.

    Raises:
        IngestError: the file cannot be read, or has mistakes; the error lists every mistake with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IngestError(f"the settings {path} cannot be read ({error}): name a TOML file.") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found]
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise IngestError(f"the settings {path} are not TOML: {error}{_toml_hint(text, str(error))}.") from error
    mistakes, settings = _from_document(
        document | {name: _merged(value, document.get(name)) for name, value in (given or {}).items()}
    )
    if settings is None:
        lines = _lines(text)
        with_lines = sorted((_line(lines, place), text) for place, text in mistakes)
        raise IngestError(_listed([f"line {line}: {text}" for line, text in with_lines], str(path)))
    return settings


def _toml_hint(text: str, error: str) -> str:
    """Return a hint if a backslash is the likely mistake: TOML reads a backslash in double quotes as an escape."""
    number = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(number[1]) - 1] if number is not None else ""
    if not re.search(r"\"[^\"]*\\[^\"]*", line):
        return ""
    return r". In double quotes a backslash is an escape: write regular expressions in single quotes, such as 'shop\..*'"


def _merged(given: Any, lower: Any) -> Any:  # Any: values of TOML
    return {**lower, **given} if isinstance(given, dict) and isinstance(lower, dict) else given


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Return settings from a command line or a program. Raises IngestError with all mistakes."""
    mistakes, settings = _from_document(given)
    if settings is None:
        raise IngestError(_listed([text for _, text in mistakes], "the settings"))
    return settings


def _listed(mistakes: list[str], where: str) -> str:
    return f"{where}: {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}\n" + "\n".join(
        f"  {mistake}" for mistake in mistakes
    )


def _from_document(document: Mapping[str, Any]) -> tuple[list[tuple[tuple[str, ...], str]], Settings | None]:
    """Return settings from a document; or None, and the mistakes, each with its place."""
    mistakes: list[tuple[tuple[str, ...], str]] = []
    given = dict(document)
    arrays = given.pop("table", [])
    defaults = given.pop("defaults", {})
    values = _checked_fields((), given, Settings, mistakes, besides=("table", "defaults", "tables"))
    if not isinstance(arrays, list) or not all(isinstance(array, dict) for array in arrays):
        mistakes.append((("table",), "tables must be written as [[table]], one for each topic"))
        arrays = []
    if not isinstance(defaults, dict):
        mistakes.append((("defaults",), "wrong type: defaults must be a table, written as [defaults]"))
        defaults = {}
    base = {"topic": ".*"} | _checked_fields(
        ("defaults",), defaults, Table, mistakes, besides=_NOT_OF_DEFAULTS
    )
    tables = []
    for number, array in enumerate(arrays):
        if "topic" not in array:
            mistakes.append((("table", str(number)), "a [[table]] has no topic: name it, or give a regular expression"))
        tables.append(base | _checked_fields(("table", str(number)), array, Table, mistakes))
    mistakes += [((name,), f"{name} is missing: {text}") for name, text in _NEEDED.items() if name not in document]
    # Substitutes for missing or invalid settings: they keep all other checks running.
    stand_ins = {name: text for name, text in _STAND_INS.items() if name in document or name in _NEEDED}
    settings = Settings(**(stand_ins | values), defaults=Table(**base), tables=tuple(Table(**table) for table in tables))
    known = {place for place, _ in mistakes}
    for place, text in _mistakes(settings):
        is_inherited = (
            place[0] == "table" and place[-1] not in arrays[int(place[1])] and ("defaults", place[-1]) in known
        )
        if place not in known and not is_inherited:
            mistakes.append((place, text))
            known |= {place} if place[0] == "defaults" else set()
    return mistakes, None if mistakes else settings


#: Valid values for settings that are missing or invalid.
_STAND_INS: Final[dict[str, Any]] = {
    "checkpoint": "/", "into": "/", "topics": ".*", "kafka": {"bootstrap.servers": "broker:9092"}, "registry": "http://registry",
}  # fmt: skip
_TEXT: Final = (str, "text")
#: By the type of a field: the type in TOML, and its name in an error.
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "str": _TEXT, "str | None": _TEXT, "ModeName": _TEXT, "int": (int, "a whole number"), "bool": (bool, "true or false"),
    "int | str": ((int, str), "a whole number or a text"), "int | str | None": ((int, str), "a whole number or a text"),
    "tuple[str, ...]": (list, "a list of texts"), "Mapping[str, str]": (dict, "a table"),
}  # fmt: skip


def _checked_fields(
    place: tuple[str, ...],
    given: Mapping[str, Any],
    settings_class: type,
    mistakes: list[tuple[tuple[str, ...], str]],
    besides: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the known settings of one TOML table that have the right type; append mistakes."""
    known = {setting.name: str(setting.type) for setting in fields(settings_class) if setting.name not in besides}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            mistakes.append(((*place, name), _unknown_text(place, name, value, known)))
            continue
        wanted, shown = _TYPES[known[name]]
        if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
            mistakes.append(((*place, name), f"wrong type: {name} must be {shown}"))
        elif wanted is list:
            values[name] = tuple(map(str, value))
        elif wanted is dict:
            values[name] = {str(key): _text(item) for key, item in _flat(value)}
        else:
            values[name] = value
    return values


def _unknown_text(place: tuple[str, ...], name: str, value: Any, known: Iterable[str]) -> str:
    """Return what is wrong with a name that is no setting at its place.

    A setting of another place is sent there, even if a setting of this place has a similar name.

    Args:
        known: the settings of this place.
    """
    import difflib

    of_tables = {setting.name for setting in fields(Table)}
    if not place and name in of_tables:
        where = "a [[table]]" if name in _NOT_OF_DEFAULTS else "[defaults] or a [[table]]"
        return f"{name} is a setting of a table: write it in {where}"
    if place and name in of_tables:
        return f"{name} is a setting of a single table: write it in a [[table]]"
    if place and name in {setting.name for setting in fields(Settings)}:
        where = f"write it as [{name}]" if name in _SECTIONS else "write it above the first [section]"
        return f"{name} is a setting of the whole ingest: {where}"
    if not place and (client := _client_setting(name, value)):
        return f"{client} is a setting of Kafka's clients: write it in [kafka]"
    shown = {each: f"[{each}]" if each in _SECTIONS and not place else each for each in known}
    if not place:
        shown |= {"defaults": "[defaults]", "table": "[[table]]"}
    is_section = isinstance(value, Mapping) or (isinstance(value, list) and value and isinstance(value[0], Mapping))
    choices = [each for each, text in shown.items() if text != each or not is_section]
    near = difflib.get_close_matches(name, choices, 1)
    hint = f"did you mean {shown[near[0]]}?" if near else f"known are {', '.join(shown[each] for each in sorted(shown))}"
    return f"{name} is unknown: {hint}"


def _client_setting(name: str, value: Any) -> str:
    """Return the name of the Kafka setting that was written outside of ``[kafka]``; empty if the name is none."""
    names = [name, *(each for each, _ in _flat(value, f"{name}."))] if isinstance(value, Mapping) else [name]
    clients = (each for each in names if "." in each and not unknown_settings([each.removeprefix("kafka.")]))
    return next(clients, "")


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield nested settings with joined names: TOML reads ``bootstrap.servers = "…"`` without quotes as a nested table."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each name in a TOML file, by its place. The place of a [[table]] includes the table's number."""
    lines: dict[tuple[str, ...], int] = {(): 1}
    place: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.\"-]+)\s*\]", line):
            name = header[2].strip('"')
            place = tuple(name.split("."))
            if header[1] == "[[":
                numbers[name] = numbers.get(name, -1) + 1
                lines.setdefault((name,), number)
                place = (name, str(numbers[name]))
            elif place[0] in numbers:
                place = (place[0], str(numbers[place[0]]), *place[1:])
            lines.setdefault(place, number)
        elif key := re.match(r"\s*(\"[^\"]+\"|'[^']+'|[\w-]+)\s*[.=]", line):
            lines.setdefault((*place, key[1].strip("\"'")), number)
    return lines


def _line(lines: Mapping[tuple[str, ...], int], place: tuple[str, ...]) -> int:
    while place not in lines:
        place = place[:-1]
    return lines[place]


def settings_table(of_tables: bool) -> str:
    """Return the table of an ingest's settings, or of its tables' settings, as Markdown for docs/ingest-settings.md."""
    lines = ["| name | default | meaning |", "|---|---|---|"]
    for setting in fields(Table if of_tables else Settings):
        if row := setting.metadata:
            meaning = mark_experimental(row["meaning"], row["is_experimental"])
            lines.append(f"| `{setting.name}` | {row['default'] or _default_cell(setting)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _default_cell(setting: Field[Any]) -> str:
    if setting.default is MISSING:
        return "required" if setting.default_factory is MISSING else "none"
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        return f"{setting.default:,}"
    text = default_text(setting.default)
    return text if text == "none" else f"`{text}`"
