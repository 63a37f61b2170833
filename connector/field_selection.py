"""Which columns are selected, and which of their fields: the option ``columns``, such as ``value.id, value.country, offset``.

Spark (4.2) does not tell a Python source which columns a query uses. This option does so by names alone, where ``.schema(…)`` needs
the types as well. What is not selected is not decoded. Spark asks a new process for the schema: so this module imports Arrow only
where types are selected. Knows neither the source's columns nor a format.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.wire.masking import quoted

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns by name in their order, each with its selected fields; without any, it is selected whole.
Selection = dict[str, "Selection"]
#: Selects all fields.
WHOLE: Final[Selection] = {}

#: One name of a path, in backticks where it holds a dot or a comma, and what follows it.
_NAME: Final = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[^`.,\s][^`.,]*?))\s*(?P<next>[.,]|$)")


def parse_columns(text: str, option: str = "columns") -> Selection:
    """Return the selection that a text such as ``value.id, value.country, offset`` describes; an array's items have its fields.

    Raises:
        OptionError: the text is malformed, or names a column twice.
    """
    selection: Selection = {}
    level, path, position = selection, [], 0
    while position < len(text):
        match = _NAME.match(text, position)
        if match is None or (match.end() == len(text) and match["next"]):
            raise OptionError(
                f"{option} is {quoted(text)}: name columns and their fields, separated by commas, as in value.id, value.country, "
                "offset. A name with a dot or a comma needs backticks."
            )
        name = match["quoted"] or match["plain"]
        path.append(name)
        is_last = match["next"] != "."
        known = level.get(name)
        if known is not None and (is_last or not known):
            raise OptionError(
                f"{option} selects {'.'.join(path)} twice, or a field of it besides: leave one of them out."
            )
        following = level.setdefault(name, {})
        level, path = (selection, []) if is_last else (following, path)
        position = match.end()
    return selection


def selected_paths(selection: Selection, prefix: str = "") -> list[str]:
    """Return what is selected, as in the option: ``["value.id", "offset"]``."""
    paths: list[str] = []
    for name, fields in selection.items():
        path = prefix + (f"`{name}`" if re.search(r"[.,]", name) else name)
        paths += selected_paths(fields, f"{path}.") if fields else [path]
    return paths


def check_whole(selection: Selection, path: str, type_name: str) -> None:
    """Raise SchemaError where fields are selected of a type that has none."""
    if selection:
        raise SchemaError(
            f"columns selects {path}.{next(iter(selection))}, but {path} is {type_name}, which has no fields to select: "
            f"select {path} whole{', or set ' + path + 'Format to read it decoded' if type_name == 'binary' else ''}."
        )


def select_type(column_type: pa.DataType, selection: Selection, path: str) -> pa.DataType:
    """Return a ``pyarrow.DataType`` with the selected fields alone, in the order in which they were selected.

    Args:
        column_type: pyarrow's, of what is at ``path``.

    Raises:
        SchemaError: a field is not there, or the type has no fields.
    """
    import pyarrow as pa

    if not selection:
        return column_type
    if pa.types.is_list(column_type):
        item = column_type.value_field
        return pa.list_(item.with_type(select_type(item.type, selection, path)))
    if pa.types.is_map(column_type):
        raise SchemaError(
            f"columns selects {path}.{next(iter(selection))}, but {path} is a map, of which no part can be selected: "
            f"select {path} whole."
        )
    if not pa.types.is_struct(column_type):
        check_whole(selection, path, str(column_type))
    fields: Mapping[str, Any] = {field.name: field for field in column_type}
    for name in selection:
        if name not in fields:
            raise SchemaError(f"columns selects {path}.{name}, which is no field of {path}{suggest(name, fields)}")
    return pa.struct(
        [
            fields[name].with_type(select_type(fields[name].type, selected, f"{path}.{name}"))
            for name, selected in selection.items()
        ]
    )


def suggest(name: str, available: Collection[str]) -> str:
    """Return what an error about an unknown name ends with: the name that is near it, or all that there are."""
    near = difflib.get_close_matches(name, available, n=1)
    return f". Did you mean {near[0]}?" if near else f": use {', '.join(available)}."
