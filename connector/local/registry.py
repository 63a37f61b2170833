"""A schema registry on this machine, beside a local cluster: Apicurio's, which has the REST API of Confluent's.

Owns: which registry it is, how it is started, and that it ends with its owner. Its schemas are in memory, as a local cluster's
records are in a temporary folder. Must not know: the cluster, and the project's own client of registries.

https://www.apicur.io/registry/docs/apicurio-registry/2.6.x/
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import Coordinate, resolve
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.process import LocalClusterError, SupervisedProcess, Watchdog, wait_ready
from pykafka_wire.local.settings import HOST

# The newest release with an archive that runs by itself on Maven Central: 3.x are container images.
APICURIO = Coordinate("io.apicurio", "apicurio-registry-app", "2.6.13.Final", "all", "tar.gz")
# Of Confluent's API.
PATH = "/apis/ccompat/v7"
# 5 s on an idle machine.
START_TIMEOUT_S = 240.0


class LocalRegistry:
    """A registry as a context manager, empty at its start::

    with LocalRegistry() as registry:
        print(registry.url)

    Args:
        preferred_port: taken if it is free.
    """

    def __init__(self, *, preferred_port: int = 0) -> None:
        self._preferred_port = preferred_port
        self._url = ""
        self._watchdog: Watchdog | None = None

    @property
    def url(self) -> str:
        """Return what clients have as ``schema.registry.url``."""
        if self._watchdog is None:
            raise LocalClusterError("the schema registry is not running")
        return self._url

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it responds. The first start downloads 140 MB.

        Raises:
            LocalClusterError: it did not become ready; the message ends with its log.
            JavaNotFoundError, JarResolutionError: Java or the registry are missing.
        """
        if self._watchdog is not None:
            raise LocalClusterError("the schema registry is running already")
        (runner,) = download_registry()
        (port,) = free_ports(1, self._preferred_port)
        folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-registry-"))
        self._url = f"http://{HOST}:{port}{PATH}"
        self._watchdog = Watchdog(folder)
        command = [str(ensure_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        command += [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}", "-jar", str(runner)]
        try:
            log = folder / "registry.log"
            process = SupervisedProcess("the schema registry", command, log, self._watchdog, ready="Listening on:")
            process.spawn()
            wait_ready([process], timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it and remove its folder. A second call does nothing."""
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None

    def __enter__(self) -> LocalRegistry:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def download_registry() -> list[Path]:
    """Return the registry's program in the cache, downloaded once. Raises as :func:`~pykafka_wire.local.jars.resolve`."""
    return resolve(f"{APICURIO.artifact}-{APICURIO.version}", [APICURIO], transitive=False)
