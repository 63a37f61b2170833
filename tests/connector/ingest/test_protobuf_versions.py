"""Topics whose Protobuf schemas change while their records wait."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.ingest.conftest import Shop
from tests.connector.values.protobuf_samples import length_delimited

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(280)]


def _register(shop: Shop, subject: str, fields: str) -> int:
    """Register a version; return its id."""
    schema = RegisteredSchema(f'syntax = "proto3"; message M {{ {fields} }}', "PROTOBUF")
    client = SchemaRegistryClient({"url": shop.registry})
    return int(client.register_schema(f"{shop.prefix}.{subject}", schema))


def _framed(schema_id: int, *fields: bytes) -> bytes:
    return encode_frame(schema_id, b"\0" + b"".join(fields))


def _numbers(*numbers: int) -> bytes:
    """Return the fields 1, 2, … with numbers below 128."""
    return b"".join(bytes((field << 3, number)) for field, number in enumerate(numbers, 1))


def test_a_field_keeps_its_value_or_is_a_reject(shop: Shop) -> None:
    shop.create("values", partitions=1)
    shop.create("symbols", partitions=1)

    def send(topic: str, *values: bytes) -> None:
        shop.outside.produce(
            f"{shop.prefix}.{topic}", [shop.outside.Record(key=None, value=value, partition=0) for value in values]
        )

    divert = {"defaults": Table(topic=".*", on_conflict="divert")}
    first = _register(shop, "values-value", "int64 id = 1; int64 n = 2;")
    older = _register(shop, "symbols-value", "int64 id = 1; enum E { A = 0; B = 1; } E e = 2; optional int64 n = 3;")
    send("values", _framed(first, _numbers(1, 10)))
    send("symbols", _framed(older, _numbers(1, 1)))
    shop.run(**divert)
    second = _register(shop, "values-value", "int64 id = 1; string n = 2;")
    newer = _register(shop, "symbols-value", "int64 id = 1; enum E { A = 0; C = 1; } E e = 2; int64 n = 3;")
    send("values", _framed(first, _numbers(2, 20)), _framed(second, _numbers(3), length_delimited(2, b"thirty")))
    send("symbols", _framed(older, _numbers(2, 1)), _framed(newer, _numbers(3, 1)))
    shop.run(**divert)
    assert shop.rows("values", "id", "n") == [(1, 10), (2, 20)]
    assert shop.rows("symbols", "id", "e", "n") == [(1, "B", None), (2, "B", None), (3, "C", 0)]
    (reject,) = shop.table("_rejects").collect()
    assert (reject.offset, "its field n was written as string, and is read as int64" in reject.reason) == (2, True)

    # A new table has the columns of the newest version, which does not hold the numbers of the first one.
    again = {"checkpoint": str(shop.folder / "again"), "into": str(shop.folder / "again lake")}
    ingest = shop.run(topics=rf"{shop.prefix}\.values", **again)
    status = ingest.statuses[f"{shop.prefix}.values"]
    assert (status.rows, status.rejects, status.error) == (1, 2, None)


# laws/test_keys_of_versions.py does it without Spark.
@pytest.mark.long
def test_keys_that_gain_a_field_find_the_rows_of_earlier_keys(shop: Shop) -> None:
    shop.create("keys", partitions=1)
    value = _register(shop, "keys-value", "int64 id = 1; int64 n = 2;")
    narrow = _register(shop, "keys-key", "int64 id = 1;")

    def send(*records: tuple[bytes, bytes | None]) -> None:
        shop.outside.produce(
            f"{shop.prefix}.keys", [shop.outside.Record(key=key, value=of, partition=0) for key, of in records]
        )

    def row(number: int, n: int) -> bytes:
        return _framed(value, _numbers(number, n))

    one, two, three = (_framed(narrow, _numbers(number)) for number in (1, 2, 3))
    asked = {"topics": rf"{shop.prefix}\.keys", "defaults": Table(topic=".*", mode="upsert")}
    send((one, row(1, 10)), (two, row(2, 20)), (three, row(3, 30)))
    shop.run(**asked)
    wide = _register(shop, "keys-key", "int64 id = 1; string region = 2;")
    of_region = _framed(wide, _numbers(3), length_delimited(2, b"eu"))
    without_region = _framed(wide, _numbers(4))
    send(
        (one, row(1, 11)),
        (of_region, row(3, 31)),
        (two, None),
        (without_region, row(4, 40)),
        (without_region, row(4, 41)),
    )
    ingest = shop.run(**asked)
    assert not ingest.statuses[f"{shop.prefix}.keys"].error
    assert shop.rows("keys", "id", "n", "_kafka_key.region") == [
        (1, 11, None),
        (3, 30, None),
        (3, 31, "eu"),
        (4, 41, ""),
    ]
    (proved,) = verify(shop.spark, ingest.settings, [f"{shop.prefix}.keys"])
    assert proved.is_right, str(proved)


def test_a_renamed_field_of_a_key_stops_its_table_until_key_schema_names_the_field(shop: Shop) -> None:
    """Else the table would not find its rows. An Avro schema says with an alias that a field is renamed."""
    for name in ("proto", "avro"):
        shop.create(name, partitions=1)

    def avro(field: dict[str, str | list[str]]) -> str:
        return json.dumps({"type": "record", "name": "K", "fields": [{"type": "long", **field}]})

    def register(number: int) -> dict[str, int]:
        fields: list[dict[str, str | list[str]]] = [{"name": "id"}, {"name": "ident", "aliases": ["id"]}]
        client = SchemaRegistryClient({"url": shop.registry})
        return {
            "proto": _register(shop, "proto-key", f"int64 {fields[number]['name']} = 1;"),
            "avro": client.register_schema(f"{shop.prefix}.avro-key", RegisteredSchema(avro(fields[number]), "AVRO")),
        }

    def send(ids: dict[str, int], *changes: tuple[int, int | None]) -> None:
        for name, schema_id in ids.items():
            records = []
            for key, n in changes:
                encoded = (
                    _framed(schema_id, _numbers(key)) if name == "proto" else encode_frame(schema_id, bytes([2 * key]))
                )
                value = None if n is None else b'{"id": %d, "n": %d}' % (key, n)
                records.append(shop.outside.Record(key=encoded, value=value, partition=0))
            shop.outside.produce(f"{shop.prefix}.{name}", records)

    def run(**key_schema: str) -> dict[str, str | None]:
        tables = [
            Table(
                topic=rf".*\.{name}",
                mode="upsert",
                format="json",
                schema="id INT, n INT",
                key_schema=key_schema.get(name),
            )
            for name in ("proto", "avro")
        ]
        ingest = shop.run(tables=tables)
        return {topic.rpartition(".")[2]: status.error for topic, status in ingest.statuses.items()}

    first = register(0)
    send(first, (1, 10), (2, 20))
    assert run() == {"proto": None, "avro": None}
    second = register(1)
    send(second, (1, 11))
    send(first, (2, None))
    for error in run().values():
        assert error is not None
        assert "names the field id ident, but the table finds its rows by id" in error
    former = {
        "proto": 'syntax = "proto3"; message M { int64 id = 1; }',
        "avro": avro({"name": "id", "aliases": ["ident"]}),
    }
    assert run(**former) == {"proto": None, "avro": None}
    for name in former:
        assert shop.rows(name, "id", "n") == [(1, 11)], name
