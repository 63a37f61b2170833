"""A batch read: the driver finds its offsets once, the tasks read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import check_selection, check_source_schema, spark_schema
from pykafka_wire.concise_errors import with_concise_errors
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.source import SourceOptions, parse_source_options
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.source.optional_push_filters import OptionalPushFilters
from pykafka_wire.source.planning.filter_pushdown import NO_PRUNING, prune
from pykafka_wire.source.spark_task import read_partition
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.topic_partitions import OffsetRange
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pykafka_wire.source.reader_schema import ReaderSchemas

_log = logging.getLogger(__name__)


def batch_reader(
    given: Mapping[str, str], schema: StructType | pa.Schema, reader_schemas: ReaderSchemas | None
) -> DataSourceReader:
    """Return a reader of the options' records, once: Spark's, or Sail's, which passes Arrow's schema.

    Raises:
        OptionError, SchemaError: what the user gave cannot be.
    """
    options = parse_source_options(given, "batch")
    check_selection(schema, options.columns)
    log_warnings(options.warnings)
    if not isinstance(schema, StructType):
        return SailBatchReader(options, schema, reader_schemas)
    return KafkaBatchReader(options, schema, reader_schemas)


@with_concise_errors
class KafkaBatchReader(SentToWorkers, DataSourceReader):
    """Reads the offsets between ``startingOffsets`` and ``endingOffsets``. Built without any I/O: Spark pickles it.

    Spark keeps the plan of a ``reader()`` with the loaded frame: a frame that runs twice reads the same offsets twice. The JVM
    connector looks up the offsets again.
    """

    def __init__(self, options: SourceOptions, schema: StructType, reader_schemas: ReaderSchemas | None = None) -> None:
        """Take the ``reader_schemas`` that ``load()`` has got, None where the user gave the schema."""
        columns = options.typed_columns
        check_source_schema(schema, typed=columns.names, added_columns=columns.added_columns)
        self._options = options
        self._schema = schema
        self._reader_schemas = reader_schemas
        self.pruning = NO_PRUNING
        if options.filter_pushdown:
            self.pushFilters = OptionalPushFilters(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Any]) -> list[Any]:  # Any: Spark's filters, which 4.0 does not have
        """Note what filters leave of the topics; Spark applies all of them again."""
        self.pruning = prune(filters)
        _log.info("Reading under filters %s: %s", filters, self.pruning)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return one input partition for each share of the ranges; runs on the driver.

        Raises:
            WireError: brokers cannot be reached, or a topic does not exist.
            OptionError, OffsetsError: offsets do not fit the topics.
            DataLossError: the first offsets have aged out, or what a checkpoint has is lost, and ``failOnDataLoss`` is true.
        """
        from pykafka_wire.source.planning.batch_ranges import (
            plan_ranges,  # the tasks load this module, and need none of these
        )
        from pykafka_wire.source.planning.batch_tasks import find_record_sizes, plan_input_partitions
        from pykafka_wire.source.planning.record_size_estimates import RecordSizes

        options = self._options
        reader_schemas = self._find_reader_schemas()
        cluster = shared_cluster(options.client)
        ranges = plan_ranges(cluster, options, self.pruning)
        record_sizes = find_record_sizes(options, ranges, RecordSizes(cluster))
        return plan_input_partitions(cluster, options, ranges, record_sizes, reader_schemas=reader_schemas)

    def _find_reader_schemas(self) -> dict[str, Any]:
        """Return what the tasks need of the typed columns' schemas."""
        options = self._options
        if not options.typed_columns.typed:
            return {}
        from pykafka_wire.source.dataframe_types import check_types
        from pykafka_wire.source.reader_schema import find_reader_schemas, for_tasks, read_columns

        wanted = read_columns(options.typed_columns, self._schema.names)
        readers = self._reader_schemas
        if readers is None:
            readers = find_reader_schemas(
                options.typed_columns, wanted, shared_cluster(options.client), options.subscription, has_types=True
            )
            check_types(readers, options.typed_columns, self._schema, wanted=wanted)
        return for_tasks({column.name: readers[column.name] for column in wanted}, options.typed_columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of one input partition; runs on an executor."""
        yield from read_partition(self._options, self._schema, partition)

    def partitions_of(self, ranges: Sequence[OffsetRange]) -> Sequence[KafkaInputPartition]:
        """Return the input partitions of ranges that existed a moment ago, as the options divide them. Asks no broker about the
        ranges: the read finds lost records."""
        from pykafka_wire.source.planning.batch_tasks import plan_input_partitions

        cluster = shared_cluster(self._options.client)
        return plan_input_partitions(cluster, self._options, ranges, {}, reader_schemas=self._find_reader_schemas())

    def failing_on_data_loss(self) -> KafkaBatchReader:
        """Return a reader that raises DataLossError where records are lost, whatever ``failOnDataLoss`` says."""
        return KafkaBatchReader(replace(self._options, fail_on_data_loss=True), self._schema, self._reader_schemas)


@with_concise_errors
class SailBatchReader(KafkaBatchReader):
    """The reader for Sail, which passes Arrow's schema to a data source, and expects batches of exactly that schema.

    Timestamps may have another zone's name there or none, lists other names (seen in pysail 0.7.2).
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema, reader_schemas: ReaderSchemas | None = None) -> None:
        super().__init__(options, spark_schema(schema), reader_schemas)
        self._arrow_schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of one input partition; runs where Sail does."""
        for batch in super().read(partition):
            columns = [column.cast(field.type) for column, field in zip(batch.columns, self._arrow_schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
