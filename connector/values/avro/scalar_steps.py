"""Steps for Avro's primitive values: each reads one type into an Arrow array, or skips it, in all values of a reader.

Owns the way from a reader of many values (:mod:`~pykafka_wire.values.avro.bulk_reader`) to Arrow.
:mod:`~pykafka_wire.values.avro.plan` selects the step for a schema. A step never raises on bytes: it marks values that it cannot
read as failed, and returns meaningless elements for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.avro.bulk_reader import BulkReader
from pykafka_wire.values.bulk.arrays import Flags, Ints, bitmap, not_utf8
from pykafka_wire.values.bulk.reading import Payloads, read_in_groups
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.records.row_segments import byte_lengths

#: Values per group, chosen so that their data fits the cache.
_VALUES_AT_ONCE: Final = 32_768
#: Bytes per group. An item of an array may have one byte, and some 100 are computed of it.
_BYTES_AT_ONCE: Final = 2 << 20
_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1
_DAY_NANOS: Final = 86_400_000_000_000


class Step(ABC):
    """Reads or skips one type of value."""

    @abstractmethod
    def read(self, reader: BulkReader) -> Any:
        """pa.Array, one element for each value."""

    @abstractmethod
    def skip(self, reader: BulkReader) -> None:
        """Advance past the value."""

    @property
    def may_be_empty(self) -> bool:
        """Whether a value may have no bytes."""
        return False

    @property
    def width(self) -> int | None:
        """The number of bytes of every value; None if they differ."""
        return None

    @property
    def free_bytes(self) -> int:
        """What a value takes in a column at most, beside its type's own places, without bytes of its own."""
        return 0


def decode(payloads: Payloads, step: Step, column_type: pa.DataType) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: the values, and which of them were not read; a value with bytes left over was not."""

    def read(group: Payloads) -> tuple[Any, Flags]:
        reader = BulkReader.of(group)
        column = step.read(reader)
        return column, reader.failed | (reader.position != reader.end)

    return read_in_groups(payloads, column_type, read, max_values=_VALUES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Unreadable(Step):
    """A value that is not supported in columns: every value fails."""

    type: pa.DataType

    def read(self, reader: BulkReader) -> Any:
        self.skip(reader)
        return pa.nulls(len(reader), self.type)

    def skip(self, reader: BulkReader) -> None:
        reader.fail(np.ones(len(reader), dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class Null(Step):
    type: pa.DataType

    @property
    def may_be_empty(self) -> bool:
        return True

    def read(self, reader: BulkReader) -> Any:
        return pa.nulls(len(reader), self.type)

    def skip(self, reader: BulkReader) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Constant(Step):
    """A reader's default for a field that the writer does not have. It has no bytes."""

    value: Any  # pa.Array of one element

    @property
    def may_be_empty(self) -> bool:
        return True

    @property
    def free_bytes(self) -> int:
        return int(self.value.nbytes)

    def read(self, reader: BulkReader) -> Any:
        return self.value.take(to_arrow(np.zeros(len(reader), dtype=np.int32)))

    def skip(self, reader: BulkReader) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Boolean(Step):
    def read(self, reader: BulkReader) -> Any:
        octets = reader.octets()
        reader.fail(octets > 1)
        return pa.Array.from_buffers(pa.bool_(), len(octets), [None, bitmap(octets == 1)])

    @property
    def width(self) -> int | None:
        return 1

    def skip(self, reader: BulkReader) -> None:
        reader.advance(1)


@dataclass(frozen=True, slots=True)
class Integer(Step):
    """``int`` or ``long`` as an integer, floating point, date or timestamp column; a value that does not fit fails."""

    type: pa.DataType
    minimum: int
    maximum: int
    factor: int = 1
    divisor: int = 1

    def read(self, reader: BulkReader) -> Any:
        values = reader.longs()
        wrong = (values < self.minimum) | (values > self.maximum)
        if wrong.any():
            reader.fail(wrong)
            values[wrong] = 0
        if self.factor != 1:
            values *= self.factor
        if self.divisor != 1:
            values //= self.divisor
        return _numbers(values, self.type)

    def skip(self, reader: BulkReader) -> None:
        reader.longs()


def integer(arrow_type: pa.DataType, written_bits: int) -> Integer:
    """Integers into an integer or floating point column."""
    bits = min(arrow_type.bit_width, written_bits) if pa.types.is_integer(arrow_type) else written_bits
    return Integer(arrow_type, -(1 << bits - 1), (1 << bits - 1) - 1)


def moment(arrow_type: pa.DataType, factor: int, divisor: int) -> Integer:
    """A time in another unit than the column's: ``factor`` of the column's in one, or ``divisor`` of its own in one."""
    minimum, maximum = (0, _DAY_NANOS - 1) if pa.types.is_time64(arrow_type) else (_MIN_LONG, _MAX_LONG)
    if divisor > 1:
        return Integer(arrow_type, _MIN_LONG, _MAX_LONG, divisor=divisor)
    return Integer(arrow_type, -(-minimum // factor), maximum // factor, factor)


@dataclass(frozen=True, slots=True)
class Floating(Step):
    """``float`` (``<f4``) or ``double`` (``<f8``) as a floating point column; a value that is too large for it fails."""

    dtype: str
    type: pa.DataType

    def read(self, reader: BulkReader) -> Any:
        values = reader.fixed(self.dtype)
        if self.dtype == "<f8" and self.type == pa.float32():
            with np.errstate(over="ignore", invalid="ignore"):
                narrow = values.astype(np.float32)
            reader.fail(np.isinf(narrow) & np.isfinite(values))
            values = narrow
        return _numbers(values, self.type)

    @property
    def width(self) -> int | None:
        return int(np.dtype(self.dtype).itemsize)

    def skip(self, reader: BulkReader) -> None:
        reader.advance(np.dtype(self.dtype).itemsize)


@dataclass(frozen=True, slots=True)
class Text(Step):
    """``string`` or ``bytes``, as ``pa.string()`` or ``pa.binary()``; text must be UTF-8."""

    type: pa.DataType
    is_utf8: bool

    def read(self, reader: BulkReader) -> Any:
        found = reader.slices(reader.lengths(), pa.string() if self.is_utf8 else self.type)
        if self.is_utf8 and (wrong := not_utf8(found)) is not None:
            reader.fail(wrong)
        return found if found.type == self.type else found.view(self.type)

    def skip(self, reader: BulkReader) -> None:
        sizes = reader.lengths()  # this advances the reader, too
        reader.position = reader.position + sizes


@dataclass(frozen=True, slots=True)
class Fixed(Step):
    size: int

    @property
    def may_be_empty(self) -> bool:
        return self.size == 0

    @property
    def width(self) -> int | None:
        return self.size

    def read(self, reader: BulkReader) -> Any:
        return reader.slices(self._sizes(reader), pa.binary())

    def skip(self, reader: BulkReader) -> None:
        sizes = self._sizes(reader)
        reader.position = reader.position + sizes

    def _sizes(self, reader: BulkReader) -> Ints:
        wrong = reader.end - reader.position < self.size
        reader.fail(wrong)
        return np.where(wrong, 0, self.size)


@dataclass(frozen=True, slots=True)
class DecimalNumber(Step):
    """Unscaled big-endian two's complement in ``bytes`` or ``fixed``, as ``decimal128`` of the same scale.

    Attributes:
        size: of ``fixed``; None for ``bytes``.
    """

    type: pa.DataType
    size: int | None

    def read(self, reader: BulkReader) -> Any:
        sizes = reader.lengths() if self.size is None else Fixed(self.size)._sizes(reader)
        wrong = (sizes > 16) | (sizes == 0)
        if wrong.any():
            reader.fail(wrong)
            sizes[wrong] = 0
        starts = reader.position
        reader.position = starts + sizes
        high, low = self._words(reader, starts, sizes)
        wrong = _out_of_range(high, low, 10**self.type.precision)
        reader.fail(wrong)
        high[wrong], low[wrong] = 0, 0
        words = np.empty((len(reader), 2), dtype=np.int64)
        words[:, 0] = low.view(np.int64)
        words[:, 1] = high
        return pa.Array.from_buffers(self.type, len(reader), [None, pa.py_buffer(words)])

    def skip(self, reader: BulkReader) -> None:
        sizes = reader.lengths() if self.size is None else Fixed(self.size)._sizes(reader)
        reader.position = reader.position + sizes

    @staticmethod
    def _words(reader: BulkReader, starts: Ints, sizes: Ints) -> tuple[Ints, npt.NDArray[np.uint64]]:
        """Each number as two words, sign-extended."""
        first = reader.buffer.take(starts, mode="clip")
        negative = (first > 0x7F) & (sizes > 0)
        high = np.where(negative, np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(0))
        low = high.copy()
        for at in range(int(sizes.max(initial=0))):
            going = np.flatnonzero(sizes > at)
            octets = reader.buffer.take(starts.take(going) + at, mode="clip").astype(np.uint64)
            high[going] = (high[going] << np.uint64(8)) | (low[going] >> np.uint64(56))
            low[going] = (low[going] << np.uint64(8)) | octets
        return high.view(np.int64), low


@dataclass(frozen=True, slots=True)
class Enum(Step):
    """An ``enum``: one of its symbols, by number.

    Attributes:
        symbols: pa.StringArray.
        is_known: bool[n_symbols]; a symbol that the reader does not know fails.
    """

    symbols: Any  # pyarrow has no types
    is_known: Flags

    @property
    def free_bytes(self) -> int:
        return int(byte_lengths(self.symbols).max(initial=0))

    def read(self, reader: BulkReader) -> Any:
        numbers = reader.longs()
        wrong = (numbers < 0) | (numbers >= len(self.symbols))
        if not self.is_known.all():
            wrong |= ~self.is_known.take(numbers, mode="clip")
        if wrong.any():
            reader.fail(wrong)
            numbers[wrong] = 0
        return self.symbols.take(to_arrow(numbers))

    def skip(self, reader: BulkReader) -> None:
        reader.longs()


def _numbers(values: npt.NDArray[Any], arrow_type: pa.DataType) -> Any:
    width = arrow_type.bit_width // 8
    kind = "f" if pa.types.is_floating(arrow_type) else "i"
    narrow = np.ascontiguousarray(values.astype(f"<{kind}{width}", copy=False))
    return pa.Array.from_buffers(arrow_type, len(narrow), [None, pa.py_buffer(narrow)])


def _out_of_range(high: Ints, low: npt.NDArray[np.uint64], bound: int) -> Flags:
    """Whether a number of two words is not between -bound and bound, both exclusive."""
    n_high, n_low = np.int64(bound >> 64), np.uint64(bound & (2**64 - 1))
    m_high, m_low = np.int64((-bound) >> 64), np.uint64(-bound & (2**64 - 1))
    above = (high > n_high) | ((high == n_high) & (low >= n_low))
    below = (high < m_high) | ((high == m_high) & (low <= m_low))
    flags: Flags = above | below
    return flags
