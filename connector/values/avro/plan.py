"""Makes the steps that read values in columns, from a resolved schema and the wanted Arrow type.

What is not read in columns becomes a step in which all values fail, :class:`~pykafka_wire.values.avro.scalar_steps.Unreadable`:
its values are left to be read one by one. The plan says which places these are.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro import nested_steps, resolution, scalar_steps
from pykafka_wire.values.avro.bulk_reader import BulkReader
from pykafka_wire.values.avro.defaults import Defaults
from pykafka_wire.values.avro.input_limits import item_bytes
from pykafka_wire.values.avro.logical_values import is_member_struct, scale_of
from pykafka_wire.values.avro.scalar_steps import Step
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, logical_of
from pykafka_wire.values.avro.types import member_name
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.wire.records.arrays import binary_array

#: Each use of a type in a schema is a step. More than this is an attack, not a topic's schema.
_MAX_STEPS: Final = 10_000
_MAX_DECIMAL_BITS: Final = 128
#: Of records in records, and of arrays. A step takes up to three frames of Python's stack, which has a thousand.
_MAX_DEPTH: Final = 100
Inside = frozenset[resolution.Record]


class Plan:
    """Makes the steps of one pair of schemas.

    Args:
        read: the reader's schema, or the writer's where there is no other: it holds the types of the defaults.

    Attributes:
        left: the places whose values are left to be read one by one, such as ``order.items[]``.
    """

    def __init__(self, read: ParsedSchema) -> None:
        self._defaults = Defaults(read)
        self._n_steps = 0
        self.left: list[str] = []

    def step(
        self, node: resolution.Node, wanted: pa.DataType | None, path: str = "", inside: Inside = frozenset()
    ) -> Step:
        """The step that reads a value into ``wanted``; None only skips it. ``inside`` has the records around."""
        made = self._step(node, wanted, path, inside)
        if made is not None:
            return made
        if not isinstance(node, resolution.Mismatch):  # a mismatch cannot be read row by row, either
            self.left.append(path or "the value")
        return scalar_steps.Unreadable(pa.null() if wanted is None else wanted)

    def _step(self, node: resolution.Node, wanted: pa.DataType | None, path: str, inside: Inside) -> Step | None:
        self._n_steps += 1
        if self._n_steps > _MAX_STEPS or _depth(path) > _MAX_DEPTH or isinstance(node, resolution.Mismatch):
            return None
        if isinstance(node, resolution.WrittenUnion):
            branches = [self.step(each, wanted, path, inside) for each in node.branches]
            return nested_steps.Union(branches, pa.null() if wanted is None else wanted)
        if isinstance(node, resolution.Branch):
            if wanted is not None and node.member is not None and is_member_struct(wanted):
                return self._member(node, wanted, path, inside)
            return self._step(node.value, wanted, path, inside)
        if isinstance(node, resolution.Record):
            if node in inside or not (wanted is None or pa.types.is_struct(wanted)):
                return None
            return self._record(node, wanted, path, inside | {node})
        if isinstance(node, resolution.Blocks):
            return self._blocks(node, wanted, path, inside)
        if wanted is None:
            return _skip(node)
        if isinstance(node, resolution.Symbols):
            return _enum(node) if pa.types.is_string(wanted) else None
        return _scalar(node, wanted)

    def _member(self, node: resolution.Branch, wanted: pa.DataType, path: str, inside: Inside) -> Step:
        assert node.member is not None
        name = member_name(node.member)
        place = wanted.get_field_index(name)
        inner = self.step(node.value, None if place < 0 else wanted.field(place).type, f"{path}.{name}", inside)
        others = [(scalar_steps.Null(field.type), at) for at, field in enumerate(wanted) if at != place]
        return nested_steps.Record(((inner, place),), tuple(others), wanted)

    def _record(self, node: resolution.Record, wanted: pa.DataType | None, path: str, inside: Inside) -> Step | None:
        if wanted is None:
            fields = [(self.step(value, None, f"{path}.{name}", inside), -1) for value, name in node.fields]
            return nested_steps.Record(tuple(fields), (), pa.struct([]))
        places = {field.name: place for place, field in enumerate(wanted)}
        if len(places) != wanted.num_fields:
            return None
        found: list[tuple[Step, int]] = []
        for value, name in node.fields:
            place = -1 if name is None else places.pop(name, -1)
            inner = None if place < 0 else wanted.field(place).type
            found.append((self.step(value, inner, f"{path}.{name}" if path else str(name), inside), place))
        defaults = {each.name: each for each in node.defaults}
        absent: list[tuple[Step, int]] = []
        for name, place in places.items():
            column = wanted.field(place).type
            absent.append((self._default(defaults.get(name), column), place))
        return nested_steps.Record(_with_gaps(found), tuple(absent), wanted)

    def _default(self, default: resolution.Default | None, wanted: pa.DataType) -> Step:
        if default is None:
            return scalar_steps.Null(wanted)
        try:
            payload, node = self._defaults.of(default)
        except DecodeError:  # reading one by one reports why
            return scalar_steps.Unreadable(wanted)
        reader = BulkReader.of(Payloads.of(binary_array([payload])))
        column = self.step(node, wanted, default.name).read(reader)
        if reader.failed.any():
            return scalar_steps.Unreadable(wanted)
        return scalar_steps.Constant(column)

    def _blocks(self, node: resolution.Blocks, wanted: pa.DataType | None, path: str, inside: Inside) -> Step | None:
        column: pa.DataType | None = None
        if wanted is not None:
            if node.is_map and not (pa.types.is_map(wanted) and pa.types.is_string(wanted.key_type)):
                return None
            if not node.is_map and not pa.types.is_list(wanted):
                return None
            column = wanted.item_type if node.is_map else wanted.value_type
        item = self.step(node.item, column, f"{path}[]", inside)
        if not node.is_map and item.may_be_empty:
            # Few schemas have any, and a few bytes of each value could claim thousands of items.
            return None
        key = scalar_steps.Text(pa.string(), True) if node.is_map else None
        size = (0 if column is None else item_bytes(column) + item.free_bytes) + (
            0 if key is None else item_bytes(pa.string())
        )
        return nested_steps.Items(item, pa.null() if wanted is None else wanted, key, size)


def _depth(path: str) -> int:
    return path.count(".") + path.count("[")


def _with_gaps(fields: list[tuple[Step, int]]) -> tuple[tuple[Step, int], ...]:
    """The steps of a record with neighbours that are skipped as one, which goes past several at once."""
    found: list[tuple[Step, int]] = []
    for is_skipped, group in groupby(fields, key=lambda field: field[1] < 0):
        steps = list(group)
        found += [(nested_steps.Record(tuple(steps), (), pa.struct([])), -1)] if is_skipped else steps
    return tuple(found)


def _skip(node: resolution.Scalar | resolution.Symbols) -> Step:
    kind = "int" if isinstance(node, resolution.Symbols) else kind_of(node.written)
    if kind == "fixed" and isinstance(node, resolution.Scalar):
        return scalar_steps.Fixed(node.written["size"])
    made: dict[str, Step] = {
        "null": scalar_steps.Null(pa.null()),
        "boolean": scalar_steps.Boolean(),
        "float": scalar_steps.Floating("<f4", pa.float32()),
        "double": scalar_steps.Floating("<f8", pa.float64()),
        "bytes": scalar_steps.Text(pa.binary(), False),
        "string": scalar_steps.Text(pa.binary(), False),
    }
    return made.get(kind) or scalar_steps.integer(pa.int64(), 64)


def _scalar(node: resolution.Scalar, wanted: pa.DataType) -> Step | None:
    """The step for a primitive or ``fixed`` value; None if it is not supported in columns."""
    is_a = pa.types
    kind, target, logical = kind_of(node.written), kind_of(node.read), logical_of(node.read)
    if kind == "null":
        return scalar_steps.Null(wanted)
    if kind == "boolean":
        return scalar_steps.Boolean() if is_a.is_boolean(wanted) else None
    if kind in ("int", "long"):
        return _integer(node, kind, target, wanted)
    if kind in ("float", "double"):
        return scalar_steps.Floating("<f4" if kind == "float" else "<f8", wanted) if is_a.is_floating(wanted) else None
    size = node.written["size"] if kind == "fixed" else None
    if is_a.is_decimal(wanted):
        if logical != "decimal":
            return None
        definition = node.written if logical_of(node.written) == "decimal" else node.read
        fits = wanted.bit_width == _MAX_DECIMAL_BITS and wanted.scale == definition.get("scale", 0)
        return scalar_steps.DecimalNumber(wanted, size) if fits else None
    if size is not None:
        return scalar_steps.Fixed(size) if is_a.is_binary(wanted) else None
    if is_a.is_binary(wanted):
        return scalar_steps.Text(wanted, target == "string")
    is_text = "string" in (kind, target) and logical != "decimal"
    return scalar_steps.Text(wanted, True) if is_a.is_string(wanted) and is_text else None


def _integer(node: resolution.Scalar, kind: str, target: str, wanted: pa.DataType) -> Step | None:
    is_a = pa.types
    bits = 32 if kind == "int" else 64
    if target in ("float", "double"):
        fits = is_a.is_float64(wanted) if target == "double" else is_a.is_float32(wanted)
        return scalar_steps.integer(wanted, bits) if fits else None
    if is_a.is_integer(wanted) or (is_a.is_float64(wanted) and not logical_of(node.read)):
        return scalar_steps.integer(wanted, bits)
    if is_a.is_date32(wanted):
        return scalar_steps.integer(wanted, bits) if logical_of(node.read) == "date" else None
    scale = scale_of(node, wanted)
    return None if scale is None else scalar_steps.moment(wanted, *scale)


def _enum(node: resolution.Symbols) -> Step:
    symbols = binary_array([(each or "").encode() for each in node.names]).view(pa.string())
    return scalar_steps.Enum(symbols, np.array([each is not None for each in node.names]))
