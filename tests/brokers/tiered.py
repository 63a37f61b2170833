"""Kafka with tiered storage (KIP-405): Kafka's own test plugin keeps the remote segments in a folder on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION, Coordinate, resolve

#: A segment is copied once it is closed, and the smallest that Kafka allows has 1 MiB.
SEGMENT_BYTES: Final = 1 << 20
#: For topics whose segments all go to the remote store once they are closed; none is kept locally beside the active one.
TIERED: Final = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
LOCAL: Final = {"segment.bytes": str(SEGMENT_BYTES)}
#: Of Kafka 4.4.0 no jar of tests was found on Maven Central: its broker loads the older plugin, whose interface has not changed.
_PLUGINS: Final = {"4.4.0": "4.3.1"}


@contextmanager
def tiered_cluster(folder: Path, version: str = KAFKA_VERSION) -> Iterator[LocalCluster]:
    """A broker that copies closed segments into `folder` at once, and deletes them locally."""
    plugin = Coordinate("org.apache.kafka", "kafka-storage", _PLUGINS.get(version, version), "test")
    (jar,) = resolve(f"kafka-storage-test-{plugin.version}", [plugin], transitive=False)
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "INTERNAL",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }
    with LocalCluster(1, properties, version) as cluster:
        yield cluster
