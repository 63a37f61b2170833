"""How a range moves from its start to its end, and how many bytes of the range a Fetch requests, without a broker."""

from __future__ import annotations

from pykafka_wire.wire.fetch.batch_scan import scan_batches
from pykafka_wire.wire.fetch.range_progress import RangeProgress
from pykafka_wire.wire.topic_partitions import OffsetRange
from tests.wire.test_batch_scan import batch_head


def progress(start: int, end: int) -> RangeProgress:
    return RangeProgress(0, OffsetRange(topic="t", partition=0, start_offset=start, end_offset=end))


def test_an_empty_range_is_finished_before_anything_is_asked() -> None:
    assert progress(5, 5).finished
    assert progress(6, 5).finished


def test_little_is_asked_for_beyond_a_short_range_and_experience_makes_it_less() -> None:
    short = progress(0, 500)
    assert short.wanted_bytes(4 << 20) < 1 << 20
    long = progress(0, 10_000_000)
    assert long.wanted_bytes(4 << 20) == 4 << 20
    long.advance(scan_batches(memoryview(batch_head(0, 9_999_899, n_bytes=100_000)), 0, 10_000_000))
    assert long.wanted_bytes(4 << 20) <= 100_001


def test_what_is_left_of_a_range_and_its_last_batch_are_asked_for_and_no_more() -> None:
    read = progress(5, 1_000)
    head = memoryview(b"".join(batch_head(10 * i, 9, n_bytes=1_000) for i in range(10)))
    read.advance(scan_batches(head, 5, 1_000))
    assert read.wanted_bytes(4 << 20) == 900 * 100 + 1_000
    known = progress(5, 1_000)
    known.size.batch_size = read.size.batch_size
    assert known.wanted_bytes(4 << 20) == 995 * 100 + 2 * 1_000, "it may begin inside of a batch"


def test_the_size_of_a_batch_around_a_short_range_is_not_taken_for_that_of_the_range() -> None:
    short = progress(500, 502)
    short.advance(scan_batches(memoryview(batch_head(0, 999, n_bytes=100_000)), 500, 502))
    assert short.size.batch_size is not None
    assert short.size.batch_size.bytes_per_offset == 100


def test_a_batch_that_did_not_fit_is_asked_for_in_full_whatever_the_maximum() -> None:
    stuck = progress(0, 10)
    assert stuck.size.enlarge(9_000_000) and not stuck.size.enlarge(9_000_000)
    assert stuck.wanted_bytes(4 << 20) == 9_000_000


def test_a_corrupt_batch_is_fetched_once_more_and_its_range_is_unfinished_again() -> None:
    range_ = progress(0, 10)
    range_.advance(scan_batches(memoryview(batch_head(0, 9)), 0, 10))
    assert range_.finished
    assert range_.fetch_again(0)
    assert not range_.finished
    assert range_.position == 0
    range_.advance(scan_batches(memoryview(batch_head(0, 9)), 0, 10))
    assert not range_.fetch_again(0)
    assert range_.finished


def test_another_leader_has_the_whole_wait_to_come_level() -> None:
    range_ = progress(0, 10)
    range_.serve_from((1, 0))
    range_.retries.watch_end(5.0, at_end=True)
    range_.serve_from((1, 0))
    assert range_.retries.end_missing_s(7.0) == 2.0
    range_.serve_from((2, 1))
    assert range_.retries.end_missing_s(7.0) == 0.0


def test_records_end_every_sign_of_trouble() -> None:
    range_ = progress(0, 10)
    range_.retries.stall(1.0)
    range_.retries.fail()
    range_.retries.watch_end(1.0, at_end=True)
    assert (range_.retries.stalled_s(3.0), range_.retries.failures) == (2.0, 1)
    range_.advance(scan_batches(memoryview(batch_head(0, 4)), 0, 10))
    assert (range_.retries.stalled_s(3.0), range_.retries.failures, range_.retries.end_missing_s(3.0)) == (0.0, 0, 0.0)
