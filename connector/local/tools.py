"""Kafka's own command-line tools, run against a cluster: they check this project's client independently.

Owns: how a tool is started and what of its output is returned. Must not know: who started the brokers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from pykafka_wire.local.jars import release
from pykafka_wire.local.node import JavaLauncher
from pykafka_wire.local.process import run_java

# A tool takes one to two seconds; one that waits for a broker gives up after its own 60 s.
TOOL_TIMEOUT_S = 120.0


class KafkaTools(ABC):
    """Brokers against which Kafka's Java tools can run."""

    version: str

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``host:port,host:port``."""

    @property
    @abstractmethod
    def external_bootstrap_servers(self) -> str:
        """The same brokers by their external listener."""

    @abstractmethod
    def _tool_launcher(self) -> JavaLauncher: ...

    def tool(
        self, main_class: str, *arguments: str, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S
    ) -> str:
        """What a tool prints to its standard output, such as
        ``tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", "g")``.

        ``--bootstrap-server`` is added unless the arguments name one (or a controller, a file or a log directory).

        Raises:
            LocalClusterError: it ended with a code other than 0 or not in time; the message holds its output.
        """
        command = list(arguments)
        own = ("--bootstrap-server", "--bootstrap-controller", "--broker-list", "--zookeeper", "--files", "format")
        if not any(argument.split("=")[0] in own for argument in arguments):
            command[:0] = ["--bootstrap-server", self.bootstrap_servers]
        what = f"{main_class} {' '.join(arguments)}"
        return run_java(self._tool_launcher().tool(main_class, command), what=what, stdin=stdin, timeout_s=timeout_s)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with a replica on every broker (the cluster's default). Takes a second or two.

        Raises:
            LocalClusterError: Kafka refused it.
        """
        main_class = (
            "org.apache.kafka.tools.TopicCommand" if release(self.version) >= (3, 7) else "kafka.admin.TopicCommand"
        )
        arguments = ["--create", "--topic", name, "--partitions", str(partitions)]
        for setting, value in (config or {}).items():
            arguments += ["--config", f"{setting}={value}"]
        self.tool(main_class, *arguments)
