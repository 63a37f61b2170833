"""Bytes that are written one behind the other into one array: what many batches decompress to.

Owns that array. It does not know what is written.
"""

from __future__ import annotations

from pykafka_wire.wire.buffers import empty_buffer
from pykafka_wire.wire.records.varints import Octets


class GrowingBuffer:
    """An array that is replaced by one of twice the size when it is full. What of it was never written takes no memory.

    Attributes:
        size: bytes written so far.
    """

    __slots__ = ("_array", "_octets", "size")

    def __init__(self, capacity: int) -> None:
        self._array: Octets = empty_buffer(capacity)
        self._octets = self._array.data
        self.size = 0

    def room(self, n_bytes: int) -> memoryview:
        """A view of the next ``n_bytes``; whoever writes there adds to ``size``."""
        end = self.size + n_bytes
        if end > len(self._octets):
            written = self.written()
            self._array = empty_buffer(max(end, 2 * len(self._octets)))
            self._array[: self.size] = written
            self._octets = self._array.data
        return self._octets[self.size : end]

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` next."""
        self.room(len(data))[:] = data
        self.size += len(data)

    def written(self) -> Octets:
        """What was written: a view, valid until the next byte is written."""
        return self._array[: self.size]
