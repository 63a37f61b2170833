"""Kafka's protocol step by step: every request and response of a small producer and consumer, with a sentence each.

    python examples/protocol_walkthrough.py --bootstrap localhost:9092 --set security.protocol=SASL_PLAINTEXT …

creates a topic of its own on that cluster and deletes it at the end. Without --bootstrap it starts a cluster of two brokers on
this machine, with an internal listener for the brokers and an external one that requires SASL, which the walkthrough uses.
"""

from __future__ import annotations

import argparse

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.walkthrough import run_walkthrough

USER, PASSWORD = "walker", "walker-secret"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="host:port of one broker or more, with commas")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a client setting by Kafka's name"
    )
    parser.add_argument("--version", default=KAFKA_VERSION, help="of the cluster to start, such as 2.5.1")
    arguments = parser.parse_args()

    options = dict(setting.split("=", 1) for setting in arguments.set)
    if arguments.bootstrap:
        run_walkthrough(ClientSettings.from_options({"bootstrap.servers": arguments.bootstrap, **options}))
        return
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.external.plain.sasl.jaas.config": login,
    }
    with LocalCluster(2, properties, arguments.version, listeners={"EXTERNAL": "SASL_PLAINTEXT"}) as cluster:
        client_settings = {
            "bootstrap.servers": cluster.external_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        run_walkthrough(ClientSettings.from_options(client_settings | options))


if __name__ == "__main__":
    main()
