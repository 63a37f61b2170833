"""Subscriptions and assignments, byte for byte as Java's consumer of Kafka 4.4.0 writes them."""

from __future__ import annotations

import pytest

from pykafka_wire.wire.groups.classic.strategies import (
    COOPERATIVE_STICKY,
    Subscriber,
    are_cooperative,
    decode_assignment,
    decode_subscriber,
    encode_assignment,
    encode_subscription,
)
from pykafka_wire.wire.protocol.messages.group import JoinGroupResponseMember
from pykafka_wire.wire.topic_partitions import TopicPartition

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
#: ConsumerProtocol.serializeSubscription of topics b and a, OWNED, generation 7 (also as CooperativeStickyAssignor's user data) and
#: rack r1, in versions 3, 1 and 0; and of the range assignor before the first join.
VERSION_3 = bytes.fromhex(
    "0003000000020001610001620000000400000007"
    "0000000200016100000002000000000000000200016200000001000000010000000700027231"
)
VERSION_1 = bytes.fromhex(
    "0001000000020001610001620000000400000007000000020001610000000200000000000000020001620000000100000001"
)
VERSION_0 = bytes.fromhex("0000000000020001610001620000000400000007")
RANGE = bytes.fromhex("000300000002000161000162ffffffff00000000ffffffffffff")


def test_a_subscription_has_the_bytes_that_java_writes() -> None:
    sticky = encode_subscription(COOPERATIVE_STICKY, ["b", "a"], reversed(OWNED), generation=7, rack_id="r1")
    assert sticky == VERSION_3
    assert encode_subscription("range", ["b", "a"], []) == RANGE


@pytest.mark.parametrize(
    ("written", "owned", "generation"),
    [(VERSION_3, OWNED, 7), (VERSION_1, OWNED, 7), (VERSION_0, (), 7), (RANGE, (), -1)],
)
def test_a_leader_reads_the_subscriptions_of_every_version(
    written: bytes, owned: tuple[TopicPartition, ...], generation: int
) -> None:
    """The generation comes from the user data before version 2."""
    member = JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=written)
    assert decode_subscriber(member) == Subscriber(
        member_id="m", instance_id="i", topics=frozenset("ab"), owned=owned, generation=generation
    )


def test_user_data_of_another_kind_is_no_generation() -> None:
    cut = VERSION_0[:-8] + bytes.fromhex("000000020007")
    member = JoinGroupResponseMember(member_id="m", metadata=cut)
    assert decode_subscriber(member).generation == -1


@pytest.mark.parametrize(
    ("written", "topics"),
    [
        (b"\0\1" + VERSION_0[2:], "ab"),
        (VERSION_1[:-1], "ab"),
        (VERSION_0 + b"more", "ab"),
        (VERSION_0[:-1], ""),
        (b"\xff\xff" + VERSION_0[2:], ""),
        (b"", ""),
    ],
)
def test_a_subscription_of_another_client_is_read_as_far_as_it_goes(
    written: bytes, topics: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Version 1 without owned partitions is what Sarama before 1.38 writes."""
    subscriber = decode_subscriber(JoinGroupResponseMember(member_id="m", metadata=written))
    assert (subscriber.topics, subscriber.owned) == (frozenset(topics), ())
    assert ("member m is assigned nothing" in caplog.text) == (topics == "")


def test_assignments_go_there_and_back() -> None:
    assert decode_assignment(encode_assignment(reversed(OWNED))) == OWNED
    assert decode_assignment(b"") == ()


def test_members_keep_their_partitions_only_where_all_strategies_allow_it() -> None:
    assert are_cooperative([COOPERATIVE_STICKY])
    assert not are_cooperative(["range", COOPERATIVE_STICKY])
    assert not are_cooperative(["range"])
