"""The current files of a Delta table that an ingest has added, found in the commits of the table's log.

Files of other programs, and files with a deletion vector, are left out. https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from pykafka_wire.ingest.files.compaction import LiveFile
from pykafka_wire.ingest.tables.log import KEPT_COMMITS
from pykafka_wire.ingest.tables.position import Landed

#: The key in the ``userMetadata`` of a compaction by an ingest.
_COMPACTION: Final = "pykafka-wire.compaction"
#: After more new commits than this, only the newest commits are read.
_MAX_BEHIND: Final = 1000


class OwnFiles:
    """Finds the files of one table by reading its log.

    Attributes:
        files: the files by path, in the order of their commits; at first only files of the newest commits.
        version: the version of the newest commit that was read, -1 before the first.
    """

    def __init__(self) -> None:
        self.files: dict[str, LiveFile] = {}
        self.version = -1

    def follow(self, version: int, entry_of: Callable[[int], bytes | None]) -> None:
        """Read the log up to a version.

        Args:
            entry_of: returns the log entry of a version; None if the log no longer has it.
        """
        if self.version < 0 or version - self.version > _MAX_BEHIND:
            self.files.clear()
            self.version = max(-1, version - KEPT_COMMITS)
        while self.version < version:
            self.version += 1
            entry = entry_of(self.version)
            if entry is None:  # the files that it has removed are unknown
                self.files.clear()
            else:
                self._take([json.loads(line) for line in entry.splitlines() if line.strip()])

    def _take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        info: Mapping[str, Any] = {}
        adds = list[Mapping[str, Any]]()
        for action in actions:
            info = action.get("commitInfo", info)
            for kind in ("add", "remove"):
                if kind in action:
                    self.files.pop(unquote(action[kind]["path"]), None)
            adds += [action["add"]] if "add" in action else []
        metadata = info.get("userMetadata")
        if Landed.from_json(metadata) is not None or is_compaction(metadata):
            for add in adds:
                self._add(add)

    def _add(self, add: Mapping[str, Any]) -> None:
        n_rows = json.loads(add.get("stats") or "{}").get("numRecords")
        if n_rows is not None and not add.get("deletionVector"):
            path = unquote(add["path"])
            self.files[path] = LiveFile(
                path=path, n_bytes=add["size"], n_rows=n_rows, partition=tuple(sorted(add["partitionValues"].items()))
            )


def compaction_metadata(n_replaced: int, n_added: int) -> str:
    """Return the ``userMetadata`` of a compaction."""
    return json.dumps({_COMPACTION: {"replaced": n_replaced, "added": n_added}})


def is_compaction(metadata: str | None) -> bool:
    """Return whether a commit with this ``userMetadata`` is a compaction by an ingest."""
    try:
        return _COMPACTION in json.loads(metadata or "{}")
    except (ValueError, TypeError):
        return False
