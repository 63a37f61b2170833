"""What the response to a Fetch means for a range: every row of the table in the module, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    TransportError,
    UnknownTopicError,
    broker_error,
)
from pykafka_wire.wire.fetch.preferred_read_replica import PreferredReadReplica
from pykafka_wire.wire.fetch.range_progress import RangeProgress, RequestedPartition
from pykafka_wire.wire.fetch.range_read import DEFAULT_END_WAIT_MS
from pykafka_wire.wire.fetch.response_handler import (
    MAX_BATCH_BYTES,
    EndMissing,
    Enlarged,
    FailedRange,
    FetchOutcome,
    FetchResponseHandler,
    LeftFollower,
    ReceivedRecords,
    Redirected,
    RetriedRange,
    Skipped,
    Validated,
    Waiting,
)
from pykafka_wire.wire.protocol.messages.fetch import AbortedTransaction, DivergingEpoch, PartitionData
from tests.wire.fake_fetch import N_RECORDS, batch_at, range_of

LEADER, FOLLOWER = 1, 2
BOUNDED = FetchResponseHandler(read_committed=False, deadline_s=100, end_wait_s=60)
COMMITTED = FetchResponseHandler(read_committed=True, deadline_s=100, end_wait_s=60)
ENDLESS = FetchResponseHandler(read_committed=False, deadline_s=100, end_wait_s=None)
UNKNOWN_TOPIC, NOT_LEADER, OUT_OF_RANGE, CORRUPT, AUTHORIZATION, STORAGE = 3, 6, 1, 2, 29, 56
INCONSISTENT_TOPIC_ID = 103


def judged(
    rules: FetchResponseHandler = BOUNDED,
    *,
    node: int = LEADER,
    now: float = 0.0,
    is_first: bool = True,
    leader_epoch: int = 0,
    state: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchOutcome:
    """What the response `fields` means for a range from 0 to ten that is in the `state`."""
    progress = RangeProgress(0, range_of(0))
    for name, value in (state or {}).items():
        setattr(progress.retries if hasattr(progress.retries, name) else progress, name, value)
    requested = RequestedPartition(progress, progress.position, (LEADER, leader_epoch))
    data = PartitionData(**{"high_watermark": N_RECORDS, "last_stable_offset": N_RECORDS} | fields)
    return rules.on_response(requested, data, is_first=is_first, node=node, version=12, now=now)


def test_whole_batches_are_received_up_to_the_end_of_the_range() -> None:
    records = memoryview(bytes(batch_at(0)) + bytes(batch_at(N_RECORDS)))
    outcome = judged(records=records, high_watermark=20)
    assert isinstance(outcome, ReceivedRecords)
    assert (outcome.scan.next_offset, outcome.scan.n_bytes, outcome.at_end) == (N_RECORDS, len(batch_at(0)), False)
    at_end = judged(records=batch_at(0))
    assert isinstance(at_end, ReceivedRecords) and at_end.at_end


def test_aborted_transactions_count_only_for_a_committed_read() -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=3)]
    for rules, expected in ((COMMITTED, [(7, 3)]), (BOUNDED, [])):
        outcome = judged(rules, records=batch_at(0), aborted_transactions=aborted)
        assert isinstance(outcome, ReceivedRecords)
        assert outcome.aborted == expected


def test_less_than_one_batch_asks_for_more_unless_no_broker_accepts_such_a_batch() -> None:
    batch = batch_at(0)
    assert judged(records=batch[:40]) == Enlarged(len(batch))
    huge = bytearray(batch)
    huge[8:12] = MAX_BATCH_BYTES.to_bytes(4, "big")
    outcome = judged(records=memoryview(huge)[:40])
    assert isinstance(outcome, FailedRange)
    assert isinstance(outcome.error, RecordTooLargeError)


def test_a_diverging_epoch_means_that_the_log_was_truncated() -> None:
    for rules, end_offset in ((BOUNDED, 4), (BOUNDED, 9), (ENDLESS, 4)):
        outcome = judged(rules, diverging_epoch=DivergingEpoch(epoch=2, end_offset=end_offset), state={"position": 5})
        assert isinstance(outcome, FailedRange)
        assert isinstance(outcome.error, LogTruncatedError)
        assert (outcome.error.diverging_epoch, outcome.error.diverging_offset) == (2, end_offset)


def test_a_diverging_epoch_that_ends_at_or_above_the_position_truncates_nothing_for_a_read_without_an_end() -> None:
    for end_offset in (5, 9):
        diverging = DivergingEpoch(epoch=2, end_offset=end_offset)
        assert judged(ENDLESS, diverging_epoch=diverging, state={"position": 5}) == Validated()


def test_records_of_a_later_leader_epoch_than_the_range_was_planned_in_are_not_the_ranges() -> None:
    planned = replace(range_of(0), leader_epoch=3)
    old, new = bytes(batch_at(0, 4, leader_epoch=3)), bytes(batch_at(4, 6, leader_epoch=4))
    received = judged(records=memoryview(old + new), leader_epoch=4, state={"range": planned})
    assert isinstance(received, ReceivedRecords)
    assert (bytes(received.records), received.scan.next_offset, received.at_end) == (old, 4, False)
    failed = judged(records=memoryview(new), leader_epoch=4, state={"range": planned, "position": 4})
    assert isinstance(failed, FailedRange)
    assert isinstance(failed.error, LogTruncatedError)
    assert (failed.error.diverging_epoch, failed.error.diverging_offset) == (3, 4)
    # Unknown, the same, and one above the leader's, as a copied log may have it.
    for planned_epoch, leader_epoch in ((-1, 4), (4, 5), (3, 3), (1, 2)):
        state = {"range": replace(planned, leader_epoch=planned_epoch)}
        whole = judged(records=memoryview(old + new), leader_epoch=leader_epoch, state=state)
        assert isinstance(whole, ReceivedRecords)
        assert whole.scan.next_offset == N_RECORDS


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6),
    st.integers(-1, 8),
    st.integers(1, 3),
)
def test_a_range_is_read_up_to_the_first_batch_of_a_later_leader_epoch(
    batches: list[tuple[int, int]], planned_epoch: int, n_in_a_response: int
) -> None:
    log, end, epoch = [], 0, 0
    for n_records, n_elections in batches:
        epoch += n_elections
        log.append((end, n_records, epoch))
        end += n_records
    progress = RangeProgress(0, replace(range_of(0, end), leader_epoch=planned_epoch))
    while not progress.finished:
        ahead = [batch for batch in log if batch[0] >= progress.position][:n_in_a_response]
        records = memoryview(b"".join(batch_at(first, n, leader_epoch=its_epoch) for first, n, its_epoch in ahead))
        data = PartitionData(high_watermark=end, last_stable_offset=end, records=records)
        requested = RequestedPartition(progress, progress.position, (LEADER, epoch))
        outcome = BOUNDED.on_response(requested, data, is_first=True, node=LEADER, version=12, now=0.0)
        if isinstance(outcome, FailedRange):
            break
        assert isinstance(outcome, ReceivedRecords)
        progress.advance(outcome.scan)
    later = (first for first, _, its_epoch in log if 0 <= planned_epoch < its_epoch)
    assert progress.position == next(later, end)


def test_a_leader_redirects_to_a_follower_unless_it_is_to_serve_the_range_itself() -> None:
    assert judged(preferred_read_replica=FOLLOWER) == Redirected(FOLLOWER)
    assert judged(
        preferred_read_replica=FOLLOWER, state={"read_replica": PreferredReadReplica(leader_only_until=5.0)}
    ) == Waiting(False)
    assert judged(preferred_read_replica=FOLLOWER, node=FOLLOWER) == Waiting(None)


def test_the_second_of_a_follower_counts_from_when_the_leader_has_more() -> None:
    waits = {"read_replica": PreferredReadReplica(empty_since=0.0)}
    assert judged(ENDLESS, preferred_read_replica=FOLLOWER, now=1.1, state=waits | {"at_end": True}) == Redirected(
        FOLLOWER
    )
    assert judged(ENDLESS, preferred_read_replica=FOLLOWER, now=1.1, state=waits) == LeftFollower("trails the leader")


def test_a_follower_without_records_is_left_after_a_second() -> None:
    assert judged(node=FOLLOWER) == Waiting(None)
    assert judged(node=FOLLOWER, now=0.9, state={"stalled_since": 0.0}) == Waiting(None)
    assert judged(node=FOLLOWER, now=1.1, state={"stalled_since": 0.0}) == LeftFollower("has no records")


def test_a_range_whose_room_was_taken_by_others_is_skipped() -> None:
    assert judged(is_first=False) == Skipped()
    assert judged(is_first=False, high_watermark=0) == Waiting(True)


def test_a_follower_that_serves_no_more_is_left_whatever_its_ranges_place_in_the_request() -> None:
    trails = {"node": FOLLOWER, "is_first": False, "high_watermark": 0}
    assert judged(**trails) == Waiting(None)
    assert judged(now=1.1, state={"stalled_since": 0.0}, **trails) == LeftFollower("has no records")
    assert judged(COMMITTED, node=FOLLOWER, is_first=False, last_stable_offset=0) == Waiting(None)
    assert judged(node=FOLLOWER, is_first=False) == Skipped()


def test_an_end_that_stays_missing_is_reported_after_its_time() -> None:
    waiting = {"stalled_since": 0.0, "end_missing_since": 0.0}
    assert judged(high_watermark=0, now=60, state=waiting) == Waiting(True)
    assert judged(high_watermark=0, now=61, state=waiting) == EndMissing(61)
    assert judged(COMMITTED, last_stable_offset=0, now=61, state=waiting) == EndMissing(61)
    assert judged(last_stable_offset=0, now=61, state=waiting) == Waiting(False)


def test_a_range_that_gets_nothing_fails_after_its_time() -> None:
    outcome = judged(now=101, state={"stalled_since": 0.0})
    assert isinstance(outcome, FailedRange)
    assert isinstance(outcome.error, DeadlineExceededError)
    assert "made no progress for 101 s" in str(outcome.error)


def test_a_read_without_an_end_waits_for_ever() -> None:
    state = {"stalled_since": 0.0, "end_missing_since": 0.0}
    assert judged(ENDLESS, high_watermark=0, now=1_000, state=state) == Waiting(True)
    assert judged(ENDLESS, now=1_000, state=state) == Waiting(False)


@pytest.mark.parametrize("code", [OUT_OF_RANGE, UNKNOWN_TOPIC, AUTHORIZATION])
def test_whatever_error_a_follower_has_its_leader_is_asked(code: int) -> None:
    assert isinstance(judged(node=FOLLOWER, error_code=code), LeftFollower)


@pytest.mark.parametrize(
    ("code", "find_leader", "check_topic"),
    [
        (NOT_LEADER, True, False),
        (UNKNOWN_TOPIC, True, True),
        (INCONSISTENT_TOPIC_ID, True, True),
        (STORAGE, True, False),
        (CORRUPT, False, False),
    ],
)
def test_a_code_says_what_is_looked_up_before_the_next_try(code: int, find_leader: bool, check_topic: bool) -> None:
    outcome = judged(error_code=code)
    assert isinstance(outcome, RetriedRange)
    assert (outcome.find_leader, outcome.check_topic) == (find_leader, check_topic)
    assert (outcome.error.topic, outcome.error.partition, outcome.error.offset) == ("t", 0, 0)


def test_what_another_try_cannot_change_fails() -> None:
    out_of_range = judged(error_code=OUT_OF_RANGE)
    assert isinstance(out_of_range, FailedRange)
    assert isinstance(out_of_range.error, OffsetOutOfRangeError)
    corrupt_twice = judged(error_code=CORRUPT, state={"failures": 1})
    assert isinstance(corrupt_twice, FailedRange)
    assert isinstance(corrupt_twice.error, BrokerError)


def failed(error: Any, *, in_grace: bool = True, now: float = 0.0, **state: Any) -> RetriedRange | FailedRange:
    progress = RangeProgress(0, range_of(0))
    for name, value in state.items():
        setattr(progress.retries if hasattr(progress.retries, name) else progress, name, value)
    return BOUNDED.on_failure(progress, error, in_grace=in_grace, now=now)


def test_a_failure_is_retried_until_its_time_or_its_codes_grace_period_is_over() -> None:
    broke = TransportError("the connection broke")
    assert failed(broke) == RetriedRange(broke)
    assert failed(broke, now=100, stalled_since=0.0) == RetriedRange(broke)
    late = failed(broke, now=101, stalled_since=0.0)
    assert isinstance(late, FailedRange)
    assert (type(late.error), late.cause) == (DeadlineExceededError, broke)
    unknown = broker_error(UNKNOWN_TOPIC)
    assert isinstance(unknown, UnknownTopicError)
    assert failed(unknown, in_grace=False) == FailedRange(unknown)


def test_a_response_that_breaks_the_protocol_is_asked_for_once_more_and_a_refusal_is_not() -> None:
    malformed, refused = ProtocolError("bytes too many"), broker_error(AUTHORIZATION)
    assert failed(malformed) == RetriedRange(malformed)
    assert failed(malformed, failures=1) == FailedRange(malformed)
    assert failed(refused) == FailedRange(refused)
    assert (refused.topic, refused.partition, refused.offset) == ("t", 0, 0)


def test_the_wait_for_a_ranges_end_is_longer_than_a_dead_follower_stays_in_sync() -> None:
    """Until then a new leader's high watermark does not rise. Brokers look every half of replica.lag.time.max.ms."""
    replica_lag_time_max_ms = 30_000  # the default of all releases since 2.5 (KIP-537)
    assert replica_lag_time_max_ms * 1.5 < DEFAULT_END_WAIT_MS
