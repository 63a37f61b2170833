"""The page of an ingest that runs: real brokers, a real registry, Delta."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import polars
import pytest

from pykafka_wire.ingest import Table
from pykafka_wire.page import PageSettings
from tests.connector.ingest.conftest import Shop, avro_schema

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST = avro_schema("id int", "country string")
SECOND = avro_schema("id long", "country string", "amount double?")
CONFLICT = avro_schema("id string", "country string")
#: Delta takes no blank and no = in a name.
HOSTILE = "<b>a&b</b>\"'%2f"


def read(page: Any, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}{path}", timeout=30) as response:
        return json.load(response)


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    return value


def test_the_page_shows_what_the_tables_hold(shop: Shop) -> None:
    for name in ("orders", "few", "stopped", "bad", "waits"):
        shop.create(name)
    shop.send_avro("orders", FIRST, [{"id": n, "country": "NO"} for n in range(10)])
    for name in ("few", "stopped"):
        shop.send_avro(name, FIRST, [{"id": 1, "country": "NO"}])
    shop.send_json("bad", [{"n": 1, HOSTILE: "a"}])
    shop.send_json("waits", [{"n": 1}])
    asked = {
        # Of ``bad`` Spark's tasks report their time and bytes, of the others the driver, which lands few records itself.
        "tables": [
            Table(topic=r".*\.bad", format="json", schema=f"n INT, `{HOSTILE}` STRING", write="spark"),
            Table(topic=r".*\.waits", format="json", schema="n INT", min_rows=2, max_delay="1h"),
        ],
        "registry_options": {"basic.auth.user.info": "somebody:hush"},
    }
    ingest = shop.ingest(**asked)
    query = ingest.start(shop.spark, every="0 seconds", ui=PageSettings(shows_values=True))
    page = ingest.page
    assert page is not None
    try:
        query.processAllAvailable()
        shop.send_avro("orders", SECOND, [{"id": 2**40, "country": "NO", "amount": 1.5}])
        shop.send_avro("stopped", CONFLICT, [{"id": "x", "country": "NO"}])
        shop.send("bad", [b'{"n": "a text", "secret": "value of a record"}', b"\x00\x00\x00\x00\x07abc"])
        query.processAllAvailable()
        topic = {name: f"{shop.prefix}.{name}" for name in ("orders", "stopped", "bad")}

        def tables() -> Any:
            found = {each["topic"]: each for each in read(page, "/api/tables")["tables"]}
            is_planned = (
                found.get(topic["stopped"], {"lag": 0})["lag"] == 1
            )  # by the progress, which comes after the tables
            return found if is_planned and found[topic["bad"]]["rejects"] == 2 else None

        found = until(tables)
        until(lambda: read(page, "/api/tables")["tables"][0]["bytes"])
        assert next(iter(found)) == topic["stopped"], "trouble is on top"
        stopped = found[topic["stopped"]]
        code = "PYKAFKA_WIRE_COLUMN_CONFLICT"
        assert (stopped["state"], stopped["trouble"]["code"], stopped["lag"]) == ("stopped", code, 1)
        orders = found[topic["orders"]]
        assert (orders["state"], orders["rows"], orders["lag"], orders["format"]) == ("up to date", 11, 0, "avro")
        assert (found[topic["bad"]]["rejects"], found[topic["bad"]]["held_rejects"]) == (2, 2)
        now = time.time()
        assert now - 120 < stopped["trouble"]["since"] < now < stopped["trouble"]["next_attempt_at"] < now + 400

        whole = read(page, "/api/ingest")
        assert whole["state"] == "running"
        assert whole["totals"]["states"]["stopped"] == 1
        assert whole["brokers"] == shop.outside.servers.split(",")
        assert {"Spark", "Delta", "Java", "Python", "pykafka-wire"} <= whole["versions"].keys()
        assert whole["settings"]["registry_options.basic.auth.user.info"] == "***"
        assert {batch["rows"] for batch in whole["micro_batches"]} >= {13}
        shop.send_avro("few", FIRST, [{"id": 2, "country": "NO"}])
        query.processAllAvailable()
        until(lambda: {batch["rows"] for batch in read(page, "/api/ingest")["micro_batches"]} >= {1})  # without a task
        for batch in read(page, "/api/ingest")["micro_batches"]:
            assert batch["bytes_read"] > 0
            assert sum(batch["landing"].values()) == pytest.approx(batch["phases"]["landing"])
            assert all(seconds > 0 for seconds in batch["landing"].values())
        waits = until(lambda: read(page, f"/api/table?topic={quote(shop.prefix)}.waits"))
        assert (waits["state"], waits["lag"]) == ("waiting", 1)
        assert now + 3400 < waits["waits_until"] < now + 3600
        assert {"driver", "java"} <= whole["processes"].keys()

        one = read(page, f"/api/table?topic={quote(topic['orders'])}")
        assert [(each["partition"], each["lag"]) for each in one["partitions"]] == [(0, 0), (1, 0)]
        assert sum(each["position"] for each in one["partitions"]) == 11
        assert shop.spark.sql(one["queries"]["Spark SQL"]).count() == 11
        load, scan = read(page, f"/api/table?topic={quote(shop.prefix)}.few")["queries"]["Polars"].split("\n")
        assert (load, len(eval(scan, {"polars": polars}))) == ("import polars", 2)

        history = read(page, f"/api/table/history?topic={quote(topic['orders'])}")
        assert history["is_whole"]
        columns = {each["name"]: each for each in history["columns"]}
        assert columns["id"]["type"] == "bigint"
        assert columns["amount"]["version"] > columns["country"]["version"] == 0
        newest = [
            each for commit in history["changes"][:2] for each in commit["changes"]
        ]  # columns come before wider types
        assert {"kind": "added", "column": "amount", "type": "double"} in newest
        assert {"kind": "widened", "column": "id", "type": "bigint", "from": "int"} in newest
        assert history["changes"][0]["schema_id"] == orders["schema_id"]
        landed = [each for each in history["commits"] if each["micro_batch"] is not None]
        assert sum(each["rows"] for each in landed) == 11
        assert sum(each["end"]["0"] - each["start"]["0"] for each in landed) == one["partitions"][0]["position"]

        numbers = [batch["number"] for batch in read(page, "/api/ingest")["micro_batches"]]
        assert numbers == sorted(set(numbers)), "each is there once, however often the newest one is looked at"

        bad = read(page, f"/api/table/history?topic={quote(topic['bad'])}")
        assert HOSTILE in {each["name"] for each in bad["columns"]}
        assert {each["value"] for each in bad["rejects"]} == {
            '{"n": "a text", "secret": "value of a record"}', "schema 7, then 61 62 63",
        }  # fmt: skip
        assert all(each["reason"] for each in bad["rejects"])
        query.stop()
        assert until(lambda: read(page, "/api/ingest")["state"] == "ended")
    finally:
        query.stop()
        page.close()
    ingest = shop.ingest(**asked)
    ingest.start(shop.spark, once=True, ui="127.0.0.1:0").awaitTermination(240)
    page = ingest.page
    assert page is not None
    try:
        found = until(lambda: {each["topic"]: each for each in read(page, "/api/tables")["tables"]})
        assert (found[topic["bad"]]["rejects"], found[topic["bad"]]["held_rejects"]) == (0, 2), "those of the first run"
        again = found[topic["orders"]]
        assert (again["rows"], again["commits"], again["landed_at"]) == (0, 0, None), "this run has landed nothing"
        assert again["newest_at"] == orders["newest_at"], "and the table is not empty"
        assert again["schema_id"] == orders["schema_id"]
        assert until(lambda: read(page, "/api/ingest")["running"] is None)
        bad = read(page, f"/api/table/history?topic={quote(topic['bad'])}")
        assert [each["value"] for each in bad["rejects"]] == [None, None], (
            "values are hidden, if they are not asked for"
        )
        assert {each["size"] for each in bad["rejects"]} == {46, 8}
        assert b"value of a record" not in json.dumps(bad).encode()
    finally:
        page.close()
