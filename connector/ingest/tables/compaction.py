"""Compaction of the files that an ingest itself has added to a table, by the driver's process, without Spark.

The rows are read and written beside the landing of the table. Only the commit, some milliseconds, is between two attempts to land
the table. The commit replaces files by others with the same rows, and nothing else: it leaves the table's position as it is, and
readers of the table's changes do not see the commit. What fails leaves the files as they were, and is tried again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from pykafka_wire.ingest.files.compaction import Compacted, LiveFile, compact, discard_compacted, due
from pykafka_wire.ingest.files.tasks import Folder
from pykafka_wire.ingest.tables.files_table import TableChangedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
#: The number of a run's commits between two checks of a table's files.
_CHECK_EVERY: Final = 8


class MayNotCommitError(Exception):
    """A compaction may not be committed now; no commit was begun."""


class CompactableTable(Protocol):
    """A table whose files can be replaced; not for several threads at once."""

    @property
    def folder(self) -> Folder: ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return pyarrow's schema of the table."""

    def own_files(self) -> Mapping[str, LiveFile]:
        """Look at the table; return the files that the ingest has added and that the table has now, by path, the oldest first.

        Only files whose rows are the table's are among these: none with deletes, or of another way to partition.

        Raises:
            TableChangedError: the table was made anew since the last look.
        """

    def spark_reason(self) -> str | None:
        """Return as :meth:`FilesTable.spark_reason`."""

    def replace_files(self, made: Sequence[Compacted]) -> None:
        """Replace files by others, by one commit, if the table is as :meth:`own_files` has found it, but for files that were added.

        Raises:
            TableChangedError: the table was changed; no commit was begun.
            errors of the format's library: the table, read afresh, has no such commit.
        """


class OwnCompaction:
    """Compacts one table."""

    def __init__(self, open_table: Callable[[SparkSession], CompactableTable | None], target_bytes: int) -> None:
        """Take what opens the table, or returns None where Spark alone commits to the table."""
        self._open_table = open_table
        self._target_bytes = target_bytes
        self._table: CompactableTable | None = None
        self._next_check = _CHECK_EVERY
        #: Files that cannot be compacted.
        self._left_alone: set[str] = set()
        #: Whether small files of the ingest become few by this way.
        self.is_effective = False

    def is_check_due(self, n_commits: int) -> bool:
        """Return whether to check the table after this number of commits of the run."""
        if n_commits < self._next_check:
            return False
        self._next_check = n_commits + _CHECK_EVERY
        return True

    def run(
        self,
        session: SparkSession,
        committing: Callable[[], AbstractContextManager[None]],
        check_running: Callable[[], None],
    ) -> None:
        """Compact the files that are due.

        Args:
            committing: is entered while a commit is made; raises MayNotCommitError where none may be made now.
            check_running: raises if the run has ended.
        """
        try:
            self._table = self._table or self._open_table(session)
            self.is_effective = self._table is not None
            if self._table is not None:
                self._compact(self._table, committing, check_running)
        except Exception as error:
            self._table = None  # the next check opens the table again
            if not isinstance(error, (TableChangedError, MayNotCommitError)):
                raise
            _log.debug("Small files are compacted later: %s", error)

    def _compact(
        self,
        table: CompactableTable,
        committing: Callable[[], AbstractContextManager[None]],
        check_running: Callable[[], None],
    ) -> None:
        files = table.own_files()
        self.is_effective = table.spark_reason() is None
        if not self.is_effective:
            return
        self._left_alone &= files.keys()
        groups = due([file for path, file in files.items() if path not in self._left_alone], self._target_bytes)
        if not groups:
            return
        filesystem, folder = table.folder.open()
        made = compact(filesystem, folder, groups, table.arrow_schema, self._target_bytes, check_running)
        self._left_alone.update(file.path for each in made if not each.files for file in each.replaced)
        made = [each for each in made if each.files]
        if not made:
            return
        try:
            with committing():
                table.replace_files(made)
        except (TableChangedError, MayNotCommitError):
            discard_compacted(filesystem, folder, made)
            raise
