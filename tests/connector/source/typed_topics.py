"""Topics of Avro values under a real registry: schemas that evolve, and records that Confluent's serializer writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

ID = {"name": "id", "type": "long"}
COUNTRY = {"name": "country", "type": "string", "default": "?"}
PARTS = {
    "name": "parts",
    "type": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Part",
            "fields": [{"name": "number", "type": "int"}, {"name": "name", "type": "string"}],
        },
    },
    "default": [],
}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    """An Avro schema."""
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


class TypedTopic:
    """A topic, the subjects of its keys and values, and writers of both."""

    def __init__(self, registry_url: str, topic: str, outside: Any) -> None:
        self.name = topic
        self._outside = outside
        self._registry = SchemaRegistryClient({"url": registry_url})

    def register(self, schema: str, kind: str = "AVRO", *, subject: str | None = None) -> int:
        """The id of a subject's new version."""
        return self._registry.register_schema(subject or f"{self.name}-value", Schema(schema, kind))

    def encoded(self, schema: str, row: Any, field: Any = MessageField.VALUE) -> bytes:
        """A value as Confluent's serializer writes it."""
        serializer = AvroSerializer(self._registry, schema, conf={"auto.register.schemas": True})
        return bytes(serializer(row, SerializationContext(self.name, field)))

    def write(self, values: Sequence[bytes | None], **more: Any) -> None:
        """Records with these values, in partition 0."""
        self._outside.produce(self.name, [self._outside.Record(value=value, **more) for value in values])
