"""Kafka's protocol step by step, from the handshake to leaving a group, with the trace of each step.

Each step is one call of this package's own client, in the order of a producer's and a consumer's life cycle. The lines
between the sentences come from the trace (:mod:`~pykafka_wire.wire.connection.trace`). ``pykafka-wire walkthrough`` and
``examples/protocol_walkthrough.py`` run it.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, create_topics, delete_topics, list_offsets
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.groups.classic.membership import GroupMember, member_state_machine
from pykafka_wire.wire.groups.classic.state_machine import MemberState
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition


def run_walkthrough(settings: ClientSettings) -> None:
    """Walk through the protocol on a cluster, printing to standard output. Creates a topic and a group, and deletes the
    topic at the end.

    Raises:
        WireError: a step failed; the output shows which.
    """
    settings = replace(settings, trace="stdout")
    steps = _WalkthroughSteps()
    steps.handshakes(settings)
    with Cluster(settings) as cluster:
        steps.on_cluster(cluster)


class _WalkthroughSteps:
    """The numbered steps."""

    def __init__(self) -> None:
        self._number = 0
        name = f"pykafka-wire-walkthrough-{uuid.uuid4().hex[:8]}"
        self._topic, self._group = name, name
        self._partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]

    def handshakes(self, settings: ClientSettings) -> None:
        trace = Trace(settings.trace)
        for host, port in settings.bootstrap_servers:
            how = f"SASL {settings.sasl_mechanism} authenticates this client" if settings.uses_sasl else "without SASL"
            self._step(f"Handshake with {host}:{port}: ApiVersions selects the version of every request; {how}.")
            connection = Connection(host, port, settings, trace, f"{host}:{port}")
            connection.open(Deadline.after_ms(settings.request_timeout_ms))
            connection.close()

    def on_cluster(self, cluster: Cluster) -> None:
        self._step("Metadata: any broker lists all brokers of the cluster, with the addresses to use from now on.")
        brokers = cluster.metadata.brokers()
        self._result(
            f"brokers {', '.join(map(str, brokers.values()))}; the controller is {cluster.metadata.controller()}"
        )

        try:
            self._with_topic(cluster, len(brokers))
        except BaseException:  # BrokenPipeError, too: … | head
            with contextlib.suppress(WireError), Cluster(replace(cluster.settings, trace="")) as untraced:
                delete_topics(untraced, [self._topic])
            raise

    def _with_topic(self, cluster: Cluster, n_brokers: int) -> None:
        self._step(
            "CreateTopics: the controller creates a topic with two partitions, replicated on two brokers if there are two."
        )
        create_topics(cluster, {self._topic: (2, min(2, n_brokers))})

        self._step(
            "Metadata of the topic: the leader and leader epoch of each partition, and the topic id if brokers support ids."
        )
        cluster.metadata.topics([self._topic])
        for tp in self._partitions:
            self._result("{} is led by broker {} in epoch {}".format(tp, *cluster.metadata.leader(tp)))
        self._produce(cluster)
        member = self._join(cluster)
        self._consume(cluster, member)
        self._step("DeleteTopics: the walkthrough leaves no topic behind.")
        delete_topics(cluster, [self._topic])

    def _produce(self, cluster: Cluster) -> None:
        self._step(
            "Produce: one record to each partition, sent to its leader; InitProducerId first, so that retries write no duplicates."
        )
        producer = Producer(cluster)
        for tp in self._partitions:
            batches = encode_batches(
                key=None,
                value=pa.array([f"for partition {tp.partition}".encode()], pa.binary()),
                headers=None,
                timestamp=np.array([int(time.time() * 1000)], dtype=np.int64),
                codec=Codec.NONE,
                max_batch_bytes=cluster.settings.max_request_size,
            )
            producer.append(tp.topic, tp.partition, batches)
        for tp, result in sorted(producer.flush().items()):
            self._result(f"{tp}: in the log at offset {result.first_offset}")

    def _join(self, cluster: Cluster) -> GroupMember:
        self._step("FindCoordinator: one broker manages the group's members and offsets.")
        self._result(f"broker {cluster.coordinator(CoordinatorKind.GROUP, self._group)}")

        self._step(
            "JoinGroup, on a separate connection, since the broker responds only when all members have joined; "
            "the first response only assigns a member id (KIP-394)."
        )
        member = GroupMember(cluster, member_state_machine(cluster.settings, self._group, (self._topic,)))
        while member.state_machine.state is MemberState.UNJOINED:
            member.step()
        self._result(
            f"generation {member.state_machine.identity.generation}, this member leads: {member.state_machine.is_leader}"
        )

        self._step("SyncGroup: the group's leader sends the assignment, and every member receives its partitions.")
        self._result(f"assigned {', '.join(map(str, member.join()))}")
        return member

    def _consume(self, cluster: Cluster, member: GroupMember) -> None:
        self._step("OffsetFetch: the offsets that the group has committed.")
        committed = fetch_offsets(cluster, self._group, self._partitions)
        self._result(
            ", ".join(f"{tp} at {offset.offset}" for tp, offset in committed.items()) or "nothing is committed"
        )

        self._step("ListOffsets, to each leader: the first and the end offset of each log.")
        starts = list_offsets(cluster, dict.fromkeys(self._partitions, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(self._partitions, LATEST))

        self._step("Fetch from each leader, on a separate connection, since a response may be large or slow.")
        ranges = [
            OffsetRange(**tp._asdict(), start_offset=starts[tp].offset, end_offset=ends[tp].offset)
            for tp in self._partitions
        ]
        positions: dict[int, int] = {}
        for fetched in fetch_ranges(cluster, ranges, columns=Columns()):
            positions |= fetched.positions
            records = fetched.records
            for index, offset, value in zip(records.slice_index, records.offset, records.value, strict=True):
                self._result(f"{ranges[index].topic_partition} offset {offset}: {value.as_py().decode()!r}")
        self._step(
            "The position after the last record equals the high watermark of the response: the end of the partition is reached."
        )
        for index, position in sorted(positions.items()):
            self._result(f"{ranges[index].topic_partition}: position {position}, end {ranges[index].end_offset}")

        self._step("OffsetCommit: the next offsets to read, with the member id and the generation.")
        offsets = {ranges[index].topic_partition: CommittedOffset(position) for index, position in positions.items()}
        commit_offsets(cluster, self._group, offsets, member=member.state_machine.identity)

        self._step(
            "Heartbeat: tells the coordinator that the member is alive; an error response would announce a rebalance."
        )
        self._result("still in the group" if member.heartbeat() else "the group is rebalancing")

        self._step("LeaveGroup: the other members get the partitions without waiting for the session timeout.")
        member.leave()

    def _step(self, sentence: str) -> None:
        self._number += 1
        sys.stdout.write(f"\n{self._number}. {sentence}\n")

    def _result(self, text: str) -> None:
        sys.stdout.write(f"   => {text}\n")
