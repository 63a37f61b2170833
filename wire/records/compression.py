"""The five codecs of record batches, each with a limit on the decompressed size.

Owns xerial's framing for snappy; lz4's is :mod:`~pykafka_wire.wire.records.compression`'s. Libraries compress and
decompress; docs/design/speed.md compares them. Each is loaded by the first use of its codec: a process rarely needs two of
them. https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykafka_wire.wire.arrow.varints import ByteBuffer
from pykafka_wire.wire.buffers import empty_buffer
from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError

if TYPE_CHECKING:
    import zstandard

#: Maximum decompressed size of one batch, against decompression bombs: brokers limit the compressed size only.
#: Ordinary batches have up to 1 MiB compressed, and text compresses a hundredfold at most.
MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024

#: Frame of snappy-java ("xerial"): magic, version, lowest compatible version, then blocks with an int32 length each.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
_GZIP_WINDOW: Final = 31
#: Batches that decompress to more than this many times their size are rare: a buffer grows for them.
USUAL_RATIO: Final = 8
#: A byte of an LZ4 block decompresses to at most 255 bytes (the format's limit).
_LZ4_MAX_RATIO: Final = 255
#: Input is passed to a library in chunks of this size if its output must be limited: zstd's library has no limit of its own,
#: and four bytes may decompress to 128 KiB.
_CHUNK_BYTES: Final = 4096
#: A zstd frame's magic number (RFC 8878, 3.1.1), the maximum decompressed size of a block (3.1.1.2.4), and the bits of a
#: block's header: last block, block type, and the type of one repeated byte.
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_LAST_BLOCK: Final = 0b001
_ZSTD_BLOCK_TYPE: Final = 0b110
_ZSTD_RLE_BLOCK: Final = 0b010


class GrowingBuffer:
    """An array that is replaced by one of twice the size when it is full. What of it was never written takes no memory.

    Attributes:
        size: bytes written so far.
    """

    __slots__ = ("_array", "_view", "size")

    def __init__(self, capacity: int) -> None:
        self._array: ByteBuffer = empty_buffer(capacity)
        self._view = self._array.data
        self.size = 0

    def room(self, n_bytes: int) -> memoryview:
        """Return a view of the next ``n_bytes``; whoever writes there adds to ``size``."""
        end = self.size + n_bytes
        if end > len(self._view):
            written = self.written()
            self._array = empty_buffer(max(end, 2 * len(self._view)))
            self._array[: self.size] = written
            self._view = self._array.data
        return self._view[self.size : end]

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` next."""
        self.room(len(data))[:] = data
        self.size += len(data)

    def written(self) -> ByteBuffer:
        """Return what was written: a view, valid until the next byte is written."""
        return self._array[: self.size]


class Codec(IntEnum):
    """A batch's compression: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


Bytes = bytes | bytearray | memoryview

#: The libraries' errors for damaged data: Python's own, and what these modules define (igzip_lib is in isal; zstandard's error was
#: zstd's before 0.25).
_LIBRARY_ERRORS: Final = (RuntimeError, ValueError, EOFError, OSError, MemoryError)
_LIBRARIES: Final = ("cramjam", "igzip_lib", "snappy", "zstandard", "zstd")


def codec_of(attributes: int) -> Codec:
    """Return the codec in a batch's attributes. Raises UnsupportedVersionError for an unknown one."""
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise UnsupportedVersionError(f"compression codec {attributes & 0x07} is unknown") from None


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """Return ``data`` compressed, as :func:`compressor` does it."""
    return compressor(codec, level)(data)


def compressor(codec: Codec, level: int | None = None) -> Callable[[Bytes], bytes]:
    """Return a function that compresses one batch after another, framed as Kafka's Java clients expect it; not thread-safe.

    Args:
        level: the codec's own scale, None for its default; gzip's 1 to 9 are mapped to ISA-L's 1 to 3.
    """
    if codec is Codec.NONE:
        return bytes
    if codec is Codec.GZIP:
        from isal import isal_zlib

        isal_level = 2 if level is None else min(3, max(1, (level + 2) // 3))
        return lambda data: bytes(isal_zlib.compress(data, isal_level, wbits=_GZIP_WINDOW))
    if codec is Codec.SNAPPY:
        return _snappy_xerial
    if codec is Codec.LZ4:
        import lz4.frame

        # Java rejects linked blocks; with the content size a reader can decompress in one call.
        return lambda data: bytes(
            lz4.frame.compress(data, compression_level=level or 0, block_linked=False, store_size=True)
        )
    import zstandard

    # One context for many batches: making it costs 10 of the 58 us that a 16-KiB batch takes.
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress


def _snappy_xerial(data: Bytes) -> bytes:
    import snappy

    view = memoryview(data)
    blocks = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_BYTES])
        blocks += (_INT32.pack(len(block)), block)
    return b"".join(blocks)


def decompress(codec: Codec, data: Bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Bytes:
    """Return ``data`` decompressed, as :class:`Decompressor` does it; ``data`` itself if it is not compressed."""
    if codec is Codec.NONE and len(data) <= max_bytes:
        return data
    output = GrowingBuffer(USUAL_RATIO * len(data))
    Decompressor(max_bytes).decompress_into(codec, data, output)
    return output.written().data


class Decompressor:
    """Decompresses one batch after another; not thread-safe."""

    def __init__(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._zstd: zstandard.ZstdDecompressor | None = None

    def decompress_into(self, codec: Codec, data: Bytes, output: GrowingBuffer) -> None:
        """Write ``data`` decompressed next into ``output``. An error leaves that as it was.

        Raises:
            CorruptBatchError: it is damaged, or its decompressed size exceeds ``max_bytes``.
        """
        before = output.size
        try:
            if codec is Codec.SNAPPY:
                _unsnappy(memoryview(data), output, self._max_bytes)
            elif codec is Codec.LZ4:
                _unlz4(memoryview(data), output, self._max_bytes)
            elif codec is Codec.GZIP:
                output.append(_gunzip(data, self._max_bytes))
            elif codec is Codec.ZSTD:
                if self._zstd is None:
                    import zstandard

                    # One context for many batches: making it costs 7 of the 19 us that a 16-KiB batch takes.
                    self._zstd = zstandard.ZstdDecompressor()
                output.append(_unzstd(self._zstd, data, self._max_bytes))
            else:
                output.append(data)
            if output.size - before > self._max_bytes:
                raise _too_large(codec, self._max_bytes)
        except Exception as error:
            output.size = before
            if _is_about_data(error):
                raise CorruptBatchError(f"{codec.name.lower()} data cannot be decompressed: {error}") from error
            raise


def _is_about_data(error: Exception) -> bool:
    """Return whether a library found damaged data. Of cramjam's errors Exception is the base."""
    if isinstance(error, CorruptBatchError):
        return False
    return isinstance(error, _LIBRARY_ERRORS) or type(error).__module__.partition(".")[0] in _LIBRARIES


def _gunzip(data: Bytes, max_bytes: int) -> bytes:
    from isal import isal_zlib

    return _decompress_frames(
        Codec.GZIP,
        data,
        max_bytes,
        new=lambda rest, max_bytes: isal_zlib.decompressobj(wbits=_GZIP_WINDOW),
        feed=lambda decompressor, chunk, max_bytes: decompressor.decompress(chunk, max_bytes + 1),
    )


def _unsnappy(data: memoryview, output: GrowingBuffer, max_bytes: int) -> None:
    limit = output.size + max_bytes
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, output, limit, max_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatchError("snappy data ends inside its header")
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptBatchError("snappy data ends inside a block's length")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptBatchError(f"a snappy block of {size} bytes, but only {len(data) - position} are left")
        _unsnappy_block(data[position : position + size], output, limit, max_bytes)
        position += size
    return None


def _unsnappy_block(block: memoryview, output: GrowingBuffer, limit: int, max_bytes: int) -> None:
    import cramjam

    # A block begins with its decompressed size as a varint: check it before anything is allocated.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if output.size + size > limit:
        raise _too_large(Codec.SNAPPY, max_bytes)
    output.size += cramjam.snappy.decompress_raw_into(block, output.room(size))


def _unlz4(data: memoryview, output: GrowingBuffer, max_bytes: int) -> None:
    before = output.size
    frame = plain_lz4_frame(data)
    if frame is None or not _unlz4_blocks(frame, output, max_bytes):
        output.size = before
        output.append(_unlz4_frames(data, max_bytes))


def _unlz4_blocks(frame: Lz4Frame, output: GrowingBuffer, max_bytes: int) -> bool:
    """Return whether the blocks were decompressed: if they are damaged, the library has a message for it."""
    import cramjam

    first = output.size
    for block, is_compressed in frame.blocks:
        if len(block) > frame.block_bytes:
            return False
        if is_compressed:
            limit = min(frame.block_bytes, _LZ4_MAX_RATIO * len(block))
            try:
                output.size += cramjam.lz4.decompress_block_into(block, output.room(limit), output_len=limit)
            except cramjam.DecompressionError:
                return False
        else:
            output.append(block)
        if output.size - first > max_bytes:
            raise _too_large(Codec.LZ4, max_bytes)
    return frame.n_bytes is None or frame.n_bytes == output.size - first


def _unlz4_frames(data: memoryview, max_bytes: int) -> bytes:
    """Return frames of any kind."""
    import lz4.frame

    if len(data) * _LZ4_MAX_RATIO > max_bytes:
        return _decompress_frames(
            Codec.LZ4,
            data,
            max_bytes,
            new=lambda rest, max_bytes: lz4.frame.LZ4FrameDecompressor(),
            feed=lambda decompressor, chunk, max_bytes: decompressor.decompress(chunk, max_length=max_bytes + 1),
        )
    # The output cannot exceed the limit here; the library's own limit makes a 16-KiB batch five times as slow.
    pieces: list[bytes] = []
    while len(data):
        piece, used = lz4.frame.decompress(data, return_bytes_read=True)
        pieces.append(piece)
        data = data[used:]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unzstd(context: zstandard.ZstdDecompressor, data: Bytes, max_bytes: int) -> bytes:
    import zstandard

    def new(rest: memoryview, n_left: int) -> Any:
        if zstandard.frame_content_size(rest) > n_left:  # -1 if the frame does not contain its size
            raise _too_large(Codec.ZSTD, max_bytes)
        return context.decompressobj()

    def feed(decompressor: Any, chunk: memoryview, max_bytes: int) -> bytes:
        return bytes(decompressor.decompress(chunk))

    # In one call if the output cannot exceed the limit: chunks take a tenth longer.
    if zstd_fits(data, max_bytes):
        decompressor = context.decompressobj()
        decompressed = decompressor.decompress(data)
        if not decompressor.eof:
            raise CorruptBatchError("zstd data ends early")
        if not decompressor.unused_data:
            return bytes(decompressed)
        del decompressed  # more frames follow
    return _decompress_frames(Codec.ZSTD, data, max_bytes, new=new, feed=feed, first_chunk_bytes=_CHUNK_BYTES)


def zstd_fits(data: Bytes, max_bytes: int) -> bool:
    """Return whether ``data`` begins with a frame that has too few blocks to exceed ``max_bytes``."""
    if bytes(data[:4]) != _ZSTD_MAGIC:
        return False
    import zstandard

    position = zstandard.frame_header_size(data)
    for _ in range(max_bytes // _ZSTD_BLOCK_BYTES):
        header = int.from_bytes(data[position : position + 3], "little")
        position += 3 + (1 if header & _ZSTD_BLOCK_TYPE == _ZSTD_RLE_BLOCK else header >> 3)
        if header & _ZSTD_LAST_BLOCK or position >= len(data):
            return True
    return False


def _decompress_frames(
    codec: Codec,
    data: Bytes,
    max_bytes: int,
    *,
    new: Callable[[memoryview, int], Any],
    feed: Callable[[Any, memoryview, int], bytes],
    first_chunk_bytes: int | None = None,
) -> bytes:
    """Decompress frame after frame: the libraries take one at a time.

    Args:
        new: makes the library's object for the next frame, from the remaining data and limit; it has ``eof`` and ``unused_data``.
        feed: decompresses a chunk of the frame; if the library can, to at most one byte above the remaining limit.
        first_chunk_bytes: the chunk size of the first frame; all of it by default. Later frames get small chunks: the
            library returns the unused rest of a chunk as a copy, and there may be many frames.
    """
    rest = memoryview(data)
    pieces: list[bytes] = []
    n_left = max_bytes
    chunk_bytes = first_chunk_bytes or len(rest)
    while len(rest):
        decompressor = new(rest, n_left)
        fed = 0
        while not decompressor.eof and fed < len(rest):
            piece = feed(decompressor, rest[fed : fed + chunk_bytes], n_left)
            fed += chunk_bytes
            n_left -= len(piece)
            if n_left < 0:
                raise _too_large(codec, max_bytes)
            pieces.append(piece)
        if not decompressor.eof:
            raise CorruptBatchError(f"{codec.name.lower()} data ends early")
        rest = rest[min(fed, len(rest)) - len(decompressor.unused_data or b"") :]
        chunk_bytes = _CHUNK_BYTES
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(codec: Codec, max_bytes: int) -> CorruptBatchError:
    return CorruptBatchError(f"{codec.name.lower()} data decompresses to more than {max_bytes} bytes")


# --- the blocks of an lz4 frame -----------------------------------------------------------------------------------------
# As Kafka's clients write them: independent ones, without checksums. A batch of 16 KiB is decompressed block by block in half of
# the time that a library takes for the frame, and into memory that is there already.

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
#: Magic, flags, and the code of the maximum size of a block; a byte of checksum follows the header.
_LZ4_HEADER: Final = struct.Struct("<4sBB")
#: Version 1 and independent blocks. Other flags: checksums of blocks or of the content, a dictionary.
_LZ4_PLAIN: Final = 0b0110_0000
_LZ4_HAS_SIZE: Final = 0b0000_1000
_LZ4_INT32: Final = struct.Struct("<I")
_LZ4_INT64: Final = struct.Struct("<Q")
_LZ4_UNCOMPRESSED: Final = 1 << 31
#: By the header's byte: 64 KiB, 256 KiB, 1 MiB and 4 MiB.
_LZ4_BLOCK_BYTES: Final = {code << 4: 1 << (8 + 2 * code) for code in (4, 5, 6, 7)}
#: Frames of more blocks are not for a loop in Python: damaged data may have a block, and an object of 240 bytes, in four bytes.
_LZ4_MAX_BLOCKS: Final = 4096


class Lz4Frame(NamedTuple):
    """What is in a frame.

    Attributes:
        block_bytes: the maximum decompressed size of a block.
        n_bytes: the decompressed size of all, None if the frame does not contain it.
        blocks: each with whether it is compressed.
    """

    block_bytes: int
    n_bytes: int | None
    blocks: list[tuple[memoryview, bool]]


def plain_lz4_frame(data: memoryview) -> Lz4Frame | None:
    """Return the frame that ``data`` is: None if it is another kind of frame, several, one of too many blocks, incomplete or
    damaged.
    """
    if len(data) < _LZ4_HEADER.size + 1:
        return None
    magic, flags, code = _LZ4_HEADER.unpack_from(data)
    block_bytes = _LZ4_BLOCK_BYTES.get(code)
    if magic != _LZ4_MAGIC or flags & ~_LZ4_HAS_SIZE != _LZ4_PLAIN or block_bytes is None:
        return None
    position = _LZ4_HEADER.size + 1
    n_bytes = None
    if flags & _LZ4_HAS_SIZE:
        position += _LZ4_INT64.size
        if len(data) < position:
            return None
        (n_bytes,) = _LZ4_INT64.unpack_from(data, _LZ4_HEADER.size)
    blocks: list[tuple[memoryview, bool]] = []
    last = len(data) - _LZ4_INT32.size
    while position < last:
        if len(blocks) == _LZ4_MAX_BLOCKS:
            return None
        (size,) = _LZ4_INT32.unpack_from(data, position)
        is_compressed = size < _LZ4_UNCOMPRESSED
        position += _LZ4_INT32.size
        end = position + (size if is_compressed else size - _LZ4_UNCOMPRESSED)
        blocks.append((data[position:end], is_compressed))
        position = end
    # The last four bytes are a block's size of 0.
    if position != last or any(data[last:]):
        return None
    return Lz4Frame(block_bytes, n_bytes, blocks)
