from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol import primitives
from pykafka_wire.wire.topic_partitions import ZERO_UUID


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
    assert primitives.encode_uvarint(value).hex() == encoded
    assert primitives.decode_uvarint(b"\xaa" + bytes.fromhex(encoded), 1) == (value, 1 + len(encoded) // 2)


@given(st.integers(0, 2**31 - 1))
def test_uvarint_round_trip(value: int) -> None:
    encoded = primitives.encode_uvarint(value)
    assert primitives.decode_uvarint(encoded, 0) == (value, len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(primitives.SHORT_READ):
            primitives.decode_uvarint(encoded[:end], 0)


@pytest.mark.parametrize("encoded", ["8080808008", "ffffffff0f", "808080808000", "ffffffffffffffffff01"])
def test_a_uvarint_of_more_than_31_bits_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match=r"31 bits|longer than 5 bytes"):
        primitives.decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("value", [2**31, -1])
def test_a_value_that_fits_no_uvarint_is_refused(value: int) -> None:
    with pytest.raises(ProtocolError):
        primitives.encode_uvarint(value)


@pytest.mark.parametrize(("length", "encoded"), [(-1, "00"), (0, "01"), (126, "7f"), (127, "8001"), (128, "8101")])
def test_compact_lengths_are_one_more_and_zero_is_null(length: int, encoded: str) -> None:
    assert primitives.encode_compact_length(length).hex() == encoded
    assert primitives.decode_compact_length(bytes.fromhex(encoded), 0) == (length, len(encoded) // 2)


def test_a_string_past_the_end_of_its_buffer_is_refused() -> None:
    with pytest.raises(ProtocolError, match="string of 4 bytes at byte 0 runs past the end at 3"):
        primitives.decode_text(b"abc", 0, 4)


def test_a_string_longer_than_javas_short_is_refused_both_ways() -> None:
    assert primitives.decode_text(bytes(0x7FFF), 0, 0x7FFF)[0] == "\0" * 0x7FFF
    with pytest.raises(ProtocolError, match="32768"):
        primitives.decode_text(bytes(0x8000), 0, 0x8000)
    with pytest.raises(ProtocolError, match="32768"):
        primitives.encode_text("x" * 0x8000)
    with pytest.raises(ProtocolError, match="32768"):
        primitives.encode_text("é" * 0x4000)


def test_invalid_utf8_is_replaced_as_in_java() -> None:
    assert primitives.decode_text(b"a\xffb", 0, 3) == ("a\ufffdb", 3)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Unicode"):
        primitives.encode_text("a\ud800")


def test_a_view_is_not_a_copy() -> None:
    buffer = bytearray(b"abcdef")
    view, end = primitives.decode_view(memoryview(buffer), 2, 3)
    buffer[2] = ord("X")
    assert (bytes(view), end) == (b"Xde", 5)
    with pytest.raises(ProtocolError, match="past the end"):
        primitives.decode_view(memoryview(buffer), 2, 5)


@given(st.uuids())
def test_uuids_stand_most_significant_byte_first(value: uuid.UUID) -> None:
    assert primitives.decode_uuid(b"\x01" + value.bytes, 1) == (value, 17)


def test_the_zero_uuid_is_kafkas_null_and_a_short_one_is_refused() -> None:
    assert primitives.decode_uuid(bytes(16), 0)[0] is ZERO_UUID
    with pytest.raises(ProtocolError, match="uuid at byte 0"):
        primitives.decode_uuid(bytes(15), 0)
