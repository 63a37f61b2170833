"""Sends the data source, readers, writers and converters to Spark's Python workers.

Spark pickles them by reference to their modules. A worker that has this package installed needs no more. A worker that got it as a
wheel or zip (``--py-files``, ``addPyFile``, Connect's ``addArtifacts``) may not: Spark puts no ``.whl`` on the path, and gives the
process of a stream's reader a files folder that does not exist (seen in 4.2 and 4.3). So what is pickled here is unpickled by
functions that travel with their own code: they find the archive that the sender has loaded the package from, report where the
package is missing, and keep what the worker has loaded out of its garbage collections.

Others may be able to write where Spark puts its files, or beside them. So a worker does not import a file that it has checked: it
imports a copy of the bytes that it has checked, from a folder that nobody else may enter.
"""

from __future__ import annotations

import copyreg
import functools
import gc
import hashlib
import os
import sys
import zipimport
from abc import ABCMeta
from pathlib import Path
from typing import Any, SupportsIndex


def load_on_worker(archive: tuple[str, str] | None, module: str, name: str) -> Any:  # Any: whatever the module has
    """Return what a module has by a name. It travels with its code: the worker may lack this module.

    Args:
        archive: path, on the sender's machine, and SHA-256 of the wheel or zip that has the package; None where it is installed.
            A file of that name is used only if its content is the same: anybody may have put another one there.
    """
    import hashlib
    import importlib
    import importlib.util
    import operator
    import sys
    from pathlib import Path

    if archive is not None and "pykafka_wire" not in sys.modules:
        sent, digest = Path(archive[0]), archive[1]
        # Spark's files folder is on the path. That of a stream's reader does not exist; the files are in its parent.
        folders = [folder for entry in map(Path, sys.path) for folder in (entry, entry.parent)]
        for place in [sent, *(folder / sent.name for folder in folders)]:
            try:
                content = place.read_bytes()
            except OSError:
                continue
            if hashlib.sha256(content).hexdigest() == digest:
                sys.path.insert(
                    1, private_copy(content, digest, sent.name)
                )  # before an installed one, as Spark does with py-files
                importlib.invalidate_caches()
                break
    if importlib.util.find_spec("pykafka_wire") is None:
        raise ModuleNotFoundError(
            "[PYKAFKA_WIRE_NOT_INSTALLED] The Python of this Spark worker has no package pykafka_wire: "
            f"{sys.executable}, version {sys.version.split()[0]}. Install pykafka-wire there, on every executor, or point "
            "Spark to the environment that has it, with PYSPARK_PYTHON or spark.pyspark.python, or send its wheel with "
            "--py-files.",
            name="pykafka_wire",
        )
    return operator.attrgetter(name)(importlib.import_module(module))


def private_copy(content: bytes, digest: str, name: str) -> str:
    """Return the path of a file with this content, in a folder of this user's that nobody else may enter. It travels with its
    code.

    The workers of one application share the file. Where somebody else has made a folder of its name, a worker makes one of its own.
    """
    import contextlib
    import os
    import stat
    import tempfile
    from pathlib import Path

    # Spark names the folders of the application, which it removes at its end; not in every process.
    spark_folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    parent = Path(spark_folder if Path(spark_folder).is_dir() else tempfile.gettempdir())
    folder = parent / f"pykafka-wire-{os.geteuid()}-{digest[:16]}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077
    if not private:
        folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-", dir=parent))
    copied = folder / name
    if not copied.exists() or copied.read_bytes() != content:
        number, written = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(written).replace(copied)  # another worker may be reading it
    return str(copied)


def make_on_worker(archive: tuple[str, str] | None, version: str, module: str, name: str) -> object:
    """Return a new instance of a class, without its state. It travels with its code, and with that of :func:`load_on_worker`."""
    import importlib
    import sys

    cls = load_on_worker(archive, module, name)
    package = sys.modules["pykafka_wire"]
    if package.__version__ != version:
        raise RuntimeError(
            f"[PYKAFKA_WIRE_VERSION_MISMATCH] The driver has pykafka-wire {version}, this Spark worker {package.__version__}, in "
            f"{package.__file__}. Install the same version on the driver and on every executor."
        )
    importlib.import_module("pykafka_wire.worker_pickling").freeze_garbage_collection()
    return cls.__new__(cls)


@functools.cache  # once: frozen objects are never collected, and a task's own garbage must be
def freeze_garbage_collection() -> None:
    """Exclude all that is loaded by now from this worker's garbage collections.

    Spark's daemon collects garbage after every task. Over the objects of pyspark, pyarrow, NumPy and this package that takes some
    17 ms; over what a task leaves behind, 1 ms.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()


@functools.cache
def package_archive() -> tuple[str, str] | None:
    """Return the path and SHA-256 of the wheel or zip that this process has loaded the package from; None where it is
    installed, or where the file is gone.
    """
    spec = sys.modules["pykafka_wire"].__spec__
    loader: object = spec.loader if spec else None
    if not isinstance(loader, zipimport.zipimporter) or loader.prefix:
        return None
    try:
        return loader.archive, hashlib.sha256(Path(loader.archive).read_bytes()).hexdigest()
    except OSError:
        return None


def _travels_with_its_code() -> None:
    """Let cloudpickle send this module's functions with their code."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class SentToWorkers:
    """Base class of what Spark sends to workers: readers, writers, converters."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:  # Any: pickle's own protocol
        _travels_with_its_code()
        reduced = super().__reduce_ex__(2)
        assert isinstance(reduced, tuple)
        cls, version = type(self), sys.modules["pykafka_wire"].__version__
        return (make_on_worker, (package_archive(), version, cls.__module__, cls.__qualname__), *reduced[2:])


class ClassSentToWorkers(ABCMeta):
    """Metaclass of a class that Spark itself sends to workers: the data source, which it pickles as a class and as an instance."""


def _reduce_class(cls: ClassSentToWorkers) -> tuple[Any, ...]:  # Any: pickle's own protocol
    _travels_with_its_code()
    return (load_on_worker, (package_archive(), cls.__module__, cls.__qualname__))


copyreg.pickle(ClassSentToWorkers, _reduce_class)
