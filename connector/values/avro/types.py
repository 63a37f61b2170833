"""The Arrow type of an Avro schema, chosen so that its Spark type is the one that Spark's ``from_avro`` gives.

Owns that mapping, and which unions are one column and which a struct of their branches. Spark's own is
``SchemaConverters.toSqlType``; the differences and their reasons are in docs/avro-types.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from pykafka_wire.columns.selection import WHOLE, Selection
from pykafka_wire.errors import SchemaError
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, logical_of

#: Of Spark's decimals and of Arrow's with 128 bits.
_MAX_DECIMAL_DIGITS: Final = 38
#: Each use of a type in a schema becomes a part of the Arrow type. Larger than this is an attack, not a topic's schema.
_MAX_PARTS: Final = 10_000

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


def arrow_type(schema: ParsedSchema, selection: Selection = WHOLE) -> pa.DataType:
    """The Arrow type that values of a schema are read as; every field, item and value in it may be null.

    Args:
        selection: other fields get the type null in place of their own, so that a part of a record that holds itself has a type.

    Raises:
        SchemaError: no type holds the values: a record that holds itself, a decimal of more than 38 digits.
    """
    return _Types(schema).of(schema.root, (), "the schema", selection)


def column_branches(branches: Sequence[Schema]) -> list[Schema]:
    """The branches of a union that need a column: all but null."""
    return [each for each in branches if kind_of(each) != "null"]


def widest(branches: Sequence[Schema]) -> Schema | None:
    """The schema of the one column that holds all branches, which are not null; None where it takes a struct of them."""
    if len(branches) == 1:
        return branches[0]
    kinds = {kind_of(each) for each in branches}
    if len(branches) == 2 and kinds == {"int", "long"}:
        return "long"
    if len(branches) == 2 and kinds == {"float", "double"}:
        return "double"
    return None


def member_name(place: int) -> str:
    """The field for a branch in the struct of a union: branches are counted from 0, without null."""
    return f"member{place}"


class _Types:
    def __init__(self, parsed: ParsedSchema) -> None:
        self._parsed = parsed
        self._n_parts = 0

    def of(self, schema: Schema, inside: tuple[str, ...], path: str, selection: Selection = WHOLE) -> pa.DataType:
        """``inside`` has the names of the records around, ``path`` says where the schema stands."""
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise SchemaError(f"{path}: the schema has more than {_MAX_PARTS} fields: name a smaller reader's schema.")
        definition = self._parsed.definition(schema)
        kind = kind_of(definition)
        if kind == "union":
            return self._union(definition, inside, path, selection)
        if kind == "record":
            return self._record(definition, inside, path, selection)
        if kind == "array":
            return pa.list_(pa.field("element", self.of(definition["items"], inside, f"{path}[]", selection)))
        if kind == "map":
            return pa.map_(pa.string(), pa.field("value", self.of(definition["values"], inside, f"{path}[]")))
        logical = logical_of(definition)
        if logical == "decimal":
            if definition["precision"] > _MAX_DECIMAL_DIGITS:
                raise SchemaError(
                    f"{path} is a decimal of {definition['precision']} digits, and Spark's have {_MAX_DECIMAL_DIGITS} at most: "
                    "read it as binary, by a reader's schema without the logical type."
                )
            return pa.decimal128(definition["precision"], definition.get("scale", 0))
        return _LOGICAL.get(logical) or _PRIMITIVES[kind]

    def _record(self, definition: Schema, inside: tuple[str, ...], path: str, selection: Selection) -> pa.DataType:
        name = definition["name"]
        if name in inside and not selection:
            raise SchemaError(
                f"{path} is the record {name} again, inside of itself, and no Spark type holds a recursive schema: give a "
                "reader's schema without this field, or name the wanted fields in the option columns or in .schema(…)."
            )
        inside = (*inside, name)
        return self._struct([(each["name"], each["type"]) for each in definition["fields"]], inside, path, selection)

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
        branches = column_branches([self._parsed.definition(each) for each in union])
        one = widest(branches)
        if one is not None:
            return self.of(one, inside, path, selection)
        return self._struct(
            [(member_name(place), each) for place, each in enumerate(branches)], inside, path, selection
        )
