"""The formats of tables, by the names that the setting ``table_format`` has for them.

A format is a folder beside this module, whose module ``format`` has one object, ``FORMAT``. It is named here, by its module, so
that its libraries are loaded where a table of that format is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from pykafka_wire.ingest.settings.model import Settings
    from pykafka_wire.ingest.tables.format import TableFormat

#: Modules with the object ``FORMAT``.
MODULES: Final = {
    "delta": "pykafka_wire.ingest.tables.delta.format",
    "iceberg": "pykafka_wire.ingest.tables.iceberg.format",
}


def format_of(settings: Settings) -> TableFormat:
    """Return the format of an ingest's tables."""
    return cast("TableFormat", import_module(MODULES[settings.table_format]).FORMAT)
