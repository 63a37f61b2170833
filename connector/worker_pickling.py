"""Sends readers, writers and converters to Spark's Python workers.

Spark pickles them by reference to their modules, so that a worker without this package would fail with a bare ModuleNotFoundError.
What inherits from :class:`SentToWorkers` is unpickled by a function that travels with its own code: it reports where the package is
missing, and keeps what the worker has loaded out of its garbage collections.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from typing import Any, SupportsIndex


def make_on_worker(module: str, name: str) -> object:
    """A new instance of a class, without its state. It travels with its code: the worker may lack this module."""
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
    freeze_garbage_collection = getattr(
        importlib.import_module("pykafka_wire.worker_pickling"), "freeze_garbage_collection", None
    )
    if freeze_garbage_collection is not None:
        freeze_garbage_collection()
    return cls.__new__(cls)


@functools.cache  # once: frozen objects are never collected, and a task's own garbage must be
def freeze_garbage_collection() -> None:
    """Exclude all that is loaded by now from this worker's garbage collections.

    Spark's daemon collects garbage after every task. Over the objects of pyspark, pyarrow, NumPy and this package that takes some
    17 ms; over what a task leaves behind, 1 ms.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()


class SentToWorkers:
    """Base class of what Spark sends to workers: readers, writers, converters."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:  # Any: pickle's own protocol
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        reduced = super().__reduce_ex__(2)
        assert isinstance(reduced, tuple)
        return (make_on_worker, (type(self).__module__, type(self).__qualname__), *reduced[2:])
