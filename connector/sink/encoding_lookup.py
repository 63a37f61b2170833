"""What writes the typed columns of a DataFrame: looked up on the driver, in a registry or out of the options.

Owns what a process remembers of it: Spark builds a writer for every micro-batch. The choice of a schema is
:mod:`pykafka_wire.values.written_schema`'s.
"""

from __future__ import annotations

import logging
import os
import time
from functools import lru_cache
from typing import Any, Final

from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import DecodeError, OptionError, RegistryError, SchemaError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.options.typed_columns import TypedColumn
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.values.bulk.writing import ColumnWriter
from pykafka_wire.values.converter import column_writer
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.client import Registry
from pykafka_wire.values.registry.settings import registry_of
from pykafka_wire.values.written_schema import WantedSchema

_log = logging.getLogger(__name__)

#: How long a process writes with the schema that it has looked up, before it asks for a newer one.
_FRESH_S: Final = 300


def look_up_encoding(options: SinkOptions, schema: StructType) -> Encoding:
    """What writes the typed columns of ``schema``; asks the schema registry, if there is one.

    A process that has looked it up before, for the same column, asks again after five minutes, and keeps what it has if the
    registry does not answer.

    Raises:
        OptionError: a schema is not valid, of another format, or cannot be named.
        SchemaError: a column does not fit its schema, or its subject has none.
        RegistryError: the registry does not answer, or refuses the schema.
    """
    typed = options.typed
    registry = registry_of(typed.registry_options)
    writers: dict[str, ColumnWriter] = {}
    for column in typed.typed:
        if column.format == "string":  # bytes already, as the check of the columns' types has seen
            continue
        if column.name not in schema.names:
            raise SchemaError(
                f"{column.option('Format')} is {column.format}, and the rows have no column {column.name!r}: name the column, or "
                f"remove {column.option('Format')}."
            )
        column_type = arrow_schema(StructType([schema[column.name]])).field(0).type
        known = _known(os.getpid(), column, column_type, registry, options.topic, typed.auto_register)
        writers[column.name] = known.writer()
    return Encoding(writers)


@lru_cache(maxsize=100)
def _known(
    pid: int, column: TypedColumn, column_type: Any, registry: Registry | None, topic: str | None, auto_register: bool
) -> _Known:
    """What this process knows of a column: one for the same arguments."""
    return _Known(column, column_type, registry, topic, auto_register)


class _Known:
    """The writer of a column, looked up when it is asked for first, and again when it is old."""

    def __init__(
        self, column: TypedColumn, column_type: Any, registry: Registry | None, topic: str | None, auto_register: bool
    ) -> None:
        self._column = column
        self._type = column_type
        self._registry = registry
        self._topic = topic
        self._auto_register = auto_register
        self._writer: ColumnWriter | None = None
        self._old_at = 0.0

    def writer(self) -> ColumnWriter:
        if self._writer is None or (self._registry is not None and time.monotonic() > self._old_at):
            try:
                self._writer = self._look_up()
            except RegistryError as error:
                if self._writer is None:
                    raise
                _log.warning(
                    "The schema of the column %s could not be looked up again; the known schema is used: %s",
                    self._column.name,
                    error,
                )
            self._old_at = time.monotonic() + _FRESH_S
        return self._writer

    def _look_up(self) -> ColumnWriter:
        column = self._column
        try:
            if column.format == "json":
                return column_writer(Json(), self._type)
            wanted = WantedSchema(
                column=column.name,
                format=column.format,
                text=column.schema,
                message=column.message,
                registry=self._registry,
                auto_register=self._auto_register,
            )
            if self._registry is None:
                return wanted.without_registry(self._type)
            return wanted.of_subject(self._subject(wanted), self._type)
        except DecodeError as error:
            raise OptionError(f"the schema of the column {column.name} cannot be used: {error}.") from error

    def _subject(self, wanted: WantedSchema) -> str:
        column = self._column
        if column.subject is not None:
            return column.subject
        return wanted.subject(column.subject_strategy, self._topic)
