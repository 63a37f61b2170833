"""A pytest plugin that switches one check of the client off: `MUTANT=crc pytest -p tests.mutants.switched_off …`.

The module's source is changed while it is imported, in this process alone; what is to be changed must be there, or the
import fails with another exit code than a failed test has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

import pytest


class Mutant(NamedTuple):
    """A check: the module that makes it, what of its source to replace by what, and the tests that must notice."""

    module: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


MUTANTS: Final[dict[str, Mutant]] = {
    "crc": Mutant(
        "records.batch_framing", (("if crc32c(frame[start:end]) != crc:", "if False:"),), ("tests/wire/test_decode.py",)
    ),
    "aborted transactions": Mutant(
        "records.decode", (("wanted &= ~aborted_batches(framed, slices)", "pass"),), ("tests/wire/test_decode.py",)
    ),
    "last stable offset in Fetch": Mutant(
        "fetch.range_read",
        (("isolation_level=int(self._handler.read_committed)", "isolation_level=0"),),
        ("tests/wire/test_range_read.py::test_an_end_above_the_last_stable_offset_names_the_open_transaction",),
    ),
    "last stable offset in ListOffsets": Mutant(
        "cluster.admin",
        (('isolation_level=int(isolation_level == "read_committed")', "isolation_level=0"),),
        ("tests/wire/test_admin.py::test_a_committed_read_ends_before_an_open_transaction",),
    ),
    "SCRAM server signature": Mutant(
        "security.scram",
        (("if match is None or not hmac.compare_digest(expected, self._base64(match[1])):", "if match is None:"),),
        ("tests/wire/test_scram.py",),
    ),
    "host name": Mutant(
        "security.tls",
        (("ssl_context.check_hostname = check_hostname", "ssl_context.check_hostname = False"),),
        ("tests/wire/test_tls.py",),
    ),
}


def changed_source(path: Path, changes: tuple[tuple[str, str], ...]) -> str:
    """A module's source with the changes made, each of them in its one place."""
    source = path.read_text("utf-8")
    for old, new in changes:
        if source.count(old) != 1:
            raise pytest.UsageError(f"{path} has no longer exactly one {old!r}")
        source = source.replace(old, new)
    return source


class _Changed(SourceFileLoader):
    changes: tuple[tuple[str, str], ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(changed_source(Path(path), self.changes), path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._name = f"pykafka_wire.wire.{mutant.module}"
        self._changes = mutant.changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname == self._name else None
        if found is not None and found.origin is not None:
            found.loader = _Changed(fullname, found.origin)
            found.loader.changes = self._changes
        return found


if "MUTANT" in os.environ:
    import sys

    sys.meta_path.insert(0, _Finder(MUTANTS[os.environ["MUTANT"]]))
