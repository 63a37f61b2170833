"""The tables of an ingest's settings in docs/ingest-settings.md, from the fields that declare the settings."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.wire.settings import default_text
from pykafka_wire.wire.settings.documentation import mark_experimental


def settings_table(of_tables: bool) -> str:
    """Return the table of an ingest's settings, or of its tables' settings, as Markdown for docs/ingest-settings.md."""
    lines = ["| name | default | meaning |", "|---|---|---|"]
    for setting in fields(Table if of_tables else Settings):
        if row := setting.metadata:
            meaning = mark_experimental(row["meaning"], row["is_experimental"])
            lines.append(f"| `{setting.name}` | {row['default'] or _default_cell(setting)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _default_cell(setting: Field[Any]) -> str:
    if setting.default is MISSING:
        return "required" if setting.default_factory is MISSING else "none"
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        return f"{setting.default:,}"
    text = default_text(setting.default)
    return text if text == "none" else f"`{text}`"
