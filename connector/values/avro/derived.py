"""The Avro schema of a column, made of its Arrow type: for a subject that has none, or not all of its fields.

The types are those of Spark's ``SchemaConverters.toAvroType``. One thing differs: a nullable field is ``["null", …]`` with the
default null, where Spark has ``[…, "null"]`` without a default. A registry that checks compatibility refuses a new field without a
default, so that no column could ever be added. https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.avro.schema import max_digits
from pykafka_wire.values.bulk.writing import sql_name

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
    """The text of a schema for columns of a type, which are not null themselves.

    Raises:
        SchemaError: Avro has no such type, or a field's name is no name in Avro.
    """
    return json.dumps(_schema(column_type, RECORD_NAME, "", ""))


def with_new_fields(text: str, column_type: pa.DataType) -> str:
    """A record's schema with the fields that only the column has, at the end, nullable whatever the column says of them.

    Nothing else changes: neither types nor fields within fields.

    Raises:
        SchemaError: as by :func:`derived_schema`.
    """
    document = json.loads(text)
    if not (isinstance(document, dict) and document.get("type") == "record" and pa.types.is_struct(column_type)):
        return text
    name, namespace = document["name"], document.get("namespace", "")
    full_name = name if "." in name or not namespace else f"{namespace}.{name}"
    known = {each["name"].lower() for each in document["fields"]}
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
        fields = [_field(each, full_name, f"{path}.{each.name}" if path else each.name) for each in column]
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


def _field(field: Any, record: str, path: str) -> dict[str, Any]:  # field: a pa.Field
    if not _NAME.fullmatch(field.name):
        raise SchemaError(
            f"field {path} cannot have this name in Avro, whose names are letters, digits and underscores: rename it."
        )
    kind = _nullable(field, field.name, record, path)
    return {"name": field.name, "type": kind, **({"default": None} if field.nullable else {})}


def _nullable(field: Any, name: str, namespace: str, path: str) -> Any:
    kind = _schema(field.type, name, namespace, path)
    return ["null", kind] if field.nullable and kind != "null" else kind
