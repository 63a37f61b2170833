"""Groups that hand partitions over one by one, of our members and Java's: they join, leave and are killed.

Every record is read, by a second member only if the first one was killed before it could commit, and no partition has two owners.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.test_mixed_group import (
    TIMEOUT_S,
    Javas,
    Member,
    Ours,
    Process,
    assert_one_owner,
    await_shares,
    writing,
)

pytestmark = pytest.mark.broker

__all__ = ["writing"]  # the fixture

CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "200"}
OURS = {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC}
JAVAS = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", **CLASSIC}


@pytest.mark.parametrize(
    ("ours", "javas"),
    [
        pytest.param(CONSUMER, CONSUMER, marks=pytest.mark.needs("consumer protocol of KIP-848"), id="KIP-848"),
        pytest.param(OURS, JAVAS, id="cooperative-sticky"),
    ],
)
def test_ours_and_javas_hand_partitions_over_one_by_one(
    kafka: Any, java: None, writing: tuple[str, Callable[[], int]], ours: dict[str, str], javas: dict[str, str]
) -> None:
    name, end_writing = writing
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"group-{uuid.uuid4().hex[:12]}",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": "300",
    }
    first = Ours(settings | ours, name)
    first.start()
    await_shares([first])
    theirs = Javas(settings | javas, name)
    theirs.start()
    await_shares([first, theirs])
    kept = first.owned
    assert not any(kept & set(event.partitions) for event in first.events if event.what == "revoked")
    command = [sys.executable, str(Path(__file__).with_name("group_member.py")), name]
    victim = Process("ours, killed", [*command, *(f"{name}={value}" for name, value in (settings | ours).items())])
    had = theirs.owned
    victim.start()
    await_shares([first, theirs, victim])
    # With the classic protocol Java's member commits before it joins again, and reads on until a partition is taken from it
    # (KAFKA-14196 has changed that only for assignors that are not cooperative). So the victim reads the last of these
    # records again and, as the victim is killed, so may the next owner.
    handed_over = had & victim.owned if javas is JAVAS else set()
    uncommitted = {record for record in theirs.records if record[0] in handed_over}
    await_records(victim)
    victim.kill()
    await_shares([first, theirs])
    first.end()
    await_shares([theirs])
    again = Ours(settings | ours, name)
    again.start()
    await_shares([again, theirs])
    await_records(theirs)
    theirs.kill()
    await_shares([again])
    count = end_writing()
    members: list[Member] = [first, theirs, victim, again]
    deadline = time.monotonic() + TIMEOUT_S
    while len({record for member in members for record in member.records}) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again.end()
    times = Counter(record for member in members for record in member.records)
    assert len(times) == count
    twice = {record for record, n in times.items() if n > 1}
    assert twice <= {*victim.records, *theirs.records}, "records of members that could commit were read again"
    # Of both members that were killed a record may be, and then of a third one: neither could commit it.
    events = [(member.name, member.events) for member in members]
    for other, excused in ((theirs, uncommitted), (again, set[tuple[int, int]]())):
        both = sorted({*first.records} & {*other.records} - excused)
        assert not both, (other.name, both[0], both[-1], events)
    for member in members:
        twice_by_it = {record for record, n in Counter(member.records).items() if n > 1}
        read_again = sorted(twice_by_it - uncommitted if member is theirs else twice_by_it)
        assert not read_again, (member.name, read_again[0], read_again[-1], events)
    assert_one_owner(members)


def await_records(member: Member) -> None:
    """It reads what it owns."""
    n_records, deadline = len(member.records), time.monotonic() + TIMEOUT_S
    while len(member.records) < n_records + 10:
        assert time.monotonic() < deadline
        time.sleep(0.02)
