"""Topics whose values have schemas: orders as Avro, JSON or Protobuf, flat or nested.

Spark's own functions write Avro and JSON, google.protobuf writes Protobuf, so that what is read here was encoded by others.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import protobuf_orders
from datasets import write_records
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, concat, expr, lit

from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.registry.client import RegistryClient

if TYPE_CHECKING:
    from rig import Rig


class ValueFormat(Enum):
    """How values are written; the word that the option valueFormat takes."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A type of value, in the languages that describe it.

    Attributes:
        row: SQL expressions over ``id`` (a bigint) for the fields. Doubles are multiples of 1/4, whose sums are exact in any order.
        sums: SQL expressions over ``value`` that use every field.
    """

    name: str
    avro: str
    ddl: str
    row: tuple[str, ...]
    sums: tuple[str, ...]
    protobuf: str = ""


def _record(name: str, /, **fields: object) -> dict[str, object]:
    """An Avro record's schema; Spark's `to_avro` needs no namespace."""
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


#: Eight fields: some 40 bytes in Avro, 132 in JSON.
FLAT: Final = Order(
    name="flat",
    avro=json.dumps(
        _record(
            "Order",
            id="long",
            country="string",
            amount="double",
            quantity="int",
            note=["null", "string"],
            at={"type": "long", "logicalType": "timestamp-millis"},
            paid="boolean",
            sku="string",
        )
    ),
    ddl="id BIGINT, country STRING, amount DOUBLE, quantity INT, note STRING, at TIMESTAMP, paid BOOLEAN, sku STRING",
    row=(
        "id",
        "element_at(array('DE', 'FR', 'IT', 'PL', 'ES'), cast(id % 5 as int) + 1) AS country",
        "(hash(id) & 1048575) / 4.0D AS amount",
        "cast(id % 97 as int) AS quantity",
        "if(id % 2 = 0, substr(hex(hash(id, 1)), 9), null) AS note",
        "timestamp_millis(1700000000000 + id * 1009) AS at",
        "id % 3 = 0 AS paid",
        "concat('SKU-', lpad(cast(id % 100000 as string), 6, '0')) AS sku",
    ),
    sums=(
        "count(1)",
        "sum(value.id)",
        "sum(length(value.country))",
        "sum(value.amount)",
        "sum(value.quantity)",
        "sum(length(value.note))",
        "sum(unix_millis(value.at))",
        "sum(cast(value.paid AS int))",
        "sum(length(value.sku))",
    ),
    protobuf=protobuf_orders.SCHEMA,
)

#: Three levels of records, two arrays of records, a map.
NESTED: Final = Order(
    name="nested",
    avro=json.dumps(
        _record(
            "Order",
            id="long",
            customer=_record(
                "Customer",
                name="string",
                since={"type": "int", "logicalType": "date"},
                address=_record("Address", street="string", city="string", zip=["null", "string"]),
            ),
            lines={"type": "array", "items": _record("Line", sku="string", quantity="int", price="double")},
            payments={"type": "array", "items": _record("Payment", method="string", amount="double")},
            attributes={"type": "map", "values": "string"},
        )
    ),
    ddl="id BIGINT, customer STRUCT<name: STRING, since: DATE, address: STRUCT<street: STRING, city: STRING, zip: STRING>>, "
    "lines ARRAY<STRUCT<sku: STRING, quantity: INT, price: DOUBLE>>, "
    "payments ARRAY<STRUCT<method: STRING, amount: DOUBLE>>, attributes MAP<STRING, STRING>",
    row=(
        "id",
        "named_struct('name', concat('customer ', id % 5000), 'since', date_add(date'2020-01-01', cast(id % 2000 as int)), "
        "'address', named_struct('street', concat(id % 300, ' High Street'), 'city', concat('city ', id % 40), "
        "'zip', if(id % 3 = 0, null, lpad(cast(id % 99999 as string), 5, '0')))) AS customer",
        "transform(slice(array(0, 1, 2), 1, cast(id % 4 as int)), i -> named_struct('sku', concat('SKU-', id % 1000 + i), "
        "'quantity', cast(id % 7 as int) + i, 'price', (id % 4000 + i) / 4.0D)) AS lines",
        "transform(slice(array(0, 1), 1, cast(id % 3 as int)), i -> named_struct('method', if(i = 0, 'card', 'voucher'), "
        "'amount', (id % 9000 + i) / 4.0D)) AS payments",
        "if(id % 5 = 0, map(), map('channel', if(id % 2 = 0, 'web', 'shop'), 'lang', 'en')) AS attributes",
    ),
    sums=(
        "count(1)",
        "sum(value.id)",
        "sum(length(value.customer.name))",
        "sum(unix_date(value.customer.since))",
        "sum(length(value.customer.address.street))",
        "sum(length(value.customer.address.city))",
        "sum(length(value.customer.address.zip))",
        "sum(size(value.lines))",
        "sum(length(get(value.lines, 0).sku))",
        "sum(get(value.lines, 1).quantity)",
        "sum(get(value.lines, 2).price)",
        "sum(length(get(value.payments, 0).method))",
        "sum(get(value.payments, 1).amount)",
        "sum(length(value.attributes['channel']))",
        "sum(size(value.attributes))",
    ),
)

#: Equal for all who have read the same values beside the same offsets, and given them the same type.
CHECK: Final = ("count(1)", "sum(offset)", "sum(cast(xxhash64(to_json(value), partition, offset) AS decimal(38, 0)))")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedDataset:
    """What a topic holds: `n_records` orders without keys, spread evenly, in lz4 and full batches of 16 KiB."""

    n_records: int
    order: Order = FLAT
    value_format: ValueFormat = ValueFormat.AVRO
    partitions: int = 4

    @property
    def topic(self) -> str:
        return f"bench-typed-{self.n_records}-{self.order.name}-{self.value_format.value}-{self.partitions}p"

    @property
    def topic_config(self) -> dict[str, str]:
        return {}

    @property
    def subject(self) -> str:
        return f"{self.topic}-value"

    def read_options(self, rig: Rig) -> dict[str, str]:
        """The options of a typed read, beside the topic's and the brokers' names."""
        if self.value_format is ValueFormat.JSON:
            return {"valueFormat": "json", "valueSchema": self.order.ddl}
        return {"valueFormat": self.value_format.value, "schema.registry.url": rig.registry_url}

    def fill(self, rig: Rig) -> int:
        """The number of records, once they are in the topic, and their schema in the registry."""
        encoded = encoder(self, rig)(orders(rig, self.order, self.n_records))
        frame = encoded.withColumn("partition", expr(f"cast(id % {self.partitions} as int)")).drop("id")
        options = {"topic": self.topic, "kafka.compression.type": "lz4"}
        write_records(frame, rig.bootstrap_servers, options)
        return rig.count(self.topic)


def orders(rig: Rig, order: Order, n_records: int) -> DataFrame:
    """Columns ``id`` and ``value``, a struct of ``order``'s type."""
    rows = rig.spark.range(n_records, numPartitions=2).selectExpr("id", f"struct({', '.join(order.row)}) AS value")
    return rows.select("id", col("value").cast(f"struct<{struct_fields(order)}>").alias("value"))


def struct_fields(order: Order) -> str:
    """The fields of ``order.ddl`` as they stand within STRUCT<…>."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(order.ddl).simpleString().removeprefix("struct<").removesuffix(">")


def encoder(dataset: TypedDataset, rig: Rig) -> Callable[[DataFrame], DataFrame]:
    """Makes the column ``value``, a struct, binary."""
    if dataset.value_format is ValueFormat.JSON:
        return lambda frame: frame.withColumn("value", expr("cast(to_json(value) AS binary)"))
    registry = Registry(rig.registry_url)
    if dataset.value_format is ValueFormat.AVRO:
        schema_id = RegistryClient(registry).register(dataset.subject, Schema(kind="AVRO", text=dataset.order.avro))
        return lambda frame: frame.withColumn("value", framed_avro(schema_id, dataset.order.avro))
    schema_id = RegistryClient(registry).register(dataset.subject, Schema(kind="PROTOBUF", text=dataset.order.protobuf))
    return functools.partial(protobuf_orders.encoded, prefix=prefix(schema_id) + b"\0")


def prefix(schema_id: int) -> bytes:
    """Confluent's frame: a zero and the schema's id."""
    return b"\0" + schema_id.to_bytes(4, "big")


def framed_avro(schema_id: int, schema: str) -> Column:
    """The column ``value`` by Spark's to_avro, behind Confluent's frame."""
    from pyspark.sql.avro.functions import to_avro

    return concat(lit(bytearray(prefix(schema_id))), to_avro("value", schema))
