"""Collects records for whoever writes them: one by one, or whole Arrow columns, to the partition that Java's producer would choose.

Owns what waits to be encoded, and the encoding. Partitions are chosen in :mod:`~pykafka_wire.wire.produce.partitioner`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.wire import forks
from pykafka_wire.wire.arrow.arrays import to_arrow
from pykafka_wire.wire.errors import RecordsNotWrittenError, WireError
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_parts
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Single records are encoded together: at so many bytes of keys and values, or so many records, without waiting for flush.
_COLLECT_BYTES: Final = 1024 * 1024
_COLLECT_RECORDS: Final = 10_000
#: What waits of all topics has at most this share of ``buffer.memory``, which the encoded batches have for themselves.
_COLLECT_SHARE: Final = 4
#: Rows of a table are put in the order of their partitions, which copies them, so many bytes or rows at a time. Encoding takes some
#: 150 bytes for each row.
_ENCODE_BYTES: Final = 32 * 1024 * 1024
_ENCODE_ROWS: Final = 1 << 19
#: What a record takes beside its key, value and headers while it waits.
_RECORD_BYTES: Final = 150
#: What a header counts for beside its name and value: less than it takes, since it costs time to encode fewer records at once.
_HEADER_BYTES: Final = 16
#: Of the rows of a table that become one array for each column: an array of bytes holds less than 2 GiB.
_MAX_COLUMN_BYTES: Final = 1 << 30
_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIMESTAMP_MS: Final = 2**63 - 1

_Header = tuple[str, bytes | None]
Headers = Sequence[_Header]


class BatchSink(Protocol):
    """Writes encoded batches: a producer, or a transaction."""

    def partitions_for(self, topic: str) -> int:
        """Return how many partitions a topic has."""

    def max_batch_bytes(self, topic: str) -> int | None:
        """Return the largest record batch that a topic accepts, None if it is unknown."""

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches for a topic-partition, in this order. Raises WireError."""


class _WaitingRecords:
    """Records of one topic that wait to be encoded."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[list[_Header] | None] = []
        self.timestamps: list[int] = []
        self.partitions: list[int] = []
        self.n_bytes = 0
        #: They are encoded before more are collected; 0 once they wait apart.
        self.max_bytes = _COLLECT_BYTES

    @property
    def n_held(self) -> int:
        """Return the bytes that they take."""
        return self.n_bytes + _RECORD_BYTES * len(self.values)


class RecordSender:
    """Base class of what records are sent by. After an error every call raises that error."""

    def __init__(self, settings: ClientSettings, sink: BatchSink) -> None:
        self._settings = settings
        self._sink = sink
        self._codec = Codec[settings.compression_type.upper()]
        self._partitioner = Partitioner(settings)
        self._waiting: dict[str, _WaitingRecords] = {}
        self._waiting_bytes = 0
        #: Of topics that were not available when all were to be encoded: they wait apart, and must not stop the others.
        self._apart_bytes = 0
        self._max_waiting_bytes = settings.buffer_memory // _COLLECT_SHARE
        self._error: WireError | None = None
        self._fork_generation = forks.generation

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record. Without a partition ``partitioner.class`` chooses one, by default as Java's producer does.

        Raises:
            TypeError, ValueError: the record cannot be encoded; it was not queued.
            WireError: an earlier record has failed, or the topic's partitions are not available; the record was not queued.
        """
        if self._error is not None or self._fork_generation != forks.generation:
            self._raise_failure()
        # All that could fail in encoding fails here: a record that was queued would fail with all the others.
        if value is not None and type(value) is not bytes:
            value = _as_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = _as_bytes(key, "key")
        n_bytes = len(key or b"") + len(value or b"")
        row_headers = None
        if headers:
            row_headers, header_bytes = _as_headers(headers)
            n_bytes += header_bytes
        if timestamp_ms is None:
            timestamp_ms = _now_ms()
        elif not 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms must be between 0 and {_MAX_TIMESTAMP_MS}, not {timestamp_ms!r}")
        if partition is None:
            partition = -1
        elif not 0 <= partition <= _MAX_PARTITION:
            raise ValueError(f"partition must be between 0 and {_MAX_PARTITION}, not {partition!r}")
        rows = self._waiting.get(topic)
        if rows is not None and (rows.n_bytes >= rows.max_bytes or len(rows.values) >= _COLLECT_RECORDS):
            self._encode_waiting(topic)  # may fail, so it comes first: a record whose send() failed is not queued
            rows = None
        elif self._waiting_bytes >= self._max_waiting_bytes:  # of many topics
            self._encode_available(topic)
            rows = None
        if rows is None:
            if (
                self._apart_bytes >= self._max_waiting_bytes
            ):  # of many topics: a topic that is no better must not add to them
                self._look_up(topic, np.array([partition]))
            rows = self._waiting[topic] = _WaitingRecords()
        rows.keys.append(key)
        rows.values.append(value)
        rows.headers.append(row_headers)
        rows.timestamps.append(int(timestamp_ms))
        rows.partitions.append(int(partition))
        rows.n_bytes += n_bytes
        self._waiting_bytes += n_bytes + _RECORD_BYTES

    def send_arrow(self, topic: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Queue the rows of a pa.Table or pa.RecordBatch: columns ``value`` and, where they exist, ``key``, ``headers``,
        ``partition`` and ``timestamp`` (a timestamp, or int64 in ms). Text and bytes are both accepted.

        Raises:
            ValueError: there is no column ``value``, a timestamp before 1970, or a partition below zero.
            WireError: an earlier record has failed.
        """
        self._raise_failure()
        if "value" not in rows.schema.names:
            raise ValueError(f"there is no column value, only {', '.join(rows.schema.names)}")
        self._encode_waiting(topic)  # in the order in which they were sent
        # All that a user may have to correct is found before the first row is queued.
        parts = [_columns_of(part) for part in _parts(rows, _MAX_COLUMN_BYTES)]
        for part in parts:
            self._look_up(topic, part.partitions)
        with self._failing():
            for part in parts:
                self._append(topic, part.keys, part.values, part.headers, part.timestamps, part.partitions)

    def _raise_failure(self) -> None:
        """Raise the error that prevents further records: an earlier error, or a fork."""
        raise NotImplementedError

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = self._apart_bytes = 0

    def _encode_all(self) -> None:
        for topic in list(self._waiting):
            self._encode_waiting(topic)

    def _encode_available(self, sent: str) -> None:
        """Encode what waits of all topics but those that are not available: these wait apart until they are sent to again, or
        flushed.

        Raises WireError where the producer has failed, or ``sent`` is not available, the topic that a record is sent to."""
        for topic in [topic for topic, rows in self._waiting.items() if rows.max_bytes]:
            try:
                self._encode_waiting(topic)
            except WireError as error:
                if self._error is not None:
                    raise
                rows = self._waiting[topic]
                rows.max_bytes = 0
                self._waiting_bytes -= rows.n_held
                self._apart_bytes += rows.n_held
                logger.warning("records wait until their topic is available: %s", error)
                if topic == sent:
                    raise

    def _encode_waiting(self, topic: str) -> None:
        rows = self._waiting.get(topic)
        if rows is None:
            return
        partitions = np.array(rows.partitions, dtype=np.int32)
        # Before the records are taken: where a look-up fails, none is lost, and the next call looks again.
        self._look_up(topic, partitions)
        del self._waiting[topic]
        if rows.max_bytes:
            self._waiting_bytes -= rows.n_held
        else:
            self._apart_bytes -= rows.n_held
        with self._failing():
            self._append(
                topic,
                pa.array(rows.keys, pa.binary()),
                pa.array(rows.values, pa.binary()),
                pa.array(rows.headers, HEADERS_TYPE) if any(rows.headers) else None,
                np.array(rows.timestamps, dtype=np.int64),
                partitions,
            )

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail the producer by whatever ends the block: some of the block's records are queued and some are gone, so no later
        flush may say that all is written."""
        try:
            yield
        except WireError as error:
            self._error = error
            raise
        except BaseException as error:
            self._error = RecordsNotWrittenError(
                f"{type(error).__name__} ended the encoding of records, some of which are not queued: {error}",
                remedy="Call reset(), and send again what was not flushed.",
            )
            raise

    def _look_up(self, topic: str, partitions: npt.NDArray[np.int32]) -> None:
        """Ask for what :meth:`_append` needs to know of a topic, unless it is known."""
        if (partitions < 0).any():
            self._sink.partitions_for(topic)
        self._sink.max_batch_bytes(topic)

    def _append(
        self,
        topic: str,
        keys: pa.Array,
        values: pa.Array,
        headers: pa.Array,
        timestamps: npt.NDArray[np.int64],
        partitions: npt.NDArray[np.int32],
    ) -> None:
        n_rows = len(timestamps)
        if not n_rows:
            return
        chosen = partitions.copy()
        unassigned = np.flatnonzero(partitions < 0)
        if len(unassigned):
            row_indexes = to_arrow(unassigned)
            n_partitions = self._sink.partitions_for(topic)
            chosen[unassigned] = self._partitioner.place(
                topic, keys.take(row_indexes), values.take(row_indexes), n_partitions
            )
        n_bytes = sum(rows.nbytes for rows in (keys, values, headers) if rows is not None)
        step = max(1, min(_ENCODE_ROWS, n_rows * _ENCODE_BYTES // max(n_bytes, _ENCODE_BYTES)))
        for start in range(0, n_rows, step):
            some = slice(start, start + step)
            rows_headers = None if headers is None else headers[some]
            self._encode(topic, keys[some], values[some], rows_headers, timestamps[some], chosen[some])

    def _encode(
        self,
        topic: str,
        keys: pa.Array,
        values: pa.Array,
        headers: pa.Array,
        timestamps: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.int32],
    ) -> None:
        """Encode the rows of all partitions together, and queue their batches."""
        numbers, sizes = np.unique(chosen, return_counts=True)
        if len(numbers) > 1:
            # Of 16 bits: NumPy sorts them in a fifth of the time.
            order = np.argsort(chosen.astype(np.uint16) if numbers[-1] < 1 << 16 else chosen, kind="stable")
            row_indexes = to_arrow(order)
            keys, values, timestamps = keys.take(row_indexes), values.take(row_indexes), timestamps[order]
            headers = None if headers is None else headers.take(row_indexes)
        wanted = self._settings.batch_size or self._settings.max_request_size
        parts = encode_parts(
            key=keys,
            value=values,
            headers=headers,
            timestamp=timestamps,
            part_sizes=sizes.tolist(),
            codec=self._codec,
            level=self._settings.compression_level,
            max_batch_bytes=min(wanted, self._settings.max_request_size, self._sink.max_batch_bytes(topic) or wanted),
        )
        for part, batches in parts:
            self._sink.append(topic, int(numbers[part]), batches)


def _as_bytes(content: object, what: str) -> bytes:
    """Return text in UTF-8, and whatever holds bytes, as bytes."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{what} must be bytes or None, not {type(content).__name__}: encode it first")


def _as_headers(headers: Headers) -> tuple[list[_Header], int]:
    """Return headers as Arrow takes them, and how many bytes of ``buffer.memory`` they count for."""
    row: list[_Header] = []
    n_bytes = 0
    for name, content in headers:
        if type(name) is not str or not name.isascii():
            _require_name(name)
        if type(content) is bytes:
            n_bytes += len(content)
        elif content is not None:
            content = _as_bytes(content, f"header {name!r}")
            n_bytes += len(content)
        n_bytes += len(name)
        row.append((name, content))
    return row, n_bytes + _HEADER_BYTES * len(row)


def _require_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
    name.encode()  # raises where it has lone surrogates, which UTF-8 cannot encode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Rows of a table; ``headers`` is None if there is no such column."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    timestamps: npt.NDArray[np.int64]
    partitions: npt.NDArray[np.int32]


def _parts(rows: pa.Table | pa.RecordBatch, max_bytes: int) -> Iterator[pa.Table | pa.RecordBatch]:
    """Yield the rows in parts, in order, none of more bytes than this but for a single row."""
    if rows.nbytes <= max_bytes or rows.num_rows < 2:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _parts(rows.slice(0, half), max_bytes)
    yield from _parts(rows.slice(half), max_bytes)


def _columns_of(rows: pa.Table | pa.RecordBatch) -> _Columns:
    """Return rows as :meth:`RecordSender.send_arrow` takes them. Raises ValueError as it does."""
    given = {name: _whole(rows[name]) for name in rows.schema.names}
    if "timestamp" in given:
        stamps = given["timestamp"].cast(
            pa.timestamp("ms", tz=getattr(given["timestamp"].type, "tz", None)), safe=False
        )
        timestamps = stamps.cast(pa.int64()).fill_null(_now_ms()).to_numpy(zero_copy_only=False)
    else:
        timestamps = np.full(rows.num_rows, _now_ms(), dtype=np.int64)
    if (timestamps < 0).any():
        raise ValueError(f"the column timestamp has a time before 1970: {timestamps.min()} ms")
    nulls = pa.nulls(rows.num_rows, pa.int32())
    places = given.get("partition", nulls).cast(pa.int32())
    lowest = pc.min(places).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"the column partition has {lowest}: give a number from 0, or null to have one chosen")
    return _Columns(
        keys=given["key"].cast(pa.binary()) if "key" in given else pa.nulls(rows.num_rows, pa.binary()),
        values=given["value"].cast(pa.binary()),
        headers=given["headers"].cast(HEADERS_TYPE) if "headers" in given else None,
        timestamps=timestamps,
        partitions=places.fill_null(-1).to_numpy(zero_copy_only=False),
    )


def _whole(column: pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _now_ms() -> int:
    return int(time.time() * 1000)
