"""The records of one table's topic as Kafka has them: the options of every read of a range, and reads of undecoded values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from pykafka_wire.arrow_reader import read_topic
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.settings.model import ReadSettings, Settings

#: So many times more records are looked at where none of the first ones has a document.
_MORE_DOCUMENTS: Final = 32


class TopicSource:
    """Reads ranges of a topic for one table, as bytes."""

    def __init__(self, settings: Settings, reading: ReadSettings) -> None:
        """Take the ingest's settings, and those by which the table reads."""
        self._kafka_options = settings.kafka_options
        self._checkpoint = settings.checkpoint
        self._reading = reading

    def options(self, part: TopicRange) -> dict[str, str]:
        """Return the options of every read of a range; the table's own say whether lost records fail the read."""
        of_table = {name.lower(): value for name, value in self._reading.options.items()}
        return {
            **self._kafka_options,
            "failOnDataLoss": of_table.get("failondataloss", "true"),
            **part.options(self._checkpoint),
        }

    def rows(self, session: SparkSession, part: TopicRange, **more: Any) -> DataFrame:
        """Return a range as the source has it, with ``more`` options of the source."""
        return session.read.format("pykafka-wire").options(**self.options(part), **more).load()

    def n_records(self, session: SparkSession, part: TopicRange) -> int:
        """Return how many records a range has; offsets of transactions and of compacted topics have none."""
        return self.rows(session, part, columns="offset").count()

    def raw(self, session: SparkSession, part: TopicRange) -> DataFrame:
        """Return a range's records as bytes, with their headers."""
        return self.rows(session, part, includeHeaders="true")

    def documents(self, part: TopicRange, column: str, *, at_end: bool) -> Iterator[bytes]:
        """Yield some documents of each partition from one end of a range on: tombstones and offsets without a record have none."""
        unread, n = {p for p, end in part.end.items() if end > part.start[p]}, 1
        while unread:
            start = {p: max(part.start[p], part.end[p] - n) if at_end else part.start[p] for p in unread}
            end = {p: part.end[p] if at_end else min(part.end[p], part.start[p] + n) for p in unread}
            options = self.options(replace(part, start=start, end=end))
            for batch in read_topic(options, columns=["partition", column]):
                for partition, document in zip(*(batch.column(i).to_pylist() for i in range(2)), strict=True):
                    if document is not None:
                        unread.discard(partition)
                        yield document
            unread = {p for p in unread if part.end[p] - part.start[p] > n}
            n *= _MORE_DOCUMENTS


def open_source(options: Mapping[str, str]) -> tuple[StructType, DataSourceReader]:
    """Return the schema of a read of these options, and what reads it."""
    source = PykafkaWireDataSource(dict(options))
    schema = source.schema()
    assert isinstance(schema, StructType), "the options name columns or formats"
    return schema, source.reader(schema)


def read_here(options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a read, which this process reads."""
    _, reader = open_source(options)
    for partition in reader.partitions():
        yield from reader.read(partition)
