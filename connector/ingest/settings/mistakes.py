"""The mistakes of an ingest's settings that show without brokers and without Spark: all of them at once, each with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final, TypeAlias

from pykafka_wire.columns import value_formats
from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.ingest.settings.model import TOPIC_PLACEHOLDER, Settings, Table
from pykafka_wire.options.names import check_names
from pykafka_wire.options.option import AUTO, duration_ms, either
from pykafka_wire.options.option_table import CHOOSING_RECORDS
from pykafka_wire.page.address import host_and_port
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings

_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
#: Longer than any micro-batch: tasks close files long before the commit, and VACUUM deletes files that no commit names.
_LEAST_KEPT_MS: Final = 24 * 3_600_000
#: The name of an ingest: the characters that Kafka allows in a consumer group.
_INGEST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
#: Options with which a read would have other records than the range after the table's position, in lower case.
_CHOOSING_RECORDS: Final = frozenset(option.name.lower() for option in CHOOSING_RECORDS)
#: Settings of a single table, not allowed in ``[defaults]``.
OF_ONE_TABLE: Final = ("where", "types", "select", "expect", "position")

#: The place in the file, as a path of names, and the text.
Mistake: TypeAlias = tuple[tuple[str, ...], str]


def check_settings(settings: Settings) -> None:
    """Raise IngestError with all mistakes that can be found without a broker."""
    mistakes = [text for _, text in mistakes_of(settings)]
    if mistakes:
        raise IngestError(listed(mistakes, "the settings"))


def listed(mistakes: list[str], where: str) -> str:
    """Return mistakes as the text of an error, one a line."""
    return f"{where}: {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}\n" + "\n".join(
        f"  {mistake}" for mistake in mistakes
    )


def mistakes_of(settings: Settings) -> Iterable[Mistake]:
    """Yield the mistakes of settings."""
    if not any(name.removeprefix("kafka.") == "bootstrap.servers" for name in settings.kafka):
        yield ("kafka",), 'kafka has no bootstrap.servers: add "bootstrap.servers" = "host:9092" to [kafka]'
    else:
        yield from _client_mistakes(settings.kafka)
    if settings.name is not None and not _INGEST_NAME.fullmatch(settings.name):
        yield ("name",), f"name is {settings.name!r}: use letters, digits, dots, _ and -"
    if settings.registry is not None and not re.match(r"(https?|glue)://.", settings.registry):
        yield ("registry",), f"registry is {settings.registry!r}: give its URL, such as https://registry:8081"
    yield from _place_mistakes(settings)
    yield from _choice_mistakes((), settings)
    yield from _iceberg_mistakes(settings)
    for name in ("max_rows", "parallel"):
        if getattr(settings, name) < 1:
            yield (name,), f"{name} is {getattr(settings, name)}: it must be at least 1"
    yield from _server_mistakes(settings)
    if not _NAME.fullmatch(settings.rejects):
        yield ("rejects",), f"rejects is {settings.rejects!r}: use letters, digits and _"
    yield from _table_mistakes(("defaults",), settings.defaults, settings)
    for number, table in enumerate(settings.tables):
        place = ("table", str(number))
        yield from _pattern_mistakes((*place, "topic"), table.topic)
        yield from _table_mistakes(place, table, settings)
    yield from _name_mistakes(settings)
    yield from _subset_mistakes(settings.tables)


def _place_mistakes(settings: Settings) -> Iterable[Mistake]:
    """Yield the mistakes of the places of the checkpoint and of the tables, and of the pattern of topics."""
    for name in ("checkpoint", "into", "topics"):
        if not str(getattr(settings, name)).strip():
            yield (name,), f"{name} is empty: {NEEDED[name]}"
    yield from _pattern_mistakes(("topics",), settings.topics)
    if not settings.is_folder and not all(re.fullmatch(r"[^`.\s]+", part) for part in settings.into.split(".")):
        yield ("into",), f"into is {settings.into!r}: give a folder with a slash in it, or schema, or catalog.schema"
    if settings.is_folder and "`" in settings.into:
        yield ("into",), f"into is {settings.into!r}: SQL cannot name a folder with ` in it, so give another one"
    if settings.is_folder and ":" not in settings.into and not settings.into.startswith("/"):
        yield ("into",), f"into is {settings.into!r}: give the absolute path of the folder, starting with /"


def _name_mistakes(settings: Settings) -> Iterable[Mistake]:
    """Yield the names of tables that another table has."""
    named: dict[str, int] = {settings.rejects.lower(): -1}
    for number, table in enumerate(settings.tables):
        if table.name is not None and TOPIC_PLACEHOLDER not in table.name:
            other = named.setdefault(table.name.lower(), number)
            if other != number:
                owner = "the table of rejects" if other < 0 else f"topic {settings.tables[other].topic}"
                yield (
                    ("table", str(number), "name"),
                    f"name {table.name!r} is also the name of {owner}: give each [[table]] a name of its own",
                )


def _server_mistakes(settings: Settings) -> Iterable[Mistake]:
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
        yield (
            ("ui_token",),
            "ui_token is the token itself: give env:NAME or file:/path, since others may read the settings",
        )


def _subset_mistakes(tables: Sequence[Table]) -> Iterable[Mistake]:
    """Yield mistakes of several tables of one topic. Two patterns may match the same topic: only the plan can find that, as it asks
    the brokers."""
    by_topic: dict[str, list[int]] = {}
    for number, table in enumerate(tables):
        by_topic.setdefault(table.topic, []).append(number)
    for topic, numbers in by_topic.items():
        has_parts = any(tables[number].is_subset for number in numbers)
        names = [tables[number].name or TOPIC_PLACEHOLDER for number in numbers]
        for i, number in enumerate(numbers):
            place = ("table", str(number))
            if has_parts and not tables[number].is_subset:
                yield (
                    place,
                    (
                        f"topic {topic} has other tables with where or types, and this one has neither: give it "
                        'where = "true" if it should get all records'
                    ),
                )
            elif has_parts and TOPIC_PLACEHOLDER in names[i] and names[i] in names[:i]:
                yield place, f"topic {topic} has two tables with the same name: give each [[table]] a name of its own"


def _iceberg_mistakes(settings: Settings) -> Iterable[Mistake]:
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
            yield (
                (*place, "compact"),
                "compact = true needs Delta: use often, or run rewrite_data_files with your engine",
            )


NEEDED: Final = {
    "checkpoint": "name a folder for Spark's checkpoint that only this ingest uses",
    "into": "name the folder of the tables, or schema, or catalog.schema",
    "topics": r"give a regular expression of topics, such as 'shop\..*'",
    "kafka": "give the brokers by --bootstrap, or in [kafka]",
}


def _client_mistakes(kafka: Mapping[str, str]) -> Iterable[Mistake]:
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


def _pattern_mistakes(place: tuple[str, ...], pattern: str) -> Iterable[Mistake]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield place, f"{pattern!r} is not a regular expression ({error}); write a dot in a topic's name as \\."


def _table_mistakes(place: tuple[str, ...], table: Table, settings: Settings) -> Iterable[Mistake]:
    yield from _choice_mistakes(place, table)
    if table.name is not None and not _NAME.fullmatch(table.name.replace(TOPIC_PLACEHOLDER, "_")):
        yield (*place, "name"), f"name is {table.name!r}: use letters, digits and _, and {{topic}} for the topic's name"
    yield from _contract_mistakes(place, table)
    yield from _format_mistakes(place, table, settings)
    for name in table.options:
        try:
            check_names([name], "batch")
        except OptionError as error:
            yield (*place, "options"), error.message.removesuffix(".")
        if name.lower() in _CHOOSING_RECORDS:
            yield (
                (*place, "options"),
                (
                    f"options has {name}, but the table's position decides which records are read next: remove {name}. "
                    "starting_offsets says where a first start begins, and [kafka] has client settings"
                ),
            )
    if table.partition_by and table.cluster_by:
        yield (
            (*place, "cluster_by"),
            "partition_by and cluster_by are both set, but Delta supports only one: remove one of them",
        )
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


def _format_mistakes(place: tuple[str, ...], table: Table, settings: Settings) -> Iterable[Mistake]:
    """Yield formats that lack a registry or a schema, and schemas that a format does not have."""
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
    if table.mode == "cdc" and table.format in ("string", "binary"):
        yield (
            (*place, "format"),
            f"mode is cdc and format {table.format}: Debezium's envelopes are avro, json or protobuf",
        )


def _choice_mistakes(place: tuple[str, ...], settings: Settings | Table) -> Iterable[Mistake]:
    for setting in fields(settings):
        value, choices = getattr(settings, setting.name), setting.metadata.get("choices")
        if not choices or (value is None and setting.default is None):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if item not in choices:
                yield (*place, setting.name), f"{setting.name} is {item!r}: use {either(choices)}"


def _contract_mistakes(place: tuple[str, ...], table: Table) -> Iterable[Mistake]:
    """Yield the mistakes of the settings about rows (``where``, ``select``, ``expect``, ``types``)."""
    if place[0] == "defaults":
        for name in OF_ONE_TABLE:
            if getattr(table, name):
                yield (*place, name), f"{name} belongs to a single table: set it in a [[table]]"
        return
    if not all(str(text).isdecimal() for place_and_offset in table.position.items() for text in place_and_offset):
        yield (
            (*place, "position"),
            "position is the next offset of each partition, such as position = {0 = 1234, 1 = 1200}",
        )
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


def _ddl_mistakes(place: tuple[str, ...], text: str) -> Iterable[Mistake]:
    from pykafka_wire.values.ddl import DdlError, arrow_type  # loads pyarrow

    try:
        arrow_type(text)
    except DdlError as error:
        yield place, f"{place[-1]} is {text!r}: {error}"
