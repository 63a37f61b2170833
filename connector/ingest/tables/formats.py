"""The table formats, by the values of the setting ``table_format``.

A format is a subpackage whose module ``format`` defines one object, ``FORMAT``. The modules are listed by name, so that the
libraries of a format are loaded only when a table of that format is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from pykafka_wire.ingest.settings.model import Settings
    from pykafka_wire.ingest.tables.format import TableFormat

#: The modules that define ``FORMAT``, in the order in which they are asked for the table at a place: Delta last, since it leaves to
#: Spark what it cannot look into.
MODULES: Final = {
    "iceberg": "pykafka_wire.ingest.tables.iceberg.format",
    "delta": "pykafka_wire.ingest.tables.delta.format",
}


def format_of(settings: Settings) -> TableFormat:
    """Return the format of an ingest's tables."""
    return _format_in(MODULES[settings.table_format])


def every_format() -> Iterator[TableFormat]:
    """Yield all formats."""
    return map(_format_in, MODULES.values())


def format_at(place: str) -> TableFormat | None:
    """Return the format that reads the table at a place, a path or a name in Spark's catalog; None if there is no table."""
    return next((each for each in every_format() if each.placed.has_table(place)), None)


def _format_in(module: str) -> TableFormat:
    return cast("TableFormat", import_module(module).FORMAT)
