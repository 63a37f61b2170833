"""A task: fetches its ranges from their leaders, and makes Arrow record batches of the records.

Runs on executors, in Python workers that Spark reuses: connections stay open in the process (one client per settings).
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import Loss
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.names import PREFIX
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.data_loss import DataLossReporter, LostRange
from pykafka_wire.task_metrics import DriverReceiver, TaskFigures, receiver_of_job
from pykafka_wire.wire.arrow.arrays import to_arrow
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import (
    BrokerError,
    LogEndError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicError,
    WireError,
)
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.fetch.fetched_records import FetchCounters, partition_column, topic_column
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.process_clients import shared_batch_cache, shared_cluster
from pykafka_wire.wire.records.decode import Columns, DecodedRecords
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange

if TYPE_CHECKING:
    from pykafka_wire.source.typed_decoding import ColumnDecoder

_log = logging.getLogger(__name__)

#: So many brokers are asked, at random, before a task skips a topic as deleted or recreated; each may take so long.
_N_BROKERS: Final = 3
_BROKER_MS: Final = 5_000
#: Spark keeps a timestamp as microseconds in an int64.
_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
#: 0001-01-02 and 9999-12-31 in UTC: Python has these days in every zone.
_FIRST_DAY_MS: Final = -62_135_510_400_000
_LAST_DAY_MS: Final = 253_402_214_400_000


def read_ranges(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    query: str = "",
    reader_schemas: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
    receiver: DriverReceiver | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow record batches of the records in ``ranges``, exactly of ``schema`` (pyarrow's), in order within each range.

    Args:
        cluster: whose connections are used; those that all tasks of this process share when None.
        query: the checkpoint's id of the query, for reports of lost ranges.
        reader_schemas: of typed columns, as the input partition has them.
        receiver: gets the task's figures, where ``taskMetrics`` has it so. Without the option the job may ask for them.

    Raises:
        ValueFormatError: a key or value cannot be decoded, and its policy is to fail.
        RegistryError: the schema registry does not respond.
        DataLossError: offsets of a range are lost, and ``failOnDataLoss`` is true.
        WireError: brokers could not be reached, or refused, for longer than ``kafkaConsumer.pollTimeoutMs``.
    """
    cache = shared_batch_cache(options.client) if cluster is None else None
    cluster = cluster or shared_cluster(options.client)
    asked = None if options.task_metrics == "driver" else options.task_metrics
    target = receiver or asked or receiver_of_job()
    if target is None:
        yield from _read(cluster, cache, options, ranges, schema, query, reader_schemas, FetchCounters(), Counter())
        return
    before, counters, lost = cluster.counters.totals(), FetchCounters(), Counter[str]()
    begun_at = resumed_at = time.perf_counter()
    read_s = 0.0
    try:
        # A reader that is dropped early has ended its requests before its figures are sent.
        with contextlib.closing(
            _read(cluster, cache, options, ranges, schema, query, reader_schemas, counters, lost)
        ) as batches:
            for batch in batches:
                read_s += time.perf_counter() - resumed_at
                resumed_at = math.inf  # its rows are taken
                yield batch
                resumed_at = time.perf_counter()
    finally:
        ended_at = time.perf_counter()
        target.send(
            TaskFigures.of_client(
                cluster.counters.totals().since(before),
                retries=counters.n_retries,
                fetches=counters.n_responses,
                records_consumed=counters.n_records,
                bytes_consumed=counters.n_bytes,
                lost_ranges=lost["ranges"],
                lost_offsets=lost["offsets"],
                read_s=read_s + max(0.0, ended_at - resumed_at),
                task_s=ended_at - begun_at,
            )
        )


def _read(  # noqa: PLR0913
    cluster: Cluster,
    cache: BatchCache | None,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    query: str,
    reader_schemas: Mapping[str, Any] | None,
    counters: FetchCounters,
    lost: Counter[str],
) -> Generator[pa.RecordBatch, None, None]:
    """Return what :func:`read_ranges` does; counts what was fetched, and the ``ranges`` and ``offsets`` that were lost and
    skipped."""
    columns = decoded_columns(tuple(schema.names))
    decoders = _decoders(options, schema, reader_schemas or {})
    if any(decoder.needs_headers for decoder in decoders):
        columns = replace(columns, headers=True)
    remaining = list(ranges)
    while remaining:
        positions = [r.start_offset for r in remaining]
        try:
            for fetched in fetch_ranges(
                cluster,
                remaining,
                columns=columns,
                isolation_level=options.client.isolation_level,
                deadline_ms=options.poll_timeout_ms,
                counters=counters,
                cache=cache,
            ):
                for index, position in fetched.positions.items():
                    positions[index] = position
                if fetched.records.n_records:
                    yield from record_batches(fetched.records, fetched.ranges, schema, decoders)
                del fetched  # or it would stay in memory while the next response is received and decoded
            return
        except _LOST as error:
            moved = [replace(r, start_offset=p) for r, p in zip(remaining, positions, strict=True) if p < r.end_offset]
            if isinstance(error, UnknownTopicError | TopicRecreatedError) and _is_known_to_a_broker(
                cluster, moved, error
            ):
                raise
            losses = DataLossReporter(options, query=query)
            remaining = _skip_lost(losses, moved, error)
            lost.update(ranges=losses.n_ranges, offsets=losses.n_offsets)


#: What a fetch raises when a part of a range no longer exists.
_LOST: Final = (OffsetOutOfRangeError, LogEndError, LogTruncatedError, TopicRecreatedError, UnknownTopicError)


def _may_come_back(r: OffsetRange, error: WireError) -> bool:
    """Return whether the range may still be there in spite of ``error``: then Spark's next attempt of the task decides."""
    if isinstance(error, OffsetOutOfRangeError):
        if error.log_start_offset is None or error.log_end_offset is None:
            return True
        return error.log_start_offset <= r.start_offset <= error.log_end_offset
    # A transaction is open, or replicas trail: the records appear later.
    readable_later = max(error.high_watermark, error.log_end_offset or 0) if isinstance(error, LogEndError) else -1
    return readable_later >= r.end_offset


def _is_known_to_a_broker(cluster: Cluster, ranges: Sequence[OffsetRange], error: WireError) -> bool:
    """Return whether a broker knows the topic of ``error`` as it was when the ranges were planned, or may not describe it to us.

    A single broker that lags behind is no proof of a loss.
    """
    from pykafka_wire.wire.cluster.describe import topics_by_broker  # hardly any worker needs it

    planned = [r for r in ranges if r.topic == error.topic]
    node_ids = list(cluster.metadata.brokers())
    asked = random.sample(node_ids, min(_N_BROKERS, len(node_ids)))
    for response in topics_by_broker(cluster, asked, {r.topic for r in planned}, broker_ms=_BROKER_MS).values():
        for r in planned:
            topic = response.get(r.topic)
            if isinstance(topic, BrokerError):
                if topic.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    return True
            elif topic is not None and r.partition in topic.partitions and r.topic_id in (ZERO_UUID, topic.topic_id):
                return True
    return False


def _skip_lost(losses: DataLossReporter, ranges: Sequence[OffsetRange], error: WireError) -> list[OffsetRange]:
    """Return ranges without the lost part that ``error`` found.

    Raises:
        DataLossError: where ``failOnDataLoss`` is true; the error itself where it names none of the ranges, or does not
            prove a loss.
    """
    kept: list[OffsetRange] = []
    lost: list[LostRange] = []
    loss = Loss.RANGE_UNREADABLE
    for r in ranges:
        if r.topic != error.topic or (error.partition is not None and r.partition != error.partition):
            kept.append(r)
            continue
        if _may_come_back(r, error):
            raise error
        next_offset = r.end_offset
        if isinstance(error, OffsetOutOfRangeError):
            if error.log_start_offset is not None and r.start_offset < error.log_start_offset:
                next_offset = min(r.end_offset, error.log_start_offset)
                loss = Loss.START_OFFSET_OUT_OF_RANGE
        elif isinstance(error, LogTruncatedError):
            loss = Loss.LOG_TRUNCATED
        elif isinstance(error, TopicRecreatedError):
            loss = Loss.TOPIC_RECREATED
        elif isinstance(error, UnknownTopicError):
            loss = Loss.PARTITIONS_DELETED
        lost.append((r.topic_partition, r.start_offset, next_offset))
        if next_offset < r.end_offset:
            kept.append(replace(r, start_offset=next_offset))
    if not lost:
        raise error
    losses.report(loss, lost, detail=error.with_prefix(PREFIX).text, topic_ids={r.topic: r.topic_id for r in ranges})
    return kept


def _decoders(options: SourceOptions, schema: pa.Schema, reader_schemas: Mapping[str, Any]) -> Sequence[ColumnDecoder]:
    if not options.typed_columns.typed:
        return ()
    from pykafka_wire.source.typed_decoding import column_decoders  # which a read of binary columns does not load

    return column_decoders(options.typed_columns, schema, reader_schemas)


def record_batches(
    records: DecodedRecords, ranges: Sequence[OffsetRange], schema: pa.Schema, decoders: Sequence[ColumnDecoder]
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow record batches of decoded records: one, or where columns are typed so many that little is in memory at a
    time."""
    if not decoders:
        yield record_batch(records, ranges, schema)
        return
    from pykafka_wire.source.typed_decoding import decode_slices

    for piece, typed, skipped in decode_slices(records, ranges, decoders):
        batch = record_batch(piece, ranges, schema, typed)
        if skipped:
            kept = np.ones(batch.num_rows, dtype=np.bool_)
            kept[np.concatenate(skipped)] = False
            batch = batch.filter(pa.array(kept))
        if batch.num_rows:
            yield batch


def record_batch(
    records: DecodedRecords,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    typed: Mapping[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """Return an Arrow record batch of decoded records: the columns that ``schema`` names, in its order; ``typed`` has decoded
    ones."""
    arrays = [typed[name] if typed and name in typed else _column(name, records, ranges) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, records: DecodedRecords, ranges: Sequence[OffsetRange]) -> pa.Array:
    if name == "key":
        return records.key
    if name == "value":
        return records.value
    if name == "headers":
        return records.headers
    if name == "offset":
        return to_arrow(records.offset)
    if name == "partition":
        return partition_column(records, ranges)
    if name == "timestamp":
        return _timestamps(records, ranges)
    if name == "timestampType":
        return to_arrow(records.timestamp_type)
    return topic_column(records, ranges)


def _timestamps(records: DecodedRecords, ranges: Sequence[OffsetRange]) -> pa.Array:
    """Return Spark's timestamps, which count microseconds, of Kafka's milliseconds.

    A producer that sends nanoseconds exceeds Spark's (SPARK-56243). Such a record gets the last day that Python has: so the record
    is behind all others, and makes neither the topic unreadable nor the rows that are collected in Python.
    """
    timestamp = records.timestamp
    too_far = np.flatnonzero((timestamp > _MAX_TIMESTAMP_MS) | (timestamp < -_MAX_TIMESTAMP_MS))
    if too_far.size:
        first = int(too_far[0])
        place = str(ranges[int(records.slice_index[first])].topic_partition)
        if is_first("", "timestamp", place):
            _log.warning(
                "The record at %s offset %d has the timestamp %d ms, which a timestamp in microseconds, as Spark's are, cannot "
                "hold: the record is read with the timestamp 9999-12-31. Did its producer send micro- or nanoseconds? Only the "
                "first such record of a partition is logged.",
                place,
                int(records.offset[first]),
                int(timestamp[first]),
            )
        timestamp = timestamp.copy()
        timestamp[too_far] = np.where(timestamp[too_far] > 0, _LAST_DAY_MS, _FIRST_DAY_MS)
    return to_arrow(timestamp * 1000).view(pa.timestamp("us", tz="UTC"))


_OF_VALUES: Final = frozenset({"value", "valueError", "valueSchemaId", "valueSchemaName"})


def decoded_columns(names: tuple[str, ...]) -> Columns:
    """Return what the decoder must decode for these columns; topic, partition and offset come with every record."""
    return Columns(
        key="key" in names or "keyError" in names,
        value=not _OF_VALUES.isdisjoint(names),
        headers="headers" in names,
        timestamp="timestamp" in names,
        timestamp_type="timestampType" in names,
    )
