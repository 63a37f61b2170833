"""The owner of a Delta table in a folder of this machine, by the first entries of its log: without Spark and without deltalake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_LOG: Final = "_delta_log"
#: The table property with the id of the ingest's query, and the key of the position in a commit's metadata.
_OWNER: Final = "pykafka-wire.query"
_COMMIT: Final = "pykafka-wire"
#: The number of log entries that are read to find a table's owner.
_ENTRIES: Final = 20


def owner_mistake(folder: Path, query: str | None) -> str | None:
    """Return a mistake if a folder is neither empty nor a table of the ingest whose query has this id."""
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return None
        entries = sorted((folder / _LOG).glob("[0-9]*.json"))
        actions = [json.loads(line) for entry in entries[:_ENTRIES] for line in entry.read_text().splitlines() if line]
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        return f"the folder {folder} cannot be read ({reason}): give its topic another table by name in [[table]]"
    if not (folder / _LOG).is_dir():
        return f"the folder {folder} has files that are not a Delta table: name another place by into, or by name in [[table]]"
    owner = next(filter(None, map(_owner_in, reversed(actions))), None)
    is_whole = bool(entries) and int(entries[0].stem) == 0 and len(entries) <= _ENTRIES
    advice = (
        "give its topic another table by name in [[table]], or another place by into; nothing is written to this table"
    )
    if owner is None and is_whole:
        return f"the table {folder} exists, but no ingest has created it: {advice}"
    if owner is not None and query is not None and owner != query:
        return (
            f"the table {folder} belongs to another ingest, whose query has the id {owner} (this checkpoint's query: {query}): "
            f"use that ingest's checkpoint, or {advice}"
        )
    return None


def _owner_in(action: Any) -> str | None:  # Any: an action in Delta's log
    """Return the query id in a log action."""
    if not isinstance(action, dict):
        return None
    owner = (action.get("metaData") or {}).get("configuration", {}).get(_OWNER)
    if owner is None:  # after a crash before the properties were set, only the commits name the owner
        try:
            owner = json.loads((action.get("commitInfo") or {}).get("userMetadata") or "{}")[_COMMIT]["query"]
        except (ValueError, KeyError, TypeError):
            return None
    return str(owner)
