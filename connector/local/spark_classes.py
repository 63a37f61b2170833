"""An archive of the classes that Spark loads, with which Java starts Spark in about half the processor's time.

Owns: where the archive is, which run of Spark records it, and when it is used. Must not know: what the Spark session is for.

Java calls this application class data sharing, with dynamic archives (JEP 350). The first Spark of a set of jars writes the archive
when its Java process ends, which takes Java some seconds more. The next start checks the archive and renames it; a process that was
killed leaves none, or one that the check refuses. Java ignores an archive, without an error, whose jars have changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from pykafka_wire.local.jars import cache_dir
from pykafka_wire.local.java import Java

#: Java says nothing about an archive that it ignores: Spark starts all the same.
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_CHECK_TIMEOUT_S: Final = 60.0
#: An archive has some 180 MB; those that were not used for longest are of other versions or environments.
_MAX_ARCHIVES: Final = 4
#: So many runs record their classes without leaving an archive, as where each container has an empty cache; then none does.
_MAX_RECORDINGS: Final = 3
#: Java writes an archive in seconds. One that is refused so long after its beginning was cut off.
_WRITTEN_S: Final = 600.0
#: What Spark's options, its class path and Java's options cannot have in a path.
_REFUSED: Final = frozenset('":\\')

logger = logging.getLogger(__name__)


class SparkClasses:
    """The archive of one Java and one set of jars."""

    def __init__(self, java: Java, spark_home: Path, jars: Sequence[Path]) -> None:
        """Take what decides whether an archive fits; nothing is looked at yet."""
        self._java = java
        parts = (str(java.home), java.build, str(spark_home), *map(str, jars))
        key = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:8]
        self._archive = cache_dir() / "classes" / f"spark-{key}.jsa"
        #: What this run records.
        self._recording: Path | None = None

    def options(self) -> list[str]:
        """Return Java's options by which Spark uses the archive, or records one.

        None where the cache cannot be written, this Java cannot record, another process is about to, or recording has failed
        several times.
        """
        if _REFUSED & {*str(self._archive)}:
            return []
        try:
            if self._archive.exists() or self._take():
                with suppress(OSError):  # the cache may be another user's
                    os.utime(self._archive)
                    self._remove_recordings()
                return [f"-XX:SharedArchiveFile={self._archive}", *_QUIET]
            return [] if self._recording is None else [f"-XX:ArchiveClassesAtExit={self._recording}", *_QUIET]
        except OSError as error:  # the cache may be read-only
            logger.info("no archive of Spark's classes in %s: %s", self._archive.parent, error)
            return []

    def keep_class_path(self, class_path: str) -> None:
        """Keep ``java.class.path`` of this run's Spark, which has started: an archive is checked with the path of its recording.

        A recording without a path is of a start that was given up, and has hardly any class of Spark's.
        """
        if self._recording is not None:
            with suppress(OSError):
                _path_of(self._recording).write_bytes(class_path.encode(errors="surrogateescape"))

    def _take(self) -> bool:
        """Return whether there is an archive now, by the recording of a run before; else begin to record, if that is possible."""
        self._archive.parent.mkdir(parents=True, exist_ok=True)
        with (self._archive.parent / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            recordings = list(self._archive.parent.glob(f".{self._archive.name}.*.recorded"))
            for recording in filter(lambda path: path.stat().st_size and _path_of(path).exists(), recordings):
                if self._is_whole(recording):
                    recording.rename(self._archive)
                    self._remove_old()
                    return True
                if time.time() - recording.stat().st_mtime < _WRITTEN_S:
                    return False  # a Java writes it at this moment
                recording.unlink()
                recording.touch()  # counts
            if len(recordings) < _MAX_RECORDINGS:
                self._begin_recording()
            return False

    def _begin_recording(self) -> None:
        recording = self._archive.with_name(f".{self._archive.name}.{uuid4().hex}.recorded")
        recording.touch()  # counts, even if its process is killed
        probe = recording.with_suffix(".probe")
        # A Java that cannot record ends at once, as one with an agent does.
        if self._runs([f"-XX:ArchiveClassesAtExit={probe}", *_QUIET]):
            self._recording = recording
        probe.unlink(missing_ok=True)

    def _is_whole(self, recording: Path) -> bool:
        """Return whether Java takes an archive: it crashes on one that was cut off."""
        class_path = _path_of(recording).read_bytes().decode(errors="surrogateescape")
        options = ["-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={recording}"]
        return self._runs([*options, f"-XX:ErrorFile={os.devnull}", "-cp", class_path])

    def _runs(self, options: Sequence[str]) -> bool:
        command = [str(self._java.executable), *options, "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode != 0 or done.stdout:  # the version goes to standard error
            logger.info("Java has no archive of Spark's classes: %s%s", done.stdout, done.stderr)
            return False
        return True

    def _remove_old(self) -> None:
        archives = sorted(self._archive.parent.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in archives[:-_MAX_ARCHIVES]:
            old.unlink(missing_ok=True)  # a Java that has mapped it keeps it

    def _remove_recordings(self) -> None:
        """Remove those of runs that ended after another one's was taken."""
        for recording in self._archive.parent.glob(f".{self._archive.name}.*"):
            recording.unlink(missing_ok=True)


def _path_of(recording: Path) -> Path:
    return recording.with_suffix(".path")
