"""What a task does: fetch its ranges from their leaders, and hand the records to Spark as Arrow record batches.

Runs on executors, in Python workers that Spark reuses: connections live on in the process (one cluster per settings).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pykafka_wire.errors import DataLossError, Loss, describe_loss
from pykafka_wire.options import SourceOptions
from pykafka_wire.schema import decoded_columns
from pykafka_wire.source.resolve import earliest_offsets
from pykafka_wire.wire.cluster import shared_cluster
from pykafka_wire.wire.decode import DecodedRecords
from pykafka_wire.wire.errors import OffsetOutOfRangeError
from pykafka_wire.wire.fetcher import fetch_ranges
from pykafka_wire.wire.topics import OffsetRange, TopicPartition

_log = logging.getLogger(__name__)


def read_ranges(options: SourceOptions, ranges: Sequence[OffsetRange], schema: Any) -> Iterator[Any]:
    """Arrow record batches of the records in ``ranges``, exactly of ``schema`` (pyarrow's), in order within each range.

    Raises:
        DataLossError: offsets of a range have aged out, and ``failOnDataLoss`` is true.
    """
    cluster = shared_cluster(options.client)
    columns = decoded_columns(tuple(schema.names))
    remaining = list(ranges)
    while remaining:
        positions = {r: r.start_offset for r in remaining}
        try:
            for fetched in fetch_ranges(
                cluster,
                remaining,
                columns=columns,
                isolation_level=options.client.isolation_level,
                deadline_ms=options.poll_timeout_ms,
            ):
                positions.update(zip(fetched.ranges, map(int, fetched.positions), strict=True))
                if fetched.records.n_records:
                    yield record_batch(fetched.records, fetched.ranges, schema)
            return
        except OffsetOutOfRangeError as error:
            lost = TopicPartition(error.topic or "", -1 if error.partition is None else error.partition)
            remaining = [
                replace(r, start_offset=position) for r, position in positions.items() if position < r.end_offset
            ]
            remaining = _skip_lost(options, remaining, lost, error)


def _skip_lost(
    options: SourceOptions, ranges: list[OffsetRange], lost: TopicPartition, error: OffsetOutOfRangeError
) -> list[OffsetRange]:
    """Ranges without what has aged out of the topic-partition ``lost``."""
    earliest = earliest_offsets(shared_cluster(options.client), [lost])[lost]
    kept = []
    for r in ranges:
        if r.topic_partition == lost:
            # An offset beyond the log's end is a truncated log: nothing of the range is left.
            new_start = min(r.end_offset, earliest) if earliest > r.start_offset else r.end_offset
            loss = Loss.START_OFFSET_OUT_OF_RANGE if earliest > r.start_offset else Loss.RANGE_UNREADABLE
            gone = [(lost, r.start_offset, new_start)]
            if options.fail_on_data_loss:
                raise DataLossError(loss, gone, str(error)) from error
            _log.warning("Skipped lost records: %s", describe_loss(loss, gone, str(error)))
            r = replace(r, start_offset=new_start)
        if r.n_offsets:
            kept.append(r)
    return kept


def record_batch(records: DecodedRecords, ranges: Sequence[OffsetRange], schema: Any) -> Any:
    """An Arrow record batch of decoded records: the columns that ``schema`` names, in its order."""
    arrays = [_column(name, records, ranges) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, records: DecodedRecords, ranges: Sequence[OffsetRange]) -> Any:
    if name == "key":
        return records.key
    if name == "value":
        return records.value
    if name == "headers":
        return records.headers
    if name == "offset":
        return pa.array(records.offset)
    if name == "partition":
        return pa.array(np.array([r.partition for r in ranges], dtype=np.int32)[records.slice_index])
    if name == "timestamp":
        # Spark's timestamps count microseconds, Kafka's milliseconds.
        return pa.array(records.timestamp * 1000).view(pa.timestamp("us", tz="UTC"))
    if name == "timestampType":
        return pa.array(records.timestamp_type)
    topics = list(dict.fromkeys(r.topic for r in ranges))
    if len(topics) == 1:
        return _repeat(topics[0].encode(), records.n_records)
    topic_index = np.array([topics.index(r.topic) for r in ranges], dtype=np.int32)
    return pa.array(topics).take(pa.array(topic_index[records.slice_index]))


def _repeat(text: bytes, n: int) -> Any:
    offsets = np.arange(0, (n + 1) * len(text), len(text), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(text * n)])
