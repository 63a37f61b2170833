"""Many brokers as one cluster: bootstrap, metadata, connections and retries; and requests about topics and groups."""

from pykafka_wire.wire.cluster.client import ANY, CONTROLLER, Cluster, CoordinatorKind

__all__ = ["ANY", "CONTROLLER", "Cluster", "CoordinatorKind"]
