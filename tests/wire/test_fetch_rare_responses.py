"""What brokers seldom respond to a Fetch, and bit rot where no CRC covers it: a fake broker gives it to a read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError, CorruptBatchError
from pykafka_wire.wire.fetch.continuous_fetch import ContinuousFetch
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest, FetchResponse
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_fetch import N_RECORDS, VALUES, asked_of, batch_at, client, range_of, response, two_brokers


@pytest.fixture
def brokers() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with two_brokers() as both:
        yield both


def values(leader: FakeBroker, end_offset: int = N_RECORDS, **options: str) -> list[bytes]:
    with client(leader, **options) as cluster:
        chunks = fetch_ranges(cluster, [range_of(0, end_offset)], columns=VALUES, deadline_ms=10_000)
        return [value for chunk in chunks for value in chunk.records.value.to_pylist()]


def test_a_follower_that_no_metadata_names_is_left_for_the_leader(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: (
        response(request, preferred_read_replica=99) if request.rack_id else response(request, records=batch_at(0))
    )
    assert len(values(leader, client_rack="r2")) == N_RECORDS


def test_an_unknown_error_code_fails_with_its_number(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: response(request, error_code=999)
    with pytest.raises(BrokerError, match="999") as caught:
        values(leader)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)


@pytest.mark.parametrize("code", [74, 75, 6], ids=["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER"])
def test_a_leader_that_changes_between_two_responses_is_followed(
    brokers: tuple[FakeBroker, FakeBroker], code: int
) -> None:
    leader, next_leader = brokers

    def reply(request: FetchRequest, version: int) -> FetchResponse:
        if asked_of(request).fetch_offset == 0:
            return response(request, records=batch_at(0), high_watermark=20, last_stable_offset=20)
        for broker in brokers:
            broker.topics = {"t": {0: (2, 1), 1: (2, 0)}}
        return response(request, error_code=code)

    leader.on[FetchRequest] = reply
    next_leader.on[FetchRequest] = lambda request, _: response(
        request, records=batch_at(N_RECORDS), high_watermark=20, last_stable_offset=20
    )
    assert values(leader, 20) == [b"%d" % i for i in range(20)]
    (request,) = (each for each in next_leader.requests if isinstance(each, FetchRequest))
    assert asked_of(request).current_leader_epoch == 1


def test_batches_before_the_position_are_corrupt_and_end_the_read(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: response(request, records=batch_at(0), high_watermark=20)
    with pytest.raises(CorruptBatchError):
        values(leader, 20)
    assert leader.count(FetchRequest) <= 4


def last_offset_wraps() -> memoryview:
    batch = memoryview(bytearray(batch_at(0)))
    struct.pack_into(">q", batch, 0, 2**63 - 5)
    return batch


def test_a_batch_whose_offsets_exceed_an_int64_is_corrupt(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: response(request, records=last_offset_wraps())
    with pytest.raises(CorruptBatchError):
        values(leader, 2**63 - 1)


def test_a_read_without_end_survives_such_a_batch(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: response(request, records=last_offset_wraps())
    with client(leader) as cluster, pytest.raises(CorruptBatchError):
        read = ContinuousFetch(cluster, {TopicPartition("t", 0): Position(0)}, VALUES)
        for _ in range(20):
            read.poll(Deadline.after_ms(500))
