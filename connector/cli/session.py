"""The Spark session of commands that need one: the platform's, or one on this machine."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:  # loads Spark, which most commands do not need
    from pyspark.sql import SparkSession

    from pykafka_wire.local.spark_classes import SparkClasses

#: Environment variables of a platform that starts Spark itself.
_OF_PLATFORM: Final = frozenset(
    {"SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION"}
)
#: By these a user gives Spark jars, which Delta may use, a class path, or options of Java.
_OF_USER: Final = frozenset(
    {"SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "HADOOP_CONF_DIR", "YARN_CONF_DIR"}
)
#: Ten times Java's defaults. Most of Spark's methods run only at the start, and Java's second compiler would take a third of the
#: processor's time for them; methods that handle rows reach these numbers within seconds.
_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL: Final = {
    "spark.master": "local[*]",
    "spark.python.unix.domain.socket.enabled": "true",
    # Delta's and Spark's own defaults are for clusters: 50 and 200 tasks for the smallest table.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.ui.enabled": "false",
    # How often running tasks tell how many records they have read; the default is 10 s.
    "spark.executor.heartbeatInterval": "3s",
    "spark.ui.showConsoleProgress": "false",
}


class SessionStart:
    """Starts a Spark session of this machine in a thread, while the caller does what needs no Spark.

    If the caller gives up, the Java process ends with Python. A session of a platform is returned by :meth:`session` as it is.
    """

    #: PySpark removes a temporary folder when Java has started: Python's end waits that long.
    _LAUNCH_S: Final = 5.0

    def __init__(self, name: str) -> None:
        """Begin; ``name`` as of :func:`session`."""
        self._name = name
        self._begun: Future[_Started] | None = None
        # A program that has loaded Spark may have a session, which its own thread knows.
        if not _OF_PLATFORM & os.environ.keys() and "pyspark.sql" not in sys.modules:
            self._begun = Future()
            thread = threading.Thread(target=self._start, args=(self._begun,), daemon=True, name="pykafka-wire-session")
            thread.start()
            atexit.register(thread.join, self._LAUNCH_S)

    def session(self) -> SparkSession:
        """Return the session when it has started, as the active one of this thread. Raises as :func:`session`."""
        if self._begun is None:
            return session(self._name)
        started = self._begun.result()
        spark = started.spark
        assert spark._jvm is not None
        started.keep_classes()
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        return spark

    def _start(self, begun: Future[_Started]) -> None:
        try:
            begun.set_result(_started(self._name))
        except BaseException as error:
            begun.set_exception(error)


class _Started(NamedTuple):
    spark: SparkSession
    classes: SparkClasses | None

    def keep_classes(self) -> None:
        """Let a later start use the classes that this one records."""
        if self.classes is not None:
            assert self.spark._jvm is not None
            self.classes.keep_class_path(self.spark._jvm.System.getProperty("java.class.path"))


def session(name: str) -> SparkSession:
    """Return the platform's session, or one on this machine.

    Raises:
        click.ClickException: there is no Java for this Spark, or no Delta for this Spark.
    """
    started = _started(name)
    started.keep_classes()
    return started.spark


def _silence_sql_errors() -> None:
    """Keep PySpark from printing each error of SQL as JSON with Java's stack, before the command prints its text."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def _started(name: str) -> _Started:
    # First of all: this import holds the lock of pyspark.sql while it loads pyspark, so that another thread's import of pyspark.sql
    # waits. An import of any other module of PySpark would let that thread load pyspark.sql from the middle.
    from pyspark.sql import SparkSession

    _silence_sql_errors()
    active = SparkSession.getActiveSession()
    if active is not None:
        return _Started(active, None)
    classes: SparkClasses | None = None
    settings: dict[str, Any] = {
        "spark.app.name": f"pykafka-wire {name}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    if not _OF_PLATFORM & os.environ.keys():
        import pyspark

        from pykafka_wire.local import JarResolutionError, JavaNotFoundError, delta_jars, ensure_java, export_java_home
        from pykafka_wire.local.spark_classes import SparkClasses

        try:
            java = ensure_java()
            export_java_home(java)
            jars = delta_jars(".".join(pyspark.__version__.split(".")[:2]))
        except (JavaNotFoundError, JarResolutionError) as error:
            raise click.ClickException(str(error)) from error
        # Starts sooner: docs/operations.md.
        launcher = Path(sys.executable).with_name("pykafka-wire-python")
        python = os.environ.setdefault("PYSPARK_PYTHON", str(launcher) if launcher.exists() else sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
        settings |= _LOCAL
        options = [] if "SPARK_CONF_DIR" in os.environ else [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"]
        if _OF_USER & os.environ.keys():
            settings["spark.jars"] = ",".join(map(str, jars))
        else:
            classes = SparkClasses(java, Path(pyspark.__file__).parent, jars)
            options += [*_COMPILER, *classes.options()]
            # On this path, Delta's classes are in the archive as well.
            settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
        if options:
            settings["spark.driver.extraJavaOptions"] = " ".join(f'"{option}"' for option in options)
    return _Started(SparkSession.builder.config(map=settings).getOrCreate(), classes)
