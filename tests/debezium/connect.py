"""A real Kafka Connect worker with Debezium's connectors for PostgreSQL and MariaDB, all from Maven Central."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import LOG4J_VERSION, Coordinate, classpath, resolve
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.node import LOG4J2
from pykafka_wire.local.process import SupervisedProcess, Watchdog, wait_ready
from pykafka_wire.local.registry import PATH as REGISTRY_PATH
from pykafka_wire.local.settings import HOST, render

CONNECT: Final = "4.3.1"
WORKER_JARS: Final = (
    Coordinate("org.apache.kafka", "connect-runtime", CONNECT),
    Coordinate("org.apache.kafka", "connect-json", CONNECT),
    Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)
DEBEZIUM: Final = (
    Coordinate("io.debezium", "debezium-connector-postgres", "3.6.1.Final"),
    Coordinate("io.debezium", "debezium-connector-mariadb", "3.5.0.Final"),
)
#: Confluent's libraries, which the connectors' descriptions name and Maven Central lacks. Connect has its own converters.
ELSEWHERE: Final = ("kafka-connect-avro-.*", "kafka-schema-.*", "kafka-avro-.*")
#: Confluent's converters are not on Maven Central. This is of the local registry's own release.
APICURIO: Final = Coordinate("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final")
TIMEOUT_S: Final = 180.0

Converter = Mapping[str, str]


def json_converters(*, schemas: bool) -> Converter:
    """Connect's own converter, with ``schemas.enable`` or without; null stays null where the column has a default."""
    settings = {
        "": "org.apache.kafka.connect.json.JsonConverter",
        ".schemas.enable": str(schemas).lower(),
        ".replace.null.with.default": "false",
    }
    return {f"{column}.converter{name}": value for column in ("key", "value") for name, value in settings.items()}


def avro_converters(registry: str) -> Converter:
    """Apicurio's converter, which frames values as Confluent's does: a zero byte, and four of the id."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.removesuffix(REGISTRY_PATH) + "/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.check-period-ms": "0",
    }
    return {f"{column}.converter{name}": value for column in ("key", "value") for name, value in settings.items()}


class Connect:
    """A standalone worker, as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-connect-"))
        (self._port,) = free_ports(1)
        self._bootstrap = bootstrap
        self._watchdog = Watchdog(self.folder)

    def __enter__(self) -> Connect:
        worker = resolve(f"connect-{CONNECT}", WORKER_JARS, transitive=True, excluded=())
        plugins = self.folder / "plugins"
        plugins.mkdir()
        for plugin in (*DEBEZIUM, APICURIO):
            jars = resolve(f"{plugin.artifact}-{plugin.version}", [plugin], transitive=True, excluded=ELSEWHERE)
            (plugins / plugin.artifact).symlink_to(jars[0].parent)
        (self.folder / "log4j2.properties").write_text(LOG4J2.format(level="INFO", target="SYSTEM_OUT"))
        (self.folder / "worker.properties").write_text(
            render(
                {
                    "bootstrap.servers": self._bootstrap,
                    "listeners": f"http://{HOST}:{self._port}",
                    "plugin.path": str(plugins),
                    "plugin.discovery": "hybrid_warn",
                    "offset.storage.file.filename": str(self.folder / "offsets"),
                    # Of the worker; each connector has its own.
                    **json_converters(schemas=False),
                }
            )
        )
        command = [
            str(ensure_java().executable),
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]
        command += [
            f"-Djava.io.tmpdir={self.folder}",
            f"-Dlog4j2.configurationFile=file:{self.folder}/log4j2.properties",
        ]
        command += ["-cp", classpath(worker), "org.apache.kafka.connect.cli.ConnectStandalone"]
        self._process = SupervisedProcess(
            "Kafka Connect",
            [*command, str(self.folder / "worker.properties")],
            self.folder / "connect.log",
            self._watchdog,
            ready="REST resources initialized; server is started and ready to handle requests",
        )
        self.start()
        return self

    def start(self) -> None:
        """Start the worker, after :meth:`kill` too: then it has forgotten its connectors, but not their offsets."""
        self._process.spawn()
        wait_ready([self._process], TIMEOUT_S)

    def kill(self) -> None:
        """Kill the worker: what it has written since it last saved its offsets it will write again."""
        self._process.kill()

    def __exit__(self, *_: object) -> None:
        self._watchdog.close()

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Start a connector, and wait until it and its task run."""
        self._ask("PUT", f"/connectors/{name}/config", settings)
        self.wait_running(name)

    def wait_running(self, name: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                state = self._ask("GET", f"/connectors/{name}/status")
            except urllib.error.HTTPError:
                state = {}
            states = [each["state"] for each in [state.get("connector", {"state": ""}), *state.get("tasks", [])]]
            assert "FAILED" not in states, json.dumps(state, indent=1)
            if len(states) > 1 and {*states} == {"RUNNING"}:
                return
            assert time.monotonic() < deadline, f"connector {name} is {state}; the worker's log ends:\n{self.log_tail}"
            time.sleep(0.2)

    def failures(self) -> dict[str, str]:
        """The trace of each task that has failed, by its connector's name."""
        return {
            name: task["trace"]
            for name in self._ask("GET", "/connectors")
            for task in self._ask("GET", f"/connectors/{name}/status")["tasks"]
            if task["state"] == "FAILED"
        }

    @property
    def log_tail(self) -> str:
        return self._process.log_tail

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{HOST}:{self._port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            assert error.code == 404, f"{method} {path}: {error.read().decode()}"
            raise
