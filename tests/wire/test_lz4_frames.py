"""lz4 frames as clients write them, and as they may be: what is decompressed block by block, and what the library gets."""

from __future__ import annotations

import os
import struct
from typing import Any

import lz4.block
import lz4.frame
import pytest

from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.records.compression import (
    Codec,
    Decompressor,
    GrowingBuffer,
    compress,
    decompress,
    plain_lz4_frame,
)

TEXT = b"".join(b'{"id":%d,"name":"n%d"}' % (number, number * 7919) for number in range(20_000))
SAMPLES = [b"", b"a", TEXT, TEXT[:65_536], os.urandom(70_000) + TEXT, bytes(9_000_000)]


def frame(data: bytes, **more: Any) -> memoryview:
    """As Java's client writes it, but for ``more``."""
    settings = {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX64KB, "store_size": False}
    return memoryview(lz4.frame.compress(data, **settings | more))


@pytest.mark.parametrize("sample", SAMPLES, ids=len)
@pytest.mark.parametrize("block_size", range(4, 8))
@pytest.mark.parametrize("store_size", [False, True])
def test_independent_blocks_without_checksums_need_no_library(sample: bytes, block_size: int, store_size: bool) -> None:
    packed = frame(sample, block_size=block_size, store_size=store_size)
    found = plain_lz4_frame(packed)
    assert found is not None
    sizes = {4: 65_536, 5: 262_144, 6: 1_048_576, 7: 4_194_304}
    assert found.block_bytes == sizes[block_size] or len(sample) <= found.block_bytes in sizes.values()
    assert found.n_bytes == (len(sample) if store_size and sample else None)
    assert bytes(decompress(Codec.LZ4, packed)) == sample


@pytest.mark.parametrize(
    "other",
    [{"block_linked": True}, {"content_checksum": True}, {"block_checksum": True}],
    ids=lambda each: next(iter(each)),
)
def test_other_frames_are_the_librarys(other: dict[str, bool]) -> None:
    packed = frame(TEXT, **other)
    assert plain_lz4_frame(packed) is None
    assert bytes(decompress(Codec.LZ4, packed)) == TEXT


def test_several_frames_and_skippable_ones() -> None:
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    packed = bytes(frame(TEXT)) + bytes(frame(b"end"))
    assert plain_lz4_frame(memoryview(packed)) is None
    assert bytes(decompress(Codec.LZ4, packed)) == TEXT + b"end"
    assert plain_lz4_frame(memoryview(skippable + bytes(frame(TEXT)))) is None


def test_each_truncation_and_each_damaged_byte_is_an_error_or_the_same() -> None:
    sample = TEXT[:3_000]
    packed = bytes(frame(sample, store_size=True))
    for cut in range(1, len(packed)):
        with pytest.raises(CorruptBatchError):
            decompress(Codec.LZ4, packed[:cut])
    for at in range(15):  # the header; its checksum is no more checked than the batch's CRC before it
        damaged = bytearray(packed)
        damaged[at] ^= 0x11
        try:
            assert bytes(decompress(Codec.LZ4, damaged)) == sample
        except CorruptBatchError:
            continue


def test_a_size_that_is_not_the_blocks_is_an_error() -> None:
    packed = bytearray(frame(TEXT, store_size=True))
    packed[6:14] = struct.pack("<Q", len(TEXT) - 1)
    with pytest.raises(CorruptBatchError):
        decompress(Codec.LZ4, packed)


def framed(*blocks: bytes) -> bytes:
    """A frame of blocks of 64 KiB at most, of which each begins with its size."""
    return b"\x04\x22\x4d\x18\x60\x40\x82" + b"".join(blocks) + bytes(4)


def test_a_block_of_more_than_the_headers_size_is_an_error() -> None:
    compressed = lz4.block.compress(bytes(65_537), store_size=False)
    plain = os.urandom(65_537)
    longer = lz4.block.compress(plain[:65_536], store_size=False)
    assert len(longer) > 65_536
    for block in (
        struct.pack("<I", len(longer)) + longer,
        struct.pack("<I", len(compressed)) + compressed,
        struct.pack("<I", len(plain) | 1 << 31) + plain,
    ):
        assert plain_lz4_frame(memoryview(framed(block))) is not None
        with pytest.raises(CorruptBatchError):
            decompress(Codec.LZ4, framed(block))


def test_a_frame_of_very_many_blocks_is_left_to_the_library() -> None:
    # An empty block takes four bytes, and a list of a million of them would take 240 MB.
    empty = struct.pack("<I", 1 << 31)
    header = bytes(frame(b""))[:7]
    assert plain_lz4_frame(memoryview(header + 4096 * empty + bytes(4))) is not None
    packed = header + 4097 * empty + bytes(4)
    assert plain_lz4_frame(memoryview(packed)) is None
    assert bytes(decompress(Codec.LZ4, packed)) == b""


@pytest.mark.parametrize("n_blocks", [1, 40])
def test_blocks_that_decompress_to_too_much_are_refused_at_the_limit(n_blocks: int) -> None:
    compressed = lz4.block.compress(bytes(65_536), store_size=False)
    packed = framed(*[struct.pack("<I", len(compressed)) + compressed] * n_blocks)
    output = GrowingBuffer(100)
    with pytest.raises(CorruptBatchError, match="more than 50000 bytes"):
        Decompressor(50_000).decompress_into(Codec.LZ4, packed, output)
    assert output.size == 0
    assert bytes(decompress(Codec.LZ4, packed, 65_536 * n_blocks)) == bytes(65_536 * n_blocks)


@pytest.mark.parametrize("codec", list(Codec))
def test_decompressed_behind_what_is_there(codec: Codec) -> None:
    output = GrowingBuffer(10)
    output.append(b"before")
    decompressor = Decompressor()
    decompressor.decompress_into(codec, compress(codec, TEXT), output)
    if codec is not Codec.NONE:
        with pytest.raises(CorruptBatchError):
            decompressor.decompress_into(codec, compress(codec, TEXT)[:-9], output)
    decompressor.decompress_into(codec, compress(codec, b"behind"), output)
    assert output.written().tobytes() == b"before" + TEXT + b"behind"


def test_a_buffer_grows_by_doubling() -> None:
    output = GrowingBuffer(0)
    arrays = set()
    for number in range(100_000):
        output.append(b"%08d" % number)
        arrays.add(id(output.written().base))
    assert output.written().tobytes() == b"".join(b"%08d" % number for number in range(100_000))
    assert len(arrays) < 25
