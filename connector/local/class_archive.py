"""An archive of the classes that a broker loads, with which Java starts brokers and Kafka's tools in half the processor's time.

Owns: where the archive is, how it is made, and that brokers start without it where it cannot be made. Must not know: the clusters
that use it.

Java calls this application class data sharing (JEP 310, dynamic archives JEP 350): the classes are mapped from a file, parsed and
verified. The archive lies beside Kafka's jars in the cache, one for each Java, and is made once, by a broker that runs for seconds.
Java ignores it, without an error, if the jars or anything else differ from those that it was made with.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pykafka_wire.local.jars import downloading, release
from pykafka_wire.local.java import Java
from pykafka_wire.local.node import JavaLauncher, Node
from pykafka_wire.local.process import LocalClusterError, PortTakenError, Watchdog, run_java
from pykafka_wire.local.settings import INTERNAL, ClusterPlan, Listener, combined_properties

CHECK_TIMEOUT_S = 60.0

logger = logging.getLogger(__name__)


def class_archive(java: Java, jars: Sequence[Path]) -> Path:
    """Return where the archive for this Java and these jars is, or will be. An empty file: it could not be made."""
    key = hashlib.sha256(f"{java.home} {java.build}".encode()).hexdigest()[:8]
    return jars[0].parent / f"classes-{key}.jsa"


def ensure_class_archive(java: Java, jars: Sequence[Path], version: str, ports: Sequence[int]) -> Path | None:
    """Return the archive, made if it is missing, which takes as long as two starts of a broker; None where there is none.

    Several processes may ask at the same time: one makes it, the others wait. An attempt that failed is not repeated.

    Args:
        ports: two free ones, for the broker that is started to make it.
    """
    if release(version) < (3, 3):  # these run with ZooKeeper
        return None
    archive = class_archive(java, jars)
    try:
        if not archive.exists():
            with downloading():
                if not archive.exists():
                    _make(archive, java, jars, version, ports)
        return archive if archive.stat().st_size else None
    except (OSError, PortTakenError) as error:  # the cache may be read-only
        logger.info("no archive of Kafka's classes in %s: %s", archive.parent, error)
        return None


def _make(archive: Path, java: Java, jars: Sequence[Path], version: str, ports: Sequence[int]) -> None:
    """Make it under another name, check it, then rename it: Java crashes on an archive that was cut off."""
    logger.info("making an archive of the classes of Kafka %s, once: brokers start sooner with it", version)
    for remnant in archive.parent.glob(f".{archive.name}.*"):  # by a process that was killed; we hold the lock
        remnant.unlink()
    scratch = archive.parent / f".{archive.name}.{os.getpid()}"
    scratch.touch()  # fails now, not after seconds, where the cache is read-only
    try:
        try:
            with tempfile.TemporaryDirectory(prefix="pykafka-wire-classes-") as name:
                _record(scratch, JavaLauncher(java, jars, version, Path(name)), ports)
            with tempfile.TemporaryDirectory(prefix="pykafka-wire-classes-") as name:
                _check(JavaLauncher(java, jars, version, Path(name), scratch))
        except LocalClusterError as error:
            if isinstance(error, PortTakenError):
                raise
            logger.info("no archive of Kafka's classes: %s", error)
            scratch.unlink(missing_ok=True)
            scratch.touch()
        with scratch.open("rb") as made:
            os.fsync(made.fileno())  # a part of it must not have the name, not even after a power failure
        scratch.rename(archive)
    finally:
        scratch.unlink(missing_ok=True)


def _record(archive: Path, launcher: JavaLauncher, ports: Sequence[int]) -> None:
    """Run a node that is broker and controller from its start to its end, at which Java writes the archive.

    Raises:
        LocalClusterError: it did not start, or not end.
    """
    plan = ClusterPlan(
        brokers=1,
        controller_port=ports[1],
        listeners={1: [Listener(name=INTERNAL, protocol="PLAINTEXT", port=ports[0])]},
        jvm_options=["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={archive}"],
    )
    with contextlib.closing(Watchdog(launcher.folder)) as watchdog:
        node = Node("node", 1, launcher, watchdog, plan, combined_properties(plan, launcher.folder / "node"))
        node.start()
        node.stop()


def _check(launcher: JavaLauncher) -> None:
    """Start Java with the launcher's archive, for nothing else.

    Raises:
        LocalClusterError: Java does not take the archive, or prints something about it.
    """
    command = launcher.tool("-version", (), ["-Xshare:on", f"-XX:ErrorFile={launcher.folder / 'crash.log'}"])
    printed = run_java(command, what="using it", timeout_s=CHECK_TIMEOUT_S)
    if printed:  # the version goes to standard error; what else Java says, to the output, which callers of tools parse
        raise LocalClusterError(f"Java printed an unexpected message with the archive: {printed}")
