"""Rows that are easily wrong: keys that move to another partition, columns that go, come late or have one name."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop, avro_schema

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

_T0 = 1_700_000_000_000


@pytest.mark.long
def test_keys_that_move_to_a_new_partition_keep_their_newest_value_and_stay_deleted(shop: Shop) -> None:
    """Offsets of two partitions cannot be compared: timestamps decide."""
    users = shop.create("users", partitions=1)

    def send(partition: int, *changes: tuple[int, int | None, int]) -> None:
        records = [
            shop.outside.Record(
                key=b'{"id": %d}' % key,
                value=None if n is None else b'{"n": %d}' % n,
                partition=partition,
                timestamp_ms=_T0 + time,
            )
            for key, n, time in changes
        ]
        shop.outside.produce(users, records)

    asked = {"defaults": Table(topic=".*", format="json", mode="upsert", key_format="json", key_schema="id INT")}
    send(0, *((key, key, key) for key in range(8)))
    shop.run(**asked)
    shop.outside.grow(users, 2)
    send(1, (1, 100, 50), (2, None, 50), (3, 300, 60), (4, 0, 1), (7, None, 1))
    send(0, (3, 0, 50), (4, 400, 50), (5, 0, 70), (5, 500, 40))  # its own partition's order counts before timestamps
    shop.run(**asked)
    send(0, (1, 111, 50))  # of equal timestamps the partition decides, in whatever order micro-batches read them
    ingest = shop.run(**asked)
    assert shop.rows("users", "_kafka_key.id", "n") == [(0, 0), (1, 100), (3, 300), (4, 400), (5, 500), (6, 6), (7, 7)]
    assert [each.is_right for each in verify(shop.spark, ingest.settings, ingest.topics())] == [True]


@pytest.mark.long
def test_a_deleted_row_stays_deleted_while_a_record_that_cannot_be_landed_is_searched(shop: Shop) -> None:
    """The row's key moved to the second partition, in whose first half it is deleted; the change before is in the last half of the
    first partition.
    """
    users = shop.create("users", partitions=2)

    def send(partition: int, *changes: tuple[str, int | None, int]) -> None:
        records = [
            shop.outside.Record(
                key=key.encode(),
                value=None if n is None else b'{"n": %d}' % n,
                partition=partition,
                timestamp_ms=_T0 + time,
            )
            for key, n, time in changes
        ]
        shop.outside.produce(users, records)

    asked = {
        "defaults": Table(topic=".*", format="json", schema="n INT", mode="upsert", key_format="string"),
        "registry": None,
    }
    send(0, ("first", 0, 0))
    shop.run(**asked)
    place = shop.folder / "lake" / users.replace(".", "_")
    shop.spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT small CHECK (n < 100)")
    send(0, ("a", 1, 10), ("b", 2, 20), ("c", 3, 30), ("moved", 4, 40))
    send(1, ("moved", None, 50), ("d", 5, 60), ("large", 200, 70), ("e", 6, 80))
    ingest = shop.run(**asked)
    assert [status.rejects for status in ingest.statuses.values()] == [1]
    assert shop.rows("users", "_kafka_key") == [("a",), ("b",), ("c",), ("d",), ("e",), ("first",)]
    (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
    assert proof.comparison is not None and proof.comparison.is_equal, str(proof)
    assert proof.stale == ((1, 2),), "the reject"


@pytest.mark.long
def test_a_deleted_row_stays_deleted_in_however_many_commits_a_new_table_is_landed(shop: Shop) -> None:
    """The row's key moved to the second partition, whose first record deletes it; the change before is late in the first one."""
    users = shop.create("users", partitions=2)

    def send(partition: int, *changes: tuple[str, int | None, int]) -> None:
        records = [
            shop.outside.Record(
                key=key.encode(),
                value=None if n is None else b'{"n": %d}' % n,
                partition=partition,
                timestamp_ms=_T0 + time,
            )
            for key, n, time in changes
        ]
        shop.outside.produce(users, records)

    asked = {
        "defaults": Table(topic=".*", format="json", schema="n INT", mode="upsert", key_format="string"),
        "registry": None,
    }
    send(0, ("a", 1, 10), ("b", 2, 20), ("c", 3, 30), ("moved", 4, 40))
    send(1, ("moved", None, 50), ("d", 5, 60), ("e", 6, 70), ("f", 7, 80))
    shop.run(**asked)
    send(0, ("g", 8, 90))
    shop.run(**asked)
    shutil.rmtree(shop.folder / "lake" / users.replace(".", "_"))
    ingest = shop.run(**asked, max_rows=2)
    assert [key for (key,) in shop.rows("users", "_kafka_key")] == ["a", "b", "c", "d", "e", "f", "g"]
    (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
    assert proof.is_right, str(proof)


@pytest.mark.long
def test_a_field_that_the_schema_no_longer_has_is_null_in_rows_that_are_updated(shop: Shop) -> None:
    shop.create("users")
    asked = {"defaults": Table(topic=".*", mode="upsert", key_format="string")}
    users = [b"a", b"b"]
    old, new = avro_schema("id int", "country string?"), avro_schema("id int", "city string?")
    shop.send("users", list(shop.avro("users", old, [{"id": n, "country": "NO"} for n in range(2)])), keys=list(users))
    shop.run(**asked)
    shop.send("users", list(shop.avro("users", new, [{"id": 9, "city": "Oslo"}])), keys=list(users[:1]))
    shop.run(**asked)
    assert shop.rows("users", "id", "country", "city") == [(1, "NO", None), (9, None, "Oslo")]


@pytest.mark.long
def test_names_that_clash_stop_their_table_alone_and_values_without_a_type_leave_it_open(shop: Shop) -> None:
    def send(**of_topics: list[Any]) -> None:
        for name, values in of_topics.items():
            shop.send_json(name, values, keys=[{"id": n} for n in range(len(values))])

    for name in ("taken", "cases", "later", "good", "empty", "changes"):
        shop.create(name)
    keyed = {"format": "json", "key_format": "json"}
    asked = {
        "defaults": Table(topic=".*", **keyed),
        "tables": [Table(topic=r".*\.(empty|changes)", mode="upsert", **keyed)],
    }
    send(taken=[{"_KAFKA_offset": 1}], cases=[{"a": {"Id": 1, "id": 2}}], later=[{"id": 1}], good=[{"id": 1}])
    send(empty=[None, None], changes=[{}, None])
    statuses = shop.run(**asked).statuses
    errors = {topic.split(".")[1]: each.error for topic, each in statuses.items()}
    assert "columns _KAFKA_offset and _kafka_offset of the table" in (errors.pop("taken") or "")
    assert "values have the fields Id and id, which differ only in case" in (errors.pop("cases") or "")
    assert set(errors.values()) == {None}
    send(later=[{"ID": 2}], good=[{"id": 2}], empty=[{"n": 1}, None], changes=[{"n": 1}, {"n": 2}])
    statuses = shop.run(**{**asked, "topics": rf"{shop.prefix}\.(later|good|empty|changes)"}).statuses
    errors = {topic.split(".")[1]: each.error for topic, each in statuses.items()}
    assert "values have the field ID, but the table has id" in (errors.pop("later") or "")
    assert set(errors.values()) == {None}
    assert shop.rows("good", "id") == [(1,), (2,)]
    assert (shop.rows("empty", "n"), shop.rows("changes", "n")) == ([(1,)], [(1,), (2,)])


@pytest.mark.long
def test_what_no_row_can_be_made_of_is_left_out_or_stops_its_table_or_is_named(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Of Debezium: helper topics, changes without a key or with a null in it, a value that was never sent, and a damaged change,
    whose row is stale."""

    def change(number: int, **row: Any) -> dict[str, Any]:
        return {"before": None, "after": {"id": number, **row}, "source": {"connector": "postgresql"}, "op": "u"}

    def send(*rows: dict[str, Any]) -> None:
        shop.send_json("public.rows", list(rows), keys=[{"id": row["after"]["id"]} for row in rows])

    caplog.set_level(logging.WARNING, "pykafka_wire.ingest")
    asked = {"defaults": Table(topic=".*", mode="cdc", format="json"), "registry": None}
    names = ("public.rows", "public.keyless", "public.indexed", "transaction")
    topics = [shop.create(name) for name in names]
    shop.send_json("transaction", [{"status": "BEGIN", "id": "1"}], keys=[{"id": "1"}])
    shop.send_json("public.keyless", [change(1, v="a"), change(2, v="b")])
    shop.send_json("public.indexed", [change(1), change(2)], keys=[{"a": "x", "b": None}, {"a": "x", "b": 1}])
    send(change(1, v="a"), change(2, v="a"), change(3, v="a"))
    statuses = shop.run(**asked).statuses
    assert sorted(statuses) == sorted(topics[:3])
    assert f"1 changes of topic {topics[2]} have a null in their key" in caplog.text
    assert "changes without a key: the database table has no primary key" in (statuses[topics[1]].error or "")
    assert f"Topic {topics[3]} is left out: it has Debezium's transactions" in caplog.text
    table = f"delta.`{shop.folder}/lake/{shop.prefix}_public_rows`"
    shop.spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
    shop.spark.sql(f"UPDATE {table} SET note = 'mine'")

    send(change(1, v="b"), change(4, v="__debezium_unavailable_value"))
    shop.send("public.rows", [b'{"op": "u", "after": {"id": 2, "v": '], keys=[b'{"id": 2}'])
    ingest = shop.run(**asked, topics=rf"{shop.prefix}\.public\.rows")
    assert (ingest.statuses[topics[0]].rejects, ingest.statuses[topics[0]].stale) == (1, 1)
    assert shop.rows("public_rows", "id", "v", "note") == [
        (1, "b", "mine"), (2, "a", "mine"), (3, "a", "mine"), (4, None, None),
    ]  # fmt: skip
    assert "1 new rows have columns whose value the database has not sent (v)" in caplog.text
    (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
    assert not proof.is_right and "1 rejected changes, whose rows are stale (partition, offset: (" in str(proof)
    send(change(2, v="c"))
    ingest = shop.run(ingest)
    (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
    assert proof.is_right, str(proof)


@pytest.mark.long
def test_a_replayed_change_gives_a_newer_one_the_value_that_was_not_sent_with_it(shop: Shop) -> None:
    def change(operation: str, **row: Any) -> dict[str, Any]:
        return {"before": None, "after": {"id": 1, **row}, "source": {"connector": "postgresql"}, "op": operation}

    topic = shop.create("rows")
    first, second = (
        {"defaults": Table(topic=".*", mode="cdc", format="json", schema=f"id INT, big STRING, n INT{more}", key_schema="id INT")}
        for more in (", w INT", "")
    )  # fmt: skip
    keys = [{"id": 1}]
    shop.send_json("rows", [change("r", big="A", n=1)], keys=keys)
    shop.run(**first)
    shop.send_json("rows", [change("u", big="X", n=1, w="bad")], keys=keys)
    shop.send_json("rows", [change("u", big="__debezium_unavailable_value", n=2)], keys=keys)
    ingest = shop.run(**first)
    assert (ingest.statuses[topic].rejects, shop.rows("rows", "id", "big", "n")) == (1, [(1, "A", 2)])
    (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
    assert proof.n_stale == 1, str(proof)
    settings = shop.ingest(**second).settings
    (replayed,) = replay_rejects(shop.spark, settings)
    assert (replayed.landed, shop.rows("rows", "id", "big", "n")) == (1, [(1, "X", 2)])
    (proof,) = verify(shop.spark, settings, ingest.topics())
    assert proof.is_right, str(proof)


@pytest.mark.long
def test_a_row_that_moves_to_a_compacted_rows_key_gets_none_of_its_values(
    shop: Shop, topic: Callable[..., str]
) -> None:
    """Compaction removes the delete by which a repeated move and one onto a deleted row's key differ."""
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "300",
        "max.compaction.lag.ms": "100",
    }
    name = topic(1, compacted, name=f"{shop.prefix}.rows")
    unsent = "__debezium_unavailable_value"

    def change(operation: str, key: int, big: str | None = None, n: int = 0, **header: int) -> Any:
        after = None if operation == "d" else {"id": key, "big": big, "n": n}
        value = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": operation}
        return shop.outside.Record(
            key=b'{"id": %d}' % key,
            value=json.dumps(value).encode(),
            headers=tuple(
                (f"__debezium.{header_name}", b'{"id": %d}' % other) for header_name, other in header.items()
            ),
        )

    def move(old: int, new: int, n: int) -> list[Any]:
        return [change("d", old, newkey=new), change("c", new, unsent, n, oldkey=old)]

    asked = {
        "defaults": Table(
            topic=".*", mode="cdc", format="json", schema="id INT, big STRING, n INT", key_schema="id INT"
        )
    }
    first = [change("r", key, big) for key, big in zip(range(1, 8), "XAYZCRD", strict=True)]
    shop.outside.produce(name, [*first, *move(5, 50, 1)])
    shop.run(**asked)
    # 2 moves to the key of 1, a new row to that of 3, and one of which the old key has another row to that of 4.
    shop.outside.produce(name, [change("d", 1), *move(2, 1, 2), change("d", 3), change("c", 8, "B"), *move(8, 3, 2)])
    shop.outside.produce(name, [change("d", 4), *move(6, 4, 2), change("c", 6, "new", 3), *move(5, 50, 1)])
    deadline = time.monotonic() + 120
    while b'{"id": 8}' in [each.key for each in shop.outside.consume(name) if b'"B"' in (each.value or b"")]:
        assert time.monotonic() < deadline, "nothing was compacted"
        shop.outside.produce(name, [change("r", 0)])
        time.sleep(0.5)
    shop.run(**asked)
    assert shop.rows("rows", "id", "big", "n") == [
        (0, None, 0), (1, "A", 2), (3, None, 2), (4, None, 2), (6, "new", 3), (7, "D", 0), (50, None, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("key_format", [None, pytest.param("avro", marks=pytest.mark.long)])
def test_a_symbol_that_an_enum_of_keys_has_lost_names_its_own_row(shop: Shop, key_format: str | None) -> None:
    """Avro's rule would read it as the enum's default: two rows would be one."""
    topic = shop.create("kinds")
    registry = SchemaRegistryClient({"url": shop.registry})
    for symbols, keys in (("AB", "AB"), ("A", "A")):
        kind = {"type": "enum", "name": "Kind", "symbols": list(symbols), "default": "A"}
        schema = {"type": "record", "name": "Key", "fields": [{"name": "kind", "type": kind}]}
        write = AvroSerializer(registry, json.dumps(schema))
        values = shop.avro("kinds", avro_schema("n int"), [{"n": ord(each)} for each in keys])
        records = [
            shop.outside.Record(
                key=write({"kind": each}, SerializationContext(topic, MessageField.KEY)), value=value, partition=0
            )
            for each, value in zip(keys, values, strict=True)
        ]
        shop.outside.produce(topic, records)
    shop.run(defaults=Table(topic=".*", mode="upsert", key_format=key_format))
    assert shop.rows("kinds", "_kafka_key.kind", "n") == [("A", 65), ("B", 66)]


def test_declared_keys_may_be_numbers_between_quotes(shop: Shop) -> None:
    """However many columns they have."""
    for name, key in (("one", {"id": "7"}), ("two", {"id": "7", "r": "eu"})):
        shop.create(name)
        shop.send_json(name, [{"v": 1}, {"v": 2}], keys=[key, {**key, "id": 7}])
    tables = [
        Table(topic=rf".*\.{name}", mode="upsert", format="json", schema="v INT", key_format="json", key_schema=schema)
        for name, schema in (("one", "id BIGINT"), ("two", "id BIGINT, r STRING"))
    ]
    ingest = shop.run(tables=tables)
    assert [(status.error, status.rejects) for status in ingest.statuses.values()] == [(None, 0)] * 2
    assert {name: shop.rows(name, "_kafka_key.id") for name in ("one", "two")} == {"one": [(7,)], "two": [(7,)]}


#: Changes of a table whose primary key loses b, or gets it: operation, key, and ``v`` of the row, whose b is 2 if its key has none.
_LOSES = (("c", (1, 2), 1), ("c", (1, 3), 1), ("c", (4, 2), 1), ("d", (1, 3), None), ("u", (1,), 2), ("d", (4,), None))
_GETS = (("c", (1,), 1), ("c", (3,), 1), ("d", (3,), None), ("u", (1, 2), 2), ("c", (1, 5), 1))


_ALL = ("loses.cdc", "gets.upsert", "loses.upsert", "gets.cdc")


@pytest.mark.long
@pytest.mark.parametrize(("names", "n_micro_batches"), [(_ALL, 1), (_ALL, 2)])
def test_keys_in_avro_that_lose_or_get_a_column_are_read_by_their_own_schemas(
    shop: Shop, names: tuple[str, ...], n_micro_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(names) == 2:  # so that the range is cut in halves before it is cut by keys
        monkeypatch.setattr("pykafka_wire.ingest.records.key_columns._MAX_RUNS", 1)
    row = {"type": "record", "name": "Value", "fields": [{"name": name, "type": "int"} for name in "abv"]}
    after = {"name": "after", "type": ["null", row], "default": None}
    envelope = {"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}, after]}
    registry = SchemaRegistryClient({"url": shop.registry})

    def send(name: str, changes: tuple[Any, ...]) -> None:
        """Changes of one partition: Debezium's envelopes in a topic of cdc, rows and tombstones in one of upsert."""
        topic, records = f"{shop.prefix}.{name}", []
        for operation, key, v in changes:
            columns = dict(zip("ab", key, strict=False))
            write = AvroSerializer(registry, avro_schema(*(f"{each} int" for each in columns)))
            changed = None if v is None else {"b": 2, **columns, "v": v}
            value = None
            if "cdc" in name:
                (value,) = shop.avro(name, json.dumps(envelope), [{"op": operation, "after": changed}])
            elif changed is not None:
                (value,) = shop.avro(name, json.dumps(row), [changed])
            written = write(columns, SerializationContext(topic, MessageField.KEY))
            headers = (("trace", b"1"),)  # and none that names a schema
            records.append(shop.outside.Record(key=written, value=value, partition=0, headers=headers))
        shop.outside.produce(topic, records)

    sent = {name: _LOSES if name.startswith("loses") else _GETS for name in names}
    for name in sent:
        shop.create(name)
    asked = {"tables": [Table(topic=rf".*\.{mode}", mode=mode) for mode in ("cdc", "upsert")]}
    for number in range(n_micro_batches):
        for name, changes in sent.items():
            n_first = 4 if n_micro_batches == 2 else len(changes)
            send(name, changes[n_first:] if number else changes[:n_first])
        ingest = shop.run(**asked)
        assert [(each.error, each.rejects) for each in ingest.statuses.values()] == [(None, 0)] * len(sent)
    for name, changes in sent.items():
        left = [(1, 2, 2)] if changes is _LOSES else [(1, 2, 2), (1, 5, 1)]
        assert shop.rows(name.replace(".", "_"), "a", "b", "v") == left, name
    wrong = [str(proof) for proof in verify(shop.spark, ingest.settings, ingest.topics()) if not proof.is_right]
    assert wrong == []
