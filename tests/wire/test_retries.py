"""What is tried again, for how long, and what is said in the end."""

from __future__ import annotations

import time

import pytest

from pykafka_wire.wire import error_codes
from pykafka_wire.wire.cluster.retries import Backoff, GracePeriods, Retry, Unfinished
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    AuthenticationError,
    BrokerError,
    CorrelationError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.settings import ClientSettings

QUICK = Backoff(ClientSettings(bootstrap_servers=(("h", 1),), retry_backoff_ms=1, retry_backoff_max_ms=2))


def run(error: Exception, within_ms: float = 200) -> tuple[int, WireError]:
    """How often a block that always fails is tried, and the error in the end."""
    n_tries = 0

    def fail() -> None:
        nonlocal n_tries
        n_tries += 1
        raise error

    with pytest.raises(WireError) as raised:
        Retry(QUICK, Deadline.after_ms(within_ms)).run(fail, "Metadata")
    return n_tries, raised.value


@pytest.mark.parametrize(
    "error",
    [
        TransportError("reset"),
        DeadlineExceededError("no response in time"),
        CorrelationError("out of step"),
        broker_error(6, topic="t", partition=3, broker=1, api="ListOffsets"),
        broker_error(14),
        broker_error(16),
    ],
    ids=lambda error: str(getattr(error, "name", type(error).__name__)),
)
def test_what_another_try_may_mend_is_tried_until_the_deadline(error: WireError) -> None:
    n_tries, raised = run(error)
    assert n_tries > 2
    assert isinstance(raised, DeadlineExceededError)
    assert raised.__cause__ is error
    assert error.message in str(raised)
    assert (raised.topic, raised.partition, raised.broker) == (error.topic, error.partition, error.broker)


@pytest.mark.parametrize(
    "error",
    [
        ProtocolError("trailing bytes"),
        AuthenticationError("refused"),
        UnsupportedVersionError("too old"),
        NoBrokerAvailableError(),
        broker_error(29),
        broker_error(17),
        broker_error(999),
    ],
    ids=lambda error: str(getattr(error, "name", type(error).__name__)),
)
def test_what_no_try_can_mend_comes_out_at_once(error: WireError) -> None:
    assert run(error) == (1, error)


def test_an_error_of_our_own_making_comes_out_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        Retry(QUICK, Deadline.after_ms(200)).run(lambda: 1 // 0, "Metadata")


def test_a_code_with_a_grace_is_given_up_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=150))
    started = time.monotonic()
    n_tries, raised = run(broker_error(3, topic="nope"), within_ms=20_000)
    assert n_tries > 2
    assert isinstance(raised, BrokerError)
    assert time.monotonic() - started < 5


def test_each_code_has_a_grace_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=0))
    graces = GracePeriods()
    assert not graces.allow(3)
    assert graces.allow(100)
    assert graces.allow(6)


def test_what_an_earlier_try_has_kept_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=50))
    retry = Retry(QUICK, Deadline.after_ms(20_000))
    tries: list[int] = []

    def ask() -> str:
        tries.append(1)
        if len(tries) == 1:
            retry.keep(broker_error(3, topic="new"))
        if len(tries) == 2:
            time.sleep(0.1)  # no response, for longer than the code's grace
            retry.keep(DeadlineExceededError("no response in time"))
        if len(tries) < 3:
            raise Unfinished
        return "done"

    assert retry.run(ask, "Metadata") == "done"


def test_a_passed_deadline_still_gets_one_try() -> None:
    assert run(TransportError("reset"), within_ms=0)[0] == 1


def test_the_reason_of_an_earlier_try_outlives_a_last_one_that_ran_out_of_time() -> None:
    failures: list[WireError] = [broker_error(15, broker=1), DeadlineExceededError("no response in time")]

    def fail() -> None:
        raise failures[0] if len(failures) == 1 else failures.pop(0)

    with pytest.raises(DeadlineExceededError, match="COORDINATOR_NOT_AVAILABLE"):
        Retry(QUICK, Deadline.after_ms(30)).run(fail, "FindCoordinator")


def test_what_brokers_said_outlives_that_none_is_there_at_the_end() -> None:
    for first, raised in ((broker_error(15), DeadlineExceededError), (TransportError("reset"), NoBrokerAvailableError)):
        retry = Retry(QUICK, Deadline.after_ms(0))
        retry.keep(first)

        def fail() -> None:
            raise NoBrokerAvailableError

        with pytest.raises(raised):
            retry.run(fail, "FindCoordinator")


def test_a_try_that_succeeds_ends_the_tries() -> None:
    failures = [TransportError("reset"), broker_error(14)]

    def fail_twice() -> int:
        if failures:
            raise failures.pop()
        return 7

    counters = ClientCounters()
    assert Retry(QUICK, Deadline.after_ms(60_000), counters).run(fail_twice, "Metadata") == 7
    assert counters.totals().retries == 2
