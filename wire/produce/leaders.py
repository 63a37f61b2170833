"""Which broker leads each topic-partition that is written to, and its topic's id: both are needed for every batch.

Owns what was learnt of them, until an answer contradicts it. Whether to wait for a leader that is not known is
:mod:`~pykafka_wire.wire.produce.producer`'s to decide.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.protocol.messages.produce import LeaderIdAndEpoch
from pykafka_wire.wire.topics import TopicPartition


class Leaders:
    """Leaders by topic-partition.

    Attributes:
        topic_ids: by topic, of each whose leader was ever found.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._cluster = cluster
        self._nodes: dict[TopicPartition, int] = {}

    def of(self, tp: TopicPartition, deadline: Deadline | None) -> int:
        """The leader's node id.

        Raises:
            WireError: none is known at `deadline`, by default ``default.api.timeout.ms`` from now.
        """
        if tp not in self._nodes:
            node = self._cluster.leader(tp, deadline=deadline)[0]
            self.topic_ids[tp.topic] = self._cluster.topic_id(tp.topic)
            self._nodes[tp] = node
        return self._nodes[tp]

    def forget(self, tp: TopicPartition) -> None:
        """The leader is to be asked for anew; the topic's id with it, which stands until then: others are using it."""
        self._nodes.pop(tp, None)
        self._cluster.invalidate(tp)

    def told(self, tp: TopicPartition, leader: LeaderIdAndEpoch, endpoints: Mapping[int, tuple[str, int]]) -> None:
        """An answer to a Produce names another leader, and where it is (KIP-951)."""
        self._nodes.pop(tp, None)
        self._cluster.update_leader(tp, leader.leader_id, leader.leader_epoch, endpoint=endpoints.get(leader.leader_id))
