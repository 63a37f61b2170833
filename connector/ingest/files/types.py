"""The column types of a table's files: the rows' columns, with the names and types of the table.

A file may lack columns and fields of the table, which readers then show as null, but it must not have other types. Pure functions
of pyarrow types and arrays.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: The key in a field's metadata with Iceberg's id of the field.
FIELD_ID: Final = b"PARQUET:field_id"
_INTEGERS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
#: The most digits of integers that a floating-point type represents exactly.
_EXACT_DIGITS: Final = {pa.float64(): 10, pa.float32(): 5}
_SMALL: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def fits(rows: pa.DataType, table: pa.DataType) -> bool:
    """Return whether a table of the type ``table`` can store rows of the type ``rows``, perhaps after widening numbers.

    Field names ignore case.
    """
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        held = {field.name.lower(): field.type for field in table}
        return all(field.name.lower() in held and fits(field.type, held[field.name.lower()]) for field in rows)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return fits(rows.key_type, table.key_type) and fits(rows.item_type, table.item_type)
    if pa.types.is_list(rows) and pa.types.is_list(table):
        return fits(rows.value_type, table.value_type)
    if rows in _INTEGERS:
        digits = _INTEGERS[rows]
        if table in _INTEGERS:
            return digits <= _INTEGERS[table]
        if pa.types.is_decimal(table):
            return bool(digits <= table.precision - table.scale)
        return digits <= _EXACT_DIGITS.get(table, 0)
    if pa.types.is_decimal(rows) and pa.types.is_decimal(table):
        return bool(rows.scale <= table.scale and rows.precision - rows.scale <= table.precision - table.scale)
    return bool(rows == table or (rows == pa.float32() and table == pa.float64()))


def file_type(rows: pa.DataType, table: pa.DataType) -> pa.DataType:
    """Return the type of rows in a file of a table. The rows must fit the table."""
    if pa.types.is_struct(rows):
        held = {field.name.lower(): field for field in table}
        fields = [(held[field.name.lower()], field) for field in rows]
        return pa.struct(
            [
                pa.field(field.name, file_type(row_field.type, field.type), metadata=field.metadata)
                for field, row_field in fields
            ]
        )
    if pa.types.is_map(rows):
        key, item = (
            held.with_type(file_type(given.type, held.type)).with_nullable(given.nullable)
            for given, held in ((rows.key_field, table.key_field), (rows.item_field, table.item_field))
        )
        return pa.map_(key, item)
    if pa.types.is_list(rows):
        value = table.value_field
        return pa.list_(value.with_type(file_type(rows.value_type, value.type)).with_nullable(True))
    return table


def has_only_fields_of(rows: pa.DataType, table: pa.DataType) -> bool:
    """Return whether all fields of the rows are fields of the table, with the same types and the same Iceberg field ids.

    Upper and lower case in field names differ. Whether a field may be null is not compared.
    """
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        held = {field.name: field for field in table}
        return all(
            field.name in held
            and _id(field) == _id(held[field.name])
            and has_only_fields_of(field.type, held[field.name].type)
            for field in rows
        )
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return has_only_fields_of(rows.key_type, table.key_type) and has_only_fields_of(rows.item_type, table.item_type)
    if pa.types.is_list(rows) and pa.types.is_list(table):
        return has_only_fields_of(rows.value_type, table.value_type)
    return bool(rows == table)


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID)


def merged_type(rows: pa.DataType, table: pa.DataType) -> pa.DataType:
    """Return the type of a table extended for rows: the table's own types where the rows fit, the rows' types elsewhere."""
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        held = {field.name.lower(): field for field in table}
        return pa.struct([_merged_field(field, held.get(field.name.lower())) for field in rows])
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return pa.map_(merged_type(rows.key_type, table.key_type), merged_type(rows.item_type, table.item_type))
    if pa.types.is_list(rows) and pa.types.is_list(table):
        return pa.list_(pa.field("element", merged_type(rows.value_type, table.value_type)))
    return table if fits(rows, table) else rows


def _merged_field(rows: pa.Field, table: pa.Field) -> pa.Field:
    return rows if table is None else pa.field(table.name, merged_type(rows.type, table.type))


def small_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with pyarrow's small variants of texts, bytes and lists, as rows have; field metadata is kept."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(small_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(*(field.with_type(small_type(field.type)) for field in (kind.key_field, kind.item_field)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(small_type(kind.value_type)))
    return _SMALL.get(kind, kind)


def conform(rows: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array converted to the type ``wanted``, which must be the :func:`file_type` of the array's type."""
    if rows.type.equals(wanted, check_metadata=True):
        return rows
    if pa.types.is_struct(wanted):
        fields = [conform(rows.field(number), field.type) for number, field in enumerate(wanted)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=rows.is_null())
    if pa.types.is_map(wanted):
        entries = pa.StructArray.from_arrays(
            [conform(rows.keys, wanted.key_type), conform(rows.items, wanted.item_type)],
            fields=[wanted.key_field, wanted.item_field],
        )
        return _with_children(rows, wanted, entries)
    if pa.types.is_list(wanted):
        return _with_children(rows, wanted, conform(rows.values, wanted.value_type))
    return pc.cast(rows, wanted)


def _with_children(rows: pa.Array, wanted: pa.DataType, children: pa.Array) -> pa.Array:
    """Return a list or map with other elements. ``values``, ``keys`` and ``items`` of a slice are not sliced, so reuse the
    offsets."""
    return pa.Array.from_buffers(wanted, len(rows), rows.buffers()[:2], offset=rows.offset, children=[children])


def by_ids(rows: pa.Array, held: pa.Field, wanted: pa.Field) -> pa.Array:
    """Return an array in which the fields of structs are those of ``wanted``, in its order, found by their ids; null where there is
    none. Types without fields stay as they are.

    Args:
        held: the array's own field. A field without an id is found by its name.
    """
    kind, asked = held.type, wanted.type
    if pa.types.is_struct(kind) and pa.types.is_struct(asked):
        by_id = {_id(field): number for number, field in enumerate(kind) if _id(field) is not None}
        by_name = {field.name: number for number, field in enumerate(kind) if _id(field) is None}
        children, fields = [], []
        for field in asked:
            number = by_id.get(_id(field), by_name.get(field.name))
            inner = (
                pa.nulls(len(rows), field.type) if number is None else by_ids(rows.field(number), kind[number], field)
            )
            children.append(inner)
            fields.append(field.with_type(inner.type))
        return pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(asked):
        keys, items = (
            by_ids(rows.keys, kind.key_field, asked.key_field),
            by_ids(rows.items, kind.item_field, asked.item_field),
        )
        entries = [asked.key_field.with_type(keys.type), asked.item_field.with_type(items.type)]
        return _with_children(rows, pa.map_(*entries), pa.StructArray.from_arrays([keys, items], fields=entries))
    if pa.types.is_list(kind) and pa.types.is_list(asked):
        inner = by_ids(rows.values, kind.value_field, asked.value_field)
        return _with_children(rows, pa.list_(asked.value_field.with_type(inner.type)), inner)
    return rows
