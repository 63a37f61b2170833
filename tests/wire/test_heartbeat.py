"""A live member whose coordinator goes away and comes back; joins and hand-overs on real brokers are in test_consumer.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, BrokerError, NoBrokerAvailableError, SettingsError, WireError
from pykafka_wire.wire.groups.classic.membership import ClassicMembership, GroupMember, member_state_machine
from pykafka_wire.wire.groups.classic.state_machine import MemberState
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_coordinator import SASL, GroupCoordinator, takes_passwords

#: A generous bound for what takes some round trips.
SOON_MS = 30_000


@pytest.fixture
def coordinator() -> Iterator[GroupCoordinator]:
    with GroupCoordinator() as broker:
        yield broker


@pytest.fixture
def member(coordinator: GroupCoordinator) -> Iterator[ClassicMembership]:
    options = {
        "bootstrap.servers": coordinator.address,
        "group.id": "g",
        "heartbeat.interval.ms": "20",
        "metadata.max.age.ms": "50",
        "default.api.timeout.ms": "300",
        "retry.backoff.ms": "10",
    }
    settings = ClientSettings.from_options(options)
    with Cluster(settings) as cluster:
        member = ClassicMembership(GroupMember(cluster, member_state_machine(settings, "g", ("t",))), settings)
        yield member
        member.close()


def await_heartbeat(coordinator: FakeBroker) -> None:
    heard, deadline = coordinator.count(HeartbeatRequest), Deadline.after_ms(SOON_MS)
    while coordinator.count(HeartbeatRequest) == heard:
        assert not deadline.expired
        time.sleep(0.01)


def test_a_member_outlives_its_cluster_being_away(
    coordinator: GroupCoordinator, member: ClassicMembership, caplog: Any
) -> None:
    member.request_join()
    assert member.wait_until_stable(Deadline.after_ms(SOON_MS))
    await_heartbeat(coordinator)
    for trouble in coordinator.know_nothing, coordinator.go_away:
        caplog.clear()
        trouble()
        deadline = Deadline.after_ms(SOON_MS)
        while "NO_BROKER_AVAILABLE" not in caplog.text:
            assert not deadline.expired
        assert member.error is None
        assert member.state is MemberState.STABLE
    coordinator.go_on()
    await_heartbeat(coordinator)
    member.state_machine.rejoin()
    member.request_join()
    assert member.wait_until_stable(Deadline.after_ms(SOON_MS))


def test_a_rebalance_is_followed_by_heartbeats_until_the_caller_joins_again(
    coordinator: GroupCoordinator, member: ClassicMembership
) -> None:
    """A caller at work on its records keeps its place: without heartbeats it would lose it after session.timeout.ms."""
    member.request_join()
    assert member.wait_until_stable(Deadline.after_ms(SOON_MS))
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=27)
    deadline = Deadline.after_ms(SOON_MS)
    while member.state is MemberState.STABLE:
        assert not deadline.expired
        time.sleep(0.01)
    for _ in range(3):
        await_heartbeat(coordinator)
    assert coordinator.count(JoinGroupRequest) == 1
    assert member.state_machine.identity.generation == 1
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=0)
    await_heartbeat(coordinator)
    assert member.state is MemberState.REBALANCING
    member.request_join()
    assert member.wait_until_stable(deadline)
    assert coordinator.count(JoinGroupRequest) == 2


def running_thread() -> threading.Thread:
    (found,) = (thread for thread in threading.enumerate() if thread.name == "pykafka-wire member of g")
    return found


@pytest.mark.parametrize("silent", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_closing_ends_the_thread_though_a_response_is_still_to_come(
    coordinator: GroupCoordinator, member: ClassicMembership, silent: type[Any]
) -> None:
    coordinator.on[silent] = lambda *_: None
    member.request_join()
    thread, deadline = running_thread(), Deadline.after_ms(SOON_MS)
    while not coordinator.count(silent):
        assert not deadline.expired
        time.sleep(0.01)
    member.close(leave=False)
    assert not thread.is_alive()
    assert member.error is None


def test_closing_ends_the_thread_while_the_coordinator_is_away(
    coordinator: GroupCoordinator, member: ClassicMembership
) -> None:
    coordinator.go_away()
    member.request_join()
    thread = running_thread()
    with pytest.raises(NoBrokerAvailableError):
        member.wait_until_stable(Deadline.after_ms(SOON_MS))
    member.close()
    assert not thread.is_alive()


def test_heartbeats_go_on_though_metadata_have_no_response(coordinator: GroupCoordinator) -> None:
    """A leader asks for its topics' metadata now and then, from the same thread."""
    options = {
        "bootstrap.servers": coordinator.address,
        "group.id": "g",
        "heartbeat.interval.ms": "20",
        "session.timeout.ms": "900",
        "metadata.max.age.ms": "50",
        "request.timeout.ms": "200000",
        "default.api.timeout.ms": "300000",
    }
    settings = ClientSettings.from_options(options)
    with Cluster(settings) as cluster:
        state_machine = member_state_machine(settings, "g", ("t",))
        member = ClassicMembership(GroupMember(cluster, state_machine), settings)
        member.request_join()
        assert member.wait_until_stable(Deadline.after_ms(SOON_MS))
        n_requests, deadline = coordinator.count(MetadataRequest), Deadline.after_ms(SOON_MS)
        coordinator.on[MetadataRequest] = lambda *_: None
        while coordinator.count(MetadataRequest) <= n_requests:
            assert not deadline.expired
        await_heartbeat(coordinator)
        await_heartbeat(coordinator)
        assert member.state is MemberState.STABLE
        member.close()


def test_a_member_that_never_joined_reports_that_no_broker_responds_and_keeps_trying(
    coordinator: GroupCoordinator, member: ClassicMembership
) -> None:
    coordinator.go_away()
    member.request_join()
    with pytest.raises(NoBrokerAvailableError):
        member.wait_until_stable(Deadline.after_ms(SOON_MS))
    assert member.error is None
    coordinator.go_on()
    deadline = Deadline.after_ms(SOON_MS)
    while member.joining:
        assert not deadline.expired
        time.sleep(0.01)
    assert member.wait_until_stable(deadline)


def test_an_unexpected_error_ends_the_membership_and_is_reported(
    coordinator: GroupCoordinator, member: ClassicMembership, monkeypatch: pytest.MonkeyPatch
) -> None:
    member.request_join()
    assert member.wait_until_stable(Deadline.after_ms(SOON_MS))

    def fail() -> bool:
        raise RuntimeError("never thought of")

    monkeypatch.setattr(member.member, "heartbeat", fail)
    deadline = Deadline.after_ms(SOON_MS)
    while member.state is MemberState.STABLE:
        assert not deadline.expired
        time.sleep(0.01)
    with pytest.raises(WireError, match="never thought of") as caught:
        member.wait_until_stable(deadline)
    assert isinstance(caught.value.__cause__, RuntimeError)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = Deadline.after_ms(SOON_MS)
    while not condition():
        assert not deadline.expired
        time.sleep(0.01)


@pytest.fixture
def static_member(coordinator: GroupCoordinator, tmp_path: Path) -> Iterator[ClassicMembership]:
    """A member that joins again by itself, whose password is in the file "password" of the test's folder."""
    (tmp_path / "password").write_text("secret")
    takes_passwords(coordinator)
    options = {
        "bootstrap.servers": coordinator.address,
        **SASL,
        "sasl.password": f"file:{tmp_path / 'password'}",
        "group.id": "g",
        "group.instance.id": "i",
        "heartbeat.interval.ms": "20",
        "default.api.timeout.ms": "300",
        "reconnect.backoff.ms": "10",
        "retry.backoff.ms": "10",
    }
    settings = ClientSettings.from_options(options)
    with Cluster(settings) as cluster:
        machine = member_state_machine(settings, "g", ("t",))
        member = ClassicMembership(GroupMember(cluster, machine), settings, rejoins=True)
        yield member
        member.close()


@pytest.mark.parametrize("trouble", ["refused", "missing secret"])
def test_a_member_that_joins_by_itself_outlives_credentials_that_fail_once(
    coordinator: GroupCoordinator, static_member: ClassicMembership, tmp_path: Path, caplog: Any, trouble: str
) -> None:
    static_member.request_join()
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    password = tmp_path / "password"
    if trouble == "refused":
        takes_passwords(coordinator, refuses=True)
    else:
        password.rename(tmp_path / "elsewhere")
    coordinator.drop()
    eventually(lambda: "trying again" in caplog.text)
    if trouble == "refused":
        takes_passwords(coordinator)
    else:
        (tmp_path / "elsewhere").rename(password)
    codes = [25]  # UNKNOWN_MEMBER_ID: its session has expired meanwhile
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=codes.pop() if codes else 0)

    def is_stable() -> bool:
        try:
            return static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
        except WireError:  # the last error, until the coordinator has responded
            return False

    eventually(lambda: coordinator.count(JoinGroupRequest) == 2)
    eventually(is_stable)
    assert static_member.error is None


@pytest.mark.parametrize("trouble", ["refused", "missing secret"])
def test_a_member_that_joins_by_itself_reports_at_once_why_it_cannot(
    coordinator: GroupCoordinator, static_member: ClassicMembership, tmp_path: Path, trouble: str
) -> None:
    expected: type[WireError] = SettingsError
    if trouble == "refused":
        takes_passwords(coordinator, refuses=True)
        expected = AuthenticationError
    else:
        (tmp_path / "password").unlink()
    static_member.request_join()
    for _ in range(2):
        with pytest.raises(expected):
            static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    assert static_member.error is None
    takes_passwords(coordinator)
    (tmp_path / "password").write_text("secret")
    eventually(lambda: static_member.state is MemberState.STABLE)
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))


def test_a_member_that_joins_by_itself_is_refused_and_joins_as_a_new_one(
    coordinator: GroupCoordinator, static_member: ClassicMembership
) -> None:
    static_member.request_join()
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=30)  # GROUP_AUTHORIZATION_FAILED
    eventually(lambda: static_member.joining)
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=0)
    eventually(lambda: static_member.state is MemberState.STABLE)
    joins = [each for each in coordinator.requests if isinstance(each, JoinGroupRequest)]
    assert [each.member_id for each in joins] == ["", ""]
    assert {each.group_instance_id for each in joins} == {"i"}


def test_a_member_that_joins_by_itself_and_has_missed_a_rebalance_joins_again(
    coordinator: GroupCoordinator, static_member: ClassicMembership
) -> None:
    static_member.request_join()
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    codes = [22]  # ILLEGAL_GENERATION
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=codes.pop() if codes else 0)
    eventually(lambda: coordinator.count(JoinGroupRequest) == 2)
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    joins = [each for each in coordinator.requests if isinstance(each, JoinGroupRequest)]
    assert [each.member_id for each in joins] == ["", "me"], "it is the same member, unless another has its instance id"


def test_a_member_that_joins_by_itself_gives_its_place_to_whoever_has_taken_its_instance_id(
    coordinator: GroupCoordinator, static_member: ClassicMembership
) -> None:
    static_member.request_join()
    assert static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=82)  # FENCED_INSTANCE_ID
    eventually(lambda: static_member.error is not None)
    with pytest.raises(BrokerError):
        static_member.wait_until_stable(Deadline.after_ms(SOON_MS))
    assert coordinator.count(JoinGroupRequest) == 1


@pytest.mark.parametrize("code", [25, 27, 69, 79])
def test_a_coordinator_that_never_takes_a_member_is_not_asked_without_a_pause(
    coordinator: GroupCoordinator, code: int
) -> None:
    coordinator.on[JoinGroupRequest] = lambda *_: JoinGroupResponse(error_code=code, member_id="me")
    options = {"bootstrap.servers": coordinator.address, "group.id": "g", "retry.backoff.ms": "200"}
    settings = ClientSettings.from_options(options)
    with Cluster(settings) as cluster:
        member = ClassicMembership(GroupMember(cluster, member_state_machine(settings, "g", ("t",))), settings)
        member.request_join()
        eventually(lambda: coordinator.count(JoinGroupRequest) >= 3)
        asked_at = time.monotonic()
        eventually(lambda: coordinator.count(JoinGroupRequest) >= 5)
        assert time.monotonic() - asked_at > 0.3
        member.close()
