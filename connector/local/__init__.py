"""A real Kafka cluster on this machine, for development, demonstrations and tests.

``with LocalCluster(nodes=2) as cluster`` in Python, ``pykafka-wire cluster --nodes 2`` in a shell. Java and
Kafka's jars are found, or downloaded once into caches outside the project. Linux and macOS only.

Must not know: the connector and the client that are tried on it.
"""

from __future__ import annotations

from pykafka_wire.local.cluster import LocalCluster
from pykafka_wire.local.jars import (
    JarResolutionError,
    cache_dir,
    delta_jars,
    jvm_connector_jars,
    kafka_jars,
    spark_avro_jars,
)
from pykafka_wire.local.java import Java, JavaNotFoundError, ensure_java, export_java_home, find_java
from pykafka_wire.local.node import Node
from pykafka_wire.local.process import LocalClusterError
from pykafka_wire.local.registry import LocalRegistry
from pykafka_wire.local.tools import KafkaTools, NamedCluster, named_cluster

__all__ = [
    "JarResolutionError",
    "Java",
    "JavaNotFoundError",
    "KafkaTools",
    "LocalCluster",
    "LocalClusterError",
    "LocalRegistry",
    "NamedCluster",
    "Node",
    "cache_dir",
    "delta_jars",
    "ensure_java",
    "export_java_home",
    "find_java",
    "jvm_connector_jars",
    "kafka_jars",
    "named_cluster",
    "spark_avro_jars",
]
