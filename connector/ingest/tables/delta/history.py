"""The history of a Delta table: the position in each commit of an ingest, and commits that replaced rows after the newest one.

A commit has the names of Delta's ``commitInfo`` and ``version``, as in Spark's DESCRIBE HISTORY and in deltalake's ``history``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias

from pykafka_wire.ingest.tables.position import POSITION_PROPERTY, Landed

Commit: TypeAlias = Mapping[str, Any]
#: The number of commits to read first: other programs rarely commit more often between two commits of an ingest.
RECENT: Final = 20
#: Delta's names of operations that replace all rows, without a condition. A WRITE in mode Overwrite is another one.
_REWRITES: Final = frozenset(
    (
        "CLONE",
        "RESTORE",
        "TRUNCATE",
        *(f"{verb} TABLE{rest}" for verb in ("REPLACE", "CREATE OR REPLACE") for rest in ("", " AS SELECT")),
    )
)
#: Delta's name of the operation that sets properties of a table. A copy's first commit names the copied properties, too.
_ALTER: Final = "SET TBLPROPERTIES"


def landed_in(commits: Iterable[Commit]) -> Iterator[Landed]:
    """Yield the position in each commit of an ingest among these commits."""
    for commit in commits:
        n_added = (commit.get("operationMetrics") or {}).get("numOutputRows")
        landed = Landed.from_json(commit.get("userMetadata"), None if n_added is None else int(n_added))
        if landed is not None:
            yield landed


def newest_position(
    newest: Callable[[int | None], Sequence[Commit]], limits: Iterable[int | None]
) -> tuple[Landed | None, Sequence[Commit]]:
    """Return the position in the newest commit of an ingest, or None, and the commits that were read for it.

    Args:
        newest: returns that many of the newest commits, newest first; all for None.
        limits: how many commits to read, until one of an ingest is among them.
    """
    commits: Sequence[Commit] = ()
    for limit in limits:
        commits = newest(limit)
        landed = next(landed_in(commits), None)
        if landed is not None or (limit is not None and len(commits) < limit):  # fewer: these are all commits
            return landed, commits
    return None, commits


def landed_history(newest: Callable[[int | None], Sequence[Commit]], until: int | None = None) -> Iterator[Landed]:
    """Yield the position in each commit of an ingest, newest first, as far back as the table's history goes.

    Args:
        newest: returns that many of the newest commits, newest first; all for None.
        until: the newest version to include, by default the table's newest.
    """

    def landed(commits: Sequence[Commit]) -> Iterator[Landed]:
        return landed_in(commit for commit in commits if until is None or commit["version"] <= until)

    recent = newest(RECENT)
    yield from landed(recent)
    if len(recent) == RECENT:
        yield from landed(newest(None)[RECENT:])


def rewrite_of(commits: Iterable[Commit]) -> str | None:
    """Return the newest commit that replaced rows of a Delta table after the ingest's newest commit; None if there is none.

    Args:
        commits: the table's history, newest first.
    """
    others = takewhile(lambda commit: Landed.from_json(commit.get("userMetadata")) is None, commits)
    for commit in others:
        operation, parameters = commit.get("operation"), commit.get("operationParameters") or {}
        if operation in _REWRITES or (operation == "WRITE" and parameters.get("mode") == "Overwrite"):
            return f"version {commit.get('version')} ({operation})"
    return None


def is_copy(commits: Sequence[Commit]) -> bool:
    """Return whether another program has made a Delta table as a copy of an ingest's: by CLONE, or by CREATE TABLE … LIKE.

    A copy has the properties of the copied table. Their position may be older than the copied rows, since the transaction ids of
    later positions are not copied.

    Args:
        commits: the table's history, newest first; none of them has a position.
    """
    is_whole = bool(commits) and commits[-1].get("version") == 0
    changes = (commit.get("operationParameters") or {} for commit in commits if commit.get("operation") == _ALTER)
    return is_whole and not any(POSITION_PROPERTY in str(change.get("properties")) for change in changes)
