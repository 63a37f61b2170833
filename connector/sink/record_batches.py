"""Rows become record batches, each for one topic-partition.

Owns which topic-partition a row goes to (its ``partition`` column goes before the partitioner), and how large batches are.
Knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pykafka_wire.errors import WriteError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.rows import Rows
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.records.arrays import to_arrow, to_numpy, validity
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topics import TopicPartition

#: Uncompressed bytes of one record batch: below the brokers' default message.max.bytes (1 MiB and 12 bytes) with room
#: for the batch's header, and large enough that per-batch costs vanish.
_MAX_BATCH_BYTES: Final = 960 * 1024


class Destination(Protocol):
    """Where encoded batches go, and what topics are like there: a producer, or what stands before one."""

    def partitions_for(self, topic: str) -> int: ...

    def max_batch_bytes(self, topic: str) -> int | None: ...

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None: ...


class Placed(NamedTuple):
    """Record batches of one topic-partition, in order."""

    topic: str
    partition: int
    batches: list[EncodedBatch]


class RecordBatches:
    """Makes one task's batches. Rows keep their order within a topic-partition, and are counted there from 0."""

    def __init__(self, destination: Destination, options: SinkOptions) -> None:
        self._destination = destination
        self._options = options
        self._partitioner = Partitioner(options.client)
        self._n_rows: dict[TopicPartition, int] = {}

    def of(self, rows: Rows) -> Iterator[Placed]:
        """The batches of `rows`, each no larger than its topic takes unless one record alone is.

        Raises:
            WriteError: a row names a partition that its topic does not have.
            UnknownTopicError: a row names a topic that does not exist.
        """
        for topic, partition, part in self._route(rows):
            yield Placed(topic, partition, self._encode(topic, partition, part))

    def _encode(self, topic: str, partition: int, rows: Rows) -> list[EncodedBatch]:
        client = self._options.client
        wanted = _MAX_BATCH_BYTES if client.batch_size is None else client.batch_size
        batches = encode_batches(
            key=rows.key,
            value=rows.value,
            headers=rows.headers,
            timestamp=rows.timestamp_ms,
            codec=self._options.codec,
            level=client.compression_level,
            max_batch_bytes=min(wanted, client.max_request_size, self._destination.max_batch_bytes(topic) or wanted),
        )
        tp = TopicPartition(topic, partition)
        before = self._n_rows.get(tp, 0)
        self._n_rows[tp] = before + rows.n_rows
        for batch in batches:
            batch.first_row += before
        return batches

    def _route(self, rows: Rows) -> Iterator[tuple[str, int, Rows]]:
        if rows.topic is None:
            assert self._options.topic is not None
            yield from self._route_topic(self._options.topic, rows)
            return
        dictionary = rows.topic.dictionary_encode()
        names = dictionary.dictionary.to_pylist()
        if len(names) == 1:
            yield from self._route_topic(names[0], rows)
            return
        for index, indices in _groups(to_numpy(dictionary.indices, null=-1)):
            yield from self._route_topic(names[index], rows.take(indices))

    def _route_topic(self, topic: str, rows: Rows) -> Iterator[tuple[str, int, Rows]]:
        for partition, indices in _groups(self._partitions(topic, rows)):
            whole = len(indices) == rows.n_rows
            yield topic, partition, rows if whole else rows.take(indices)

    def _partitions(self, topic: str, rows: Rows) -> npt.NDArray[np.int32]:
        n_partitions = self._destination.partitions_for(topic)
        if rows.partition is None:
            return self._partitioner.place(topic, rows.key, rows.value, n_partitions)
        asked: npt.NDArray[np.int32] = to_numpy(rows.partition, null=-1)
        given = validity(rows.partition)
        wrong = given & ((asked < 0) | (asked >= n_partitions))
        if wrong.any():
            raise WriteError(
                f"a row names partition {asked[wrong][0]} of topic {topic}, which has {n_partitions} partitions "
                f"(0 to {n_partitions - 1}): correct the column partition, or leave it null to hash the key."
            )
        left = np.flatnonzero(~given)
        if len(left):
            at = to_arrow(left)
            key = None if rows.key is None else rows.key.take(at)
            asked[left] = self._partitioner.place(topic, key, rows.value.take(at), n_partitions)
        return asked


def _groups(labels: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """``(label, indices)`` for each label, indices ascending."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for indices in np.split(order, cuts):
        yield int(labels[indices[0]]), indices
