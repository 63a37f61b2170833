"""Checks the folders of an ingest before Spark starts: whether they are writable, and who owns the tables in them.

Only checks local file systems. Spark checks the rest: other file systems, catalog tables, and tables whose log no longer has its
first entries.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pykafka_wire.checkpoints.files import is_spark_s_to_resolve, local_folder
from pykafka_wire.ingest.settings.model import Settings

_LOG: Final = "_delta_log"
#: The table property with the id of the ingest's query, and the key of the position in a commit's metadata.
_OWNER: Final = "pykafka-wire.query"
_COMMIT: Final = "pykafka-wire"
#: The number of log entries that are read to find a table's owner.
_ENTRIES: Final = 20


def folder_mistakes(settings: Settings, names: Iterable[str]) -> list[str]:
    """Return the mistakes of the checkpoint's folder and of these tables' folders, as sentences."""
    mistakes = _folder_mistakes("checkpoint", settings.checkpoint)
    if not settings.is_folder or (folder := _local_folder(settings.into)) is None:
        return mistakes
    mistakes += _folder_mistakes("into", settings.into)
    query = query_of(settings.checkpoint)
    for name in dict.fromkeys([settings.rejects, *names]):
        mistakes += _table_mistakes(Path(folder, name), query)
    return mistakes


def _local_folder(place: str) -> str | None:
    """Return the local folder of a place; None for other file systems, and if only Spark can resolve the place."""
    return None if is_spark_s_to_resolve(place) else local_folder(place)


def _folder_mistakes(name: str, place: str) -> list[str]:
    """Return a mistake if a local folder cannot be created or written."""
    local = _local_folder(place)
    if local is None:
        return []
    there = Path(local)
    while not os.access(there, os.F_OK) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return [f"{name} is {place}, but {there} is not a folder: use another folder"]
    try:  # permissions do not show read-only or full file systems, nor the rights of root
        Path(tempfile.mkdtemp(prefix=".pykafka-wire-", dir=there)).rmdir()
    except OSError as error:
        reason = error.strerror or str(error)
        return [
            f"{name} is {place}, but {there} is not writable ({reason}): use another folder, or get write permission"
        ]
    return []


def _table_mistakes(path: Path, query: str | None) -> list[str]:
    """Return a mistake if a table's folder is neither empty nor a table of this ingest."""
    try:
        if not path.exists() or not any(path.iterdir()):
            return []
        entries = sorted((path / _LOG).glob("[0-9]*.json"))
        actions = [json.loads(line) for entry in entries[:_ENTRIES] for line in entry.read_text().splitlines() if line]
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        return [f"the folder {path} cannot be read ({reason}): give its topic another table by name in [[table]]"]
    if not (path / _LOG).is_dir():
        return [
            f"the folder {path} has files that are not a Delta table: name another place by into, or by name in [[table]]"
        ]
    owner = next(filter(None, map(_owner_in, reversed(actions))), None)
    is_whole = bool(entries) and int(entries[0].stem) == 0 and len(entries) <= _ENTRIES
    advice = (
        "give its topic another table by name in [[table]], or another place by into; nothing is written to this table"
    )
    if owner is None and is_whole:
        return [f"the table {path} exists, but no ingest has created it: {advice}"]
    if owner is not None and query is not None and owner != query:
        return [
            f"the table {path} belongs to another ingest, whose query has the id {owner} (this checkpoint's query: {query}): "
            f"use that ingest's checkpoint, or {advice}"
        ]
    return []


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


def query_of(checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query; None before the first start, or if the checkpoint cannot be read here."""
    local = _local_folder(checkpoint)
    try:
        return None if local is None else str(json.loads(Path(local, "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
