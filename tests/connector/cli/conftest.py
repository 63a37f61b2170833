"""Runs command lines. Most run in this process, by the function that the installed script calls: a process of its own takes
half a second. What only a process shows (exit codes, signals, a terminal) is tried with the script."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.cli.app import application
from pykafka_wire.wire.protocol.messages.group import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import FindCoordinatorRequest
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_coordinator import itself

SCRIPT = Path(sys.executable).parent / "pykafka-wire"


def terminal_output(arguments: list[str], columns: int = 120, code: int = 0, command: str | Path = SCRIPT) -> str:
    """What a command prints on a terminal of so many columns, with colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with subprocess.Popen([str(command), *arguments], stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        seen = b""
        try:
            while chunk := os.read(leader, 65536):
                seen += chunk
        except OSError:  # Linux's end of a terminal's output
            pass
        os.close(leader)
        assert process.wait(60) == code, seen.decode()
    return seen.decode()


def plain(printed: str) -> str:
    """The text without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("topics", "-b", servers, code=0, stdin="…")`; the exit code must be ``code``."""
    monkeypatch.delenv("PYKAFKA_WIRE_BOOTSTRAP", raising=False)

    def run(*arguments: str, code: int = 0, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.raises(SystemExit) as end,
        ):
            application(list(arguments))
        done = subprocess.CompletedProcess(list(arguments), int(end.value.code or 0), out.getvalue(), err.getvalue())
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def doctor(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`doctor(options, "--topic", t, code=1)`: the report, its failed checks by name under "failed"."""

    def look(options: dict[str, str], *arguments: str, code: int = 0) -> dict[str, Any]:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        started = time.monotonic()
        report = json.loads(command("--json", "doctor", "--config", str(file), *arguments, code=code).stdout)
        assert time.monotonic() - started < 60  # some seconds, on a machine that is not busy
        assert report["ok"] is (code == 0)
        report["failed"] = {check["name"]: check for check in report["checks"] if check["result"] == "fail"}
        report["by_name"] = {check["name"]: check for check in report["checks"]}
        return report  # type: ignore[no-any-return]

    return look


@pytest.fixture
def leaderless() -> Iterator[FakeBroker]:
    """A broker with the topics orders, whose partition 1 has no leader, and others. Each log ends at offset 7. Group a has
    committed offset 0 for both partitions of orders, group b for others."""
    committed = {"a": {"orders": 2}, "b": {"others": 1}}
    with FakeBroker() as broker:
        broker.topics = {"orders": {0: (1, 0), 1: (-1, 0)}, "others": {0: (1, 0)}}
        broker.speak({16: (0, 4)})
        broker.on[ListGroupsRequest] = lambda request, _: ListGroupsResponse(
            groups=[ListGroupsResponseGroup(group_id=name, protocol_type="consumer") for name in committed]
        )
        broker.on[FindCoordinatorRequest] = lambda request, _: itself(broker, request)
        broker.on[OffsetFetchRequest] = lambda request, _: OffsetFetchResponse(
            groups=[_offsets_of(each.group_id, committed.get(each.group_id, {})) for each in request.groups]
        )
        broker.on[ListOffsetsRequest] = lambda request, _: _ends(request)
        yield broker


def _offsets_of(group: str, topics: Mapping[str, int]) -> OffsetFetchResponseGroup:
    responses = [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=number, committed_offset=0, metadata="", error_code=0)
                for number in range(n_partitions)
            ],
        )
        for topic, n_partitions in topics.items()
    ]
    return OffsetFetchResponseGroup(group_id=group, topics=responses)


def _ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
    responses = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=7)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=responses)
