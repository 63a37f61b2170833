"""Topics as a ``pyarrow.RecordBatchReader``: the batch read of the data source, in this process and without Spark.

    from pykafka_wire import read_topic

    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", "startingTimestamp": "-1h"}
    with read_topic(options, columns=["key", "value", "offset"]) as orders:
        duckdb.sql("SELECT key, count(*) FROM orders GROUP BY key").show()

Owns the reader's schema and the life of its connections. What the options mean, which offsets are read, and how records become
columns are :mod:`pykafka_wire.options`'s and :mod:`pykafka_wire.source`'s, as for Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.columns.arrow_types import ARROW_TYPES
from pykafka_wire.columns.selected_columns import column_names
from pykafka_wire.errors import OptionError
from pykafka_wire.field_selection import WHOLE, Selection, parse_columns, select_type
from pykafka_wire.options.names import PREFIX
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.source import SourceOptions, parse_source_options
from pykafka_wire.source.planning.batch_ranges import plan_ranges
from pykafka_wire.source.task_reader import read_ranges
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import WireError

#: What decides the shape of Spark's tasks.
_OF_TASKS: Final = ("minPartitions", "maxRecordsPerPartition", "filterPushdown")


def read_topic(
    options: Mapping[str, str | int | bool], *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Return a ``pyarrow.RecordBatchReader`` over a bounded range of one topic or several, typed as the data source types them.

    All offsets are looked up now; records are fetched while batches are taken, in order within each topic-partition. A batch is
    about one response of a broker, or of typed columns 8 MiB of keys and values. Memory: about two responses for each broker, of at
    most 8 MiB (``kafka.fetch.max.bytes``), and the current batch.

    The reader has connections of its own. They are closed when it has come to its end, by ``close()``, at the end of a ``with``
    block, or when the reader is dropped. DuckDB and Polars accept it directly; like any reader, it can be read once.

    Args:
        options: those of a batch read by the data source, with their names, defaults and meanings (marked B on the page Options).
        columns: the columns to read, in this order, or fields of them, such as ``value.id``: as the option ``columns``. Without it
            all that the data source has for these options; ``headers`` is among them with ``includeHeaders``, or where it is named
            here. What is not read is not decoded.

    Raises:
        OptionError: an option is missing, unknown, malformed, or contradicts another one.
        SchemaError: there is no such column, or the schema registry has no such schema.
        OffsetsError: the offsets do not match the topic's partitions, or the read starts after its end.
        DataLossError: the first offsets have aged out, and ``failOnDataLoss`` is true.
        RegistryError: the schema registry does not respond.
        WireError: brokers cannot be reached or deny access, or a topic does not exist.

    What happens later, while batches are taken, passes through Arrow, which turns it into ``pyarrow.ArrowInvalid`` or ``OSError``
    with the text of the original error, code and traceback.
    """
    parsed = parse_source_options(_texts(options), "batch")
    log_warnings([*parsed.warnings, *_without_effect(options)])
    selection = _selection(columns, parsed)
    names = column_names(selection, parsed.include_headers, parsed.typed_columns.added_columns)
    with _options_in_errors():
        cluster = Cluster(parsed.client, log_warnings=False)
        try:
            schema, reader_schemas = _schema(cluster, parsed, names, selection)
            ranges = plan_ranges(cluster, parsed)
        except BaseException:
            cluster.close()
            raise
    batches = _closing(cluster, read_ranges(parsed, ranges, schema, reader_schemas=reader_schemas, cluster=cluster))
    next(batches)
    # Through Arrow's C stream, since close() of a reader over Python's iterator would keep the iterator, and so the connections.
    return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, batches))


@contextlib.contextmanager
def _options_in_errors() -> Iterator[None]:
    """Let errors of the client name Kafka's settings as options."""
    try:
        yield
    except WireError as error:
        raise error.with_prefix(PREFIX) from error


def _closing(cluster: Cluster, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Yield ``batches``, after a first None: a generator runs its ``finally`` only if it was started."""
    try:
        yield None
        with _options_in_errors():
            yield from batches
    finally:
        cluster.close()


def _texts(options: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return options as Spark would have them: ``option("includeHeaders", True)`` is ``"true"`` there."""
    texts: dict[str, str] = {}
    for name, given in options.items():
        if not isinstance(given, str | int):
            raise OptionError(f"{name} is a {type(given).__name__}: give a text, a whole number, or True or False.")
        texts[name] = str(given).lower() if isinstance(given, bool) else str(given)
    return texts


def _without_effect(options: Collection[str]) -> list[str]:
    given = {name.lower() for name in options}
    return [
        f"The option {name} is about Spark's tasks, and read_topic ignores it"
        for name in _OF_TASKS
        if name.lower() in given
    ]


def _selection(columns: Sequence[str] | None, options: SourceOptions) -> Selection:
    if columns is None:
        return options.columns
    if (
        isinstance(columns, str)
        or not columns
        or not all(isinstance(column, str) and column.strip() for column in columns)
    ):
        raise OptionError(f"columns is {columns!r}: name at least one column in a list, such as ['key', 'value'].")
    if options.columns:
        raise OptionError("the option columns and the argument columns select columns: leave one of them out.")
    return parse_columns(", ".join(columns))


def _schema(
    cluster: Cluster, options: SourceOptions, names: Collection[str], selection: Selection
) -> tuple[Any, dict[str, Any]]:
    """Return the reader's schema, pyarrow's, and what decoders need of the typed columns' schemas."""
    types = ARROW_TYPES | dict.fromkeys(options.typed_columns.added_columns, pa.string())
    typed: dict[str, Any] = {}
    reader_schemas: dict[str, Any] = {}
    if options.typed_columns.typed:
        # A read of binary columns does not load it.
        from pykafka_wire.source.reader_schema import (
            check_has_type,
            find_reader_schemas,
            for_tasks,
            read_columns,
            registry_in,
        )

        columns = options.typed_columns
        wanted = read_columns(columns, names)
        for column in wanted:
            check_has_type(column, has_registry=bool(columns.registry_options))
        readers = find_reader_schemas(columns, wanted, cluster, options.subscription)
        typed = {
            column.name: readers[column.name].column_type(
                registry_in(columns, column), selection.get(column.name, WHOLE), column
            )
            for column in wanted
        }
        reader_schemas = for_tasks(readers, columns)
    types |= {
        name: select_type(types[name], selection.get(name, WHOLE), name) for name in names if name not in typed
    } | typed
    return pa.schema([(name, types[name]) for name in names]), reader_schemas
