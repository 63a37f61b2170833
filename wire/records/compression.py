"""The five codecs of record batches, each with a cap on what it may unpack to.

Owns the framings that Kafka uses around them: xerial's for snappy, frames of independent blocks for lz4. Libraries do the
work; the fastest of those tried are used (see DESIGN.md, Performance). https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import lz4.frame
import snappy
import zstandard
from isal import isal_zlib
from isal.igzip_lib import IsalError

from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError

#: What one batch may unpack to. Brokers bound what is stored, not what it unpacks to: this bounds a decompression bomb.
#: Ordinary batches hold up to 1 MiB compressed, and text compresses a hundredfold at the very best.
MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024

#: Frame of snappy-java ("xerial"): magic, version, lowest compatible version, then blocks with an int32 length each.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
_GZIP_WINDOW: Final = 31
#: A byte of an LZ4 block unpacks to at most 255 (the format's limit).
_LZ4_MAX_RATIO: Final = 255
#: What a library is fed at a time, where it may not be all: zstd's has no cap of its own, and four bytes may unpack to 128 KiB.
_STEP_BYTES: Final = 4096
#: How a frame of zstd data begins (RFC 8878, 3.1.1), what a block of it unpacks to at most (3.1.1.2.4), and how its header
#: says that it is the last one, or one octet repeated.
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_LAST_BLOCK: Final = 0b001
_ZSTD_BLOCK_TYPE: Final = 0b110
_ZSTD_RLE_BLOCK: Final = 0b010


class Codec(IntEnum):
    """A batch's compression, as the lowest three bits of its attributes say it."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


Bytes = bytes | bytearray | memoryview

#: What the libraries raise for damaged data; ISA-L's own error is no zlib.error.
_REFUSALS: Final[tuple[type[Exception], ...]] = (
    RuntimeError, ValueError, EOFError, OSError, MemoryError, IsalError, zstandard.ZstdError,  # type: ignore[assignment]
)  # fmt: skip


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes. Raises UnsupportedVersionError for one that does not exist."""
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise UnsupportedVersionError(f"compression codec {attributes & 0x07} is not known") from None


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """``data`` compressed, as :func:`compressor` does it."""
    return compressor(codec, level)(data)


def compressor(codec: Codec, level: int | None = None) -> Callable[[Bytes], bytes]:
    """A function that compresses one batch after another, framed as Kafka's Java clients expect it; of one thread only.

    Args:
        level: the codec's own scale, None for its default; gzip's 1 to 9 are mapped to ISA-L's 1 to 3.
    """
    if codec is Codec.NONE:
        return bytes
    if codec is Codec.GZIP:
        isal_level = 2 if level is None else min(3, max(1, (level + 2) // 3))
        return lambda data: bytes(isal_zlib.compress(data, isal_level, wbits=_GZIP_WINDOW))
    if codec is Codec.SNAPPY:
        return _snappy_xerial
    if codec is Codec.LZ4:
        # Java refuses linked blocks; the content size lets a reader unpack in one go.
        return lambda data: bytes(
            lz4.frame.compress(data, compression_level=level or 0, block_linked=False, store_size=True)
        )
    # One context for many batches: making it costs 10 of the 58 us that a 16-KiB batch takes.
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress


def _snappy_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    blocks = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_BYTES])
        blocks += (_INT32.pack(len(block)), block)
    return b"".join(blocks)


def decompress(codec: Codec, data: Bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Bytes:
    """``data`` unpacked, as a :class:`Decompressor` does it."""
    return Decompressor(max_bytes).decompress(codec, data)


class Decompressor:
    """Unpacks one batch after another; of one thread only."""

    def __init__(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._zstd: zstandard.ZstdDecompressor | None = None

    def decompress(self, codec: Codec, data: Bytes) -> Bytes:
        """``data`` unpacked; itself where it is not compressed.

        Raises:
            CorruptBatchError: it is damaged, or would unpack to more than ``max_bytes``.
        """
        max_bytes = self._max_bytes
        try:
            if codec is Codec.NONE:
                unpacked: Bytes = data
            elif codec is Codec.GZIP:
                unpacked = _gunzip(data, max_bytes)
            elif codec is Codec.SNAPPY:
                unpacked = _unsnappy(memoryview(data), max_bytes)
            elif codec is Codec.LZ4:
                unpacked = _unlz4(data, max_bytes)
            else:
                if self._zstd is None:
                    # One context for many batches: making it costs 7 of the 19 us that a 16-KiB batch takes.
                    self._zstd = zstandard.ZstdDecompressor()
                unpacked = _unzstd(self._zstd, data, max_bytes)
        except CorruptBatchError:
            raise
        except _REFUSALS as error:
            raise CorruptBatchError(f"{codec.name.lower()} data cannot be unpacked: {error}") from error
        except Exception as error:  # cramjam's errors derive from Exception alone
            if type(error).__module__.partition(".")[0] not in ("cramjam", "snappy"):
                raise
            raise CorruptBatchError(f"{codec.name.lower()} data cannot be unpacked: {error}") from error
        if len(unpacked) > max_bytes:
            raise _too_large(codec, max_bytes)
        return unpacked


def _gunzip(data: Bytes, max_bytes: int) -> bytes:
    return _unpack(
        Codec.GZIP,
        data,
        max_bytes,
        new=lambda rest, left: isal_zlib.decompressobj(wbits=_GZIP_WINDOW),
        feed=lambda unpacker, octets, left: unpacker.decompress(octets, left + 1),
    )


def _unsnappy(data: memoryview, max_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes, max_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatchError("snappy data ends inside its header")
    pieces = []
    position = len(_XERIAL_HEADER)
    left = max_bytes
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptBatchError("snappy data ends inside a block's length")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptBatchError(f"a snappy block of {size} bytes, where {len(data) - position} are left")
        pieces.append(_unsnappy_block(data[position : position + size], left, max_bytes))
        left -= len(pieces[-1])
        position += size
    return b"".join(pieces)


def _unsnappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    # A block begins with its unpacked size as a varint: look before anything is allocated.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > left:
        raise _too_large(Codec.SNAPPY, max_bytes)
    return bytes(snappy.uncompress(bytes(block)))


def _unlz4(data: Bytes, max_bytes: int) -> bytes:
    if len(data) * _LZ4_MAX_RATIO > max_bytes:
        return _unpack(
            Codec.LZ4,
            data,
            max_bytes,
            new=lambda rest, left: lz4.frame.LZ4FrameDecompressor(),
            feed=lambda unpacker, octets, left: unpacker.decompress(octets, max_length=left + 1),
        )
    # It cannot become too large; the library's own cap makes unpacking a 16-KiB batch five times as slow.
    pieces: list[bytes] = []
    rest = memoryview(data)
    while len(rest):
        piece, used = lz4.frame.decompress(rest, return_bytes_read=True)
        pieces.append(piece)
        rest = rest[used:]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unzstd(context: zstandard.ZstdDecompressor, data: Bytes, max_bytes: int) -> bytes:
    def new(rest: memoryview, left: int) -> Any:
        if zstandard.frame_content_size(rest) > left:  # -1 where the frame does not say
            raise _too_large(Codec.ZSTD, max_bytes)
        return context.decompressobj()

    def feed(unpacker: Any, octets: memoryview, left: int) -> bytes:
        return bytes(unpacker.decompress(octets))

    # In one piece where that cannot become too large: steps take a tenth longer.
    if _zstd_fits(data, max_bytes):
        unpacker = context.decompressobj()
        unpacked = unpacker.decompress(data)
        if not unpacker.eof:
            raise CorruptBatchError("zstd data ends early")
        if not unpacker.unused_data:
            return bytes(unpacked)
        del unpacked  # more frames follow
    return _unpack(Codec.ZSTD, data, max_bytes, new=new, feed=feed, first_step_bytes=_STEP_BYTES)


def _zstd_fits(data: Bytes, max_bytes: int) -> bool:
    """Whether ``data`` begins with a frame that has too few blocks to unpack to more than ``max_bytes``."""
    if bytes(data[:4]) != _ZSTD_MAGIC:
        return False
    at = zstandard.frame_header_size(data)
    for _ in range(max_bytes // _ZSTD_BLOCK_BYTES):
        header = int.from_bytes(data[at : at + 3], "little")
        at += 3 + (1 if header & _ZSTD_BLOCK_TYPE == _ZSTD_RLE_BLOCK else header >> 3)
        if header & _ZSTD_LAST_BLOCK or at >= len(data):
            return True
    return False


def _unpack(
    codec: Codec,
    data: Bytes,
    max_bytes: int,
    *,
    new: Callable[[memoryview, int], Any],
    feed: Callable[[Any, memoryview, int], bytes],
    first_step_bytes: int | None = None,
) -> bytes:
    """Frame after frame, which the libraries take one at a time.

    Args:
        new: from what is left of data and cap, the library's object for the next frame; has ``eof`` and ``unused_data``.
        feed: unpacks a piece of the frame, to no more than a byte above what is left of the cap, if it can.
        first_step_bytes: what the first frame is fed at a time, all by default. Later ones get small steps: what a frame does
            not use comes back as a copy, and there may be many.
    """
    rest = memoryview(data)
    pieces: list[bytes] = []
    left = max_bytes
    step = first_step_bytes or len(rest)
    while len(rest):
        unpacker = new(rest, left)
        fed = 0
        while not unpacker.eof and fed < len(rest):
            piece = feed(unpacker, rest[fed : fed + step], left)
            fed += step
            left -= len(piece)
            if left < 0:
                raise _too_large(codec, max_bytes)
            pieces.append(piece)
        if not unpacker.eof:
            raise CorruptBatchError(f"{codec.name.lower()} data ends early")
        rest = rest[min(fed, len(rest)) - len(unpacker.unused_data or b"") :]
        step = _STEP_BYTES
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(codec: Codec, max_bytes: int) -> CorruptBatchError:
    return CorruptBatchError(f"{codec.name.lower()} data unpacks to more than {max_bytes} bytes")
