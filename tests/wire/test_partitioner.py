"""murmur2 as Java has it (its own published values), and the vectorised form equal to the scalar one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.partitioner import murmur2, partitions_of

#: From the unit tests of Kafka's Java client (UtilsTest), as signed ints.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA, ids=repr)
def test_hashes_are_javas(key):
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(1, 1000))
def test_many_keys_at_once_go_where_each_would_alone(keys, n_partitions):
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % n_partitions for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), n_partitions).tolist() == expected


def test_a_slice_hashes_its_own_keys():
    keys = pa.array([b"a", b"b", None, b"c"], pa.binary())
    assert partitions_of(keys.slice(1), 7).tolist() == partitions_of(keys, 7).tolist()[1:]
