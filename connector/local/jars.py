"""Resolves Java libraries from Maven Central with the Apache Ivy that PySpark ships, into a cache outside the project.

Owns: the coordinates of every jar that the project starts or compares itself with, the cache's layout, and its
locking. Must not know: what the jars are run for.

The cache is ``$PYKAFKA_WIRE_CACHE``, else ``$XDG_CACHE_HOME/pykafka-wire``, else ``~/.cache/pykafka-wire``. A resolved
set is one folder below ``jars/``, renamed into place when it is complete: a folder that exists can be used. Ivy gets a
cache of its own below ``ivy/``, because it fails on POMs in ``~/.m2`` whose jars are missing.
``$PYKAFKA_WIRE_IVY_SETTINGS`` may name an Ivy settings file, for sites that use a mirror.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

from pykafka_wire.local.java import OF_DOWNLOAD, ensure_java

KAFKA_VERSION = "4.4.0"
# kafka-tools 4.4.0 was not found on Maven Central, and older tools do not run with its broker's jars: they have those of their own
# release, and speak to the newer broker as any client.
_TOOLS_VERSIONS = {"4.4.0": "4.3.1"}
# What Kafka 4.4.0 itself depends on.
LOG4J_VERSION = "2.25.5"
# kafka-tools asks for Kafka Connect, which brings Jetty and Jersey: a third of all jars, needed by no broker.
EXCLUDED = ("connect-.*",)  # a regular expression: Ivy needs a library more for globs
# Kafka's 45 jars took 40 s; a slow connection may take far longer, but a dead one must end.
RESOLVE_TIMEOUT_S = 900

logger = logging.getLogger(__name__)


class JarResolutionError(RuntimeError):
    """Maven Central (or the mirror in use) did not provide the jars; the message contains Ivy's output."""


class Coordinate(NamedTuple):
    """A Maven coordinate; a classifier names another file of the same artifact, such as ``test``. A ``tar.gz`` is unpacked."""

    group: str
    artifact: str
    version: str
    classifier: str = ""
    type: str = "jar"

    def __str__(self) -> str:
        return ":".join(filter(None, self[:4]))

    @property
    def file_name(self) -> str:
        """Return the file's name in the cache."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + f".{self.type}"


# The newest Delta whose jars are on Maven Central: of 4.4.1 there is only the Python package. As the extra `delta` has it.
DELTA_VERSION = "4.4.0"
# Spark's own JVM connector, for comparison only. 4.0.0 is the newest token provider on Maven Central.
JVM_CONNECTOR = (
    Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    Coordinate("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
    Coordinate("org.apache.commons", "commons-pool2", "2.13.1"),
)
# Spark's own Avro functions, for comparison only, with the Avro library that PySpark contains. Of spark-protobuf nothing was found
# on Maven Central for Scala 2.13.
SPARK_AVRO = (Coordinate("org.apache.spark", "spark-avro_2.13", "4.2.0"),)


def cache_dir() -> Path:
    """Return the folder outside the project that holds everything downloaded (see the module's text)."""
    if named := os.environ.get("PYKAFKA_WIRE_CACHE"):
        return Path(named).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "pykafka-wire"


def kafka_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """Return every jar of a Kafka broker and of its command-line tools, if :func:`tool_jars` are the same; with ZooKeeper's
    for brokers older than 3.3."""
    # 2.6 was the first release whose recommended build is for Scala 2.13.
    scala = "2.12" if release(version) < (2, 6) else "2.13"
    coordinates = [Coordinate("org.apache.kafka", f"kafka_{scala}", version)]
    if version not in _TOOLS_VERSIONS:
        coordinates.append(Coordinate("org.apache.kafka", "kafka-tools", version))
    if release(version) >= (4,):
        # As in Kafka's tar ball: without a logging backend a broker logs nothing, not even "started".
        coordinates.append(Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION))
    return resolve(f"kafka-{version}", coordinates, transitive=True)


def tool_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """Return the jars of Kafka's command-line tools (``org.apache.kafka.tools``, ``kafka.admin``) for a broker of this version."""
    return kafka_jars(_TOOLS_VERSIONS.get(version, version))


def delta_jars(spark: str = "4.2") -> list[Path]:
    """Return the two jars that a Spark needs for ``format("delta")``: transitively they would bring Hadoop, log4j and Jackson
    again."""
    coordinates = [
        Coordinate("io.delta", f"delta-spark_{spark}_2.13", DELTA_VERSION),
        Coordinate("io.delta", "delta-storage", DELTA_VERSION),
    ]
    return resolve(f"delta-{DELTA_VERSION}", coordinates, transitive=False)


def jvm_connector_jars() -> list[Path]:
    """Return the jars of ``spark-sql-kafka-0-10``, for the benchmarks' comparison."""
    return resolve(f"spark-sql-kafka-{JVM_CONNECTOR[0].version}", JVM_CONNECTOR, transitive=False)


def spark_avro_jars() -> list[Path]:
    """Return the jar of Spark's ``from_avro`` and ``to_avro``, for comparison."""
    return resolve(f"spark-avro-{SPARK_AVRO[0].version}", SPARK_AVRO, transitive=False)


def resolve(
    name: str, coordinates: Sequence[Coordinate], *, transitive: bool, excluded: Sequence[str] = EXCLUDED
) -> list[Path]:
    """Return the jars of `coordinates`, sorted, from the cache or downloaded into it once.

    Several processes may ask at the same time: one downloads, the others wait for it.

    Args:
        excluded: regular expressions of artifacts of Apache Kafka's that are left out.

    Raises:
        JarResolutionError: Ivy could not get them.
        pykafka_wire.local.java.JavaNotFoundError: there is no Java to run Ivy with.
    """
    wanted = hashlib.sha256(f"{transitive} {tuple(excluded)} {' '.join(map(str, coordinates))}".encode()).hexdigest()[
        :8
    ]
    folder = cache_dir() / "jars" / f"{name}-{wanted}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with downloading():
            if not folder.is_dir():
                _download(folder, coordinates, transitive, excluded)
    return sorted(folder.glob("*.jar"))


def classpath(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def ivy_jar() -> Path:
    """Return Apache Ivy's jar in the installed PySpark, or in ``$SPARK_HOME``.

    Raises:
        JarResolutionError: there is no PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = (spec.submodule_search_locations if spec is not None else None) or []
    for home in filter(None, [*homes, os.environ.get("SPARK_HOME")]):
        for jar in sorted(Path(home, "jars").glob("ivy-*.jar")):
            return jar
    raise JarResolutionError("PySpark's jars folder has no Apache Ivy: install PySpark, `pip install 'pyspark>=4.0'`")


def _download(folder: Path, coordinates: Sequence[Coordinate], transitive: bool, excluded: Sequence[str]) -> None:
    """Download into a scratch folder, then rename it to `folder`: a folder that exists is complete."""
    for remnant in folder.parent.glob(f".{folder.name}.*"):  # left by a killed download; we hold the lock
        shutil.rmtree(remnant, ignore_errors=True)
    java = ensure_java()
    names = ", ".join(map(str, coordinates))
    logger.warning("downloading %s from Maven Central into %s, once", names, folder, extra=OF_DOWNLOAD)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        description = scratch / "ivy.xml"
        description.write_text(_ivy_xml(folder.name, coordinates, transitive, excluded), encoding="utf-8")
        jars = scratch / "jars"
        command = [str(java.executable), "-cp", str(ivy_jar()), "org.apache.ivy.Main"]
        if ivy_settings := os.environ.get("PYKAFKA_WIRE_IVY_SETTINGS"):
            command += ["-settings", ivy_settings]
        command += ["-cache", str(cache_dir() / "ivy"), "-ivy", str(description), "-confs", "default"]
        command += ["-types", "jar", "bundle", "tar.gz"]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            ivy = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise JarResolutionError(f"Ivy did not download {coordinates[0]} within {RESOLVE_TIMEOUT_S} s") from error
        if ivy.returncode != 0 or not all((jars / c.file_name).exists() for c in coordinates):
            raise JarResolutionError(_failure(coordinates, ivy.stdout + ivy.stderr))
        for archive in jars.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.10.12, 3.11.4
                packed.extractall(jars)
            archive.unlink()
        jars.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


#: Of what Ivy prints, the lines that say why; the others list each address that was tried.
_REASON: Final = re.compile(r"exception|error|denied|refused|unknown ?host|timed out|failed", re.IGNORECASE)
_REASONS: Final = 5


def _failure(coordinates: Sequence[Coordinate], printed: str) -> str:
    """Return the error, from Ivy's lines such as ``:: org#name;1.0: not found`` and ``:: org#name;1.0!name.jar``."""
    unresolved = sorted(set(re.findall(r":: (?!pykafka-wire#)([^\s#]+#[^\s;]+;[^\s:!]+)", printed)))
    what = ", ".join(re.sub("[#;]", ":", name) for name in unresolved) or ", ".join(map(str, coordinates))
    settings = os.environ.get("PYKAFKA_WIRE_IVY_SETTINGS")
    source = f"the repositories in {settings}" if settings else "Maven Central"
    reasons = dict.fromkeys(line.strip() for line in printed.splitlines() if _REASON.search(line))
    return (
        f"could not get {what} from {source}: check the network. Without access to Maven Central, run pykafka-wire jars on a "
        "machine that has access, and set PYKAFKA_WIRE_CACHE to a copy of its folder; or name an Ivy settings file for your "
        "mirror in PYKAFKA_WIRE_IVY_SETTINGS." + "".join(f"\n  {line}" for line in [*reasons][:_REASONS])
    )


def _ivy_xml(name: str, coordinates: Sequence[Coordinate], transitive: bool, excluded: Sequence[str]) -> str:
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(c.group)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        f' conf="default->default" transitive="{str(transitive).lower()}">{_other_file(c) if c.classifier else ""}</dependency>'
        for c in coordinates
    )
    excludes = "\n".join(
        f'    <exclude org="org.apache.kafka" module="{artifact}" matcher="regexp"/>' for artifact in excluded
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="pykafka-wire" module={quoteattr(name)}/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
{excludes}
  </dependencies>
</ivy-module>
"""


def _other_file(c: Coordinate) -> str:
    kind = quoteattr(c.type)
    return f"<artifact name={quoteattr(c.artifact)} type={kind} ext={kind} m:classifier={quoteattr(c.classifier)}/>"


@contextlib.contextmanager
def downloading() -> Iterator[None]:
    """Hold the lock of one process at a time: two of Apache Ivy would damage its cache. The kernel releases it when its
    holder ends, even if it is killed."""
    with (cache_dir() / "resolve.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons: (4, 3, 1)."""
    return tuple(map(int, re.findall(r"\d+", version)))
