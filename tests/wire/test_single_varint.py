from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.single_varint import SHORT_READ, decode_uvarint, encode_uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
    ],
)
def test_uvarints_are_little_endian_groups_of_seven_bits(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(b"\xaa" + bytes.fromhex(encoded), 1) == (value, 1 + len(encoded) // 2)


@given(st.integers(0, 2**31 - 1))
def test_uvarint_round_trip(value: int) -> None:
    encoded = encode_uvarint(value)
    assert decode_uvarint(encoded, 0) == (value, len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(SHORT_READ):
            decode_uvarint(encoded[:end], 0)


@pytest.mark.parametrize("encoded", ["8080808008", "ffffffff0f", "808080808000", "ffffffffffffffffff01"])
def test_a_uvarint_of_more_than_31_bits_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match=r"31 bits|longer than 5 bytes"):
        decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("value", [2**31, -1])
def test_a_value_that_fits_no_uvarint_is_refused(value: int) -> None:
    with pytest.raises(ProtocolError):
        encode_uvarint(value)
