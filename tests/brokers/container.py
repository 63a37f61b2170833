"""A broker in a container, for machines that have Docker and no Java.

Owns: the image, its settings, and whether a Docker engine responds. Must not know: the local cluster's processes.

testcontainers' own KafkaContainer starts another vendor's
image; this one is Apache's (KIP-975), whose environment variables are broker settings in capitals.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from pykafka_wire.local import NamedCluster
from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import KAFKA_VERSION
from pykafka_wire.local.process import LocalClusterError
from pykafka_wire.local.settings import CONTROLLER, HOST, common_properties

IMAGE = "apache/kafka"
# Excludes pulling the image, which the container's constructor does.
START_TIMEOUT_S = 120.0
STARTED = "Kafka Server started"


def docker_unavailable() -> str | None:
    """Why no container can be started, or None when a Docker engine responds."""
    try:
        import docker
    except ImportError as error:
        return f"the docker package is not installed ({error})"
    try:
        client = docker.from_env(timeout=10)
        try:
            client.ping()
        finally:
            client.close()
    except Exception as error:  # the docker package wraps some errors of requests and urllib3, and not others
        return f"no Docker engine responds ({type(error).__name__}: {error})"
    return None


class ContainerCluster(NamedCluster):
    """One combined broker and controller in a container, as a context manager."""

    def __init__(self, properties: Mapping[str, str] | None = None, version: str = KAFKA_VERSION) -> None:
        # The advertised port must be known before the container runs, so it cannot be left to Docker.
        self._port = free_ports(1)[0]
        super().__init__(f"{HOST}:{self._port}", version)
        self._properties = dict(properties or {})
        self._container: Any = None  # testcontainers ships no types for what is used here

    def start(self) -> None:
        """Start it and wait until the broker is ready.

        Raises:
            LocalClusterError: it was not ready in time; with its log.
        """
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(f"{IMAGE}:{self.version}").with_bind_ports(self._port, self._port)
        for name, value in self._settings().items():
            container = container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        container.start()
        self._container = container
        deadline = time.monotonic() + START_TIMEOUT_S
        while STARTED not in self._log():
            if time.monotonic() >= deadline:
                log = self._log()
                self.close()
                raise LocalClusterError(f"the container was not ready within {START_TIMEOUT_S:.0f} s:\n{log[-3000:]}")
            time.sleep(0.2)

    def close(self) -> None:
        if self._container is not None:
            with contextlib.suppress(Exception):  # the engine may have ended, and the container with it
                self._container.stop()
            self._container = None

    def __enter__(self) -> ContainerCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": CONTROLLER,
            "listeners": f"PLAINTEXT://:{self._port},{CONTROLLER}://:9093",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "listener.security.protocol.map": f"{CONTROLLER}:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            **common_properties(1),
            **self._properties,
        }

    def _log(self) -> str:
        out, error = self._container.get_logs()
        return str((out + error).decode("utf-8", "replace"))
