"""Options of typed columns: what ``key`` and ``value`` are decoded from, or encoded as, and by which schema.

Shared by the source and the sink. Owns the options' names and what they mean together. Opens nothing: schemas and the registry are
looked up by the source and the sink, through :mod:`pykafka_wire.values`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, cast

from pykafka_wire.columns.value_formats import FORMATS, NEED_SCHEMA, SCHEMA_KINDS, ValueFormat
from pykafka_wire.errors import OptionError
from pykafka_wire.options import option_table as options
from pykafka_wire.options.names import ALIASES
from pykafka_wire.options.option import FieldChoices, Option, either
from pykafka_wire.options.parsing import OptionValues
from pykafka_wire.registry_settings import REGISTRY_PREFIX, REGISTRY_SETTINGS

ColumnName = Literal["key", "value"]
OnError = Literal["fail", "null", "divert"]

_URL: Final = options.SCHEMA_REGISTRY_URL.name


class _ColumnOptions(NamedTuple):
    format: Option[ValueFormat]
    schema: Option[str | None]
    schema_id: Option[int | uuid.UUID | None]
    subject: Option[str | None]
    message: Option[str | None]
    subject_strategy: Option[str]
    on_error: Option[str]
    types: Option[tuple[str, ...]]
    on_other_type: Option[str]
    time_unit: Option[FieldChoices]
    decimal_format: Option[FieldChoices]
    envelope: Option[str]
    connect_schemas: Option[tuple[str | None, ...]]


_COLUMNS: Final[dict[ColumnName, _ColumnOptions]] = {
    "key": _ColumnOptions(
        options.KEY_FORMAT, options.KEY_SCHEMA, options.KEY_READER_SCHEMA_ID, options.KEY_SUBJECT, options.KEY_MESSAGE,
        options.KEY_SUBJECT_NAME_STRATEGY, options.ON_KEY_ERROR,
        options.KEY_TYPES, options.ON_OTHER_KEY_TYPE, options.KEY_TIME_UNIT, options.KEY_DECIMAL_FORMAT,
        options.KEY_CONNECT_ENVELOPE, options.KEY_CONNECT_SCHEMAS,
    ),
    "value": _ColumnOptions(
        options.VALUE_FORMAT, options.VALUE_SCHEMA, options.VALUE_READER_SCHEMA_ID, options.VALUE_SUBJECT, options.VALUE_MESSAGE,
        options.VALUE_SUBJECT_NAME_STRATEGY, options.ON_VALUE_ERROR,
        options.VALUE_TYPES, options.ON_OTHER_VALUE_TYPE, options.VALUE_TIME_UNIT, options.VALUE_DECIMAL_FORMAT,
        options.VALUE_CONNECT_ENVELOPE, options.VALUE_CONNECT_SCHEMAS,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """What the options say of ``key`` or ``value``.

    Attributes:
        schema: the schema's text; None: the registry's, for JSON the DataFrame's type.
        schema_id: the registry's id of the reader's schema; None: the newest one of the subject.
        subject: None: the subjects that ``subject_strategy`` names.
        subject_strategy: as the user gave it, a strategy's name or a Java class's.
        message: the name of a Protobuf message; None: the schema's first.
        types: the full names of several types, or ``*``; without any, all values are of one.
        on_other_type: what to do with values of types that are not named.
        has_schema_columns: whether two columns have the id and the name of each value's schema.
        time_units: of JSON's numbers under times, by the end of a field's path.
        decimal_formats: of JSON's texts under decimals, likewise.
        envelope: what to do with JSON in the envelope of Kafka Connect's converter.
        connect_schemas: the schemas of such envelopes whose payloads have fields of their own.
        variant_numbers: what numbers become that VARIANT's decimals cannot hold.
        connect_types: whether Kafka Connect's names of types count; with ``variant`` JSON in text is VARIANT, too.
        union_fields: what the fields for an Avro union's branches are named by.
        large_decimals: what decimals of more digits than Spark's become.
        times_as_numbers: whether times of day and durations are whole numbers.
    """

    name: ColumnName
    format: ValueFormat = "binary"
    schema: str | None = None
    schema_id: int | uuid.UUID | None = None
    subject: str | None = None
    subject_strategy: str = "TopicNameStrategy"
    message: str | None = None
    on_error: OnError = "fail"
    types: tuple[str, ...] = ()
    on_other_type: Literal["error", "null", "skip"] = "error"
    has_schema_columns: bool = False
    time_units: FieldChoices = ()
    decimal_formats: FieldChoices = ()
    envelope: Literal["keep", "unwrap"] = "keep"
    connect_schemas: tuple[str | None, ...] = ()
    variant_numbers: Literal["double", "binary"] = "double"
    connect_types: Literal["false", "true", "variant"] = "false"
    union_fields: Literal["type", "number"] = "type"
    large_decimals: Literal["decimal", "string"] = "decimal"
    times_as_numbers: bool = False

    @property
    def is_typed(self) -> bool:
        """Return whether the column is other than the record's bytes."""
        return self.format != "binary"

    @property
    def takes_type_of_registry(self) -> bool:
        """Return whether it is JSON whose type the options do not give: a registry may have its JSON Schema."""
        return self.format == "json" and self.schema is None

    @property
    def error_column(self) -> str | None:
        """Return the column with the reasons under ``divert``."""
        return f"{self.name}Error" if self.on_error == "divert" else None

    @property
    def schema_columns(self) -> tuple[str, ...]:
        """Return the columns with the id and the name of each value's schema."""
        return (f"{self.name}SchemaId", f"{self.name}SchemaName") if self.has_schema_columns else ()

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Return the columns beside it that it is decoded for, all of them text."""
        return (*((self.error_column,) if self.error_column is not None else ()), *self.schema_columns)

    def option(self, which: Literal["Format", "Schema", "ReaderSchemaId", "Subject", "Message"]) -> str:
        """Return the name of an option of this column, for errors: ``valueSchema``."""
        return f"{self.name}{which}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """What the options say of both columns.

    Attributes:
        registry_options: what describes the registry, by lower-case names: the registry's own options, and ``kafka.sasl.*``, which
            credentials may be taken from. Empty without ``schema.registry.url``.
        takes_latest_schema: read with the newest version after a restart, not with the checkpoint's.
        auto_register: register a schema that the subject does not have.
    """

    key: TypedColumn = TypedColumn(name="key")
    value: TypedColumn = TypedColumn(name="value")
    registry_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    takes_latest_schema: bool = False
    auto_register: bool = False

    @property
    def typed(self) -> tuple[TypedColumn, ...]:
        """Return the columns that are not left binary."""
        return tuple(column for column in (self.key, self.value) if column.is_typed)

    @property
    def encoded(self) -> frozenset[str]:
        """Return the names of the columns that a write encodes, whatever their type."""
        return frozenset(column.name for column in self.typed if column.format != "string")

    @property
    def names(self) -> tuple[ColumnName, ...]:
        """Return the names of the columns that are not left binary."""
        return tuple(column.name for column in self.typed)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Return the columns with the reasons, of those that divert, and with what each value's schema is."""
        return tuple(name for column in self.typed for name in column.added_columns)


def parse_typed_columns(values: OptionValues) -> TypedColumns:
    """Return what the options say of ``key`` and ``value``; adds to the warnings of ``values``.

    Raises:
        OptionError: an option is malformed, missing, or has no effect beside the others.
    """
    key, value = _column(values, "key"), _column(values, "value")
    registry = _registry_options(values)
    columns = TypedColumns(
        key=key,
        value=value,
        registry_options=registry,
        takes_latest_schema=values[options.READER_SCHEMA] == "latest",
        auto_register=_auto_register(values),
    )
    for column in columns.typed:
        _check_schema(column, values, has_registry=bool(registry))
    is_read = values.mode != "sink"
    formats = {column.format for column in columns.typed}
    if registry and not any(
        column.format in NEED_SCHEMA or (is_read and column.takes_type_of_registry) for column in columns.typed
    ):
        of_json = (
            "only shows which JSON values have a schema with rules"
            if is_read
            else "only refuses JSON for subjects with rules"
        )
        effect = of_json if "json" in formats else "has no effect"
        values.warnings.append(f"The option {_URL} {effect} without valueFormat or keyFormat avro or protobuf")
    return columns


def _column(values: OptionValues, name: ColumnName) -> TypedColumn:
    column = _COLUMNS[name]
    format_ = values[column.format]
    with_schema, need_schema = tuple(SCHEMA_KINDS), tuple(name for name in FORMATS if name in NEED_SCHEMA)
    needs: dict[Option[Any], tuple[str, ...]] = {
        column.schema: with_schema,
        column.subject: need_schema if values.mode == "sink" else with_schema,
        column.message: ("protobuf",),
    }
    if values.mode != "sink":
        needs |= {column.on_error: FORMATS[1:], column.types: need_schema, column.schema_id: need_schema}
        of_json = (column.time_unit, column.decimal_format, column.envelope, column.connect_schemas)
        needs |= dict.fromkeys(of_json, ("json",))
        if name == "value":
            needs[options.INCLUDE_VALUE_SCHEMA] = need_schema
    if values.mode != "sink" and values.has(column.types) and values.has(column.message):
        raise OptionError(
            f"{column.types.name} and {column.message.name} both name what is read: remove {column.message.name}."
        )
    if values.mode != "sink" and values.has(column.on_other_type) and not values.has(column.types):
        raise OptionError(
            f"{column.on_other_type.name} has no effect without {column.types.name}: set that, or remove "
            f"{column.on_other_type.name}."
        )
    for option, formats in needs.items():
        if values.has(option) and format_ not in formats:
            raise OptionError(
                f"{option.name} has no effect with {column.format.name}={format_}: set {column.format.name} to {either(formats)}, "
                f"or remove {option.name}."
            )
    return TypedColumn(
        name=name,
        format=format_,
        schema=values[column.schema],
        schema_id=None if values.mode == "sink" else values[column.schema_id],
        subject=values[column.subject],
        subject_strategy=values[column.subject_strategy],
        message=values[column.message],
        on_error=cast(OnError, values[column.on_error]),
        types=values[column.types],
        on_other_type=cast(Any, values[column.on_other_type]),
        has_schema_columns=name == "value" and values[options.INCLUDE_VALUE_SCHEMA],
        time_units=values[column.time_unit],
        decimal_formats=values[column.decimal_format],
        envelope=cast(Any, values[column.envelope]),
        connect_schemas=values[column.connect_schemas],
        variant_numbers=cast(Any, values[options.VARIANT_NUMBERS]),
        connect_types=cast(Any, values[options.CONNECT_TYPES]),
        union_fields=cast(Any, values[options.AVRO_UNION_FIELDS]),
        large_decimals=cast(Any, values[options.LARGE_DECIMALS]),
        times_as_numbers=values[options.TIMES_AS_NUMBERS],
    )


def _check_schema(column: TypedColumn, values: OptionValues, *, has_registry: bool) -> None:
    """Raise OptionError where the column's schema is not named, or is named without effect."""
    option, given = column.option("Schema"), f"{column.option('Format')}={column.format}"
    if column.format not in SCHEMA_KINDS:
        return
    if not has_registry and column.has_schema_columns:
        raise OptionError(f"{options.INCLUDE_VALUE_SCHEMA.name} is about values of a schema registry: set {_URL}, too.")
    if not has_registry and column.types and column.format == "protobuf":
        raise OptionError(
            f"{column.name}Types needs {_URL}: without a registry's frame a message does not name its type."
        )
    if column.schema_id is not None and (not has_registry or column.schema is not None):
        reason = f"set {_URL}, too" if not has_registry else f"remove it, or {option}"
        raise OptionError(f"{column.option('ReaderSchemaId')} names a schema of a schema registry: {reason}.")
    if not has_registry and column.subject is not None:
        raise OptionError(f"{column.option('Subject')} names a subject of a schema registry: set {_URL}, too.")
    if not has_registry and column.schema is None and column.format in NEED_SCHEMA:
        raise OptionError(
            f"{given} needs a schema: set {_URL} for values of a schema registry, or {option} for values without a registry."
        )
    # A subject of a context also says where ids are looked up.
    is_useless = column.schema is not None and not (column.subject or ":.").startswith(":.")
    if is_useless and values.mode != "sink":
        values.warnings.append(f"The option {column.option('Subject')} has no effect: values are read with {option}")


def _auto_register(values: OptionValues) -> bool:
    name = options.SCHEMA_REGISTRY_AUTO_REGISTER
    ((alias, _),) = ALIASES.items()
    other = replace(name, name=alias)
    if not values.has(other):
        return values[name]
    if values.has(name) and values[name] != values[other]:
        raise OptionError(f"{name.name} and {alias} have different values, and mean the same: remove one of them.")
    return values[other]


def _registry_options(values: OptionValues) -> dict[str, str]:
    registry_options = {
        name: value
        for name, value in values.given.items()
        if name.startswith(REGISTRY_PREFIX) or name in REGISTRY_SETTINGS
    }
    if values[options.SCHEMA_REGISTRY_URL] is None:
        useless = sorted(name for name in registry_options if name not in (_URL, *ALIASES.values()))
        if useless:
            raise OptionError(f"{useless[0]} is set and {_URL} is not: set it, or remove {useless[0]}.")
        return {}
    return registry_options | {name: value for name, value in values.given.items() if name.startswith("kafka.sasl.")}
