"""``transactions``: what hangs, and what may hang while a coordinator has no leader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pykafka_wire.cli import offsets
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tests.wire.fake_broker import FakeBroker

Command = Callable[..., Any]
_PRODUCER = 77


@pytest.fixture
def at(leaderless: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A producer has a transaction open in each partition with a leader; the broker coordinates no transaction."""
    monkeypatch.setattr(offsets, "ELECTION_MS", 50)
    leaderless.speak({61: (0, 0), 65: (0, 0), 66: (0, 2)})
    leaderless.on[ListTransactionsRequest] = lambda request, _: ListTransactionsResponse()
    leaderless.on[DescribeProducersRequest] = lambda request, _: _open_producers(request)
    return ["-b", leaderless.address]


def _open_producers(request: DescribeProducersRequest) -> DescribeProducersResponse:
    producer = ProducerState(producer_id=_PRODUCER, last_timestamp=0, current_txn_start_offset=3)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=number, active_producers=[producer])
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _states(done: Any) -> list[str]:
    return [row["state"] for row in json.loads(done.stdout)]


def test_a_transaction_that_no_coordinator_knows_hangs(command: Command, at: list[str], leaderless: FakeBroker) -> None:
    leaderless.topics["__transaction_state"] = {0: (1, 0), 1: (1, 0)}
    assert _states(command("transactions", *at, "--topic", "others", "--json", code=1)) == ["HUNG"]
    shown = command("transactions", *at, "--topic", "others", code=1).stdout
    assert "No coordinator that you may ask knows the transactions in state HUNG" in shown
    assert "Abort no other transaction with that command" in shown


def test_whether_a_transaction_hangs_is_unknown_while_a_coordinator_has_no_leader(
    command: Command, at: list[str], leaderless: FakeBroker
) -> None:
    leaderless.topics["__transaction_state"] = {0: (1, 0), 1: (-1, 0)}
    assert _states(command("transactions", *at, "--topic", "others", "--json", code=1)) == ["UNKNOWN"]
    shown = command("transactions", *at, "--topic", "others", code=1)
    assert "these partitions have no leader: __transaction_state-1 (no leader). Abort nothing." in shown.stderr
    assert "kafka-transactions.sh" not in shown.stdout + shown.stderr


def test_a_coordinator_that_is_elected_meanwhile_is_asked(
    command: Command, leaderless: FakeBroker, at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "ELECTION_MS", 10_000)
    leaderless.topics["__transaction_state"] = {0: (-1, 0)}
    listed = leaderless.metadata

    def elected(request: MetadataRequest, version: int) -> Any:
        if leaderless.count(ListTransactionsRequest):
            # The client that asks after the first list finds no leader once more.
            response = listed(request, version)
            leaderless.topics["__transaction_state"] = {0: (1, 1)}
            return response
        return listed(request, version)

    def known(request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        state = ListTransactionsResponseTransactionState(
            transactional_id="t", producer_id=_PRODUCER, transaction_state="Ongoing"
        )
        is_led = leaderless.topics["__transaction_state"][0][0] >= 0
        return ListTransactionsResponse(transaction_states=[state] if is_led else [])

    leaderless.on[MetadataRequest] = elected
    leaderless.on[ListTransactionsRequest] = known
    leaderless.on[DescribeTransactionsRequest] = lambda request, _: DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponseState(transactional_id="t", transaction_state="Ongoing", producer_id=_PRODUCER)
        ]
    )
    assert _states(command("transactions", *at, "--topic", "others", "--json")) == ["Ongoing"]


def test_partitions_without_a_leader_are_named(command: Command, at: list[str], leaderless: FakeBroker) -> None:
    leaderless.on[DescribeProducersRequest] = lambda request, _: DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=each.name, partitions=[PartitionResponse(partition_index=n) for n in each.partition_indexes]
            )
            for each in request.topics
        ]
    )
    shown = command("transactions", *at)
    assert shown.stdout == "No transaction is open.\n"
    assert shown.stderr == "Not searched for hanging transactions: orders-1 (no leader).\n"
