"""The names of the columns that a read has, by the option ``columns`` (:mod:`~pykafka_wire.field_selection`)."""

from __future__ import annotations

from collections.abc import Collection

from pykafka_wire.columns.source_columns import SOURCE_COLUMNS
from pykafka_wire.errors import SchemaError
from pykafka_wire.field_selection import Selection, suggest


def column_names(selection: Selection, include_headers: bool, added_columns: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the columns that are read, in their order; all without a selection, ``headers`` only if it is included.

    Args:
        added_columns: those that ``onKeyError`` and ``onValueError`` add.

    Raises:
        SchemaError: the source has no such column.
    """
    available = (*SOURCE_COLUMNS, *added_columns)
    if not selection:
        return tuple(name for name in available if include_headers or name != "headers")
    for name in selection:
        if name in ("keyError", "valueError") and name not in available:
            option = f"on{name[0].upper()}{name[1:]}"
            raise SchemaError(
                f"columns selects {name}, which the source has only with {option}=divert: set that, or leave {name} out."
            )
        if name not in available:
            raise SchemaError(f"columns selects {name}, which is no column of the source{suggest(name, available)}")
    return tuple(selection)
