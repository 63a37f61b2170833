"""Produce requests: which batches one holds, which of them each part of its response is about, and those without a response yet.

Owns what a producer's settings and its transaction ask of each request, and the shape of the two messages
(https://kafka.apache.org/protocol#The_Messages_Produce). They name topics by name before version 13 and by id from then on
(KIP-516). What a response means is decided in :mod:`~pykafka_wire.wire.produce.response_handler`.
"""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.connection.response_future import ResponseFuture, first_to_arrive
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.produce.partition_queue import PartitionQueue, QueuedBatch
from pykafka_wire.wire.produce.producer_identity import TransactionScope
from pykafka_wire.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition

#: The first version that names topics by id (KIP-516).
_TOPIC_ID_VERSION: Final = 13
#: The broker remembers the last five batches of a producer per partition: with more in flight it could not distinguish a
#: retried batch from a new one (KAFKA-5494).
_MAX_IN_FLIGHT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What every Produce request of one producer has in common.

    Attributes:
        acks: as the protocol has it: -1 for ``all``.
        max_in_flight: the most requests without a response that one broker may have.
        timeout_ms: how long a broker may wait for replication.
    """

    acks: int
    idempotent: bool
    max_in_flight: int
    timeout_ms: int
    transaction: TransactionScope | None

    @classmethod
    def of(cls, settings: ClientSettings, transaction: TransactionScope | None) -> Delivery:
        """The delivery that `settings` ask for; in a transaction, ``acks=all`` and idempotent whatever they say."""
        acks = -1 if transaction else {"all": -1, "-1": -1, "1": 1, "0": 0}[str(settings.acks)]
        idempotent = bool(transaction) or (settings.enable_idempotence and acks == -1)
        max_in_flight = settings.max_in_flight_requests_per_connection
        return cls(
            acks=acks,
            idempotent=idempotent,
            max_in_flight=min(max_in_flight, _MAX_IN_FLIGHT) if idempotent else max_in_flight,
            timeout_ms=settings.request_timeout_ms,
            transaction=transaction,
        )


def choose_queues(
    queues: Iterable[PartitionQueue], now: float, *, max_bytes: int, everything: bool
) -> list[PartitionQueue]:
    """The queues whose next batches make up a request of one broker: one batch each (no broker takes more), up to `max_bytes`.
    Unless `everything` is to leave, none where the request would be small."""
    chosen: list[PartitionQueue] = []
    n_bytes = 0
    for queue in queues:
        if not queue.ready(now):
            continue
        size = queue.waiting[0].size
        if chosen and n_bytes + size > max_bytes:
            continue
        chosen.append(queue)
        n_bytes += size
    full = 2 * n_bytes >= max_bytes or any(len(queue.waiting) > 1 for queue in chosen)
    return chosen if everything or full else []


def produce_request(
    batches: Mapping[TopicPartition, QueuedBatch],
    topic_ids: Mapping[str, uuid.UUID],
    delivery: Delivery,
) -> tuple[ProduceRequest, int | None]:
    """A request with one batch of each topic-partition, and the highest version that it may go in, None for any."""
    topics: dict[str, TopicProduceData] = {}
    for tp, batch in batches.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = TopicProduceData(name=tp.topic, topic_id=topic_ids[tp.topic], partition_data=[])
        topic.partition_data.append(PartitionProduceData(index=tp.partition, records=batch.encoded.data))
    transaction = delivery.transaction
    request = ProduceRequest(
        transactional_id=transaction.transactional_id if transaction else None,
        acks=delivery.acks,
        timeout_ms=delivery.timeout_ms,
        topic_data=list(topics.values()),
    )
    cap = None if all(topic.topic_id != ZERO_UUID for topic in topics.values()) else _TOPIC_ID_VERSION - 1
    return request, (transaction.produce_cap or cap) if transaction else cap


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InFlightProduce:
    """A request on its way to a broker, with its batches.

    Attributes:
        expires_at: time at which its response counts as lost.
    """

    request: ProduceRequest
    future: ResponseFuture[ProduceResponse]
    node: int
    batches: Mapping[TopicPartition, QueuedBatch]
    expires_at: float

    def partition_responses(self, response: ProduceResponse) -> Iterator[tuple[QueuedBatch, PartitionProduceResponse]]:
        """The batches that a response is about, each once, with what it says; nothing of what was not asked for."""
        by_id = self.future.version >= _TOPIC_ID_VERSION
        names = {topic.topic_id: topic.name for topic in self.request.topic_data}
        remaining = dict(self.batches)
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.name
            for each in topic.partition_responses:
                batch = remaining.pop(TopicPartition(name, each.index), None)
                if batch is not None:
                    yield batch, each


class InFlightRequests:
    """The requests that wait for their responses, by broker: the oldest first, as each broker responds in order."""

    def __init__(self) -> None:
        self._by_node: dict[int, deque[InFlightProduce]] = {}
        #: Whether a request ended without a response: it may still be written.
        self.has_lost_responses = False

    def __bool__(self) -> bool:
        return any(self._by_node.values())

    def count(self, node: int) -> int:
        """How many of them a broker has."""
        return len(self._by_node.get(node, ()))

    def add(self, sent: InFlightProduce) -> None:
        self._by_node.setdefault(sent.node, deque()).append(sent)

    def remove(self, sent: InFlightProduce) -> None:
        self._by_node[sent.node].remove(sent)

    def batches(self) -> set[QueuedBatch]:
        """The batches of all requests."""
        requests = itertools.chain.from_iterable(self._by_node.values())
        return {batch for sent in requests for batch in sent.batches.values()}

    def oldest(self) -> list[InFlightProduce]:
        """The oldest request of each broker, the one that expires first before the others."""
        oldest = [requests[0] for requests in self._by_node.values() if requests]
        return sorted(oldest, key=lambda sent: sent.expires_at)

    def next_response(self, until: Deadline, now: float) -> InFlightProduce | None:
        """Waits for the first request that has a response or needs none any more; None if there is none at `until`."""
        oldest = self.oldest()
        if now >= oldest[0].expires_at:  # before the responses of others, which may keep coming
            return oldest[0]
        first = first_to_arrive([sent.future for sent in oldest], until)
        return next(sent for sent in oldest if sent.future is first) if first.arrived else None

    def all_responded(self, deadline: Deadline) -> bool:
        """Waits until `deadline` for every response; False if one of them, or of the requests before, did not come."""
        responded = not self.has_lost_responses
        for sent in itertools.chain.from_iterable(self._by_node.values()):
            try:
                sent.future.result(deadline)
            except WireError:
                responded = False
        return responded
