"""Makes the steps that write a column, from the schema and the column's Arrow type, and finds what does not fit.

A column fits a schema as for Spark's ``to_avro``: fields by name, exactly or in any case; a nullable field of the schema may be
missing in the column, and no other one, since a default is for readers; a union of several types takes a struct of ``member0``,
``member1`` and so on. In addition, what is written exactly, or is checked row by row, need not have the schema's own type: any
integer as int or long, integers as float or double that hold them, decimals of another precision or scale, times with and without a
zone. https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pykafka_wire.values.avro import write_steps as steps
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, logical_of
from pykafka_wire.values.avro.types import member_name
from pykafka_wire.values.avro.write_steps import SchemaWriter
from pykafka_wire.values.bulk.writing import PER_SECOND, SegmentWriter, matching, refuse, sql_name, within
from pykafka_wire.wire.protocol.primitives import encode_uvarint
from pykafka_wire.wire.records.arrays import binary_array

#: Spark's decimals have 38 digits at most.
_MAX_DIGITS: Final = 38
#: Of a fixed. Larger ones are not read, either (:mod:`~pykafka_wire.values.avro.row_reader`).
_MAX_DECIMAL_BYTES: Final = 128
_FLOAT_BITS: Final = 24
_DOUBLE_BITS: Final = 53
#: Microseconds of Spark's timestamps to the unit of a logical type: (multiply, divide). A long without one is in
#: milliseconds, as to_avro writes it.
_TIMESTAMPS: Final = {
    "": (1, 1000),
    "timestamp-millis": (1, 1000),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1000, 1),
    "local-timestamp-millis": (1, 1000),
    "local-timestamp-micros": (1, 1),
    "local-timestamp-nanos": (1000, 1),
}


def column_writer(schema: ParsedSchema, column_type: pa.DataType, prefix: bytes = b"") -> SegmentWriter:
    """What writes columns of an Arrow type under a schema.

    Args:
        prefix: Confluent's frame before each value, if there is one.

    Raises:
        SchemaError: the schema cannot hold such a column.
    """
    plan = WritePlan(schema)
    step = plan.step(schema.root, column_type, "")
    refuse(plan.problems, column_type, "Avro")
    if prefix and kind_of(schema.definition(schema.root)) == "bytes":
        # Behind a frame, Confluent's serializers write the type bytes without its length.
        assert isinstance(step, steps.Required) and isinstance(step.step, (steps.Text, steps.DecimalNumber))
        step = replace(step, step=replace(step.step, has_length=False))
    return SegmentWriter(step, prefix)


class WritePlan:
    """Makes the steps of one schema.

    Attributes:
        problems: what does not fit, field by field; the steps are useless unless it is empty.
    """

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self.problems: list[str] = []

    def step(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        """The step that writes ``column`` as ``schema``; nulls included."""
        schema = self._schema.definition(schema)
        if isinstance(schema, list):
            return self._union(schema, column, path)
        if kind_of(schema) == "null" and pa.types.is_null(column):
            return steps.Absent()
        return steps.Required(step=self._value(schema, column, path), path=path)

    def _refuse(self, path: str, column: pa.DataType, schema: Schema, remedy: str) -> SchemaWriter:
        where = f"field {path}" if path else "the column"
        self.problems.append(f"{where} is {sql_name(column)} and the schema's type is {_shown(schema)}: {remedy}")
        return steps.Absent()

    def _union(self, union: list[Schema], column: pa.DataType, path: str) -> SchemaWriter:
        branches = [self._schema.definition(each) for each in union]
        null = next((index for index, each in enumerate(branches) if kind_of(each) == "null"), None)
        if pa.types.is_null(column) and null is not None:
            return steps.Absent(content=_branch(null))
        others = [(index, each) for index, each in enumerate(branches) if index != null]
        if len(others) > 1 and _is_members(column, len(others)):
            return self._members(others, null, column, path)
        if len(others) == 1:
            (chosen, branch) = others[0]
            step = self._value(branch, column, path)
        else:
            fitting = [
                (index, found) for index, each in others if (found := self._exact(each, column, path)) is not None
            ]
            if len(fitting) != 1:
                members = ", ".join(f"{member_name(nth)}: {_shown(each)}" for nth, (_, each) in enumerate(others))
                return self._refuse(path, column, union, f"make it one of the union's types, or a struct of {members}")
            chosen, step = fitting[0]
        if null is None:
            return steps.Required(step=step, path=path, branch=_branch(chosen))
        return steps.Optional(step=step, branch=chosen, null_branch=null)

    def _exact(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter | None:
        """The step for one of several branches; None if the column is not of this very type."""
        if pa.types.is_integer(column) and kind_of(schema) != ("long" if column.bit_width > 32 else "int"):
            return None
        if pa.types.is_floating(column) and kind_of(schema) != ("double" if pa.types.is_float64(column) else "float"):
            return None
        if pa.types.is_decimal(column) and not _is_decimal(schema, column.precision, column.scale):
            return None
        attempt = WritePlan(self._schema)
        step = attempt._value(schema, column, path)
        return None if attempt.problems else step

    def _members(
        self, others: list[tuple[int, Schema]], null: int | None, column: pa.DataType, path: str
    ) -> SchemaWriter:
        branches = []
        for place, (index, branch) in enumerate(others):
            member = column.field(place)
            branches.append((self._value(branch, member.type, within(path, member.name)), index))
        return steps.Members(path=path, branches=tuple(branches), null_branch=null)

    def _value(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        """The step for values that are not null."""
        is_a = pa.types
        kind, logical = kind_of(schema), logical_of(schema)
        if kind == "record":
            return self._record(schema, column, path)
        if kind == "array" and (is_a.is_list(column) or is_a.is_large_list(column)):
            item = self.step(schema["items"], column.value_type, f"{path}[]")
            return steps.Items(item=item)
        if kind == "map" and is_a.is_map(column) and _is_text(column.key_type):
            item = self.step(schema["values"], column.item_type, f"{path}{{}}")
            return steps.Items(item=item, key=steps.Text(path=within(path, "key")))
        found: SchemaWriter | None = None
        if kind == "boolean" and is_a.is_boolean(column):
            found = steps.Boolean()
        elif kind in ("int", "long"):
            found = _integer(32 if kind == "int" else 64, logical, column, path)
        elif kind in ("float", "double"):
            found = _floating(kind == "double", column)
        elif kind == "enum" and _is_text(column):
            symbols = binary_array([each.encode() for each in schema["symbols"]]).view(pa.string())
            found = steps.Enum(path=path, symbols=symbols)
        elif logical == "decimal" and is_a.is_decimal(column):
            digits, scale = min(schema["precision"], _MAX_DIGITS), schema.get("scale", 0)
            if scale <= _MAX_DIGITS and schema.get("size", 0) <= _MAX_DECIMAL_BYTES:
                found = steps.DecimalNumber(path=path, type=pa.decimal128(digits, scale), size=schema.get("size"))
        elif kind == "fixed":
            if is_a.is_binary(column) or is_a.is_large_binary(column):
                found = steps.Fixed(path=path, size=schema["size"])
            elif logical == "uuid" and _is_text(column):
                found = steps.Uuid(path=path)
        elif (kind == "string" and _is_text(column)) or (
            kind == "bytes" and (is_a.is_binary(column) or is_a.is_large_binary(column))
        ):
            found = steps.Text(path=path)
        return found or self._refuse(path, column, schema, "cast the column, or change the schema")

    def _record(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        if not pa.types.is_struct(column):
            names = ", ".join(field["name"] for field in schema["fields"])
            return self._refuse(path, column, schema, f"make it a struct of the record's fields, as in struct({names})")
        fields = [column.field(place) for place in range(column.num_fields)]
        places: dict[str, int] = {}
        written = [each["name"] for each in schema["fields"]]
        for place, field in enumerate(fields):
            name = matching(field.name, written)
            if name is None:
                self.problems.append(
                    f"field {within(path, field.name)} is not in the schema, whose record {schema['name']} has "
                    f"{', '.join(written) or 'no fields'}: drop it from the column, or add it to the schema"
                )
            elif name in places:
                self.problems.append(
                    f"fields {within(path, fields[places[name]].name)} and {within(path, field.name)} are both the schema's "
                    f"field {name}: drop one of them"
                )
            else:
                places[name] = place
        found: list[tuple[SchemaWriter, int]] = []
        for each in schema["fields"]:
            inner = within(path, each["name"])
            place = places.get(each["name"], -1)
            if place >= 0:
                found.append((self.step(each["type"], fields[place].type, inner), place))
            else:
                found.append((self._absent(each["type"], inner), -1))
        return steps.Record(fields=tuple(found))

    def _absent(self, schema: Schema, path: str) -> SchemaWriter:
        definition = self._schema.definition(schema)
        branches = definition if isinstance(definition, list) else [definition]
        for index, branch in enumerate(branches):
            if kind_of(self._schema.definition(branch)) == "null":
                return steps.Absent(content=_branch(index) if isinstance(definition, list) else b"")
        self.problems.append(
            f"field {path} ({_shown(definition)}) is missing in the column, and the schema allows no null: add it to the column "
            "(a default in the schema is for readers)"
        )
        return steps.Absent()


def _integer(bits: int, logical: str, column: pa.DataType, path: str) -> SchemaWriter | None:
    is_a = pa.types
    if is_a.is_integer(column):
        dtype = str(column)
        return None if dtype == "uint64" else steps.Integer(path=path, dtype=dtype, bits=bits)
    if is_a.is_date32(column) and bits == 32 and logical in ("", "date"):
        return steps.Integer(path=path, dtype="int32", bits=32)
    if is_a.is_timestamp(column) and bits == 64 and logical in _TIMESTAMPS:
        multiply, divide = _TIMESTAMPS[logical]
        multiply, divide = _units(multiply, divide, column.unit)
        return steps.Integer(path=path, dtype="int64", bits=64, multiply=multiply, divide=divide)
    if is_a.is_time(column) and (bits, logical) in ((32, "time-millis"), (64, "time-micros")):
        multiply, divide = _units(1, 1000 if bits == 32 else 1, column.unit)
        return steps.Integer(path=path, dtype=f"int{column.bit_width}", bits=bits, multiply=multiply, divide=divide)
    return None


def _units(multiply: int, divide: int, unit: str) -> tuple[int, int]:
    """What turns a column's unit into the one that microseconds become by these factors."""
    multiply, divide = multiply * PER_SECOND["us"], divide * PER_SECOND[unit]
    common = math.gcd(multiply, divide)
    return multiply // common, divide // common


def _floating(is_double: bool, column: pa.DataType) -> SchemaWriter | None:
    is_a = pa.types
    if is_a.is_integer(column):
        fits = column.bit_width <= (_DOUBLE_BITS if is_double else _FLOAT_BITS)
    else:
        fits = is_a.is_float32(column) or (is_a.is_float64(column) and is_double)
    if not fits:
        return None
    dtype = str(column) if is_a.is_integer(column) else f"float{column.bit_width}"
    return steps.Floating(dtype=dtype, is_double=is_double)


def _branch(index: int) -> bytes:
    """The index of a union's branch as Avro writes it."""
    return encode_uvarint(2 * index)  # zigzag


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def _is_decimal(schema: Schema, precision: int, scale: int) -> bool:
    """Whether a schema is a decimal of just these digits."""
    return logical_of(schema) == "decimal" and (schema["precision"], schema.get("scale", 0)) == (precision, scale)


def _is_members(column: pa.DataType, n: int) -> bool:
    return bool(pa.types.is_struct(column)) and [each.name for each in column] == [member_name(nth) for nth in range(n)]


def _shown(schema: Schema) -> str:
    """A schema's type in a few words."""
    if isinstance(schema, list):
        return f"[{', '.join(map(_shown, schema))}]"
    if isinstance(schema, str):
        return schema
    logical = logical_of(schema)
    if logical == "decimal":
        size = f" of {schema['size']} bytes" if kind_of(schema) == "fixed" else ""
        return f"{kind_of(schema)} decimal({schema['precision']},{schema.get('scale', 0)}){size}"
    name = schema.get("name")
    return " ".join(each for each in (kind_of(schema), str(name) if name else "", logical) if each)
