"""Each codec there and back, against another library's framing, damaged, and as a bomb."""

from __future__ import annotations

import gzip
import os
import struct
import time

import lz4.frame
import pytest
import snappy
import zstandard

from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError
from pykafka_wire.wire.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    Codec,
    codec_of,
    compress,
    decompress,
    zstd_fits,
)

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [b"", b"a", os.urandom(100), b"abc" * 50_000, os.urandom(70_000) + bytes(200_000)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("sample", SAMPLES, ids=len)
def test_what_is_packed_unpacks(codec, sample):
    assert bytes(decompress(codec, memoryview(compress(codec, sample)))) == sample


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_is_an_error(codec):
    packed = compress(codec, b"some text, some text, some text" * 20)
    for cut in range(1, len(packed)):
        if codec is Codec.SNAPPY and cut == 16:
            continue  # the frame's header alone: no blocks, no data
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused_before_it_is_unpacked(codec):
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(CorruptBatchError, match="more than 1000000 bytes"):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("noise", [b"\x00" * 40, b"\xff" * 40, os.urandom(200)], ids=["zeros", "ones", "random"])
def test_noise_is_a_typed_error(codec, noise):
    with pytest.raises(CorruptBatchError):
        decompress(codec, noise)


def test_raw_snappy_is_read_too():
    assert decompress(Codec.SNAPPY, snappy.compress(b"raw")) == b"raw"


def test_snappy_is_framed_as_snappy_java_does():
    packed = compress(Codec.SNAPPY, b"x" * 40_000)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert len(snappy.uncompress(packed[20 : 20 + size])) == 32 * 1024


def test_lz4_blocks_are_independent_as_java_demands():
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, b"x" * 1_000_000))["block_linked"] is False


def test_several_frames_are_one_batch():
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"))) == b"onetwo"
    pack = zstandard.ZstdCompressor(write_content_size=False).compress
    assert bytes(decompress(Codec.ZSTD, pack(b"one") + pack(b"two"))) == b"onetwo"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_many_small_frames_take_time_in_proportion(codec: Codec) -> None:
    empty = compress(codec, b"")
    started = time.process_time()
    assert len(decompress(codec, empty * (3_000_000 // len(empty)) + compress(codec, b"end"))) == 3
    assert time.process_time() - started < 5


def test_zstd_without_content_size_grows_as_needed():
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000_000))
    assert len(decompress(Codec.ZSTD, packed)) == 10_000_000


@pytest.mark.parametrize("level", [-5, 1, 3, 19])
@pytest.mark.parametrize("sample", [*SAMPLES, bytes(1_000_000), b"ab" * 300_000 + os.urandom(300_000)], ids=len)
@pytest.mark.parametrize("sized", [True, False])
def test_zstd_never_unpacks_to_more_than_its_blocks_say(level, sample, sized):
    packed = zstandard.ZstdCompressor(level=level, write_content_size=sized, write_checksum=sized).compress(sample)
    assert zstd_fits(packed, MAX_DECOMPRESSED_BYTES)
    assert not zstd_fits(packed, len(sample) - 1)
    assert decompress(Codec.ZSTD, packed) == sample
    assert decompress(Codec.ZSTD, packed, max(1, len(sample))) == sample


def zstd_frame(*blocks: tuple[int, int, bytes]) -> bytes:
    """A frame of a 128-KiB window, of blocks of ``(type, size, content)``."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00" + bytes([7 << 3]))
    for nth, (kind, size, content) in enumerate(blocks, 1):
        frame += ((nth == len(blocks)) | kind << 1 | size << 3).to_bytes(3, "little") + content
    return bytes(frame)


@pytest.mark.parametrize("cap", [200_000, 10_000_000], ids=["in steps", "in one piece"])
def test_zstd_blocks_of_each_type_and_frames_of_each_kind(cap):
    repeated, raw, reserved = (1, 1000, b"x"), (0, 3, b"abc"), (3, 1, b"x")
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    plain = b"x" * 1000 + b"abc"
    assert decompress(Codec.ZSTD, zstd_frame(repeated, raw), cap) == plain
    assert decompress(Codec.ZSTD, skippable + zstd_frame(repeated, raw), cap) == plain
    assert decompress(Codec.ZSTD, zstd_frame(repeated, raw) + skippable + zstd_frame(raw), cap) == plain + b"abc"
    with pytest.raises(CorruptBatchError):
        decompress(Codec.ZSTD, zstd_frame(repeated, reserved), cap)
    with pytest.raises(CorruptBatchError):
        decompress(Codec.ZSTD, zstd_frame((1, 2**21 - 1, b"x")), cap)


def test_zstd_of_blocks_without_number_is_looked_at_no_longer_than_needed():
    packed = zstd_frame(*[(0, 0, b"")] * 300_000)
    started = time.process_time()
    assert not zstd_fits(packed, MAX_DECOMPRESSED_BYTES)
    assert time.process_time() - started < 0.1


def test_an_unknown_codec_is_named():
    with pytest.raises(UnsupportedVersionError, match="codec 5"):
        codec_of(5)
