"""Arrow arrays that are made of others, or of NumPy's: without a copy of texts and items, and without pandas.

A union with null is read for the values that are not null alone: :func:`scatter` is the way from their array to that of all. What
was read apart is put together by :func:`concat` and :func:`reassemble`. Python's values become an array by :func:`array_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire.arrow.arrays import Flags as Flags
from pykafka_wire.wire.arrow.arrays import to_arrow, to_arrow_with_nulls, to_numpy, validity
from pykafka_wire.wire.arrow.row_segments import bounds
from pykafka_wire.wire.arrow.varints import Ints as Ints

#: Of a row that no part of a column has. Not -1, which the first place, 0, would continue as a run.
_NO_PLACE: Final = -2
#: Where runs are shorter than this on average, rows are taken one by one: a copied run of eight fields costs as much as 300 rows.
_ROWS_OF_A_RUN: Final = 512
#: An Arrow array has offsets of 32 bits.
_MAX_ITEMS: Final = (1 << 31) - 1
#: pyarrow's builders make the type of each nested part of a column anew, with all that is in it, and the array keeps these types:
#: 220 bytes for each part and level above it, 84 MiB for 19,681 parts in 18 levels, whatever the values are. A type of more such
#: copies is built part by part, and the parts share it.
_MAX_TYPE_COPIES: Final = 4_000


def flags_at(index: Ints, n: int) -> Flags:
    """Return bool[n]: True at ``index``."""
    flags = np.zeros(n, dtype=np.bool_)
    flags[index] = True
    return flags


def bitmap(flags: Flags | None) -> pa.Buffer | None:
    """Return an Arrow buffer of the flags, for a validity or the values of booleans; None for None."""
    return None if flags is None else pa.py_buffer(np.packbits(flags, bitorder="little"))


def flag_array(flags: Flags, valid: Flags | None = None) -> pa.Array:
    """Return a pa.BooleanArray, null where not ``valid``."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [bitmap(valid), bitmap(flags)])


def nulls_of(column: pa.Array) -> pa.Buffer | None:
    """Return the Arrow buffer of a column's validity, without its offset; None where it has no nulls."""
    return bitmap(validity(column)) if column.null_count else None


def with_validity(values: pa.Array, valid: Flags | None) -> pa.Array:
    """Return an Arrow array without nulls, children and offset, null where not ``valid``."""
    if valid is None:
        return values
    return pa.Array.from_buffers(values.type, len(values), [bitmap(valid), *values.buffers()[1:]])


def slices(data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, arrow_type: pa.DataType) -> pa.Array:
    """Return a pa.Array of the bytes between ``starts`` and ``ends``, as ``pa.binary()`` or ``pa.string()``; a copy.

    Slices ascend and do not overlap.
    """
    n = len(starts)
    edges = np.zeros(max(2 * n, 1), dtype=np.int32)
    edges[0 : 2 * n : 2] = starts
    edges[1 : 2 * n : 2] = ends
    # Elements alternate between a slice and the gap before the next: every second one is needed.
    n_slices = max(2 * n - 1, 0)
    everything = pa.Array.from_buffers(arrow_type, n_slices, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return everything.take(to_arrow(np.arange(0, n_slices, 2, dtype=np.int32)))


def not_utf8(texts: pa.Array) -> Flags | None:
    """Return bool[n]: which elements of a pa.StringArray are not UTF-8; None where all are. Spark's strings, for one, may hold
    anything."""
    edges = bounds(texts)
    buffer = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[int(edges[0]) : int(edges[-1])]
    if int(buffer.max(initial=0)) < 0x80:
        return None
    try:
        texts.validate(full=True)
        return None
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value) for value in texts.view(pa.binary()).to_pylist()], dtype=np.bool_)


def _is_utf8(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def with_duplicate_keys(owner: Ints, keys: pa.Array, n: int) -> Flags:
    """Return bool[n]: which of n maps have a key twice; ``owner`` is the map of each key."""
    codes = keys.dictionary_encode()
    n_keys = max(len(codes.dictionary), 1)
    pairs = owner * n_keys + to_numpy(codes.indices, null=0)
    pairs.sort()
    return flags_at(pairs[1:][pairs[1:] == pairs[:-1]] // n_keys, n)


def array_of(column_type: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    """Return a function from Python values to a pa.Array of this type, as ``pa.array`` makes one: of structs as tuples or
    dicts, lists, and maps as lists of pairs. It raises pa.ArrowException, TypeError, ValueError or the like where a value is
    none of the type, and where one array cannot hold all of them.
    """
    _, n_copies = _type_copies(column_type)
    return partial(_array, column_type) if n_copies <= _MAX_TYPE_COPIES else _by_parts(column_type)


def _type_copies(column_type: pa.DataType) -> tuple[int, int]:
    """Return the parts of a type, itself among them, and those of all its parts together."""
    n_parts, n_copies = 1, 0
    for place in range(column_type.num_fields):
        parts, copies = _type_copies(column_type.field(place).type)
        n_parts += parts
        n_copies += copies
    return n_parts, n_parts + n_copies


def _by_parts(column_type: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    is_a = pa.types
    if is_a.is_struct(column_type):
        return partial(_structs, column_type, [(field.name, _by_parts(field.type)) for field in column_type])
    if is_a.is_map(column_type):
        entry = pa.struct(
            [pa.field("key", column_type.key_type, nullable=False), column_type.item_field.with_name("value")]
        )
        return partial(_lists, column_type, _by_parts(entry))
    if is_a.is_list(column_type):
        return partial(_lists, column_type, _by_parts(column_type.value_type))
    return partial(_array, column_type)


def _array(column_type: pa.DataType, values: list[Any]) -> pa.Array:
    array = pa.array(values, column_type)
    if isinstance(array, pa.ChunkedArray):  # of texts and bytes that one cannot hold
        raise pa.ArrowCapacityError(f"{len(values)} values of {column_type} are too large for one array")
    return array


def _structs(
    column_type: pa.DataType, fields: Sequence[tuple[str, Callable[[list[Any]], pa.Array]]], values: list[Any]
) -> pa.Array:
    if all(value is None for value in values):
        return pa.nulls(len(values), column_type)
    rows = [
        value if value is None or isinstance(value, tuple) else tuple(value.get(name) for name, _ in fields)
        for value in values
    ]
    if any(row is not None and len(row) != len(fields) for row in rows):
        raise pa.ArrowInvalid(f"a value that has not {len(fields)} fields")
    children = []
    for place, (_, make) in enumerate(fields):
        children.append(make([None if row is None else row[place] for row in rows]))
    valid = np.array([row is not None for row in rows], dtype=np.bool_)
    # Entries of a map have no validity: with one, pyarrow 18 aborts the process.
    is_valid = None if valid.all() else bitmap(valid)
    return pa.Array.from_buffers(column_type, len(rows), [is_valid], children=children)


def _lists(column_type: pa.DataType, make: Callable[[list[Any]], pa.Array], values: list[Any]) -> pa.Array:
    if all(value is None for value in values):
        return pa.nulls(len(values), column_type)
    edges = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=edges[1:])
    if edges[-1] > _MAX_ITEMS:
        raise pa.ArrowCapacityError(f"{edges[-1]} items of {len(values)} values are too many for one array")
    items = make(list(chain.from_iterable(value for value in values if value is not None)))
    if pa.types.is_map(column_type) and (items.null_count or items.field(0).null_count):
        raise pa.ArrowInvalid("a map's entry or key that is null")
    valid = np.array([value is not None for value in values], dtype=np.bool_)
    buffers = [bitmap(valid), pa.py_buffer(edges.astype(np.int32))]
    return pa.Array.from_buffers(column_type, len(values), buffers, children=[items])


def concat(columns: list[pa.Array], column_type: pa.DataType) -> pa.Array:
    """Return columns one after the other; a single one itself, which Arrow would copy."""
    if len(columns) == 1:
        return columns[0]
    return pa.concat_arrays(columns) if columns else pa.nulls(0, column_type)


def reassemble(n_rows: int, column_type: pa.DataType, parts: list[tuple[Ints, pa.Array]]) -> pa.Array:
    """Return a column of ``n_rows`` of (row numbers, their column) each, later ones first; null in the rows that none has."""
    if len(parts) == 1 and len(parts[0][0]) == n_rows:
        return parts[0][1]
    if not parts:
        return pa.nulls(n_rows, column_type)
    order = np.full(n_rows, _NO_PLACE)
    n_taken = 0
    for index, _ in parts:
        order[index] = np.arange(n_taken, n_taken + len(index))
        n_taken += len(index)
    column = parts[0][1] if len(parts) == 1 else pa.concat_arrays([part for _, part in parts])
    is_null = order == _NO_PLACE
    breaks = np.flatnonzero((np.diff(order) != 1) & ~(is_null[1:] & is_null[:-1])) + 1
    if len(breaks) > n_rows // _ROWS_OF_A_RUN:
        return column.take(to_arrow_with_nulls(np.maximum(order, 0), ~is_null))
    # A few damaged values between many: whole runs are copied, in a fraction of the time.
    runs = [(int(order[begin]), int(begin), int(end)) for begin, end in pairwise([0, *breaks, n_rows])]
    return pa.concat_arrays(
        [
            pa.nulls(end - begin, column_type) if place == _NO_PLACE else column.slice(place, end - begin)
            for place, begin, end in runs
        ]
    )


def scatter(values: pa.Array, index: Ints, n: int) -> pa.Array:
    """Return a pa.Array of ``n`` elements: those of ``values`` at ``index``, which ascends, and nulls. Texts and items are
    views.
    """
    valid = np.zeros(n, dtype=np.bool_)
    valid[index] = validity(values) if values.null_count else True
    return _scatter(values, index, valid)


def _scatter(values: pa.Array, index: Ints, valid: Flags) -> pa.Array:
    n, kind, is_a = len(valid), values.type, pa.types
    is_valid = bitmap(valid)
    if is_a.is_null(kind):
        return pa.nulls(n)
    if is_a.is_struct(kind):
        # A struct's columns; nulls of the struct itself are not theirs.
        children = [scatter(values.field(place), index, n) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, n, [is_valid], children=children)
    if is_a.is_boolean(kind):
        bits = np.unpackbits(np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8), bitorder="little")
        flags = np.zeros(n, dtype=np.bool_)
        flags[index] = bits[values.offset :][: len(values)]
        return flag_array(flags, valid)
    if is_a.is_string(kind) or is_a.is_binary(kind) or is_a.is_list(kind) or is_a.is_map(kind):
        return _scatter_lists(values, index, n, is_valid)
    width = kind.bit_width // 8
    words = np.frombuffer(values.buffers()[1] or b"", dtype=f"V{width}" if width > 8 else f"u{width}")
    spaced = np.zeros(n, dtype=words.dtype)
    spaced[index] = words[values.offset :][: len(values)]
    return pa.Array.from_buffers(kind, n, [is_valid, pa.py_buffer(spaced.view(np.uint8))])


def _scatter_lists(values: pa.Array, index: Ints, n: int, is_valid: Any) -> pa.Array:
    """Place elements of any length: those in between have none."""
    kind = values.type
    edges = np.frombuffer(values.buffers()[1] or bytes(4), dtype=np.int32)[values.offset :][: len(values) + 1]
    sizes = np.zeros(n, dtype=np.int32)
    sizes[index] = np.diff(edges)
    bounds = np.empty(n + 1, dtype=np.int32)
    bounds[0] = edges[0]
    np.cumsum(sizes, out=bounds[1:])
    bounds[1:] += edges[0]
    offsets = pa.py_buffer(bounds)
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, n, [is_valid, offsets], children=[values.values])
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, n, [is_valid, offsets], children=[entries])
    return pa.Array.from_buffers(kind, n, [is_valid, offsets, values.buffers()[2]])
