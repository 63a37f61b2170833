"""A table lands however many partitions its topic and however many columns its rows have.

Spark's conditions are as deep as they are nested, and the JVM's stack ends before a condition of a thousand levels. The oracle: the
same conditions in Python.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykafka_wire.ingest.changes.newest import REASON, changes_of_rows
from pykafka_wire.ingest.proof.comparison import Explanations
from pykafka_wire.ingest.proof.proof import _is_read
from pykafka_wire.ingest.records.ranges import before
from pykafka_wire.ingest.tables.merging import DELETE, UNAVAILABLE
from tests.connector.ingest.laws.generated import FACTOR, examples

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_PLACEHOLDER = "unsent"
#: Each condition of a part costs some calls of the JVM.
_MANY = 1000 if FACTOR else 200


@example(n=_MANY, seed=0)
@given(n=st.integers(0, 20), seed=st.integers(0, 2**20))
@examples(2)
def test_offsets_are_compared_in_every_partition(spark: Any, n: int, seed: int) -> None:
    chance = random.Random(seed)
    start = {p: chance.randrange(3) for p in range(n)}
    end = {p: start[p] + chance.choice((0, 2, 2**40)) for p in start}
    lost = [(p, start[p], chance.choice((None, end[p]))) for p in start]
    places: list[tuple[int | None, int | None]] = [(p, chance.randrange(5)) for p in range(n + 1)]
    places += [(None, 1), (0, None)]
    rows = spark.createDataFrame(places, "partition INT, offset BIGINT").coalesce(1)
    found = rows.select(
        "*", before(end).alias("before"), _is_read(start, end, {}).alias("is_read"),
        Explanations(ledger=lost).is_in_ledger().alias("is_lost"),
    ).collect()  # fmt: skip
    assert len(found) == len(places)
    for row in found:
        known = row.partition in end and row.offset is not None
        assert row.before == (known and row.offset < end[row.partition])
        if row.partition is not None and row.offset is not None:
            assert row.is_read == (not known or row.offset >= start[row.partition])
            assert row.is_lost == (known and any(
                p == row.partition and first <= row.offset and (until is None or row.offset < until)
                for p, first, until in lost
            ))  # fmt: skip


@example(n=_MANY, unsent={0, _MANY - 1}, is_key_of_fields=False)
@given(n=st.integers(1, 20), unsent=st.sets(st.integers(0, 19)), is_key_of_fields=st.booleans())
@examples(2)
def test_unsent_values_are_found_in_every_column(spark: Any, n: int, unsent: set[int], is_key_of_fields: bool) -> None:
    names = [f"c{number}" for number in range(n)]
    unsent = {number for number in unsent if number < n}
    value = tuple(_PLACEHOLDER if number in unsent else "text" for number in range(n))
    fields = f"STRUCT<{', '.join(f'{name}: STRING' for name in names)}>"
    key: Any = (*[None] * (n - 1), "key") if is_key_of_fields else "key"
    records = spark.createDataFrame(
        [(key, value, None), (None, None, None)],
        f"key {fields if is_key_of_fields else 'STRING'}, value {fields}, {REASON} STRING",
    ).coalesce(1)
    changes = changes_of_rows(records, _PLACEHOLDER).select(UNAVAILABLE, DELETE, REASON).collect()
    assert sorted((row[0], row[1], row[2] is None) for row in changes if row[2] is None) == [
        ([names[number] for number in sorted(unsent)] or None, False, True)
    ]
    assert len(changes) == 2
