"""The walk through the protocol, on new and old brokers; what goes over the wire is held to another reader's judgement."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.walkthrough import run_walkthrough
from tests.broker_features import BROKERS

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "protocol_walkthrough.py"
#: What a step's trace must hold, in this order.
STEPS = [
    ("Handshake with", ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]),
    ("Handshake with", ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]),
    ("Metadata:", ["Metadata"]),
    ("CreateTopics:", ["CreateTopics"]),
    ("Metadata of the topic:", ["Metadata"]),
    ("Produce:", ["InitProducerId", "Produce", "Produce"]),
    ("FindCoordinator:", ["FindCoordinator"]),
    ("JoinGroup,", ["JoinGroup", "JoinGroup"]),
    ("SyncGroup:", ["SyncGroup"]),
    ("OffsetFetch:", ["OffsetFetch"]),
    ("ListOffsets,", ["ListOffsets", "ListOffsets"]),
    ("Fetch from", ["Fetch", "Fetch"]),
    ("The position", []),
    ("OffsetCommit:", ["OffsetCommit"]),
    ("Heartbeat:", ["Heartbeat"]),
    ("LeaveGroup:", ["LeaveGroup"]),
    ("DeleteTopics:", ["DeleteTopics"]),
]

#: API keys whose versions tshark 4.0 knows on each broker: on the old one all that the walk sends, on the new one
#: Heartbeat, SyncGroup, SaslHandshake and SaslAuthenticate.
UNDERSTOOD = {"2.5.1": [0, 1, 2, 3, *range(8, 15), 17, 18, 19, 20, 22, 36], "4.4.0": [12, 14, 17, 36]}


def walk(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def check(printed: str) -> None:
    steps = re.split(r"(?m)^\d+\. ", printed)[1:]
    assert len(steps) == len(STEPS)
    for step, (sentence, expected) in zip(steps, STEPS, strict=True):
        assert step.startswith(sentence)
        sent = re.findall(r"-> (\w+) v\d+ #\d+", step)
        responded = re.findall(r"<- (\w+) v\d+ #\d+", step)
        assert sorted(sent) == sorted(responded), step
        rest = iter(sent)
        assert all(each in rest for each in expected), (expected, sent)
    leaders = set(re.findall(r"is led by broker (\d)", steps[4]))
    assert leaders == {"1", "2"}
    assert set(re.findall(r"(?m)^\S+ (\d) \S+ -> Fetch ", steps[11])) == leaders
    assert set(re.findall(r"(?m)^\S+ (\d) \S+ -> Produce ", steps[5])) == leaders
    assert "=> nothing is committed" in steps[9]
    assert sorted(re.findall(r"offset 0: '(.*)'", steps[11])) == ["for partition 0", "for partition 1"]
    assert len(re.findall(r"position 1, end 1", steps[12])) == 2
    assert "=> still in the group" in steps[14]
    assert "walker-secret" not in printed


@pytest.mark.broker
def test_each_step_is_explained_and_traced(java: None) -> None:
    check(walk("--version", BROKERS))


class _Closed(io.StringIO):
    """A pipe that nobody reads any more once the topic is there, as with ``… | head``."""

    def write(self, text: str) -> int:
        if "DeleteTopics" in self.getvalue() + text or "Produce:" in text:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.broker
def test_no_topic_stays_though_nobody_reads_the_output(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})
    with monkeypatch.context() as patched, pytest.raises(BrokenPipeError):
        patched.setattr(sys, "stdout", _Closed())
        run_walkthrough(settings)
    with Cluster(settings) as cluster:
        deadline = time.monotonic() + 30
        while left := [name for name in cluster.metadata.topics(None) if "walkthrough" in name]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


@pytest.mark.long
@pytest.mark.broker
def test_each_step_is_explained_and_traced_on_an_old_broker(java: None) -> None:
    check(walk("--version", "2.5.1"))


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.4.0", "2.5.1"])
def test_a_protocol_analyser_finds_nothing_malformed(version: str, java: None, tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed")
    captured = tmp_path / "walk.pcap"
    capture = subprocess.Popen(
        [tshark, "-q", "-i", "lo", "-f", "tcp portrange 20000-31999", "-s", "0", "-w", str(captured)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert capture.stderr is not None
    try:
        deadline = time.monotonic() + 30
        while not captured.exists() or not captured.stat().st_size:
            if capture.poll() is not None:
                pytest.skip(f"tshark may not capture here: {capture.stderr.read()}")
            assert time.monotonic() < deadline, "tshark did not begin"
            time.sleep(0.05)
        printed = walk("--version", version)
        time.sleep(1)  # what the kernel still holds
    finally:
        capture.send_signal(signal.SIGINT)
        capture.communicate(timeout=30)
    ports = sorted(set(re.findall(r"localhost:(\d+)", printed)))
    assert len(ports) == 2
    decode = [argument for port in ports for argument in ("-d", f"tcp.port=={port},kafka")]
    ours = " or ".join(f"tcp.port == {port}" for port in ports)

    def frames(condition: str, *fields: str) -> list[str]:
        wanted = [argument for field in fields for argument in ("-e", field)]
        done = subprocess.run(
            [tshark, "-r", str(captured), *decode, "-Y", f"({ours}) and {condition}", "-T", "fields", *wanted],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    # For a version that tshark does not know it prints a notice, and tries anyway.
    known = 'not (_ws.expert.message contains "Unsupported")'
    assert frames(f"_ws.malformed and {known}", "frame.number", "kafka.api_key", "_ws.expert.message") == []
    understood = {key for line in frames(f"kafka.api_key and {known}", "kafka.api_key") for key in line.split(",")}
    assert {str(key) for key in UNDERSTOOD[version]} <= understood
