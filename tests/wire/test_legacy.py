"""Messages of magic 0 and 1: a real broker's, another client's, damaged ones, and the odd ones brokers send."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecordsBuilder

from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError, WireError
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.compression import Codec, compress
from pykafka_wire.wire.records.decode import Columns, DecodedRecords, decode
from pykafka_wire.wire.records.legacy import fix_lz4_checksum, xxh32
from tests.wire.oracle import Record, encode_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
NOW = 1_700_000_000_000


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = NOW,
) -> bytes:
    fields = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        fields += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(fields) + 4, zlib.crc32(fields)) + fields


def read(data: bytes, start: int = 0, end: int = 2**62, check_crc: bool = True) -> DecodedRecords:
    return decode([RecordSlice(memoryview(data), start, end)], Columns(), read_committed=True, check_crc=check_crc)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_a_broker_stored_is_read(magic, codec):
    decoded = read((GOLDEN / f"magic{magic}-{codec.name.lower()}.bin").read_bytes())
    assert decoded.offset.tolist() == list(range(20))
    assert decoded.key.to_pylist() == [b"k%d" % i for i in range(20)]
    assert decoded.value.to_pylist() == [b"value %d of the same text" % i for i in range(20)]
    assert set(decoded.timestamp_type.tolist()) == {magic - 1}
    if magic == 0:
        assert set(decoded.timestamp.tolist()) == {-1}
    else:
        assert decoded.timestamp.min() > NOW
    assert decoded.next_offsets.tolist() == [20]


def test_log_append_time_is_the_wrappers():
    stored = (GOLDEN / "magic1-append.bin").read_bytes()
    decoded = read(stored)
    assert set(decoded.timestamp.tolist()) == set(struct.unpack_from(">q", stored, 18))
    assert set(decoded.timestamp_type.tolist()) == {1}


def test_a_stored_lz4_frame_has_the_wrong_checksum_that_kafka_3160_tells_of():
    stored = (GOLDEN / "magic0-lz4.bin").read_bytes()
    frame = stored[stored.index(b"\x04\x22\x4d\x18") :]
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    assert lz4.frame.decompress(fix_lz4_checksum(memoryview(frame)))


@pytest.mark.parametrize("store_size", [False, True])
def test_the_mended_checksum_is_lz4s_own(store_size):
    frame = lz4.frame.compress(b"text" * 100, store_size=store_size)
    damaged = bytearray(frame)
    damaged[14 if store_size else 6] ^= 0xFF
    assert fix_lz4_checksum(memoryview(damaged)) == frame
    assert xxh32(b"") == 0x02CC5D05  # from xxHash's own test vectors


@pytest.mark.parametrize(
    ("magic", "codec"),
    # kafka-python needs another package to write the wrong checksum of magic 0 in lz4; a broker's is read above.
    [(magic, codec) for magic in (0, 1) for codec in CODECS if (magic, codec) != (0, Codec.LZ4)],
)
def test_what_kafka_python_builds_is_read(magic, codec):
    builder = MemoryRecordsBuilder(magic=magic, compression_type=int(codec), batch_size=100_000)
    rows = [(None if i % 5 == 0 else b"key%d" % i, None if i % 7 == 1 else b"v" * i) for i in range(40)]
    for i, (key, value) in enumerate(rows):
        builder.append(timestamp=NOW + i, key=key, value=value)
    builder.close()
    data = bytearray(builder.buffer())
    if codec is not Codec.NONE:
        struct.pack_into(">q", data, 0, 39)  # a producer leaves the wrapper's offset to the broker
    decoded = read(bytes(data))
    assert list(zip(decoded.key.to_pylist(), decoded.value.to_pylist(), strict=True)) == rows
    assert decoded.offset.tolist() == list(range(40))
    assert decoded.timestamp.tolist() == [NOW + i if magic else -1 for i in range(40)]


def test_offsets_in_a_compacted_wrapper_are_counted_from_its_last():
    inner = message(0, b"a", b"1") + message(3, b"b", b"2", timestamp=NOW - 5) + message(7, b"c", None)
    data = message(107, None, compress(Codec.GZIP, inner), attributes=1)
    decoded = read(data, start=101)
    assert decoded.offset.tolist() == [103, 107]
    assert decoded.timestamp.tolist() == [NOW - 5, NOW]
    assert decoded.next_offsets.tolist() == [108]


def test_formats_may_change_within_a_response():
    old = message(0, b"k", b"0", magic=0) + message(1, b"k", b"1") + message(2, None, b"2", attributes=8, timestamp=NOW)
    data = old + encode_batch([Record(3, NOW, b"k", b"3")])
    decoded = read(data)
    assert decoded.offset.tolist() == [0, 1, 2, 3]
    assert decoded.timestamp_type.tolist() == [-1, 0, 1, 0]
    assert decoded.value.to_pylist() == [b"0", b"1", b"2", b"3"]


def test_a_filler_at_the_end_is_skipped():
    data = message(5, b"k", b"v") + message(-1, None, None, magic=0)
    decoded = read(data, start=5)
    assert decoded.offset.tolist() == [5]
    assert decoded.next_offsets.tolist() == [6]


def test_every_truncation_keeps_the_whole_messages_before_it():
    first, second = message(0, b"k", b"v"), message(1, b"kk", b"vv")
    for cut in range(len(second)):
        assert read(first + second[:cut]).offset.tolist() == [0]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(message(1, None, None, attributes=1), id="a wrapper of nothing"),
        pytest.param(message(1, None, b"noise", attributes=1), id="noise for gzip"),
        pytest.param(
            message(1, None, compress(Codec.GZIP, message(0, None, b"v")[:-1]), attributes=1), id="cut inside"
        ),
        pytest.param(
            message(1, None, compress(Codec.GZIP, message(0, None, b"v", magic=0)), attributes=1), id="another format"
        ),
        pytest.param(
            message(1, None, compress(Codec.GZIP, message(0, None, b"v", attributes=1)), attributes=1),
            id="two wrappers",
        ),
        pytest.param(
            message(1, None, compress(Codec.GZIP, message(9, None, b"v", magic=0)), magic=0, attributes=1),
            id="offsets beyond the wrapper's",
        ),
    ],
)
def test_wrappers_that_make_no_sense_are_corrupt(data):
    with pytest.raises(CorruptBatchError) as caught:
        read(data)
    assert caught.value.offset == 1


def test_an_unknown_codec_is_named():
    with pytest.raises(UnsupportedVersionError, match="codec 7"):
        read(message(1, None, b"x", attributes=7))


def test_a_wrong_crc_is_corrupt_unless_checks_are_off():
    data = bytearray(message(0, b"k", b"v"))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        read(bytes(data))
    assert read(bytes(data), check_crc=False).value.to_pylist() == [b"w"]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(CODECS), st.sampled_from([0, 1]))
def test_damage_ends_in_a_typed_error_or_in_records(data, codec, magic):
    inner = b"".join(message(i, b"k", b"v" * i, magic=magic) for i in range(10))
    whole = bytearray(message(9, None, compress(codec, inner), magic=magic, attributes=codec) if codec else inner)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(whole), check_crc=False)
    except WireError:
        pass


def test_old_messages_beyond_the_budget_are_left_for_the_next_time():
    data = b"".join(message(offset, b"k", b"v" * 30) for offset in range(3))
    pieces = [RecordSlice(memoryview(data), 0, 9)]
    decoded = decode(pieces, Columns(), read_committed=True, budget_bytes=60)
    assert decoded.offset.tolist() == [0, 1]
    assert decoded.unfinished == {0}
    assert decoded.next_offsets.tolist() == [2]


def test_a_wrapper_whose_messages_have_negative_offsets_is_corrupt():
    inner = message(0, b"k", b"v") + message(5, b"k", b"v")
    wrapper = message(-(2**63), None, compress(Codec.LZ4, inner), attributes=int(Codec.LZ4))
    with pytest.raises(CorruptBatchError):
        read(wrapper)
