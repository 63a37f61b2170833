"""Clients of real brokers, and the wait until both brokers of two know each other."""

from __future__ import annotations

import time
from typing import Any

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.settings import ClientSettings


def real(brokers: Any, **options: str) -> Cluster:
    """A client of these brokers."""
    return Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers, **options}))


def await_brokers(brokers: LocalCluster) -> None:
    """Waits until both brokers are there, as each of them sees it."""
    deadline = time.monotonic() + 60
    with real(brokers) as cluster:
        for node in (1, 2):
            while {broker.node_id for broker in cluster.request(node, MetadataRequest(topics=[])).brokers} != {1, 2}:
                assert time.monotonic() < deadline
                time.sleep(0.1)
