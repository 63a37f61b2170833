"""JSON values as Spark's VARIANT: one column for documents of any shape, in Parquet's binary encoding.

Owns the encoding, byte for byte as Spark's own builder in Python writes it (``pyspark.sql.variant_utils``), but for the order of
fields in large objects, which is that of Spark's ``parse_json``. It takes half of that builder's time, and no pyspark.
https://github.com/apache/parquet-format/blob/master/VariantEncoding.md
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal

from pykafka_wire.errors import DecodeError

#: Spark's own limit, of both parts (16 MiB in 4.0).
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_DIGITS: Final = 38
#: Sets of keys whose metadata is kept.
_MAX_KEPT: Final = 1_000
_SHORT_TEXT: Final = 64
#: Objects of so many fields are searched by halves (``VariantUtil.BINARY_SEARCH_THRESHOLD``), smaller ones field by field.
_SEARCHED: Final = 32
NULL, _TRUE, _FALSE = b"\0", b"\x04", b"\x08"
#: The header of a primitive, and the form of its number.
_INTS: Final = ((1 << 7, b"\x0c", 1), (1 << 15, b"\x10", 2), (1 << 31, b"\x14", 4), (1 << 63, b"\x18", 8))
_DECIMALS: Final = ((9, b"\x20", 4), (18, b"\x24", 8), (38, b"\x28", 16))
_DOUBLE: Final = b"\x1c"
_LONG_TEXT: Final = b"\x40"
_BYTES: Final = b"\x3c"
#: Numbers of larger exponents are written with one.
_MAX_EXPONENT: Final = 400

#: What numbers become that no decimal of a variant holds.
VariantNumbers = Literal["double", "binary"]


def variant_of(value: Any, numbers: VariantNumbers = "double") -> dict[str, bytes]:
    """Return a parsed JSON value (:func:`~pykafka_wire.values.single_json.text.parse_json`) as ``pa.array`` takes a variant.

    Args:
        numbers: what becomes of numbers that no decimal of a variant holds, and of NaN and the infinities: a double, if it is
            finite, or bytes with the number's text.

    Raises:
        DecodeError: it is too large, or has a number or text that a variant does not hold.
    """
    encoded, metadata = VariantEncoder(numbers).encode(value)
    return {"value": encoded, "metadata": metadata}


class VariantEncoder:
    """Encodes values one after the other; objects of the same keys share the bytes of their metadata."""

    def __init__(self, numbers: VariantNumbers = "double") -> None:
        self._is_exact = numbers == "binary"
        self._ids: dict[str, int] = {}
        self._metadata: dict[tuple[str, ...], bytes] = {}

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        """Return the value's bytes, and its metadata: all keys in the order in which they appear."""
        self._ids = {}
        try:
            encoded = self._value(value)
            keys = tuple(self._ids)
            metadata = self._metadata.get(keys)
            if metadata is None:
                if len(self._metadata) >= _MAX_KEPT:
                    self._metadata.clear()
                metadata = self._metadata[keys] = variant_metadata(keys)
        except (UnicodeEncodeError, OverflowError) as error:
            raise DecodeError("a text or a number that VARIANT cannot hold") from error
        if max(len(encoded), len(metadata)) > _MAX_BYTES:
            raise DecodeError(f"it is larger than a VARIANT can be, {_MAX_BYTES} bytes")
        return encoded, metadata

    def _value(self, value: Any) -> bytes:
        kind = type(value)
        if kind is str:
            text: bytes = value.encode()
            n = len(text)
            return bytes((n << 2 | 1,)) + text if n < _SHORT_TEXT else _LONG_TEXT + n.to_bytes(4, "little") + text
        if kind is int:
            for bound, header, size in _INTS:
                if -bound <= value < bound:
                    number: bytes = value.to_bytes(size, "little", signed=True)
                    return header + number
            return self._decimal(Decimal(value))
        if kind is dict:
            return self._object(value)
        if kind is bool:
            return _TRUE if value else _FALSE
        if value is None:
            return NULL
        if kind is list:
            return _container(0b11, 2, len(value), b"", [self._value(item) for item in value])
        if kind is Decimal:
            return self._decimal(value)
        if kind is float and self._is_exact:
            return _bytes(json.dumps(value))
        raise DecodeError(f"{value!r:.40} is not JSON, and VARIANT has no value for it")

    def _decimal(self, value: Decimal) -> bytes:
        if not self._is_exact and str(value) == "-0":  # an integer
            return self._value(0)
        encoded = _decimal(value)
        if encoded is not None and not (self._is_exact and value.is_zero() and value.is_signed()):
            return encoded
        if self._is_exact:
            is_short = -_MAX_EXPONENT < value.adjusted() < _MAX_EXPONENT
            return _bytes(f"{value:f}" if is_short else str(value))
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise OverflowError
        return _DOUBLE + struct.pack("<d", number)

    def _object(self, value: Mapping[str, Any]) -> bytes:
        ids, names, parts = [], self._ids, []
        for name, item in value.items():
            ids.append(names.setdefault(name, len(names)))
            parts.append(self._value(item))
        order = field_order([*value])
        id_size = _size(max(ids, default=0))
        written = b"".join([ids[nth].to_bytes(id_size, "little") for nth in order])
        return _container(0b10 | (id_size - 1) << 4, 4, len(ids), written, parts, order)


def field_order(names: Sequence[str]) -> list[int]:
    """Return the order of an object's fields by name; in large objects by UTF-16, as Spark compares names in its search."""
    if len(names) < _SEARCHED or "".join(names).isascii():
        return sorted(range(len(names)), key=names.__getitem__)
    return sorted(range(len(names)), key=lambda nth: names[nth].encode("utf-16-be"))


def _container(header: int, large: int, n: int, ids: bytes, parts: list[bytes], order: Any = None) -> bytes:
    """Return an object or an array: its header, the number of elements, their ids and offsets, their values.

    Args:
        header: without the sizes of offsets and of the number.
        large: the bit, after the two of the kind, of a number that takes four bytes.
        order: of the offsets; the values stay in their own.
    """
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    size = _size(ends[-1])
    places = ends if order is None else [*(ends[nth] for nth in order), ends[-1]]
    is_large = n > 0xFF
    return b"".join(
        (
            bytes((header | (size - 1) << 2 | is_large << 2 + large,)),
            n.to_bytes(4 if is_large else 1, "little"),
            ids,
            bytes(places) if size == 1 else b"".join([place.to_bytes(size, "little") for place in places]),
            *parts,
        )
    )


def _size(number: int) -> int:
    """Return bytes of an offset or an id. Raises OverflowError for more than 16 MiB."""
    if number > 0xFFFFFF:
        raise OverflowError
    return 1 if number <= 0xFF else 2 if number <= 0xFFFF else 3


def _decimal(value: Decimal) -> bytes | None:
    """Return a decimal's bytes; None for a positive exponent or too many digits."""
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and -_MAX_DIGITS <= exponent <= 0 and len(digits) <= _MAX_DIGITS:
        unscaled = int(Decimal((sign, digits, 0)))
        for max_digits, header, size in _DECIMALS:
            if len(digits) <= max_digits and -exponent <= max_digits:
                return header + bytes((-exponent,)) + unscaled.to_bytes(size, "little", signed=True)
    return None


def _bytes(text: str) -> bytes:
    return _BYTES + len(text).to_bytes(4, "little") + text.encode()


def variant_metadata(keys: tuple[str, ...]) -> bytes:
    """Return the bytes that list an object's keys, and those of all objects in it. Raises UnicodeEncodeError, OverflowError."""
    texts = [key.encode() for key in keys]
    size = _size(max(sum(map(len, texts)), len(texts)))
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    head = bytes((1 | (size - 1) << 6,)) + len(texts).to_bytes(size, "little")
    return b"".join((head, *(end.to_bytes(size, "little") for end in ends), *texts))
