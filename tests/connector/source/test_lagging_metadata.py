"""Brokers whose metadata disagree for a while: a topic is lost only when a second broker does not know it either.

Two scripted brokers, because a real one lags behind for milliseconds at best. Each has a view of the topics of its own; the logs
are the same behind both.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from pykafka_wire.wire.errors import BrokerError, TopicRecreatedError, UnknownTopicError, WireError
from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.connector.source.lagging_brokers import Brokers, View
from tests.wire.fake_broker import FakeBroker

GO_ON = {"failOnDataLoss": "false"}


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with FakeBroker(1) as one, FakeBroker(2) as two:
        both = Brokers({1: one, 2: two})
        for node_id, broker in both.brokers.items():
            broker.on |= {MetadataRequest: partial(both.metadata, node_id), ListOffsetsRequest: both.list_offsets}
        yield both


@pytest.fixture
def begun(brokers: Brokers, process_of: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A query that has read ``stays`` and ``goes``: its process, and its last offset."""
    monkeypatch.setattr("pykafka_wire.source.planning.subscribed_logs._METADATA_AGE_MS", 0)
    monkeypatch.setattr("pykafka_wire.source.planning.subscribed_logs._METADATA_COST_FACTOR", 0)
    monkeypatch.setattr("pykafka_wire.source.planning.subscribed_logs._AGREEMENT_MS", 500)

    def begin(**options: str) -> tuple[Any, str]:
        asked = {"startingOffsets": "earliest", "commitOffsets": "false", "subscribePattern": "^(stays|goes)"}
        if "subscribe" in options:
            del asked["subscribePattern"]
        if options.get("failOnDataLoss") == "false":
            options["dataLossLedger"] = str(tmp_path / "ledger")
        one = process_of(brokers.servers, **(asked | options))
        return one, one.latest(one.initial())

    return begin


def offsets(text: str) -> Any:
    return json.loads(text)["offsets"]


def ledger(folder: Path) -> list[tuple[str, str, int, int | None]]:
    files = (folder / "ledger").iterdir() if (folder / "ledger").exists() else []
    rows = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    return sorted((row["cause"], row["topic"], row["partition"], row["start_offset"]) for row in rows)


def ranges(one: Any, start: str, end: str) -> list[tuple[str, int, int, int]]:
    """(topic, partition, start, end) of a micro-batch."""
    planned = one.reader.partitions(json.loads(start), json.loads(end))
    return sorted(
        (r.topic, r.partition, r.start_offset, r.end_offset) for p in planned for r in p.ranges if r.n_offsets
    )


@pytest.mark.parametrize("options", [GO_ON, {}], ids=["go on", "fail"])
def test_one_broker_that_has_not_heard_of_a_topic_is_no_loss(
    options: dict[str, str], brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**options)
    brokers.ends = {"stays": [3], "goes": [7]}
    brokers.lag = lambda view: view.pop("goes")
    end = one.latest(start)
    assert offsets(end) == {"stays": {"0": 3}, "goes": {"0": 7}}
    assert ranges(one, start, end) == [("goes", 0, 5, 7), ("stays", 0, 2, 3)]
    assert ledger(tmp_path) == []


@pytest.mark.parametrize("n_silent", [1, 2])
def test_a_topic_is_not_lost_because_other_brokers_do_not_respond_at_once(
    n_silent: int, brokers: Brokers, begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling restart: a broker has just come back and lags, and the next one is on its way down."""
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    monkeypatch.setattr("pykafka_wire.source.planning.subscribed_logs._AGREEMENT_MS", 60_000)
    monkeypatch.setattr("pykafka_wire.source.planning.subscribed_logs._BROKER_MS", 500)
    brokers.ends = {"stays": [3], "goes": [7]}
    silent: set[int] = set()

    def lag(view: dict[str, View]) -> None:
        known = view.pop("goes")
        laggard, other = sorted(brokers.brokers, key=lambda node_id: brokers.views[node_id] is not view)
        silent.update([other, laggard][:n_silent])
        monkeypatch.setattr("random.sample", lambda *_: [laggard, other])

        def response(node_id: int, request: MetadataRequest, version: int) -> MetadataResponse | None:
            if request.topics and node_id in silent:
                silent.discard(node_id)
                if not silent:
                    view["goes"] = known
                return None
            return brokers.metadata(node_id, request, version)

        for node_id, broker in brokers.brokers.items():
            broker.on[MetadataRequest] = partial(response, node_id)

    brokers.lag = lag
    assert offsets(one.latest(start)) == {"stays": {"0": 3}, "goes": {"0": 7}}
    assert (silent, ledger(tmp_path)) == (set(), [])


@pytest.mark.parametrize("options", [GO_ON, {}], ids=["go on", "fail"])
def test_one_broker_that_has_not_heard_of_new_partitions_is_no_loss(
    options: dict[str, str], brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("goes", 5, 5)
    one, start = begun(**options)
    brokers.ends = {"goes": [6, 7]}
    brokers.lag = lambda view: view.update(goes=View(view["goes"].topic_id, 1))
    end = one.latest(start)
    assert ranges(one, start, end) == [("goes", 0, 5, 6), ("goes", 1, 5, 7)]
    assert ledger(tmp_path) == []


@pytest.mark.parametrize("options", [GO_ON, {}], ids=["go on", "fail"])
def test_one_broker_that_still_knows_the_topic_before_the_present_one_is_no_loss(
    options: dict[str, str], brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("goes", 5)
    one, start = begun(**options)
    brokers.ends = {"goes": [6]}
    brokers.lag = lambda view: view.update(goes=View(uuid.uuid4()))
    end = one.latest(start)
    assert ranges(one, start, end) == [("goes", 0, 5, 6)]
    assert ledger(tmp_path) == []


def test_a_named_topic_that_one_broker_does_not_list_is_no_loss(brokers: Brokers, begun: Any, tmp_path: Path) -> None:
    """Once a named topic is missing, all topics are listed: of another topic one such response says little."""
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    brokers.create("missing", 0)
    one, start = begun(subscribe="stays,goes,missing", **GO_ON)
    brokers.forget("missing")
    brokers.ends = {"stays": [2], "goes": [6]}
    start = one.latest(start)
    brokers.ends = {"stays": [3], "goes": [7]}
    brokers.lag = lambda view: view.pop("goes")
    end = one.latest(start)
    assert ranges(one, start, end) == [("goes", 0, 6, 7), ("stays", 0, 2, 3)]
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", "missing", 0, 0)]


def test_a_dropped_topic_that_is_back_under_its_id_continues_where_it_was(
    brokers: Brokers, begun: Any, process_of: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.create("stays", 2)
    topic_id = brokers.create("goes", 5, 4)
    one, start = begun(**GO_ON)
    brokers.ends["stays"] = [3]
    brokers.forget("goes")
    dropped = one.latest(start)
    assert offsets(dropped) == {"stays": {"0": 3}}
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", "goes", 0, 5), ("PARTITIONS_DELETED", "goes", 1, 4)]
    brokers.ends["stays"] = [4]
    later = one.latest(dropped)
    brokers.ends = {"stays": [4], "goes": [9, 4]}
    for view in brokers.views.values():
        view["goes"] = View(topic_id, 2)
    with caplog.at_level(logging.WARNING):
        back = one.latest(later)
    assert ranges(one, later, back) == [("goes", 0, 5, 9)]
    assert "goes" in caplog.text and "same topic id" in caplog.text
    brokers.ends["goes"] = [9, 6]
    # Another process goes on from the checkpoint, and replays what was planned.
    other = process_of(brokers.servers, subscribePattern="^(stays|goes)", commitOffsets="false", **GO_ON)
    assert ranges(other, later, back) == [("goes", 0, 5, 9)]
    onward = other.latest(back)
    assert ranges(other, back, onward) == [("goes", 1, 4, 6)]
    assert "dropped" not in json.loads(onward)


def test_a_topic_that_was_gone_for_a_moment_is_looked_up_again_when_it_is_missing_again(
    brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    topic_id = brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.forget("goes")
    assert one.latest(start) == start  # lost, and nothing else is read: the checkpoint stays as it is
    for view in brokers.views.values():
        view["goes"] = View(topic_id)
    assert one.latest(start) == start
    brokers.ends["goes"] = [7]
    brokers.lag = lambda view: view.pop("goes")
    assert ranges(one, start, one.latest(start)) == [("goes", 0, 5, 7)]


def test_a_dropped_topic_that_is_made_again_is_read_from_its_beginning(brokers: Brokers, begun: Any) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends["stays"] = [3]
    brokers.forget("goes")
    dropped = one.latest(start)
    brokers.create("goes", 9)
    again = one.latest(dropped)
    assert ranges(one, dropped, again) == [("goes", 0, 0, 9)]


def test_a_topic_that_may_not_be_described_for_a_while_keeps_its_offsets(
    brokers: Brokers, begun: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends = {"stays": [3], "goes": [7]}
    for view in brokers.views.values():
        view["goes"].denied = True
    with caplog.at_level(logging.WARNING):
        held = one.latest(start)
    assert offsets(held) == {"stays": {"0": 3}, "goes": {"0": 5}}
    assert ranges(one, start, held) == [("stays", 0, 2, 3)]
    assert "Describe" in caplog.text
    for view in brokers.views.values():
        view["goes"].denied = False
    end = one.latest(held)
    assert ranges(one, held, end) == [("goes", 0, 5, 7)]
    assert ledger(tmp_path) == []


def test_a_permission_that_is_lost_between_metadata_and_offsets_ends_no_running_query(
    brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends = {"stays": [3], "goes": [7]}

    def denying(request: Any, version: int) -> Any:
        for view in brokers.views.values():
            view["goes"].denied = True
        return brokers.list_offsets(request, version)

    for broker in brokers.brokers.values():
        broker.on[ListOffsetsRequest] = denying
    assert offsets(one.latest(start)) == {"stays": {"0": 3}, "goes": {"0": 5}}
    assert ledger(tmp_path) == []


def test_a_topic_that_may_not_be_described_ends_a_strict_query_for_that_reason(brokers: Brokers, begun: Any) -> None:
    brokers.create("goes", 5)
    one, start = begun()
    for view in brokers.views.values():
        view["goes"].denied = True
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        one.latest(start)


@pytest.mark.parametrize("names", [["goes-1"], ["goes-1", "goes-2"]], ids=["one", "two"])
def test_new_topics_that_vanish_in_one_look_are_lost(
    names: list[str], brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("stays", 2)
    one, start = begun(**GO_ON)
    brokers.ends["stays"] = [3]
    for name in names:
        brokers.create(name, 4)
        brokers.unknown_to_leaders.add(name)
    # They vanish while the leaders are asked for their ends.
    for broker in brokers.brokers.values():
        listed = broker.on[ListOffsetsRequest]

        def forgetting(request: Any, version: int, listed: Any = listed) -> Any:
            for name in names:
                brokers.forget(name)
            return listed(request, version)

        broker.on[ListOffsetsRequest] = forgetting
    end = one.latest(start)
    assert offsets(end) == {"stays": {"0": 3}}
    assert ledger(tmp_path) == [("INITIAL_OFFSET_NOT_FOUND", name, 0, 0) for name in names]


def test_a_new_topic_whose_leader_hears_of_it_late_is_not_lost_before_a_second_look(
    brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    """The second look finds no broker at all: nothing is known of the topic, and nothing may be said of it."""
    brokers.create("stays", 2)
    one, start = begun(**GO_ON, **{"kafka.default.api.timeout.ms": "6000", "kafka.request.timeout.ms": "1000"})
    brokers.create("goes-new", 4)
    brokers.unknown_to_leaders.add("goes-new")
    for node_id, broker in brokers.brokers.items():

        def one_list(request: Any, version: int, node_id: int = node_id, broker: FakeBroker = broker) -> Any:
            if request.topics is None:
                broker.on[MetadataRequest] = lambda request, version: (
                    None if request.topics is None else brokers.metadata(node_id, request, version)
                )
            return brokers.metadata(node_id, request, version)

        broker.on[MetadataRequest] = one_list
    with pytest.raises(Exception, match="PYKAFKA_WIRE_"):
        while True:
            one.latest(start)
    assert ledger(tmp_path) == []


def test_a_topic_that_vanishes_while_available_now_looks_for_its_ends(
    brokers: Brokers, begun: Any, tmp_path: Path
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends["stays"] = [3]
    listed = brokers.list_offsets

    def forgetting(request: Any, version: int) -> Any:
        brokers.forget("goes")
        brokers.unknown_to_leaders.add("goes")
        return listed(request, version)

    for broker in brokers.brokers.values():
        broker.on[ListOffsetsRequest] = forgetting
    one.reader.prepareForTriggerAvailableNow()
    end = one.latest(start)
    assert offsets(end) == {"stays": {"0": 3}}
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", "goes", 0, 5)]


def test_a_topic_that_one_broker_did_not_list_at_the_start_of_an_available_now_run_is_read_in_it(
    brokers: Brokers, begun: Any
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends = {"stays": [3], "goes": [7]}
    topic_id = brokers.views[1]["goes"].topic_id
    brokers.lag = lambda view: view.pop("goes")
    one.reader.prepareForTriggerAvailableNow()
    for view in brokers.views.values():
        view["goes"] = View(topic_id)
    assert ranges(one, start, one.latest(start)) == [("goes", 0, 5, 7), ("stays", 0, 2, 3)]


@pytest.mark.parametrize(
    "error",
    [UnknownTopicError(3, topic="goes"), TopicRecreatedError("another topic id", topic="goes", partition=0)],
    ids=["unknown", "recreated"],
)
def test_a_task_skips_a_topic_only_where_no_broker_knows_it(
    error: WireError, brokers: Brokers, begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create("stays", 2)
    brokers.create("goes", 5)
    one, start = begun(**GO_ON)
    brokers.ends["goes"] = [7]
    planned = one.reader.partitions(json.loads(start), json.loads(one.latest(start)))

    def fetch_ranges(_: object, ranges: Any, **__: object) -> Iterator[Any]:
        if ranges:
            raise error  # as one broker responds that lags behind
        yield from ()

    monkeypatch.setattr("pykafka_wire.source.task_reader.fetch_ranges", fetch_ranges)
    with pytest.raises(type(error)):
        list(one.reader.read(planned[0]))
    assert ledger(tmp_path) == []
    brokers.forget("goes")
    assert list(one.reader.read(planned[0])) == []
    assert [topic for _, topic, _, _ in ledger(tmp_path)] == ["goes"]


@pytest.mark.parametrize(
    "ttl_ms, found", [("60000", {"stays"}), ("1", {"stays", "goes-new"}), ("-1", {"stays", "goes-new"})]
)
def test_new_topics_are_found_once_the_topics_that_are_known_are_too_old(
    brokers: Brokers, begun: Any, ttl_ms: str, found: set[str]
) -> None:
    """SPARK-49442: Spark's name and values; the fixture has the usual age at zero."""
    brokers.create("stays", 2)
    one, start = begun(**{"partition.metadata.cache.ttl.ms": ttl_ms})
    asked = sum(broker.count(MetadataRequest) for broker in brokers.brokers.values())
    brokers.create("goes-new", 3)
    time.sleep(0.01)
    assert set(offsets(one.latest(start))) == found
    asked = sum(broker.count(MetadataRequest) for broker in brokers.brokers.values()) - asked
    assert (asked == 0) == (found == {"stays"})
