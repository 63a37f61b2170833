"""A producer that needs no Spark: records one by one or whole Arrow columns, to the partition that Java's producer would choose.

    with RecordProducer({"bootstrap.servers": "broker:9092", "compression.type": "lz4"}) as producer:
        producer.send("orders", b"a value", key=b"a key")
        producer.send_arrow("orders", table)
        producer.flush()

Settings have Kafka's names. Owns the collecting of single records. Partitions are chosen in
:mod:`~pykafka_wire.wire.produce.partitioner`; sending, retries and idempotence are in
:mod:`~pykafka_wire.wire.produce.producer`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import RecordsNotWrittenError, SettingsError, WireError
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.write_results import WriteResult
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Single records are encoded together: at so many bytes of keys and values, or so many records, without waiting for flush.
_COLLECT_BYTES: Final = 1024 * 1024
_COLLECT_RECORDS: Final = 10_000
_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIMESTAMP_MS: Final = 2**63 - 1

Headers = Sequence[tuple[str, bytes | None]]


class _Rows:
    """Records of one topic that wait to be encoded."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[list[dict[str, object]] | None] = []
        self.timestamps: list[int] = []
        self.partitions: list[int] = []
        self.n_bytes = 0


class RecordProducer:
    """Writes records; idempotent and with ``acks=all`` unless the settings say otherwise. Not thread-safe.

    Records are sent when there is about a megabyte of them, and on :meth:`flush`; only when that returns are they written. A
    forked child starts with a producer id of its own. If records were not flushed before the fork, they are the parent's to
    write, and the child's copy fails until :meth:`reset`.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str]) -> None:
        """Opens nothing yet. Settings by Kafka's names, such as ``bootstrap.servers``, ``compression.type``, ``acks``.

        Raises:
            SettingsError: ``transactional.id`` is set.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        if self._settings.transactional_id is not None:
            raise SettingsError(
                "transactional.id is set, but RecordProducer writes outside of transactions.",
                setting="transactional.id",
                remedy="Leave it out, or use pykafka_wire.wire.transactions.transaction.",
            )
        self._cluster = Cluster(self._settings)
        self._producer = Producer(self._cluster)
        self._codec = Codec[self._settings.compression_type.upper()]
        self._waiting: dict[str, _Rows] = {}
        self._error: WireError | None = None
        self._fork_generation = forks.generation
        self._partitioner = Partitioner(self._settings)

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
        row_headers = _as_headers(headers) if headers else None
        if timestamp_ms is None:
            timestamp_ms = _now_ms()
        elif not 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms must be between 0 and {_MAX_TIMESTAMP_MS}, not {timestamp_ms!r}")
        if partition is None:
            partition = -1
        elif not 0 <= partition <= _MAX_PARTITION:
            raise ValueError(f"partition must be between 0 and {_MAX_PARTITION}, not {partition!r}")
        rows = self._waiting.get(topic)
        if rows is not None and (rows.n_bytes >= _COLLECT_BYTES or len(rows.values) >= _COLLECT_RECORDS):
            self._encode_waiting(topic)  # may fail, so it comes first: a record whose send() failed is not queued
            rows = None
        if rows is None:
            rows = self._waiting[topic] = _Rows()
        rows.keys.append(key)
        rows.values.append(value)
        rows.headers.append(row_headers)
        rows.timestamps.append(int(timestamp_ms))
        rows.partitions.append(int(partition))
        rows.n_bytes += len(key or b"") + len(value or b"")

    def send_arrow(self, topic: str, rows: Any) -> None:  # Any: pyarrow has no types
        """Queue the rows of a pa.Table or pa.RecordBatch: columns ``value`` and, where they exist, ``key``, ``headers``,
        ``partition`` and ``timestamp`` (a timestamp, or int64 in ms). Text and bytes are both accepted.

        Raises:
            ValueError: there is no column ``value``, or a timestamp before 1970.
            WireError: an earlier record has failed.
        """
        self._raise_failure()
        if "value" not in rows.schema.names:
            raise ValueError(f"there is no column value, only {', '.join(rows.schema.names)}")
        self._encode_waiting(topic)  # in the order in which they were sent
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
        keys = given["key"].cast(pa.binary()) if "key" in given else pa.nulls(rows.num_rows, pa.binary())
        values = given["value"].cast(pa.binary())
        headers = given["headers"].cast(HEADERS_TYPE) if "headers" in given else None
        partitions = given.get("partition", nulls).cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
        self._look_up(topic, partitions)
        with self._failing():
            self._append(topic, keys, values, headers, timestamps, partitions)

    def flush(self, timeout_ms: float | None = None) -> dict[TopicPartition, WriteResult]:
        """Wait until every record is acknowledged; what was written since the last flush.

        Raises:
            DeadlineExceededError: ``timeout_ms``, or a record's ``delivery.timeout.ms``, has passed.
            WireError: a record was rejected. The producer has failed; :meth:`reset` starts anew.
        """
        self._raise_failure()
        for topic in list(self._waiting):
            self._encode_waiting(topic)
        return self._producer.flush(None if timeout_ms is None else Deadline.after_ms(timeout_ms))

    def reset(self) -> None:
        """After an error: drop what is not acknowledged, and start anew under a new producer id."""
        self._fork_generation = forks.generation
        self._waiting.clear()
        self._error = None
        self._producer.reset()

    def close(self) -> None:
        """Close all connections. What was not flushed may be lost; leaving a ``with`` block without an error flushes."""
        self._cluster.close()

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _encode_waiting(self, topic: str) -> None:
        rows = self._waiting.get(topic)
        if rows is None:
            return
        partitions = np.array(rows.partitions, dtype=np.int32)
        # Before the records are taken: where a look-up fails, none is lost, and the next call looks again.
        self._look_up(topic, partitions)
        del self._waiting[topic]
        with self._failing():
            self._append(
                topic,
                pa.array(rows.keys, pa.binary()),
                pa.array(rows.values, pa.binary()),
                pa.array(rows.headers, HEADERS_TYPE) if any(rows.headers) else None,
                np.array(rows.timestamps, dtype=np.int64),
                partitions,
            )

    def _raise_failure(self) -> None:
        if self._fork_generation != forks.generation:
            held = bool(self._waiting) or self._error is not None or not self._producer.clean
            self.reset()
            self._error = forks.forked_producer_error() if held else None
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever ends the block fails the producer: some of the block's records are queued and some are gone, so no later
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
            self._producer.partitions_for(topic)
        self._producer.max_batch_bytes(topic)

    def _append(
        self,
        topic: str,
        keys: Any,
        values: Any,
        headers: Any,
        timestamps: npt.NDArray[np.int64],
        partitions: npt.NDArray[np.int32],
    ) -> None:
        chosen = partitions.copy()
        left = np.flatnonzero(partitions < 0)
        if len(left):
            at = to_arrow(left)
            n_partitions = self._producer.partitions_for(topic)
            chosen[left] = self._partitioner.place(topic, keys.take(at), values.take(at), n_partitions)
        wanted = self._settings.batch_size or self._settings.max_request_size
        limit = min(wanted, self._settings.max_request_size, self._producer.max_batch_bytes(topic) or wanted)
        for partition in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == partition)
            picked = to_arrow(rows)
            batches = encode_batches(
                key=keys.take(picked),
                value=values.take(picked),
                headers=None if headers is None else headers.take(picked),
                timestamp=timestamps[rows],
                codec=self._codec,
                level=self._settings.compression_level,
                max_batch_bytes=limit,
            )
            self._producer.append(topic, partition, batches)


def _as_bytes(content: object, what: str) -> bytes:
    """Text in UTF-8, and whatever holds bytes, as bytes."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{what} must be bytes or None, not {type(content).__name__}: encode it first")


def _as_headers(headers: Headers) -> list[dict[str, object]]:
    """Headers as Arrow takes them."""
    row: list[dict[str, object]] = []
    for name, content in headers:
        if type(name) is not str or not name.isascii():
            _require_name(name)
        if type(content) is not bytes and content is not None:
            content = _as_bytes(content, f"header {name!r}")
        row.append({"key": name, "value": content})
    return row


def _require_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
    name.encode()  # raises where it has lone surrogates, which UTF-8 cannot encode


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _now_ms() -> int:
    return int(time.time() * 1000)
