"""Brokers that the user runs elsewhere: the same interface as a local cluster, without control of its nodes.

Owns: reading ``PYKAFKA_WIRE_TEST_BOOTSTRAP``. Must not know: how those brokers were started.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from pykafka_wire.local.jars import KAFKA_VERSION, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.node import JavaLauncher
from pykafka_wire.local.tools import KafkaTools

ENVIRONMENT_VARIABLE = "PYKAFKA_WIRE_TEST_BOOTSTRAP"


class NamedCluster(KafkaTools):
    """Running brokers, by their addresses."""

    def __init__(self, bootstrap_servers: str, version: str = KAFKA_VERSION) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.version = version
        self._launcher: JavaLauncher | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    @property
    def external_bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    def _tool_launcher(self) -> JavaLauncher:
        # Only the tools need Java, so it is looked for only then.
        if self._launcher is None:
            folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-tools-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self._launcher = JavaLauncher(ensure_java(), kafka_jars(self.version), self.version, folder)
        return self._launcher


def named_cluster() -> NamedCluster | None:
    """The brokers that ``PYKAFKA_WIRE_TEST_BOOTSTRAP`` names; None if it is not set."""
    servers = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return NamedCluster(servers) if servers else None
