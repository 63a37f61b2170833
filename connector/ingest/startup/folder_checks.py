"""The folders of an ingest, looked at before Spark starts: whether they can be written, and whose tables are there.

Owns what shows in a local file system without Spark. What does not is left to Spark: other file systems, tables of a catalog, and
tables whose log no longer has its first entries.
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
#: The property that names the query of the ingest that made a table, and the key of its commits' metadata.
_OWNER: Final = "pykafka-wire.query"
_COMMIT: Final = "pykafka-wire"
#: So many entries of a table's log are read for its owner.
_ENTRIES: Final = 20


def folder_mistakes(settings: Settings, names: Iterable[str]) -> list[str]:
    """Return what is wrong with the folders of the checkpoint and of these tables, as sentences that name them."""
    mistakes = _folder_mistakes("checkpoint", settings.checkpoint)
    if not settings.is_folder or (folder := _local_folder(settings.into)) is None:
        return mistakes
    mistakes += _folder_mistakes("into", settings.into)
    query = query_of(settings.checkpoint)
    for name in dict.fromkeys([settings.rejects, *names]):
        mistakes += _table_mistakes(Path(folder, name), query)
    return mistakes


def _local_folder(place: str) -> str | None:
    """Return the folder of a place in this machine's file system; None for another one, and where it is unknown without Spark."""
    return None if is_spark_s_to_resolve(place) else local_folder(place)


def _folder_mistakes(name: str, place: str) -> list[str]:
    """Return whether a local folder can be made, and written to."""
    local = _local_folder(place)
    if local is None:
        return []
    there = Path(local)
    while not os.access(there, os.F_OK) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return [f"{name} is {place}, and {there} is no folder: name another one"]
    try:  # permissions alone do not tell: of root, of read-only and full file systems
        Path(tempfile.mkdtemp(prefix=".pykafka-wire-", dir=there)).rmdir()
    except OSError as error:
        reason = error.strerror or str(error)
        return [
            f"{name} is {place}, and {there} cannot be written to ({reason}): name another folder, or get the permission"
        ]
    return []


def _table_mistakes(path: Path, query: str | None) -> list[str]:
    """Return whether a table's folder is free, or holds a table of this ingest."""
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
            f"the folder {path} has files that are no Delta table: name another place by into, or by name in [[table]]"
        ]
    owner = next(filter(None, map(_owner_in, reversed(actions))), None)
    is_whole = bool(entries) and int(entries[0].stem) == 0 and len(entries) <= _ENTRIES
    advice = (
        "give its topic another table by name in [[table]], or name another place by into; nothing is written to it"
    )
    if owner is None and is_whole:
        return [f"the table {path} exists, but no ingest has created it: {advice}"]
    if owner is not None and query is not None and owner != query:
        return [
            f"the table {path} belongs to another ingest, whose query has the id {owner}, and this checkpoint's query is {query}: "
            f"use that ingest's checkpoint, or {advice}"
        ]
    return []


def _owner_in(action: Any) -> str | None:  # Any: an action of Delta's log
    """Return the id of the query that an action names."""
    if not isinstance(action, dict):
        return None
    owner = (action.get("metaData") or {}).get("configuration", {}).get(_OWNER)
    if owner is None:  # a crash before the properties leaves a table that only its commits tell
        try:
            owner = json.loads((action.get("commitInfo") or {}).get("userMetadata") or "{}")[_COMMIT]["query"]
        except (ValueError, KeyError, TypeError):
            return None
    return str(owner)


def query_of(checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query; None before the first start, and where it cannot be read here."""
    local = _local_folder(checkpoint)
    try:
        return None if local is None else str(json.loads(Path(local, "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
