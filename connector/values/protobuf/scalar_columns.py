"""Protobuf's scalar types as Arrow arrays: from what :mod:`~pykafka_wire.values.protobuf.field_scan` finds of a field.

Values that the Arrow type cannot hold fail their messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, bitmap, not_utf8, with_validity
from pykafka_wire.values.protobuf.field_scan import FIXED32, FIXED64, LENGTH, VARINT
from pykafka_wire.values.protobuf.message_group import Buffer
from pykafka_wire.wire.records.arrays import binary_array, to_arrow
from pykafka_wire.wire.records.varints import Words, signed

#: Numbers of an enum that are looked up by a table: nearly all.
_MAX_TABLE: Final = 1 << 12


class Scalar(ABC):
    """Values of one scalar type.

    Attributes:
        type: the Arrow type.
        wire_type: of one value, packed or not.
        default: the varint of a value that is not there.
        item_bytes: what an item of an array may take in memory.
    """

    type: pa.DataType
    wire_type: int
    default: int = 0
    item_bytes: int = 8

    @abstractmethod
    def read(self, data: Buffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[Any, Flags | None]:
        """``(pa.Array, bool[n] | None)``: the values, null where not ``valid``; and which are none of the type.

        Args:
            starts: where length-delimited values start, ascending.
            words: varints and fixed-width values; the sizes of length-delimited values.
        """

    def words(self, data: Buffer, starts: Ints, words: Words) -> Words:
        """Those that :meth:`read` takes, of values that start at ``starts``; ``words`` is what the scan has of them."""
        return words

    def absent(self, n: int) -> Words:
        """Those of ``n`` values that are not there."""
        return np.full(n, self.default, dtype=np.uint64)


class Number(Scalar):
    """Integers and floating point.

    Args:
        kind: ``int32``, ``uint32``, ``sint32``, ``int64``, ``uint64``, ``sint64``, or the NumPy dtype of a fixed-width type.
    """

    def __init__(self, kind: str, wanted: pa.DataType) -> None:
        self.type = wanted
        self._kind = kind
        self.wire_type = VARINT if kind in _FROM_WORDS else FIXED64 if kind.endswith("8") else FIXED32
        self._is_decimal = pa.types.is_decimal(wanted)
        self._limits: tuple[int, int] | None = None
        if pa.types.is_integer(wanted):
            least, most = -(1 << wanted.bit_width - 1), (1 << wanted.bit_width - 1) - 1
            limits: Any = np.iinfo(_FROM_WORDS.get(kind, kind))
            if int(limits.min) < least or int(limits.max) > most:
                self._limits = (least if int(limits.min) < least else int(limits.min), most)
        self._dtype = None if self._is_decimal else np.dtype(wanted.to_pandas_dtype())
        self.item_bytes = 16

    def words(self, data: Buffer, starts: Ints, words: Words) -> Words:
        return words if self.wire_type == VARINT else data.numbers(starts, self._kind)

    def absent(self, n: int) -> Words:
        return super().absent(n) if self.wire_type == VARINT else np.zeros(n, dtype=self._kind)

    def read(self, data: Buffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[Any, Flags | None]:
        found = _integers(self._kind, words) if self.wire_type == VARINT else words
        wrong = None
        if self._limits is not None:
            least, most = self._limits
            wrong = (found < least) | (found > most)
            wrong = wrong if wrong.any() else None
        if self._is_decimal:
            wide = np.zeros((len(found), 2), dtype=np.uint64)
            wide[:, 0] = found
            content = pa.py_buffer(wide)
        else:
            content = pa.py_buffer(np.ascontiguousarray(found.astype(self._dtype, copy=False)))
        return pa.Array.from_buffers(self.type, len(found), [bitmap(valid), content]), wrong


_FROM_WORDS: Final = {
    "int32": np.int32,
    "uint32": np.uint32,
    "sint32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
    "sint64": np.int64,
}


def _integers(kind: str, words: Words) -> npt.NDArray[Any]:
    found: npt.NDArray[Any]
    if kind in ("int64", "uint64"):
        is_wide = words.dtype == np.uint64
        found = words.view(_FROM_WORDS[kind]) if is_wide else words.astype(np.int64)
    elif kind == "sint64":
        found = signed(words)
    else:
        narrow = words.astype(np.uint32)  # the low 32 bits, as all parsers take them
        found = narrow.view(_FROM_WORDS[kind])
        if kind == "sint32":
            found = (narrow >> np.uint32(1)).view(np.int32) ^ -(narrow & np.uint32(1)).view(np.int32)
    return found


class Boolean(Scalar):
    type = pa.bool_()
    wire_type = VARINT
    item_bytes = 1

    def read(self, data: Buffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[Any, Flags | None]:
        flags = words != 0
        return pa.Array.from_buffers(self.type, len(flags), [bitmap(valid), bitmap(flags)]), None


class EnumName(Scalar):
    """An enum's value by its name. A number without a name is its digits where the enum is open, else not a value."""

    type = pa.string()
    wire_type = VARINT

    def __init__(self, names: Mapping[int, str], *, is_closed: bool, default: int = 0) -> None:
        numbers = sorted(names)
        self._numbers = np.array(numbers, dtype=np.int32)
        self._names = [names[number].encode() for number in numbers]
        self._dictionary = binary_array(self._names).view(pa.string())
        self._is_closed = is_closed
        self.default = default % (1 << 64)
        self.item_bytes = 4 + max(map(len, self._names))
        self._table = np.full(_MAX_TABLE if numbers[-1] >= 0 else 1, -1, dtype=np.int32)
        for place, number in enumerate(numbers):
            if 0 <= number < len(self._table):
                self._table[number] = place

    def read(self, data: Buffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[Any, Flags | None]:
        numbers = words.astype(np.uint32).view(np.int32)
        in_table = (numbers >= 0) & (numbers < len(self._table))
        places = self._table.take(numbers, mode="clip")
        others = np.flatnonzero(~in_table | (places < 0))
        dictionary, wrong = self._dictionary, None
        if len(others):
            found = np.searchsorted(self._numbers, numbers[others]).clip(max=len(self._numbers) - 1)
            is_known = self._numbers[found] == numbers[others]
            places[others] = found
            unknown = others[~is_known]
            if len(unknown) and self._is_closed:
                wrong = np.zeros(len(numbers), dtype=np.bool_)
                wrong[unknown] = True
            elif len(unknown):
                distinct, which = np.unique(numbers[unknown], return_inverse=True)
                digits = [str(number).encode() for number in distinct.tolist()]
                dictionary = binary_array([*self._names, *digits]).view(pa.string())
                places[unknown] = len(self._names) + which
        found_names = dictionary.take(to_arrow(places))
        return with_validity(found_names, valid), wrong


class Text(Scalar):
    """``bytes``, or ``string``, which is UTF-8."""

    wire_type = LENGTH
    item_bytes = 16

    def __init__(self, wanted: pa.DataType) -> None:
        self.type = wanted

    def read(self, data: Buffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[Any, Flags | None]:
        found = data.slices(starts, words, self.type)
        wrong = None
        if pa.types.is_string(self.type):
            wrong = not_utf8(found)
        return with_validity(found, valid), wrong
