"""The command ``pykafka-wire-python``: Python as Spark's workers run it, which starts sooner.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts. No module in that archive
is compiled, so each process compiles all that it imports. Where the same pyspark is installed beside this package, the command
leaves the archive out, and Python takes the compiled modules of the installation::

    export PYSPARK_PYTHON=pykafka-wire-python PYSPARK_DRIVER_PYTHON=pykafka-wire-python
    spark-submit job.py

Everything else is as the Python of this environment does it: arguments, exit code, signals. This module imports nothing but what
every Python process has loaded already.
"""

from __future__ import annotations

import os
import sys
import zipimport

#: Files that an archive and an installation must share, beside the name of their package.
_COMPARED = {"pyspark": ("version.py", "worker.py"), "py4j": ("version.py", "java_gateway.py")}


def main() -> None:
    """Replaces this process by Python, with the command's arguments."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [folder for folder in sys.path if folder not in path]
    kept = [entry for entry in path if not is_installed(entry, installed)]
    if kept != path:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def is_installed(archive: str, folders: list[str]) -> bool:
    """Whether ``archive`` is Spark's ``pyspark.zip`` or ``py4j-….zip``, and the first of ``folders`` that has its package has
    the same release of it."""
    name = os.path.basename(archive)
    package = next((each for each in _COMPARED if name.startswith(each) and name.endswith(".zip")), None)
    folder = next((each for each in folders if package and os.path.isdir(os.path.join(each, package))), None)
    if package is None or folder is None:
        return False
    try:
        zipped = zipimport.zipimporter(archive)
        return all(
            zipped.get_data(os.path.join(archive, package, file)) == _read(os.path.join(folder, package, file))
            for file in _COMPARED[package]
        )
    except (OSError, zipimport.ZipImportError):
        return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
