"""The reader's schemas of a read: found once, on the driver, and given to its tasks.

Owns the way from the options to a schema of each typed column; knows nothing of Spark. The comparison with a DataFrame's type is
:mod:`~pykafka_wire.source.dataframe_types`'s, and what a stream does with the schema in its checkpoint
:mod:`~pykafka_wire.source.pinned_schemas`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pykafka_wire.errors import OffsetsError, OptionError
from pykafka_wire.options.source import Subscription
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.values.reader_schema import ReaderSchema, resolve_newest
from pykafka_wire.values.registry.client import Registry
from pykafka_wire.values.registry.settings import registry_of
from pykafka_wire.values.registry.subjects import subject_of
from pykafka_wire.wire.cluster.cluster import Cluster

#: By column, ``key`` or ``value``: those that are typed, and read.
ReaderSchemas = Mapping[str, ReaderSchema]


def registry_in(columns: TypedColumns) -> Registry | None:
    """The registry that the options describe, None without one. It is asked for nothing."""
    return registry_of(columns.registry_options)


def read_columns(columns: TypedColumns, names: Collection[str]) -> tuple[TypedColumn, ...]:
    """The typed columns that a read of the columns with these names decodes."""
    return tuple(column for column in columns.typed if column.name in names or column.error_column in names)


def find_reader_schemas(
    columns: TypedColumns, wanted: Collection[TypedColumn], cluster: Cluster, subscription: Subscription
) -> dict[str, ReaderSchema]:
    """The reader's schema of each wanted column: the one in the options, else the newest of the registry. Brokers are asked for the
    topics of ``subscribePattern`` only.

    Raises:
        OptionError: a strategy that names subjects is unknown, or needs a name.
        SchemaError: the registry has no such subject, or topics differ.
        RegistryError: the registry does not answer.
        WireError: the brokers do not answer, asked for the topics of ``subscribePattern``.
    """
    found: dict[str, ReaderSchema] = {}
    for column in wanted:
        given = schema_in_options(column)
        if given is not None:
            found[column.name] = given
            continue
        assert column.format in ("avro", "protobuf")
        registry = registry_in(columns)
        assert registry is not None, "the options were checked"
        subjects = _subjects(column, cluster, subscription)
        found[column.name] = resolve_newest(
            column.format, registry, subjects, message=column.message, column=column.name
        )
    return found


def schema_in_options(column: TypedColumn) -> ReaderSchema | None:
    """The schema that the options themselves give, None where it is the registry's."""
    assert column.format != "binary"
    if column.format in ("string", "json") or column.schema is not None:
        return ReaderSchema(format=column.format, text=column.schema, message=column.message)
    return None


def check_has_type(column: TypedColumn) -> None:
    """Raises OptionError for JSON that neither the options nor the DataFrame give a type."""
    if column.format == "json" and column.schema is None:
        option = column.option("Schema")
        raise OptionError(
            f"{column.option('Format')}=json needs the type of the {column.name}: the columns as Spark DDL, as in "
            f'.option("{option}", "id BIGINT, at TIMESTAMP"), or as a struct in .schema("{column.name} struct<id: bigint>, …").'
        )


def to_json(readers: ReaderSchemas) -> dict[str, Any]:
    """What the checkpoint holds of the reader's schemas."""
    return {name: readers[name].to_json() for name in sorted(readers) if readers[name].is_pinned}


def for_tasks(readers: ReaderSchemas, columns: TypedColumns) -> dict[str, Any]:
    """What each input partition needs of the reader's schemas, as JSON: not those that the options of the tasks give."""
    given: dict[str, ReaderSchema | None] = {column.name: schema_in_options(column) for column in columns.typed}
    return to_json({name: reader for name, reader in readers.items() if given.get(name) != reader})


def from_json(found: Mapping[str, Any]) -> dict[str, ReaderSchema]:
    """The reader's schemas that :func:`to_json` made. Raises OffsetsError for anything else."""
    try:
        return {name: ReaderSchema.from_json(each) for name, each in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OffsetsError(
            f"the reader's schemas in the checkpoint are damaged ({error}): {str(found)[:200]}"
        ) from error


def _subjects(column: TypedColumn, cluster: Cluster, subscription: Subscription) -> dict[str, str]:
    """The subject of each topic."""
    if column.subject is not None:
        return {"": column.subject}
    if subscription.pattern:
        from pykafka_wire.source.planning.offset_lookups import find_topics

        topics: Collection[str] = sorted(find_topics(cluster, subscription))
    else:
        topics = subscription.topics or tuple(dict.fromkeys(tp.topic for tp in subscription.assigned))
        if not topics:
            raise OptionError(
                f"microBatch with {column.name}Format={column.format} needs the topics whose subjects have the schema: name them "
                f"with subscribe, or name {column.name}Subject."
            )
    return {
        topic: subject_of(column.subject_strategy, topic, column.name, record_name=column.message) for topic in topics
    }
