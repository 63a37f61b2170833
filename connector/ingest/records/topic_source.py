"""The undecoded records of one table's topic, and the options that every read of a range needs.

A batch read asks the brokers for the topic and the ends of its log before its tasks begin. A range of few records is read in this
process, without these questions: a micro-batch has just planned the range. If the records turn out to be lost, the range is read
again as a planned read, which reports the loss as the options say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pykafka_wire.columns.value_formats import NEED_SCHEMA
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import DataLossError
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.topic_log import middle_of_log
from pykafka_wire.ingest.settings.model import ReadSettings, Settings
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.wire.errors import (
    LogEndError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicError,
)

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

#: At most this many records are read without a plan.
_FEW_RECORDS: Final = 1000
#: The number of a table's sources that stay open: one for its rows, one for its bytes, and one for each column that is surveyed.
_N_OPENED: Final = 4
#: The options with a range, in lower case.
_RANGE_OPTIONS: Final = frozenset(("startingoffsets", "endingoffsets"))
_FORMAT_OPTIONS: Final = frozenset(("valueformat", "keyformat"))
#: What an unplanned read raises if its records may be lost.
_LOST: Final = (
    DataLossError, LogEndError, LogTruncatedError, OffsetOutOfRangeError, TopicRecreatedError, UnknownTopicError,
)  # fmt: skip


class OpenedSource(NamedTuple):
    """The columns of a read, and its reader."""

    schema: StructType
    reader: KafkaBatchReader


class TopicSource:
    """Reads ranges of a topic as bytes, for one table."""

    def __init__(self, settings: Settings, reading: ReadSettings) -> None:
        """Store the ingest's settings, and the table's read settings."""
        self._kafka_options = settings.kafka_options
        self._checkpoint = settings.checkpoint
        self._reading = reading
        #: Sources without a range, by their options. The newest few, since only the types of inferred JSON change the options.
        self._opened: dict[frozenset[tuple[str, str]], OpenedSource] = {}

    def options(self, topic_range: TopicRange) -> dict[str, str]:
        """Return the options of every read of a range. The table's own options decide whether lost records fail the read."""
        of_table = {name.lower(): value for name, value in self._reading.options.items()}
        return {
            **self._kafka_options,
            "failOnDataLoss": of_table.get("failondataloss", "true"),
            **topic_range.options(self._checkpoint),
        }

    def rows(self, session: SparkSession, topic_range: TopicRange, **more: Any) -> DataFrame:
        """Return a range as the source returns it, with ``more`` options of the source."""
        return session.read.format("pykafka-wire").options(**self.options(topic_range), **more).load()

    def n_records(self, session: SparkSession, topic_range: TopicRange) -> int:
        """Return the number of records in a range. Offsets of transaction markers and of compacted records have no record."""
        return self.rows(session, topic_range, columns="offset").count()

    def middle_in_time(self, topic_range: TopicRange) -> Mapping[int, int] | None:
        """Return where a moment divides a range, as :func:`~pykafka_wire.ingest.records.topic_log.middle_of_log`."""
        return middle_of_log(self._kafka_options, topic_range)

    def raw(self, session: SparkSession, topic_range: TopicRange) -> DataFrame:
        """Return a range's records as bytes, with their headers."""
        return self.rows(session, topic_range, includeHeaders="true")

    # In this process

    def has_few(self, topic_range: TopicRange) -> bool:
        """Return whether a range has so few records that this process reads them sooner than a Spark job or a plan begins."""
        return topic_range.n_offsets <= _FEW_RECORDS

    def read_here(
        self, topic_range: TopicRange, options: Mapping[str, str], use: Callable[[Iterator[pa.RecordBatch]], ResultT]
    ) -> ResultT:
        """Read a range in this process, and return the result of ``use`` for the batches.

        Args:
            options: the options of the range, and the columns.
            use: is called a second time, with all batches, if records of the range may be lost.
        """

        def read(reader: KafkaBatchReader, partitions: Sequence[InputPartition]) -> ResultT:
            return use(batch for partition in partitions for batch in reader.read(partition))

        def unplanned() -> ResultT:
            reader = self.opened(options).reader
            return read(reader, reader.partitions_of(topic_range.of_partitions))

        def planned() -> ResultT:
            _, reader = open_source(options)
            return read(reader, reader.partitions())

        return self.unplanned_or_planned(topic_range, unplanned, planned)

    def unplanned_or_planned(
        self, topic_range: TopicRange, unplanned: Callable[[], ResultT], planned: Callable[[], ResultT]
    ) -> ResultT:
        """Return the result of ``unplanned`` if the range has few records and none may be lost, else that of ``planned``."""
        if self.has_few(topic_range):
            try:
                return unplanned()
            except _LOST as error:
                _log.debug("Topic %s is read again with a plan.", topic_range.topic, exc_info=error)
        return planned()

    def opened(self, options: Mapping[str, str]) -> OpenedSource:
        """Return a source for :meth:`KafkaBatchReader.partitions_of`, whose reader fails where records are lost.

        It is the same one for each range, unless a registry has the schemas: these may change at any time.
        """
        options = {name: text for name, text in options.items() if name.lower() not in _RANGE_OPTIONS}
        key = frozenset(options.items())
        source = self._opened.get(key)
        if source is None:
            schema, reader = open_source(options)
            source = OpenedSource(schema, reader.failing_on_data_loss())
            formats = {text for name, text in options.items() if name.lower() in _FORMAT_OPTIONS}
            if not NEED_SCHEMA & formats:
                self._opened = dict([*self._opened.items(), (key, source)][-_N_OPENED:])
        return source


def open_source(options: Mapping[str, str]) -> OpenedSource:
    """Return the schema and the reader of a read with these options."""
    source = PykafkaWireDataSource(dict(options))
    schema = source.schema()
    assert isinstance(schema, StructType), "the options name columns or formats"
    reader = source.reader(schema)
    assert isinstance(reader, KafkaBatchReader)
    return OpenedSource(schema, reader)
