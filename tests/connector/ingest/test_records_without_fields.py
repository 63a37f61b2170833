"""Records without fields, which no table stores: all else of their values lands, in a new table and in one that is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.json.storable_types import empty_places, storable_type
from tests.connector.ingest.conftest import Shop

pytestmark = pytest.mark.timeout(900)

_NOTHING = {"type": "record", "name": "Nothing", "fields": []}
_FIELDS: list[dict[str, Any]] = [
    {"name": "bare", "type": _NOTHING},
    {"name": "listed", "type": {"type": "array", "items": "Nothing"}},
    {"name": "mapped", "type": {"type": "map", "values": "Nothing"}},
    {"name": "either", "type": ["null", "Nothing", "string"]},
    {
        "name": "inner",
        "type": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "n", "type": "int"}, {"name": "none", "type": ["null", "Nothing"]}],
            },
        },
    },
]
_ROW = {"bare": {}, "listed": [{}, {}], "mapped": {"a": {}}, "either": "x", "inner": [{"n": 7, "none": {}}]}


def of_avro(*fields: dict[str, Any]) -> str:
    listed = [{"name": "id", "type": "int"}, *fields]
    return json.dumps({"type": "record", "name": "Row", "fields": listed})


def of_connect(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": "id", "type": "int32"}, *fields]}


@pytest.mark.unit
def test_the_part_of_a_type_that_is_stored() -> None:
    nothing: dict[str, Any] = {"type": "struct", "fields": []}

    def of(data_type: Any) -> StructType:
        field = {"name": "f", "type": data_type, "nullable": True, "metadata": {}}
        return StructType.fromJson({"type": "struct", "fields": [field]})

    def listed(item: Any) -> dict[str, Any]:
        return {"type": "array", "elementType": item, "containsNull": True}

    n = {"name": "n", "type": "integer", "nullable": True, "metadata": {}}
    none = {"name": "none", "type": listed(nothing), "nullable": True, "metadata": {}}
    assert storable_type(of(nothing)) is None and storable_type(of(listed(listed(nothing)))) is None
    whole = of(listed({"type": "struct", "fields": [n, none]}))
    assert storable_type(whole) == of(listed({"type": "struct", "fields": [n]}))
    assert list(empty_places(whole, "")) == ["f[].none"]


@pytest.mark.broker
@pytest.mark.spark
def test_what_can_be_stored_lands(shop: Shop) -> None:
    for name in ("avro_new", "avro_later", "json", "connect"):
        shop.create(name)
    tables = [Table(topic=r".*\.(json|connect)", format="json")]
    shop.send_avro("avro_later", of_avro(), [{"id": 1}])
    shop.run(tables=tables)
    for name in ("avro_new", "avro_later"):
        shop.send_avro(name, of_avro(*_FIELDS), [{"id": 2, **_ROW}])
    shop.send_json("json", [{"id": 2, "listed": [{}, {}], "inner": [{"n": 7, "none": {}}], "mapped": {"a": {"b": {}}}}])
    nothing = {"type": "struct", "fields": [], "optional": True}
    schema = of_connect({"field": "bare", **nothing}, {"field": "listed", "type": "array", "items": nothing})
    shop.send_json("connect", [{"schema": schema, "payload": {"id": 2, "bare": {}, "listed": [{}, None]}}])
    ingest = shop.run(tables=tables)
    assert {status.error for status in ingest.statuses.values()} == {None}
    assert {status.held_rejects for status in ingest.statuses.values()} == {0}
    for name in ("avro_new", "avro_later"):
        (row,) = shop.table(name).where("id = 2").select("id", "either", "inner").collect()
        assert row.asDict(recursive=True) == {"id": 2, "either": {"member_string": "x"}, "inner": [{"n": 7}]}
    assert shop.rows("json", "id", "inner") == [(2, [(7,)])]
    assert shop.rows("connect", "id", "bare", "listed") == [(2, "{}", ["{}", None])]
