"""The lease of a checkpoint: only one process at a time runs the ingest of a checkpoint.

The lease is a small JSON file in the checkpoint's folder, so it works wherever the checkpoint is stored. The holder renews the file
every few seconds. A lease ends when its holder releases it, when the holder's process has ended on this machine, or when nobody has
renewed it for :data:`EXPIRES_AFTER_S`. pyarrow cannot create a file exclusively in an object store. So a process that takes the
lease reads the file again, and the last writer holds the lease. If two processes believe for a moment that they hold it, the
tables' positions still prevent duplicate records.
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

from pykafka_wire.errors import IngestError, OptionError
from pykafka_wire.places import local_folder, open_folder
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: The file's name. Spark ignores files that it does not know in a checkpoint.
FILE_NAME: Final = "_pykafka-wire.lease"
#: The interval of renewals, and the age without renewal at which other processes consider a lease ended, in seconds.
RENEWED_EVERY_S: Final = 5.0
EXPIRES_AFTER_S: Final = 30.0
#: The interval at which another holder's lease is read again, in seconds.
_LOOK_S: Final = 0.5
#: The time between writing the lease and reading it again, in seconds: another process may write meanwhile.
_SETTLE_S: Final = 0.05
_SETTLE_REMOTE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a lease.

    Attributes:
        id: the id of the lease, new for each run of an ingest.
        machine: equal to this machine's value if this process can see the holder's process.
        process: the process id.
        born: the start time of the process, in the machine's units; empty if unknown.
        started_at: the start of the run, in ISO-8601 and UTC.
        checkpoint: the folder in the settings, without credentials.
        place: the folder in a normal form, equal for all spellings of the same place.
        inode: the inode of a local folder, equal wherever the file system is mounted; 0 if unknown.
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
        """Return this process as the holder of a new lease. Raises OptionError for a URI that pyarrow does not support."""
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
        """Return the holder in a lease file; None if the file has another form."""
        try:
            document: Any = json.loads(text)
            return cls(**{name: document[name] for name in cls.__slots__})
        except (ValueError, TypeError, KeyError):
            return None

    def is_alive(self) -> bool | None:
        """Return whether the process is running; None if this process cannot know."""
        if self.machine != _machine():
            return None
        born = _born(self.process)
        if born is None:
            return False
        return born == self.born if born and self.born else None

    def is_of(self, other: Holder) -> bool:
        """Return whether two leases belong to the same folder. A lease that was copied with a checkpoint belongs to the
        original."""
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
    """Return an identifier of the processes that this process can see: the machine's boot id and the process id namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # macOS
        return platform.node()


#: States of an ended process whose parent has not waited for it yet, as in a container without an init process.
_ENDED: Final = ("Z", "X")


def _born(process: int) -> str | None:
    """Return the start time of a process on this machine, empty if unknown; None if there is no such process."""
    try:
        os.kill(process, 0)
        # The command's name, in parentheses, may contain spaces.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in _ENDED else fields[19]
    except ProcessLookupError:
        return None
    except (OSError, IndexError):  # another user's process, or macOS
        return ""


class _LeaseFile:
    """The lease file, in a local folder or an object store."""

    def __init__(self, checkpoint: str) -> None:
        """Open the checkpoint's file system. Raises OptionError for a URI that pyarrow does not support."""
        self._filesystem, folder = open_folder(checkpoint, "checkpoint")
        self._path = f"{folder}/{FILE_NAME}"
        self.is_local = local_folder(checkpoint) is not None

    def make_folder(self) -> None:
        """Create a local checkpoint's folder if it does not exist. Raises OSError."""
        if self.is_local:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> str | None:
        """Return the file's text; None if there is no file. Raises OSError."""
        try:
            with self._filesystem.open_input_file(self._path) as file:
                return bytes(file.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        """Replace the whole file. Raises OSError."""
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
        """Store the lease that :meth:`take` has written, and start its renewals; ``is_in_use`` is called before each renewal."""
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
        """Take the lease of a checkpoint, and renew the lease while ``is_in_use`` returns true.

        If another process's lease may have ended, wait up to :data:`EXPIRES_AFTER_S` for a renewal. A lease of this same process
        is replaced.

        Returns:
            The lease; None if pyarrow cannot write to the checkpoint's file system, so that two processes cannot be detected.

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
            _log.info(
                "The lease of the checkpoint %s cannot be written, so a second process is not detected: %s",
                shown,
                error,
            )
            return None
        other = Holder.from_json(written or "")
        if other is not None and other.id != holder.id:
            raise _in_use(other)
        return cls(file, holder, is_in_use)

    def check(self) -> None:
        """Raise IngestError if another process has taken the lease, which can happen if this process did not renew it in time."""
        if self._other is not None:
            raise _in_use(self._other)

    @property
    def is_lost(self) -> bool:
        """Return whether another process has taken the lease."""
        return self._other is not None

    def release(self) -> None:
        """End the lease. A second call has no effect."""
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
    """Check that no other process of this machine holds a checkpoint's lease. Does not wait.

    Raises:
        IngestError: another process of this machine runs the ingest with this checkpoint.
    """
    with suppress(OSError, OptionError):
        holder = Holder.here(checkpoint)
        other = _other_holder(_LeaseFile(checkpoint).read(), holder)
        if other is not None and other.is_alive():
            raise _in_use(other)


def _other_holder(text: str | None, holder: Holder) -> Holder | None:
    """Return the holder in a lease file if it is another process and the lease belongs to this checkpoint."""
    other = Holder.from_json(text or "")
    is_own = other is not None and (other.machine, other.process) == (holder.machine, holder.process)
    return None if other is None or is_own or not other.is_of(holder) else other


def _await_end(file: _LeaseFile, holder: Holder) -> None:
    """Wait until no other process holds the lease.

    Raises:
        IngestError: another process holds the lease: it runs on this machine, or it renewed the lease meanwhile.
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
        "The checkpoint %s has a lease of host %s, process %d, started at %s. The ingest starts unless that process renews the "
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
