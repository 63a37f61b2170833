"""The local cluster, by what Kafka's tools and another client see of it and by what the operating system says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pykafka_wire.local import LocalCluster, LocalClusterError, NamedCluster
from pykafka_wire.local import cluster as cluster_module
from pykafka_wire.local.cluster import free_ports
from tests.connect_server import accepts_connections
from tests.quick_start import JVM_OPTIONS

pytestmark = pytest.mark.broker
TOPICS = "org.apache.kafka.tools.TopicCommand"
#: For programs that start a cluster as a user does.
QUICK_JVMS = {"JDK_JAVA_OPTIONS": " ".join(JVM_OPTIONS)}


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=2, jvm_options=JVM_OPTIONS) as cluster:
        yield cluster


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def processes_of(folder: Path) -> list[int]:
    """The processes whose command names the cluster's folder: brokers, controller, watchdog."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in part for part in command):
            found.append(process.pid)
    return found


def brokers_seen_by(bootstrap: str) -> dict[int, str]:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
    return {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "delivery.timeout.ms": 60000, "log_level": 0})
    failed: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes] = []
    try:
        wait_for(lambda: _poll_into(consumer, got) >= count)
    finally:
        consumer.close()
    return got


def _poll_into(consumer: Any, got: list[bytes]) -> int:
    for message in consumer.consume(1000, timeout=1):
        if message.error() is None:
            got.append(message.value())
    return len(got)


def test_each_listener_advertises_its_own_addresses(pair: LocalCluster) -> None:
    internal, external = pair.bootstrap_servers.split(","), pair.external_bootstrap_servers.split(",")
    assert brokers_seen_by(pair.bootstrap_servers) == {1: internal[0], 2: internal[1]}
    assert brokers_seen_by(pair.external_bootstrap_servers) == {1: external[0], 2: external[1]}
    assert len({*internal, *external}) == 4


def test_the_controller_is_a_process_of_its_own(pair: LocalCluster) -> None:
    pids = [pair.controller.pid, *(node.pid for node in pair.nodes)]
    assert len(set(pids)) == 3
    assert all(pid is not None and psutil.pid_exists(pid) for pid in pids)


def test_kafkas_own_tools_run_against_it(pair: LocalCluster) -> None:
    pair.tool(TOPICS, "--create", "--topic", "by-tool", "--partitions", "3", "--config", "retention.ms=3600000")
    described = pair.tool(TOPICS, "--describe", "--topic", "by-tool")
    assert "PartitionCount: 3\tReplicationFactor: 2" in described
    assert "retention.ms=3600000" in described


def test_a_tool_that_fails_raises_with_what_it_printed(pair: LocalCluster) -> None:
    with pytest.raises(LocalClusterError, match="does not exist as expected"):
        pair.tool(TOPICS, "--describe", "--topic", "never-created")


def test_topics_are_not_created_by_asking_for_them(pair: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": pair.bootstrap_servers})
    admin.list_topics("misspelt", timeout=30)
    assert "misspelt" not in admin.list_topics(timeout=30).topics


def test_a_killed_broker_comes_back_on_its_ports_with_its_data(pair: LocalCluster, topic: Any) -> None:
    name = topic(cluster=pair)
    produce(pair.bootstrap_servers, name, [b"before"])
    first = pair.nodes[0]
    address, pid = first.address("INTERNAL"), first.pid
    first.kill()
    assert [node.running for node in pair.nodes] == [False, True]
    assert first.pid is None
    # Replication 2 and min ISR 1: the other broker takes over within its session timeout of 6 s.
    produce(pair.bootstrap_servers, name, [b"meanwhile"])
    first.start()
    assert first.address("INTERNAL") == address
    assert first.pid not in (None, pid)
    wait_for(lambda: set(brokers_seen_by(address)) == {1, 2})
    assert consume(pair.bootstrap_servers, name, 2) == [b"before", b"meanwhile"]


def test_a_stopped_broker_leaves_in_good_order(pair: LocalCluster) -> None:
    node = pair.nodes[1]
    node.stop()
    assert not node.running
    assert "[BrokerServer id=2] shut down completed" in node.log_path.read_text()
    node.stop()  # once more is no error
    node.start()
    with pytest.raises(LocalClusterError, match="broker-2 is already running"):
        node.start()


def test_a_paused_broker_keeps_its_connections_and_responds_when_resumed(pair: LocalCluster) -> None:
    node = pair.nodes[0]
    host, port = node.address("INTERNAL").split(":")
    # ApiVersions v0 (the protocol guide's first request): length, key 18, version 0, correlation id 7, no client id.
    request = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        assert read_frame(connection)[:4] == b"\x00\x00\x00\x07"
        node.pause()
        connection.settimeout(1)
        connection.sendall(request)
        with pytest.raises(TimeoutError):
            connection.recv(8)
        node.resume()
        connection.settimeout(30)
        assert read_frame(connection)[:4] == b"\x00\x00\x00\x07"


def read_frame(connection: socket.socket) -> bytes:
    """A whole response: what is left of one would pass for the next."""
    with connection.makefile("rb", buffering=0) as stream:
        size = int.from_bytes(stream.read(4), "big")
        frame = b""
        while len(frame) < size:
            frame += stream.read(size - len(frame))
    return frame


def test_closing_leaves_no_process_no_folder_and_no_listener() -> None:
    before = set(Path(tempfile.gettempdir()).iterdir())
    cluster = LocalCluster(listeners={"SECOND": "PLAINTEXT"}, jvm_options=JVM_OPTIONS)
    cluster.start()
    folder, port = cluster.folder, int(cluster.bootstrap("SECOND").split(":")[1])
    assert len(processes_of(folder)) == 2  # the broker, which is the controller, too, and the watchdog
    assert cluster.controller is cluster.nodes[0]
    assert brokers_seen_by(cluster.bootstrap("SECOND")) == {1: f"127.0.0.1:{port}"}
    cluster.nodes[0].pause()  # not even a frozen one stays
    cluster.close()
    cluster.close()
    assert processes_of(folder) == []
    assert not folder.exists()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    left = {path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if path.name.startswith("pykafka")}
    assert folder not in left
    with pytest.raises(LocalClusterError, match="not running"):
        cluster.tool(TOPICS, "--list")


OWNER = """
import os, sys, time
from pykafka_wire.local import LocalCluster
cluster = LocalCluster()
cluster.start()
if os.fork() == 0:
    cluster.close()  # a forked child must not touch its parent's cluster
    sys.exit(0)
os.wait()
print(cluster.nodes[0].running, cluster.folder, flush=True)
if sys.argv[1] == "wait":
    time.sleep(300)
"""


@pytest.mark.parametrize("ending", ["returns", "killed"])
def test_no_broker_outlives_its_owner(ending: str) -> None:
    argument = "wait" if ending == "killed" else "return"
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, argument],
        env=os.environ | QUICK_JVMS,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    running, path = owner.stdout.readline().split()
    folder = Path(path)
    assert running == "True"
    if ending == "killed":
        assert len(processes_of(folder)) == 2
        owner.kill()
    owner.communicate(timeout=60)
    wait_for(lambda: processes_of(folder) == [] and not folder.exists())


def test_a_broker_that_refuses_its_settings_fails_with_the_end_of_its_log() -> None:
    cluster = LocalCluster(properties={"log.retention.ms": "soon"}, jvm_options=JVM_OPTIONS)
    with pytest.raises(LocalClusterError, match=r"(?s)controller|broker-1.*Invalid value soon") as raised:
        cluster.start()
    assert "Invalid value soon for configuration log.retention.ms" in str(raised.value)
    with pytest.raises(LocalClusterError, match="not running"):
        _ = cluster.folder


def test_a_port_lost_to_another_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        choices = [[port, *cluster_module.free_ports(2)], cluster_module.free_ports(3)]
        offered = iter(list(choices))
        monkeypatch.setattr(cluster_module, "free_ports", lambda count, preferred=0: next(offered))
        with LocalCluster(jvm_options=JVM_OPTIONS) as cluster:
            assert int(cluster.bootstrap_servers.split(":")[1]) == choices[1][0]


def test_free_ports_are_different_free_and_not_those_of_outgoing_connections() -> None:
    ports = cluster_module.free_ports(20)
    assert len(set(ports)) == 20
    assert all(20000 <= port < 32000 for port in ports)
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_more_than_three_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 3 brokers, not 4"):
        LocalCluster(nodes=4)


def test_brokers_that_the_user_names_take_kafkas_tools_too(pair: LocalCluster) -> None:
    named = NamedCluster(pair.external_bootstrap_servers)
    assert named.bootstrap_servers == named.external_bootstrap_servers == pair.external_bootstrap_servers
    named.tool(TOPICS, "--create", "--topic", "by-name")
    assert "by-name" in named.tool(TOPICS, "--list").split()


@pytest.mark.long  # its jars are many, and only tests of old protocols need them
@pytest.mark.parametrize("version", ["2.5.1", "2.8.2"])
def test_brokers_older_than_kraft_run_with_a_zookeeper(version: str) -> None:
    with LocalCluster(version=version) as cluster:
        assert cluster.controller.name == "zookeeper"
        cluster.tool("kafka.admin.TopicCommand", "--create", "--topic", "by-tool", "--partitions", "1")
        produce(cluster.bootstrap_servers, "by-tool", [b"before"])
        cluster.nodes[0].kill()
        cluster.nodes[0].start()
        assert consume(cluster.bootstrap_servers, "by-tool", 1) == [b"before"]


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pykafka_wire.cli", "cluster", *arguments],
        env=os.environ | QUICK_JVMS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def printed(running: subprocess.Popen[str]) -> dict[str, str]:
    """What the command prints when the cluster runs, by the words before the colon."""
    assert running.stdout is not None
    lines = {}
    for line in running.stdout:
        lines[line.split(":")[0]] = line.strip()
        if line.startswith("running until interrupted"):
            break
    return lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_command_runs_until_interrupted_and_leaves_nothing(number: signal.Signals) -> None:
    # One of both with a registry: what survives no SIGKILL survives no Ctrl-C.
    registry = ["--registry"] if number == signal.SIGKILL else []
    running = command("--nodes", "1", "--property", "message.max.bytes=2000", "--topic", "orders:2", *registry)
    lines = printed(running)
    url = lines["schema registry"].split(": ")[1] if registry else ""
    if url:
        with urllib.request.urlopen(f"{url}/subjects", timeout=30) as response:
            assert json.load(response) == []
    folder = Path(next(line for line in lines.values() if "logs in" in line).split("logs in ")[1])
    internal = lines["bootstrap servers"].split(": ")[1]
    external = lines["external listener"].split(": ")[1]
    assert set(brokers_seen_by(internal)) == set(brokers_seen_by(external)) == {1}
    orders = AdminClient({"bootstrap.servers": internal}).list_topics("orders", timeout=30).topics["orders"]
    assert len(orders.partitions) == 2
    assert "message.max.bytes=2000" in (folder / "broker-1" / "server.properties").read_text()
    # To the whole group, as a terminal does it: the brokers must not be hit before their owner closes them.
    os.killpg(running.pid, number)
    out, error = running.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert running.returncode == -number
    else:
        assert (running.returncode, error) == (0, "")
        assert "all processes ended, data deleted" in out
    wait_for(lambda: processes_of(folder) == [] and not folder.exists())
    if url:
        wait_for(lambda: not accepts_connections(int(url.split(":")[2].split("/")[0])))


def test_a_preferred_port_is_taken_if_it_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        others = free_ports(2, port)
        assert port not in others and len(set(others)) == 2
    assert free_ports(2, port)[0] == port


def test_the_command_interrupted_while_it_starts_leaves_nothing() -> None:
    running = command()
    found: list[Path] = []

    def folder_exists() -> bool:
        for process in psutil.Process(running.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one may have ended meanwhile
                for part in process.cmdline():
                    if "pykafka-wire-cluster-" in part and Path(part).is_dir():
                        found.append(Path(part))
        return bool(found)

    wait_for(folder_exists)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 0
    wait_for(lambda: processes_of(found[0]) == [] and not found[0].exists())


def test_the_command_says_in_a_line_what_it_does_not_take() -> None:
    refused = command("--nodes", "4")
    _, error = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "Invalid value for '--nodes': 4 is not in the range 1<=x<=3" in error
    refused = command("--property", "no-value")
    _, error = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "write --property NAME=VALUE" in error
