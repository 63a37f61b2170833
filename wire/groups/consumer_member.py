"""A member of a group of the consumer protocol (KIP-848) on the network: sends the state machine's heartbeats to the coordinator.

One request at a time, in the caller's thread; :mod:`~pykafka_wire.wire.groups.consumer_membership` has the thread. The content of
the requests belongs to :mod:`~pykafka_wire.wire.groups.consumer_member_state`, retries while the coordinator moves or loads to
:mod:`~pykafka_wire.wire.cluster.cluster`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster, CoordinatorKind, Deadline
from pykafka_wire.wire.deadline import CancellableDeadline
from pykafka_wire.wire.errors import TransportError, UnsupportedVersionError, WireError
from pykafka_wire.wire.groups.consumer_member_state import (
    JOIN_EPOCH,
    ConsumerMemberState,
    ConsumerMemberStateMachine,
    Place,
)
from pykafka_wire.wire.groups.member_thread import LEAVE_TIMEOUT_MS, leave_group
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

_FIRST_WITH_PATTERNS: Final = 1
#: For metadata between two heartbeats: brokers drop a member that is silent for 45 s, by default.
_METADATA_MS: Final = 5_000
#: For metadata that tell whether a topic was recreated; what is revoked waits for it.
_CHECK_MS: Final = 1_000
#: For the response to a join when the member is closed. Coordinators respond at once, since nobody waits for others.
_JOIN_MS: Final = 2_000
_numbers = itertools.count(1)


class ConsumerGroupMember:
    """Sends the heartbeats of a :class:`ConsumerMemberStateMachine`, on a connection of its own, and finds the topics that they
    name. Called from one thread; :meth:`close` may be called from another one, and ends a request.
    """

    def __init__(self, cluster: Cluster, state_machine: ConsumerMemberStateMachine, lock: threading.Condition) -> None:
        """A member that has not joined yet.

        Args:
            lock: guards the state machine, which its caller's threads share.
        """
        self.state_machine = state_machine
        self._cluster = cluster
        self._lock = lock
        self._purpose = f"consumer-member-{next(_numbers)}"
        self._refresh_s = cluster.settings.metadata_max_age_ms / 1000
        self._refreshed_at = float("-inf")
        self._closed = threading.Event()
        self._is_closing = False
        #: Clear while a request to join has no response.
        self._has_joined = threading.Event()
        self._has_joined.set()

    def heartbeat(self) -> None:
        """Send a heartbeat, and have the state machine take its response.

        Raises:
            BrokerError: as :meth:`ConsumerMemberStateMachine.handle_heartbeat`.
            UnsupportedVersionError: the brokers are too old.
            TransportError: no coordinator has responded within ``default.api.timeout.ms``.
        """
        machine = self.state_machine
        sent: list[ConsumerGroupHeartbeatRequest] = []
        deadline = self._deadline()

        def build(node: int) -> ConsumerGroupHeartbeatRequest:
            self._require_version(node, deadline)
            with self._lock:
                if self._is_closing:
                    raise TransportError("the member is being closed", broker=node)
                if sent:  # the last one may have been processed, or not
                    machine.repeat_all()
                sent.append(machine.heartbeat_request())
                if sent[-1].member_epoch == JOIN_EPOCH:
                    self._has_joined.clear()
            return sent[-1]

        try:
            response = self._cluster.coordinator_request(
                CoordinatorKind.GROUP, machine.group_id, build, lambda response: [response.error_code],
                purpose=self._purpose, deadline=deadline,
            )  # fmt: skip
        except WireError:
            with self._lock:
                machine.repeat_all()
            raise
        finally:
            self._has_joined.set()
        with self._lock:
            machine.handle_heartbeat(sent[-1], response)
        if machine.state is ConsumerMemberState.FENCED:
            logger.warning(
                "group %s: the place in the group is lost (error %d), the member joins again with the next poll",
                machine.group_id, machine.lost_error_code,
            )  # fmt: skip

    def match_topics(self) -> None:
        """Subscribe to the topics that match the pattern now, if metadata are due. Raises TransportError."""
        machine = self.state_machine
        if machine.subscription.pattern is not None and time.monotonic() - self._refreshed_at > self._refresh_s:
            topics = machine.subscription.matches(
                self._cluster.metadata.topics(None, deadline=self._deadline(_METADATA_MS))
            )
            self._refreshed_at = time.monotonic()
            with self._lock:
                machine.topics = topics

    def leave(self, *, for_a_while: bool) -> None:
        """Leave the group, so that others need not wait for the session timeout. A failure is logged, never raised."""
        machine = self.state_machine
        request = machine.leave_request(for_a_while=for_a_while)
        leave_group(
            self._cluster,
            machine.group_id,
            lambda _: request,
            lambda response: [response.error_code],
            machine.handle_leave,
            Deadline.after_ms(LEAVE_TIMEOUT_MS),
        )

    def assigned(self, known: Mapping[TopicPartition, Place]) -> dict[TopicPartition, Place]:
        """What the coordinator assigns, without topics whose names are not known yet.

        Args:
            known: partitions whose names are known already.

        Raises:
            TransportError: no broker has responded.
        """
        target = self.state_machine.target or frozenset()
        ids = {place.topic_id for place in target}
        names = {place.topic_id: tp.topic for tp, place in known.items()} | self._known_names(ids)
        if ids - names.keys():
            self._cluster.metadata.topics(None, deadline=self._deadline(_METADATA_MS))
            names |= self._known_names(ids)
        return {
            TopicPartition(names[place.topic_id], place.partition): place for place in target if place.topic_id in names
        }

    def outdated(
        self, owned: Mapping[TopicPartition, Place], assigned: Mapping[TopicPartition, Place]
    ) -> frozenset[TopicPartition]:
        """What is owned of topics that no longer exist: deleted ones, and those that were recreated under their names."""
        given_up = {place.topic_id for place in owned.values()} - {place.topic_id for place in assigned.values()}
        of_given_up = {tp: place for tp, place in owned.items() if place.topic_id in given_up}
        if of_given_up:
            with contextlib.suppress(WireError):  # a topic does not exist, or no broker responds
                self._cluster.metadata.topics({tp.topic for tp in of_given_up}, deadline=self._deadline(_CHECK_MS))
        return frozenset(
            tp for tp, place in of_given_up.items() if self._cluster.metadata.topic_name(place.topic_id) != tp.topic
        )

    def close(self) -> None:
        """Close the member's connection, and end the request of another thread on it. A request to join has a little time for its
        response before: processed after the request to leave, it would create a member without a client."""
        with self._lock:
            self._is_closing = True
        self._has_joined.wait(_JOIN_MS / 1000)
        self._closed.set()
        self._cluster.close_connections(self._purpose)

    def _require_version(self, node: int, deadline: Deadline) -> None:
        version = 0 if self.state_machine.subscription.server_pattern is None else _FIRST_WITH_PATTERNS
        if not self._cluster.supports(
            node, ConsumerGroupHeartbeatRequest, version, purpose=self._purpose, deadline=deadline
        ):
            what = "the consumer group protocol (KIP-848)" if version == 0 else "a SubscriptionPattern"
            raise UnsupportedVersionError(
                f"the broker does not support {what}",
                broker=node,
                api=ConsumerGroupHeartbeatRequest.name,
                remedy="It needs Kafka 4.0 or newer: upgrade the brokers, or set group.protocol=classic."
                if version == 0
                else "It needs Kafka 4.0 or newer: upgrade the brokers, or subscribe to a pattern of re.compile().",
            )

    def _known_names(self, ids: set[uuid.UUID]) -> dict[uuid.UUID, str]:
        found = {topic_id: self._cluster.metadata.topic_name(topic_id) for topic_id in ids}
        return {topic_id: name for topic_id, name in found.items() if name is not None}

    def _deadline(self, max_ms: int | None = None) -> Deadline:
        timeout_ms = self._cluster.settings.default_api_timeout_ms
        if max_ms is not None:
            timeout_ms = min(timeout_ms, max_ms)
        return CancellableDeadline(Deadline.after_ms(timeout_ms).at, self._closed)
