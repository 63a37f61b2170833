"""Committing a query's progress: what is said when, and for how long it may hold up a micro-batch."""

from __future__ import annotations

import itertools
import random
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.source.progress.group_commits import GroupCommitter
from pykafka_wire.source.progress.static_member import StaticMember
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_coordinator import GroupCoordinator, commit_response

DAY_S = 24 * 3600.0


@pytest.mark.broker
def test_all_offsets_are_said_again_daily_although_others_move(kafka: Any, topic: Any, outside: Any) -> None:
    """Offsets of a group without members expire one by one: those of a quiet topic-partition, too."""
    name, group, now = topic(2), f"g-{uuid.uuid4().hex[:8]}", [0.0]
    moving, quiet = TopicPartition(name, 0), TopicPartition(name, 1)

    def forget_the_quiet_one() -> None:
        """A coordinator that has expired an offset shows it no more; one that was set to 0 shows who set it last."""
        asked = [ConsumerGroupTopicPartitions(group, [Place(*quiet, 0)])]
        outside.admin.alter_consumer_group_offsets(asked)[group].result(60)

    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        committer = GroupCommitter(cluster, clock=lambda: now[0])
        progress = QueryOffsets(offsets={moving: 1, quiet: 7}, query="q", group=group)
        committer.commit(progress)
        assert outside.committed(group) == {moving: 1, quiet: 7}
        for day in range(2):
            forget_the_quiet_one()
            for hour in (1, 23.9):
                now[0] = day * DAY_S + hour * 3600
                progress = replace(progress, offsets={moving: progress.offsets[moving] + 1, quiet: 7})
                committer.commit(progress)
                assert outside.committed(group) == {moving: progress.offsets[moving], quiet: 0}
            now[0] = (day + 1) * DAY_S
            if day == 1:  # on an idle day nothing at all has changed
                committer.commit(progress)
            else:
                progress = replace(progress, offsets={moving: progress.offsets[moving] + 1, quiet: 7})
                committer.commit(progress)
            assert outside.committed(group) == {moving: progress.offsets[moving], quiet: 7}
        assert (committer.successes, committer.failures) == (7, 0)


@pytest.mark.broker
def test_an_offset_in_a_recreated_topic_is_committed_although_it_is_the_last_one_of_the_old_topic(
    kafka: Any, topic: Any, outside: Any, until: Any
) -> None:
    """The group's offsets of a topic are deleted with it."""
    name, other, group = topic(1), topic(1), f"g-{uuid.uuid4().hex[:8]}"
    again, stays = TopicPartition(name, 0), TopicPartition(other, 0)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        committer = GroupCommitter(cluster)

        def progress() -> QueryOffsets:
            ids = {topic: each.topic_id for topic, each in cluster.metadata.topics([name, other], max_age_ms=0).items()}
            return QueryOffsets(offsets={again: 5, stays: 3}, topic_ids=ids, query="q", group=group)

        committer.commit(progress())
        assert outside.committed(group) == {again: 5, stays: 3}
        outside.delete(name)
        until(lambda: outside.committed(group) == {stays: 3}, what="the end of the offsets of the topic")
        outside.create(name, 1)
        new = progress()
        assert committer.is_due(new)
        committer.commit(new)
        assert outside.committed(group) == {again: 5, stays: 3}
        assert not committer.is_due(new)


@pytest.mark.broker
def test_the_group_has_the_leader_epoch_of_each_offset(kafka: Any, topic: Any) -> None:
    """A log that is truncated, and has grown to the committed offset again, has the same offset in another epoch. Whoever starts at
    the group's offset with the former epoch would find a loss."""
    name, group, choose = topic(2), f"g-{uuid.uuid4().hex[:8]}", random.Random(8)
    partitions = [TopicPartition(name, p) for p in range(2)]
    offsets, epochs = dict.fromkeys(partitions, 1), dict.fromkeys(partitions, 0)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        committer = GroupCommitter(cluster)
        for _ in range(12):
            committer.commit(QueryOffsets(offsets=dict(offsets), epochs=dict(epochs), query="q", group=group))
            committed = fetch_offsets(cluster, group, partitions)
            assert {tp: (each.offset, each.leader_epoch) for tp, each in committed.items()} == {
                tp: (offsets[tp], epochs[tp]) for tp in partitions
            }
            offsets[choose.choice(partitions)] += choose.randint(0, 1)
            epochs[choose.choice(partitions)] += choose.randint(0, 1)


@pytest.mark.broker
def test_queries_that_share_a_group_and_start_together_are_warned(kafka: Any, topic: Any, caplog: Any) -> None:
    name, group = topic(2), f"g-{uuid.uuid4().hex[:8]}"
    shared, own, seconds = TopicPartition(name, 0), TopicPartition(name, 1), itertools.count()
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        one, other = (GroupCommitter(cluster, clock=lambda: float(next(seconds))) for _ in range(2))
        # Neither finds the other at its start.
        one.commit(QueryOffsets(offsets={own: 1}, query="one", group=group))
        other.commit(QueryOffsets(offsets={shared: 1}, query="other", group=group))
        one.commit(QueryOffsets(offsets={own: 2}, query="one", group=group))
        assert not caplog.records
        for offset in (2, 3):
            one.commit(QueryOffsets(offsets={shared: offset, own: 2}, query="one", group=group))
            other.commit(QueryOffsets(offsets={shared: offset + 5}, query="other", group=group))
        assert (one.failures, other.failures) == (0, 0)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 2, "each of them, once"
    assert '{"query":"other"}' in warned[0] and '{"query":"one"}' in warned[1]


def test_one_deadline_holds_for_joining_looking_and_committing(caplog: Any) -> None:
    """A coordinator that takes 3 s for each request, of 5 in all: the look for others must not begin a time of its own."""
    tp = TopicPartition("t", 0)

    def slowly(response: Any) -> Any:
        def after_a_while(_request: Any, _version: int) -> Any:
            time.sleep(3)
            return response

        return after_a_while

    found = OffsetFetchResponsePartitions(partition_index=0, committed_offset=4, metadata="another query's")
    topics = [OffsetFetchResponseTopics(name="t", partitions=[found])]
    with FakeBroker(1) as broker:
        broker.topics = {"t": {0: (1, 0)}}
        broker.speak({9: (8, 9), 10: (4, 6), 11: (5, 9), 12: (3, 4), 13: (3, 5), 14: (3, 5)})
        joined = JoinGroupResponse(
            generation_id=1, protocol_type="consumer", protocol_name="range", leader="other", member_id="me", members=[]
        )
        assignment = bytes(6) + b"\xff\xff\xff\xff"  # version 0, no topics, no user data
        broker.on |= {
            FindCoordinatorRequest: lambda request, version: FindCoordinatorResponse(
                coordinators=[Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)]
            ),
            JoinGroupRequest: slowly(joined),
            SyncGroupRequest: lambda request, version: SyncGroupResponse(assignment=assignment),
            HeartbeatRequest: lambda request, version: HeartbeatResponse(),
            LeaveGroupRequest: lambda request, version: LeaveGroupResponse(members=[]),
            OffsetFetchRequest: slowly(
                OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
            ),
        }
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", broker.port),))
        with Cluster(settings) as cluster:
            committer = GroupCommitter(cluster, member=StaticMember(cluster, settings))
            committer.commit(QueryOffsets(offsets={tp: 5}, query="q", group="g"))
            committer.close()
        assert broker.count(OffsetFetchRequest) == 1
    assert (committer.successes, committer.failures) == (0, 1)
    assert "OffsetFetch" in caplog.text
    assert "another query" not in caplog.text, "it was waited for beyond the deadline"


def test_a_members_commits_go_on_after_a_secret_was_missing_once(tmp_path: Path, caplog: Any) -> None:
    tp, now, password = TopicPartition("t", 0), [0.0], tmp_path / "password"
    password.write_text("secret")

    def fetched(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        nothing = OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1, metadata="")
        topics = [OffsetFetchResponseTopics(name="t", partitions=[nothing])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    with GroupCoordinator() as broker:
        broker.on |= {
            SaslHandshakeRequest: lambda *_: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            SaslAuthenticateRequest: lambda *_: SaslAuthenticateResponse(),
            OffsetFetchRequest: fetched,
            OffsetCommitRequest: commit_response,
        }
        options = {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": f"file:{password}",
            "heartbeat.interval.ms": "20",
            "reconnect.backoff.ms": "10",
        }
        settings = ClientSettings.from_options(options)
        with Cluster(settings) as cluster:
            committer = GroupCommitter(cluster, member=StaticMember(cluster, settings), clock=lambda: now[0])
            progress = QueryOffsets(offsets={tp: 5}, query="q", group="g")
            committer.commit(progress)
            assert committer.successes == 1, caplog.text
            password.rename(tmp_path / "elsewhere")
            broker.drop()
            deadline = time.monotonic() + 30
            while "which cannot be read" not in caplog.text:
                assert time.monotonic() < deadline
                now[0] += 100
                committer.commit(replace(progress, offsets={tp: 6}))
                time.sleep(0.01)
            (tmp_path / "elsewhere").rename(password)
            while committer.successes == 1:
                assert time.monotonic() < deadline, caplog.text
                now[0] += 100
                committer.commit(replace(progress, offsets={tp: 7}))
                time.sleep(0.01)
            committer.close()
    asked = [each for each in broker.requests if isinstance(each, OffsetCommitRequest)]
    assert [each.member_id for each in asked] == ["me", "me"]
    assert asked[-1].topics[0].partitions[0].committed_offset == 7
