"""Many transactions of other processes at a time: which are open, how they stand, and their end.

Requests to one coordinator are pipelined over a few connections. A coordinator that moves, loads or is still ending a transaction
is asked again, for what is left. KIP-98 (EndTxn), KIP-664 (ListTransactions, DescribeTransactions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.describe import OPEN_STATES, DescribedTransaction, described_transaction, only_state
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import UnsupportedVersionError, broker_error
from pykafka_wire.wire.protocol.message import ByVersion
from pykafka_wire.wire.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
)
from pykafka_wire.wire.transactions.coordinator import TransactionHandle

_FIRST_PATTERN: Final = 2
#: The response to EndTxn of a transaction that has ended the other way, or of an id that has expired since.
_HAS_ENDED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: By the state of a transaction. The coordinator has decided in the states that begin with "Prepare": what is left is to tell the
#: partitions, which may take as long as one of them has no leader.
_ENDS: Final = {
    "PrepareCommit": "committed",
    "CompleteCommit": "committed",
    "PrepareEpochFence": "aborted",
    "PrepareAbort": "aborted",
    "CompleteAbort": "aborted",
}


class End(Enum):
    """How a transaction has ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Its id was used again, has expired, or may not be described.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """The last transaction of an id, as the list of all has it: without its epoch."""

    transactional_id: str
    producer_id: int
    state: str


def commit_all(
    cluster: Cluster, handles: Sequence[TransactionHandle], *, deadline: Deadline | None = None
) -> dict[TransactionHandle, End]:
    """Commit transactions; how each has ended. One that was committed before counts as committed.

    Raises:
        BrokerError: an end was refused for another reason than that the transaction has ended.
        DeadlineExceededError: how some have ended is unknown, for their coordinators do not respond.
    """
    codes = _end_all(cluster, handles, committed=True, deadline=deadline)
    ends = {handle: End.COMMITTED for handle in handles if not codes[handle]}
    refused = [handle for handle in handles if codes[handle]]
    for handle in refused:
        if codes[handle] not in _HAS_ENDED:
            raise broker_error(codes[handle], api="EndTxn", detail=f"(transactional id {handle.transactional_id!r})")
    if refused:
        described = describe_all(cluster, [handle.transactional_id for handle in refused], deadline=deadline)
        ends |= {handle: end_of(handle, described.get(handle.transactional_id)) for handle in refused}
    return ends


def abort_all(cluster: Cluster, handles: Sequence[TransactionHandle]) -> dict[TransactionHandle, int]:
    """Abort transactions, each exactly the one of its producer id and epoch; error codes by handle, 0 where it is aborted.

    Raises:
        DeadlineExceededError: a coordinator did not respond.
    """
    return _end_all(cluster, handles, committed=False, deadline=None)


def end_of(handle: TransactionHandle, described: DescribedTransaction | None) -> End:
    """Return how a transaction that is refused a commit has ended, by what its coordinator says of its id now.

    A time-out raises the epoch by one, and so does every end in TV2. The id must not have been used again.
    """
    if described is None or described.producer_id != handle.identity.producer_id:
        return End.UNKNOWN
    if described.producer_epoch - handle.identity.producer_epoch not in (0, 1):
        return End.UNKNOWN
    return End(_ENDS.get(described.state, End.UNKNOWN.value))


def describe_all(
    cluster: Cluster, transactional_ids: Sequence[str], *, deadline: Deadline | None = None
) -> dict[str, DescribedTransaction]:
    """Return the state of each transactional id; without those that are not known, or may not be described."""
    try:
        requests = {name: DescribeTransactionsRequest(transactional_ids=[name]) for name in transactional_ids}
        responses = cluster.by_coordinator(CoordinatorKind.TRANSACTION, requests, deadline=deadline)
    except UnsupportedVersionError:  # brokers older than Kafka 3.0
        return {}
    states = {name: only_state(response) for name, response in responses.items()}
    return {name: described_transaction(name, state) for name, state in states.items() if not state.error_code}


def list_open(cluster: Cluster, prefix: str) -> list[ListedTransaction]:
    """Return the transactions that have not ended, of transactional ids that begin with `prefix` and that we may see, by name.

    Raises:
        UnsupportedVersionError: the brokers are older than Kafka 3.0.
    """
    return list_in_states(cluster, prefix, OPEN_STATES)


def list_in_states(
    cluster: Cluster, prefix: str, states: Sequence[str], *, deadline: Deadline | None = None
) -> list[ListedTransaction]:
    """Return what :func:`list_open` does, of ids whose last transaction is in one of `states`."""
    # Only ASCII is escaped: kfake's regular expressions, which are Go's, allow no backslash before other characters.
    pattern = "".join(c if c.isalnum() or c == "_" or not c.isascii() else f"\\{c}" for c in prefix) + ".*"

    def build(version: int) -> ListTransactionsRequest:
        wanted = pattern if version >= _FIRST_PATTERN else None
        return ListTransactionsRequest(state_filters=list(states), transactional_id_pattern=wanted)

    state_of = {}
    for node in cluster.metadata.brokers(deadline=deadline):
        response = cluster.request(node, ByVersion(ListTransactionsRequest, build), deadline=deadline)
        if response.error_code:
            raise broker_error(response.error_code, broker=node, api="ListTransactions")
        for state in response.transaction_states:
            if state.transactional_id.startswith(prefix):
                state_of[state.transactional_id] = ListedTransaction(
                    transactional_id=state.transactional_id,
                    producer_id=state.producer_id,
                    state=state.transaction_state,
                )
    return [state_of[name] for name in sorted(state_of)]


def _end_all(
    cluster: Cluster, handles: Sequence[TransactionHandle], *, committed: bool, deadline: Deadline | None
) -> dict[TransactionHandle, int]:
    """Return the error code of EndTxn for each handle."""
    if not handles:
        return {}

    def request(handle: TransactionHandle) -> ByVersion[EndTxnResponse]:
        def build(version: int) -> EndTxnRequest:
            handle.version.require(EndTxnRequest, version)
            return handle.end_request(committed=committed)

        return ByVersion(EndTxnRequest, build)

    responses = cluster.by_coordinator(
        CoordinatorKind.TRANSACTION,
        {handle.transactional_id: request(handle) for handle in handles},
        deadline=deadline,
        version_cap=handles[0].version.request_cap(EndTxnRequest),
    )
    return {handle: responses[handle.transactional_id].error_code for handle in handles}
