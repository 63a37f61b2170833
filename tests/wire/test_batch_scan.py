"""Stepping over batches by their headers, without a broker."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.fetch.batch_scan import consumed_bytes, scan_batches


def batch_head(base_offset: int, last_offset_delta: int, *, n_bytes: int = 61, magic: int = 2, epoch: int = 4) -> bytes:
    """A batch of `n_bytes` whose head is right and whose rest is zeros."""
    head = struct.pack(">qiibIhi", base_offset, n_bytes - 12, epoch, magic, 0, 0, last_offset_delta)
    return head + bytes(n_bytes - len(head))


def test_the_position_after_a_batch_is_its_last_offset_plus_one_whatever_compaction_left_of_it() -> None:
    records = memoryview(batch_head(10, 9) + batch_head(50, 4))
    walked = scan_batches(records, 12, 1000)
    assert walked[:5] == (len(records), 55, 4, 0, [0, 61])


def test_a_truncated_last_batch_is_left_for_the_next_fetch() -> None:
    records = memoryview(batch_head(0, 9) + batch_head(10, 9)[:-1])
    assert scan_batches(records, 0, 1000)[:5] == (61, 10, 4, 0, [0])


def test_a_first_batch_cut_short_tells_how_much_it_needs() -> None:
    records = memoryview(batch_head(0, 9, n_bytes=5000)[:4000])
    assert scan_batches(records, 0, 1000)[:5] == (0, 0, -1, 5000, [])


def test_a_batch_cut_short_inside_its_head_asks_for_more_instead_of_the_same_for_ever() -> None:
    walked = scan_batches(memoryview(batch_head(7, 0)[:20]), 7, 100)
    assert (walked.n_bytes, walked.next_offset) == (0, 7)
    assert walked.needed_bytes > 20


def test_the_shortest_message_there_is_is_stepped_over() -> None:
    message = struct.pack(">qiibbii", 7, 14, 0, 0, 0, -1, -1)  # magic 0, without key and value
    assert scan_batches(memoryview(message), 7, 100)[:5] == (26, 8, -1, 0, [0])


def test_a_batch_too_short_for_its_head_is_left_to_the_decoder() -> None:
    batch = struct.pack(">qiibbii", 7, 14, 0, 2, 0, -1, -1)
    assert scan_batches(memoryview(batch), 7, 100)[:5] == (26, 7, -1, 0, [0])


def test_a_batch_beyond_the_end_finishes_the_range_and_is_left_out() -> None:
    records = memoryview(batch_head(0, 9) + batch_head(120, 9))
    assert scan_batches(records, 0, 100)[:5] == (61, 100, 4, 0, [0])


def test_nothing_after_the_batch_that_reaches_the_end_is_taken() -> None:
    records = memoryview(batch_head(90, 15) + batch_head(106, 3))
    assert scan_batches(records, 95, 100)[:5] == (61, 106, 4, 0, [0])


def test_messages_of_magic_1_are_stepped_over_by_their_offsets() -> None:
    records = memoryview(batch_head(7, 0, magic=1, n_bytes=40) + batch_head(9, 0, magic=1, n_bytes=50))
    assert scan_batches(records, 7, 100)[:5] == (90, 10, -1, 0, [0, 40])


def test_a_length_that_makes_no_sense_is_handed_on_to_the_decoder() -> None:
    records = memoryview(struct.pack(">qiibIhi", 0, -5, 0, 2, 0, 0, 0) + bytes(40))
    assert scan_batches(records, 0, 100)[:5] == (len(records), 0, -1, 0, [0])


def test_of_several_batches_beyond_the_end_none_is_taken() -> None:
    records = memoryview(b"".join(batch_head(first, 9) for first in (0, 10, 120, 130, 140)))
    assert scan_batches(records, 0, 100)[:5] == (122, 100, 4, 0, [0, 61])
    assert scan_batches(records, 0, 15)[:5] == (122, 20, 4, 0, [0, 61])


def test_a_first_batch_beyond_the_end_finishes_the_range_without_a_record() -> None:
    assert scan_batches(memoryview(batch_head(120, 9)), 7, 100)[:5] == (0, 100, -1, 0, [])


def test_a_length_that_makes_no_sense_behind_good_batches_is_handed_on_with_them() -> None:
    records = memoryview(batch_head(0, 9) + struct.pack(">qiibIhi", 10, 3, 0, 2, 0, 0, 0) + bytes(40))
    assert scan_batches(records, 0, 100)[:5] == (len(records), 10, 4, 0, [0, 61])
    assert scan_batches(records, 0, 10)[:5] == (61, 10, 4, 0, [0])


def test_a_filler_message_behind_others_moves_nothing() -> None:
    filler = struct.pack(">qiibbii", -1, 14, 0, 0, 0, -1, -1)
    records = memoryview(batch_head(7, 0, magic=1, n_bytes=40) + filler)
    assert scan_batches(records, 7, 100)[:5] == (66, 8, -1, 0, [0, 40])


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(61, 90)), min_size=1, max_size=12),
    st.integers(0, 400),
    st.integers(0, 60),
)
def test_the_walk_takes_what_one_batch_after_another_takes(
    steps: list[tuple[int, int, int]], end: int, n_cut: int
) -> None:
    data, offset = b"", 0
    for gap, delta, n_bytes in steps:
        data += batch_head(offset + gap, delta, n_bytes=n_bytes)
        offset += gap + delta + 1
    data = data[: len(data) - n_cut]
    starts, at, position, offset, is_beyond = [], 0, 0, 0, False
    for gap, delta, n_bytes in steps:
        is_beyond = offset + gap >= end
        if at + n_bytes > len(data) or position >= end or is_beyond:
            break
        starts.append(at)
        at += n_bytes
        offset = position = offset + gap + delta + 1
    walked = scan_batches(memoryview(data), 0, end)
    assert (walked.n_bytes, list(walked.batch_starts)) == (at, starts)
    if starts or not walked.needed_bytes:
        reached_end = is_beyond and at + n_bytes <= len(data)
        assert walked.next_offset == (max(position, end) if reached_end else position)


@given(st.binary(max_size=300), st.integers(0, 2**62), st.integers(0, 2**62))
def test_any_bytes_end_the_walk_inside_the_buffer_and_never_move_it_back(data: bytes, start: int, end: int) -> None:
    walked = scan_batches(memoryview(data), start, end)
    assert 0 <= walked.n_bytes <= len(data)
    assert walked.next_offset >= start


def test_of_a_batch_that_a_range_begins_or_ends_in_its_share_is_consumed() -> None:
    records = memoryview(b"".join(batch_head(10 * i, 9, n_bytes=1_000) for i in range(3)))
    assert consumed_bytes(records, scan_batches(records, 0, 30), 0, 30) == 3_000
    assert consumed_bytes(records, scan_batches(records, 5, 28), 5, 28) == 500 + 1_000 + 800
    assert consumed_bytes(records, scan_batches(records, 2, 4), 2, 4) == 200
