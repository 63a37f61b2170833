"""Compacts the files that an ingest has added to a table, in the driver's process, without Spark.

Rows are read and written while the table is being landed. Only the commit, which takes some milliseconds, needs a pause between two
attempts to land the table. The commit only replaces files by files with the same rows: the table's position stays, and readers of
the table's changes do not see the commit. After an error the old files stay, and the compaction is tried again later.
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
#: The number of commits of a run between two checks of a table's files.
_CHECK_EVERY: Final = 8


class MayNotCommitError(Exception):
    """A compaction must not be committed now; no commit was begun."""


class CompactableTable(Protocol):
    """A table whose files can be replaced; used by one thread at a time."""

    @property
    def folder(self) -> Folder: ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the table's schema as a pyarrow schema."""

    def own_files(self) -> Mapping[str, LiveFile]:
        """Read the table again, and return its current files that the ingest has added, by path, the oldest first.

        Files with deleted rows, and files of another partition spec, are left out.

        Raises:
            TableChangedError: the table was created again since the last call.
        """

    def spark_reason(self) -> str | None:
        """Return the same as :meth:`FilesTable.spark_reason`."""

    def replace_files(self, made: Sequence[Compacted]) -> None:
        """Replace files in one commit, if the table has only got new files since the last call of :meth:`own_files`.

        Raises:
            TableChangedError: the table was changed; no commit was begun.
            errors of the format's library: the commit is not in the table when it is read afresh.
        """


class OwnCompaction:
    """Compacts the ingest's own files in one table."""

    def __init__(self, open_table: Callable[[SparkSession], CompactableTable | None], target_bytes: int) -> None:
        """Store the function that opens the table; it returns None if only Spark commits to the table."""
        self._open_table = open_table
        self._target_bytes = target_bytes
        self._table: CompactableTable | None = None
        self._next_check = _CHECK_EVERY
        #: The paths of files that cannot be merged.
        self._left_alone: set[str] = set()
        #: Whether this object compacts the ingest's files; otherwise only Spark does.
        self.is_effective = False

    def is_check_due(self, n_commits: int) -> bool:
        """Return whether to check the table's files after this number of commits of the run."""
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
            committing: a context for a commit; raises MayNotCommitError if no commit is allowed now.
            check_running: raises an error if the run has ended.
        """
        try:
            self._table = self._table or self._open_table(session)
            self.is_effective = self._table is not None
            if self._table is not None:
                self._compact(self._table, committing, check_running)
        except Exception as error:
            self._table = None  # the next check opens the table again
            self.is_effective = False
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
        is_begun = False
        try:
            with committing():
                is_begun = True
                table.replace_files(made)
        except Exception as error:
            if not is_begun or isinstance(error, TableChangedError):
                discard_compacted(filesystem, folder, made)
            raise
