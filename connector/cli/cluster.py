"""``cluster``: a real Kafka on this machine, until it is interrupted."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from pykafka_wire.cli.output import counted, parse_pair

if TYPE_CHECKING:
    from pykafka_wire.local.cluster import LocalCluster
    from pykafka_wire.local.secured import SecuredListener


@click.command()
@click.option("--nodes", type=click.IntRange(1, 3), default=1, show_default=True, help="Brokers.")
@click.option("--version", metavar="VERSION", help="The version of Apache Kafka [default: the newest that is known].")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A broker setting; may be repeated."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create this topic; may be repeated."
)
@click.option(
    "--registry", "with_registry", is_flag=True,
    help="Also run a schema registry (Apicurio's, with the REST API of Confluent's).",
)  # fmt: skip
@click.option("--secured", is_flag=True, help="Require TLS, a SCRAM user and permissions.")
@click.option(
    "--client-properties",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --secured: the file for the client's settings, deleted at the end [default: in the cluster's folder].",
)
def cluster(
    nodes: int,
    version: str | None,
    properties: tuple[str, ...],
    topics: tuple[str, ...],
    with_registry: bool,
    secured: bool,
    client_properties: Path | None,
) -> None:
    """Run a real Kafka on this machine until Ctrl-C. Needs Java, which is downloaded if it is missing."""
    from pykafka_wire.local import JarResolutionError, JavaNotFoundError, LocalClusterError, LocalRegistry
    from pykafka_wire.local.cluster import LocalCluster
    from pykafka_wire.local.jars import KAFKA_VERSION, release
    from pykafka_wire.local.secured import OLDEST_RELEASE, USER, SecuredListener
    from pykafka_wire.local.settings import DEFAULT_PORT, DEFAULT_REGISTRY_PORT
    from pykafka_wire.wire.cluster import Cluster
    from pykafka_wire.wire.cluster.admin import create_topics
    from pykafka_wire.wire.errors import WireError
    from pykafka_wire.wire.settings import ClientSettings
    from pykafka_wire.wire.topic_partitions import parse_new_topic

    version = version or KAFKA_VERSION
    _check_client_properties(client_properties, secured)
    if secured and release(version) < OLDEST_RELEASE:
        raise click.UsageError(f"--secured needs Kafka 4.0 or newer, not {version}.")
    of_brokers = dict(parse_pair("--property", text) for text in properties)
    try:
        new_topics = {name: (partitions or 1, nodes) for name, partitions in map(parse_new_topic, topics)}
    except ValueError as error:
        raise click.UsageError(f"--topic {error}") from error
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    listener = SecuredListener() if secured else None
    try:
        with contextlib.ExitStack() as running:
            kafka = running.enter_context(
                LocalCluster(nodes=nodes, properties=of_brokers, version=version, preferred_port=DEFAULT_PORT)
                if listener is None
                else listener.cluster(nodes=nodes, properties=of_brokers, version=version)
            )
            if new_topics:
                with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as client:
                    create_topics(client, new_topics)
            click.echo(f"Apache Kafka {kafka.version}, {counted(nodes, 'broker')}, logs in {kafka.folder}")
            if listener is None:
                _show_servers(kafka)
            else:
                listener.allow(kafka)
                written = _write(client_properties or kafka.folder / "client.properties", listener, kafka)
                running.callback(written.unlink, missing_ok=True)
                click.echo(f"bootstrap servers: {kafka.external_bootstrap_servers} (SASL_SSL, user {USER})")
                click.echo(f"client settings: {written}")
            if with_registry:
                registry = running.enter_context(LocalRegistry(preferred_port=DEFAULT_REGISTRY_PORT))
                click.echo(f"schema registry: {registry.url}")
            click.echo("running until interrupted (Ctrl-C)")
            while True:
                signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped; all processes ended, data deleted")
    except (LocalClusterError, JavaNotFoundError, JarResolutionError, WireError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _check_client_properties(path: Path | None, secured: bool) -> None:
    """Raise click.UsageError if the file of --client-properties cannot be created."""
    if path and not secured:
        raise click.UsageError("--client-properties needs --secured.")
    if path and path.exists():
        raise click.UsageError(f"--client-properties {path}: the file exists; name another one, or delete it.")


def _show_servers(kafka: LocalCluster) -> None:
    """Print the addresses of a cluster whose clients need no further settings."""
    from pykafka_wire.local.settings import DEFAULT_PORT

    click.echo(f"bootstrap servers: {kafka.bootstrap_servers}")
    if kafka.nodes[0].listeners[0].port != DEFAULT_PORT:
        used = f"since port {DEFAULT_PORT} is in use"
        click.echo(f"  not the default port of the other commands, {used}: give them --bootstrap")
    click.echo(f"external listener: {kafka.external_bootstrap_servers}")


def _write(path: Path, listener: SecuredListener, kafka: LocalCluster) -> Path:
    """Write the properties file, readable only by this user since it contains the password; return its path."""
    from pykafka_wire.local.secured import USER
    from pykafka_wire.local.settings import render

    path = path.absolute()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        head = f"# Settings of user {USER} for the cluster in {kafka.folder}. This file is deleted when the cluster stops.\n"
        file.write(head + render(listener.client_settings(kafka)))
    return path


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once only: a second Ctrl-C must not interrupt the shutdown.
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    raise KeyboardInterrupt
