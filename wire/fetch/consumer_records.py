"""What one poll of a consumer returns: records as Arrow columns, or one by one.

It only looks at records that are decoded already; :mod:`~pykafka_wire.wire.consumer` makes them out of what
:mod:`~pykafka_wire.wire.fetch.continuous_fetch` has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from pykafka_wire.wire.fetch.fetched_records import FetchedRecords, partition_column, topic_column
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.topic_partitions import TopicPartition


class ConsumerRecord(NamedTuple):
    """One record; ``timestamp_ms`` is -1 where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecords:
    """What one poll brought; iterating gives :class:`ConsumerRecord`, :meth:`to_arrow` columns. Empty, it is false.

    Attributes:
        ended: partitions whose end was reached, for the first time since records came: all of them are handed out.
    """

    fetched: FetchedRecords | None = None
    ended: tuple[TopicPartition, ...] = ()

    def __len__(self) -> int:
        return 0 if self.fetched is None else self.fetched.records.n_records

    def __iter__(self) -> Any:  # Any: an iterator of records, out of untyped Arrow values
        if self.fetched is None:
            return
        records, ranges = self.fetched.records, self.fetched.ranges
        none = [None] * records.n_records
        for index, offset, timestamp, key, value, headers in zip(
            records.slice_index.tolist(),
            records.offset.tolist(),
            records.timestamp.tolist(),
            none if records.key is None else records.key.to_pylist(),
            none if records.value is None else records.value.to_pylist(),
            none if records.headers is None else records.headers.to_pylist(),
            strict=True,
        ):
            pairs = tuple((header["key"], header["value"]) for header in headers or ())
            topic, partition = ranges[index].topic_partition
            yield ConsumerRecord(topic, partition, offset, timestamp, key, value, pairs)

    def to_arrow(self) -> Any:  # Any: pyarrow has no types
        """A pa.RecordBatch: topic, partition, offset, timestamp (ms, UTC), key, value, headers; without those columns that
        the consumer leaves out."""
        if self.fetched is None:
            return pa.RecordBatch.from_pydict({})
        records, ranges = self.fetched.records, self.fetched.ranges
        columns = {
            "topic": topic_column(records, ranges),
            "partition": partition_column(records, ranges),
            "offset": to_arrow(records.offset),
            "timestamp": to_arrow(records.timestamp).view(pa.timestamp("ms", tz="UTC")),
            "key": records.key,
            "value": records.value,
            "headers": records.headers,
        }
        return pa.RecordBatch.from_pydict({name: column for name, column in columns.items() if column is not None})
