"""``demo``: a local cluster, a registry, topics with a steady producer, and an ingest in this terminal; needs no clone."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.ingest_file import toml_value
from pykafka_wire.cli.working import working

if TYPE_CHECKING:
    from pykafka_wire.wire.record_producer import RecordProducer

#: The number of records written before the ingest starts, so that a progress bar is visible.
_BACKLOG: Final = 100_000
_DAMAGED_EVERY: Final = 5_000
_COUNTRIES: Final = ("DE", "FR", "IT", "PL", "SE")
#: A function for each topic that returns a value for a record number; the keys name a user.
_TOPICS: Final[Mapping[str, Callable[[int, random.Random], dict[str, Any]]]] = {
    "shop.orders": lambda n, chance: {
        "id": n, "user": n % 500, "country": chance.choice(_COUNTRIES), "amount": round(chance.uniform(1, 300), 2),
    },
    "shop.clicks": lambda n, chance: {"user": n % 500, "page": f"/p/{chance.randrange(50)}", "ms": chance.randrange(900)},
    "shop.users": lambda n, chance: {"id": n % 500, "name": f"user {n % 500}", "country": chance.choice(_COUNTRIES)},
}  # fmt: skip
_SQL: Final = "SELECT country, sum(amount) FROM shop_orders GROUP BY country"
#: The Avro schema of the topic of clicks.
_SCHEMA: Final = (
    '{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "long"}, {"name": "page", "type": "string"}, '
    '{"name": "ms", "type": "long"}]}'
)
_AVRO: Final = "shop.clicks"
_SETTINGS: Final = """checkpoint = {checkpoint}
name = "demo"
topics = 'shop\\..*'
into = {lake}
registry = "{registry}"
max_rows = 50000
every = "5s"
{ui}
[kafka]
"bootstrap.servers" = "{servers}"

[defaults]
format = "json"
key_format = "string"

[[table]]
topic = 'shop\\.clicks'
format = "avro"

[[table]]
topic = 'shop\\.users'
mode = "upsert"
"""


@click.command()
@click.option(
    "--rate", type=click.IntRange(1), default=500, show_default=True, help="Records a second that are written."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the tables [default: a temporary folder].",
)
def demo(rate: int, folder: Path | None) -> None:
    """Run a demo: a Kafka on this machine with three growing topics, and an ingest that lands each topic in a Delta table.

    Needs the extras delta and values, the extra ui for the page in a browser, and Java, which is downloaded if it is missing.
    Ctrl-C ends the demo. Meanwhile you can observe it from a second terminal with the commands that are printed.
    """
    from pykafka_wire.local import JarResolutionError, JavaNotFoundError, LocalClusterError

    with contextlib.ExitStack() as running:
        lake = Path(
            folder or running.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-wire-demo-"))
        ).absolute()
        try:
            servers, registry = _cluster(running)
        except (LocalClusterError, JavaNotFoundError, JarResolutionError, OSError) as error:
            raise click.ClickException(str(error)) from error
        with working(f"writing {_BACKLOG:,} records") as progress:
            writer = _Writer(servers, _register(registry))
            progress.show("writing records", done=lambda: writer.n_written, total=_BACKLOG)
            writer.write(_BACKLOG)
        running.enter_context(writer.steadily(rate))
        lake.mkdir(parents=True, exist_ok=True)
        file = lake / "demo.toml"
        checkpoint, place = toml_value(str(lake / "_checkpoint")), toml_value(str(lake))
        file.write_text(
            _SETTINGS.format(checkpoint=checkpoint, lake=place, servers=servers, registry=registry, ui=_ui()),
            encoding="utf-8",
        )
        click.echo(f"In another terminal:  pykafka-wire top -b {servers}")
        click.echo(f"                      pykafka-wire query {file} '{_SQL}'")
        sys.exit(_ingest(file))


def _cluster(running: contextlib.ExitStack) -> tuple[str, str]:
    """Start the cluster with its topics, and a registry; return the addresses of the brokers and of the registry."""
    from pykafka_wire.local.cluster import LocalCluster
    from pykafka_wire.local.registry import LocalRegistry
    from pykafka_wire.local.settings import DEFAULT_PORT, DEFAULT_REGISTRY_PORT
    from pykafka_wire.wire.cluster import Cluster
    from pykafka_wire.wire.cluster.admin import create_topics
    from pykafka_wire.wire.settings import ClientSettings

    with working("starting Kafka"):
        kafka = running.enter_context(LocalCluster(preferred_port=DEFAULT_PORT))
        with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as client:
            create_topics(client, dict.fromkeys(_TOPICS, (2, 1)))
    with working("starting the schema registry"):
        registry = running.enter_context(LocalRegistry(preferred_port=DEFAULT_REGISTRY_PORT))
    return kafka.bootstrap_servers, registry.url


def _register(registry: str) -> int:
    """Register the Avro schema, and return its id."""
    request = urllib.request.Request(
        f"{registry}/subjects/{_AVRO}-value/versions",
        data=json.dumps({"schema": _SCHEMA}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return int(json.load(response)["id"])


def _avro(schema_id: int, row: Mapping[str, Any]) -> bytes:
    """Return a value of :data:`_SCHEMA` in Avro, with Confluent's frame.
    https://avro.apache.org/docs/1.12.0/specification/#binary-encoding"""

    def number(value: int) -> bytes:
        zigzag, encoded = value << 1, bytearray()
        while zigzag >= 0x80:
            encoded.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        return bytes([*encoded, zigzag])

    page: bytes = row["page"].encode()
    return b"\0" + schema_id.to_bytes(4, "big") + number(row["user"]) + number(len(page)) + page + number(row["ms"])


class _Writer:
    """Writes records to the topics in turn. A few values are damaged."""

    def __init__(self, servers: str, schema_id: int) -> None:
        self._servers = servers
        self._schema_id = schema_id
        self._chance = random.Random(7)
        self.n_written = 0

    def write(self, n_records: int) -> None:
        with self._producer() as producer:
            for _ in range(n_records):
                self._send(producer)
            producer.flush()

    @contextlib.contextmanager
    def steadily(self, per_s: int) -> Iterator[None]:
        """Write at a steady rate inside the ``with`` block."""
        ended = threading.Event()
        thread = threading.Thread(target=self._go_on, args=(per_s, ended), daemon=True, name="pykafka-wire-demo")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _go_on(self, per_s: int, ended: threading.Event) -> None:
        with self._producer() as producer:
            while not ended.is_set():
                until = time.monotonic() + 1.0
                for _ in range(per_s):
                    self._send(producer)
                producer.flush()
                ended.wait(max(0.0, until - time.monotonic()))

    def _send(self, producer: RecordProducer) -> None:
        number = self.n_written
        topic = tuple(_TOPICS)[number % len(_TOPICS)]
        row = _TOPICS[topic](number, self._chance)
        value = _avro(self._schema_id, row) if topic == _AVRO else json.dumps(row).encode()
        is_damaged = number % _DAMAGED_EVERY == _DAMAGED_EVERY - 1
        producer.send(topic, value[: len(value) // 2] if is_damaged else value, key=b"%d" % (number % 500))
        self.n_written += 1

    def _producer(self) -> RecordProducer:
        from pykafka_wire.wire.record_producer import RecordProducer

        return RecordProducer({"bootstrap.servers": self._servers})


def _ui() -> str:
    """Return the setting for the page on a free port, if the page's libraries are installed."""
    return "ui = 0\n" if all(map(find_spec, ("uvicorn", "starlette", "psutil"))) else ""


def _ingest(file: Path) -> int:
    """Run the ingest in its own process, which has the terminal; return its exit code."""
    command = [sys.executable, "-m", "pykafka_wire.cli", "ingest", str(file)]
    with subprocess.Popen(command) as process:
        # Ctrl-C reaches both processes: the ingest ends after its micro-batch, and the cluster after the ingest.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
