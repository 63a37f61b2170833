"""Kafka's own command-line tools, run against brokers, also against those that the user runs elsewhere.

Owns: how a tool is started, what of its output is returned, and ``PYKAFKA_WIRE_TEST_BOOTSTRAP``. Must not know: how brokers are
started.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from pykafka_wire.local.jars import KAFKA_VERSION, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.node import JavaLauncher
from pykafka_wire.local.process import run_java

# A tool takes one to two seconds; one that waits for a broker gives up after its own 60 s.
TOOL_TIMEOUT_S = 120.0
ENVIRONMENT_VARIABLE = "PYKAFKA_WIRE_TEST_BOOTSTRAP"


class KafkaTools(ABC):
    """Brokers against which Kafka's Java tools can run."""

    version: str

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """Return ``host:port,host:port``."""

    @property
    @abstractmethod
    def external_bootstrap_servers(self) -> str:
        """Return the same brokers by their external listener."""

    @abstractmethod
    def _tool_launcher(self) -> JavaLauncher: ...

    def tool(
        self, main_class: str, *arguments: str, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S
    ) -> str:
        """Return what a tool prints to its standard output, such as
        ``tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", "g")``.

        ``--bootstrap-server`` is added unless the arguments name one (or a controller, a file or a log directory).

        Raises:
            LocalClusterError: it ended with a code other than 0 or not in time; the message holds its output.
        """
        command = list(arguments)
        own_options = (
            "--bootstrap-server",
            "--bootstrap-controller",
            "--broker-list",
            "--zookeeper",
            "--files",
            "format",
        )
        if not any(argument.split("=")[0] in own_options for argument in arguments):
            command[:0] = ["--bootstrap-server", self.bootstrap_servers]
        what = f"{main_class} {' '.join(arguments)}"
        return run_java(self._tool_launcher().tool(main_class, command), what=what, stdin=stdin, timeout_s=timeout_s)


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
    """Return the brokers that ``PYKAFKA_WIRE_TEST_BOOTSTRAP`` names; None if it is not set."""
    servers = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return NamedCluster(servers) if servers else None
