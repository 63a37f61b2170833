"""One topic, several tables; what a table selects and expects: real brokers, a real registry, Delta."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.records.reader import TableReader
from pykafka_wire.ingest.spark.progress import ReadFigures
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from tests.connector.ingest.conftest import Shop, kill

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

EVENTS: dict[str, Any] = {
    "topic": r".*\.events", "format": "json", "schema": "type STRING, id INT, amount DOUBLE, email STRING",
}  # fmt: skip
UNKEYED = "CAST(NULL AS STRING) AS _kafka_key"
ORDERS = Table(
    **EVENTS,
    name="orders",
    where="type = 'order'",
    select=("id", "amount * 100 AS cents", "left(email, 1) AS email", UNKEYED),
    expect={"positive": "cents > 0", "named": "email IS NOT NULL AND _kafka_offset >= 0"},
)
CLICKS = Table(
    **EVENTS,
    name="{topic}_clicks",
    where="value.type = 'click' AND exists(headers, h -> h.key = 'n')",
    select=("* EXCEPT (email)",),
)
USERS: dict[str, Any] = {
    "topic": r".*\.users", "mode": "upsert", "format": "json", "schema": "country STRING, name STRING", "key_format": "string",
}  # fmt: skip
NORWAY = Table(
    **USERS,
    name="norway",
    where="country = 'NO'",
    select=("upper(name) AS name", "key AS id"),
    expect={"named": "name <> ''"},
)
OTHERS = Table(**USERS, name="others", where="NOT country <=> 'NO'")
TYPES: dict[str, Any] = {
    "topic": r".*\.payments", "format": "avro", "options": {"value.subject.name.strategy": "TopicRecordNameStrategy"},
}  # fmt: skip
CHARGES = Table(**TYPES, name="charges", types=("shop.Charge",), where="amount < 100")
REFUNDS = Table(**TYPES, name="refunds", types=("shop.Refund",))


def event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": number, "amount": 1.5, "email": f"{number}@example.com", **more}


def rows(shop: Shop, name: str, *columns: str) -> list[tuple[Any, ...]]:
    found = shop.spark.read.format("delta").load(f"{shop.folder}/lake/{name}").selectExpr(*columns).collect()
    return sorted((tuple(row) for row in found), key=repr)


def records_read(reads: ReadFigures) -> int:
    """How many records tasks have read, when none of them reports any more."""
    before, now = -1, 0
    while now != before:
        time.sleep(0.5)
        before, now = now, reads.total().records_consumed
    return now


def codes_and_rows(ingest: Ingest) -> dict[str, tuple[str, int]]:
    """The code of each table's error, and its rows."""
    return {
        key.partition(":")[2]: ("" if each.trouble is None else each.trouble.code, each.rows)
        for key, each in ingest.statuses.items()
    }


def keeps_nothing(shop: Shop) -> bool:
    """Whether Spark keeps no rows any more that tables have shared."""
    return bool(shop.spark._jsparkSession.sharedState().cacheManager().isEmpty())


def send_payments(shop: Shop, *payments: tuple[str, float]) -> None:
    topic, values = f"{shop.prefix}.payments", []
    for name, amount in payments:
        fields = [{"name": "amount", "type": "double"}]
        schema = json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})
        strategy = {"subject.name.strategy": lambda context, record: f"{context.topic}-{record}"}
        write = AvroSerializer(shop._client, schema, conf=strategy)
        values.append(write({"amount": amount}, SerializationContext(topic, MessageField.VALUE)))
    shop.send("payments", values)


def user(shop: Shop, *changes: tuple[bytes, str | None, str]) -> None:
    values = [None if c is None else json.dumps({"country": c, "name": name}).encode() for _, c, name in changes]
    shop.send("users", values, keys=[key for key, _, _ in changes])


def test_a_topic_feeds_tables_by_conditions(shop: Shop) -> None:
    topic = shop.create("events")
    values = [
        event("order", 0),
        event("click", 1),
        event("order", 2, amount=-1.0),
        event("login", 3),
        event("order", 4),
    ]
    shop.send_json("events", values)
    ingest = shop.run(tables=[ORDERS, CLICKS], registry=None)
    statuses = ingest.statuses
    clicks = f"{shop.prefix}_events_clicks"
    assert {key: (each.error, each.rows, each.rejects) for key, each in statuses.items()} == {
        f"{topic}:orders": (None, 2, 1), f"{topic}:{clicks}": (None, 1, 0),
    }  # fmt: skip
    assert {each.by_spark for each in statuses.values()} == {None}
    assert rows(shop, "orders", "id", "cents", "email", "_kafka_key") == [(0, 150.0, "0", None), (4, 150.0, "4", None)]
    assert rows(shop, clicks, "id", "type") == [(1, "click")]
    assert rows(shop, "_rejects", "table", "offset", "reason") == [("orders", 1, "expectation positive: cents > 0")]
    proofs = list(verify(shop.spark, ingest.settings, ingest.topics()))
    assert [(each.is_right, each.unrouted) for each in proofs] == [(True, ((1, 1),)), (True, ())], (
        "the login is in no table"
    )
    refused = CliRunner().invoke(commands, ["prove", f"{shop.folder}/lake/orders", "-b", shop.outside.servers])
    assert "has a subset of its topic's records (where type = 'order'" in str(refused.exception), refused


@pytest.mark.long
def test_simple_conditions_need_no_spark(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.create("events")
    shop.send_json("events", [
        event("order", 0), event("order", 1, amount=0.5), event("order", 2, amount=None), event("order", 3, amount="NaN"),
        event("order", 4, email=None), event("order", 500), event("click", 6), None,
    ])  # fmt: skip
    shop.send("events", [b"{", b"{"])
    paid = Table(
        **EVENTS, name="paid", where="type = 'order' AND amount > 1",
        select=("id", "email AS mail", "amount <= 2 AS cheap", "CAST(NULL AS BINARY) AS _kafka_key"),
        expect={"known": "mail IS NOT NULL AND _kafka_offset >= 0", "few": "ID < 100"},
    )  # fmt: skip
    free = Table(**EVENTS, name="free", where="NOT (type = 'order' AND amount > 1)", partition_by=("type",))
    first = Table(**EVENTS, name="first", where="partition = 0 AND headers IS NOT NULL AND type IN ('click', NULL)")
    shop.create("payments")
    send_payments(shop, ("Charge", 5.0), ("Refund", 1.0), ("Charge", 500.0), ("Chargeback", 2.0))
    charges = replace(CHARGES, select=("value.amount AS paid", "amount <=> 5D AS is_five"))
    asked = {"tables": [paid, free, first, charges, REFUNDS]}
    with monkeypatch.context() as patched:
        patched.setattr(TableReader, "rows", kill)
        statuses = shop.run(**asked).statuses
    seen = {
        key.partition(":")[2]: (each.error, each.rows, each.rejects, each.by_spark) for key, each in statuses.items()
    }
    assert seen == {
        "paid": (None, 2, 4, None), "free": (None, 2, 2, None), "first": (None, 1, 1, None),
        "charges": (None, 1, 0, None), "refunds": (None, 1, 0, None),
    }  # fmt: skip
    assert rows(shop, "paid", "id", "mail", "cheap", "_kafka_key") == [
        (0, "0@example.com", True, None), (3, "3@example.com", False, None),
    ]  # fmt: skip
    assert rows(shop, "free", "id", "type") == [(1, "order"), (6, "click")]
    assert rows(shop, "first", "id") == [(6,)]
    expected = sorted(
        reason for _, reason in rows(shop, "_rejects", "table", "reason") if reason.startswith("expectation")
    )
    assert expected == ["expectation few: ID < 100", "expectation known: mail IS NOT NULL AND _kafka_offset >= 0"]
    assert rows(shop, "charges", "paid", "is_five") == [(5.0, True)]
    assert rows(shop, "refunds", "amount") == [(1.0,)]


@pytest.mark.long
def test_tables_of_a_topic_read_it_once_and_one_that_fails_leaves_its_rows_to_the_others(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = shop.create("events")
    bad = Table(**EVENTS, name="bad", where="CAST(type AS INT) = 1")
    n_read, close = [], ReadFigures.close
    monkeypatch.setattr(ReadFigures, "close", lambda _: None)  # tasks report when the query has ended, too
    late = replace(CLICKS, name="late")
    for tables in ([bad, ORDERS, CLICKS], [ORDERS, CLICKS], [ORDERS, CLICKS, late]):
        shop.send_json("events", [event(kind, number) for number in range(5) for kind in ("order", "click")])
        ingest = shop.ingest(tables=tables, parallel=1)
        query = ingest.start(shop.spark, once=True, ui="0")
        assert query.awaitTermination(240) and ingest.page is not None and ingest.reads is not None
        ingest.page.close()
        n_read.append(records_read(ingest.reads))
        close(ingest.reads)
        states = codes_and_rows(ingest)
        assert states.pop("bad", ("CAST_INVALID_INPUT", 0)) == ("CAST_INVALID_INPUT", 0)
        assert states.pop("late", ("", 15)) == ("", 15), "it begins where the topic began"
        assert states == {"orders": ("", 5), f"{shop.prefix}_events_clicks": ("", 5)}, topic
        assert keeps_nothing(shop)
    # The new table first gets what the others have, by itself.
    assert n_read[1:] == [10, 20 + 10], n_read


@pytest.mark.long
def test_topics_feed_tables_by_conditions_and_what_breaks_an_expectation_is_a_reject(shop: Shop) -> None:
    events, users, payments = (shop.create(name) for name in ("events", "users", "payments"))
    shop.send_json("events", [
        event("order", 0), event("click", 1), event("order", 2, amount=-1.0), event("order", 3, amount=None),
        event("order", 4, email=None), event("login", 5), event("click", 6), None,
    ])  # fmt: skip
    shop.send("events", [b"{", b'{"type": "login", "amount": "much"}'])
    user(shop, (b"a", "NO", "ann"), (b"b", "NO", "bo"), (b"c", "SE", "cim"), (b"d", "NO", ""), (b"e", "NO", "eva"))
    send_payments(shop, ("Charge", 5.0), ("Refund", 1.0), ("Charge", 500.0), ("Chargeback", 2.0))
    asked = {"tables": [ORDERS, CLICKS, NORWAY, OTHERS, CHARGES, REFUNDS]}
    ingest = shop.run(**asked)
    clicks = f"{shop.prefix}_events_clicks"
    landed = {key: (each.error, each.rows, each.rejects) for key, each in ingest.statuses.items()}
    assert landed == {
        f"{events}:orders": (None, 2, 4), f"{events}:{clicks}": (None, 2, 2),
        f"{users}:norway": (None, 3, 1), f"{users}:others": (None, 1, 0),
        f"{payments}:charges": (None, 1, 0), f"{payments}:refunds": (None, 1, 0),
    }  # fmt: skip
    assert rows(shop, "orders", "id", "cents", "email", "_kafka_key") == [(0, 150.0, "0", None), (3, None, "3", None)]
    assert rows(shop, clicks, "id", "type", "amount") == [(1, "click", 1.5), (6, "click", 1.5)]
    columns = shop.spark.read.format("delta").load(f"{shop.folder}/lake/{clicks}").columns
    assert columns[:4] == ["type", "id", "amount", "_kafka_key"], "without the e-mail, and without headers"
    assert rows(shop, "norway", "id", "name") == [("a", "ANN"), ("b", "BO"), ("e", "EVA")]
    assert (rows(shop, "charges", "amount"), rows(shop, "refunds", "amount")) == ([(5.0,)], [(1.0,)])
    reasons = rows(shop, "_rejects", "table", "reason")
    assert [each for each in reasons if each[1].startswith("expectation")] == [
        ("norway", "expectation named: name <> ''"),
        ("orders", "expectation named: email IS NOT NULL AND _kafka_offset >= 0"), ("orders", "expectation positive: cents > 0"),
    ]  # fmt: skip
    unknown = sorted(table for table, reason in reasons if not reason.startswith("expectation"))
    assert unknown == sorted([clicks, clicks, "orders", "orders"]), "what cannot be read has no known type"

    user(shop, (b"a", "SE", "ann"), (b"c", "NO", "cim"), (b"b", None, ""), (b"e", "NO", "eve"), (b"f", "SE", "fi"))
    ingest = shop.run(**asked)
    assert rows(shop, "norway", "id", "name") == [("c", "CIM"), ("e", "EVE")], (
        "one moved out, one moved in, one is deleted"
    )
    assert rows(shop, "others", "_kafka_key", "name") == [("a", "ann"), ("f", "fi")]
    proofs = {each.table: each for each in verify(shop.spark, ingest.settings, ingest.topics())}
    assert [(name, str(each)) for name, each in proofs.items() if not each.is_right] == [
        ("norway", str(proofs["norway"]))
    ], "the change that broke the expectation is named until the row has a newer one"
    assert {name: each.n_unrouted for name, each in proofs.items() if each.n_unrouted} == {"orders": 2, "charges": 2}
    assert "2 others that no table takes (partition, offset: (1, 2), (1, 3))" in str(proofs["orders"])

    lenient = [
        Table(**{**EVENTS, "schema": "type STRING, id INT"}, name="orders", where="type = 'order'", select=("id", UNKEYED)),
        *asked["tables"][1:],
    ]  # fmt: skip
    replayed = {each.table: each for each in replay_rejects(shop.spark, shop.ingest(tables=lenient).settings)}
    orders = replayed["orders"]
    assert (orders.landed, orders.damaged, orders.others, orders.gone, orders.mistake) == (2, 1, 1, 0, None)
    assert rows(shop, "orders", "id") == [(0,), (2,), (3,), (4,)]


def test_the_plan_shows_conditions_and_names_all_that_is_wrong_with_them(shop: Shop) -> None:
    shop.create("events")
    asked = {
        "checkpoint": str(shop.folder / "checkpoint"), "into": str(shop.folder / "lake"), "topics": rf"{shop.prefix}\..*",
        "kafka": {"bootstrap.servers": shop.outside.servers},
    }  # fmt: skip
    command = ["ingest", str(shop.folder / "shop.toml"), "--plan"]

    def plan(*tables: str) -> Any:
        head = "\n".join(f"{name} = {json.dumps(text)}" for name, text in asked.items() if isinstance(text, str))
        kafka = f'[kafka]\n"bootstrap.servers" = "{shop.outside.servers}"'
        entry = (
            "\n[[table]]\ntopic = '.*\\.events'\nformat = 'json'\nschema = 'type STRING, amount DOUBLE, KEY STRING'\n"
        )
        text = "".join([head, "\n", kafka, *(entry + each + "\n" for each in tables)])
        (shop.folder / "shop.toml").write_text(text)
        return CliRunner().invoke(commands, command)

    good = plan(
        "name = 'orders'\nwhere = \"type = 'order'\"\nselect = ['amount', 'value.key AS code', 'partition AS part']\n"
        "expect = { paid = 'amount > 0' }",
        "name = 'rest'\nwhere = \"type <> 'order'\"",
    )
    assert good.exit_code == 0, good.output
    shown = [line.strip() for line in good.stdout.splitlines()]
    assert shown[1:5] == [
        "where type = 'order'", "select amount, value.key AS code, partition AS part",
        "`amount` double, `code` string, `part` int", "expect paid: amount > 0",
    ]  # fmt: skip
    assert shown[0].endswith("files by tasks") and shown[6:8] == [
        "where type <> 'order'",
        "type STRING, amount DOUBLE, KEY STRING",
    ]

    wrong = plan(
        "name = 'a'\nwhere = 'amount + 1'",
        "name = 'b'\nwhere = 'typ = 1'\nselect = ['amount * 2', 'nothing', 'NULL AS x']",
        "name = 'c'\nwhere = 'true'\nexpect = { one = 'type = 1 AND lost', two = 'max(amount) > 1' }",
        "name = 'A'\nwhere = 'true'",
    )
    assert wrong.exit_code == 2 and "name 'A' is also the name of topic" in wrong.output
    wrong = plan(
        "name = 'a'\nwhere = 'amount + 1'",
        "name = 'b'\nwhere = 'typ = 1'\nselect = ['amount * 2', 'nothing', 'NULL AS x']",
        "name = 'd'\nwhere = 'true'\nselect = ['*', '1 AS AMOUNT']",
        "name = 'e'\nwhere = 'true'\nselect = ['1 AS _kafka_offset']",
        "name = 'c'\nwhere = 'true'\nexpect = { one = 'lost', two = 'max(amount) > 1', three = 'explode(array(true))' }",
    )
    assert wrong.exit_code == 1
    for part in (
        "where is 'amount + 1', which is not a condition: its type is double", "where is 'typ = 1': [UNRESOLVED_COLUMN",
        "select has a column without a name: write amount * 2 AS name", "select is 'nothing': [UNRESOLVED_COLUMN",
        "the column x of select has no type", "select has two columns amount",
        "select has a column _kafka_offset, which is a Kafka column", "expect.one is 'lost': [UNRESOLVED_COLUMN",
        "expect.two is 'max(amount) > 1': [", "expect.three is 'explode(array(true))': [",
    ):  # fmt: skip
        assert part in wrong.stdout, (part, wrong.stdout)
    no_sql = plan("name = 'a'\nwhere = 'type = = 1'", "name = 'b'\nwhere = 'typ SELECT 2'")
    assert no_sql.exit_code == 1 and no_sql.output.count("which is not valid SQL: [PARSE_SYNTAX_ERROR]") == 2, (
        no_sql.output
    )


@pytest.mark.long
def test_a_crash_at_every_step_between_the_tables_of_a_topic_doubles_and_loses_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run ends before a commit of one of the tables, or of its rejects, or before a table's properties."""
    shop.create("events")
    shop.create("users")
    asked = {"tables": [ORDERS, CLICKS, NORWAY, OTHERS]}

    def send(first: int) -> None:
        kinds = [
            event(kind, first + n, amount=n - 1.0)
            for n, kind in enumerate(("order", "click", "order", "click", "order"))
        ]
        shop.send_json("events", kinds)
        user(shop, *((b"%d" % n, "NO" if (n + first) % 2 else "SE", f"user {first}") for n in range(4)))

    send(0)
    shop.run(**asked)
    send(5)

    def step(table: Any, method: str, given: tuple[Any, ...]) -> tuple[str, ...]:
        return table.identifier, method, given[1].get("txnAppId", "") if method == "_save" else ""

    methods = [(DeltaFolder, "append_files"), (SparkDeltaTable, "_save"), (SparkDeltaTable, "merge")]
    crashed = shop.crash_before_each_step(monkeypatch, methods, step, **asked)
    assert len(crashed) == 5, crashed  # two tables of rows, the rejects of one of them, and two merges
    ingest = shop.run(**asked)
    assert {each.error for each in ingest.statuses.values()} == {None}
    assert rows(shop, "orders", "id") == [(2,), (4,), (7,), (9,)]
    assert rows(shop, f"{shop.prefix}_events_clicks", "id") == [(1,), (3,), (6,), (8,)]
    assert rows(shop, "_rejects", "table", "reason") == [("orders", "expectation positive: cents > 0")] * 2
    assert rows(shop, "norway", "id", "name") == [("0", "USER 5"), ("2", "USER 5")]
    assert rows(shop, "others", "_kafka_key", "name") == [("1", "user 5"), ("3", "user 5")]
    proofs = list(verify(shop.spark, ingest.settings, ingest.topics()))
    assert all(each.is_right and not each.n_unrouted for each in proofs), list(map(str, proofs))


@pytest.mark.long
def test_a_condition_on_a_value_that_the_database_has_not_sent_stops_the_table_and_keeps_selected_ones(
    shop: Shop,
) -> None:
    def change(number: int, **row: Any) -> dict[str, Any]:
        return {"before": None, "after": {"id": number, **row}, "source": {"connector": "postgresql"}, "op": "u"}

    def send(*changes: dict[str, Any]) -> None:
        shop.send_json("rows", list(changes), keys=[{"id": each["after"]["id"]} for each in changes])

    topic = shop.create("rows")
    read: dict[str, Any] = {
        "topic": r".*\.rows", "mode": "cdc", "format": "json", "schema": "id INT, big STRING, n INT", "key_schema": "id INT",
    }  # fmt: skip
    small = Table(
        **read,
        name="small",
        where="n < 10",
        select=("id", "upper(big) AS big", "n * 10 AS tens"),
        expect={"big": "big <> 'X'", "known": "big IS NOT NULL"},
    )
    by_big = Table(**read, name="by_big", where="big LIKE 'a%'")
    whole = Table(**read, name="whole", where="true", select=("id", "value doc"))
    asked = {"tables": [small, by_big, whole]}
    send(change(1, big="aa", n=1), change(2, big="ab", n=1), change(3, big="b", n=1), change(4, big="x", n=1))
    shop.run(**asked)
    assert rows(shop, "small", "id", "big", "tens") == [(1, "AA", 10), (2, "AB", 10), (3, "B", 10)]
    unsent = "__debezium_unavailable_value"
    send(change(1, big=unsent, n=2), change(2, big=unsent, n=20), change(3, big=unsent, n=3), change(3, big="c", n=4))
    statuses = shop.run(**asked).statuses
    assert (statuses[f"{topic}:small"].error, statuses[f"{topic}:small"].rejects) == (None, 0)
    for name in ("by_big", "whole"):
        assert "has no value of big: the database did not send it" in (statuses[f"{topic}:{name}"].error or ""), name
    assert rows(shop, "small", "id", "big", "tens") == [(1, "AA", 20), (3, "C", 40)], "what was not sent is kept"
    send(change(1, big="ac", n=2), change(2, big="d", n=2))
    shop.run(**asked)  # tries the old range once more, at the start, and only then knows the new one
    ingest = shop.run(**asked)
    assert {each.error for name, each in ingest.statuses.items() if not name.endswith(":whole")} == {None}
    assert rows(shop, "by_big", "id", "big") == [(1, "ac")], "row 2 no longer fits"
    proofs = {each.table: each for each in verify(shop.spark, ingest.settings, ingest.topics())}
    assert proofs["by_big"].is_right and not proofs["small"].is_right and proofs["small"].n_stale == 1, proofs


@pytest.mark.long
def test_a_condition_that_fails_stops_its_table_alone(shop: Shop) -> None:
    shop.create("events")
    shop.send_json("events", [event("order", 0), event("click", 1)])
    bad = Table(**EVENTS, name="bad", where="CAST(type AS INT) = 1")
    lost = Table(**EVENTS, name="lost", where="kind = 'order'")
    ingest = shop.run(tables=[ORDERS, bad, lost])
    assert keeps_nothing(shop)
    states = codes_and_rows(ingest)
    # The plan finds the mistake; an attempt, after 5 s, finds it in Spark's words.
    assert states.pop("lost") in (("PYKAFKA_WIRE_INGEST", 0), ("UNRESOLVED_COLUMN", 0))
    assert states == {"orders": ("", 1), "bad": ("CAST_INVALID_INPUT", 0)}
    ingest = shop.run(
        tables=[
            ORDERS,
            replace(bad, where="try_cast(type AS INT) IS NULL", redefine=("where",)),
            replace(lost, where="type = 'order'", redefine=("where",)),
        ]
    )
    assert [(each.error, each.rows) for each in ingest.statuses.values()] == [(None, 0), (None, 2), (None, 1)]
    proofs = list(verify(shop.spark, ingest.settings, ingest.topics()))
    assert all(each.is_right for each in proofs), list(map(str, proofs))


@pytest.mark.long
@pytest.mark.parametrize("write", ["auto", "spark"])
def test_a_damaged_record_is_a_reject_and_deletes_no_row_where_the_condition_asks_for_a_value(
    shop: Shop, write: str
) -> None:
    for name in ("events", "users"):
        shop.create(name)
    shop.send_json("events", [event("order", 0)])
    user(shop, (b"a", "NO", "ann"), (b"b", "NO", "bo"))
    known = Table(**EVENTS, name="known", where="value IS NOT NULL AND partition >= 0", write=write)
    others = Table(**EVENTS, name="others", where="type <=> 'order' AND partition > 1", write=write)
    users = Table(**USERS, name="users", where="country IS NOT NULL", write=write)
    asked = {"tables": [known, others, users], "registry": None}
    shop.run(**asked)
    shop.send("events", [b"{", None])
    shop.send("users", [b"{", b'{"name": "bob"}'], keys=[b"a", b"b"])
    ingest = shop.run(**asked)
    assert {each.error for each in ingest.statuses.values()} == {None}
    assert rows(shop, "users", "_kafka_key", "name") == [("a", "ann")], "b no longer has a country"
    assert rows(shop, "_rejects", "table", "key") == [("known", None), ("users", bytearray(b"a"))]
    assert rows(shop, "known", "id") == [(0,)]
