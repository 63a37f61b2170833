"""What an ingest does, as its user writes it: in Python, or in one TOML file.

Owns the names, the defaults and the checks that need neither brokers nor Spark: :func:`read_settings` finds all mistakes of a file
at once, each with its line. A secret is given by reference (``env:NAME``, ``file:/path``, ``provider:module:function``) and stays
one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.options.names import check_names
from pykafka_wire.options.option import duration_ms
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings

Mode = Literal["append", "upsert", "cdc"]
MODES: Final = ("append", "upsert", "cdc")
FORMATS: Final = ("registry", "avro", "protobuf", "json", "string", "binary")
#: Formats of a key; None means the registry's subject of the key, and ``binary`` where it has none.
KEY_FORMATS: Final = ("avro", "protobuf", "json", "string", "binary")
CONFLICTS: Final = ("stop", "divert")
CONNECT_TYPES: Final = ("auto", "true", "false", "variant")
WRITERS: Final = ("spark", "tasks")
TABLE_FORMATS: Final = ("delta", "iceberg")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg])i?b")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
#: Of an ingest: what Kafka allows in the name of a group.
_INGEST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
#: The consumer group of an ingest's query is this, with the ingest's name and the query's id behind it.
GROUP_PREFIX: Final = "ingest."


#: Debezium's topics beside those of tables, by their names behind its ``topic.prefix``.
_HELPERS: Final = {"transaction": "transactions' beginnings and ends", "message": "messages of pg_logical_emit_message"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How the topics of a pattern become tables.

    Attributes:
        topic: a topic's name, or a regular expression that matches the whole name.
        name: the table's name; None makes it of the topic's name. Only for a pattern that one topic matches.
        mode: ``append``; ``upsert`` by key, where a record without a value deletes; ``cdc`` for Debezium's envelopes.
        format: of the value: ``registry`` takes the format of the subject's newest schema.
        schema: for ``json`` the columns as Spark DDL, None infers them; for ``avro`` and ``protobuf`` without a registry its text.
        key_format, key_schema: the same for the key; None is the registry's subject of the key, else ``binary``.
        on_conflict: what a schema that the table cannot take does: ``stop`` this table, or ``divert`` the values to the rejects.
        connect_types: whether Avro's types are those that Kafka Connect and Debezium name (the source's option ``connectTypes``):
            ``true``, ``false``, ``variant``, or ``auto``: of new tables of ``cdc``.
        min_rows: the topic waits until it has so many new records …
        max_delay: … or until its oldest one has waited so long: a number with ms, s, m, h or d.
        unavailable_value: Debezium's ``unavailable.value.placeholder``: a column with it keeps the value that its row has, in
            ``upsert`` and ``cdc``; empty for none.
        partition_by, cluster_by: columns of a table that is created.
        optimize_every: run ``OPTIMIZE`` after so many micro-batches with rows; 0 never.
        write: who writes the table's files: ``spark``, or this package's own ``tasks`` wherever the table allows it.
        target_file_size: of the files that tasks write: a number with kb, mb or gb.
        keep: for how long snapshots of an Iceberg table are kept: a number with s, m, h or d.
        properties: table properties of Delta, such as ``delta.targetFileSize``, of a table that is created.
        options: further options of the source, such as ``valueMessage`` or ``failOnDataLoss``.
    """

    topic: str
    name: str | None = None
    mode: Mode = "append"
    format: str = "registry"
    schema: str | None = None
    key_format: str | None = None
    key_schema: str | None = None
    on_conflict: str = "stop"
    connect_types: str = "auto"
    min_rows: int = 0
    max_delay: str = "1m"
    unavailable_value: str = "__debezium_unavailable_value"
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    optimize_every: int = 0
    write: str = "spark"
    target_file_size: str = "128mb"
    keep: str = "7d"
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.topic, topic) is not None

    @property
    def target_bytes(self) -> int:
        """:attr:`target_file_size` in bytes."""
        found = _SIZE.fullmatch(self.target_file_size.strip().lower())
        if found is None or not int(found[1]):
            raise IngestError(f"target_file_size is {self.target_file_size!r}: give a number with kb, mb or gb")
        return int(found[1]) * int(1024 ** ("kmg".index(found[2]) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of an ingest.

    Attributes:
        checkpoint: the folder of Spark's checkpoint; every ingest has its own.
        name: of the ingest, in ``top``, ``lag`` and metrics; by default that of the checkpoint's folder, see :attr:`title`.
        kafka: client settings under Kafka's names, ``bootstrap.servers`` among them.
        topics: a regular expression that matches the whole name of each topic to land.
        into: the folder of the tables (a path or URI), or ``schema`` or ``catalog.schema``.
        registry: the schema registry's URL; ``registry_options`` are its further options, under Confluent's names.
        table_format: ``delta`` or ``iceberg``.
        catalog: properties of an Iceberg catalog under pyiceberg's names, beside what pyiceberg's own configuration has of it.
        prefix: before the names of Kafka's columns in each table.
        headers: whether tables have the record's headers.
        rejects: name of the table of values that could not be read.
        starting_offsets: ``earliest`` or ``latest``, of the first start; topics that appear later are read from their beginning.
        max_rows: the most records of a micro-batch, over all topics.
        parallel: how many tables are written side by side.
        defaults: what tables have that :attr:`tables` does not name.
        tables: settings of single topics; the first one that matches counts.
    """

    checkpoint: str
    kafka: Mapping[str, str]
    topics: str
    into: str
    name: str | None = None
    registry: str | None = None
    registry_options: Mapping[str, str] = field(default_factory=dict)
    table_format: str = "delta"
    catalog: Mapping[str, str] = field(default_factory=dict)
    prefix: str = "_kafka_"
    headers: bool = False
    rejects: str = "_rejects"
    starting_offsets: str = "earliest"
    max_rows: int = 10_000_000
    parallel: int = 4
    defaults: Table = field(default_factory=lambda: Table(topic=".*"))
    tables: tuple[Table, ...] = ()

    def lands(self, topic: str) -> bool:
        """Whether a topic is one of those to land."""
        return re.fullmatch(self.topics, topic) is not None

    def helpers(self, topics: Iterable[str]) -> dict[str, str]:
        """Debezium's topics beside those of tables, and what they have: no rows of a table, unless a [[table]] names them."""
        changes = {topic for topic in topics if self.table_for(topic).mode == "cdc"}
        parts = [topic.split(".") for topic in changes]
        prefixes = {".".join(each[:n]) for each in parts for n in range(1, len(each) - 1)}
        known = {each.topic for each in self.tables}
        found = {}
        for topic in sorted(topic for topic in changes if not {topic, re.escape(topic)} & known):
            prefix, _, last = topic.rpartition(".")
            if topic.startswith("__debezium-heartbeat"):
                found[topic] = "heartbeats"
            elif topic in prefixes:
                found[topic] = "changes of schemas"
            elif prefix in prefixes and last in _HELPERS and topic.count(".") == prefix.count(".") + 1:
                found[topic] = _HELPERS[last]
        return found

    def table_for(self, topic: str) -> Table:
        """The settings of a topic's table."""
        return next(
            (each for each in self.tables if each.matches(topic)), replace(self.defaults, topic=re.escape(topic))
        )

    def name_of(self, topic: str) -> str:
        """The name of a topic's table, without its schema or folder."""
        return self.table_for(topic).name or re.sub(r"[^A-Za-z0-9_]", "_", topic)

    def place(self, name: str) -> str:
        """A table by its name, for people: its folder, or its name with the schema."""
        return f"{self.into.rstrip('/')}/{name}" if self.is_folder else f"{self.into}.{name}"

    def identifier(self, name: str) -> str:
        """A table by its name, as SQL takes it."""
        return f"delta.`{self.place(name)}`" if self.is_folder else f"{self.schema}.`{name}`"

    @property
    def schema(self) -> str:
        """The schema of the tables, as SQL takes it, where :attr:`into` is one."""
        return ".".join(f"`{part}`" for part in self.into.split("."))

    @property
    def waits(self) -> dict[str, str]:
        """The option of the stream by which topics wait, where one does."""
        tables = [*self.tables, self.defaults]
        if not any(each.min_rows for each in tables):
            return {}
        waits = {each.topic: {"offsets": max(1, each.min_rows), "delay": each.max_delay} for each in reversed(tables)}
        return {"minOffsetsPerTopic": json.dumps(dict(reversed(waits.items())))}

    @property
    def title(self) -> str:
        """The ingest's name: the one that was given, else the last part of the checkpoint's place that is no ``_checkpoint``."""
        parts = [part for part in re.split(r"[/:]+", self.checkpoint) if part and not part.startswith("_")]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "_", parts[-1] if parts else "ingest")

    @property
    def group_options(self) -> dict[str, str]:
        """The consumer group of the stream, as an option of the source, unless the settings name one."""
        is_named = any(name.removeprefix("kafka.").lower() == "group.id" for name in self.kafka)
        return {} if is_named else {"groupIdPrefix": GROUP_PREFIX + self.title}

    @property
    def is_folder(self) -> bool:
        """Whether the tables are folders, and not tables of a catalog."""
        return "/" in self.into or ":" in self.into

    @property
    def kafka_options(self) -> dict[str, str]:
        """What every read of the source needs: the brokers, and the registry."""
        return {f"kafka.{name.removeprefix('kafka.')}": value for name, value in self.kafka.items()}

    @property
    def source_registry_options(self) -> dict[str, str]:
        """The registry, as options of the source."""
        return {"schema.registry.url": self.registry, **self.registry_options} if self.registry else {}

    def check(self) -> None:
        """Raises IngestError with all mistakes that show without a broker."""
        mistakes = [text for _, text in _mistakes(self)]
        if mistakes:
            raise IngestError(_listed(mistakes, "the settings"))


def _mistakes(settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    """What is wrong with settings: where, as names of the file, and the text."""
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
        yield ("into",), f"into is {settings.into!r}: give the whole path of the folder, from / on"
    if settings.starting_offsets not in ("earliest", "latest"):
        yield ("starting_offsets",), f"starting_offsets is {settings.starting_offsets!r}: use earliest or latest"
    yield from _iceberg_mistakes(settings)
    for name in ("max_rows", "parallel"):
        if getattr(settings, name) < 1:
            yield (name,), f"{name} is {getattr(settings, name)}: it must be at least 1"
    if not _NAME.fullmatch(settings.rejects):
        yield ("rejects",), f"rejects is {settings.rejects!r}: use letters, digits and _"
    yield from _table_mistakes(("defaults",), settings.defaults, settings)
    named: dict[str, int] = {settings.rejects.lower(): -1}
    for number, table in enumerate(settings.tables):
        place = ("table", str(number))
        yield from _pattern_mistakes((*place, "topic"), table.topic)
        yield from _table_mistakes(place, table, settings)
        if table.name is not None:
            other = named.setdefault(table.name.lower(), number)
            if other != number:
                owner = "the table of rejects" if other < 0 else f"topic {settings.tables[other].topic}"
                yield (*place, "name"), f"name {table.name!r} is that of {owner}, too: two topics cannot share a table"


def _iceberg_mistakes(settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    """What is wrong with the format of the tables, and what Iceberg's cannot have."""
    if settings.table_format not in TABLE_FORMATS:
        yield ("table_format",), f"table_format is {settings.table_format!r}: use {', '.join(TABLE_FORMATS)}"
    if settings.table_format != "iceberg":
        if settings.catalog:
            yield ("catalog",), "catalog is given, and table_format is not iceberg: set it, or leave the catalog out"
        return
    if settings.is_folder or "." not in settings.into:
        yield ("into",), f"into is {settings.into!r}: with table_format iceberg give catalog.namespace"
    places = [("defaults",), *(("table", str(number)) for number in range(len(settings.tables)))]
    for place, table in zip(places, [settings.defaults, *settings.tables], strict=True):
        if table.mode != "append":
            yield (*place, "mode"), f"mode is {table.mode}, which needs MERGE: Iceberg tables take append alone"
        if table.cluster_by:
            yield (*place, "cluster_by"), "cluster_by is Delta's: give partition_by, or sort by your engine"
        if table.optimize_every:
            yield (*place, "optimize_every"), "optimize_every is Delta's: let your engine run rewrite_data_files"


_NEEDED: Final = {
    "checkpoint": "name a folder for Spark's checkpoint that only this ingest uses",
    "into": "name the folder of the tables, or schema, or catalog.schema",
    "topics": r"give a regular expression of topics, such as 'shop\..*'",
    "kafka": "give the brokers by --bootstrap, or in [kafka]",
}


def _client_mistakes(kafka: Mapping[str, str]) -> Iterable[tuple[tuple[str, ...], str]]:
    """What is wrong with each client setting alone, or, if nothing is, with all of them together."""
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
                continue  # it needs another one, which may be given
            n_mistakes += 1
            yield ("kafka", name or error.setting or ""), error.text.rstrip(".")


def _pattern_mistakes(place: tuple[str, ...], pattern: str) -> Iterable[tuple[tuple[str, ...], str]]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield place, f"{pattern!r} is no regular expression ({error}); a dot in a topic's name is \\."


def _table_mistakes(place: tuple[str, ...], table: Table, settings: Settings) -> Iterable[tuple[tuple[str, ...], str]]:
    for name, value, allowed in (
        ("mode", table.mode, MODES),
        ("format", table.format, FORMATS),
        ("key_format", table.key_format, (None, *KEY_FORMATS)),
        ("on_conflict", table.on_conflict, CONFLICTS),
        ("connect_types", table.connect_types, CONNECT_TYPES),
        ("write", table.write, WRITERS),
    ):
        if value not in allowed:
            yield (*place, name), f"{name} is {value!r}: use {', '.join(each for each in allowed if each)}"
    if table.name is not None and not _NAME.fullmatch(table.name):
        yield (*place, "name"), f"name is {table.name!r}: use letters, digits and _"
    if table.format == "registry" and not settings.registry and place[0] == "table":
        yield (
            (*place, "format"),
            f"topic {table.topic} has no format, and there is no registry: set registry, or format",
        )
    if table.format == "registry" and table.schema is not None:
        yield (*place, "schema"), "schema is given without a format: set format to json, avro or protobuf"
    if table.format in ("avro", "protobuf") and not settings.registry and table.schema is None:
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
        yield (*place, "cluster_by"), "partition_by and cluster_by are both set: Delta takes one of them"
    for name, number in (("min_rows", table.min_rows), ("optimize_every", table.optimize_every)):
        if number < 0:
            yield (*place, name), f"{name} is {number}: it must be 0 or more"
    for name, duration in (("max_delay", table.max_delay), ("keep", table.keep)):
        try:
            duration_ms(duration, name)
        except OptionError as error:
            yield (*place, name), error.message.removesuffix(".")
    try:
        _ = table.target_bytes
    except IngestError as error:
        yield (*place, "target_file_size"), error.message


def _ddl_mistakes(place: tuple[str, ...], text: str) -> Iterable[tuple[tuple[str, ...], str]]:
    from pykafka_wire.values.ddl import DdlError, arrow_type  # loads pyarrow

    try:
        arrow_type(text)
    except DdlError as error:
        yield place, f"{place[-1]} is {text!r}: {error}"


def read_settings(path: Path, given: Mapping[str, Any] | None = None) -> Settings:
    """The settings in a TOML file.

    Args:
        given: what the command line gives, in place of what the file has.

    Raises:
        IngestError: the file cannot be read, or has mistakes: all of them, each with its line.
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
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise IngestError(f"the settings {path} are not TOML: {error}.") from error
    mistakes, settings = _from_document(
        found | {name: _over(value, found.get(name)) for name, value in (given or {}).items()}
    )
    if settings is None:
        lines = _lines(text)
        with_lines = sorted((_line(lines, place), text) for place, text in mistakes)
        raise IngestError(_listed([f"line {line}: {text}" for line, text in with_lines], str(path)))
    return settings


def _over(given: Any, found: Any) -> Any:  # Any: values of TOML
    return {**found, **given} if isinstance(given, dict) and isinstance(found, dict) else given


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Settings of what a command line or a program gives. Raises IngestError with all mistakes."""
    mistakes, settings = _from_document(given)
    if settings is None:
        raise IngestError(_listed([text for _, text in mistakes], "the settings"))
    return settings


def _listed(mistakes: list[str], where: str) -> str:
    return f"{where}: {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}\n" + "\n".join(
        f"  {each}" for each in mistakes
    )


def _from_document(found: Mapping[str, Any]) -> tuple[list[tuple[tuple[str, ...], str]], Settings | None]:
    """Settings from a document, or its mistakes, each with its place."""
    mistakes: list[tuple[tuple[str, ...], str]] = []
    given = dict(found)
    arrays = given.pop("table", [])
    defaults = given.pop("defaults", {})
    values = _checked_fields((), given, Settings, mistakes, besides=("table", "defaults", "tables"))
    if not isinstance(arrays, list) or not all(isinstance(each, dict) for each in arrays):
        mistakes.append((("table",), "tables are written as [[table]], one for each topic"))
        arrays = []
    if not isinstance(defaults, dict):
        mistakes.append((("defaults",), "wrong type: defaults must be a table, written as [defaults]"))
        defaults = {}
    base = {"topic": ".*"} | _checked_fields(("defaults",), defaults, Table, mistakes, besides=("topic", "name"))
    tables = []
    for number, each in enumerate(arrays):
        if "topic" not in each:
            mistakes.append((("table", str(number)), "a [[table]] has no topic: name it, or give a regular expression"))
        tables.append(base | _checked_fields(("table", str(number)), each, Table, mistakes))
    mistakes += [((name,), f"{name} is missing: {text}") for name, text in _NEEDED.items() if name not in found]
    # What is missing, or cannot be read, keeps no other mistake from being seen.
    stand_ins = {name: text for name, text in _STAND_INS.items() if name in found or name in _NEEDED}
    settings = Settings(**(stand_ins | values), defaults=Table(**base), tables=tuple(Table(**each) for each in tables))
    known = {place for place, _ in mistakes}
    for place, text in _mistakes(settings):
        is_inherited = (
            place[0] == "table" and place[-1] not in arrays[int(place[1])] and ("defaults", place[-1]) in known
        )
        if place not in known and not is_inherited:
            mistakes.append((place, text))
            known |= {place} if place[0] == "defaults" else set()
    return mistakes, None if mistakes else settings


#: Values without a mistake.
_STAND_INS: Final[dict[str, Any]] = {
    "checkpoint": "/", "into": "/", "topics": ".*", "kafka": {"bootstrap.servers": "broker:9092"}, "registry": "http://registry",
}  # fmt: skip
_TEXT: Final = (str, "text")
#: By a field's type: what it is in TOML, and how an error calls it.
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "str": _TEXT, "str | None": _TEXT, "Mode": _TEXT, "int": (int, "a whole number"), "bool": (bool, "true or false"),
    "tuple[str, ...]": (list, "a list of texts"), "Mapping[str, str]": (dict, "a table"),
}  # fmt: skip


def _checked_fields(
    place: tuple[str, ...],
    given: Mapping[str, Any],
    of: type,
    mistakes: list[tuple[tuple[str, ...], str]],
    besides: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The known names of a table of the file, with values of their types; mistakes are added."""
    known = {each.name: str(each.type) for each in fields(of) if each.name not in besides}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            mistakes.append(((*place, name), f"{name} is unknown: {hint}"))
            continue
        wanted, shown = _TYPES[known[name]]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            mistakes.append(((*place, name), f"wrong type: {name} must be {shown}"))
        elif wanted is list:
            values[name] = tuple(map(str, value))
        elif wanted is dict:
            values[name] = {str(key): _text(each) for key, each in _flat(value)}
        else:
            values[name] = value
    return values


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """``bootstrap.servers = "…"`` without quotes is a nested table in TOML: its names are joined again."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each name in a TOML file, by its place; of an array of tables, with the table's number."""
    found: dict[tuple[str, ...], int] = {(): 1}
    place: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.\"-]+)\s*\]", line):
            name = header[2].strip('"')
            place = tuple(name.split("."))
            if header[1] == "[[":
                numbers[name] = numbers.get(name, -1) + 1
                place = (name, str(numbers[name]))
            elif place[0] in numbers:
                place = (place[0], str(numbers[place[0]]), *place[1:])
            found.setdefault(place, number)
        elif key := re.match(r"\s*(\"[^\"]+\"|'[^']+'|[\w-]+)\s*[.=]", line):
            found.setdefault((*place, key[1].strip("\"'")), number)
    return found


def _line(lines: Mapping[tuple[str, ...], int], place: tuple[str, ...]) -> int:
    while place not in lines:
        place = place[:-1]
    return lines[place]
