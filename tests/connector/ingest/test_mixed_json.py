"""Documents of one micro-batch that are of another sort than their table: rejects, and no other document notices."""

from __future__ import annotations

from typing import Any

import pytest

from pykafka_wire.ingest import Table
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

_ZIPS = [{"adr": {"street": "s", "zip": f"z{n}"}} for n in range(5)]
#: What a table has first, what follows in one micro-batch, and the columns that are right.
_TOPICS: dict[str, tuple[list[Any], list[Any], str, list[Any]]] = {
    "whole": (
        [{"id": 9}],
        [{"id": 0}, "ping", {"id": 1}, 5, {"id": 2}, [], {"id": 3}, [{"id": 7}], {"id": 4}, True],
        "id",
        [0, 1, 2, 3, 4, 9],
    ),
    "field": (
        [{"adr": {"street": "s"}}],
        [*_ZIPS, {"adr": "unknown"}, {"adr": [{"zip": 1}]}],
        "adr.zip",
        [None, *(f"z{i}" for i in range(5))],
    ),
    "deep": (
        [{"a": {"b": [{"adr": {"street": "s"}}]}}],
        [*({"a": {"b": [row]}} for row in _ZIPS), {"a": {"b": [{"adr": "unknown"}]}}, {"a": {"b": "unknown"}}],
        "a.b[0].adr.zip",
        [None, *(f"z{i}" for i in range(5))],
    ),
    "map": (
        [{"m": {f"k{n}": {"street": "s"} for n in range(101)}}],
        [*({"m": {"k0": row["adr"]}} for row in _ZIPS), {"m": {"k0": "unknown", "k1": {"zip": "x"}}}, {"m": [1]}],
        "m.k0.zip",
        [None, *(f"z{i}" for i in range(5))],
    ),
    "number": ([{"n": 1}], [{"n": 2}, {"n": 2.5}, {"n": "3"}, {"n": "three"}], "CAST(n AS DOUBLE)", [1, 2, 2.5]),
    "digits": ([{"n": 1}], [{"n": 2}, {"n": "3"}, {"n": "three"}], "n", [1, 2]),
    "items": ([{"n": [1]}], [{"n": [2]}, {"n": [2, "3"]}], "n[0]", [1, 2]),
    "beside": ([5], [6, "x", {"schema": {"type": "int64", "optional": True}, "payload": 7}], "value", [5, 6, 7]),
    "new": ([*_ZIPS, {"adr": "unknown"}, "ping"], [], "adr.zip", [f"z{i}" for i in range(5)]),
}
_EACH_TIME = ("whole", "field", "number", "beside")


@pytest.mark.parametrize("names", [_EACH_TIME, pytest.param(tuple(_TOPICS), marks=pytest.mark.long)], ids=len)
def test_odd_documents_take_no_value_from_the_others_of_their_micro_batch(shop: Shop, names: tuple[str, ...]) -> None:
    topics = {name: _TOPICS[name] for name in names}
    for name, (before, _, _, _) in topics.items():
        shop.create(name, partitions=2)
        shop.send_json(name, before)
    shop.run(defaults=Table(topic=".*", format="json"), registry=None)
    for name, (_, documents, _, _) in topics.items():
        shop.send_json(name, documents)
    ingest = shop.run(defaults=Table(topic=".*", format="json"), registry=None)
    for name, (before, documents, column, wanted) in topics.items():
        got = [row[0] for row in shop.table(name).selectExpr(column).collect()]
        assert sorted(got, key=str) == sorted(wanted, key=str), name
        status = ingest.statuses[f"{shop.prefix}.{name}"]
        assert (status.error, len(got) + status.held_rejects) == (None, len(before) + len(documents)), name


def test_columns_have_the_order_of_the_documents_and_kafka_s_come_last(shop: Shop) -> None:
    shop.create("orders")
    asked = {"defaults": Table(topic=".*", format="json", json_timestamps=True), "registry": None}
    shop.send_json("orders", [{"id": 1, "city": "x", "at": "2026-01-31T12:00:00+02:00", "adr": {"zip": 1, "a": 2}}])
    shop.run(**asked)
    shop.send_json(
        "orders",
        [
            {"z": 1, "id": 2, "b": 2, "at": "2026-01-31T12:00:00Z", "adr": {"new": 1}},
            {"id": 3, "at": "soon"},
            {"local time": 1},
        ],
    )
    ingest = shop.run(**asked)
    table = shop.table("orders")
    kafka = [f"_kafka_{name}" for name in ("key", "topic", "partition", "offset", "timestamp")]
    assert table.columns == ["id", "city", "at", "adr", "z", "b", *kafka, "local time"]  # which needs a feature
    assert table.schema["adr"].dataType.simpleString() == "struct<zip:bigint,a:bigint,new:bigint>"
    times = {row.id: row.unix for row in table.selectExpr("id", "unix_seconds(at) AS unix").collect() if row.unix}
    assert times == {1: 1769853600, 2: 1769860800}
    assert ingest.statuses[f"{shop.prefix}.orders"].held_rejects == 1
