"""Builds record batches of a task's records, each for one topic-partition.

Owns the topic-partition of each record (a ``partition`` column overrides the partitioner), and the size of batches. Knows nothing
of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pykafka_wire.errors import WriteError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.records.arrays import to_arrow, to_numpy, validity
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import TopicPartition

#: Uncompressed bytes of one record batch: below the brokers' default message.max.bytes (1 MiB and 12 bytes) with room
#: for the batch's header, and large enough that per-batch costs vanish.
_MAX_BATCH_BYTES: Final = 960 * 1024


class BatchDestination(Protocol):
    """What record batches are appended to, a producer or its substitute, and what it knows of topics."""

    def partitions_for(self, topic: str) -> int: ...

    def max_batch_bytes(self, topic: str) -> int | None: ...

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None: ...


class PartitionBatches(NamedTuple):
    """Record batches of one topic-partition, in their order."""

    topic: str
    partition: int
    batches: list[EncodedBatch]


class BatchBuilder:
    """Builds one task's batches. Records keep their order within a topic-partition, and are counted there from 0."""

    def __init__(self, destination: BatchDestination, options: SinkOptions) -> None:
        self._destination = destination
        self._options = options
        self._partitioner = Partitioner(options.client)
        self._n_records: dict[TopicPartition, int] = {}

    def build(self, records: RecordColumns) -> Iterator[PartitionBatches]:
        """The batches of `records`, each within its topic's limit unless a single record exceeds it.

        Raises:
            WriteError: a row names a partition that its topic does not have.
            UnknownTopicError: a row names a topic that does not exist.
        """
        for topic, partition, part in self._route(records):
            yield PartitionBatches(topic, partition, self._encode(topic, partition, part))

    def _encode(self, topic: str, partition: int, records: RecordColumns) -> list[EncodedBatch]:
        client = self._options.client
        configured = _MAX_BATCH_BYTES if client.batch_size is None else client.batch_size
        batches = encode_batches(
            key=records.key,
            value=records.value,
            headers=records.headers,
            timestamp=records.timestamp_ms,
            codec=self._options.codec,
            level=client.compression_level,
            max_batch_bytes=min(
                configured, client.max_request_size, self._destination.max_batch_bytes(topic) or configured
            ),
        )
        tp = TopicPartition(topic, partition)
        before = self._n_records.get(tp, 0)
        self._n_records[tp] = before + records.n_records
        for batch in batches:
            batch.first_row += before
        return batches

    def _route(self, records: RecordColumns) -> Iterator[tuple[str, int, RecordColumns]]:
        if records.topic is None:
            assert self._options.topic is not None
            yield from self._route_topic(self._options.topic, records)
            return
        dictionary = records.topic.dictionary_encode()
        names = dictionary.dictionary.to_pylist()
        if len(names) == 1:
            yield from self._route_topic(names[0], records)
            return
        for index, indices in _indices_by_label(to_numpy(dictionary.indices, null=-1)):
            yield from self._route_topic(names[index], records.take(indices))

    def _route_topic(self, topic: str, records: RecordColumns) -> Iterator[tuple[str, int, RecordColumns]]:
        for partition, indices in _indices_by_label(self._partitions(topic, records)):
            is_all = len(indices) == records.n_records
            yield topic, partition, records if is_all else records.take(indices)

    def _partitions(self, topic: str, records: RecordColumns) -> npt.NDArray[np.int32]:
        n_partitions = self._destination.partitions_for(topic)
        if records.partition is None:
            return self._partitioner.place(topic, records.key, records.value, n_partitions)
        partitions: npt.NDArray[np.int32] = to_numpy(records.partition, null=-1)
        given = validity(records.partition)
        wrong = given & ((partitions < 0) | (partitions >= n_partitions))
        if wrong.any():
            raise WriteError(
                f"a row names partition {partitions[wrong][0]} of topic {topic}, which has {n_partitions} partitions "
                f"(0 to {n_partitions - 1}): correct the column partition, or leave it null to hash the key."
            )
        missing = np.flatnonzero(~given)
        if len(missing):
            at = to_arrow(missing)
            key = None if records.key is None else records.key.take(at)
            partitions[missing] = self._partitioner.place(topic, key, records.value.take(at), n_partitions)
        return partitions


def _indices_by_label(labels: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """``(label, indices)`` for each label in ascending order, the indices ascending."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for indices in np.split(order, cuts):
        yield int(labels[indices[0]]), indices
