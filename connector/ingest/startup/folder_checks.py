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

from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.places import is_spark_s_to_resolve, local_folder


def folder_mistakes(settings: Settings, names: Iterable[str]) -> list[str]:
    """Return the mistakes of the checkpoint's folder and of these tables' folders, as sentences."""
    mistakes = _folder_mistakes("checkpoint", settings.checkpoint)
    if not settings.is_folder or (folder := _local_folder(settings.into)) is None:
        return mistakes
    mistakes += _folder_mistakes("into", settings.into)
    query = query_of(settings.checkpoint)
    of_tables = (
        format_of(settings).folder_mistake(Path(folder, name), query)
        for name in dict.fromkeys([settings.rejects, *names])
    )
    return [*mistakes, *filter(None, of_tables)]


def is_local_folder(settings: Settings) -> bool:
    """Return whether the tables are in a folder of a local file system."""
    return settings.is_folder and _local_folder(settings.into) is not None


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


def query_of(checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query; None before the first start, or if the checkpoint cannot be read here."""
    local = _local_folder(checkpoint)
    try:
        return None if local is None else str(json.loads(Path(local, "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
