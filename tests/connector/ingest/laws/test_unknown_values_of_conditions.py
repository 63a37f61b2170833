"""A record that cannot be read is a reject of each table whose condition may be true for it: no condition takes an unknown value
for a null.

The oracle knows three truths: a condition on an unknown value or key is neither true nor false.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timezone
from functools import reduce
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.changes.newest import REASON, TAKEN, changes_of_rows
from pykafka_wire.ingest.files.conditions import NotSimpleError
from pykafka_wire.ingest.files.tasks import RowsOfRead, taken_records
from pykafka_wire.ingest.records.contracts import Contract, conjuncts
from tests.connector.ingest.laws.generated import examples

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_TYPES = (
    "key STRING, value STRUCT<id: INT, name: STRING>, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "valueError STRING, keyError STRING"
)


class _Record(NamedTuple):
    """A record; ``is_damaged``: its value cannot be read; ``has_bad_key``: its key cannot."""

    partition: int
    offset: int
    key: str | None
    value: tuple[int | None, str | None] | None
    is_damaged: bool
    has_bad_key: bool

    @property
    def is_reject(self) -> bool:
        return self.is_damaged or self.has_bad_key

    def row(self) -> tuple[Any, ...]:
        errors = ("damaged" if self.is_damaged else None, "a bad key" if self.has_bad_key else None)
        return (self.key, self.value, "t", self.partition, self.offset, _NOW, *errors)


class _Atom(NamedTuple):
    """A condition in SQL: which column it uses, and its truth for a record whose column is known."""

    sql: str
    uses: str
    truth: Callable[[_Record], bool | None]


def _id(record: _Record) -> int | None:
    return None if record.value is None else record.value[0]


def _name(record: _Record) -> str | None:
    return None if record.value is None else record.value[1]


_ATOMS = (
    _Atom("id IS NOT NULL", "value", lambda record: _id(record) is not None),
    _Atom("value.id IS NULL", "value", lambda record: _id(record) is None),
    _Atom("id <=> 1", "value", lambda record: _id(record) == 1),
    _Atom("NOT id <=> 1", "value", lambda record: _id(record) != 1),
    _Atom("id > 1", "value", lambda record: None if (number := _id(record)) is None else number > 1),
    _Atom(
        "`name` IN ('key', 'AND')",
        "value",
        lambda record: None if (n := _name(record)) is None else n in ("key", "AND"),
    ),
    _Atom("value IS NOT NULL", "value", lambda record: record.value is not None),
    _Atom("coalesce(ID, 0) BETWEEN 1 AND 2", "value", lambda record: (_id(record) or 0) in (1, 2)),
    _Atom(
        "CASE WHEN id = 1 AND name <=> 'x' THEN true ELSE false END", "value", lambda r: (_id(r), _name(r)) == (1, "x")
    ),
    _Atom("key IS NOT NULL", "key", lambda record: record.key is not None),
    _Atom("key <=> 'id'", "key", lambda record: record.key == "id"),
    _Atom("key = 'id'", "key", lambda record: None if record.key is None else record.key == "id"),
    _Atom("partition = 0", "", lambda record: record.partition == 0),
    _Atom("partition BETWEEN 1 AND 2", "", lambda record: 1 <= record.partition <= 2),
    _Atom("topic <> 'value'", "", lambda _: True),
)
#: The parts that AND joins: each is one atom, or several that OR joins.
_PARTS = st.lists(st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=2), min_size=1, max_size=3)
_CONDITIONS = st.lists(st.tuples(_PARTS, st.booleans()), min_size=12, max_size=12)


def _sql(parts: list[list[_Atom]], is_nested: bool) -> str:
    texts = [atoms[0].sql if len(atoms) == 1 else f"({' OR '.join(atom.sql for atom in atoms)})" for atoms in parts]
    return (
        f"(({' and '.join(texts[:2])}) {' '.join(f'AND {text}' for text in texts[2:])})"
        if is_nested
        else " AND ".join(texts)
    )


def _truth(parts: list[list[_Atom]], record: _Record) -> bool | None:
    def of(atom: _Atom) -> bool | None:
        # What is null in a reject may be what could not be read.
        is_unknown = record.is_reject and atom.uses != "" and getattr(record, atom.uses) is None
        return None if is_unknown else atom.truth(record)

    def either(truths: list[bool | None]) -> bool | None:
        return True if True in truths else None if None in truths else False

    every = [either([of(atom) for atom in atoms]) for atoms in parts]
    return False if False in every else None if None in every else True


def _records(choose: random.Random) -> list[_Record]:
    records = []
    for offset in range(24):
        is_damaged, has_bad_key = choose.random() < 0.4, choose.random() < 0.2
        value = (
            None
            if is_damaged or choose.random() < 0.2
            else (choose.choice((None, 1, 2)), choose.choice((None, "x", "key")))
        )
        key = None if has_bad_key else choose.choice(("id", "b", None))
        records.append(_Record(choose.randint(0, 3), offset, key, value, is_damaged, has_bad_key))
    return records


def _contract(where: str, mode: Any) -> Contract:
    return Contract(Table(topic="t", mode=mode, where=where).contract, "_kafka_")


def _by_spark(frame: DataFrame, conditions: list[str]) -> list[dict[int, bool]]:
    """Return for each condition the offsets of the records that the table takes, and whether each is a reject."""
    rows = frame.withColumn(REASON, F.coalesce("valueError", "keyError")).drop("valueError", "keyError")
    taken = [
        _contract(text, "append")
        .records(rows)
        .select(F.lit(n).alias("n"), "offset", F.col(REASON).isNotNull().alias("is_reject"))
        for n, text in enumerate(conditions)
    ]
    found: list[dict[int, bool]] = [{} for _ in conditions]
    for row in reduce(DataFrame.unionByName, taken).collect():
        found[row.n][row.offset] = row.is_reject
    return found


def _by_tasks(frame: DataFrame, text: str) -> dict[int, bool] | None:
    """Return the same as :func:`_by_spark` for one condition; None if only Spark can evaluate the condition."""
    try:
        contract = _contract(text, "append").in_tasks(frame.sparkSession, frame.schema)
    except NotSimpleError:
        return None
    (batch,) = frame.toArrow().cast(arrow_schema(frame.schema)).combine_chunks().to_batches()
    read = RowsOfRead(columns=(), errors=("valueError", "keyError"), where=contract.where, record=contract.record)
    taken, reasons = taken_records(batch, read)
    rejects = [False] * taken.num_rows if reasons is None else reasons.is_valid().to_pylist()
    return dict(zip(taken["offset"].to_pylist(), rejects, strict=True))


def test_a_record_that_cannot_be_read_is_a_reject_unless_what_is_known_of_it_contradicts_the_condition(
    spark: Any,
) -> None:
    n_by_tasks = []

    @examples(4)
    @given(conditions=_CONDITIONS, seed=st.integers(0, 2**32))
    def law(conditions: list[tuple[list[list[_Atom]], bool]], seed: int) -> None:
        records = _records(random.Random(seed))
        frame = spark.createDataFrame([record.row() for record in records], _TYPES)
        texts = [_sql(*condition) for condition in conditions]
        for (parts, _), text, by_spark in zip(conditions, texts, _by_spark(frame, texts), strict=True):
            expected = {}
            for record in records:
                is_reject, truth = record.is_reject, _truth(parts, record)
                if truth or (is_reject and truth is None):
                    expected[record.offset] = is_reject
            assert by_spark == expected, (text, seed)
            by_tasks = _by_tasks(frame, text)
            n_by_tasks.append(by_tasks is not None)
            assert by_tasks in (None, expected), (text, seed)

    law()
    assert any(n_by_tasks)


def test_a_change_that_cannot_be_read_deletes_no_row(spark: Any) -> None:
    """A rejected record changes no row, not even the row with its key."""

    @examples(3)
    @given(conditions=_CONDITIONS, seed=st.integers(0, 2**32))
    def law(conditions: list[tuple[list[list[_Atom]], bool]], seed: int) -> None:
        records = [record for record in _records(random.Random(seed)) if record.key is not None]
        frame = spark.createDataFrame([record.row() for record in records], _TYPES)
        rows = frame.withColumn(REASON, F.coalesce("valueError", "keyError")).drop("valueError", "keyError")
        changes = changes_of_rows(rows, "")
        texts = [_sql(*condition) for condition in conditions]
        judged = [
            _contract(text, "upsert")
            .changes(changes)
            .select(F.lit(n).alias("n"), "offset", TAKEN, F.col(REASON).isNotNull())
            for n, text in enumerate(texts)
        ]
        damaged = {record.offset: record for record in records if record.is_damaged}
        for row in reduce(DataFrame.unionByName, judged).collect():
            if row.offset in damaged:
                is_rejected = _truth(conditions[row.n][0], damaged[row.offset]) is not False
                assert (row[TAKEN], row[3]) == (is_rejected, is_rejected), (texts[row.n], damaged[row.offset])

    law()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a = 1", ["a = 1"]),
        ("a AND b And c", ["a", "b", "c"]),
        ("(a and (b AND c))", ["a", "b", "c"]),
        ("a AND b OR c", ["a AND b OR c"]),
        ("(a OR b) AND c", ["a OR b", "c"]),
        ("(a) AND (b) OR (c)", ["(a) AND (b) OR (c)"]),
        ("a BETWEEN 1 AND 2 AND b", ["a BETWEEN 1 AND 2", "b"]),
        ("NOT a AND b NOT BETWEEN c AND d", ["NOT a", "b NOT BETWEEN c AND d"]),
        ("CASE WHEN a AND b THEN c END AND d", ["CASE WHEN a AND b THEN c END", "d"]),
        ('a = \'x AND y\' AND `b AND c` = "d AND \\" e"', ["a = 'x AND y'", '`b AND c` = "d AND \\" e"']),
        ("exists(tags, t -> t = 'a' AND t > b) AND c", ["exists(tags, t -> t = 'a' AND t > b)", "c"]),
        ("m['AND'] AND value.and = 1 -- AND\nAND c", ["m['AND']", "value.and = 1 -- AND", "c"]),
    ],
)
def test_a_condition_is_divided_where_and_joins_its_parts(text: str, parts: list[str]) -> None:
    assert [part.strip() for part in conjuncts(text)] == parts
