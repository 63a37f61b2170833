"""What the response to a Produce means for a batch: every row of the table in the module, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    ProtocolError,
    RecordTooLargeError,
    TransportError,
)
from pykafka_wire.wire.produce.partition_queue import QueuedBatch
from pykafka_wire.wire.produce.response_handler import (
    Acknowledged,
    FailedBatch,
    ProduceOutcome,
    ProduceResponseHandler,
    Replaced,
    RetriedBatch,
)
from pykafka_wire.wire.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.test_producer import encode, numbered

SETTINGS = ClientSettings(bootstrap_servers=(("h", 1),), retries=5)
FAILS = ProduceResponseHandler(settings=SETTINGS, collects_rejected=False)
COLLECTS = ProduceResponseHandler(settings=SETTINGS, collects_rejected=True)
EXPIRES_AT = 100.0

TOO_LARGE, NOT_LEADER, TIMED_OUT, NO_REPLICAS = 10, 6, 7, 19
CORRUPT, AUTHORIZATION, OUT_OF_ORDER, DUPLICATE, INVALID_RECORD = 2, 29, 45, 46, 87


def batch(n_records: int = 4, attempts: int = 1) -> QueuedBatch:
    (encoded,) = encode(numbered(0, n_records))
    return QueuedBatch(TopicPartition("t", 0), encoded, EXPIRES_AT, ordinal=0, base_sequence=0, attempts=attempts)


def judged(
    rules: ProduceResponseHandler,
    code: int,
    of: QueuedBatch | None = None,
    *,
    base_offset: int = -1,
    rejected: tuple[int, ...] = (),
    is_cascading: bool = False,
    now: float = 0.0,
) -> ProduceOutcome:
    response = PartitionProduceResponse(
        index=0,
        error_code=code,
        base_offset=base_offset,
        record_errors=[BatchIndexAndErrorMessage(batch_index=each) for each in rejected],
    )
    of = batch() if of is None else of
    return rules.on_response(of, response, is_cascading=is_cascading, now=now, broker=1, version=12)


def test_a_batch_in_the_log_is_acknowledged() -> None:
    assert judged(FAILS, 0, base_offset=7) == Acknowledged(7)
    assert judged(FAILS, DUPLICATE) == Acknowledged(-1)


@pytest.mark.parametrize(
    ("code", "may_be_written", "find_leader"),
    [(NO_REPLICAS, False, False), (TIMED_OUT, True, False), (NOT_LEADER, False, True)],
)
def test_a_retriable_code_says_whether_the_batch_may_be_written_and_where_it_goes(
    code: int, may_be_written: bool, find_leader: bool
) -> None:
    outcome = judged(FAILS, code)
    assert isinstance(outcome, RetriedBatch)
    assert (outcome.may_be_written, outcome.find_leader) == (may_be_written, find_leader)
    assert (outcome.error.topic, outcome.error.partition, outcome.error.broker) == ("t", 0, 1)


def test_an_offset_in_a_retriable_response_means_that_the_batch_may_be_written() -> None:
    outcome = judged(FAILS, NOT_LEADER, base_offset=7)
    assert isinstance(outcome, RetriedBatch)
    assert outcome.may_be_written


def test_what_no_retry_mends_fails() -> None:
    assert isinstance(judged(FAILS, AUTHORIZATION), FailedBatch)
    assert isinstance(judged(FAILS, OUT_OF_ORDER), FailedBatch)
    assert isinstance(judged(FAILS, OUT_OF_ORDER, is_cascading=True), RetriedBatch)
    assert isinstance(judged(FAILS, CORRUPT, batch(attempts=2)), RetriedBatch)
    assert isinstance(judged(FAILS, CORRUPT, batch(attempts=3)), FailedBatch)


def test_retries_end_by_number_and_by_time() -> None:
    assert isinstance(judged(FAILS, NO_REPLICAS, batch(attempts=5)), RetriedBatch)
    assert isinstance(judged(FAILS, NO_REPLICAS, batch(attempts=6)), FailedBatch)
    late = judged(FAILS, NO_REPLICAS, now=EXPIRES_AT)
    assert isinstance(late, FailedBatch)
    assert isinstance(late.error, DeadlineExceededError)
    assert "NOT_ENOUGH_REPLICAS" in str(late.error)


def test_a_batch_that_is_too_large_is_split_down_to_one_record() -> None:
    outcome = judged(FAILS, TOO_LARGE)
    assert isinstance(outcome, Replaced)
    assert [each.n_records for each in outcome.batches] == [2, 2]
    assert not outcome.rejected
    single = judged(FAILS, TOO_LARGE, batch(1))
    assert isinstance(single, FailedBatch)
    assert isinstance(single.error, RecordTooLargeError)
    collected = judged(COLLECTS, TOO_LARGE, batch(1))
    assert isinstance(collected, Replaced)
    assert (collected.batches, collected.rejected[0].n_records) == ([], 1)


def test_records_that_the_broker_names_are_taken_out_where_they_are_collected() -> None:
    assert isinstance(judged(FAILS, INVALID_RECORD, rejected=(1, 3)), FailedBatch)
    outcome = judged(COLLECTS, INVALID_RECORD, rejected=(1, 3))
    assert isinstance(outcome, Replaced)
    assert outcome.rejected[0].row.tolist() == [1, 3]
    assert [each.n_records for each in outcome.batches] == [2]
    unnamed = judged(COLLECTS, INVALID_RECORD)
    assert isinstance(unnamed, Replaced)
    assert [each.n_records for each in unnamed.batches] == [2, 2]


def test_no_record_is_taken_out_of_a_batch_that_may_be_written() -> None:
    doubtful = replace(batch(), may_be_written=True)
    outcome = judged(COLLECTS, INVALID_RECORD, doubtful, rejected=(1,))
    assert isinstance(outcome, FailedBatch)
    assert "had no definite response" in outcome.error.remedy


def test_without_a_response_a_batch_that_was_sent_may_be_written() -> None:
    broke = TransportError("the connection broke")
    outcome = FAILS.on_no_response(batch(), broke, now=0, was_sent=True)
    assert outcome == RetriedBatch(broke, may_be_written=True, find_leader=True)
    assert FAILS.on_no_response(batch(), broke, now=0, was_sent=False) == RetriedBatch(broke, False, True)
    nonsense = ProtocolError("bytes too many")
    assert isinstance(FAILS.on_no_response(batch(), nonsense, now=0, was_sent=True), RetriedBatch)
    assert FAILS.on_no_response(batch(attempts=2), nonsense, now=0, was_sent=True) == FailedBatch(nonsense)
