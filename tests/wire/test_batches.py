"""The header of a batch against what a real broker stored, and stamping in place."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from pykafka_wire.wire.records.batches import (
    HEADER,
    HEADER_BYTES,
    HEADER_DTYPE,
    read_header,
    stamp_producer,
)
from pykafka_wire.wire.records.compression import Codec, codec_of
from pykafka_wire.wire.records.producer_identity import ProducerIdentity

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
STORED = (GOLDEN / "magic2-none.bin").read_bytes()


def test_the_layout_is_61_bytes_long_in_both_forms():
    assert HEADER_BYTES == HEADER.size == HEADER_DTYPE.itemsize == 61


@pytest.mark.parametrize("codec", list(Codec))
def test_a_stored_header_is_read(codec):
    stored = (GOLDEN / f"magic2-{codec.name.lower()}.bin").read_bytes()
    header = read_header(memoryview(stored))
    assert (header.base_offset, header.last_offset, header.records_count, header.magic) == (0, 21, 22, 2)
    assert header.batch_length == len(stored) - 12
    assert codec_of(header.attributes) is codec
    assert header.crc == crc32c(stored[21:])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_the_crc_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4


@pytest.mark.parametrize("transactional", [False, True])
def test_stamping_changes_the_producer_the_flag_and_the_crc_alone(transactional):
    data = bytearray(STORED)
    stamp_producer(data, ProducerIdentity(2**40, 12), 2**31 - 1, transactional=transactional)
    header = read_header(memoryview(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 12, 2**31 - 1)
    assert header.attributes == (0x10 if transactional else 0)
    assert header.crc == crc32c(bytes(data[21:]))
    assert (data[:17], data[23:43], data[57:]) == (STORED[:17], STORED[23:43], STORED[57:])


def test_stamping_again_is_as_stamping_once():
    once, twice = bytearray(STORED), bytearray(STORED)
    stamp_producer(once, ProducerIdentity(9, 1), 100)
    stamp_producer(twice, ProducerIdentity(9, 0), 50)
    stamp_producer(twice, ProducerIdentity(9, 1), 100)
    assert once == twice
