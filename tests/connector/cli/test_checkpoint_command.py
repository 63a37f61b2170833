"""The command ``checkpoint``, over checkpoints of both connectors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connector.written_checkpoint import PLANNED_MS, ours, write_checkpoint

Command = Callable[..., Any]

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
KEPT = GOLDEN / "checkpoints" / "v1-available-now"
JVM = GOLDEN / "refused" / "jvm-connector"


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYKAFKA_WIRE_BOOTSTRAP", raising=False)


def test_micro_batches_and_offsets_are_shown(command: Command) -> None:
    found = json.loads(command("checkpoint", str(KEPT), "--json").stdout)
    assert (found["query"], found["micro_batch"]) == ("a0fabb60-5be6-4d2e-828b-8054b4c385b1", 3)
    assert [(row["micro-batch"], row["state"], row["offsets"]) for row in found["micro_batches"]] == [
        (n, "committed", 3) for n in range(4)
    ]
    assert found["micro_batches"][0]["planned at"] == "2026-11-21T11:44:58.235+00:00"
    (source,) = found["sources"]
    assert (source["connector"], source["group"]) == ("pykafka-wire", "golden-d9103fd2-b8de-4bb4-a506-266ec1200960")
    assert source["partitions"][0] == {"topic": "golden-orders", "partition": 0, "offset": 6}
    earlier = json.loads(command("checkpoint", f"{KEPT}#1", "--json", "-n", "2").stdout)
    assert (earlier["micro_batch"], [row["micro-batch"] for row in earlier["micro_batches"]]) == (1, [2, 3])
    assert earlier["sources"][0]["partitions"][0]["offset"] == 3


def test_the_text_names_query_group_and_connector(command: Command) -> None:
    text = command("checkpoint", str(KEPT)).stdout
    assert text.startswith("query a0fabb60-5be6-4d2e-828b-8054b4c385b1, 4 micro-batches, 4 committed\n")
    assert (
        "source 0 (pykafka-wire, group golden-d9103fd2-b8de-4bb4-a506-266ec1200960) at the end of micro-batch 3" in text
    )
    jvm = command("checkpoint", str(JVM)).stdout
    assert "1 micro-batch, 1 committed" in jvm
    assert "source 0 (kafka) at the end of micro-batch 0\ntopic" in jvm
    begun = command("checkpoint", str(GOLDEN / "checkpoints" / "v1-batch-0-begun")).stdout
    assert "No micro-batch is committed. " in begun and "#0 shows the offsets of the planned one." in begun


def test_two_places_are_compared(command: Command, tmp_path: Path) -> None:
    rows = json.loads(command("checkpoint", f"{KEPT}#1", "--diff", "#3", "--json").stdout)
    assert [(row["topic"], row["partition"], row["from"], row["to"], row["offsets"]) for row in rows] == [
        ("golden-orders", 0, 3, 6, 3),
        ("golden-orders", 1, 2, 3, 1),
        ("golden-refunds", 0, 2, 3, 1),
        ("golden-refunds", 1, 2, 3, 1),
    ]
    other = write_checkpoint(tmp_path, {0: [{"golden-orders": {"0": 6, "2": 1}}]}, committed=0)
    rows = json.loads(command("checkpoint", str(other), "--diff", str(JVM), "--json").stdout)
    assert [(row["partition"], row["from"], row["to"], row["offsets"]) for row in rows] == [
        (0, 6, 4, -2), (1, None, 3, None), (2, 1, None, None),
    ]  # fmt: skip
    assert "Both have the same offsets." in command("checkpoint", str(KEPT), "--diff", "#3").stdout


def test_a_micro_batchs_time_is_from_plan_to_commit(command: Command, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {5: [{"t": {"0": 1}}], 6: [{"t": {"0": 9}}, 17]}, committed=5)
    committed_s = PLANNED_MS / 1000 + 7.5
    os.utime(path / "commits" / "5", (committed_s, committed_s))
    found = json.loads(command("checkpoint", str(path), "--json").stdout)
    first, second = found["micro_batches"]
    assert (first["seconds"], first["offsets"], first["committed at"]) == (2.5, None, "2023-11-14T22:13:27.500+00:00")
    assert (second["state"], second["seconds"], second["offsets"]) == ("planned", None, 8)
    sources = json.loads(command("checkpoint", f"{path}#6", "--json").stdout)["sources"]
    assert [(each["source"], each["connector"]) for each in sources] == [("0", "kafka"), ("1", "another")]


def test_what_is_no_checkpoint_is_named(command: Command, tmp_path: Path) -> None:
    assert "there is no checkpoint of a query in" in command("checkpoint", str(tmp_path), code=1).stderr
    assert "after # comes the number" in command("checkpoint", f"{KEPT}#newest", code=2).stderr
    assert "has no micro-batch 9: it has 0 to 3" in command("checkpoint", f"{KEPT}#9", code=1).stderr
    assert "no source 4: it has 0" in command("checkpoint", f"{KEPT}#/4", code=2).stderr
    assert "which pyarrow cannot open" in command("checkpoint", "ftp://host/c", code=2).stderr


@pytest.mark.broker
def test_the_lag_is_shown_where_brokers_are_named(
    command: Command, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    name = topic(2)
    outside.fill(name, [5, 2])
    offsets = ours({name: {"0": 1, "1": 2}, "deleted": {"0": 7}})
    path = write_checkpoint(tmp_path, {0: [offsets]}, committed=0)
    at = ["-b", kafka.bootstrap_servers]
    found = json.loads(command("checkpoint", *at, str(path), "--json").stdout)
    rows = {(row["topic"], row["partition"]): (row["latest"], row["lag"]) for row in found["sources"][0]["partitions"]}
    assert rows == {(name, 0): (5, 4), (name, 1): (2, 0), ("deleted", 0): (None, None)}
    assert "lag 4, unknown for deleted-0 (does not exist)\n" in command("checkpoint", *at, str(path)).stdout
    assert "lag" not in command("checkpoint", *at, str(path), "--offline").stdout
