"""An archive of the classes that Spark loads, with which Java starts Spark in about half the processor's time.

Owns: where the archive is, which run of Spark records it, and when it is used. Must not know: what the Spark session is for.

Java calls this application class data sharing, with dynamic archives (JEP 350). The first Spark of a set of jars writes the archive
when its Java process ends, which takes Java some seconds more. The next start checks the archive and renames it; a process that was
killed leaves none, or one that the check refuses. Java ignores an archive, without an error, whose jars have changed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pykafka_wire.local.jars import cache_dir, downloading
from pykafka_wire.local.java import Java

#: Java says nothing about an archive that it ignores: Spark starts all the same.
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_CHECK_TIMEOUT_S: Final = 60.0
#: An archive has some 180 MB; others in the cache are of versions before.
_MAX_ARCHIVES: Final = 2
#: So many runs record their classes without leaving an archive, as where each container has an empty cache; then none does.
_MAX_RECORDINGS: Final = 3

logger = logging.getLogger(__name__)


class SparkClasses:
    """The archive of one Java and one set of jars."""

    def __init__(self, java: Java, spark_home: Path, jars: Sequence[Path]) -> None:
        """Take what decides whether an archive fits; nothing is looked at yet."""
        self._java = java
        about = java.home / "release"  # the version with its build, the vendor, the platform
        described = about.read_text() if about.is_file() else str(java.version)
        parts = (str(java.home), described, str(spark_home), *map(str, jars))
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
        self._archive = cache_dir() / "classes" / f"spark-{key}.jsa"
        self._class_path = self._archive.with_suffix(".path")

    def options(self) -> list[str]:
        """Return Java's options by which Spark uses the archive, or records one.

        None where the cache cannot be written, or recording has failed several times.
        """
        try:
            if self._archive.exists():
                self._remove_recordings()
                return [f"-XX:SharedArchiveFile={self._archive}", *_QUIET]
            self._archive.parent.mkdir(parents=True, exist_ok=True)
            with downloading():
                recorded = list(self._archive.parent.glob(f".{self._archive.name}.*"))
                if self._archive.exists() or any(map(self._take, recorded)):
                    return [f"-XX:SharedArchiveFile={self._archive}", *_QUIET]
                if len(recorded) >= _MAX_RECORDINGS:
                    return []
                scratch = self._archive.with_name(f".{self._archive.name}.{os.getpid()}")
                scratch.touch()  # counts, even if its process is killed
            return [f"-XX:ArchiveClassesAtExit={scratch}", *_QUIET]
        except OSError as error:  # the cache may be read-only
            logger.info("no archive of Spark's classes in %s: %s", self._archive.parent, error)
            return []

    def keep_class_path(self, class_path: str) -> None:
        """Keep ``java.class.path`` of a Spark that has started: an archive is checked with the path of its recording."""
        if not self._archive.exists():
            with suppress(OSError):
                self._class_path.write_text(class_path)

    def _take(self, scratch: Path) -> bool:
        """Rename a recorded archive if Java takes it: Java crashes on an archive that was cut off."""
        if not scratch.stat().st_size or not self._class_path.exists():
            return False
        command = [str(self._java.executable), "-Xshare:on", "-XX:+VerifySharedSpaces"]
        command += [f"-XX:SharedArchiveFile={scratch}", f"-XX:ErrorFile={os.devnull}"]
        command += ["-cp", self._class_path.read_text(), "-version"]
        try:
            checked = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        if checked.returncode != 0 or checked.stdout:  # the version goes to standard error
            logger.info("Java refuses the archive of Spark's classes %s: %s", scratch, checked.stdout)
            return False
        scratch.rename(self._archive)
        self._remove_recordings()
        archives = sorted(self._archive.parent.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in archives[:-_MAX_ARCHIVES]:
            old.unlink(missing_ok=True)  # a Java that has mapped it keeps it
        return True

    def _remove_recordings(self) -> None:
        """Remove those of runs that ended after another one's was taken."""
        for recording in self._archive.parent.glob(f".{self._archive.name}.*"):
            recording.unlink(missing_ok=True)
