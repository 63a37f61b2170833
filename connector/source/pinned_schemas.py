"""The reader's schemas of a streaming query: fixed when it starts, in its checkpoint from then on.

Owns the choice between the checkpoint's schema and a newer one, and what is logged about the difference. Rules:

- a planned micro-batch is read with the schemas in its own end offset, whatever the options are now, unless they name another
  format;
- the next one with those of the micro-batch before, unless ``readerSchema=latest`` or the options give a schema themselves;
- an idle query asks the registry for nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import DataType, StructType

from pykafka_wire.columns.value_formats import NEED_SCHEMA
from pykafka_wire.errors import SchemaError
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.options.typed_columns import TypedColumn
from pykafka_wire.source.dataframe_types import (
    TypesContradictError,
    available_type,
    changes,
    check_types,
    column_type,
    missing_fields,
)
from pykafka_wire.source.reader_schema import (
    ReaderSchema,
    ReaderSchemas,
    find_reader_schemas,
    for_tasks,
    from_json,
    read_columns,
    registry_in,
    schema_in_options,
    to_json,
)
from pykafka_wire.wire.process_clients import shared_cluster

_log = logging.getLogger(__name__)

_NOT_LOADED: Final = ReaderSchema(format="string")


class PinnedSchemas:
    """Which reader's schemas each micro-batch of one query has. JSON is that of the checkpoint.

    Args:
        schema: the DataFrame's.
        loaded: found by ``load()``, where the DataFrame's type comes from them; None where the user gave the type.
    """

    def __init__(self, options: SourceOptions, schema: StructType, loaded: ReaderSchemas | None) -> None:
        self._options = options
        self._columns = options.typed_columns
        self._schema = schema
        self._read = read_columns(options.typed_columns, schema.names)
        self._loaded = loaded
        self._newest: dict[str, ReaderSchema] = {}
        #: The JSON that was seen last, and what was chosen for it: most micro-batches have that of the one before.
        self._chosen: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
        #: Schemas that were compared with the DataFrame's type, as JSON text.
        self._checked: set[str] = set()

    def for_next(self, logged: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the end offset of the next micro-batch holds, after one that held ``logged``.

        Raises:
            SchemaError: the DataFrame's type contradicts the schema.
            RegistryError: the registry does not respond.
        """
        if self._chosen is None or self._chosen[0] != logged:
            self._chosen = (logged, self._choose(logged))
        return self._chosen[1]

    def for_planned(self, planned: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the tasks of a planned micro-batch read with; ``planned`` is in its end offset. Raises as
        :meth:`for_next`."""
        pinned = self._pinned(planned)
        for column in self._read:
            if not self._is_pinned(column):
                self._newest_of(column)  # which checks the DataFrame's type
            elif column.name in pinned:
                self._check(column, pinned[column.name], is_planned=True)
        missing = [column for column in self._read if self._is_pinned(column) and column.name not in pinned]
        return for_tasks(pinned | {column.name: self._newest_of(column) for column in missing}, self._columns)

    def _choose(self, logged: Mapping[str, Any]) -> Mapping[str, Any]:
        pinned = self._pinned(logged)
        chosen: dict[str, ReaderSchema] = {}
        for column in self._read:
            if not self._is_pinned(column):
                self._newest_of(column)  # which checks the DataFrame's type
                continue
            before = pinned.get(column.name)
            if before is None or self._columns.takes_latest_schema or _options_differ(column, before):
                chosen[column.name] = self._newest_of(column)
                if before is None:
                    _log.info("The %s is read with %s", column.name, chosen[column.name])
                elif before != chosen[column.name]:
                    self._log_change(column, before, chosen[column.name])
            else:
                chosen[column.name] = before
            self._check(column, chosen[column.name])
        # A column that is not read now keeps what the checkpoint has for it.
        kept = {name: schema for name, schema in logged.items() if name not in chosen}
        return dict(sorted((kept | to_json(chosen)).items()))

    def _pinned(self, logged: Mapping[str, Any]) -> dict[str, ReaderSchema]:
        """Return those of the checkpoint that are of the options' formats."""
        formats: dict[str, str] = {column.name: column.format for column in self._read}
        return {name: schema for name, schema in from_json(logged).items() if formats.get(name) == schema.format}

    def _is_pinned(self, column: TypedColumn) -> bool:
        """Return whether the checkpoint remembers its schema: that of JSON where ``load()`` took the type from the registry."""
        return column.format in NEED_SCHEMA or (self._loaded or {}).get(column.name, _NOT_LOADED).is_pinned

    def _newest_of(self, column: TypedColumn) -> ReaderSchema:
        if self._loaded is not None:
            return self._loaded[column.name]
        if column.name not in self._newest:  # the other column may have no use for its newest
            options = self._options
            cluster = shared_cluster(options.client)
            newest = find_reader_schemas(self._columns, [column], cluster, options.subscription, has_types=True)
            check_types(newest, self._columns, self._schema, wanted=[column])
            self._newest |= newest
        return self._newest[column.name]

    def _check(self, column: TypedColumn, reader: ReaderSchema, *, is_planned: bool = False) -> None:
        """Compare the schema of a checkpoint with the DataFrame's type, once."""
        text = json.dumps([column.name, reader.to_json()])
        if text in self._checked or column.name not in self._schema.names:
            return
        if self._loaded is None or self._loaded[column.name] != reader:
            reader.check_subject(registry_in(self._columns, column))
            self._compare(column, reader, self._schema[column.name].dataType, is_planned)
        self._checked.add(text)

    def _compare(self, column: TypedColumn, reader: ReaderSchema, wanted: DataType, is_planned: bool) -> None:
        available = available_type(reader, self._columns, column)
        if available is None:
            return
        try:
            missing = missing_fields(wanted, available, column.name)
        except TypesContradictError as error:
            described = _describe(column, reader)
            if is_planned:
                raise SchemaError(
                    f"the checkpoint has a micro-batch that was planned with {described}, and the DataFrame's type contradicts it: "
                    f"{error.message}. It is read as it was planned: give the DataFrame the older type with .schema(…) until that "
                    "micro-batch is done. readerSchema=latest applies to the micro-batches after it."
                ) from error
            raise SchemaError(
                f"the checkpoint reads with {described}, and the DataFrame's type contradicts it: {error.message}. Set "
                "readerSchema to latest to read later micro-batches with the newest version, or give the DataFrame the "
                "older type with .schema(…)."
            ) from error
        if not missing:
            return
        newest = self._newest_of(column)  # raises where the newest has no such field either
        if newest != reader:
            _log.warning(
                "The checkpoint reads with %s, which has no %s: %s. To read later micro-batches with %s, set readerSchema to "
                "latest.",
                _describe(column, reader),
                ", ".join(missing),
                "read where documents have it" if column.format == "json" else "null in this query",
                newest,
            )

    def _log_change(self, column: TypedColumn, before: ReaderSchema, after: ReaderSchema) -> None:
        try:
            differences = changes(
                column_type(before, self._columns, column), column_type(after, self._columns, column), column.name
            )
            difference = "; ".join(differences) or "its type stays the same"
        except SchemaError as error:  # the older one is gone from the registry, or a type has no end
            difference = f"their types cannot be compared: {error.message}"
        _log.warning(
            "From the next micro-batch on the %s is read with %s in place of %s: %s",
            column.name,
            after,
            _describe(column, before),
            difference,
        )


def _describe(column: TypedColumn, reader: ReaderSchema) -> str:
    """Return a schema of the checkpoint, for messages: a text need not be that of the options now."""
    if reader.text is not None and reader != schema_in_options(column):
        return f"the text that {column.option('Schema')} had before"
    return str(reader)


def _options_differ(column: TypedColumn, before: ReaderSchema) -> bool:
    """Return whether the user has named another schema, subject or message than the checkpoint has."""
    return (
        column.schema is not None
        or column.schema_id not in (None, before.schema_id)
        or column.subject not in (None, before.subject)
        or (not column.types and column.message not in (None, before.message))
        or _types_differ(column, before)
    )


def _types_differ(column: TypedColumn, before: ReaderSchema) -> bool:
    if column.types == ("*",):
        return not before.types
    return set(column.types) != {kind.message for kind in before.types}
