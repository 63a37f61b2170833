"""The data source that Spark looks up: its name, its schema, and which reader or writer serves.

I/O happens for the schema of typed columns alone: ``load()`` asks the registry, once. The schema stays with the data source, which
Spark pickles after it has asked for the schema (seen in 4.2, and so written since before 4.0), so that DataFrame and readers have
the same one. A Spark that pickled it before would make the readers ask again.

Spark imports this module in every process that it starts, in the first two for the name and the schema alone. So a method imports
what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pykafka_wire.columns.source_columns import SCHEMA_OPTIONS, source_schema
from pykafka_wire.concise_errors import with_concise_errors
from pykafka_wire.worker_pickling import ClassSentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pykafka_wire.source.reader_schema import ReaderSchemas


@with_concise_errors
class PykafkaWireDataSource(DataSource, metaclass=ClassSentToWorkers):
    """Kafka topics as a Spark data source, ``format("pykafka-wire")``: batch and streaming, reading and writing."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``; in SQL it needs backticks, for its dash."""
        return "pykafka-wire"

    #: Found by :meth:`schema`; None where the user gave the schema, or no column is typed.
    _reader_schemas: ReaderSchemas | None = None

    def schema(self) -> str | StructType:
        """Return the source's columns, those of Spark's own Kafka connector; ``key`` and ``value`` have the types of their
        schemas where they are decoded, and ``columns`` selects. Spark does not call it where ``.schema(…)`` is given.
        """
        given = {name.lower(): value.strip().lower() for name, value in self.options.items()}
        if any(name.startswith("option.") for name in given):  # Spark asks for the schema of a table that it creates
            from pykafka_wire.options.parsing import TABLE_OPTIONS, log_warnings

            log_warnings([TABLE_OPTIONS])
        if not given.keys().isdisjoint(SCHEMA_OPTIONS):
            from pykafka_wire.options.source import parse_schema_options
            from pykafka_wire.source.dataframe_types import find_source_schema

            schema, self._reader_schemas = find_source_schema(parse_schema_options(self.options))
            return schema
        return source_schema(given.get("includeheaders") == "true")

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """Return a batch reader for ``schema``, which may name a subset of the columns. It is Arrow's on Sail, and Spark's on
        Spark."""
        from pykafka_wire.source.batch_reader import batch_reader

        return batch_reader(self.options, schema, self._reader_schemas)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a streaming reader for ``schema``, fit for the running Spark version."""
        from pykafka_wire.source.stream_reader import stream_reader

        return stream_reader(self.options, schema, self._reader_schemas)

    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer; a topic cannot be overwritten. The schema is as :meth:`reader`'s."""
        from pykafka_wire.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a streaming writer; with output mode complete every row of every batch is written."""
        from pykafka_wire.sink.writer import stream_writer

        return stream_writer(self.options, schema)
