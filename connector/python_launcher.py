"""The command ``pykafka-wire-python``: Python as Spark's workers run it, which starts sooner.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts. No module in that archive
is compiled, so each process compiles all that it imports. Where the same pyspark is installed beside this package, the command
leaves the archive out, and Python takes the compiled modules of the installation::

    export PYSPARK_PYTHON=pykafka-wire-python PYSPARK_DRIVER_PYTHON=pykafka-wire-python
    spark-submit job.py

Spark's daemon prints a traceback that ends with ``BrokenPipeError`` for each worker that was idle for a minute: Spark closes such a
worker's socket, and the worker tries to report there that its input has ended. Started by the command, the daemon ends them
without a word.

Everything else is as the Python of this environment does it: arguments, exit code, signals.
"""

from __future__ import annotations

import os
import sys
import zipfile
import zlib

#: The packages that Spark has archives of.
_PACKAGES = ("pyspark", "py4j")
#: Folders of an archive that an installation lacks.
_NOT_INSTALLED = {"tests", "benchmark"}
_DAEMON = "pyspark.daemon"
#: Runs Spark's daemon. Not a module: the daemon must not load this package, which a program may have sent in another version.
_QUIET_DAEMON = """\
from pyspark import daemon

def run_worker(sock, authenticated, run=daemon.worker):
    try:
        return run(sock, authenticated)
    except BrokenPipeError:  # nobody listens any more
        return 1

daemon.worker = run_worker
daemon.manager()
"""


def main() -> None:
    """Replace this process by Python, with the command's arguments."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [folder for folder in sys.path if folder not in path]
    kept = [entry for entry in path if not is_installed(entry, installed)]
    if kept != path:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    arguments = sys.argv[1:]
    if arguments[:2] == ["-m", _DAEMON]:  # what follows is the worker's module
        arguments[:2] = ["-c", _QUIET_DAEMON]
    os.execv(sys.executable, [sys.executable, *arguments])


def is_installed(archive: str, folders: list[str]) -> bool:
    """Return whether ``archive`` is Spark's ``pyspark.zip`` or ``py4j-….zip``, and the first of ``folders`` that has its
    package has every file of it with the same content: a vendor may have changed any of them."""
    name = os.path.basename(archive)
    package = next((prefix for prefix in _PACKAGES if name.startswith(prefix) and name.endswith(".zip")), None)
    folder = next((folder for folder in folders if package and os.path.isdir(os.path.join(folder, package))), None)
    if folder is None:
        return False
    try:
        with zipfile.ZipFile(archive) as zipped:
            modules = [member for member in zipped.infolist() if member.filename.endswith(".py")]
        shipped = [member for member in modules if _NOT_INSTALLED.isdisjoint(member.filename.split("/"))]
        return all(zlib.crc32(_read(os.path.join(folder, member.filename))) == member.CRC for member in shipped)
    except (OSError, zipfile.BadZipFile):
        return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
