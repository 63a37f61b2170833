"""Debezium's topics that belong to no table: schema changes, schema history, heartbeats and transactions.

Recognises these topics: by their names, unless a record contradicts the name, or by a record. The MySQL and MariaDB connectors
write schema changes to a topic whose name is the ``topic.prefix``, and the schema history to a topic of any name.
https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-schema-change-topic
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.arrow_reader import read_topic
from pykafka_wire.errors import ConnectorError, DecodeError
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import split_frames
from pykafka_wire.values.registry.settings import registry_of
from pykafka_wire.wire.errors import WireError

CHANGES_OF_SCHEMAS: Final = "changes of schemas"
HISTORY: Final = "history of schemas"
HEARTBEATS: Final = "heartbeats"
TRANSACTIONS: Final = "transactions' beginnings and ends"
#: The contents of a Debezium topic, by the last part of its records' schema name, in Avro and in Connect's JSON.
_BY_SCHEMA: Final = {
    "SchemaChangeValue": CHANGES_OF_SCHEMAS,
    "Heartbeat": HEARTBEATS,
    "TransactionMetadataValue": TRANSACTIONS,
}
_NAMESPACE: Final = "io.debezium.connector."
#: The fields of a schema change, and the additional field of a history document.
_CHANGE: Final = frozenset({"source", "databaseName", "ddl", "tableChanges"})
_POSITION: Final = "position"
_TRANSACTION: Final = frozenset({"status", "id", "event_count", "data_collections"})
#: The fields of a row change, and the last part of its schema name.
_ROW_CHANGE: Final = frozenset({"op", "before", "after"})
_ENVELOPE: Final = "Envelope"
#: Names that may belong to such topics; a record decides.
_SUSPICIOUS: Final = re.compile(r".*(schema|history|debezium|\.transaction).*", re.IGNORECASE)
#: The name of a table's topic has at least a prefix, a database or schema, and a table.
_MIN_DOTS: Final = 2


def contents_of(value: bytes | None, registry: Registry | None = None) -> str | None:
    """Return the contents of a Debezium topic that belongs to no table, by one of its values; None for any other topic."""
    if value is None:
        return None
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return _of_schema(_registered_name(value, registry))
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, dict) and (what := _of_schema(schema.get("name"))) is not None:
        return what
    payload = document.get("payload", document) if isinstance(document, dict) else None
    names = payload.keys() if isinstance(payload, dict) else frozenset()
    if names >= _CHANGE - {"tableChanges"} and names & {"tableChanges", _POSITION}:
        return HISTORY if _POSITION in names else CHANGES_OF_SCHEMAS
    return TRANSACTIONS if names >= _TRANSACTION else None


def is_change_of_row(value: bytes | None, registry: Registry | None = None) -> bool:
    """Return whether a value is a change of a row, which occurs only in a table's topic."""
    if value is None:
        return False
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return (_registered_name(value, registry) or "").rpartition(".")[2] == _ENVELOPE
    payload = document.get("payload", document) if isinstance(document, dict) else None
    return isinstance(payload, dict) and payload.keys() >= _ROW_CHANGE


class DebeziumTopics:
    """Finds Debezium's own topics in an ingest. Each topic is read once, as soon as it has a record."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry = registry_of(settings.source_registry_options | settings.kafka_options)
        self._seen: dict[str, str | None] = {}
        #: Topics that have the name of a Debezium topic, with whether they nevertheless hold changes of rows.
        self._of_tables: dict[str, bool] = {}

    def among(self, topics: Iterable[str], with_records: Container[str] | None = None) -> dict[str, str]:
        """Return Debezium's own topics among those of an ingest, with their contents; without topics that a [[table]] names.

        Args:
            with_records: the topics that have new records, or None if that is unknown. Other topics are not read.
        """
        every = list(topics)
        own = {
            topic: what
            for topic, what in self._settings.helpers(every).items()
            if not self._is_of_a_table(topic, with_records)
        }
        for topic in self._candidates(every):
            if topic in own or not (topic in self._seen or with_records is None or topic in with_records):
                continue
            if (what := self._look_into(topic)) is not None:
                own[topic] = what
        return own

    def _is_of_a_table(self, topic: str, with_records: Container[str] | None) -> bool:
        """Return whether a topic holds changes of rows, although its name looks like a Debezium topic."""
        if topic not in self._of_tables and (with_records is None or topic in with_records):
            value = _first_value(self._settings.kafka_options, topic)
            if value is None:
                return False
            self._of_tables[topic] = is_change_of_row(value, self._registry)
        return self._of_tables.get(topic, False)

    def _candidates(self, topics: list[str]) -> list[str]:
        named = {table.topic for table in self._settings.tables}
        split = [topic.split(".") for topic in topics]
        prefixes = {".".join(names[:n]) for names in split for n in range(1, len(names) - 1)}
        return [
            topic
            for topic in topics
            if not {topic, re.escape(topic)} & named
            and (
                topic in prefixes
                or _SUSPICIOUS.fullmatch(topic)
                or (topic.count(".") < _MIN_DOTS and mode_of(self._settings.table_for(topic).mode).has_envelopes)
            )
        ]

    def _look_into(self, topic: str) -> str | None:
        if topic not in self._seen:
            value = _first_value(self._settings.kafka_options, topic)
            if value is None:
                return None
            self._seen[topic] = contents_of(value, self._registry)
        return self._seen[topic]


def _first_value(kafka_options: Mapping[str, str], topic: str) -> bytes | None:
    """Return the first value of a topic; None if the topic has none, or if it cannot be read now."""
    options = {**kafka_options, "subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    try:
        with read_topic(options, columns=["value"]) as batches:
            for batch in batches:
                for value in batch.column(0).drop_null():
                    return bytes(value.as_py())
    except (ConnectorError, WireError, OSError, ValueError):  # landing the topic's table reports the error
        return None
    return None


def _registered_name(value: bytes, registry: Registry | None) -> str | None:
    """Return the full name of the Avro record type of a value."""
    if registry is None:
        return None
    for schema_id, _ in split_frames(pa.array([value], pa.binary()), "required").groups:
        if schema_id is None:
            continue
        try:
            document: Any = json.loads(RegistryClient(registry).by_id(schema_id.id).text)
        except (DecodeError, ValueError):
            return None
        if isinstance(document, dict) and isinstance(document.get("name"), str):
            return ".".join(filter(None, (document.get("namespace"), document["name"])))
    return None


def _of_schema(name: object) -> str | None:
    if not isinstance(name, str) or not name.startswith(_NAMESPACE):
        return None
    return _BY_SCHEMA.get(name.rpartition(".")[2])
