"""Order and sequences under retries: the rules of wire/produce/partition_queue.py, without a broker."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.wire.errors import ProtocolError, TransportError, broker_error
from pykafka_wire.wire.produce.partition_queue import PartitionQueue, next_sequence
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition

WRITER = ProducerIdentity(4711, 3)
LOST = TransportError("connection reset")


def encoded(n_records: int) -> EncodedBatch:
    (batch,) = encode_batches(
        key=None,
        value=pa.array([b"v"] * n_records, pa.binary()),
        headers=None,
        timestamp=np.zeros(n_records, np.int64),
        codec=Codec.NONE,
        max_batch_bytes=1 << 20,
    )
    return batch


def queue_of(*sizes: int) -> PartitionQueue:
    queue = PartitionQueue(TopicPartition("t", 0))
    for size in sizes:
        queue.add(encoded(size), expires_at=1e9)
    return queue


def producer_fields(batch: EncodedBatch) -> tuple[int, int, int]:
    """(producer id, epoch, base sequence) as they stand in the batch's header, from byte 43 on."""
    return struct.unpack_from(">qhi", batch.data, 43)


def test_sequences_count_records_from_zero() -> None:
    queue = queue_of(3, 5, 2)
    stamped = [producer_fields(queue.take(1, WRITER).encoded) for _ in range(3)]
    assert stamped == [(4711, 3, 0), (4711, 3, 3), (4711, 3, 8)]


def test_sequences_wrap_from_the_largest_int32_to_zero() -> None:
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 5) == 2
    assert next_sequence(0, 2**31 - 1) == 2**31 - 1


def test_a_retry_resends_identical_bytes_in_the_old_order() -> None:
    queue = queue_of(3, 5, 2)
    first, second = queue.take(1, WRITER), queue.take(1, WRITER)
    bytes_before = [bytes(first.encoded.data), bytes(second.encoded.data)]
    queue.retry(second, LOST, 0.0)
    queue.retry(first, LOST, 0.0)
    again = [queue.take(2, WRITER), queue.take(2, WRITER), queue.take(2, WRITER)]
    assert [bytes(batch.encoded.data) for batch in again[:2]] == bytes_before
    assert producer_fields(again[2].encoded) == (4711, 3, 8)


def test_nothing_leaves_after_a_failure_until_all_in_flight_is_back() -> None:
    queue = queue_of(1, 1, 1)
    first, second = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.retry(first, LOST, 0.0)
    assert not queue.ready(1.0)
    queue.acknowledge(second)
    assert queue.ready(1.0)
    assert queue.take(1, WRITER) is first


def test_a_first_batch_is_alone_in_flight_until_it_is_acknowledged() -> None:
    queue = queue_of(1, 1, 1)
    first = queue.take(1, WRITER)
    assert not queue.ready(1.0)
    queue.retry(first, broker_error(6), 0.0)
    assert queue.take(1, WRITER) is first
    assert not queue.ready(1.0)
    queue.acknowledge(first)
    queue.take(1, WRITER)
    assert queue.ready(1.0)


def test_a_pause_holds_the_partition_back() -> None:
    queue = queue_of(1)
    queue.retry(queue.take(1, WRITER), LOST, 5.0)
    assert not queue.ready(4.9)
    assert queue.ready(5.0)


def test_a_partition_stays_with_its_node_until_its_responses_are_in() -> None:
    queue = queue_of(1, 1)
    first = queue.take(7, WRITER)
    assert queue.node == 7
    queue.acknowledge(first)
    assert queue.node == -1


def test_the_first_unacknowledged_batch_is_found_in_flight_or_waiting() -> None:
    queue = queue_of(1, 1)
    first, second = queue.take(1, WRITER), queue.take(1, WRITER)
    assert queue.first_unacknowledged is first
    queue.retry(first, broker_error(45), 0.0)
    assert queue.first_unacknowledged is first
    queue.retry(second, broker_error(45), 0.0)
    queue.acknowledge(queue.take(1, WRITER))
    assert queue.first_unacknowledged is second


def test_without_idempotence_batches_stay_blank() -> None:
    queue = queue_of(1)
    assert producer_fields(queue.take(1, ProducerIdentity()).encoded) == (-1, -1, -1)


@pytest.mark.parametrize("n_retries", [1, 4])
def test_tries_are_counted(n_retries: int) -> None:
    queue = queue_of(1)
    for _ in range(n_retries):
        queue.retry(queue.take(1, WRITER), LOST, 0.0)
    assert queue.take(1, WRITER).attempts == n_retries + 1


OUT_OF_ORDER = broker_error(45)


def test_a_batch_that_gives_way_to_its_halves_changes_no_sequence_after_it() -> None:
    queue = queue_of(4, 5)
    queue.acknowledge(queue.take(1, WRITER))
    queue.add(encoded(6), expires_at=1e9)
    second, third = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.replace(second, [encoded(3), encoded(2)])
    assert not queue.ready(1.0)  # the third is on its way
    assert queue.is_cascading_failure(third)
    bytes_before = bytes(third.encoded.data)
    queue.retry(third, OUT_OF_ORDER, 0.0)
    again = [queue.take(1, WRITER) for _ in range(3)]
    assert [producer_fields(batch.encoded)[2] for batch in again] == [4, 7, 9]
    assert bytes(again[2].encoded.data) == bytes_before


def test_a_batch_that_loses_records_moves_the_sequences_after_it() -> None:
    queue = queue_of(4, 5, 6)
    queue.acknowledge(queue.take(1, WRITER))
    second, third = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.replace(second, [encoded(2)])
    queue.retry(third, OUT_OF_ORDER, 0.0)
    queue.add(encoded(1), expires_at=1e9)
    assert [producer_fields(queue.take(1, WRITER).encoded)[2] for _ in range(3)] == [4, 6, 12]


def test_a_batch_that_loses_all_its_records_leaves_its_sequence_to_the_next() -> None:
    queue = queue_of(4, 5, 6)
    queue.acknowledge(queue.take(1, WRITER))
    second, third = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.replace(second, [])
    assert queue.is_cascading_failure(third)  # though it is the first that is not acknowledged
    queue.retry(third, OUT_OF_ORDER, 0.0)
    assert producer_fields(queue.take(1, WRITER).encoded)[2] == 4
    assert not queue.is_cascading_failure(third)


def test_of_two_batches_that_give_way_the_first_decides_where_sequences_continue() -> None:
    queue = queue_of(1, 4, 5, 6)
    queue.acknowledge(queue.take(1, WRITER))
    batches = [queue.take(1, WRITER) for _ in range(3)]
    queue.replace(batches[1], [encoded(1)])
    queue.replace(batches[0], [encoded(2)])
    queue.retry(batches[2], OUT_OF_ORDER, 0.0)
    assert [producer_fields(queue.take(1, WRITER).encoded)[2] for _ in range(3)] == [1, 3, 4]


def test_a_batch_before_the_one_that_gave_way_is_resent_as_it_was() -> None:
    queue = queue_of(1, 4, 5)
    queue.acknowledge(queue.take(1, WRITER))
    lost, refused = queue.take(1, WRITER), queue.take(1, WRITER)
    bytes_before = bytes(lost.encoded.data)
    queue.replace(refused, [encoded(2)])
    queue.retry(lost, LOST, 0.0)
    assert queue.take(1, WRITER) is lost
    assert bytes(lost.encoded.data) == bytes_before
    assert producer_fields(queue.take(1, WRITER).encoded)[2] == 5


def test_a_batch_written_past_one_that_was_refused_is_an_error_and_no_gap() -> None:
    queue = queue_of(1, 4, 5)
    queue.acknowledge(queue.take(1, WRITER))
    second, third = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.replace(second, [encoded(2)])
    with pytest.raises(ProtocolError, match="out of sequence"):
        queue.acknowledge(third)


NEXT = ProducerIdentity(4711, 4)
UNKNOWN_PRODUCER = broker_error(59)


def test_after_a_restart_all_that_is_unacknowledged_begins_the_next_epoch() -> None:
    queue = queue_of(4, 5, 6)
    queue.acknowledge(queue.take(1, WRITER))
    second, third = queue.take(1, WRITER), queue.take(1, WRITER)
    queue.restart(second, UNKNOWN_PRODUCER, 0.0)
    assert not queue.ready(1.0)  # the third is on its way
    assert queue.is_cascading_failure(third)
    queue.retry(third, UNKNOWN_PRODUCER, 0.0)
    assert producer_fields(queue.take(1, NEXT).encoded) == (4711, 4, 0)
    assert not queue.ready(1.0)  # until the broker knows the producer again
    queue.acknowledge(second)
    assert producer_fields(queue.take(1, NEXT).encoded) == (4711, 4, 5)


def test_a_partition_takes_the_next_epoch_over_when_nothing_is_in_flight() -> None:
    queue = queue_of(4, 5, 6, 7)
    queue.acknowledge(queue.take(1, WRITER))
    second, third = queue.take(1, WRITER), queue.take(1, NEXT)
    assert producer_fields(third.encoded) == (4711, 3, 9)
    queue.acknowledge(second)
    queue.acknowledge(third)
    assert producer_fields(queue.take(1, NEXT).encoded) == (4711, 4, 0)


def test_a_batch_that_may_be_in_the_log_keeps_its_epoch() -> None:
    queue = queue_of(4, 5)
    queue.acknowledge(queue.take(1, WRITER))
    second = queue.take(1, WRITER)
    second.may_be_written = True
    queue.replace(second, [encoded(3), encoded(2)])
    assert producer_fields(queue.take(1, NEXT).encoded) == (4711, 3, 4)
