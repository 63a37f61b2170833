"""Keys of inferred JSON that differ in kind, such as ``5`` and ``"5"``, never share a row: each has its own row or is a reject."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.json.columns import row_type
from pykafka_wire.ingest.records.json.survey import survey_of
from tests.connector.ingest.conftest import Shop

#: Texts of JSON values that are no texts; each is a key, and the same characters in quotes are another one.
VALUES: Final = (
    "5", "5.0", "7", "true", "null", '{"a":1}', "[1]", "18446744073709551616", "0.1234567890123456789",
    "123456789012345678901234567890123456789012",
)  # fmt: skip
#: The form of a key around its place.
FORMS: Final = ("%s", '{"id":%s}', '{"id":%s,"n":1}', '{"id":{"of":%s}}')
N_TOPICS: Final = 30


def _identity(key: Any) -> Any:
    """Return a value that two JSON values share only if they are equal, kinds included."""
    if isinstance(key, dict):
        return tuple(sorted((name, _identity(value)) for name, value in key.items()))
    return [type(key).__name__, *map(_identity, key)] if isinstance(key, list) else (type(key).__name__, str(key))


def _canonical(text: str) -> str:
    return repr(_identity(json.loads(text, parse_int=Fraction, parse_float=Fraction)))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.long
def test_keys_of_different_kinds_never_share_a_row(shop: Shop) -> None:
    """A topic's first half and its second half are different micro-batches."""
    topics: dict[str, list[str]] = {}
    for seed in range(N_TOPICS):
        make = random.Random(seed)
        form = FORMS[seed % len(FORMS)]
        chosen = [written for value in make.sample(VALUES, 2) for written in (value, json.dumps(value))]
        topics[f"t{seed}"] = [form % make.choice(chosen) for _ in range(16)]
        shop.create(f"t{seed}", partitions=1)
    table = Table(topic=".*", format="json", mode="upsert", key_format="json", schema="v INT")
    for first in (0, 8):
        for name, keys in topics.items():
            records = [
                shop.outside.Record(key=key.encode(), value=b'{"v":%d}' % number, partition=0)
                for number, key in enumerate(keys[first : first + 8], first)
            ]
            shop.outside.produce(f"{shop.prefix}.{name}", records)
        ingest = shop.run(registry=None, tables=[table])
    assert not {name: status.error for name, status in ingest.statuses.items() if status.error}
    rejected = {(row.topic, row.offset) for row in shop.table("_rejects").select("topic", "offset").collect()}
    for name, keys in topics.items():
        taken = [n for n in range(16) if (f"{shop.prefix}.{name}", n) not in rejected]
        newest = {_canonical(keys[number]): number for number in taken}
        assert shop.rows(name, "v") == sorted((number,) for number in newest.values()), (name, keys, taken)
        assert taken, (name, keys)


#: Keys that widen a number type, and keys of other kinds.
KEYS: Final = (5, 1.5, 2**63 + 5, 2**31, "x", "5", True, None, {"a": 1}, [1])
HELD: Final = (IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(20, 0), StringType(), BooleanType())


@pytest.mark.unit
@given(
    one=st.sampled_from(KEYS),
    other=st.sampled_from(KEYS),
    held=st.sampled_from(HELD),
    is_field=st.booleans(),
)
def test_the_type_of_a_table_s_keys_grows_by_one_key_whatever_is_beside_it(
    one: Any, other: Any, held: DataType, is_field: bool
) -> None:
    """Two keys of one micro-batch widen the type of a place as two micro-batches do, once the place has a type."""

    def after(before: DataType | None, *keys: Any) -> DataType | None:
        documents = [json.dumps({"id": key} if is_field else key).encode() for key in keys]
        return row_type(survey_of(documents, "key"), "key", before)

    table = StructType([StructField("id", held)]) if is_field else held
    orders = [after(after(table, one), other), after(after(table, other), one)]
    assert after(table, one, other) in orders
