"""Debezium's own topics are no tables, in whatever mode and under whatever name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pykafka_wire.ingest.records.debezium_topics import DebeziumTopics, contents_of, is_change_of_row
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.ingest.conftest import Shop
from tests.connector.values.scripted_registry import scripted_registry

CHANGE = {
    "source": {"server": "shop"},
    "ts_ms": 1795872659878,
    "databaseName": "s",
    "ddl": "DROP TABLE IF EXISTS `s`.`a`",
    "tableChanges": [{"type": "DROP", "id": '"s"."a"'}],
}
HISTORY = {**CHANGE, "position": {"ts_sec": 1795872657, "file": "bin.000001", "pos": 157}}
TRANSACTION = {"status": "END", "id": "1", "event_count": 2, "data_collections": [], "ts_ms": 1}
OF_SCHEMA = {"schema": {"type": "struct", "name": "io.debezium.connector.common.Heartbeat"}, "payload": {"ts_ms": 1}}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (HISTORY, "history of schemas"),
        (CHANGE, "changes of schemas"),
        ({"schema": {"type": "struct"}, "payload": CHANGE}, "changes of schemas"),
        (TRANSACTION, "transactions' beginnings and ends"),
        (OF_SCHEMA, "heartbeats"),
        ({"op": "c", "after": {"ddl": "x"}, "source": {}}, None),
        ({"databaseName": "s", "ddl": "CREATE", "source": "me"}, None),
        ({"ts_ms": 1}, None),
        ([1], None),
        ("text", None),
    ],
)
def test_a_value_shows_what_a_topic_has(document: Any, wanted: str | None) -> None:
    assert contents_of(json.dumps(document).encode()) == wanted


@pytest.mark.unit
def test_an_avro_value_shows_it_by_the_name_of_its_schema() -> None:
    names = {1: ("io.debezium.connector.mysql", "SchemaChangeValue"), 2: ("shop", "SchemaChangeValue")}
    names[3] = ("shop.s.orders", "Envelope")
    answers = {
        f"/schemas/ids/{n}": {"schema": json.dumps({"type": "record", "namespace": space, "name": name, "fields": []})}
        for n, (space, name) in names.items()
    }
    with scripted_registry(answers) as url:
        found = [contents_of(encode_frame(n, b"x"), Registry(url)) for n in (1, 2)]
        envelope = is_change_of_row(encode_frame(3, b"x"), Registry(url))
    assert found == ["changes of schemas", None]
    assert envelope
    assert not any(map(is_change_of_row, (None, b"\0\0\0\0\1x", b"{}", b"[]")))
    assert [contents_of(value) for value in (None, b"\0\0\0\0\1x", b"\xff")] == [None] * 3


@pytest.mark.broker
@pytest.mark.parametrize("mode", ["append", "upsert", "cdc"])
def test_they_are_found_in_every_mode_unless_a_table_names_them(
    outside: Any, topic: Callable[..., str], mode: str
) -> None:
    lot = f"dbz{uuid.uuid4().hex[:8]}"
    row = {"op": "c", "after": {"id": 1}, "before": None, "source": {}}
    values = {
        lot: CHANGE,
        f"{lot}.s.orders": row,
        f"{lot}.s.schema_versions": row,
        f"__debezium-heartbeat.{lot}": {"ts_ms": 1},
        f"schemahistory.{lot}": HISTORY,
        f"{lot}.empty_history": None,
    }
    for name, value in values.items():
        topic(1, name=name)
        if value is not None:
            outside.produce(name, [outside.Record(key=b"{}", value=json.dumps(value).encode())])
    kafka = {"bootstrap.servers": outside.servers}
    settings = Settings(
        checkpoint="/c", kafka=kafka, topics=".*", into="/lake", defaults=Table(topic=".*", format="json", mode=mode)
    )
    assert DebeziumTopics(settings).among(values) == {
        lot: "changes of schemas",
        f"__debezium-heartbeat.{lot}": "heartbeats",
        f"schemahistory.{lot}": "history of schemas",
    }
    unread = DebeziumTopics(settings)
    assert [*unread.among(values, {lot})] == [f"__debezium-heartbeat.{lot}", lot], "without new records none is read"
    assert len(unread.among(values)) == 3 and len(unread.among(values, ())) == 3
    named = Settings(
        checkpoint="/c",
        kafka=kafka,
        topics=".*",
        into="/lake",
        tables=(Table(topic=lot), Table(topic=f"schemahistory.{lot}")),
    )
    assert [*DebeziumTopics(named).among(values)] == [f"__debezium-heartbeat.{lot}"]


@pytest.mark.broker
def test_a_table_s_topic_is_none_of_them_though_its_name_is_another_topic_s_prefix(
    outside: Any, topic: Callable[..., str]
) -> None:
    """Topics that a transformation names, such as ``orders`` and ``orders.eu.lines``."""
    lot = f"dbz{uuid.uuid4().hex[:8]}"
    row = {"op": "c", "after": {"id": 1}, "before": None, "source": {}}
    values = {
        lot: row,
        f"{lot}.eu": {"schema": {}, "payload": row},
        f"{lot}.eu.b.lines": row,
        f"{lot}.transaction": row,
    }
    for name, value in values.items():
        topic(1, name=name)
        outside.produce(name, [outside.Record(key=b"{}", value=json.dumps(value).encode())])
    settings = Settings(
        checkpoint="/c",
        kafka={"bootstrap.servers": outside.servers},
        topics=".*",
        into="/lake",
        defaults=Table(topic=".*", format="json", mode="cdc"),
    )
    assert [*settings.helpers(values)] == [lot, f"{lot}.eu", f"{lot}.transaction"], "by their names"
    assert DebeziumTopics(settings).among(values) == {}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_history_of_schemas_stops_no_table(shop: Shop) -> None:
    row = {"op": "c", "after": {"id": 1}, "before": None, "source": {}}
    orders, _ = shop.create("s.orders"), shop.create("history")
    shop.send_json("s.orders", [row], keys=[{"id": 1}])
    shop.send_json("history", [HISTORY])
    ingest = shop.run(defaults=Table(topic=".*", format="json", mode="cdc"), registry=None)
    assert {topic: status.error for topic, status in ingest.statuses.items()} == {orders: None}
    assert [folder.name for folder in (shop.folder / "lake").iterdir() if "history" in folder.name] == []
    assert shop.rows("s_orders", "id") == [(1,)]
