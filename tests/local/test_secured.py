"""`pykafka-wire cluster --secured`: what it demands, the settings that it writes, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykafka_wire.cli.cluster import cluster
from pykafka_wire.cli.connection import parse_properties
from pykafka_wire.wire import ClientSettings, Consumer, RecordProducer, TopicPartition
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import delete_topics
from pykafka_wire.wire.errors import BrokerError, WireError
from tests.local.test_cluster import command, printed, processes_of, wait_for


@pytest.mark.broker
def test_a_secured_cluster_writes_the_settings_that_it_demands(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    running = command("--secured", "--topic", "orders:2", "--client-properties", str(path))
    lines = printed(running)
    folder = Path(next(line for line in lines.values() if "logs in" in line).split("logs in ")[1])
    assert path.stat().st_mode & 0o777 == 0o600
    options = parse_properties(path.read_text())
    assert options["bootstrap.servers"] in lines["bootstrap servers"]
    with RecordProducer(options) as producer, Consumer(options) as consumer:
        producer.send("orders", b"secured", partition=0)
        producer.flush()
        consumer.assign({TopicPartition("orders", 0): 0})
        wait_for(lambda: [record.value for record in consumer.poll(500)] == [b"secured"])
    # Not without the permission, not by another password, and not in plaintext.
    with (
        Cluster(ClientSettings.from_options(options)) as cluster,
        pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION"),
    ):
        delete_topics(cluster, ["orders"])
    wrong = {**options, "sasl.username": "alice", "sasl.password": "wrong"}
    for refused in (wrong, {"bootstrap.servers": options["bootstrap.servers"], "default.api.timeout.ms": "1500"}):
        with Cluster(ClientSettings.from_options(refused)) as cluster, pytest.raises(WireError):
            cluster.metadata.brokers()
    os.killpg(running.pid, signal.SIGTERM)
    out, error = running.communicate(timeout=60)
    assert (running.returncode, error) == (0, "")
    assert "all processes ended, data deleted" in out
    assert not path.exists()
    wait_for(lambda: processes_of(folder) == [] and not folder.exists())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--client-properties", "x"], "--client-properties needs --secured"),
        (["--secured", "--client-properties", __file__], "the file exists"),
        (["--secured", "--version", "3.9.2"], "--secured needs Kafka 4.0 or newer, not 3.9.2"),
    ],
)
def test_what_does_not_go_with_a_secured_cluster(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(cluster, arguments)
    assert done.exit_code == 2 and said in done.output
