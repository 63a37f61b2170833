"""``python -m pykafka_wire.local --nodes 2``: a local Kafka cluster that runs until it is interrupted.

Owns: the command line. Must not know: how a cluster works.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from pykafka_wire.local.cluster import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION, JarResolutionError, release
from pykafka_wire.local.java import JavaNotFoundError
from pykafka_wire.local.process import LocalClusterError
from pykafka_wire.local.registry import LocalRegistry
from pykafka_wire.local.secured import OLDEST_RELEASE, USER, SecuredListener
from pykafka_wire.local.settings import DEFAULT_PORT, DEFAULT_REGISTRY_PORT, render
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import parse_new_topic


def argument_parser(program: str) -> argparse.ArgumentParser:
    """The options of the command ``program``."""
    parser = argparse.ArgumentParser(prog=program, description="Run a real Kafka on this machine until Ctrl-C.")
    add = parser.add_argument
    add("--nodes", type=int, choices=(1, 2, 3), default=1, help="brokers (default 1)")
    add("--version", default=KAFKA_VERSION, help=f"the version of Apache Kafka (default {KAFKA_VERSION})")
    add("--property", action="append", default=[], metavar="NAME=VALUE", help="a broker setting; may be repeated")
    add("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create this topic; may be repeated")
    registry = "also run a schema registry (Apicurio's, with the REST API of Confluent's)"
    add("--registry", action="store_true", help=registry)
    add("--secured", action="store_true", help="require TLS, a SCRAM user and permissions")
    file = "with --secured: the file for the client's settings, deleted at the end (default: in the cluster's folder)"
    add("--client-properties", type=Path, metavar="FILE", help=file)
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = "python -m pykafka_wire.local") -> int:
    """The exit code: 0 after an interruption, 1 with one sentence on standard error when the cluster does not start."""
    parser = argument_parser(program)
    options = parser.parse_args(arguments)
    if options.client_properties and not options.secured:
        parser.error("--client-properties needs --secured")
    if options.client_properties and options.client_properties.exists():
        parser.error(
            f"--client-properties {options.client_properties}: the file exists; name another one, or delete it"
        )
    if options.secured and release(options.version) < OLDEST_RELEASE:
        parser.error(f"--secured needs Kafka 4.0 or newer, not {options.version}")
    for each in options.property:
        if "=" not in each:
            parser.error(f"--property {each}: use NAME=VALUE")
    properties = dict(each.split("=", 1) for each in options.property)
    try:
        topics = {name: (partitions or 1, options.nodes) for name, partitions in map(parse_new_topic, options.topic)}
    except ValueError as error:
        parser.error(f"--topic {error}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    secured = SecuredListener() if options.secured else None
    local = {"nodes": options.nodes, "properties": properties, "version": options.version}
    try:
        with contextlib.ExitStack() as running:
            cluster = running.enter_context(
                secured.cluster(**local) if secured is not None else LocalCluster(**local, preferred_port=DEFAULT_PORT)
            )
            if topics:
                with Cluster(ClientSettings.from_options({"bootstrap.servers": cluster.bootstrap_servers})) as client:
                    create_topics(client, topics)
            brokers = "1 broker" if options.nodes == 1 else f"{options.nodes} brokers"
            print(f"Apache Kafka {cluster.version}, {brokers}, logs in {cluster.folder}")
            if secured is None:
                print(f"bootstrap servers: {cluster.bootstrap_servers}")
                if cluster.nodes[0].listeners[0].port != DEFAULT_PORT:
                    used = f"since port {DEFAULT_PORT} is in use"
                    print(f"  not the default of the other commands, {used}: give them --bootstrap")
                print(f"external listener: {cluster.external_bootstrap_servers}")
            else:
                secured.allow(cluster)
                written = _write(options.client_properties or cluster.folder / "client.properties", secured, cluster)
                running.callback(written.unlink, missing_ok=True)
                print(f"bootstrap servers: {cluster.external_bootstrap_servers} (SASL_SSL, user {USER})")
                print(f"client settings: {written}")
            if options.registry:
                registry = running.enter_context(LocalRegistry(preferred_port=DEFAULT_REGISTRY_PORT))
                print(f"schema registry: {registry.url}")
            print("running until interrupted (Ctrl-C)", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        print("stopped; all processes ended, data deleted", flush=True)
        return 0
    except (LocalClusterError, JavaNotFoundError, JarResolutionError, WireError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _write(path: Path, secured: SecuredListener, cluster: LocalCluster) -> Path:
    """The properties file, which only this user can read: it has the password."""
    path = path.absolute()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        head = f"# Settings of user {USER} for the cluster in {cluster.folder}. This file is deleted when the cluster stops.\n"
        file.write(head + render(secured.client_settings(cluster)))
    return path


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once only: a second Ctrl-C must not interrupt the shutdown.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
