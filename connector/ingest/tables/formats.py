"""The table formats, by the values of the setting ``table_format``.

A format is a subpackage whose module ``format`` defines one object, ``FORMAT``. The modules are listed by name, so that the
libraries of a format are loaded only when a table of that format is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from pykafka_wire.ingest.settings.model import Settings
    from pykafka_wire.ingest.tables.format import TableFormat

#: The modules that define ``FORMAT``.
MODULES: Final = {
    "delta": "pykafka_wire.ingest.tables.delta.format",
    "iceberg": "pykafka_wire.ingest.tables.iceberg.format",
}


def format_of(settings: Settings) -> TableFormat:
    """Return the format of an ingest's tables."""
    return cast("TableFormat", import_module(MODULES[settings.table_format]).FORMAT)
