"""``ingest --init FILE``: writes a commented settings file for the existing topics.

Detects format, mode and key from the registry's subjects, from the last records of each topic, and from its cleanup.policy. Secrets
are not written: the file contains references instead.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.ingest_file import setting_line, toml_value, with_registry_user_apart
from pykafka_wire.cli.output import counted
from pykafka_wire.cli.working import working
from pykafka_wire.ingest.records.debezium_topics import contents_of
from pykafka_wire.ingest.settings.settings_file import read_settings

if TYPE_CHECKING:
    from pykafka_wire.values.registry.address import Registry
    from pykafka_wire.wire.cluster import Cluster

#: The number of last records that are read from each partition.
_SAMPLE: Final = 20
#: Names of Debezium's own topics, which belong to no database table. Others are recognised by their records.
_HELPERS: Final = re.compile(r"__debezium.*|_?schema[-_.]?(changes|history).*|.*\.transaction")
_FRAME_BYTES: Final = 5
#: The share of JSON objects from which on a topic counts as JSON, since a few values may be damaged.
_MOST: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The suggested settings for a topic.

    Attributes:
        format, key_format: the values in the file; None omits the setting.
        registered_key: the format of keys in the registry, used if the file omits it; None if the registry has none.
        why: the observations, for a comment.
    """

    topic: str
    mode: str
    format: str
    key_format: str | None
    registered_key: str | None
    why: str


def write_settings(cluster: Cluster, path: Path, given: Mapping[str, Any], registry: Registry | None) -> None:
    """Write the settings file, and print a summary.

    Args:
        given: the settings on the command line.

    Raises:
        click.ClickException: the file exists or cannot be written, or no topic matches.
    """
    if path.exists():
        raise click.ClickException(f"--init {path}: the file exists; name another one, or delete it.")
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"--init {path}: there is no folder {path.parent}; make it, or name another file.")
    pattern = str(given["topics"])
    with working(f"looking up topics for {pattern}") as progress:
        every = cluster.metadata.topics(None)
        topics = sorted(
            name
            for name, description in every.items()
            if not description.is_internal and re.fullmatch(pattern, name) is not None
        )
        helpers = [name for name in topics if _HELPERS.fullmatch(name)]
        topics = [name for name in topics if name not in helpers]
        if not topics:
            raise click.ClickException(f"no topic matches {pattern}: pykafka-wire topics lists all topics.")
        progress.show(f"sampling {counted(len(topics), 'topic')}")
        compacted = _find_compacted(cluster, topics)
        samples = _samples(cluster, topics)
        helpers += [
            topic for topic in topics if any(contents_of(value, registry) for value in samples.get(topic, ([], []))[1])
        ]
        topics = [name for name in topics if name not in helpers]
        if not topics:
            raise click.ClickException(
                f"no topic that matches {pattern} belongs to a table: all of them are Debezium's own topics."
            )
        suggestions = [
            suggest(topic, *samples.get(topic, ([], [])), is_compacted=topic in compacted, registry=registry)
            for topic in topics
        ]
    try:
        path.write_text(settings_text(given, suggestions, helpers), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--init {path}: {error.strerror}; name another file.") from error
    read_settings(path)
    modes = Counter(suggestion.mode for suggestion in suggestions)
    click.echo(
        f"{path}: {counted(len(topics), 'topic')}, " + ", ".join(f"{n} {mode}" for mode, n in modes.most_common()) + "."
    )
    click.echo(f"Read it, then: pykafka-wire ingest {path} --plan")


def suggest(
    topic: str,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    *,
    is_compacted: bool,
    registry: Registry | None,
) -> Suggestion:
    """Return the suggested settings of a topic, by its contents."""
    registered, schema = _look_up_registered(registry, topic, "value")
    kind = registered or _format_of(values)
    documents = list(map(_document, values)) if kind == "json" else []
    is_debezium = _is_envelope(schema) or (bool(documents) and all(map(_is_change, filter(None, documents))))
    has_keys = bool(keys) and all(key is not None for key in keys)
    mode = "cdc" if is_debezium and has_keys else "upsert" if is_compacted and has_keys else "append"
    registered_key = _look_up_registered(registry, topic, "key")[0]
    key_format = None if not has_keys or registered_key else _format_of(keys)
    seen = [f"{counted(len(values), 'record')} looked at"]
    seen += ["Debezium's envelopes"] if is_debezium else []
    seen += ["compacted"] if is_compacted else []
    seen += ["no keys"] if (is_compacted or is_debezium) and not has_keys else []
    if kind == "binary" and any(value and value[0] == 0 and len(value) > _FRAME_BYTES for value in values):
        seen.append("values start with a registry frame: set registry to its URL, and remove format")
    return Suggestion(
        topic=topic,
        mode=mode,
        format="registry" if registered else kind,
        key_format=None if key_format == "binary" else key_format,
        registered_key=registered_key,
        why=", ".join(seen),
    )


def _look_up_registered(registry: Registry | None, topic: str, column: str) -> tuple[str | None, str]:
    """Return the format of the newest schema of a topic's column, and its text."""
    from pykafka_wire.errors import DecodeError
    from pykafka_wire.values.registry.client import RegistryClient

    if registry is None:
        return None, ""
    try:
        _, schema = RegistryClient(registry).latest(f"{topic}-{column}")
    except DecodeError:
        return None, ""
    return schema.kind.lower(), schema.text


def _is_envelope(schema: str) -> bool:
    """Return whether an Avro or JSON schema describes Debezium's envelope."""
    try:
        document = json.loads(schema)
    except ValueError:  # Protobuf, or none
        return bool(re.search(r"\bafter\b.*\bop\b", schema, re.DOTALL))
    described = document.get("fields") or document.get("properties") or () if isinstance(document, dict) else ()
    return {"op", "after"} <= {
        described_key["name"] if isinstance(described_key, dict) else described_key for described_key in described
    }


def _is_change(document: Any) -> bool:  # Any: a JSON value
    inner = document.get("payload", document) if isinstance(document, dict) else None
    return isinstance(inner, dict) and {"op", "after"} <= inner.keys()


def _format_of(samples: Sequence[bytes | None]) -> str:
    """Return ``json``, ``string`` or ``binary``; ``json`` if there are no values, since the user can correct it."""
    there = [sample for sample in samples if sample is not None]
    if sum(isinstance(_document(text), dict) for text in there) >= _MOST * len(there):
        return "json"
    try:
        for text in there:
            text.decode("utf-8")
    except UnicodeDecodeError:
        return "binary"
    return "string"


def _document(data: bytes | None) -> Any:  # Any: a JSON value
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def _find_compacted(cluster: Cluster, topics: Collection[str]) -> set[str]:
    from pykafka_wire.wire.cluster.admin import describe_topic_configs
    from pykafka_wire.wire.errors import BrokerError

    try:
        configs = describe_topic_configs(cluster, topics, ["cleanup.policy"])
    except BrokerError:  # not allowed: the policy is unknown
        return set()
    return {topic for topic, config in configs.items() if "compact" in (config.get("cleanup.policy") or "")}


def _samples(cluster: Cluster, topics: Collection[str]) -> dict[str, tuple[list[bytes | None], list[bytes | None]]]:
    """Return keys and values of each topic's last records."""
    from pykafka_wire.cli.offsets import offsets_at, partitions_of, ranges_between, resolve_position
    from pykafka_wire.wire.cluster.admin import LATEST
    from pykafka_wire.wire.fetch.range_read import fetch_ranges
    from pykafka_wire.wire.records.decode import Columns

    partitions = [tp for topic in topics for tp in partitions_of(cluster, topic)]
    starts = resolve_position(cluster, partitions, ("shift", -_SAMPLE))
    ranges = ranges_between(starts, offsets_at(cluster, partitions, LATEST))
    samples: dict[str, tuple[list[bytes | None], list[bytes | None]]] = {}
    for chunk in fetch_ranges(cluster, ranges, columns=Columns(key=True, value=True)) if ranges else ():
        records = chunk.records
        for index, key, value in zip(
            records.slice_index.tolist(), records.key.to_pylist(), records.value.to_pylist(), strict=True
        ):
            keys, values = samples.setdefault(chunk.ranges[index].topic, ([], []))
            keys.append(key)
            values.append(value)
    return samples


def settings_text(given: Mapping[str, Any], suggestions: Sequence[Suggestion], helpers: Sequence[str]) -> str:
    given = with_registry_user_apart(given)
    shapes = Counter((suggestion.format, suggestion.key_format) for suggestion in suggestions)
    (value_format, key_format), _ = shapes.most_common(1)[0]
    lines = [
        "# The settings of an ingest. All settings: docs/ingest-settings.md. Check this file: pykafka-wire ingest FILE --plan",
        f"checkpoint = {toml_value(given['checkpoint'])}  # used by this ingest only",
        f"topics = {toml_value(given['topics'])}  # a regular expression that matches the whole name",
        f"into = {toml_value(given['into'])}  # a folder; or schema, or catalog.schema",
    ]
    names = ("registry", "starting_offsets", "every", "ui", "ui_token", "ui_values", "metrics_port")
    lines += [f"{name} = {toml_value(given[name])}" for name in names if given.get(name)]
    lines += ["", "[kafka]  # client settings under Kafka's names"]
    for name, value in given["kafka"].items():
        lines.append(setting_line(name, value))
    if of_registry := given.get("registry_options"):
        lines += ["", "[registry_options]", *(setting_line(name, value) for name, value in of_registry.items())]
    lines += ["", "[defaults]  # for every topic without a [[table]] below", f"format = {toml_value(value_format)}"]
    lines += [f"key_format = {toml_value(key_format)}"] if key_format else []
    lines += [
        "# min_rows = 1000    # a topic waits for this many new records,",
        '# max_delay = "5m"   # or for this long: fewer, larger files',
    ]
    for suggestion in suggestions:
        if suggestion.mode == "append" and (suggestion.format, suggestion.key_format) == (value_format, key_format):
            continue
        lines += ["", f"[[table]]  # {suggestion.why}", f"topic = {toml_value(re.escape(suggestion.topic))}"]
        for name, value, usual in (
            ("mode", suggestion.mode, "append"), ("format", suggestion.format, value_format),
            ("key_format", suggestion.key_format, key_format),
        ):  # fmt: skip
            if value != usual:
                lines.append(f"{name} = {toml_value(value or suggestion.registered_key or 'binary')}")
    if helpers:
        lines += ["", f"# Debezium's own topics, not landed: {', '.join(helpers)}. You can exclude them in topics."]
    return "\n".join(lines) + "\n"
