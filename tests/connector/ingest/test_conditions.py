"""Conditions in tasks: what is translated of Spark's SQL is what Spark itself says, row by row."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import pickle
import random
import struct
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.files.conditions import BatchFields, Expression, NotSimpleError, ReadField, translated
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.settings.model import Destination
from tests.connector.ingest.conftest import Shop, avro_schema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: Columns, with values of which rows are made, and the same as constants of SQL. Those of fields are in the column ``s``.
VALUES: dict[str, tuple[str, list[Any], list[str]]] = {
    "flag": ("BOOLEAN", [True, False], ["true", "false"]),
    "tiny": ("TINYINT", [-128, 0, 127], ["-128Y", "0", "CAST(5 AS TINYINT)", "127"]),
    "number": ("INT", [-(2**31), -1, 0, 7, 2**31 - 1], ["-1", "7", "2147483648", "0.5", "'7'", "7.0D"]),
    "long": ("BIGINT", [-(2**63), 0, 7, 2**53 + 1, 2**63 - 1], ["7", "-9223372036854775808", "9007199254740993", "1.5"]),
    "half": ("FLOAT", [math.nan, -0.0, 0.0, 1.5, math.inf], ["1.5", "0", "CAST('NaN' AS FLOAT)", "-0.0F"]),
    "amount": ("DOUBLE", [math.nan, -0.0, 0.0, 1.5, -math.inf], ["0", "1.5", "CAST('NaN' AS DOUBLE)", "-0.0D", "1e300"]),
    "price": ("DECIMAL(10,2)", [decimal.Decimal("-0.01"), decimal.Decimal("7.00")], ["7", "-0.01", "7.001", "1e2"]),
    "name": ("STRING", ["", "a", "A", "a ", "é", "\U0001f40d", "\uffff"], ["''", "'a'", "'A'", "'é'", "'\uffff'", "7"]),
    "raw": ("BINARY", [b"", b"\x00", b"\x7f", b"\xff"], ["X''", "X'7F'", "X'FF'"]),
    "day": (
        "DATE",
        [datetime.date(1, 1, 1), datetime.date(2024, 2, 29)],
        ["DATE'2024-02-29'", "'0001-01-01'", "DATE'+10000-01-01'"],
    ),
    "at": (
        "TIMESTAMP",
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.timezone.utc)],
        ["'2024-01-01'", "TIMESTAMP'1969-12-31 23:59:59.999999Z'", "DATE'2024-01-01'", "TIMESTAMP'+10000-01-01 04:59:59Z'"],
    ),
    "local": (
        "TIMESTAMP_NTZ",
        [datetime.datetime(2024, 1, 1)],
        ["TIMESTAMP_NTZ'2024-01-01 00:00:00'", "'2024-01-01'", "TIMESTAMP_NTZ'+10000-01-01'"],
    ),
}  # fmt: skip
INNER = ("number", "amount", "name")
OPERATORS = ("=", "<=>", "<", "<=", ">", ">=", "<>")


def condition(choose: random.Random, depth: int = 3) -> str:
    """A random condition, most of which have types that fit."""
    if depth and choose.random() < 0.5:
        inner = condition(choose, depth - 1)
        if choose.random() < 0.3:
            return f"NOT ({inner})"
        return f"({inner}) {choose.choice(('AND', 'OR'))} ({condition(choose, depth - 1)})"
    name = choose.choice(list(VALUES))
    _, _, constants = VALUES[name]
    column = f"s.{name}" if name in INNER and choose.random() < 0.4 else choose.choice((name, name.upper()))
    kind = choose.random()
    if kind < 0.1:
        return f"{column} IS {choose.choice(('', 'NOT '))}NULL"
    if kind < 0.2:
        items = [
            *choose.choices(constants, k=choose.choice((1, 2, 3, 12))),
            *(["NULL"] if choose.random() < 0.3 else []),
        ]
        return f"{column} {choose.choice(('', 'NOT '))}IN ({', '.join(items)})"
    if kind < 0.25:
        return f"{column} BETWEEN {choose.choice(constants)} AND {choose.choice(constants)}"
    others = [*constants, "NULL", choose.choice(list(VALUES)), column]
    return f"{column} {choose.choice(OPERATORS)} {choose.choice(others)}"


def random_rows(choose: random.Random, n: int) -> tuple[list[tuple[Any, ...]], str]:
    """Random rows with nulls, and their schema."""

    def value(name: str) -> Any:
        return None if choose.random() < 0.2 else choose.choice(VALUES[name][1])

    made = []
    for _ in range(n):
        struct = None if choose.random() < 0.2 else tuple(value(name) for name in INNER)
        made.append((*(value(name) for name in VALUES), struct))
    fields = ", ".join(f"{name} {VALUES[name][0]}" for name in INNER)
    return made, ", ".join([*(f"{name} {kind}" for name, (kind, _, _) in VALUES.items()), f"s STRUCT<{fields}>"])


def compare(spark: Any, seed: int, n_conditions: int) -> int:
    """Compare so many random conditions over random rows with Spark; return how many of them tasks evaluate."""
    choose = random.Random(seed)
    made, ddl = random_rows(choose, 60)
    frame = spark.createDataFrame(made, ddl)
    names: dict[str, Expression] = {name: ReadField((name,)) for name in (*VALUES, "s")}
    simple: dict[str, Expression] = {}
    for text in dict.fromkeys(condition(choose) for _ in range(n_conditions)):
        try:
            (expression,) = translated(frame, [F.expr(text)], names)
        except (NotSimpleError, PySparkException):
            continue
        simple[text] = pickle.loads(pickle.dumps(expression))
    # As a task reads them: Spark's own timestamps have the session's zone.
    (batch,) = frame.toArrow().cast(arrow_schema(frame.schema)).combine_chunks().to_batches()
    by_spark = frame.select(*(F.expr(text).alias(f"c{n}") for n, text in enumerate(simple))).toArrow()
    fields = BatchFields(batch)
    for number, (text, expression) in enumerate(simple.items()):
        here, there = fields.evaluate(expression).to_pylist(), by_spark.column(number).to_pylist()
        different = [(row, a, b) for row, a, b in zip(made, here, there, strict=True) if a is not b]
        assert not different, (seed, text, expression, different[:2])
    return len(simple)


def test_what_tasks_evaluate_is_what_spark_says(spark: Any) -> None:
    assert sum(compare(spark, seed, 60) for seed in (1, 2)) > 40


@pytest.mark.long
def test_what_tasks_evaluate_is_what_spark_says_of_many_conditions(spark: Any) -> None:
    seed = random.randrange(2**32)
    assert sum(compare(spark, seed + n, 400) for n in range(10)) > 1500, seed


def test_what_is_not_simple_is_spark_s(spark: Any) -> None:
    frame = spark.createDataFrame(
        [], "id BIGINT, amount DOUBLE, name STRING, folded STRING COLLATE UTF8_LCASE, tags ARRAY<STRING>"
    )
    names: dict[str, Expression] = {name: ReadField((name,)) for name in ("id", "amount", "name", "folded", "tags")}
    for text in (
        "id + 1 > 2", "amount > id", "CAST(name AS INT) = 1", "folded = 'a'", "upper(name) = 'A'", "exists(tags, t -> t = 'a')",
        "name LIKE 'a%'",
        " OR ".join(f"id = {n}" for n in range(200)), f"id IN ({', '.join(map(str, range(400)))})",
        "tags = array('a')", "rand() > 0.5", "current_timestamp() > '2024-01-01'",
    ):  # fmt: skip
        with pytest.raises(NotSimpleError):
            translated(frame, [F.expr(text)], names)
    with pytest.raises(NotSimpleError):
        translated(frame, [F.expr("id = 1")], {})


@pytest.mark.long
@pytest.mark.broker
def test_what_tasks_evaluate_of_real_reads_is_what_spark_says(shop: Shop) -> None:
    """Of each format, with keys as bytes and as text, tombstones and damaged values."""
    numbers = range(12)
    keys = [*(None if n % 5 == 4 else b"k%d" % (n % 3) for n in numbers), b"k1", b"k1"]
    ends = Counter((number if key is None else sum(key)) % 2 for number, key in enumerate(keys))
    made = [{"id": n, "name": None if n % 3 == 0 else f"n{n}", "amount": n / 2} for n in numbers]
    of_avro = avro_schema("id long", "name string?", "amount double")
    of_protobuf = 'syntax = "proto3"; message Row { int64 id = 1; optional string name = 2; double amount = 3; }'
    as_protobuf = [
        b"\x08%c" % row["id"]
        + (b"" if row["name"] is None else b"\x12%c%b" % (len(row["name"]), row["name"].encode()))
        + b"\x19"
        + struct.pack("<d", row["amount"])
        for row in made
    ]
    declared: dict[str, Any] = {"json": "id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP", "protobuf": of_protobuf}
    values = {"json": [json.dumps(row).encode() for row in made], "protobuf": as_protobuf}
    for name in ("avro", "json", "protobuf"):
        topic = shop.create(name)
        sent: list[bytes | None] = list(values.get(name) or shop.avro(name, of_avro, made))
        shop.send(name, [*sent, None, b"\xff"], keys=keys)
        table = Table(
            topic=".*", format=name, schema=declared.get(name), key_format="binary" if name == "avro" else "string"
        )
        key = "X'6B31'" if name == "avro" else "'k1'"
        conditions = [
            f"topic = '{topic}'", "topic < 'a' OR topic > 's'", "partition IN (1, NULL)", "offset >= 2",
            "timestamp > TIMESTAMP'2020-01-01'",
            "timestamp < '2020-01-01' OR partition = 0", f"key = {key}", f"NOT key <=> {key}", "key IS NULL", "headers IS NULL",
            "value IS NULL", "id BETWEEN 3 AND 6", "name IN ('n1', 'n4')", "name > 'n2'", "value.amount <= 1.5",
            "NOT name <=> 'n4'",
        ]  # fmt: skip
        tables = [replace(table, where=text) for text in ("headers IS NULL", *conditions)]
        readers = TableReaders(shop.ingest(tables=tables[:1]).settings)
        reader, *others = [readers.of(Destination(topic=topic, name=name, table=one)) for one in tables]
        part = TopicRange(topic=topic, topic_id="", start={0: 0, 1: 0}, end=ends)
        read = reader.plan(shop.spark, part, reader.schemas.value_schema(), None)
        schema, source = open_source(read.options)
        here: dict[tuple[int, int], list[bool | None]] = {}
        for batch in (batch for partition in source.partitions() for batch in source.read(partition)):
            evaluated = []
            for one in others:
                contract = one.task_contract(shop.spark, schema)
                assert contract is not None and contract.where is not None, (name, one.contract.settings.where)
                evaluated.append(BatchFields(batch).evaluate(contract.where).to_pylist())
            places = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
            here |= dict(zip(places, map(list, zip(*evaluated, strict=True)), strict=True))
        fields = ("value.id", "value.name", "value.amount")
        wide = reader.rows(shop.spark, read).selectExpr("*", *fields)
        rows = wide.select(
            "partition", "offset", *(F.expr(text).alias(f"c{n}") for n, text in enumerate(conditions))
        ).collect()
        there = {(row[0], row[1]): list(row[2:]) for row in rows}
        assert len(there) == len(numbers) + 2 and here == there, name
