from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol import primitives
from pykafka_wire.wire.topic_partitions import ZERO_UUID


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
