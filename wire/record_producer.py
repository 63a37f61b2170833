"""A producer that needs no Spark: records one by one or whole Arrow columns, to the partition that Java's producer would choose.

    with RecordProducer({"bootstrap.servers": "broker:9092", "compression.type": "lz4"}) as producer:
        producer.send("orders", b"a value", key=b"a key")
        producer.send_arrow("orders", table)
        producer.flush()

Settings go by Kafka's names. Owns the collecting of single records; partitions are
:mod:`~pykafka_wire.wire.produce.partitioner`'s, sending, retries and idempotence are
:mod:`~pykafka_wire.wire.produce.producer`'s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import SettingsError, WireError
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.write_results import Delivered
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import TopicPartition

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Single records are encoded together: at so many bytes of keys and values, or so many records, without waiting for flush.
_COLLECT_BYTES: Final = 1024 * 1024
_COLLECT_RECORDS: Final = 10_000

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

    Records leave when about a megabyte has come together, and on :meth:`flush`, which alone says that they are written.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str]) -> None:
        """Opens nothing yet. Settings by Kafka's names, such as ``bootstrap.servers``, ``compression.type``, ``acks``.

        Raises:
            SettingsError: ``transactional.id`` is set, and nothing here would be in a transaction.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        if self._settings.transactional_id is not None:
            raise SettingsError(
                "transactional.id is set, and RecordProducer writes outside of transactions.",
                setting="transactional.id",
                remedy="Leave it out, or use pykafka_wire.wire.transactions.transaction.",
            )
        self._cluster = Cluster(self._settings)
        self._producer = Producer(self._cluster)
        self._codec = Codec[self._settings.compression_type.upper()]
        self._waiting: dict[str, _Rows] = {}
        self._error: WireError | None = None
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
        """Queue one record. Without a partition the settings' partitioner chooses one, by default as Java's producer does.

        Raises:
            WireError: an earlier record has failed.
        """
        self._raise_failure()
        rows = self._waiting.setdefault(topic, _Rows())
        rows.keys.append(key)
        rows.values.append(value)
        rows.headers.append([{"key": name, "value": content} for name, content in headers] or None)
        rows.timestamps.append(_now_ms() if timestamp_ms is None else timestamp_ms)
        rows.partitions.append(-1 if partition is None else partition)
        rows.n_bytes += len(key or b"") + len(value or b"")
        if rows.n_bytes >= _COLLECT_BYTES or len(rows.values) >= _COLLECT_RECORDS:
            self._encode_waiting(topic)

    def send_arrow(self, topic: str, rows: Any) -> None:  # Any: pyarrow has no types
        """Queue the rows of a pa.Table or pa.RecordBatch: columns ``value`` and, where they exist, ``key``, ``headers``,
        ``partition`` and ``timestamp`` (a timestamp, or int64 in ms). Text and bytes are both well.

        Raises:
            ValueError: there is no column ``value``.
            WireError: an earlier record has failed.
        """
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
        nulls = pa.nulls(rows.num_rows, pa.int32())
        self._append(
            topic,
            given["key"].cast(pa.binary()) if "key" in given else pa.nulls(rows.num_rows, pa.binary()),
            given["value"].cast(pa.binary()),
            given["headers"].cast(HEADERS_TYPE) if "headers" in given else None,
            timestamps,
            given.get("partition", nulls).cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False),
        )

    def flush(self, timeout_ms: float | None = None) -> dict[TopicPartition, Delivered]:
        """Wait until every record is acknowledged; what was delivered since the last flush.

        Raises:
            DeadlineExceededError: ``timeout_ms``, or a record's ``delivery.timeout.ms``, has passed.
            WireError: a record was refused. The producer has failed; :meth:`reset` starts afresh.
        """
        self._raise_failure()
        for topic in list(self._waiting):
            self._encode_waiting(topic)
        return self._producer.flush(None if timeout_ms is None else Deadline.after_ms(timeout_ms))

    def reset(self) -> None:
        """After an error: drop what is not acknowledged, and start afresh under a new producer id."""
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
        self._append(
            topic,
            pa.array(rows.keys, pa.binary()),
            pa.array(rows.values, pa.binary()),
            pa.array(rows.headers, HEADERS_TYPE) if any(rows.headers) else None,
            np.array(rows.timestamps, dtype=np.int64),
            np.array(rows.partitions, dtype=np.int32),
        )
        del self._waiting[topic]  # not before: where its partitions could not be asked for, nothing is lost

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise self._error

    def _append(
        self,
        topic: str,
        keys: Any,
        values: Any,
        headers: Any,
        timestamps: npt.NDArray[np.int64],
        partitions: npt.NDArray[np.int32],
    ) -> None:
        self._raise_failure()
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
            try:
                self._producer.append(topic, partition, batches)
            except WireError as error:
                self._error = error  # what came with it is gone, too: no later flush may say that all is written
                raise


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _now_ms() -> int:
    return int(time.time() * 1000)
