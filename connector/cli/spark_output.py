"""Redirects standard error while Spark runs: Spark's processes share it, and print many lines that are not errors.

On a terminal, standard error goes to a file; otherwise, lines without information are filtered out. Unless the user names a file,
it is created in :func:`log_folder`, which keeps the newest files.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tempfile
import threading
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import click

from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import WireError

#: The beginnings of lines that Java prints at each start.
_CHATTER: Final = (b"WARNING: Using incubator modules", b"WARNING: A restricted method", b"WARNING: sun.misc.Unsafe")
#: The file in the traceback of an ending worker.
_WORKER: Final = b"pyspark/daemon.py"
_END: Final = b"\0\n"
_LAST_LINES_S: Final = 2.0
#: The number of files of earlier runs that are kept.
_MAX_LOGS: Final = 10


def log_folder() -> Path:
    """Return the folder of a user's logs: ``~/.local/state/pykafka-wire``, unless ``XDG_STATE_HOME`` is set.
    https://specifications.freedesktop.org/basedir-spec/latest/

    Raises:
        RuntimeError: the user has no home.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    # The specification says to ignore a relative path.
    return Path(state if state.is_absolute() else Path.home() / ".local" / "state", "pykafka-wire")


class SparkOutput:
    """A context that redirects standard error to a file.

    Attributes:
        path: the file. Its name has the command's or the ingest's name, the time in UTC, and the process id.
        is_kept: whether the file is kept at the end: if it explains an error, has warnings, or was named by the user.
        terminal: the original standard error.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        """Open the file.

        Args:
            path: a file named by the user; output is appended.

        Raises:
            OSError: ``path`` cannot be written.
        """
        self.is_kept = path is not None
        if path is None:
            self.path, self._file = _open_new(name)
        else:
            self.path = path.absolute()
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.terminal = os.dup(2)

    def __enter__(self) -> SparkOutput:
        sys.stderr.flush()
        os.dup2(self._file, 2)
        os.close(self._file)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        sys.stderr.flush()
        os.dup2(self.terminal, 2)
        os.close(self.terminal)
        # Errors of these classes explain themselves without the log.
        known = (ConnectorError, WireError, click.ClickException)
        self.is_kept |= isinstance(error, Exception) and not isinstance(error, known)
        if not self.is_kept:
            self.path.unlink(missing_ok=True)


def _open_new(name: str) -> tuple[Path, int]:
    """Create a file in :func:`log_folder`, and delete old files there; or create a temporary file if that is not possible."""
    try:
        folder = log_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_old(folder)
        begun_at = datetime.now(timezone.utc)
        path = folder / f"{re.sub(r'[^A-Za-z0-9._]+', '-', name)}-{begun_at:%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, RuntimeError):  # no home directory, or no space
        file, temporary = tempfile.mkstemp(prefix="pykafka-wire-", suffix=".log")
        return Path(temporary), file
    # Spark's processes inherit the lock, and hold it as long as they live.
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return path, file


def _remove_old(folder: Path) -> None:
    """Delete all logs except the newest ones, and except those that are being written."""
    logs = sorted(folder.glob("*.log"), key=lambda log: log.name.rsplit("-", 2)[1:], reverse=True)
    for log in logs[_MAX_LOGS - 1 :]:
        # Open for appending, since NFS locks a file exclusively only if it is writable.
        with (
            suppress(OSError),
            log.open("a") as opened,
        ):  # another process may have deleted it; or it belongs to another user
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError:  # a file system without locks
                pass
            log.unlink()


class WithoutChatter:
    """A context that filters lines without information from standard error: Java's warnings about its own modules, and the
    tracebacks with which Spark's Python workers end when nobody reads their results any more. All other lines pass."""

    def __init__(self) -> None:
        self._passed = threading.Event()
        self._error = os.dup(2)
        self._received, self._sent = os.pipe()

    def __enter__(self) -> WithoutChatter:
        sys.stderr.flush()
        os.dup2(self._sent, 2)
        threading.Thread(target=self._pass, daemon=True, name="pykafka-wire-stderr").start()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.write(self._sent, _END)
        os.close(self._sent)
        os.dup2(self._error, 2)
        if self._passed.wait(_LAST_LINES_S):
            os.close(self._error)

    def _pass(self) -> None:
        traceback: list[bytes] = []
        # Spark's processes hold the other end of the pipe as long as they live.
        with open(self._received, "rb") as lines:
            for line in lines:
                if line == _END:
                    os.write(self._error, b"".join(traceback))
                    self._passed.set()
                    return
                if traceback or line.startswith(b"Traceback "):
                    traceback.append(line)
                    is_last = len(traceback) > 1 and not line.startswith(b" ")
                    if is_last and not any(_WORKER in line for line in traceback):
                        os.write(self._error, b"".join(traceback))
                    traceback = [] if is_last else traceback
                elif not line.startswith(_CHATTER):
                    os.write(self._error, line)
