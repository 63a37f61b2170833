"""The Arrow type of an Avro schema, and the Avro schema of an Arrow type, as Spark has them.

Reading, the type is chosen so that its Spark type is the one that Spark's ``from_avro`` gives (``SchemaConverters.toSqlType``); the
differences and their reasons are in docs/avro-types.md. Owns, too, which unions are one column, and which a
struct of their branches.

Writing, a subject that has no schema, or not all fields, gets one made of the column's type (``SchemaConverters.toAvroType``). One
thing differs: a nullable field is ``["null", …]`` with the default null, where Spark has ``[…, "null"]`` without a default. A
registry that checks compatibility refuses a new field without a default, so that no column could ever be added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import SchemaError
from pykafka_wire.field_selection import WHOLE, Selection
from pykafka_wire.values.avro.connect_names import connect_type_of
from pykafka_wire.values.avro.schema import (
    ParsedSchema,
    Schema,
    kind_of,
    logical_of,
    max_digits,
    short_name,
    written_names,
)
from pykafka_wire.values.bulk.writing import sql_name
from pykafka_wire.values.single_json.variant_type import VARIANT

#: Of Spark's decimals and of Arrow's with 128 bits.
_MAX_DECIMAL_DIGITS: Final = 38
#: Each use of a type in a schema becomes a part of the Arrow type. Larger than this is an attack, not a topic's schema.
_MAX_PARTS: Final = 10_000

#: The column of a union's branch (:func:`member_name`, :func:`member_names`).
MEMBER: Final = re.compile("member([0-9]+|_.*)", re.DOTALL)
_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-micros": pa.time64("ns"),  # the only unit that Spark has for TIME
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRules:
    """What is chosen of the types of a schema's values.

    Attributes:
        names_by_type: whether the fields for a union's branches have names by their types (``member_string``), which stay when a
            branch is added, or by their places (``member0``), as ``from_avro`` has them by default.
        connect: whether types are those that Kafka Connect's names say (:mod:`~pykafka_wire.values.avro.connect_names`).
        json_is_variant: whether Debezium's JSON is VARIANT then, and not a string.
        large_decimals_are_text: whether decimals of more than 38 digits are strings, and not DECIMAL(38, scale).
        times_are_numbers: whether times of day are BIGINT, the microseconds since midnight: Delta has no column of type TIME.
    """

    names_by_type: bool = False
    connect: bool = False
    json_is_variant: bool = False
    large_decimals_are_text: bool = False
    times_are_numbers: bool = False


FROM_AVRO: Final = TypeRules()


def arrow_type(schema: ParsedSchema, selection: Selection = WHOLE, rules: TypeRules = FROM_AVRO) -> pa.DataType:
    """Return the Arrow type that values of a schema are read as; every field, item and value in it may be null.

    Args:
        selection: other fields get the type null in place of their own, so that a part of a record that holds itself has a type.

    Raises:
        SchemaError: no type holds the values: a record that holds itself.
    """
    return _AvroTypes(schema, rules).of(schema.root, (), "the schema", selection)


def column_branches(branches: Sequence[Schema]) -> list[Schema]:
    """Return the branches of a union that need a column: all but null."""
    return [branch for branch in branches if kind_of(branch) != "null"]


def widest(branches: Sequence[Schema]) -> Schema | None:
    """Return the schema of the one column that holds all branches, which are not null; None where it takes a struct of them."""
    if len(branches) == 1:
        return branches[0]
    kinds = {kind_of(branch) for branch in branches}
    if len(branches) == 2 and kinds == {"int", "long"}:
        return "long"
    if len(branches) == 2 and kinds == {"float", "double"}:
        return "double"
    return None


def member_name(place: int) -> str:
    """Return the field for a branch in the struct of a union by its place: branches are counted from 0, without null."""
    return f"member{place}"


def member_names(branches: Sequence[Schema]) -> list[str]:
    """Return the fields for a union's branches, which are not null, by their types: the last part of a full name, or all of it
    where two branches have the same last part.
    """
    names = [
        written_names(branch)[0] if isinstance(branch, dict) and "name" in branch else kind_of(branch)
        for branch in branches
    ]
    short = [short_name(name) for name in names]
    lower = [name.lower() for name in short]
    return [
        f"member_{last if lower.count(last.lower()) == 1 else name.replace('.', '_')}"
        for name, last in zip(names, short, strict=True)
    ]


def is_member_struct(wanted: pa.DataType) -> bool:
    """Return whether a type is the struct of some of a union's branches (:func:`member_name`)."""
    return (
        pa.types.is_struct(wanted)
        and wanted.num_fields > 0
        and all(MEMBER.fullmatch(field.name) is not None for field in wanted)
    )


class _AvroTypes:
    def __init__(self, parsed: ParsedSchema, rules: TypeRules) -> None:
        self._parsed = parsed
        self._rules = rules
        self._n_parts = 0

    def of(self, schema: Schema, inside: tuple[str, ...], path: str, selection: Selection = WHOLE) -> pa.DataType:
        """Return the type of a schema: ``inside`` has the names of the records around, ``path`` says where it stands."""
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise SchemaError(f"{path}: the schema has more than {_MAX_PARTS} fields: name a smaller reader's schema.")
        definition = self._parsed.definition(schema)
        kind = kind_of(definition)
        if kind == "union":
            return self._union(definition, inside, path, selection)
        connect = connect_type_of(definition)
        if connect is not None:
            if connect.kind == "time" and self._rules.times_are_numbers:
                return pa.int64()
            return VARIANT if connect.kind == "json" and self._rules.json_is_variant else connect.type
        if kind == "record":
            return self._record(definition, inside, path, selection)
        if kind == "array":
            return pa.list_(pa.field("element", self.of(definition["items"], inside, f"{path}[]", selection)))
        if kind == "map":
            return pa.map_(pa.string(), pa.field("value", self.of(definition["values"], inside, f"{path}[]")))
        logical = logical_of(definition)
        if logical == "decimal":
            precision, scale = definition["precision"], definition.get("scale", 0)
            is_text = self._rules.large_decimals_are_text or (self._rules.connect and _has_precision(definition))
            if scale > _MAX_DECIMAL_DIGITS or (precision > _MAX_DECIMAL_DIGITS and is_text):
                return pa.string()
            # Connect's have no precision, for which its converter writes 64: most numbers fit.
            return pa.decimal128(min(precision, _MAX_DECIMAL_DIGITS), scale)
        if logical == "time-micros" and self._rules.times_are_numbers:
            return pa.int64()
        return _LOGICAL.get(logical) or _PRIMITIVES[kind]

    def _record(self, definition: Schema, inside: tuple[str, ...], path: str, selection: Selection) -> pa.DataType:
        name = definition["name"]
        if name in inside and not selection:
            raise SchemaError(
                f"{path} is the record {written_names(definition)[0]} again, inside of itself, and no Spark type holds a "
                "recursive schema: give a reader's schema without this field, or name the wanted fields in the option columns "
                "or in .schema(…)."
            )
        inside = (*inside, name)
        return self._struct([(field["name"], field["type"]) for field in definition["fields"]], inside, path, selection)

    def _struct(
        self, fields: Sequence[tuple[str, Schema]], inside: tuple[str, ...], path: str, selection: Selection
    ) -> pa.DataType:
        return pa.struct(
            [
                (
                    name,
                    self.of(schema, inside, f"{path}.{name}", selection.get(name, WHOLE))
                    if not selection or name in selection
                    else pa.null(),
                )
                for name, schema in fields
            ]
        )

    def _union(self, union: Sequence[Schema], inside: tuple[str, ...], path: str, selection: Selection) -> pa.DataType:
        branches = column_branches([self._parsed.definition(branch) for branch in union])
        one = widest(branches)
        if one is not None:
            return self.of(one, inside, path, selection)
        by_place = [member_name(place) for place in range(len(branches))]
        names = member_names(branches) if self._rules.names_by_type else by_place
        return self._struct(list(zip(names, branches, strict=True)), inside, path, selection)


def _has_precision(decimal: Schema) -> bool:
    """Return whether the database has named the precision that Kafka Connect's converter writes; else that is 64."""
    parameters = decimal.get("connect.parameters")
    return isinstance(parameters, dict) and "connect.decimal.precision" in parameters


#: Spark's name for the outermost record.
RECORD_NAME: Final = "topLevelRecord"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: Final[dict[str, Any]] = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "bytes",
    "large_binary": "bytes",
    "null": "null",
    "date32[day]": {"type": "int", "logicalType": "date"},
}


def derived_schema(column_type: pa.DataType) -> str:
    """Return the text of a schema for columns of a type, which are not null themselves.

    Raises:
        SchemaError: Avro has no such type, or a field's name is no name in Avro.
    """
    return json.dumps(_schema(column_type, RECORD_NAME, "", ""))


def with_new_fields(text: str, column_type: pa.DataType) -> str:
    """Return a record's schema with the fields that only the column has, at the end, nullable whatever the column says of them.

    Nothing else changes: neither types nor fields within fields.

    Raises:
        SchemaError: as by :func:`derived_schema`.
    """
    document = json.loads(text)
    if not (isinstance(document, dict) and document.get("type") == "record" and pa.types.is_struct(column_type)):
        return text
    name, namespace = document["name"], document.get("namespace", "")
    full_name = name if "." in name or not namespace else f"{namespace}.{name}"
    known = {field["name"].lower() for field in document["fields"]}
    new = [
        _field(field.with_nullable(True), full_name, field.name)
        for field in column_type
        if field.name.lower() not in known
    ]
    return json.dumps({**document, "fields": [*document["fields"], *new]}) if new else text


def _schema(column: pa.DataType, name: str, namespace: str, path: str) -> Any:
    is_a = pa.types
    if (simple := _SIMPLE.get(str(column))) is not None:
        return simple
    full_name = f"{namespace}.{name}" if namespace else name
    if is_a.is_struct(column):
        fields = [_field(field, full_name, f"{path}.{field.name}" if path else field.name) for field in column]
        return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}
    if is_a.is_list(column) or is_a.is_large_list(column):
        return {"type": "array", "items": _nullable(column.value_field, name, namespace, f"{path}[]")}
    if is_a.is_map(column) and str(column.key_type) in ("string", "large_string"):
        return {"type": "map", "values": _nullable(column.item_field, name, namespace, f"{path}{{}}")}
    if is_a.is_decimal(column):
        size = next(size for size in range(1, 33) if max_digits(size) >= column.precision)
        digits = {"precision": column.precision, "scale": column.scale}
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": full_name,
            "size": size,
            "logicalType": "decimal",
            **digits,
        }
    if is_a.is_timestamp(column) and column.unit == "us":
        return {"type": "long", "logicalType": "timestamp-micros" if column.tz else "local-timestamp-micros"}
    if is_a.is_time64(column):
        return {"type": "long", "logicalType": "time-micros"}
    raise SchemaError(
        f"{f'field {path}' if path else 'the column'} is {sql_name(column)}, which Avro does not have: cast it, or drop it."
    )


def _field(field: pa.Field, record: str, path: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise SchemaError(
            f"field {path} cannot have this name in Avro, whose names are letters, digits and underscores: rename it."
        )
    kind = _nullable(field, field.name, record, path)
    return {"name": field.name, "type": kind, **({"default": None} if field.nullable else {})}


def _nullable(field: pa.Field, name: str, namespace: str, path: str) -> Any:
    kind = _schema(field.type, name, namespace, path)
    return ["null", kind] if field.nullable and kind != "null" else kind
