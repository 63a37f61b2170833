"""Kafka with tiered storage (KIP-405): Kafka's own test plugin keeps the remote segments in a folder on this machine."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION, Coordinate, kafka_jars, resolve

#: A segment is copied once it is closed, and the smallest that Kafka allows has 1 MiB.
SEGMENT_BYTES: Final = 1 << 20
#: For topics whose segments all go to the remote store once they are closed; none is kept locally beside the active one.
TIERED: Final = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
LOCAL: Final = {"segment.bytes": str(SEGMENT_BYTES)}
#: Of Kafka 4.4.0 no jar of tests was found on Maven Central: its broker loads the plugin of an older release.
_PLUGINS: Final = {"4.4.0": "4.3.1"}
#: What that plugin needs of Kafka's own classes, and Kafka 4.4 has under another name.
_MOVED: Final = "org/apache/kafka/common/utils/LogContext"


def _plugin(folder: Path, version: str) -> str:
    """The class path of the plugin."""
    of_release = _PLUGINS.get(version, version)
    plugin = Coordinate("org.apache.kafka", "kafka-storage", of_release, "test")
    found = resolve(f"kafka-storage-test-{of_release}", [plugin], transitive=False)
    if of_release != version:
        (clients,) = (jar for jar in kafka_jars(of_release) if jar.name == f"kafka-clients-{of_release}.jar")
        moved = folder.with_suffix(".jar")
        with zipfile.ZipFile(clients) as whole, zipfile.ZipFile(moved, "w") as part:
            for name in whole.namelist():
                if name.startswith(_MOVED):
                    part.writestr(name, whole.read(name))
        found.append(moved)
    return os.pathsep.join(map(str, found))


@contextmanager
def tiered_cluster(folder: Path, version: str = KAFKA_VERSION) -> Iterator[LocalCluster]:
    """A broker that copies closed segments into `folder` at once, and deletes them locally."""
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": _plugin(folder, version),
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
