"""What makes Java, Spark and rebalances quicker where a test runs them for seconds: half of the processor's time were starts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

#: For brokers and for Spark: the optimising compiler takes a third of a broker's start (14.5 s of processor time, 9.7 s without),
#: and pays off after minutes.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1",)
#: For Spark's JVMs: the serial collector has no threads of its own. With the first compiler alone Java keeps 48 MB for compiled
#: code, which the tests of one session fill: Java then throws code away and compiles it again. With both it keeps 240 MB.
#: To verify the bytecode of Spark's classes takes a tenth of a session's start, and no test is about it.
#: Room for Spark's classes from the beginning: Java collects the whole heap before it adds some.
SPARK_OPTIONS: Final = " ".join(
    [
        *JVM_OPTIONS,
        "-XX:+UseSerialGC",
        "-XX:MetaspaceSize=400m",
        "-XX:ReservedCodeCacheSize=240m",
        "-XX:+UnlockDiagnosticVMOptions",  # for the next one
        "-XX:-BytecodeVerificationRemote",
    ]
)

#: For brokers: members of the consumer protocol (KIP-848) learn of a rebalance by a heartbeat, every 5 s by default. Members that
#: were killed are missed after 45 s.
QUICK_GROUPS: Final = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


#: Spark starts a daemon for each kind of worker, which forks the workers. What a daemon has imported costs its workers nothing;
#: else each imports for 0.4 s of processor time. Python runs this as it is first on the path of workers, and this runs another one
#: that is further on. macOS: a process with threads, which NumPy has, must not fork there.
_SITE_CUSTOMIZE: Final = """
import contextlib
import importlib
import pkgutil
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

if other := PathFinder.find_spec("sitecustomize", [each for each in sys.path if each != str(Path(__file__).parent)]):
    other.loader.exec_module(module_from_spec(other))
if "pyspark.daemon" in sys.orig_argv and sys.platform == "linux":
    with contextlib.suppress(ImportError):  # a Python without them
        importlib.import_module("pandas" if sys.orig_argv[-1] == "pyspark.worker" else "pyarrow.compute")
        for package in ("pykafka_wire.source", "pykafka_wire.sink"):
            for found in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
                importlib.import_module(found.name)
"""


def quick_spark(folder: Path) -> dict[str, str]:
    """Variables for whoever starts Spark: JVM options, and a home in ``folder`` that is PySpark's own but for ``pyspark.zip``.

    Workers take the modules from that archive first. It holds no compiled ones, so each process compiles all that it imports:
    1.2 s of processor time instead of 0.4, and Spark starts a process or two for every read, write and query. Without the
    archive the same modules come from site-packages. In its place is a folder of that name, with what daemons import.
    """
    (real,) = map(Path, importlib.util.find_spec("pyspark").submodule_search_locations)
    home = folder / "spark-home"
    first_on_path = home / "python" / "lib" / "pyspark.zip"
    first_on_path.mkdir(parents=True)
    (first_on_path / "sitecustomize.py").write_text(_SITE_CUSTOMIZE, encoding="utf-8")
    for entry in real.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": SPARK_OPTIONS}


def quick_spark_variables() -> dict[str, str]:
    """Those of `quick_spark` that are set, for a program that inherits no other of Spark's variables."""
    return {name: os.environ[name] for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ}
