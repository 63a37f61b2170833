"""The lease of a checkpoint: one process at a time runs the ingest that the checkpoint belongs to.

The lease is a small JSON file in the checkpoint's folder, so that it works wherever the checkpoint is stored. Its holder renews the
file every few seconds. A lease is over when its holder has released it, when the holder's process has ended on this machine, or
when nobody has renewed it for :data:`EXPIRES_AFTER_S`. pyarrow has no exclusive creation for object stores: who takes the lease
reads the file again, and the last writer has it. Where two processes believe for a moment that each has it, the tables' positions
let no record land twice.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from pykafka_wire.checkpoints.files import local_folder, open_folder
from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: The file's name. Spark ignores files that it does not know in a checkpoint.
FILE_NAME: Final = "_pykafka-wire.lease"
#: The holder renews the lease so often, and others consider a lease over that was not renewed for so long, in seconds.
RENEWED_EVERY_S: Final = 5.0
EXPIRES_AFTER_S: Final = 30.0
#: Between two looks at another holder's lease.
_LOOK_S: Final = 0.5
#: Who takes the lease waits so long before reading the file again: another process may have written it meanwhile.
_SETTLE_S: Final = 0.05
_SETTLE_REMOTE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a lease.

    Attributes:
        id: of the lease; each run of an ingest takes a new one.
        machine: equal where ``process`` is a process that this one can see.
        process: the process id.
        born: when the process began, as the machine counts; empty where that is unknown.
        started_at: when the run began, as ISO-8601 in UTC.
        checkpoint: the folder, as the settings name it, without credentials.
        place: the folder by the one name that all ways of writing it have.
        inode: the number of a local folder in its file system, which is the same wherever that is mounted; 0 where unknown.
    """

    id: str
    host: str
    machine: str
    process: int
    born: str
    started_at: str
    checkpoint: str
    place: str
    inode: int

    @classmethod
    def here(cls, checkpoint: str) -> Holder:
        """Return this process as the holder of a new lease. Raises OptionError for a URI that pyarrow does not know."""
        return cls(
            id=uuid.uuid4().hex,
            host=platform.node(),
            machine=_machine(),
            process=os.getpid(),
            born=_born(os.getpid()) or "",
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            checkpoint=without_secrets(checkpoint),
            place=_place(checkpoint),
            inode=_inode(checkpoint),
        )

    @classmethod
    def from_json(cls, text: str) -> Holder | None:
        """Return the holder that a file names; None for a file of another form."""
        try:
            document: Any = json.loads(text)
            return cls(**{name: document[name] for name in cls.__slots__})
        except (ValueError, TypeError, KeyError):
            return None

    def is_alive(self) -> bool | None:
        """Return whether the process runs; None where this process cannot tell."""
        if self.machine != _machine():
            return None
        born = _born(self.process)
        if born is None:
            return False
        return born == self.born if born and self.born else None

    def is_of(self, other: Holder) -> bool:
        """Return whether two leases are of one folder: a lease that was copied with a checkpoint is the original's."""
        return self.place == other.place or (self.inode == other.inode and self.inode != 0)


def _place(checkpoint: str) -> str:
    local = local_folder(checkpoint)
    if local is not None:
        return str(Path(local).resolve())
    filesystem, folder = open_folder(checkpoint, "checkpoint")
    return f"{filesystem.type_name}:{folder}"


def _inode(checkpoint: str) -> int:
    local = local_folder(checkpoint)
    try:
        return 0 if local is None else Path(local).stat().st_ino
    except OSError:
        return 0


def _machine() -> str:
    """Return what identifies the processes that this one can see: the boot of this machine, and the namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # macOS
        return platform.node()


#: States of a process that has ended, and for which its parent has not waited yet, as in a container without an init process.
_ENDED: Final = ("Z", "X")


def _born(process: int) -> str | None:
    """Return when a process of this machine began, empty where that is unknown; None where there is no such process."""
    try:
        os.kill(process, 0)
        # The command's name, in brackets, may have blanks.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in _ENDED else fields[19]
    except ProcessLookupError:
        return None
    except (OSError, IndexError):  # another user's, and macOS
        return ""


class _LeaseFile:
    """The file of a lease, in a local folder or an object store."""

    def __init__(self, checkpoint: str) -> None:
        """Take the checkpoint's folder. Raises OptionError for a URI that pyarrow does not know."""
        self._filesystem, folder = open_folder(checkpoint, "checkpoint")
        self._path = f"{folder}/{FILE_NAME}"
        self.is_local = local_folder(checkpoint) is not None

    def make_folder(self) -> None:
        """Make a local checkpoint's folder, which may be there. Raises OSError."""
        if self.is_local:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> str | None:
        """Return the file's text; None where there is no file. Raises OSError."""
        try:
            with self._filesystem.open_input_file(self._path) as file:
                return bytes(file.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        """Replace the file as a whole. Raises OSError."""
        if self.is_local:
            path = Path(self._path)
            written = path.with_name(f".{path.name}.{os.getpid()}")
            written.write_text(text)
            written.replace(path)
        else:
            with self._filesystem.open_output_stream(self._path) as file:
                file.write(text.encode())

    def delete(self) -> None:
        """Delete the file. Raises OSError."""
        self._filesystem.delete_file(self._path)


class CheckpointLease:
    """The lease of one checkpoint, which this process holds until :meth:`release`."""

    def __init__(self, file: _LeaseFile, holder: Holder, is_in_use: Callable[[], bool]) -> None:
        """Take what :meth:`take` has written; ``is_in_use`` is asked at each renewal, and ends the lease."""
        self._file = file
        self._holder = holder
        self._is_in_use = is_in_use
        self._other: Holder | None = None
        self._is_over = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="pykafka-wire-ingest-lease", daemon=True)
        self._renewer.start()
        atexit.register(self.release)

    @classmethod
    def take(cls, checkpoint: str, is_in_use: Callable[[], bool]) -> CheckpointLease | None:
        """Take the lease of a checkpoint, and renew the lease as long as ``is_in_use`` returns true.

        Another process's lease that may be over is watched for up to :data:`EXPIRES_AFTER_S`. A lease of this process is taken
        over.

        Returns:
            The lease; None where pyarrow cannot write to the checkpoint's file system: then nothing tells two processes apart.

        Raises:
            IngestError: another process runs the ingest of this checkpoint.
        """
        shown = without_secrets(checkpoint)
        try:
            file = _LeaseFile(checkpoint)
            file.make_folder()
            holder = Holder.here(checkpoint)
            _await_end(file, holder)
            file.write(json.dumps(asdict(holder)))
            time.sleep(_SETTLE_S if file.is_local else _SETTLE_REMOTE_S)
            written = file.read()
        except (OSError, OptionError) as error:
            _log.info("The lease of the checkpoint %s cannot be written: %s", shown, error)
            return None
        other = Holder.from_json(written or "")
        if other is not None and other.id != holder.id:
            raise _in_use(other)
        return cls(file, holder, is_in_use)

    def check(self) -> None:
        """Raise IngestError if another process has taken the lease, which it may where this one did not renew in time."""
        if self._other is not None:
            raise _in_use(self._other)

    @property
    def is_lost(self) -> bool:
        """Return whether another process has taken the lease."""
        return self._other is not None

    def release(self) -> None:
        """End the lease; nothing happens where it is over."""
        atexit.unregister(self.release)
        if not self._is_over.is_set():
            self._is_over.set()
            self._renewer.join(RENEWED_EVERY_S)
            self._delete()

    def _delete(self) -> None:
        with suppress(OSError):
            if self._holds():
                self._file.delete()

    def _holds(self) -> bool:
        holder = Holder.from_json(self._file.read() or "")
        if holder is not None and holder.id != self._holder.id:
            self._other = holder
        return not self.is_lost

    def _renew(self) -> None:
        n_renewals = 0
        while not self._is_over.wait(RENEWED_EVERY_S):
            if not self._is_in_use():
                self._is_over.set()
                self._delete()
                return
            n_renewals += 1
            try:
                if not self._holds():
                    return
                self._file.write(json.dumps({**asdict(self._holder), "renewals": n_renewals}))
            except OSError as error:
                _log.warning("The lease of the checkpoint %s cannot be renewed: %s", self._holder.checkpoint, error)


def check_free(checkpoint: str) -> None:
    """Return if no process of this machine holds a checkpoint's lease, as far as that shows at once.

    Raises:
        IngestError: another process of this machine runs the ingest of this checkpoint.
    """
    with suppress(OSError, OptionError):
        holder = Holder.here(checkpoint)
        other = _other_holder(_LeaseFile(checkpoint).read(), holder)
        if other is not None and other.is_alive():
            raise _in_use(other)


def _other_holder(text: str | None, holder: Holder) -> Holder | None:
    """Return the process that holds a lease by its file, if that is another process, and the lease is this checkpoint's."""
    other = Holder.from_json(text or "")
    is_own = other is not None and (other.machine, other.process) == (holder.machine, holder.process)
    return None if other is None or is_own or not other.is_of(holder) else other


def _await_end(file: _LeaseFile, holder: Holder) -> None:
    """Return when no other process holds the lease.

    Raises:
        IngestError: another process holds the lease: it runs on this machine, or renewed the lease meanwhile.
        OSError: the file cannot be read.
    """
    first = file.read()
    other = _other_holder(first, holder)
    if other is None or other.is_alive() is False:
        return
    if other.is_alive():
        raise _in_use(other)
    expires = time.monotonic() + EXPIRES_AFTER_S
    _log.warning(
        "The checkpoint %s has a lease of host %s, process %d, started at %s. The ingest starts if that process does not renew its "
        "lease within %.0f s.",
        *(holder.checkpoint, other.host, other.process, other.started_at, EXPIRES_AFTER_S),
    )
    while time.monotonic() < expires:
        time.sleep(_LOOK_S)
        now = file.read()
        if now is None:
            return
        if now != first:
            raise _in_use(Holder.from_json(now) or other)


def _in_use(other: Holder) -> IngestError:
    return IngestError(
        f"the ingest of the checkpoint {other.checkpoint} is running on host {other.host} in process {other.process}, started at "
        f"{other.started_at}: stop that process first, or give this ingest a checkpoint and tables of its own."
    )
