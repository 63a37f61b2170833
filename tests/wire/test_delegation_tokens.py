"""Delegation tokens (KIP-48): made by Kafka's own tool, used as Java's users do (`make delegation-tokens`)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import AuthenticationError
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.secured import PASSWORDS, Secured

pytestmark = [pytest.mark.broker, pytest.mark.long]

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.needs("SCRAM users before the first start")
def test_a_delegation_token(secured_kafka: Secured, tmp_path: Path) -> None:
    config = tmp_path / "alice.properties"
    alice = secured_kafka.options("SASLPLAIN", sasl_mechanism="SCRAM-SHA-512")
    line = f'{MODULE} username="alice" password="{PASSWORDS["alice"]}";'
    config.write_text("".join(f"{name}={value}\n" for name, value in {**alice, "sasl.jaas.config": line}.items()))
    printed = secured_kafka.cluster.tool(
        "org.apache.kafka.tools.DelegationTokenCommand", "--create", "--max-life-time-period", "-1",
        "--bootstrap-server", alice["bootstrap.servers"], "--command-config", str(config),
    )  # fmt: skip
    found = re.search(r"^(\S+)\s+(\S+==)\s+User:alice", printed, re.MULTILINE)
    assert found is not None, printed
    token_id, secret = found.groups()
    options = {**alice, "sasl.jaas.config": f'{MODULE} username="{token_id}" password="{secret}" tokenauth=true;'}
    settings = ClientSettings.from_options(options)
    deadline = time.monotonic() + 30
    while True:  # the controller has the token at once, the broker a moment later
        try:
            with Cluster(settings) as cluster:
                assert cluster.metadata.brokers()
            break
        except AuthenticationError:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert sasl_identity(settings, "b").name == f"delegation token {token_id}"
    without = {**options, "sasl.jaas.config": options["sasl.jaas.config"].replace(" tokenauth=true", "")}
    with Cluster(ClientSettings.from_options(without)) as cluster, pytest.raises(AuthenticationError):
        cluster.metadata.brokers()
