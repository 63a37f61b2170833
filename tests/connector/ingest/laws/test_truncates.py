"""Law: a table in mode cdc equals the database table, however its topic is divided, and whenever the ingest is killed.

The topic holds the changes of a database table, whose rows are in two partitions, and TRUNCATEs in either of them. The oracle is
the database table: it applies the changes in their order. The first micro-batch has some records of each partition, and is killed
before each step that writes to the table; the second has the rest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import examples

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]

_T0_MS = 1_700_000_000_000
_WRITES = ("_save", "set_properties", "alter", "merge", "create")
#: A change: of a row by its number, with the partition ``number % 2``; or a TRUNCATE, with its partition.
PUT, DELETE, TRUNCATE = "put", "delete", "truncate"
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just(PUT), st.integers(0, 3)),
        st.tuples(st.just(PUT), st.integers(0, 3)),
        st.tuples(st.just(DELETE), st.integers(0, 3)),
        st.tuples(st.just(TRUNCATE), st.integers(0, 1)),
    ),
    min_size=1,
    max_size=8,
)
#: The changes of a topic, and the number of records of each partition in the first micro-batch.
TOPICS = st.lists(st.tuples(CHANGES, st.tuples(st.integers(0, 8), st.integers(0, 8))), min_size=2, max_size=2)


def rows_after(changes: Sequence[tuple[str, int]]) -> dict[int, int]:
    """Return the database table after the changes: the value of each row is the number of its newest change."""
    rows: dict[int, int] = {}
    for number, (kind, of) in enumerate(changes):
        if kind == TRUNCATE:
            rows.clear()
        elif kind == DELETE:
            rows.pop(of, None)
        else:
            rows[of] = number
    return rows


def records_of(shop: Shop, changes: Sequence[tuple[str, int]]) -> tuple[list[Any], list[Any]]:
    """Return the records of each partition."""
    partitions: tuple[list[Any], list[Any]] = ([], [])
    for number, (kind, of) in enumerate(changes):
        after = {"id": of, "v": number} if kind == PUT else None
        operation = {PUT: "c", DELETE: "d", TRUNCATE: "t"}[kind]
        value = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": operation}
        partition = of % 2
        partitions[partition].append(
            shop.outside.Record(
                key=None if kind == TRUNCATE else json.dumps({"id": of}).encode(),
                value=json.dumps(value).encode(),
                partition=partition,
                timestamp_ms=_T0_MS + 10 * number,
            )
        )
    return partitions


def step_of(table: SparkDeltaTable, method: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Name a step that writes to a table. A table is altered several times, each time with other properties."""
    return table.identifier, method, *(sorted(given[0]) if method == "alter" else ())


@pytest.mark.long
@example(
    topics=[
        ([(PUT, 0), (PUT, 1), (TRUNCATE, 0), (PUT, 3)], (2, 0)),
        ([(PUT, 1), (TRUNCATE, 0), (PUT, 3)], (1, 0)),
    ]
)
@given(topics=TOPICS)
@examples(2)
def test_a_table_equals_that_of_the_database_whenever_it_is_truncated_and_killed(
    shop: Shop, topics: list[tuple[list[tuple[str, int]], tuple[int, int]]]
) -> None:
    lot = uuid.uuid4().hex[:8]
    shop.folder = shop.folder / lot
    # A last row makes each topic a table.
    changes = {f"{lot}_{n}": [*given, (PUT, 4)] for n, (given, _) in enumerate(topics)}
    records = {shop.create(name): records_of(shop, given) for name, given in changes.items()}
    asked: dict[str, Any] = {
        "topics": rf"{shop.prefix}\.{lot}_.*", "defaults": Table(topic=".*", mode="cdc", format="json"), "registry": None,
    }  # fmt: skip
    cuts = [cut for _, cut in topics]
    for (topic, partitions), cut in zip(records.items(), cuts, strict=True):
        for partition, n in zip(partitions, cut, strict=True):
            shop.outside.produce(topic, partition[:n])
    with pytest.MonkeyPatch.context() as patched:
        writes = [(SparkDeltaTable, name) for name in _WRITES]
        crashed = shop.crash_before_each_step(patched, writes, step_of, **asked)
    assert crashed or not any(map(any, cuts))
    for (topic, partitions), cut in zip(records.items(), cuts, strict=True):
        for partition, n in zip(partitions, cut, strict=True):
            shop.outside.produce(topic, partition[n:])
    assert [status.error for status in shop.run(**asked).statuses.values()] == [None] * len(topics)
    landed = {name: dict(shop.rows(name, "id", "v")) for name in changes}
    assert landed == {name: rows_after(given) for name, given in changes.items()}, crashed
