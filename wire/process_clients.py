"""What the tasks of one process share: a cluster's connections, batches that were fetched for later ones, and idempotent producers.

The documented per-process caches, by settings, credentials included. Spark reuses its Python workers, so connections and
producer ids live on from task to task. Owns what happens to them when a process forks, and when it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.settings import ClientSettings

if TYPE_CHECKING:
    from pykafka_wire.wire.produce.producer import Producer

_clusters: dict[ClientSettings, Cluster] = {}
_batch_caches: dict[ClientSettings, BatchCache] = {}
#: Those that no task uses at present.
_idle_producers: dict[ClientSettings, list[Producer]] = {}
_lock = threading.RLock()


def shared_cluster(settings: ClientSettings) -> Cluster:
    """Return this process's cluster for `settings`; made on first use, closed when the process ends.

    It does not log the settings' warnings: Spark's driver does, once for all processes of a query.
    """
    cluster = _clusters.get(settings)
    if cluster is None:
        with _lock:
            cluster = _clusters.setdefault(settings, Cluster(settings, log_warnings=False))
    return cluster


def shared_batch_cache(settings: ClientSettings) -> BatchCache:
    """Return what reads of this process leave for each other, by `settings`, since others may be allowed to read less."""
    return _batch_caches.setdefault(settings, BatchCache())


@contextlib.contextmanager
def shared_producer(settings: ClientSettings) -> Iterator[Producer]:
    """Lend this process's producer for `settings` to one task; made if all are in use. A producer id is asked for once,
    not once a task, and its sequences run on.

    On leaving, one that failed or still holds batches (the task failed) is reset: it goes on under a new producer id.
    """
    from pykafka_wire.wire.produce.producer import (
        Producer,  # imported on first use: processes that only read do not need it
    )

    with _lock:
        idle = _idle_producers.setdefault(settings, [])
        producer = idle.pop() if idle else Producer(shared_cluster(settings), settings)
    try:
        yield producer
    finally:
        producer.collect_rejected(False)
        if not producer.clean:
            producer.reset()
        with _lock:
            idle.append(producer)


def _after_fork() -> None:
    """Begin anew in a forked child: connections and sequences are its parent's, and a thread that it lacks may have held the
    lock."""
    global _lock
    _lock = threading.RLock()
    _idle_producers.clear()
    _batch_caches.clear()
    _clusters.clear()


def _at_exit() -> None:
    for cluster in list(_clusters.values()):
        cluster.at_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
