"""The requests of a member of the consumer protocol (KIP-848), in their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pykafka_wire.wire.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.wire.fake_coordinator import ConsumerGroupCoordinator
from tests.wire.test_kip848_membership import Member


@pytest.fixture
def coordinator() -> Iterator[ConsumerGroupCoordinator]:
    with ConsumerGroupCoordinator() as broker:
        yield broker


def test_a_member_leaves_after_its_join_was_processed(coordinator: ConsumerGroupCoordinator) -> None:
    """In the other order the join would make a member that nobody is, until its session times out."""
    has_begun, may_go_on = threading.Event(), threading.Event()
    processed: list[int] = []

    def heartbeat(request: ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch == 0:
            has_begun.set()
            assert may_go_on.wait(30)
        processed.append(request.member_epoch)
        return coordinator.heartbeat(request, version)

    coordinator.on[ConsumerGroupHeartbeatRequest] = heartbeat
    member = Member(coordinator)
    member.subscribe()
    member.poll_until(has_begun.is_set)
    closing = threading.Thread(target=member.consumer.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    may_go_on.set()
    closing.join(30)
    assert not closing.is_alive()
    assert processed == [0, -1]
