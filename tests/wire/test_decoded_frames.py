"""What the decoder does with the memory of a received frame: where it reads it, what it keeps of it, and what it overwrites."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pykafka_wire.wire.connection.state_machine import StateMachine
from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.records import batch_framing
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.decode import decode
from tests.wire.oracle import Record, encode_batch
from tests.wire.test_decode import ALL, plain, read, records_of


def test_columns_do_not_alias_the_frame():
    frame = bytearray(encode_batch(plain(3)))
    decoded = read(bytes(frame))
    view = decode([RecordSlice(memoryview(frame), 0, 9)], ALL, read_committed=False)
    frame[:] = bytes(len(frame))
    assert records_of(view) == records_of(decoded)


def test_large_values_stay_in_a_frame_that_may_be_overwritten():
    rows = [Record(i, 1_700_000_000_000, b"k%d" % i, bytes([i]) * 5_000, [("h", b"x")]) for i in range(12)]
    batches = [encode_batch([row]) for row in rows]
    frame = np.frombuffer(b"".join(batches), dtype=np.uint8).copy()
    half = len(b"".join(batches[:6]))
    slices = [RecordSlice(frame.data[:half], 1, 2**62), RecordSlice(frame.data[half:], 6, 11)]
    decoded = decode(slices, ALL, read_committed=False, may_overwrite=True)
    assert records_of(decoded) == rows[1:11]
    begins = frame.__array_interface__["data"][0]
    assert begins < decoded.value.buffers()[2].address < begins + len(frame)


def test_after_an_error_a_frame_that_may_be_overwritten_is_as_it_was():
    good, bad = (encode_batch([Record(i, 1, b"k", bytes([i]) * 5_000, [("h", b"x")])]) for i in range(2))
    frame = bytearray(good + bad[:-4] + b"\x7f" + bad[-3:])  # the length of the header's key
    before = bytes(frame)
    with pytest.raises(CorruptBatchError, match="header"):
        decode([RecordSlice(memoryview(frame), 0, 9)], ALL, read_committed=False, check_crc=False, may_overwrite=True)
    assert frame == before


def test_slices_of_one_frame_are_read_where_they_lie(monkeypatch):
    copied = []
    monkeypatch.setattr(batch_framing, "_as_batch", lambda *_: copied.append(1))
    rows = [plain(60, first=100 * i) for i in range(4)]
    batches = [encode_batch(row[:30]) + encode_batch(row[30:]) for row in rows]
    frame = bytearray(b"\x01response head\x00")
    spans = []
    for batch in batches:
        frame += b"\x00partition\x02"
        spans.append((len(frame), len(frame) + len(batch)))
        frame += batch
    view = memoryview(frame)
    slices = [RecordSlice(view[a:b], 100 * i, 2**62) for i, (a, b) in enumerate(spans)]
    slices.append(RecordSlice(view[0:0], 7, 9))
    decoded = decode(slices, ALL, read_committed=False)
    assert not copied
    assert records_of(decoded) == [row for part in rows for row in part]
    assert decoded.next_offsets.tolist() == [60, 160, 260, 360, 7]
    view.release()
    del slices
    frame.clear()  # a bytearray that anything still points into could not be resized


def test_a_frame_as_the_protocol_receives_it_is_read_where_it_lies(monkeypatch):
    batches = encode_batch(plain(60)[:30]) + encode_batch(plain(60)[30:])
    machine = StateMachine(client_id="test", software_version="0")
    machine.buffer()[:] = struct.pack(">i", len(batches))
    machine.received(4)
    frame = machine.buffer()
    frame[:] = batches
    copied = []
    monkeypatch.setattr(batch_framing, "_as_batch", lambda *_: copied.append(1))
    monkeypatch.setattr("pykafka_wire.wire.records.decode.Decompressor", lambda _: copied.append(1))
    decoded = decode([RecordSlice(frame, 0, 60)], ALL, read_committed=False)
    frame[:] = bytes(len(frame))
    assert records_of(decoded) == plain(60)
    assert not copied  # both are for batches that are copied together
