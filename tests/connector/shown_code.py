"""The code that a document shows, run as it stands there; only addresses and folders are put in their place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

ROOT = Path(__file__).resolve().parents[2]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}
COUNTRIES = ("DE", "FR")


def code(document: str) -> list[str]:
    """The blocks of Python and SQL of a document, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^ *```(?:python|sql)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


@dataclass
class Shown:
    """Runs what a document shows. Blocks of Python share their names."""

    spark: Any
    kafka: Any
    registry_url: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def placed(self, block: str) -> str:
        block = block.replace("broker:9092", self.kafka.bootstrap_servers)
        return block.replace("https://registry:8081", self.registry_url).replace("/lake", str(self.folder))

    def python(self, block: str) -> dict[str, Any]:
        self.names.setdefault("spark", self.spark)
        exec(self.placed(block), self.names)
        return self.names

    def sql(self, block: str) -> Any:
        """The rows of the last statement."""
        *statements, last = (each for each in self.placed(block).split(";") if each.strip())
        for statement in statements:
            self.spark.sql(statement)
        return self.spark.sql(last).collect()


def send_orders(outside: Any, registry_url: str, name: str, n_orders: int) -> None:
    """Orders as Confluent's serializer writes them, half of them from each of COUNTRIES, each of an amount of 1.5."""
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry_url}), json.dumps(ORDER))
    context = SerializationContext(name, MessageField.VALUE)
    orders = ({"id": i, "country": COUNTRIES[i % 2], "amount": 1.5} for i in range(n_orders))
    outside.produce(name, [outside.Record(value=serializer(order, context)) for order in orders])
