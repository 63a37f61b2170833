"""The vectorised decoder against the plain one, and every rule about which records count."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecordsBuilder

from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError, WireError
from pykafka_wire.wire.records import decode as decoding
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.batches import complete_batches
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns, DecodedRecords, decode
from tests.wire.oracle import Record, control_batch, decode_batches, encode_batch, varint

ALL = Columns(headers=True)


def records_of(decoded: DecodedRecords) -> list[Record]:
    headers = decoded.headers.to_pylist()
    return [
        Record(
            int(decoded.offset[i]),
            int(decoded.timestamp[i]),
            decoded.key[i].as_py(),
            decoded.value[i].as_py(),
            [(h["key"], h["value"]) for h in headers[i] or []],
            int(decoded.timestamp_type[i]),
        )
        for i in range(decoded.n_records)
    ]


def read(data: bytes, start: int = 0, end: int = 2**62, aborted=(), committed: bool = False) -> DecodedRecords:
    return decode([RecordSlice(memoryview(data), start, end, aborted)], ALL, read_committed=committed)


def plain(n: int, first: int = 0, size: int = 10) -> list[Record]:
    return [Record(first + i, 1_700_000_000_000 + i, b"k%d" % i, b"v" * size) for i in range(n)]


binary = st.none() | st.binary(max_size=200) | st.binary(min_size=120, max_size=140).map(lambda b: b * 100)
record = st.builds(
    lambda gap, drift, key, value, headers: (gap, drift, key, value, headers),
    st.integers(1, 300),
    st.integers(-10_000, 10_000_000),
    binary,
    binary,
    st.lists(st.tuples(st.text(max_size=5), binary), max_size=3),
)


def build(rows, first_offset: int) -> list[Record]:
    records, offset = [], first_offset
    for gap, drift, key, value, headers in rows:
        records.append(Record(offset, 1_700_000_000_000 + drift, key, value, headers))
        offset += gap
    return records


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(record, min_size=1, max_size=12), st.sampled_from(Codec)), max_size=6),
    st.integers(0, 2**40),
)
def test_it_agrees_with_the_plain_decoder(batches, first_offset):
    data, offset = b"", first_offset
    for rows, codec in batches:
        records = build(rows, offset)
        offset = records[-1].offset + 1
        data += encode_batch(records, codec=codec)
    decoded = read(data)
    assert records_of(decoded) == decode_batches(data)
    assert decoded.next_offsets.tolist() == [offset if batches else 0]
    overwritten = RecordSlice(memoryview(bytearray(data)), 0, 2**62)
    assert records_of(decode([overwritten], ALL, read_committed=False, may_overwrite=True)) == records_of(decoded)


@pytest.mark.parametrize("n_batches", [1, 3, 60, 200])
@pytest.mark.parametrize("sizes", [[10], [10, 200, 10, 40_000, 3]])
def test_every_way_of_walking_finds_the_same_records(n_batches, sizes):
    records, data = [], b""
    for batch in range(n_batches):
        n = 5 + batch % 7 if n_batches > 3 else 1500
        rows = plain(n, first=len(records))
        for i, row in enumerate(rows):
            row.value = b"x" * sizes[(batch + i) % len(sizes)] if n < 100 or len(sizes) == 1 else b"x" * (i % 300)
        data += encode_batch(rows)
        records += rows
    assert records_of(read(data)) == records


def test_many_slices_come_back_in_their_order():
    slices = [RecordSlice(memoryview(encode_batch(plain(3, first=100 * i))), 100 * i, 2**62) for i in range(5)]
    slices.insert(2, RecordSlice(memoryview(b""), 7, 9))
    decoded = decode(slices, ALL, read_committed=False)
    assert decoded.slice_index.tolist() == [0, 0, 0, 1, 1, 1, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert decoded.offset.tolist() == [100 * i + j for i in range(5) for j in range(3)]
    assert decoded.next_offsets.tolist() == [3, 103, 7, 203, 303, 403]


@pytest.mark.parametrize("n_headers", [(2, 2, 2), (0, 0, 0), (3, 1, 3), (0, 2, 0)], ids=str)
def test_headers_are_read_whether_or_not_all_records_have_as_many(n_headers):
    records = [
        Record(i, 1_700_000_000_000, b"k", b"v", [(f"h{i}{nth}", b"x" * nth or None) for nth in range(n)])
        for i, n in enumerate(n_headers)
    ]
    assert records_of(read(encode_batch(records))) == records


@pytest.mark.parametrize("others", [0, 2], ids=["equal counts", "unequal counts"])
def test_a_header_count_above_what_the_record_holds_is_corrupt(others):
    body = b"\x00\x00\x00" + varint(1) + b"k" + varint(1) + b"v" + varint(2) + varint(1) + b"a" + varint(3) + b"bcd"
    data = bytearray(encode_batch(plain(1 + others)))
    payload = varint(len(body)) + body
    data[61 : 61 + 1 + data[61] // 2] = payload
    payload = data[61:]
    struct.pack_into(">i", data, 8, 49 + len(payload))
    with pytest.raises(CorruptBatchError, match="fewer headers than its count"):
        decode([RecordSlice(memoryview(bytes(data)), 0, 2**62)], ALL, read_committed=False, check_crc=False)


def test_places_that_were_found_before_are_not_looked_for_again():
    data = b"".join(encode_batch(plain(3, first=10 * i)) for i in range(4))
    starts, _ = complete_batches(memoryview(data))
    frame = memoryview(b"frame" + data)[5:]
    known = RecordSlice(frame, 0, 2**62, batch_starts=starts[:2])
    assert decode([known], ALL, read_committed=False).offset.tolist() == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("base_offset", [10, 49])
def test_a_batch_whose_offsets_go_back_is_corrupt_and_repeats_nothing(base_offset):
    # The CRC does not cover the base offset.
    data = bytearray(encode_batch(plain(50)) + encode_batch(plain(10, first=50)))
    at = complete_batches(memoryview(data))[0][1]
    struct.pack_into(">q", data, at, base_offset)
    with pytest.raises(CorruptBatchError, match=f"offsets from {base_offset} follows one up to 49"):
        read(bytes(data))


def test_records_outside_the_range_are_dropped():
    decoded = read(encode_batch(plain(10)), start=3, end=7)
    assert decoded.offset.tolist() == [3, 4, 5, 6]
    assert decoded.next_offsets.tolist() == [10]


def test_gaps_and_empty_batches_move_the_position():
    compacted = encode_batch([Record(5, 1, b"k", b"v")], base_offset=0, last_offset=19)
    empty = encode_batch([], base_offset=20, last_offset=29)
    decoded = read(compacted + empty)
    assert decoded.offset.tolist() == [5]
    assert decoded.next_offsets.tolist() == [30]


def test_log_append_time_holds_for_every_record():
    decoded = read(encode_batch(plain(3), attributes=0x08, max_timestamp=42))
    assert decoded.timestamp.tolist() == [42, 42, 42]
    assert decoded.timestamp_type.tolist() == [1, 1, 1]


def test_a_delete_horizon_changes_nothing_of_the_records():
    rows = plain(3)
    assert records_of(read(encode_batch(rows, attributes=0x40))) == rows


def test_only_the_columns_asked_for_are_decoded():
    only_value = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)
    decoded = decode([RecordSlice(memoryview(encode_batch(plain(3))), 0, 9)], only_value, read_committed=False)
    assert decoded.key is None and decoded.headers is None
    assert len(decoded.timestamp) == len(decoded.timestamp_type) == 0
    assert decoded.value.to_pylist() == [b"v" * 10] * 3


def transactional(producer_id: int, first: int, n: int = 2) -> bytes:
    return encode_batch(plain(n, first=first), attributes=0x10, producer_id=producer_id)


def test_aborted_transactions_are_left_out_for_committed_readers_alone():
    data = (
        transactional(1, 0) + transactional(2, 2) + control_batch(4, 1, commit=False) + transactional(1, 5)
        + control_batch(7, 1, commit=True) + control_batch(8, 2, commit=True) + encode_batch(plain(2, first=9))
    )  # fmt: skip
    committed = read(data, aborted=[(1, 0)], committed=True)
    assert committed.offset.tolist() == [2, 3, 5, 6, 9, 10]
    assert committed.next_offsets.tolist() == [11]
    assert read(data, aborted=[(1, 0)]).offset.tolist() == [0, 1, 2, 3, 5, 6, 9, 10]


def test_records_outside_transactions_of_an_aborting_producer_stay():
    data = transactional(1, 0) + encode_batch(plain(1, first=2), producer_id=1) + control_batch(3, 1, commit=False)
    assert read(data, aborted=[(1, 0)], committed=True).offset.tolist() == [2]


def test_an_abort_that_begins_later_does_not_reach_back():
    data = (
        transactional(1, 0) + control_batch(2, 1, commit=True) + transactional(1, 3) + control_batch(5, 1, commit=False)
    )
    assert read(data, aborted=[(1, 3)], committed=True).offset.tolist() == [0, 1]


def emptied(producer_id: int, first: int, last: int, *, attributes: int = 0x10) -> bytes:
    """What the log cleaner leaves of a producer's last batch: its header, with the offsets that it covered."""
    return encode_batch([], attributes=attributes, producer_id=producer_id, base_offset=first, last_offset=last)


def test_a_control_batch_that_the_cleaner_emptied_ends_its_transaction():
    data = transactional(1, 0) + emptied(1, 2, 2, attributes=0x30) + transactional(1, 3)
    committed = read(data, aborted=[(1, 0)], committed=True)
    assert committed.offset.tolist() == [3, 4]
    assert committed.next_offsets.tolist() == [5]


@pytest.mark.parametrize("attributes", [0x00, 0x04, 0x10, 0x14, 0x50], ids=hex)
def test_data_batches_that_the_cleaner_emptied_are_stepped_over(attributes):
    """Plain, compressed, transactional, and with a delete horizon (KIP-534)."""
    data = encode_batch(plain(2)) + emptied(1, 2, 9, attributes=attributes) + transactional(1, 10)
    data += control_batch(12, 1, commit=False) + emptied(1, 13, 13, attributes=attributes)
    committed = read(data, aborted=[(1, 10)], committed=True)
    assert committed.offset.tolist() == [0, 1]
    assert committed.next_offsets.tolist() == [14]


def test_a_batch_whose_first_and_last_records_were_cleaned_keeps_its_offsets():
    rows = plain(5)[1:3]
    data = encode_batch(rows, attributes=0x10, producer_id=1, base_offset=0, last_offset=4) + transactional(2, 5)
    committed = read(data, aborted=[(2, 5)], committed=True)
    assert committed.offset.tolist() == [1, 2]
    assert committed.next_offsets.tolist() == [7]


def test_every_truncation_keeps_the_whole_batches_before_it():
    first, second = encode_batch(plain(2)), encode_batch(plain(2, first=2))
    for cut in range(len(second)):
        decoded = read(first + second[:cut])
        assert decoded.offset.tolist() == [0, 1]
        assert decoded.next_offsets.tolist() == [2]


@pytest.mark.parametrize("codec", list(Codec))
def test_any_flipped_bit_behind_the_crc_is_found(codec):
    batch = encode_batch(plain(5), codec=codec)
    for at in range(21, len(batch), 3):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptBatchError, match="CRC"):
            read(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(Codec))
def test_damage_with_a_matching_crc_ends_in_a_typed_error_or_in_records(data, codec):
    batch = bytearray(encode_batch(build([(1, 0, b"key", b"value", [("h", b"x")])] * 40, 0), codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode([RecordSlice(memoryview(bytes(batch)), 0, 2**62)], ALL, read_committed=False, check_crc=False)
    except WireError:
        pass


def test_a_corrupt_batch_is_named_by_its_offset():
    batch = bytearray(encode_batch(plain(3, first=77)))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError) as caught:
        read(bytes(batch), start=77)
    assert caught.value.offset == 77


@pytest.mark.parametrize("magic", [3, 127])
def test_unknown_formats_are_refused_clearly(magic):
    batch = bytearray(encode_batch(plain(1)))
    batch[16] = magic
    with pytest.raises(UnsupportedVersionError, match=f"magic {magic}"):
        read(bytes(batch))


def test_a_header_key_that_is_no_text_loses_no_record():
    good = encode_batch([Record(0, 1, None, b"v", [("abc", b"x")])])
    body = bytearray(good[21:]).replace(b"abc", b"\xff\xfec")
    data = good[:17] + crc32c(bytes(body)).to_bytes(4, "big") + bytes(body)
    assert read(data).headers.to_pylist() == [[{"key": "��c", "value": b"x"}]]


GOLDEN = Path(__file__).parents[1] / "golden" / "records"


@pytest.mark.parametrize("codec", list(Codec))
def test_what_javas_client_wrote_and_a_broker_stored_is_read(codec):
    stored = (GOLDEN / f"magic2-{codec.name.lower()}.bin").read_bytes()
    found = records_of(read(stored))
    headers = [("h1", b"a"), ("h2", "ü".encode())]
    assert [(r.key, r.value, r.headers) for r in found] == [
        *((b"k%d" % i, b"value %d of the same text" % i, headers) for i in range(20)),
        (None, b"no key", []),
        (b"k", None, [("h1", None)]),
    ]
    assert found == decode_batches(stored)


def test_a_stored_batch_of_log_append_time_has_one_timestamp():
    stored = (GOLDEN / "magic2-append.bin").read_bytes()
    assert set(read(stored).timestamp.tolist()) == set(struct.unpack_from(">q", stored, 35))


@pytest.mark.parametrize("codec", list(Codec))
def test_what_kafka_python_builds_is_read(codec):
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=100_000)
    rows = [
        Record(
            i,
            1_700_000_000_000 + i * 40,
            None if i % 5 == 0 else b"key%d" % i,
            b"v" * i,
            [("h", b"x"), ("h", b"")] if i % 3 else [],
        )
        for i in range(200)
    ]
    for row in rows:
        builder.append(timestamp=row.timestamp, key=row.key, value=row.value, headers=row.headers)
    builder.close()
    assert records_of(read(bytes(builder.buffer()))) == rows


def test_compressed_and_uncompressed_batches_mix():
    rows = plain(200)
    frame = b"".join(encode_batch(rows[20 * i : 20 * i + 20], codec=list(Codec)[i % 5]) for i in range(10))
    assert records_of(read(frame)) == rows


def sealed(body: bytes, *, count: int = 1) -> bytes:
    """A batch of `count` records around hand-made record bytes, with a CRC that holds."""
    after = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(after) + 9, -1, 2, crc32c(after)) + after


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


HUGE = [2**62, 2**63 - 1, -(2**63), -2, 2**31, 2**32 - 1, 1_000]


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.parametrize(
    "record_of",
    [
        lambda huge: b"\x00\x00\x00" + varint(huge) + b"\x01\x00\x00\x00\x00",
        lambda huge: b"\x00\x00\x00\x01" + varint(huge) + b"\x00\x00\x00\x00",
        lambda huge: b"\x00\x00\x00\x01\x01" + varint(huge) + b"\x00\x00\x00\x00",
        lambda huge: b"\x00\x00\x00\x01\x01\x02" + varint(huge) + b"k\x00\x00\x00",
        lambda huge: b"\x00\x00\x00\x01\x01\x02\x02k" + varint(huge) + b"\x00\x00\x00",
    ],
    ids=["key", "value", "header count", "header key", "header value"],
)
def test_lengths_that_cannot_be_are_corrupt(record_of, huge):
    with pytest.raises(CorruptBatchError):
        read(sealed(framed(record_of(huge))))


def test_deltas_may_have_any_size():
    records = [
        framed(b"\x00" + varint(delta) + varint(i) + b"\x01\x01\x00") for i, delta in enumerate([2**62, -(2**62)])
    ]
    decoded = read(sealed(b"".join(records), count=2))
    assert decoded.timestamp.tolist() == [2**62, -(2**62)]


@pytest.mark.parametrize("body", [b"\x00" * 40, b"\xff" * 40, b"\x80" * 40, framed(b"\x80" * 30), framed(b"\x00" * 5)])
def test_varints_that_never_end_are_corrupt(body):
    with pytest.raises(CorruptBatchError):
        read(sealed(body))


def test_a_count_of_records_that_no_body_could_hold_is_corrupt_before_anything_is_allocated():
    with pytest.raises(CorruptBatchError, match="2147483647 records"):
        read(sealed(framed(b"\x00\x00\x00\x01\x01\x00"), count=2**31 - 1))


def test_many_distinct_bad_header_keys_are_all_kept(caplog):
    rows = [Record(i, 0, None, b"v", [("good", b"1"), (f"{i:03}", None)]) for i in range(50)]
    data = encode_batch(rows)
    body = bytearray(data[21:])
    for i in range(50):
        at = body.index(b"%03d" % i)
        body[at] = 0xFF
    decoding._warn_of_invalid_keys.cache_clear()
    for _ in range(2):
        decoded = read(data[:17] + crc32c(bytes(body)).to_bytes(4, "big") + bytes(body))
    assert [[h["key"] for h in row] for row in decoded.headers.to_pylist()] == [
        ["good", f"\ufffd{i:03}"[:1] + f"{i:03}"[1:]] for i in range(50)
    ]
    assert caplog.text.count("Header keys that are not valid UTF-8 were read") == 1
