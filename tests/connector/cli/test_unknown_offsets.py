"""Commands that show offsets do so although a partition has no leader, and name it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.cli import offsets
from pykafka_wire.cli.lag_samples import poll
from pykafka_wire.wire.errors import TransportError
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.topic_partitions import topic_id_text
from tests.connector.written_checkpoint import ours, write_checkpoint
from tests.wire.fake_broker import FakeBroker

Command = Callable[..., Any]


@pytest.fixture
def at(leaderless: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(offsets, "ELECTION_MS", 50)
    return ["-b", leaderless.address]


def test_a_groups_lag_is_shown_where_it_is_known(command: Command, at: list[str]) -> None:
    shown = command("lag", *at, "a", "--json")
    assert [(row["partition"], row["latest"], row["lag"]) for row in json.loads(shown.stdout)] == [
        (0, 7, 7),
        (1, None, None),
    ]
    assert shown.stderr == "The lag is unknown for orders-1 (no leader).\n"
    check = command("lag", *at, "a", "--fail-above", "1000", code=1)
    assert "The lag of group a is unknown for orders-1 (no leader). Check" in check.stderr
    watched = command("lag", *at, "a", "--watch", "--count", "1").stdout
    assert watched.startswith("total lag 7\n█\n") and "unknown for orders-1 (no leader)" in watched
    (line,) = command("lag", *at, "a", "--watch", "--count", "1", "--json").stdout.splitlines()
    assert (json.loads(line)["lag"], json.loads(line)["caught_up_s"]) == (None, None)


def test_the_lag_of_other_groups_is_shown(command: Command, at: list[str]) -> None:
    shown = command("groups", *at, "--lag", "--json")
    assert {row["group"]: row["lag"] for row in json.loads(shown.stdout)} == {"a": None, "b": 7}
    assert shown.stderr == "The lag of groups that read these is unknown: orders-1 (no leader).\n"


def test_the_other_offsets_of_a_topic_are_shown(command: Command, at: list[str]) -> None:
    shown = command("offsets", *at, "orders", "--at", "-1h", "--json")
    assert [(row["earliest"], row["latest"], row["offsets"], row["at"]) for row in json.loads(shown.stdout)] == [
        (7, 7, 0, 7),
        (None, None, None, None),
    ]
    assert shown.stderr == "The offsets of orders-1 (no leader) are unknown.\n"


def test_a_checkpoints_lag_is_shown_where_it_is_known(command: Command, at: list[str], tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {0: [ours({"orders": {"0": 4, "1": 2}})]}, committed=0)
    assert "\nlag 3, unknown for orders-1 (no leader)\n" in command("checkpoint", *at, str(path)).stdout


def test_a_checkpoint_has_no_lag_in_a_topic_that_was_recreated(
    command: Command, at: list[str], leaderless: FakeBroker, tmp_path: Path
) -> None:
    leaderless.topic_ids["others"] = uuid.uuid4()
    before = ours({"others": {"0": 9}}, topic_ids={"others": topic_id_text(uuid.uuid4())})
    path = write_checkpoint(tmp_path, {0: [before]}, committed=0)
    assert "\nlag 0, unknown for others-0 (recreated)\n" in command("checkpoint", *at, str(path)).stdout


@pytest.mark.parametrize(
    "arguments", [["reset", "a", "--topic", "orders", "--to", "latest"], ["commit", "a", "orders:1=3"]]
)
def test_offsets_are_not_moved_to_an_end_that_is_unknown(command: Command, at: list[str], arguments: list[str]) -> None:
    said = command(arguments[0], *at, *arguments[1:], code=1).stderr
    assert "Nothing was changed: the ends of these logs are unknown: orders-1 (no leader)." in said


def test_an_election_is_waited_for(command: Command, leaderless: FakeBroker) -> None:
    before = leaderless.metadata

    def elected(request: MetadataRequest, version: int) -> Any:
        if leaderless.count(MetadataRequest) == 4:
            leaderless.topics["orders"][1] = (1, 1)
        return before(request, version)

    leaderless.on[MetadataRequest] = elected
    shown = command("lag", "-b", leaderless.address, "a", "--json")
    assert [row["lag"] for row in json.loads(shown.stdout)] == [7, 7]
    assert shown.stderr == ""


def test_polling_goes_on_with_the_last_result_after_a_failure() -> None:
    results = iter([1, TransportError("no response"), 3])

    def sample() -> int:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    taken = list(poll(sample, count=3))
    assert [result for result, _ in taken] == [1, 1, 3]
    assert [failure.partition(": ")[2] for _, failure in taken] == ["", "[PYKAFKA_WIRE_TRANSPORT] no response", ""]
    results = iter([TransportError("no response")])
    with pytest.raises(TransportError):
        next(poll(sample))
