"""The states of a transaction: which calls each of them allows, and how one follows another. No broker is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import DescribedTransaction
from pykafka_wire.wire.errors import ProducerFencedError, TransactionStateError, TransportError, broker_error
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions import transaction as module
from pykafka_wire.wire.transactions.bulk import End, end_of
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion
from pykafka_wire.wire.transactions.transaction import Transaction, TransactionState
from tests.wire.transaction_records import encode

T0 = TopicPartition("t", 0)
OFFSETS = {T0: CommittedOffset(1)}
HANDLE = TransactionHandle(transactional_id="id", identity=ProducerIdentity(7, 3), version=TransactionVersion.TV2)
S = TransactionState


class Requests:
    """Stands in for the coordinator: each request succeeds, or raises what the test sets."""

    def __init__(self) -> None:
        self.fails: BaseException | None = None
        self.ends: list[bool] = []
        self.has_lost_responses = False

    def add_partitions(self, *_: Any) -> None:
        if self.fails is not None:
            raise self.fails

    commit_offsets = add_partitions

    def end(self, *, committed: bool, deadline: Any) -> ProducerIdentity:
        self.ends.append(committed)
        if self.fails is not None:
            raise self.fails
        return ProducerIdentity(7, 4)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    made = Requests()
    monkeypatch.setattr(module, "TransactionRequests", lambda *_: made)
    monkeypatch.setattr(module, "last_known_state", lambda *_: None)
    return made


@pytest.fixture
def begun(requests: Requests) -> Iterator[Transaction]:
    with Cluster(ClientSettings(bootstrap_servers=(("no-such-host.invalid", 9092),))) as cluster:
        yield Transaction(cluster, HANDLE)


CALLS: dict[str, Callable[[Transaction], object]] = {
    "produce": lambda transaction: transaction.produce({}),
    "append": lambda transaction: transaction.append("t", 0, []),
    "flush": lambda transaction: transaction.flush(),
    "commit_offsets": lambda transaction: transaction.commit_offsets("g", OFFSETS),
    "commit": lambda transaction: transaction.commit(),
    "leave_open": lambda transaction: transaction.leave_open(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", S)
def test_records_and_ends_are_for_a_transaction_that_is_open(
    begun: Transaction, requests: Requests, state: TransactionState, call: str
) -> None:
    begun.state = state
    if state in (S.BEGUN, S.OPEN):
        CALLS[call](begun)
        return
    with pytest.raises(TransactionStateError, match=rf"{call}\(\) .* which is {state.value}"):
        CALLS[call](begun)
    assert begun.state is state
    assert requests.ends == []


@pytest.mark.parametrize("state", S)
def test_an_abort_never_contradicts_an_end(begun: Transaction, requests: Requests, state: TransactionState) -> None:
    begun.state = state
    begun.abort()
    assert requests.ends == ([False] if state in (S.OPEN, S.FAILED) else [])
    assert begun.state is (S.ABORTED if state in (S.BEGUN, S.OPEN, S.FAILED) else state)


@pytest.mark.parametrize(("state", "settled", "in_doubt"), [
    (S.BEGUN, True, False),
    (S.OPEN, False, False),
    (S.FAILED, False, False),
    (S.COMMITTING, False, True),
    (S.COMMITTED, True, False),
    (S.ABORTED, True, False),
    (S.LEFT_OPEN, False, False),
    (S.FENCED, True, False),
    (S.FENCED_COMMITTING, True, True),
])  # fmt: skip
def test_what_each_state_means_for_the_next_transaction(
    begun: Transaction, state: TransactionState, settled: bool, in_doubt: bool
) -> None:
    begun.state = state
    assert (begun.is_settled, begun.in_doubt) == (settled, in_doubt)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, S.COMMITTED),
        (TransportError("no response"), S.COMMITTING),
        (KeyboardInterrupt(), S.COMMITTING),
        (broker_error(-1, api="EndTxn"), S.COMMITTING),
        (broker_error(48, api="EndTxn"), S.ABORTED),
        (broker_error(90, api="EndTxn"), S.FENCED_COMMITTING),
    ],
)
def test_a_commit_ends_as_its_coordinator_says(
    begun: Transaction, requests: Requests, error: BaseException | None, state: TransactionState
) -> None:
    begun.commit_offsets("g", OFFSETS)
    assert begun.state is S.OPEN
    requests.fails = error
    if error is None:
        begun.commit()
        assert begun.last_handle.identity == ProducerIdentity(7, 4)
    else:
        with pytest.raises(type(error)):
            begun.commit()
    assert begun.state is state
    begun.abort()
    assert requests.ends == [True], "an abort after a commit could contradict it"


@pytest.mark.parametrize(
    ("error", "state"), [(TransportError("no response"), S.LEFT_OPEN), (broker_error(90, api="EndTxn"), S.FENCED)]
)
def test_an_abort_that_fails_leaves_the_transaction_to_its_coordinator(
    begun: Transaction, requests: Requests, error: BaseException, state: TransactionState
) -> None:
    begun.commit_offsets("g", OFFSETS)
    requests.fails = error
    begun.abort()
    begun.abort()
    assert (begun.state, requests.ends) == (state, [False])


@pytest.mark.parametrize("error", [broker_error(22, api="TxnOffsetCommit"), TransportError("no response")])
@pytest.mark.parametrize("call", ["commit_offsets", "append"])
def test_what_was_not_added_cannot_be_left_out_of_a_commit(
    begun: Transaction, requests: Requests, error: BaseException, call: str
) -> None:
    requests.fails = error
    with pytest.raises(type(error)):
        CALLS[call](begun)
    assert begun.state is S.FAILED
    requests.fails = None
    for end in (begun.commit, begun.leave_open):
        with pytest.raises(TransactionStateError, match=r"which is failed.*Abort it"):
            end()
    begun.abort()
    assert (begun.state, requests.ends) == (S.ABORTED, [False])


@pytest.mark.parametrize("end", ["commit", "leave_open"])
def test_records_without_an_acknowledgement_cannot_be_left_out_either(
    begun: Transaction, requests: Requests, end: str
) -> None:
    begun.append("t", 0, encode(b"not sent yet"))
    with pytest.raises(TransactionStateError, match=r"not all of whose records are acknowledged.*flush"):
        CALLS[end](begun)
    assert (begun.state, requests.ends) == (S.OPEN, [])


def test_a_producer_that_is_fenced_ends_nothing(begun: Transaction, requests: Requests) -> None:
    requests.fails = broker_error(90, api="AddPartitionsToTxn")
    with pytest.raises(ProducerFencedError, match="taken over the transactional id"):
        begun.append("t", 0, [])
    begun.abort()
    assert (begun.state, requests.ends) == (S.FENCED, [])


def test_a_transaction_of_nothing_is_not_ended_at_its_coordinator(begun: Transaction, requests: Requests) -> None:
    assert begun.leave_open() is None
    assert (begun.state, requests.ends) == (S.ABORTED, [])


@pytest.mark.parametrize(
    ("producer_id", "epoch", "state", "end"),
    [
        (7, 3, "CompleteCommit", End.COMMITTED),
        (7, 4, "CompleteCommit", End.COMMITTED),
        (7, 4, "CompleteAbort", End.ABORTED),
        (7, 5, "CompleteAbort", End.UNKNOWN),
        (7, 4, "PrepareEpochFence", End.ABORTED),
        (7, 4, "PrepareAbort", End.ABORTED),
        (7, 4, "PrepareCommit", End.COMMITTED),
        (7, 4, "Empty", End.UNKNOWN),
        (7, 4, "Ongoing", End.UNKNOWN),
        (8, 3, "CompleteAbort", End.UNKNOWN),
    ],
)
def test_how_a_transaction_has_ended_by_its_description(producer_id: int, epoch: int, state: str, end: End) -> None:
    handle = TransactionHandle(transactional_id="t", identity=ProducerIdentity(7, 3), version=TransactionVersion.TV1)
    described = DescribedTransaction(
        transactional_id="t",
        state=state,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        started_ms=-1,
        partitions=(),
    )
    assert end_of(handle, described) is end
    assert end_of(handle, None) is End.UNKNOWN
