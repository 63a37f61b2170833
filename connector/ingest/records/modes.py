"""The modes of a table, one object each: how its records are read, and what a record does to the table.

:func:`mode_of` returns the object for a setting ``mode``; no other code compares modes. Code in packages below ``records`` uses
:attr:`.settings.model.Table.merges` to distinguish appends from merges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes.newest import (
    changes_of_envelopes,
    changes_of_rows,
    counts,
    envelope_ddl,
    with_flattened,
    without_flattened,
)
from pykafka_wire.ingest.records.contracts import Contract
from pykafka_wire.ingest.records.json.survey import JsonSurvey
from pykafka_wire.ingest.settings.model import ModeName, ReadSettings
from pykafka_wire.ingest.tables.files_table import KnownTable
from pykafka_wire.values.avro.removed_fields import WantedFields

#: The fields of Debezium's envelope that hold a row.
_ROWS: Final = ("before", "after")


class Mode(Protocol):
    """The properties and decisions that differ between modes.

    Attributes:
        name: the value of the setting.
        merges: whether a record is a change, of which the newest of each key is merged. Otherwise each record is a row.
        has_envelopes: whether values are Debezium's envelopes. Then a topic's keys are one primary key, and a TRUNCATE deletes
            rows.
        records: the word for the topic's records on a screen.
        json_value: the kind of a JSON value whose types are inferred.
    """

    name: ClassVar[ModeName]
    merges: ClassVar[bool]
    has_envelopes: ClassVar[bool]
    records: ClassVar[str]
    json_value: ClassVar[Literal["row", "change"]]

    def row_type(self, value: DataType, topic: str) -> DataType:
        """Return the type of the row in a value. Raises IngestError if the value cannot have a row."""

    def wanted_fields(self, row: WantedFields) -> WantedFields:
        """Return the wanted fields of a value, if ``row`` are those of its row."""

    def declared_json(self, columns: str, column: str) -> str:
        """Return the type, as DDL, with which JSON of declared columns is read; ``column`` is ``value`` or ``key``."""

    def unregistered_key_format(self, value_format: str, held: DataType | None) -> str | None:
        """Return the format of keys that neither the settings nor the registry declare; None if the keys decide whether it is JSON.

        Args:
            held: the type of the table's keys, None if it has none.
        """

    def are_json_keys(self, surveyed: JsonSurvey) -> bool:
        """Return whether keys of an unknown format are JSON."""

    def is_surveyed_key(self, declared: Sequence[str]) -> bool:
        """Return whether only the documents can show which of a key's ``declared`` columns (in lower case) each key has."""

    def held_columns(self, table: KnownTable) -> Sequence[StructField]:
        """Return the columns of a table that come from the topic."""

    def rows(self, records: DataFrame, contract: Contract, reading: ReadSettings, *, is_json: bool) -> DataFrame:
        """Return the effect of records on the table: the rows that the table takes, or the changes of its rows."""

    def counts(self, rows: DataFrame) -> list[Column]:
        """Return the columns of :class:`~pykafka_wire.ingest.changes.newest.Counts`, for an observation of :meth:`rows`."""


class _Rows:
    """The common part of the modes whose values are rows without an envelope."""

    has_envelopes: ClassVar[bool] = False
    records: ClassVar[str] = "records"
    json_value: ClassVar[Literal["row", "change"]] = "row"

    def row_type(self, value: DataType, topic: str) -> DataType:
        return value

    def wanted_fields(self, row: WantedFields) -> WantedFields:
        return row

    def are_json_keys(self, surveyed: JsonSurvey) -> bool:
        """Return whether Kafka Connect has written the keys in its envelope."""
        return surveyed.n_enveloped > 0

    def counts(self, rows: DataFrame) -> list[Column]:
        return counts(rows, has_primary_keys=False)


class _Changes:
    """The common part of the modes whose records are changes of rows."""

    merges: ClassVar[bool] = True

    def unregistered_key_format(self, value_format: str, held: DataType | None) -> str | None:
        """Return binary, or JSON if the values are JSON; None for a new table, whose keys decide."""
        if value_format != "json" or isinstance(held, BinaryType):
            return "binary"
        return None if held is None else "json"

    def held_columns(self, table: KnownTable) -> Sequence[StructField]:
        return table.topic_columns()


class Append(_Rows):
    """Each record adds a row."""

    name: ClassVar[ModeName] = "append"
    merges: ClassVar[bool] = False

    def declared_json(self, columns: str, column: str) -> str:
        return columns

    def unregistered_key_format(self, value_format: str, held: DataType | None) -> str | None:
        return "binary"

    def is_surveyed_key(self, declared: Sequence[str]) -> bool:
        return False

    def held_columns(self, table: KnownTable) -> Sequence[StructField]:
        return table.schema.fields

    def rows(self, records: DataFrame, contract: Contract, reading: ReadSettings, *, is_json: bool) -> DataFrame:
        return contract.records(contract.unwrapped(records))


class Upsert(_Changes, _Rows):
    """A record replaces the row with its key; a record without a value deletes the row."""

    name: ClassVar[ModeName] = "upsert"

    def declared_json(self, columns: str, column: str) -> str:
        return with_flattened(columns) if column == "value" else columns

    def is_surveyed_key(self, declared: Sequence[str]) -> bool:
        """Return True for several columns. A single column is never missing from a key."""
        return len(declared) > 1

    def rows(self, records: DataFrame, contract: Contract, reading: ReadSettings, *, is_json: bool) -> DataFrame:
        changed = changes_of_rows(contract.unwrapped(records), reading.unavailable_value)
        if reading.schema is not None and is_json:
            changed = without_flattened(changed, reading.schema)
        return contract.changes(changed)


class Cdc(_Changes):
    """Debezium's envelopes: each holds an operation on a row of a database table."""

    name: ClassVar[ModeName] = "cdc"
    has_envelopes: ClassVar[bool] = True
    records: ClassVar[str] = "changes"
    json_value: ClassVar[Literal["row", "change"]] = "change"

    def row_type(self, value: DataType, topic: str) -> DataType:
        payload = value["payload"].dataType if isinstance(value, StructType) and "payload" in value.names else None
        for envelope in (payload, value):
            if isinstance(envelope, StructType) and {"op", "after"} <= set(envelope.names):
                return envelope["after"].dataType
        raise IngestError(
            f"mode cdc reads Debezium's envelopes, but the values of topic {topic} have no fields op and after: use mode upsert "
            "or append for this topic."
        )

    def wanted_fields(self, row: WantedFields) -> WantedFields:
        return WantedFields(dict.fromkeys(_ROWS, row))

    def declared_json(self, columns: str, column: str) -> str:
        return envelope_ddl(columns, column)

    def are_json_keys(self, surveyed: JsonSurvey) -> bool:
        """Return whether keys are objects, the columns of a primary key; also true if there are no keys."""
        return surveyed.n_objects > 0 or not (surveyed.n_plain or surveyed.n_others)

    def is_surveyed_key(self, declared: Sequence[str]) -> bool:
        """Return True for several columns, and for a column named as the envelope's field ``payload``."""
        return len(declared) > 1 or "payload" in declared

    def rows(self, records: DataFrame, contract: Contract, reading: ReadSettings, *, is_json: bool) -> DataFrame:
        return contract.changes(changes_of_envelopes(contract.unwrapped(records), reading.unavailable_value))

    def counts(self, rows: DataFrame) -> list[Column]:
        return counts(rows, has_primary_keys=True)


_MODES: Final[Mapping[ModeName, Mode]] = {mode.name: mode for mode in (Append(), Upsert(), Cdc())}


def mode_of(name: ModeName) -> Mode:
    """Return the mode object of a setting."""
    return _MODES[name]
