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
from dataclasses import dataclass
from pathlib import Path

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


def find_java(minimum: int = MINIMUM) -> Java | None:
    """The first installed Java of at least version `minimum`, or None. Downloads nothing."""
    found, _ = _search(minimum)
    return found


def ensure_java(minimum: int = MINIMUM) -> Java:
    """An installed Java of at least version `minimum`, else one downloaded through cjdk (a warning is logged).

    Raises:
        JavaNotFoundError: none is installed and the download failed; the message names what to install.
    """
    found, rejected = _search(minimum)
    if found is not None:
        return found
    seen = "; ".join(rejected) if rejected else "no java in JAVA_HOME or on the PATH"
    # A warning, not an info: the user has to wait for a download that they did not ask for.
    logger.warning(
        "Java %d or newer is needed (%s): downloading %s %s into the cache of the cjdk package",
        minimum,
        seen,
        DOWNLOADED_VENDOR,
        DOWNLOADED_VERSION,
    )
    try:
        home = _download()
        downloaded = probe(home, "cjdk")
        if downloaded is None or downloaded.version < minimum:
            raise JavaNotFoundError(f"the Java that cjdk downloaded into {home} does not start")
    # Exception: cjdk raises its own errors, those of requests and of the operating system; all mean the same here.
    except Exception as error:
        raise JavaNotFoundError(
            f"Java {minimum} or newer is needed ({seen}) and downloading one failed"
            f" ({type(error).__name__}: {_first_line(error)}): install a JDK, for example with"
            f" {_install_command()}, and set JAVA_HOME to its folder if java is not on the PATH."
        ) from error
    logger.warning("Java %d is in %s", downloaded.version, downloaded.home)
    return downloaded


def export_java_home(java: Java) -> None:
    """Make PySpark's launcher, started from this process later, use `java`."""
    os.environ["JAVA_HOME"] = str(java.home)


def probe(home: Path, origin: str) -> Java | None:
    """The Java below `home`, or None where there is none that starts."""
    executable = home / "bin" / "java"
    version = _version(executable)
    return None if version is None else Java(home=home, version=version, origin=origin)


def parse_version(text: str) -> int | None:
    """The feature release in what ``java -version`` prints: 8 for "1.8.0_372", 17 for "17.0.15", 26 for "26-ea"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _search(minimum: int) -> tuple[Java | None, list[str]]:
    """The first suitable Java and, for the error text, the others that were found and why they are not suitable."""
    rejected: list[str] = []
    tried: set[Path] = set()
    for origin, home in _candidates(minimum):
        if home in tried:
            continue
        tried.add(home)
        java = probe(home, origin)
        if java is not None and java.version >= minimum:
            return java, rejected
        rejected.append(
            f"{origin} names {home}, "
            + ("which has no java that starts" if java is None else f"which is Java {java.version}")
        )
    return None, rejected


def _candidates(minimum: int) -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("the PATH", _home_of(Path(on_path))))
    if MACOS_JAVA_HOME.exists():
        listed = _output([str(MACOS_JAVA_HOME), "-v", f"{minimum}+"])
        if listed:
            candidates.append((str(MACOS_JAVA_HOME), Path(listed.strip())))
    if LINUX_JVMS.is_dir():
        for home in sorted(LINUX_JVMS.iterdir(), reverse=True):
            if not home.is_symlink() and (home / "bin" / "java").exists():
                candidates.append((str(LINUX_JVMS), home))
    return candidates


def _home_of(executable: Path) -> Path:
    """The home that a java on the PATH names itself: it may be a link, or the script of a version manager."""
    printed = _output([str(executable), "-XshowSettings:properties", "-version"]) or ""
    match = re.search(r"^\s*java\.home = (.+)$", printed, re.MULTILINE)
    return Path(match.group(1).strip()) if match else executable.resolve().parent.parent


def _version(executable: Path) -> int | None:
    # macOS ships /usr/bin/java even without a Java: it prints an advertisement and fails.
    printed = _output([str(executable), "-version"])
    return None if printed is None else parse_version(printed)


def _output(command: list[str]) -> str | None:
    """What a command printed to both streams (Java prints its version to standard error); None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _download() -> Path:
    # Here, not above: cjdk is a development dependency, and only this path needs it.
    import cjdk

    return Path(cjdk.java_home(vendor=DOWNLOADED_VENDOR, version=DOWNLOADED_VERSION))


def _install_command() -> str:
    return "`brew install openjdk@17`" if sys.platform == "darwin" else "`apt-get install openjdk-17-jre-headless`"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no further message")
