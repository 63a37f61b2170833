"""``tail``: prints records on a terminal, for inspection and tests. To move data, use Spark."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.connection import command, connected, output, registry_option, source_options
from pykafka_wire.cli.offsets import offsets_at, parse_position, partitions_of, ranges_between, resolve_position
from pykafka_wire.cli.output import format_timestamp, printable
from pykafka_wire.columns.value_formats import SCHEMA_KINDS
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST
from pykafka_wire.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from pykafka_wire.source.typed_decoding import ColumnDecoder

#: Pause between two requests for the ends of the logs, in seconds.
_POLL_INTERVAL_S: Final = 0.3


@command(context_settings={"ignore_unknown_options": True})
@click.argument("topic")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="How many of the last records of each partition to print.",
)
@click.option("--from", "place", metavar="PLACE", help="Start at earliest, an offset, or a time (ISO-8601, or -10m).")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new records until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), help="Exit after this many records.")
@click.option("--key-format", type=click.Choice(list(SCHEMA_KINDS)), help="Decode keys; see --value-format.")
@click.option(
    "--value-format",
    type=click.Choice(list(SCHEMA_KINDS)),
    help="Decode values and show them as JSON; avro and protobuf use the registry's newest schema.",
)
@registry_option
def tail(  # noqa: PLR0913
    topic: str,
    last: int,
    place: str | None,
    partition: int | None,
    follow: bool,
    count: int | None,
    key_format: str | None,
    value_format: str | None,
    registry: str | None,
) -> None:
    """Print the last records of TOPIC: partition, offset, time, key, value. With --json each record is a line.

    Keys and values are shown as text, or as hexadecimal digits if they are not UTF-8, unless a format is given. With --registry
    alone, values are decoded by the format that the registry has for the topic.
    """
    if registry is not None and key_format is None and value_format is None:
        value_format = _registered_format(topic, registry)
    formats = {name: wanted for name, wanted in (("key", key_format), ("value", value_format)) if wanted is not None}
    framed: set[int] = set()
    with connected() as cluster:
        partitions = partitions_of(cluster, topic)
        if partition is not None:
            partitions = [tp for tp in partitions if tp.partition == partition]
            if not partitions:
                raise click.UsageError(f"Topic {topic} has no partition {partition}.")
        position = ("shift", -last) if place is None else parse_position(place)
        starts = resolve_position(cluster, partitions, position)
        decode = _decoding(cluster, topic, formats, registry)
        for record, decoded in islice(_records(cluster, starts, follow, decode), count):
            _print(record, decoded)
            if "value" not in formats and (schema_id := _frame_of(record["value"])) is not None:
                framed.add(schema_id)
        if framed:
            click.echo(
                f"Values start with the frame of a schema registry (schema {', '.join(map(str, sorted(framed)))}): use --registry "
                "URL to decode them.",
                err=True,
            )


def _frame_of(data: bytes | None) -> int | None:
    """Return the schema id in Confluent's frame at the start of a value: a zero byte, then four bytes of the id; None without
    one."""
    if data is None or len(data) < 5 or data[0] != 0 or data[5:6] in (b"{", b"["):
        return None
    return int.from_bytes(data[1:5], "big")


def _registered_format(topic: str, url: str) -> str:
    """Return the format of a topic's values, from the newest schema of its subject.

    Raises:
        click.ClickException: the registry has no schema for the topic.
    """
    from pykafka_wire.errors import DecodeError
    from pykafka_wire.values.registry.client import RegistryClient
    from pykafka_wire.values.registry.settings import registry_of

    registry = registry_of(source_options(url))
    assert registry is not None
    try:
        _, schema = RegistryClient(registry).latest(f"{topic}-value")
    except DecodeError as error:
        raise click.ClickException(
            f"The registry has no schema of {topic}-value ({error}): give --value-format."
        ) from error
    return schema.kind.lower()


def _records(
    cluster: Cluster, starts: dict[TopicPartition, int], follow: bool, decode: Callable[[Any], list[dict[str, Any]]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the records, each with its decoded columns."""
    positions = dict(starts)
    while True:
        ends = offsets_at(cluster, positions, LATEST, isolation_level=cluster.settings.isolation_level)
        if ranges := ranges_between(positions, ends):
            from pykafka_wire.wire.fetch.range_read import fetch_ranges  # loads pyarrow
            from pykafka_wire.wire.records.decode import Columns

            for chunk in fetch_ranges(cluster, ranges, columns=Columns(headers=True)):
                yield from zip(records_of(chunk.ranges, chunk.records), decode(chunk), strict=True)
            positions |= ends
        if not follow:
            return
        time.sleep(_POLL_INTERVAL_S)


def _decoding(
    cluster: Cluster, topic: str, formats: Mapping[str, str], registry: str | None
) -> Callable[[Any], list[dict[str, Any]]]:  # Any: a chunk of fetch_ranges; values of JSON
    """Return a function that decodes a chunk: the key and value of each record as JSON values, or ``keyError`` and ``valueError``
    for those that cannot be decoded.

    Raises:
        SchemaError: the registry has no schema for the topic.
        RegistryError: the registry does not respond.
    """
    by_registry = {name: wanted for name, wanted in formats.items() if wanted != "json"}
    decoders = _registry_decoders(cluster, topic, by_registry, registry) if by_registry else ()
    from pykafka_wire.values.single_json.text import parse_json

    def decode(chunk: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{} for _ in range(chunk.records.n_records)]
        for decoder in decoders:
            columns = decoder.columns(chunk.records, chunk.ranges)
            column, error = str(decoder.column.name), str(decoder.column.error_column)
            texts, reasons = _json_texts(column, columns[column]), columns[error].to_pylist()
            for into, text, reason in zip(rows, texts, reasons, strict=True):
                into |= {column: parse_json(text).get(column)} if reason is None else {error: reason}
        for name in formats.keys() - by_registry.keys():
            for into, data in zip(rows, getattr(chunk.records, name).to_pylist(), strict=True):
                into |= _parsed_json(name, data)
        return rows

    return decode


def _registry_decoders(
    cluster: Cluster, topic: str, formats: Mapping[str, str], registry: str | None
) -> Sequence[ColumnDecoder]:
    # Imported here: other commands need neither Spark's types nor the libraries for values.
    import pyarrow as pa

    from pykafka_wire.options.source import parse_source_options
    from pykafka_wire.source.reader_schema import find_reader_schemas, for_tasks, registry_in
    from pykafka_wire.source.typed_decoding import column_decoders

    given = source_options(registry) | {"subscribe": topic}
    for name, wanted in formats.items():
        given |= {f"{name}Format": wanted, f"on{name.capitalize()}Error": "divert"}
    options = parse_source_options(given, "batch")
    columns = options.typed_columns
    readers = find_reader_schemas(columns, columns.typed, cluster, options.subscription)
    types = {
        column.name: readers[column.name].column_type(registry_in(columns, column), column=column)
        for column in columns.typed
    }
    schema = pa.schema(types | dict.fromkeys(columns.added_columns, pa.string()))
    return column_decoders(columns, schema, for_tasks(readers, columns))


def _json_texts(name: str, column: Any) -> list[bytes]:
    """Return each value as JSON inside an object: ``{"value": …}``."""
    import pyarrow as pa

    from pykafka_wire.values.converter import column_writer
    from pykafka_wire.values.json.format import Json

    rows = pa.StructArray.from_arrays([column], [name])
    texts: list[bytes] = column_writer(Json(), rows.type).write(rows).to_pylist()
    return texts


def _parsed_json(name: str, data: bytes | None) -> dict[str, Any]:
    from pykafka_wire.errors import DecodeError
    from pykafka_wire.values.single_json.text import json_text, parse_json

    if data is None:
        return {name: None}
    try:
        # JSON never starts with the zero byte of Confluent's frame, which is five bytes long.
        value = parse_json(data[5:] if data.startswith(b"\0") else data, has_signed_zero=True)
        json_text(
            {name: value}
        )  # refuses NaN and the infinities, which JSON does not have, and what is nested too deep to print
    except DecodeError as error:
        return {f"{name}Error": str(error)}
    return {name: value}


def records_of(ranges: Any, records: Any) -> Iterator[dict[str, Any]]:  # Any: the decoder's columns
    """Yield the records of a chunk, one by one."""
    columns = (records.slice_index, records.offset, records.timestamp)
    keys, values, headers = (column.to_pylist() for column in (records.key, records.value, records.headers))
    for index, offset, timestamp, key, value, header in zip(
        *(column.tolist() for column in columns), keys, values, headers, strict=True
    ):
        yield {
            "topic": ranges[index].topic,
            "partition": ranges[index].partition,
            "offset": offset,
            "timestamp_ms": timestamp,
            "key": key,
            "value": value,
            "headers": [(pair["key"], pair["value"]) for pair in header or ()],
        }


def _print(record: dict[str, Any], decoded: dict[str, Any]) -> None:
    if output().json:
        shown = {**record, "key": _json_of(record["key"]), "value": _json_of(record["value"])}
        shown["headers"] = [[name, _json_of(value)] for name, value in record["headers"]]
        click.echo(_exact_json(shown | decoded))
        return

    def text(name: str) -> str:
        is_bytes = record[name] is None or name not in decoded
        return _show(record[name]) if is_bytes else printable(_exact_json(decoded[name]))

    place, time_shown = f"{record['partition']}:{record['offset']}", format_timestamp(record["timestamp_ms"]) or "-"
    headers = "".join(f"  {printable(name)}={_show(data, null='')}" for name, data in record["headers"])
    errors = "".join(f"  {name}: {printable(decoded[name])}" for name in ("keyError", "valueError") if name in decoded)
    click.echo(f"{place}  {time_shown}  {text('key')}  {text('value')}{headers}{errors}")


def _exact_json(value: Any) -> str:  # Any: a JSON value
    """Return JSON text with every digit of the numbers. Half of a surrogate pair is written as its escape sequence."""
    from pykafka_wire.values.single_json.text import json_text_of_part

    return json_text_of_part(value).encode(errors="backslashreplace").decode()


def _show(data: bytes | None, *, null: str = "-") -> str:
    """Return bytes as text if they are UTF-8, otherwise as hexadecimal digits after ``0x``."""
    if data is None:
        return null
    try:
        return printable(data.decode("utf-8"))
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _json_of(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text if they are UTF-8, otherwise as an object with base64."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
