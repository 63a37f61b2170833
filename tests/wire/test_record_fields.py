"""The fields of many records at once: the same values and places as one record after the other gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.arrow.varints import FieldReader
from pykafka_wire.wire.errors import CorruptBatchError
from tests.wire.oracle import varint

#: Mostly numbers of one byte and two, as records have; now and then one of up to ten bytes.
NUMBERS = st.one_of(st.integers(-64, 63), st.integers(-8_192, 8_191), st.integers(-(2**63), 2**63 - 1))
#: Three numbers of each record, an attribute byte before them and some bytes before the last one.
RECORDS = st.lists(st.tuples(NUMBERS, NUMBERS, st.binary(max_size=12), NUMBERS), min_size=1, max_size=30)


@given(RECORDS, st.binary(max_size=10))
def test_any_fields_give_the_values_and_places_that_they_have(
    records: list[tuple[int, int, bytes, int]], rest: bytes
) -> None:
    data, starts, behind, ends = bytearray(), [], [], []
    for first, second, content, last in records:
        starts.append(len(data))
        data += b"\x00" + varint(first) + varint(second)
        behind.append(len(data))
        data += content + varint(last)
        ends.append(len(data))
    fields = FieldReader(np.frombuffer(bytes(data) + rest, dtype=np.uint8), np.array(starts, dtype=np.int64))
    fields.skip(1)
    assert fields.varints().tolist() == [record[0] for record in records]
    assert fields.varints().tolist() == [record[1] for record in records]
    found = fields.position
    assert found.tolist() == behind
    fields.jump(np.array([len(record[2]) for record in records], dtype=np.int64))
    assert fields.varints().tolist() == [record[3] for record in records]
    assert fields.position.tolist() == ends
    assert found.tolist() == behind, "what was returned once has changed"


@pytest.mark.parametrize("n_bytes", [1, 7, 8, 20])
def test_zeros_are_read_behind_the_end_of_the_buffer(n_bytes: int) -> None:
    buffer = np.full(n_bytes, 0x02, dtype=np.uint8)
    fields = FieldReader(buffer, np.array([0, n_bytes - 1, n_bytes, 3 * n_bytes + 100], dtype=np.int64))
    assert fields.pairs().tolist() == [0x0202 if n_bytes > 1 else 0x02, 0x02, 0, 0]
    assert fields.varints().tolist() == [1, 1, 0, 0]


def test_a_varint_without_an_end_is_rejected() -> None:
    fields = FieldReader(np.full(40, 0xFF, dtype=np.uint8), np.array([0, 5], dtype=np.int64))
    with pytest.raises(CorruptBatchError, match="longer than ten bytes"):
        fields.varints()


def test_no_records_have_no_fields() -> None:
    fields = FieldReader(np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64))
    assert not len(fields.varints())
    assert not len(fields.position)
