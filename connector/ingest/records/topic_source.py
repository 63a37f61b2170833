"""The undecoded records of one table's topic, and the options that every read of a range needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.settings.model import ReadSettings, Settings

#: If none of the first records has a document, this many times more records are read.
_MORE_DOCUMENTS: Final = 32
#: So many records are read once, rather than twice at their ends: each read asks brokers for topics and offsets.
_FEW_RECORDS: Final = 1000


class TopicSource:
    """Reads ranges of a topic as bytes, for one table."""

    def __init__(self, settings: Settings, reading: ReadSettings) -> None:
        """Store the ingest's settings, and the table's read settings."""
        self._kafka_options = settings.kafka_options
        self._checkpoint = settings.checkpoint
        self._reading = reading

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

    def raw(self, session: SparkSession, topic_range: TopicRange) -> DataFrame:
        """Return a range's records as bytes, with their headers."""
        return self.rows(session, topic_range, includeHeaders="true")

    def end_documents(self, topic_range: TopicRange, column: str) -> Iterator[bytes]:
        """Yield the first and the last document of each partition. Tombstones and offsets without a record have no document."""
        if topic_range.n_offsets <= _FEW_RECORDS:
            for found in self._ends(topic_range, column):
                yield from found.values()
            return
        for at_end in (False, True):
            unread, n = {p for p, end in topic_range.end.items() if end > topic_range.start[p]}, 1
            while unread:
                start = {
                    p: max(topic_range.start[p], topic_range.end[p] - n) if at_end else topic_range.start[p]
                    for p in unread
                }
                end = {
                    p: topic_range.end[p] if at_end else min(topic_range.end[p], topic_range.start[p] + n)
                    for p in unread
                }
                found = self._ends(replace(topic_range, start=start, end=end), column)[at_end]
                yield from found.values()
                unread = {p for p in unread - found.keys() if topic_range.end[p] - topic_range.start[p] > n}
                n *= _MORE_DOCUMENTS

    def _ends(self, topic_range: TopicRange, column: str) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Return the first and the last document of each partition that has one."""
        first, last = dict[int, bytes](), dict[int, bytes]()
        for batch in read_here({**self.options(topic_range), "columns": f"partition,{column}"}):
            for partition, document in zip(*(batch.column(i).to_pylist() for i in range(2)), strict=True):
                if document is not None:
                    first.setdefault(partition, document)
                    last[partition] = document
        return first, last


def open_source(options: Mapping[str, str]) -> tuple[StructType, DataSourceReader]:
    """Return the schema and the reader of a read with these options."""
    source = PykafkaWireDataSource(dict(options))
    schema = source.schema()
    assert isinstance(schema, StructType), "the options name columns or formats"
    return schema, source.reader(schema)


def read_here(options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a read that this process executes."""
    _, reader = open_source(options)
    for partition in reader.partitions():
        yield from reader.read(partition)
