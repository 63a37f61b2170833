"""One node of a local cluster, broker or controller: its folder, its properties, its formatting, its process.

Owns: how a Kafka or ZooKeeper node is formatted, started and known to be ready.
Must not know: the other nodes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pykafka_wire.local.jars import classpath, release, tool_jars
from pykafka_wire.local.java import Java
from pykafka_wire.local.process import LocalClusterError, SupervisedProcess, Watchdog, run_java, wait_ready
from pykafka_wire.local.settings import ClusterPlan, render

# 230 MB resident each with this heap; three brokers and a controller fit into 1 GB.
HEAP = "384m"
# 2 to 5 s on an idle machine; an overloaded one has needed ten times as long.
START_TIMEOUT_S = 120.0
FORMAT_TIMEOUT_S = 120.0
STARTED = "Kafka Server started"
# Kafka 2 opens its port before it is registered in ZooKeeper, so only this line means that it is ready.
OLD_STARTED = "started (kafka.server.KafkaServer)"
ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Just before it opens its port: the brokers' start tells whether it has.
ZOOKEEPER_STARTED = "binding to port"
# With this error Kafka 2 ends if it restarts before ZooKeeper has expired the session of the killed broker.
STALE_SESSION = "KeeperErrorCode = NodeExists"

LOG4J2 = """\
status=error
# The JVM's shutdown hooks run in parallel: log4j's hook would stop the log before the broker has ended.
shutdownHook=disable
appender.out.type=Console
appender.out.name=out
appender.out.target={target}
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.out.ref=out
"""
# Kafka 2 logs through log4j 1.
LOG4J1 = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target={target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class JavaLauncher:
    """Builds the commands of one Kafka version: Java, class path, logging, and the cluster's scratch folder."""

    def __init__(
        self, java: Java, jars: Sequence[Path], version: str, folder: Path, archive: Path | None = None
    ) -> None:
        """Take the `archive` of classes, see `pykafka_wire.local.class_archive`."""
        self.java = java
        self.version = version
        self._classpath = classpath(jars)
        self.folder = folder
        # Java reports an archive that it does not take as a warning, and goes on without.
        sharing = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        self._sharing = [f"-XX:SharedArchiveFile={archive}", *sharing] if archive is not None else []
        # zstd-jni and snappy-java unpack their native libraries there; a killed JVM would leave them in /tmp.
        (folder / "tmp").mkdir(exist_ok=True)
        for name, level, target in (("server", "INFO", "System.out"), ("tool", "WARN", "System.err")):
            (folder / f"{name}.log4j2.properties").write_text(
                LOG4J2.format(level=level, target=target.upper().replace(".", "_"))
            )
            (folder / f"{name}.log4j1.properties").write_text(LOG4J1.format(level=level, target=target))

    @property
    def is_kraft(self) -> bool:
        return release(self.version) >= (3, 3)

    def server(self, main_class: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()) -> list[str]:
        # The serial collector starts faster and is smaller; at this heap its pauses are a few milliseconds.
        return self._command("server", [f"-Xmx{HEAP}", "-XX:+UseSerialGC", *jvm_options], main_class, arguments)

    def tool(self, main_class: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()) -> list[str]:
        # A tool runs for a second: the optimising compiler would only cost time.
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm_options]
        return self._command("tool", options, main_class, arguments)

    def _command(self, kind: str, options: Sequence[str], main_class: str, arguments: Sequence[str]) -> list[str]:
        of_tools = main_class.startswith(("org.apache.kafka.tools.", "kafka.admin."))
        class_path = classpath(tool_jars(self.version)) if of_tools else self._classpath
        return [
            str(self.java.executable),
            *(self._sharing if class_path == self._classpath else []),
            *options,
            # Its file in /tmp/hsperfdata_* outlives a killed JVM.
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dlog4j2.configurationFile=file:{self.folder / f'{kind}.log4j2.properties'}",
            f"-Dlog4j.configuration=file:{self.folder / f'{kind}.log4j1.properties'}",
            "-cp",
            class_path,
            main_class,
            *arguments,
        ]


class Node(SupervisedProcess):
    """A broker, a controller or a ZooKeeper that can be stopped, killed, paused and started again, with its data."""

    def __init__(
        self,
        name: str,
        node_id: int,
        launcher: JavaLauncher,
        watchdog: Watchdog,
        plan: ClusterPlan,
        properties: Mapping[str, str],
        *,
        main_class: str = "kafka.Kafka",
        ready: str = STARTED,
    ) -> None:
        self.node_id = node_id
        self.folder = launcher.folder / name
        self.listeners = tuple(plan.listeners.get(node_id, ()))
        self.properties = dict(properties)
        self._launcher = launcher
        self._plan = plan
        self._formatted = not launcher.is_kraft
        self.folder.mkdir()
        self.properties_path = self.folder / "server.properties"
        command = launcher.server(main_class, [str(self.properties_path)], plan.jvm_options)
        super().__init__(name, command, self.folder / "server.log", watchdog, ready)

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener, as advertised."""
        addresses = {listener.name: listener.address for listener in self.listeners}
        if listener not in addresses:
            raise KeyError(f"{self.name} has no listener {listener}, only {[*addresses]}")
        return addresses[listener]

    def start(self, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it with the same ports and data as before. The properties file is written again, so properties may be changed.

        Raises:
            LocalClusterError: it is running already, ended, or was not ready in time; with the end of its log.
        """
        if self.running:
            raise LocalClusterError(f"{self.name} is already running (pid {self.pid})")
        self.properties_path.write_text(render(self.properties))
        if not self._formatted:
            self._format()
        deadline = time.monotonic() + timeout_s
        self.spawn()
        while wait:
            try:
                wait_ready([self], max(0.0, deadline - time.monotonic()))
                return
            except LocalClusterError:
                if STALE_SESSION not in self.log() or time.monotonic() >= deadline:
                    raise
                self.spawn()

    def _format(self) -> None:
        if "controller" in self.properties["process.roles"]:
            arguments = ["format", "-c", str(self.properties_path), "-t", self._plan.cluster_id]
            command = self._launcher.tool("kafka.tools.StorageTool", [*arguments, *self._plan.format_arguments])
            run_java(command, what=f"formatting {self.name}", timeout_s=FORMAT_TIMEOUT_S, watchdog=self._watchdog)
        else:
            # What StorageTool writes and a broker does not write itself, without a Java of two seconds. The features and the SCRAM
            # users of a new cluster come from its controller.
            identity = render({"version": "1", "cluster.id": self._plan.cluster_id, "node.id": str(self.node_id)})
            for folder in map(Path, self.properties["log.dirs"].split(",")):
                folder.mkdir(parents=True)
                (folder / "meta.properties").write_text(identity)
        self._formatted = True
