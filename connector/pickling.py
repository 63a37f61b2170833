"""What happens in a Spark worker before it reads or writes; what a user is told where this package, or a Spark that can use
it, is missing.

Spark pickles readers and writers by reference to their modules, so that a worker without the package would end in a bare
ModuleNotFoundError. What :class:`SentToWorkers` marks is made there by a function that travels with its code instead.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from typing import Any, SupportsIndex


def make_on_worker(module: str, name: str) -> object:
    """A new instance of a class, without its state. It travels with its code: this module may not be there, or be older."""
    import importlib
    import importlib.util
    import sys

    if importlib.util.find_spec("pykafka_wire") is None:
        raise ModuleNotFoundError(
            "[PYKAFKA_WIRE_NOT_INSTALLED] The Python of this Spark worker has no package pykafka_wire: "
            f"{sys.executable}, version {sys.version.split()[0]}. Install pykafka-wire there, on every executor, or point "
            "Spark to the environment that has it, with PYSPARK_PYTHON or spark.pyspark.python.",
            name="pykafka_wire",
        )
    cls = getattr(importlib.import_module(module), name)
    spare_collections = getattr(importlib.import_module("pykafka_wire.pickling"), "spare_collections", None)
    if spare_collections is not None:
        spare_collections()
    return cls.__new__(cls)


@functools.cache  # once: what is frozen is never collected, and a task's own garbage has to be
def spare_collections() -> None:
    """Keep what is loaded by now out of the garbage collections of this worker.

    Spark's daemon collects after every task that a worker has done. Over the objects of pyspark, pyarrow, NumPy and this
    package that takes some 17 ms; over what a task leaves behind, 1.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()


class SentToWorkers:
    """A base of what Spark sends to workers: its readers and writers."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:  # Any: pickle's own protocol
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        reduced = super().__reduce_ex__(2)
        assert isinstance(reduced, tuple)
        return (make_on_worker, (type(self).__module__, type(self).__qualname__), *reduced[2:])


def spark_missing(error: ModuleNotFoundError) -> ImportError:
    """The error for a Spark that is not there, or that has no Python data sources yet."""
    try:
        import pyspark
    except ModuleNotFoundError:
        return ImportError(
            "[PYKAFKA_WIRE_SPARK_VERSION] pyspark is not installed. pip install 'pykafka-wire[spark]', or use the Python "
            "that your platform's Spark brings along."
        )
    return ImportError(
        f"[PYKAFKA_WIRE_SPARK_VERSION] pyspark {pyspark.__version__} has no data sources in Python ({error}). Spark 4.0 or "
        "newer is needed, on the driver and on executors: pip install 'pyspark>=4.0'."
    )
