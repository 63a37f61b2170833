"""murmur2 as Java has it (its own published values), and the vectorised form equal to the scalar one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.produce.partitioner import Partitioner, partitions_of
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.oracle import murmur2

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


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(1, 1000))
def test_many_keys_at_once_go_where_each_would_alone(keys, n_partitions):
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % n_partitions for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), n_partitions).tolist() == expected


def test_a_slice_hashes_its_own_keys():
    keys = pa.array([b"a", b"b", None, b"c"], pa.binary())
    assert partitions_of(keys.slice(1), 7).tolist() == partitions_of(keys, 7).tolist()[1:]


def partitioner(**options: str) -> Partitioner:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Partitioner(ClientSettings.from_options({"bootstrap.servers": "b:9092", **named}))


def values(n: int, size: int = 100) -> pa.Array:
    return pa.array([b"v" * size] * n, pa.binary())


def test_rows_without_a_key_stay_with_a_partition_for_a_batchs_worth_of_bytes() -> None:
    placing = partitioner(batch_size="1000")
    places = [placing.place("t", None, values(25), 3).tolist() for _ in range(2)]
    runs = [len(run) for run in np.split(places[0] + places[1], np.flatnonzero(np.diff(places[0] + places[1])) + 1)]
    assert runs == [10, 10, 10, 10, 10]  # on from one Arrow batch to the next
    first = places[0][0]
    assert (places[0] + places[1])[::10] == [(first + i) % 3 for i in range(5)]


def test_a_few_rows_without_a_key_go_to_one_partition() -> None:
    # KIP-480: fewer, larger batches.
    assert len(set(partitioner().place("t", None, values(50), 64).tolist())) == 1


def test_a_batch_size_of_nothing_takes_no_more_memory_than_rows() -> None:
    tracemalloc.start()
    try:
        placed = partitioner(**{"batch.size": "0"}).place("t", None, values(1_000, 10_000), 6)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set((np.diff(placed) % 6).tolist())) == 1  # 10,000 turns further with each row
    assert peak_bytes < 5_000_000


def test_topics_have_turns_of_their_own() -> None:
    placing = partitioner(batch_size="100")
    a = [placing.place("a", None, values(1), 5)[0] for _ in range(3)]
    placing.place("b", None, values(2), 5)
    a += [placing.place("a", None, values(1), 5)[0] for _ in range(3)]
    assert [(int(p) - int(a[0])) % 5 for p in a] == [0, 1, 2, 3, 4, 0]


def test_only_rows_without_a_key_take_turns() -> None:
    keys = pa.array([b"a", None, b"b", None], pa.binary())
    places = partitioner(batch_size="100").place("t", keys, values(4), 7).tolist()
    assert [places[0], places[2]] == partitions_of(pa.array([b"a", b"b"], pa.binary()), 7).tolist()
    assert places[3] == (places[1] + 1) % 7


@pytest.mark.parametrize(
    "options",
    [
        {"partitioner_ignore_keys": "true"},
        {"partitioner_class": "org.apache.kafka.clients.producer.UniformStickyPartitioner"},
    ],
)
def test_keys_can_be_ignored(options: dict[str, str]) -> None:
    keys = pa.array([b"%d" % i for i in range(50)], pa.binary())
    assert len(set(partitioner(**options).place("t", keys, values(50), 64).tolist())) == 1


@pytest.mark.parametrize("name", ["RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_deals_out_row_by_row_whatever_the_keys(name: str) -> None:
    placing = partitioner(partitioner_class=name)
    keys = pa.array([b"same"] * 5, pa.binary())
    places = [*placing.place("t", keys, values(5), 3), *placing.place("t", keys, values(4), 3)]
    assert [(int(p) - int(places[0])) % 3 for p in places] == [0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_the_older_name_of_the_default_is_the_default() -> None:
    keys = pa.array([b"%d" % i for i in range(50)], pa.binary())
    name = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert (partitioner(partitioner_class=name).place("t", keys, values(50), 9) == partitions_of(keys, 9)).all()


def by_length(topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> pa.Array:
    assert topic == "t" and keys.type == values.type == pa.binary()
    return pa.array([None if v == b"" else len(v) % n_partitions for v in values.to_pylist()], pa.int64())


def in_numpy(topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> np.ndarray:
    return np.arange(len(values)) % n_partitions


def too_few(topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> list[int]:
    return [0]


def too_high(topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> list[int]:
    return [n_partitions] * len(values)


def words(topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> list[str]:
    return ["a"] * len(values)


def test_a_function_of_ones_own_places_rows_and_may_have_no_opinion() -> None:
    placing = partitioner(partitioner_class=f"{__name__}:by_length", batch_size="1")
    places = placing.place("t", None, pa.array([b"v", b"", b"vvvv", b"vv"], pa.binary()), 3).tolist()
    assert [places[0], places[2], places[3]] == [1, 1, 2]
    assert 0 <= places[1] < 3
    numpy = partitioner(partitioner_class=f"{__name__}:in_numpy")
    assert numpy.place("t", pa.array([b"k"] * 4, pa.binary()), values(4), 3).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("too_few", "returned 1 partitions for 4 rows"),
        ("too_high", "returned partition 3 for t, which has 3"),
        ("words", "not whole numbers"),
    ],
)
def test_what_a_function_must_not_return(name: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        partitioner(partitioner_class=f"{__name__}:{name}").place("t", None, values(4), 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("com.example.MyPartitioner", "Java classes cannot run here. Use RoundRobinPartitioner, or module:function"),
        ("no_such_module:f", "cannot be imported"),
    ],
)
def test_partitioners_that_cannot_be_had(name: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        partitioner(partitioner_class=name)
