"""Decoding a response: the second try for a corrupt batch, and the bound on what is held decoded; without a broker."""

from __future__ import annotations

import logging
import struct
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from pykafka_wire.wire.connection.state_machine import StateMachine
from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.fetch.batch_scan import scan_batches
from pykafka_wire.wire.fetch.fetched_records import Chunk, ChunkDecoder, ChunkPart, FetchCounters
from pykafka_wire.wire.fetch.range_progress import RangeProgress
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import OffsetRange
from tests.wire.fake_fetch import VALUES, asked_of, batch_at, client, range_of, response, two_brokers

VALUE_ONLY = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)


def batch_bytes(values: list[bytes], codec: Codec = Codec.NONE) -> bytearray:
    (batch,) = encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.zeros(len(values), np.int64),
        codec=codec,
        max_batch_bytes=64 << 20,
    )
    return bytearray(batch.data)


def arrive(progress: RangeProgress, data: bytearray | memoryview) -> ChunkPart:
    """What the fetcher makes of `data` at the range's position."""
    start, end = progress.position, progress.range.end_offset
    walked = scan_batches(memoryview(data), start, end)
    progress.advance(walked)
    chunk = Chunk(node=1)
    chunk.add(progress, memoryview(data), walked, start)
    return chunk.parts[0]


def decoder_of(ranges: list[RangeProgress], counters: FetchCounters, max_bytes: int = 8 << 20) -> ChunkDecoder:
    return ChunkDecoder(
        [progress.range for progress in ranges],
        VALUE_ONLY,
        read_committed=False,
        check_crc=True,
        max_bytes=max_bytes,
        counters=counters,
    )


def ranges_of(*ends: int) -> list[RangeProgress]:
    return [
        RangeProgress(i, OffsetRange(topic="t", partition=i, start_offset=0, end_offset=end))
        for i, end in enumerate(ends)
    ]


def test_records_carry_the_index_of_their_range_and_positions_tell_how_far_it_is() -> None:
    ranges = ranges_of(10, 3, 10)
    decoder = decoder_of(ranges, FetchCounters())
    chunk = Chunk(1, [arrive(ranges[2], batch_bytes([b"c"])), arrive(ranges[1], batch_bytes([b"a", b"b"]))])
    (fetched,) = decoder.decode(chunk)
    assert fetched.records.slice_index.tolist() == [2, 1, 1]
    assert fetched.records.value.to_pylist() == [b"c", b"a", b"b"]
    assert fetched.positions == {2: 1, 1: 2}
    assert [progress.delivered.offset for progress in ranges] == [0, 2, 1]


def test_a_corrupt_batch_is_fetched_once_more_and_the_others_are_handed_out(caplog: pytest.LogCaptureFixture) -> None:
    ranges = ranges_of(1, 1, 1)
    counters = FetchCounters()
    decoder = decoder_of(ranges, counters)
    bad = batch_bytes([b"bad"])
    bad[-1] ^= 1
    good = [arrive(ranges[0], batch_bytes([b"x"])), arrive(ranges[2], batch_bytes([b"z"]))]
    with caplog.at_level(logging.WARNING):
        chunks = list(decoder.decode(Chunk(1, [good[0], arrive(ranges[1], bad), good[1]])))
    assert [chunk.records.value.to_pylist() for chunk in chunks] == [[b"x"], [b"z"]]
    assert [progress.finished for progress in ranges] == [True, False, True]
    assert ranges[1].position == 0
    assert counters.n_retries == 1
    assert "corrupt" in caplog.text

    (healed,) = decoder.decode(Chunk(1, [arrive(ranges[1], batch_bytes([b"y"]))]))
    assert healed.records.value.to_pylist() == [b"y"]
    assert ranges[1].finished


def test_a_batch_that_is_corrupt_twice_fails_with_its_place() -> None:
    ranges = ranges_of(5)
    decoder = decoder_of(ranges, FetchCounters())
    bad = batch_bytes([b"a", b"b"])
    bad[70] ^= 0x40
    assert list(decoder.decode(Chunk(7, [arrive(ranges[0], bad)]))) == []
    with pytest.raises(CorruptBatchError) as caught:
        list(decoder.decode(Chunk(7, [arrive(ranges[0], bad)])))
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.broker) == ("t", 0, 0, 7)


def test_a_length_that_makes_no_sense_is_corruption_not_an_endless_loop() -> None:
    ranges = ranges_of(5)
    decoder = decoder_of(ranges, FetchCounters())
    bad = batch_bytes([b"a"])
    bad[8:12] = (3).to_bytes(4, "big")
    assert list(decoder.decode(Chunk(7, [arrive(ranges[0], bad)]))) == []
    with pytest.raises(CorruptBatchError):
        list(decoder.decode(Chunk(7, [arrive(ranges[0], bad)])))


def test_less_is_asked_for_when_records_are_far_larger_than_their_bytes() -> None:
    ranges = ranges_of(1000)
    decoder = decoder_of(ranges, FetchCounters())
    decoder.max_bytes = before = 2 << 20
    list(decoder.decode(Chunk(1, [arrive(ranges[0], batch_bytes([bytes(1 << 20)] * 60, Codec.ZSTD))])))
    assert decoder.max_bytes < before


def test_what_is_asked_for_grows_to_the_maximum_while_records_are_plain() -> None:
    ranges = ranges_of(1_000_000)
    decoder = decoder_of(ranges, FetchCounters(), max_bytes=8 << 20)
    for _ in range(6):
        part = arrive(ranges[0], batch_bytes([b"plain" * 100] * 1000))
        ranges[0].position = 0
        list(decoder.decode(Chunk(1, [part])))
    assert list(decoder.decode(Chunk(1))) == []  # a response without records, or a request that failed
    assert decoder.max_bytes == 8 << 20


@pytest.mark.parametrize(("value", "is_large"), [(b"v" * 1_000, True), (b"v" * 100, False)], ids=["1,000", "100"])
def test_records_are_large_by_their_size_as_fetched(value: bytes, is_large: bool) -> None:
    ranges = ranges_of(1_000)
    decoder = decoder_of(ranges, FetchCounters())
    assert not decoder.has_large_records
    list(decoder.decode(Chunk(1, [arrive(ranges[0], batch_bytes([value] * 100))])))
    assert decoder.has_large_records == is_large


def test_a_response_that_unpacks_to_much_is_handed_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykafka_wire.wire.fetch.fetched_records._PIECE_BYTES", 50_000)
    ranges = ranges_of(40, 40)
    counters = FetchCounters()
    decoder = decoder_of(ranges, counters)
    values = [[b"%d-%02d-" % (of, i) + bytes(9_000) for i in range(40)] for of in range(2)]
    parts = []
    for progress, rows in zip(ranges, values, strict=True):
        batches = bytearray()
        for first in range(0, 40, 2):
            batch = batch_bytes(rows[first : first + 2], Codec.ZSTD)
            batch[:8] = first.to_bytes(8, "big")
            batch[12:16] = first.to_bytes(4, "big")  # the leader epoch
            batches += batch
        parts.append(arrive(progress, batches))
    n_bytes = sum(len(part.slice.records) for part in parts)
    decoder.max_bytes = before = 2 << 20
    pieces = []
    for piece in decoder.decode(Chunk(1, parts)):
        pieces.append(piece)
        delivered = [progress.delivered for progress in ranges]
        assert all(leader_epoch == offset - 2 for offset, leader_epoch in delivered if offset), delivered
    assert len(pieces) == 14  # three batches of 18 KB a piece
    assert max(sum(map(len, piece.records.value.to_pylist())) for piece in pieces) < 60_000
    rows = [
        (index, offset, value)
        for piece in pieces
        for index, offset, value in zip(
            piece.records.slice_index.tolist(),
            piece.records.offset.tolist(),
            piece.records.value.to_pylist(),
            strict=True,
        )
    ]
    assert rows == [(of, i, values[of][i]) for of in range(2) for i in range(40)]
    assert [piece.positions.get(0) for piece in pieces[:2]] == [6, 12]
    assert pieces[-1].positions == {1: 40}
    assert [progress.delivered.offset for progress in ranges] == [40, 40]
    assert (counters.n_bytes, counters.n_records) == (n_bytes, 80)
    assert decoder.max_bytes < before


def test_many_empty_records_are_handed_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a hundred times more memory decoded than the seven bytes that it has."""
    monkeypatch.setattr("pykafka_wire.wire.fetch.fetched_records._PIECE_RECORDS", 2_500)
    (progress,) = ranges_of(10_000)
    batches = [batch_bytes([b""] * 1_000) for _ in range(10)]
    for nth, batch in enumerate(batches):
        struct.pack_into(">q", batch, 0, nth * 1_000)
    part = arrive(progress, bytearray().join(batches))
    pieces = list(decoder_of([progress], FetchCounters()).decode(Chunk(1, [part])))
    assert [piece.records.n_records for piece in pieces] == [2_000] * 5
    assert [int(piece.records.offset[0]) for piece in pieces] == list(range(0, 10_000, 2_000))
    assert progress.delivered.offset == 10_000


@pytest.mark.parametrize(("codec", "is_held"), [(Codec.NONE, [False]), (Codec.LZ4, [True, False])])
def test_a_response_is_freed_before_the_last_of_its_records_are_handed_out(
    codec: Codec, is_held: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykafka_wire.wire.fetch.fetched_records._PIECE_BYTES", 5_000)
    ranges = ranges_of(90, 90)
    batch = batch_bytes([bytes(100)] * 90, codec)
    response = batch * 2
    view = memoryview(response)
    chunk = Chunk(1, [arrive(ranges[0], view[: len(batch)]), arrive(ranges[1], view[len(batch) :])])
    del view
    assert [_has_views(response) for _ in decoder_of(ranges, FetchCounters()).decode(chunk)] == is_held


def _has_views(data: bytearray) -> bool:
    try:
        data.append(0)
    except BufferError:
        return True
    return False


def test_a_corrupt_batch_behind_much_is_fetched_once_more_from_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykafka_wire.wire.fetch.fetched_records._PIECE_BYTES", 10_000)
    (progress,) = ranges_of(4)
    decoder = decoder_of([progress], FetchCounters())
    batches = bytearray()
    for first in (0, 2):
        batch = batch_bytes([bytes(9_000)] * 2, Codec.GZIP)
        if first:
            batch[61:70] = bytes(9)
            batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")  # what was sent is what arrives: no sound gzip data
        batch[:8] = first.to_bytes(8, "big")
        batches += batch
    (fetched,) = decoder.decode(Chunk(1, [arrive(progress, batches)]))
    assert fetched.positions == {0: 2}
    assert (progress.position, progress.delivered.offset, progress.retried_offset) == (2, 2, 2)


def test_a_response_leaves_memory_before_the_next_one_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[weakref.ref[Any]] = []
    n_kept: list[int] = []
    decode_response = StateMachine._receive

    def arrived(machine: StateMachine, frame: memoryview) -> Any:
        if isinstance(machine._in_flight[0].request, FetchRequest):
            n_kept.append(sum(earlier() is not None for earlier in responses))
            responses.append(weakref.ref(frame.obj))
        return decode_response(machine, frame)

    monkeypatch.setattr(StateMachine, "_receive", arrived)
    with two_brokers() as (leader, _):
        # Many small records: large values stay in the response's memory, and a small response is a bytearray.
        n_records = 2_000
        end = {"high_watermark": 5 * n_records, "last_stable_offset": 5 * n_records}
        leader.on[FetchRequest] = lambda request, _: response(
            request, records=batch_at(asked_of(request).fetch_offset, n_records), **end
        )
        with client(leader) as cluster:
            chunks = fetch_ranges(cluster, [range_of(0, 5 * n_records)], columns=VALUES)
            assert sum(chunk.records.n_records for chunk in chunks) == 5 * n_records
    assert n_kept == [0] * 5
