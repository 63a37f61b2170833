"""Bytes written for many elements at once: varints of every size, and both ways of joining them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.wire.arrow import row_segments
from pykafka_wire.wire.arrow.row_segments import BytesSegment, constant, join_segments, unsigned_varints, varints

NUMBERS = [0, *(sign * (1 << bits) + more for bits in range(63) for sign in (1, -1) for more in (-1, 0)), 2**63 - 1]
TEXTS: list[bytes | None] = [(b"text %d" % place) * (place % 5) if place % 7 else None for place in range(len(NUMBERS))]


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


@pytest.mark.parametrize("limit", ["_MAX_TAKEN", "_MAX_TAKEN_BYTES", None])
def test_varints_of_every_size_are_joined_with_texts(limit: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit is not None:  # joined by Arrow alone
        monkeypatch.setattr(row_segments, limit, 0)
    n = len(NUMBERS)
    numbers = np.array(NUMBERS, dtype=np.int64)
    text: Any = pa.array([None, *TEXTS], pa.binary()).slice(1)
    unsigned = [
        *varints(numbers),
        BytesSegment(text),
        *unsigned_varints(numbers.view(np.uint64)),
        *constant(b"\0end of row", n),
    ]
    assert join_segments(unsigned, n).to_pylist() == [
        varint(zigzag(number)) + (each or b"") + varint(number & (1 << 64) - 1) + b"\0end of row"
        for number, each in zip(NUMBERS, TEXTS, strict=True)
    ]


@pytest.mark.parametrize("most", range(64))
def test_numbers_that_fit_a_varints_size_exactly(most: int) -> None:
    numbers = np.array([1 << most >> 1, (1 << most) - 1], dtype=np.uint64)
    assert join_segments(unsigned_varints(numbers), 2).to_pylist() == [varint(int(each)) for each in numbers]


def test_no_elements() -> None:
    assert (
        join_segments([*varints(np.empty(0, dtype=np.int64)), BytesSegment(pa.array([], pa.binary()))], 0).to_pylist()
        == []
    )
