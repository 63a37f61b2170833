"""Change events as Debezium's PostgreSQL connector writes them, in JSON and Avro, of one table; and what the table then holds.

Envelopes and schemas as its documentation shows them:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TABLE = "shop.public.customers"
Row = dict[str, Any]


def _source(lsn: int, snapshot: str) -> Row:
    return {
        "version": "3.0.5.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_714_000_000_000 + lsn,
        "snapshot": snapshot,
        "db": "inventory",
        "sequence": f'[null,"{lsn}"]',
        "ts_us": (1_714_000_000_000 + lsn) * 1_000,
        "ts_ns": (1_714_000_000_000 + lsn) * 1_000_000,
        "schema": "public",
        "table": "customers",
        "txId": 555 + lsn,
        "lsn": 24_023_128 + lsn,
        "xmin": None,
    }


@dataclass(frozen=True, kw_only=True)
class Event:
    """A record: ``value`` None for a tombstone."""

    key: Row
    value: Row | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Database:
    """A table whose changes become events, and the rows it has after them.

    Deletes come with a tombstone behind them; a changed primary key is a delete of the old one and a create of the new one.
    """

    events: list[Event] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)

    def snapshot(self, row: Row) -> None:
        self._event("r", None, row, snapshot="true")

    def create(self, row: Row) -> None:
        self._event("c", None, row)

    def update(self, row: Row) -> None:
        self._event("u", None, row)  # without REPLICA IDENTITY FULL there is no row before it

    def delete(self, number: int) -> None:
        before = {name: value if name == "id" else _unknown(value) for name, value in self.rows[number].items()}
        self._event("d", before, None)
        self.events.append(Event(key={"id": number}, value=None))

    def change_key(self, old: int, new: int) -> None:
        row = self.rows[old] | {"id": new}
        self._event("d", {"id": old, **{k: _unknown(v) for k, v in row.items() if k != "id"}}, None, newkey=new)
        self.events.append(Event(key={"id": old}, value=None))
        self._event("c", None, row, oldkey=old)

    def taken(self) -> list[Event]:
        taken, self.events = self.events, []
        return taken

    def _event(self, op: str, before: Row | None, after: Row | None, *, snapshot: str = "false", **keys: int) -> None:
        number = (after or before or {})["id"]
        lsn = len(self.events) + 1
        value: Row = {"before": before, "after": after, "source": _source(lsn, snapshot), "transaction": None, "op": op}
        headers = tuple((f"__debezium.{name}", json.dumps({"id": key}).encode()) for name, key in keys.items())
        value |= {"ts_ms": 1_714_000_000_142 + lsn, "ts_us": (1_714_000_000_142 + lsn) * 1000, "ts_ns": None}
        self.events.append(Event(key={"id": number}, value=value, headers=headers))
        if after is None:
            del self.rows[number]
        else:
            self.rows[number] = after


def row(number: int, name: str, *, email: str | None = None, **more: Any) -> Row:
    return {"id": number, "name": name, "email": email, "updated_at": 1_714_000_000_000_000 + number, **more}


def first_changes(database: Database) -> None:
    for number in range(1, 9):
        database.snapshot(row(number, f"snapshot {number}"))
    database.create(row(10, "created", email="c@example.com"))
    database.update(row(1, "updated", email="u@example.com"))
    database.update(row(1, "updated twice"))
    database.delete(2)
    database.change_key(3, 30)


def more_changes(database: Database) -> None:
    database.update(row(4, "updated later"))
    database.delete(5)
    database.create(row(5, "created again"))
    database.delete(10)
    database.create(row(11, "short-lived"))
    database.delete(11)
    database.create(row(12, 'it\'s "quoted", ünï', email=""))
    database.change_key(30, 3)
    database.update(row(3, "back under the old key"))


def _unknown(value: Any) -> Any:
    return {str: "", int: 0, float: 0.0}.get(type(value))


def json_bytes(document: Row | None, *, schemas: bool = False) -> bytes | None:
    """As Kafka Connect's JsonConverter writes it, with ``schemas.enable`` or without."""
    if document is None:
        return None
    schema = {"type": "struct", "fields": [], "optional": False, "name": f"{TABLE}.Envelope", "version": 1}
    return json.dumps({"schema": schema, "payload": document} if schemas else document).encode()


KEY_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "namespace": TABLE,
        "fields": [{"name": "id", "type": {"type": "long", "connect.default": 0}, "default": 0}],
        "connect.name": f"{TABLE}.Key",
    }
)

_ENUM = {
    "type": "string",
    "connect.version": 1,
    "connect.parameters": {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    },
    "connect.default": "false",
    "connect.name": "io.debezium.data.Enum",
}


def value_schema(*more: Row) -> str:
    """The envelope's schema as Confluent's AvroConverter registers it, with further columns of the table."""
    columns = [
        {"name": "id", "type": {"type": "long", "connect.default": 0}, "default": 0},
        {"name": "name", "type": "string"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {
            "name": "updated_at",
            "type": ["null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}],
            "default": None,
        },
        *more,
    ]
    optional_long: Callable[[str], Row] = lambda name: {"name": name, "type": ["null", "long"], "default": None}  # noqa: E731
    source = [
        *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [_ENUM, "null"], "default": "false"},
        {"name": "db", "type": "string"},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        *map(optional_long, ("ts_us", "ts_ns")),
        *({"name": name, "type": "string"} for name in ("schema", "table")),
        *map(optional_long, ("txId", "lsn", "xmin")),
    ]
    block = [
        {"name": "id", "type": "string"},
        *({"name": name, "type": "long"} for name in ("total_order", "data_collection_order")),
    ]
    fields = [
        {
            "name": "before",
            "type": ["null", {"type": "record", "name": "Value", "fields": columns, "connect.name": f"{TABLE}.Value"}],
            "default": None,
        },
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": source,
                "connect.name": "io.debezium.connector.postgresql.Source",
            },
        },
        {
            "name": "transaction",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "block",
                    "namespace": "event",
                    "fields": block,
                    "connect.name": "event.block",
                },
            ],
            "default": None,
        },
        {"name": "op", "type": "string"},
        *map(optional_long, ("ts_ms", "ts_us", "ts_ns")),
    ]
    envelope = {"type": "record", "name": "Envelope", "namespace": TABLE, "fields": fields, "connect.version": 2}
    return json.dumps(envelope | {"connect.name": f"{TABLE}.Envelope"})
