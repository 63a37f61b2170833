"""Every error code on every API, in the first, a middle and the last request of a session (franz-go's kfake).

Retriable codes: the session ends as if there had been none, nothing is lost or doubled. Fatal codes: one error with the code.
``make brokers`` runs this; it needs Go.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.error_codes import ERRORS, Action
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.protocol.message import Request
from pykafka_wire.wire.protocol.messages.group import LeaveGroupRequest
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetFetchRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import ProduceRequest
from pykafka_wire.wire.protocol.messages.transactions import AddPartitionsToTxnRequest
from pykafka_wire.wire.settings import ClientSettings
from tests.brokers.kfake import Fault, KfakeCluster, kfake
from tests.brokers.sessions import PARTITIONS, SESSIONS, SHORT, Session, fill

pytestmark = pytest.mark.long

_NUMBERS: Final = itertools.count()
_RETRIED: Final = (Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR)
RETRIABLE: Final = [code for code, info in ERRORS.items() if info.retriable and info.action in _RETRIED]
FATAL: Final = [code for code, info in ERRORS.items() if info.action is Action.FATAL]
#: After it a producer goes on under its next epoch (KIP-360), until delivery.timeout.ms.
UNKNOWN_PRODUCER_ID: Final = 59
#: In the versions that are used these have no code of their own.
_WITHOUT_CODE: Final = (OffsetFetchRequest, AddPartitionsToTxnRequest)
#: With a release of Kafka: that of the first transaction protocol, or the newest.
CASES: Final = [
    pytest.param(release, name, api, id=f"{name}-{api.name}-{release or 'newest'}")
    for name, session in SESSIONS.items()
    for api in session.apis
    for release in (["3.9"] if "ToTxn" in api.name else ["", "3.9"] if name == "transact" else [""])
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, KfakeCluster]]:
    with kfake(3) as newest, kfake(3, "3.9") as first_protocol:
        yield {"": newest, "3.9": first_protocol}


class Faulty:
    """Runs a session with a fault."""

    def __init__(self, brokers: KfakeCluster, session: Session) -> None:
        self.brokers = brokers
        self.session = session
        self.settings = ClientSettings.from_options({**SHORT, "bootstrap.servers": brokers.bootstrap_servers})
        self.observer = Cluster(self.settings)

    def run(self, fault: Fault) -> int:
        """How many requests the fault has met."""
        topic = f"faulty-{next(_NUMBERS)}"
        create_topics(self.observer, {topic: (PARTITIONS, 1)})
        if self.session is SESSIONS["read"]:
            fill(self.observer, topic)
        number = self.brokers.inject(fault)
        try:
            self.session.run(self.settings, self.observer, topic)
        finally:
            hits = self.brokers.end(number)
        return hits


@pytest.fixture
def faulty(clusters: dict[str, KfakeCluster], request: pytest.FixtureRequest) -> Iterator[Faulty]:
    parameters = request.node.callspec.params
    runs = Faulty(clusters[parameters["release"]], SESSIONS[parameters["name"]])
    yield runs
    runs.observer.close()


def faults(api: type[Request[Any]], code: int, n_requests: int) -> Iterator[Fault]:
    """A fault in the first, a middle and the last of a session's requests: of all its partitions, of one, of the request."""
    for skip in sorted({0, n_requests // 2, n_requests - 1}):
        yield Fault(api=api.api_key, code=code, skip=skip)
        yield Fault(api=api.api_key, code=code, skip=skip, partitions=[1])
        if api not in _WITHOUT_CODE:
            yield Fault(api=api.api_key, code=code, skip=skip, top_level=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("release", "name", "api"), CASES)
def test_retriable_codes_lose_and_double_nothing(
    faulty: Faulty, release: str, name: str, api: type[Request[Any]]
) -> None:
    n_requests = faulty.run(Fault(api=api.api_key, code=0, count=-1))
    assert n_requests
    met = 0
    failed = []
    codes = [*RETRIABLE, UNKNOWN_PRODUCER_ID] if (name, api) == ("write", ProduceRequest) else RETRIABLE
    for i, code in enumerate(codes):
        every = list(faults(api, code, n_requests))
        # Long sessions take one place for each code, in turn.
        for fault in [every[i % len(every)]] if name in ("consume", "transact") else every:
            started = time.monotonic()
            try:
                met += faulty.run(fault)
            except (WireError, AssertionError) as error:
                failed.append(f"{ERRORS[code].name}: {fault}: {str(error)[:300]}")
            took_s = time.monotonic() - started
            if took_s > 10:
                failed.append(f"{ERRORS[code].name}: {fault}: {took_s:.1f} s")
    assert not failed, f"{len(failed)} sessions:\n" + "\n".join(failed)
    assert met >= len(RETRIABLE) // 3  # not every API has codes for its partitions, nor one for the request


#: Codes that are no failure: a group without offsets; a member that joins again; a position to reset (auto.offset.reset); a
#: producer that goes on under its next epoch.
_NOT_RAISED: Final = {
    ("commit", "OffsetFetch", "GROUP_ID_NOT_FOUND"),
    ("consume", "OffsetFetch", "GROUP_ID_NOT_FOUND"),
    ("consume", "JoinGroup", "GROUP_ID_NOT_FOUND"),
    ("consume", "SyncGroup", "GROUP_ID_NOT_FOUND"),
    ("consume", "Heartbeat", "GROUP_ID_NOT_FOUND"),
    ("consume", "Fetch", "OFFSET_OUT_OF_RANGE"),
    ("write", "Produce", "UNKNOWN_PRODUCER_ID"),
}
#: A member that cannot leave logs it.
FATAL_CASES: Final = [case for case in CASES if case.values[2] is not LeaveGroupRequest]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("release", "name", "api"), FATAL_CASES)
def test_fatal_codes_are_one_clear_error_at_once(
    faulty: Faulty, release: str, name: str, api: type[Request[Any]]
) -> None:
    faulty.run(Fault(api=api.api_key, code=0, count=-1))
    failed = []
    for code in FATAL:
        if (name, api.name, ERRORS[code].name) in _NOT_RAISED:
            continue
        started = time.monotonic()
        try:
            if faulty.run(Fault(api=api.api_key, code=code, count=-1)):
                failed.append(f"{ERRORS[code].name}: no error")
        except WireError as error:
            if ERRORS[code].name not in "".join(map(str, causes(error))):
                failed.append(f"{ERRORS[code].name}: {error}")
        except AssertionError as error:
            failed.append(f"{ERRORS[code].name}: {str(error)[:200]}")
        if (took_s := time.monotonic() - started) > 5:
            failed.append(f"{ERRORS[code].name}: {took_s:.1f} s")
    assert not failed, f"{len(failed)} codes:\n" + "\n".join(failed)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__


@pytest.mark.parametrize("name", ["write", "read", "commit", "transact"])
def test_leaders_and_coordinators_that_keep_moving_lose_and_double_nothing(
    clusters: dict[str, KfakeCluster], name: str
) -> None:
    brokers = clusters[""]
    runs = Faulty(brokers, SESSIONS[name])
    stop = threading.Event()

    def move() -> None:
        while not stop.wait(0.02):
            brokers.move_leaders()
            brokers.move_coordinators()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(5):
            runs.run(Fault(api=MetadataRequest.api_key, code=0))
    finally:
        stop.set()
        mover.join()
        runs.observer.close()
