"""A real Kafka cluster on this machine: a broker that is its own controller, or two or three brokers and a controller.

Owns: the cluster's ports, its temporary folder, the order of starting, and that nothing is left behind.
Must not know: Spark, and the project's own Kafka client (which is tested against what is started here).

Everything listens on loopback, on ports that were free. The processes end and the folder is removed when the context
exits, when the interpreter exits, and when the owner is killed by SIGKILL (pykafka_wire.local.watchdog).
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from pykafka_wire.local.class_archive import ensure_class_archive
from pykafka_wire.local.jars import KAFKA_VERSION, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.node import (
    OLD_STARTED,
    START_TIMEOUT_S,
    STARTED,
    ZOOKEEPER,
    ZOOKEEPER_STARTED,
    JavaLauncher,
    Node,
)
from pykafka_wire.local.process import LocalClusterError, PortTakenError, Watchdog, wait_ready
from pykafka_wire.local.settings import (
    CONTROLLER_ID,
    EXTERNAL,
    HOST,
    INTERNAL,
    ClusterPlan,
    Listener,
    broker_properties,
    combined_properties,
    controller_properties,
    old_broker_properties,
    zookeeper_properties,
)
from pykafka_wire.local.tools import KafkaTools

# Below the range of ephemeral ports of Linux (32768…) and macOS (49152…): the port of a killed broker must still be free when the
# broker starts again.
PORTS = range(20000, 32000)
# Two clusters that choose ports at the same moment may choose the same; three times in a row is not a coincidence.
START_ATTEMPTS = 3


class LocalCluster(KafkaTools):
    """A Kafka cluster of `nodes` brokers as a context manager::

        with LocalCluster(nodes=2) as cluster:
            print(cluster.bootstrap_servers)
            cluster.nodes[0].kill()

    Args:
        nodes: 1 to 3 brokers, with node ids from 1. Topics have a replica on each of them by default.
        properties: broker settings, for brokers and controller alike; they override the project's own.
        version: of Apache Kafka. Below 3.3, ZooKeeper replaces the controller.
        listeners: further listeners by name, each with its security protocol, such as {"MTLS": "SSL"}; see `bootstrap`.
        format_arguments: for ``StorageTool format``, such as ["--feature", "transaction.version=1"].
        jvm_options: for the brokers and the controller, such as ["-Djava.security.krb5.conf=…"].
        prepare: called with the cluster's folder before a process starts; returns further broker settings.
        preferred_port: of the first broker's internal listener, taken if it is free.
    """

    def __init__(
        self,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        *,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
        prepare: Callable[[Path], Mapping[str, str]] | None = None,
        preferred_port: int = 0,
    ) -> None:
        if not 1 <= nodes <= 3:
            raise ValueError(f"a local cluster has 1 to 3 brokers, not {nodes}")
        self.version = version
        self.nodes: list[Node] = []
        #: The controller or ZooKeeper first, if it is a process of its own, and the brokers.
        self._all_nodes: list[Node] = []
        self._size = nodes
        self._properties = dict(properties or {})
        self._listeners = {INTERNAL: "PLAINTEXT", EXTERNAL: "PLAINTEXT", **(listeners or {})}
        self._format_arguments = list(format_arguments)
        self._jvm_options = list(jvm_options)
        self._prepare = prepare
        self._preferred_port = preferred_port
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._launcher: JavaLauncher | None = None
        self._owner = os.getpid()

    @property
    def bootstrap_servers(self) -> str:
        """Return every broker's internal listener, ``host:port,host:port``."""
        return self.bootstrap(INTERNAL)

    @property
    def external_bootstrap_servers(self) -> str:
        """Return every broker's external listener, advertised by the name localhost."""
        return self.bootstrap(EXTERNAL)

    def bootstrap(self, listener: str) -> str:
        """Return every broker's `listener`, ``host:port,host:port``."""
        return ",".join(node.address(listener) for node in self.nodes)

    @property
    def controller(self) -> Node:
        """Return the controller, which a single broker is itself, or the ZooKeeper of brokers older than 3.3."""
        return self._all_nodes[0] if self._all_nodes else self._refuse()

    @property
    def folder(self) -> Path:
        """Return the cluster's temporary folder: data, properties and logs of every node."""
        return self._folder or self._refuse()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start every node and wait until all of them serve.

        Raises:
            LocalClusterError: a node did not become ready; the message ends with its log. No process is left running.
            JavaNotFoundError, JarResolutionError: Java or Kafka's jars are missing.
        """
        if self._watchdog is not None:
            raise LocalClusterError("the cluster is running already")
        java = ensure_java()
        jars = kafka_jars(self.version)
        archive = ensure_class_archive(java, jars, self.version, free_ports(2))
        for attempt in range(1, START_ATTEMPTS + 1):
            self._owner = os.getpid()
            atexit.register(self.close)
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-cluster-")).resolve()
                self._watchdog = Watchdog(self._folder)
                self._launcher = JavaLauncher(java, jars, self.version, self._folder, archive)
                self._create_nodes(self._launcher, self._watchdog)
                # All at once: a KRaft broker waits for its controller, an old one for its ZooKeeper. Formatting takes most of the
                # time.
                deadline = time.monotonic() + timeout_s
                with ThreadPoolExecutor(max_workers=len(self._all_nodes)) as pool:
                    for started in [pool.submit(node.start, wait=False) for node in self._all_nodes]:
                        started.result()
                wait_ready(self._all_nodes, max(0.0, deadline - time.monotonic()))
                return
            except BaseException as error:
                self.close()
                if not isinstance(error, PortTakenError) or attempt == START_ATTEMPTS:
                    raise

    def close(self) -> None:
        """Kill every process and remove the folder. A second call does nothing, and neither does a call in a forked child."""
        if self._folder is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        # SIGKILL: the folder's data are deleted anyway, and on SIGTERM a broker without a controller would wait for it.
        for node in self._all_nodes:
            node.kill()
        if self._watchdog is not None:
            self._watchdog.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # the watchdog has done it, unless it was killed
        self._watchdog = self._launcher = self._folder = None
        self.nodes = self._all_nodes = []

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tool_launcher(self) -> JavaLauncher:
        return self._launcher or self._refuse()

    def _refuse(self) -> NoReturn:
        raise LocalClusterError("the cluster is not running")

    def _create_nodes(self, launcher: JavaLauncher, watchdog: Watchdog) -> None:
        folder, ids = launcher.folder, range(1, self._size + 1)
        ports = iter(free_ports(1 + self._size * len(self._listeners), self._preferred_port))
        plan = ClusterPlan(
            brokers=self._size,
            listeners={
                node_id: [
                    Listener(name=name, protocol=protocol, port=next(ports))
                    for name, protocol in self._listeners.items()
                ]
                for node_id in ids
            },
            controller_port=next(ports),
            properties={**(self._prepare(folder) if self._prepare is not None else {}), **self._properties},
            format_arguments=self._format_arguments,
            jvm_options=self._jvm_options,
        )

        def add(name: str, node_id: int, properties: Mapping[str, str], **java: str) -> None:
            self._all_nodes.append(Node(name, node_id, launcher, watchdog, plan, properties, **java))

        of_broker, ready = broker_properties, STARTED
        if launcher.is_kraft and self._size == 1:
            add("broker-1", 1, combined_properties(plan, folder / "broker-1"))
            ids = range(0)
        elif launcher.is_kraft:
            add("controller", plan.controller_id, controller_properties(plan, folder / "controller"))
        else:
            of_zookeeper = zookeeper_properties(plan, folder / "zookeeper")
            add("zookeeper", CONTROLLER_ID, of_zookeeper, main_class=ZOOKEEPER, ready=ZOOKEEPER_STARTED)
            of_broker, ready = old_broker_properties, OLD_STARTED
        for number in ids:
            add(f"broker-{number}", number, of_broker(plan, number, folder / f"broker-{number}"), ready=ready)
        self.nodes = [node for node in self._all_nodes if node.listeners]


def free_ports(count: int, preferred: int = 0) -> list[int]:
    """Return `count` different ports on which nothing listens now, `preferred` first if it is one of them. All are held until
    the last is found."""
    held: list[socket.socket] = []
    try:
        for port in [*filter(None, [preferred]), *random.sample(PORTS, len(PORTS))]:
            candidate = socket.socket()
            # As Java's server sockets do: otherwise recently closed connections make a port look taken.
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                candidate.close()
                continue
            held.append(candidate)
            if len(held) == count:
                return [held_socket.getsockname()[1] for held_socket in held]
    finally:
        for held_socket in held:
            held_socket.close()
    raise LocalClusterError(f"fewer than {count} of the ports {PORTS.start} to {PORTS.stop - 1} are free")
