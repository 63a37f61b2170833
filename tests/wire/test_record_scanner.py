"""Where records begin and end: guessed places and the plain loop must agree, whatever the bytes look like."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.records import record_scanner
from pykafka_wire.wire.records.record_scanner import record_bounds
from tests.wire.oracle import Record, encode_record, read_varint, varint


def batch_of(values: list[bytes], headers: list[tuple[str, bytes | None]] | None = None) -> bytes:
    return b"".join(
        encode_record(Record(i, i * 3, b"k%d" % i if i % 3 else None, value, headers or []), 0, 0)
        for i, value in enumerate(values)
    )


def bounds_of(batches: list[bytes], counts: list[int], gap: bytes = b"") -> tuple[list[int], list[int]]:
    """What :func:`record_bounds` finds, for batches with `gap` in front of each."""
    data, starts = bytearray(), []
    for batch in batches:
        data += gap
        starts.append(len(data))
        data += batch
    first = np.array(starts, dtype=np.int64)
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    fields, end = record_bounds(
        np.frombuffer(bytes(data), dtype=np.uint8), first, first + sizes, np.array(counts), list(range(len(batches)))
    )
    return fields.position.tolist(), end.tolist()


def plain_bounds(batches: list[bytes], gap: bytes = b"") -> tuple[list[int], list[int]]:
    starts, ends, origin = [], [], 0
    for batch in batches:
        origin += len(gap)
        at = 0
        while at < len(batch):
            length, at = read_varint(batch, at)
            starts.append(origin + at)
            at += length
            ends.append(origin + at)
        origin += len(batch)
    return starts, ends


def values(kind: str, n: int, size: int, seed: int = 1) -> list[bytes]:
    draw = random.Random(seed)
    sizes = [draw.randint(size // 3, 2 * size) for _ in range(n)]
    if kind == "text":
        return [bytes(draw.choices(b"abcdefgh 0123456789", k=k)) for k in sizes]
    if kind == "equal":
        return [b"x" * size] * n
    if kind == "random":
        return [draw.randbytes(k) for k in sizes]
    if kind == "zeros":
        return [bytes(k) for k in sizes]
    if kind == "some zeros":
        return [bytes(byte if draw.random() > 0.1 else 0 for byte in draw.randbytes(k)) for k in sizes]
    if kind == "skewed":
        return [draw.randbytes(20_000 if draw.random() < 0.002 else 30) for _ in sizes]
    # Values that look like records themselves, so that guesses are wrong in a way that goes on.
    inner = b"".join(encode_record(Record(i, 0, None, b"0123456789", []), 0, 0) for i in range(40))
    return [inner[draw.randint(0, 15) :] for _ in sizes]


KINDS = ["text", "equal", "random", "zeros", "some zeros", "skewed", "nested"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [b"", b"\x00\x10\x00" * 20], ids=["joined", "with headers between"])
@pytest.mark.parametrize("n_batches", [1, 4, 150])
def test_any_bytes_give_the_bounds_that_the_plain_walk_gives(kind, gap, n_batches):
    n = 6_000 // n_batches
    batches = [batch_of(values(kind, n, 70, seed)) for seed in range(n_batches)]
    assert bounds_of(batches, [n] * n_batches, gap) == plain_bounds(batches, gap)


@pytest.mark.parametrize("size", [1, 60, 1_000, 5_000])
def test_records_of_any_size_are_found(size):
    batches = [batch_of(values("random", 1_000, size, seed)) for seed in range(2)]
    assert bounds_of(batches, [1_000] * 2) == plain_bounds(batches)


def test_records_with_headers_are_found():
    batches = [batch_of(values("text", 3_000, 50), [("trace", b"\xff\x80\x00"), ("none", None)])]
    assert bounds_of(batches, [3_000]) == plain_bounds(batches)


def test_guesses_are_used_where_they_can_be(monkeypatch):
    def never(*_):
        raise AssertionError("walked one record at a time")

    monkeypatch.setattr(record_scanner, "_scan_one_by_one", never)
    for kind in ("text", "equal", "random"):
        batches = [batch_of(values(kind, 2_000, 70, seed)) for seed in range(3)]
        assert bounds_of(batches, [2_000] * 3) == plain_bounds(batches)


@pytest.mark.parametrize("gap", [b"", b"h" * 61])
@pytest.mark.parametrize("every_ms", [0, 1, 3, 200], ids="a record every {} ms".format)
@pytest.mark.parametrize("size", [0, 20, 92, 300])
def test_records_of_one_size_are_found_without_a_scan(
    monkeypatch: pytest.MonkeyPatch, size: int, every_ms: int, gap: bytes
) -> None:
    monkeypatch.setattr(record_scanner, "_scan_in_parallel", None)
    counts = [70, 1, 64, 65, 150, 200, 63, 500, 30, 2, 900]
    batches = [
        b"".join(encode_record(Record(i, i * every_ms, b"%08d" % i, b"v" * size, []), 0, 0) for i in range(count))
        for count in counts
    ]
    if every_ms == 200:  # the third byte that a delta takes then is none that was expected
        monkeypatch.undo()
    assert bounds_of(batches, counts, gap) == plain_bounds(batches, gap)


def test_one_record_of_another_size_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch is as large as if another record's timestamp were later; the batches of the sample have none."""
    counts = [200] * 20
    batches = []
    for nth, count in enumerate(counts):
        longer = 7 if nth == 16 else count
        batches.append(
            b"".join(
                encode_record(Record(i, 0, b"%08d" % i, b"v" * (30 + (i == longer)), []), 0, 0) for i in range(count)
            )
        )
    assert bounds_of(batches, counts) == plain_bounds(batches)


def test_a_count_too_high_or_too_low_is_an_error():
    for n in (10, 3_000):
        batch = batch_of(values("text", n, 50))
        for count in (n - 1, n + 1):
            with pytest.raises(CorruptBatchError) as caught:
                bounds_of([batch, batch], [n, count])
            assert caught.value.offset == 1


@pytest.mark.parametrize("size", [20, 50_000])
def test_a_record_that_does_not_fill_its_batch_is_an_error(size):
    batch = batch_of([b"v" * size])
    assert bounds_of([batch] * 3, [1, 1, 1]) == plain_bounds([batch] * 3)
    for damaged in (batch[:-1], batch + b"\0"):
        with pytest.raises(CorruptBatchError, match="length") as caught:
            bounds_of([batch, damaged, batch], [1, 1, 1])
        assert caught.value.offset == 1


def test_a_record_that_ends_in_the_next_batch_is_an_error():
    batch = batch_of(values("text", 2_000, 50))
    with pytest.raises(CorruptBatchError):
        bounds_of([batch[:-10], batch[-10:] + batch], [2_000, 2_000])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_lengths_are_a_typed_error_or_the_plain_walk_agrees(data):
    batches = [bytearray(batch_of(values("text", 1_700, 12, seed))) for seed in range(2)]
    for _ in range(data.draw(st.integers(1, 3))):
        batch = batches[data.draw(st.integers(0, 1))]
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    whole = [bytes(batch) for batch in batches]
    try:
        found = bounds_of(whole, [1_700, 1_700])
    except CorruptBatchError:
        return
    assert found == plain_bounds(whole)


def framed(seed: int) -> bytes:
    """A value as Avro serializers write it: a frame with zeros, small numbers, a double with zeros; zeros and ends of texts look
    like the beginnings of records."""
    draw = random.Random(seed)
    note = b"\x02\x10%08X" % draw.getrandbits(32) if seed % 2 else b"\x00"
    amount = struct.pack("<d", draw.getrandbits(20) / 4)
    return (
        b"\0\0\0\0\1"
        + varint(seed)
        + b"\x04DE"
        + amount
        + varint(seed % 97)
        + note
        + b"\x01\x12sku-%05d" % (seed % 5000)
    )


def test_values_with_many_zeros_are_scanned_from_guesses_that_are_right(monkeypatch):
    missed = 0

    def count(*arguments):
        nonlocal missed
        missed += len(arguments[-1])
        return scan_missed(*arguments)

    scan_missed = record_scanner._scan_missed
    monkeypatch.setattr(record_scanner, "_scan_missed", count)
    n_batches, n = 40, 500
    batches = [batch_of([framed(batch * n + i) for i in range(n)]) for batch in range(n_batches)]
    scans, _ = record_scanner._scans(
        np.frombuffer(b"".join(batches), dtype=np.uint8),
        np.cumsum([0, *map(len, batches[:-1])]),
        np.cumsum([len(batch) for batch in batches]),
        np.full(n_batches, n),
    )
    assert len(scans) > 10 * n_batches
    assert bounds_of(batches, [n] * n_batches) == plain_bounds(batches)
    assert missed < len(scans) / 10  # and scans that the last steps left to the plain loop
