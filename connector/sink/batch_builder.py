"""Builds record batches of a task's records, each for one topic-partition.

Owns the topic-partition of each record (a ``partition`` column overrides the partitioner), and the size of batches. Knows nothing
of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pykafka_wire.errors import WriteError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.wire.arrow.arrays import to_arrow, to_numpy, validity
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.encode import encode_parts
from pykafka_wire.wire.topic_partitions import TopicPartition

#: Uncompressed bytes of one record batch: below the brokers' default message.max.bytes (1 MiB and 12 bytes) with room
#: for the batch's header, and large enough that per-batch costs vanish.
_MAX_BATCH_BYTES: Final = 960 * 1024

#: Rows of several topic-partitions are encoded together up to this size; a larger topic-partition alone.
_TOGETHER_BYTES: Final = 16 * 1024 * 1024


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
        """Yield the batches of `records`, each within its topic's limit unless a single record exceeds it.

        Raises:
            WriteError: a row names a partition that its topic does not have.
            UnknownTopicError: a row names a topic that does not exist.
        """
        if records.topic is None:
            assert self._options.topic is not None
            yield from self._build(self._options.topic, records)
            return
        dictionary = records.topic.dictionary_encode()
        names = dictionary.dictionary.to_pylist()
        if len(names) == 1:
            yield from self._build(names[0], records)
            return
        labels = to_numpy(dictionary.indices, null=-1)
        order, sizes = _by_label(labels)
        for rows in np.split(order, np.cumsum(sizes)[:-1]):
            yield from self._build(names[labels[rows[0]]], records.take(rows))

    def _build(self, topic: str, records: RecordColumns) -> Iterator[PartitionBatches]:
        if not records.n_records:
            return
        partitions = self._partitions(topic, records)
        order, sizes = _by_label(partitions)
        first = 0
        for some in _together(sizes, records.n_bytes / records.n_records):
            rows = order[first : first + sum(some)]
            first += len(rows)
            places = np.cumsum(some) - 1
            yield from self._encode(
                [TopicPartition(topic, partition) for partition in partitions[rows[places]].tolist()],
                some,
                records if len(sizes) == 1 else records.take(rows),
            )

    def _encode(
        self, tps: Sequence[TopicPartition], sizes: Sequence[int], records: RecordColumns
    ) -> Iterator[PartitionBatches]:
        """Yield the batches of topic-partitions of one topic, whose records are one behind the other: so many of each."""
        client = self._options.client
        configured = _MAX_BATCH_BYTES if client.batch_size is None else client.batch_size
        topic_limit = self._destination.max_batch_bytes(tps[0].topic) or configured
        parts = encode_parts(
            key=records.key,
            value=records.value,
            headers=records.headers,
            timestamp=records.timestamp_ms,
            part_sizes=sizes,
            codec=self._options.codec,
            level=client.compression_level,
            max_batch_bytes=min(configured, client.max_request_size, topic_limit),
        )
        before = [self._n_records.get(tp, 0) for tp in tps]
        self._n_records.update((tp, old + new) for tp, old, new in zip(tps, before, sizes, strict=True))
        for part, batches in parts:
            for batch in batches:
                batch.first_row += before[part]
            yield PartitionBatches(*tps[part], batches)

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
            rows = to_arrow(missing)
            key = None if records.key is None else records.key.take(rows)
            partitions[missing] = self._partitioner.place(topic, key, records.value.take(rows), n_partitions)
        return partitions


def _together(sizes: Sequence[int], row_bytes: float) -> Iterator[list[int]]:
    """Yield the sizes of topic-partitions, those together whose rows are encoded at once: it takes a copy of them."""
    some: list[int] = []
    n_bytes = 0.0
    for size in sizes:
        if some and n_bytes + size * row_bytes > _TOGETHER_BYTES:
            yield some
            some, n_bytes = [], 0.0
        some.append(size)
        n_bytes += size * row_bytes
    yield some


def _by_label(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the rows of each label, label by label in ascending order, the rows of each ascending; and how many rows each
    label has."""
    if int(labels.max()) <= np.iinfo(np.uint16).max:
        labels = labels.astype(np.uint16)  # which NumPy sorts in a fifth of the time
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(labels))
    return order, np.diff(ends, prepend=0).tolist()
