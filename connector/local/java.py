"""Finds a Java runtime for the local cluster, for Ivy and for PySpark, or downloads one.

Owns: where Java is looked for, how its version is judged, and what the user reads when there is none.
Must not know: what the runtime is used for.

Java 17 is the floor because Spark 4 and Kafka 4 brokers both ask for it (KIP-1013). Where no such Java is installed,
one is downloaded by the ``cjdk`` package into that package's own cache, outside of any project folder.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MINIMUM = 17
# The long-term release that runs every broker the project starts: Kafka 2.5 to 4.3 (2.5 fails on Java 21).
DOWNLOADED_VERSION = "17"
DOWNLOADED_VENDOR = "temurin"
# Takes 0.1 s on an idle machine and much longer on a loaded one; a hanging Java must not block.
VERSION_TIMEOUT_S = 60
# Where Debian and similar systems install Java, and the command that lists it on macOS.
LINUX_JVMS = Path("/usr/lib/jvm")
MACOS_JAVA_HOME = Path("/usr/libexec/java_home")

logger = logging.getLogger(__name__)
#: The attribute of a log record about a download: the user waits for the download, but nothing is wrong.
DOWNLOAD: Final = "pykafka_wire_download"
OF_DOWNLOAD: Final = {DOWNLOAD: True}


class JavaNotFoundError(RuntimeError):
    """No Java of the needed version is installed, and none could be downloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that starts."""

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def build(self) -> str:
        """Return the version with its build, the vendor and the platform, as the runtime describes itself: its archives of classes
        fit no other."""
        about = self.home / "release"
        return about.read_text(encoding="utf-8") if about.is_file() else str(self.version)


def find_java(minimum: int = MINIMUM) -> Java | None:
    """Return the first installed Java of at least version `minimum`, or None. Downloads nothing."""
    return _search(minimum)[0]


def ensure_java(minimum: int = MINIMUM) -> Java:
    """Return an installed Java of at least version `minimum`, else one downloaded through cjdk (a warning is logged).

    Raises:
        JavaNotFoundError: none is installed and the download failed; the message names what to install.
    """
    java, rejected = _search(minimum)
    if java is not None:
        return java
    seen = "; ".join(rejected) if rejected else "no java in JAVA_HOME or on the PATH"
    # A warning, not an info: the user has to wait for a download that they did not ask for.
    wanted = f"{DOWNLOADED_VENDOR} {DOWNLOADED_VERSION}"
    logger.warning(
        "Java %d or newer is needed (%s): downloading %s into the cache of the cjdk package",
        minimum,
        seen,
        wanted,
        extra=OF_DOWNLOAD,
    )
    try:
        import cjdk  # here, not above: only this path needs it

        home = Path(cjdk.java_home(vendor=DOWNLOADED_VENDOR, version=DOWNLOADED_VERSION))
        downloaded = probe(home, "cjdk")
        if downloaded is None or downloaded.version < minimum:
            raise JavaNotFoundError(f"the Java that cjdk downloaded into {home} does not start")
    # Exception: cjdk raises its own errors, those of requests and of the operating system; all mean the same here.
    except Exception as error:
        install = "brew install openjdk@17" if sys.platform == "darwin" else "apt-get install openjdk-17-jre-headless"
        reason = str(error).partition("\n")[0]
        raise JavaNotFoundError(
            f"Java {minimum} or newer is needed ({seen}) and downloading one failed ({type(error).__name__}: {reason}): install a "
            f"JDK, for example with `{install}`, and set JAVA_HOME to its folder if java is not on the PATH."
        ) from error
    logger.warning("Java %d is in %s", downloaded.version, downloaded.home, extra=OF_DOWNLOAD)
    return downloaded


def export_java_home(java: Java) -> None:
    """Make PySpark's launcher, started from this process later, use `java`."""
    os.environ["JAVA_HOME"] = str(java.home)


def probe(home: Path, origin: str) -> Java | None:
    """Return the Java below `home`, or None where there is none that starts."""
    # macOS ships /usr/bin/java even without a Java: it prints an advertisement and fails.
    version = parse_version(_output([str(home / "bin" / "java"), "-version"]))
    return None if version is None else Java(home=home, version=version, origin=origin)


def parse_version(text: str) -> int | None:
    """Return the feature release in what ``java -version`` prints: 8 for "1.8.0_372", 17 for "17.0.15", 26 for "26-ea"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _search(minimum: int) -> tuple[Java | None, list[str]]:
    """Return the first suitable Java and, for the error text, the others that were found and why they are not suitable."""
    rejected: list[str] = []
    for origin, home in _candidates(minimum):
        java = probe(home, origin)
        if java is not None and java.version >= minimum:
            return java, rejected
        why = "which has no java that starts" if java is None else f"which is Java {java.version}"
        rejected.append(f"{origin} names {home}, {why}")
    return None, rejected


def _candidates(minimum: int) -> Iterator[tuple[str, Path]]:
    if named := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(named)
    if on_path := shutil.which("java"):
        # The home that it names itself: it may be a link, or the script of a version manager.
        printed = _output([on_path, "-XshowSettings:properties", "-version"])
        match = re.search(r"^\s*java\.home = (.+)$", printed, re.MULTILINE)
        yield "the PATH", Path(match[1].strip()) if match else Path(on_path).resolve().parent.parent
    if MACOS_JAVA_HOME.exists() and (listed := _output([str(MACOS_JAVA_HOME), "-v", f"{minimum}+"])):
        yield str(MACOS_JAVA_HOME), Path(listed.strip())
    if LINUX_JVMS.is_dir():
        for home in sorted(LINUX_JVMS.iterdir(), reverse=True):
            if not home.is_symlink() and (home / "bin" / "java").exists():
                yield str(LINUX_JVMS), home


def _output(command: list[str]) -> str:
    """Return what a command printed to both streams (Java prints its version to standard error); empty when it fails."""
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=VERSION_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
