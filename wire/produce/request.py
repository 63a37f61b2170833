"""One Produce request: how batches are laid out in it, and which of them each part of its answer is about.

Owns the shape of the two messages (https://kafka.apache.org/protocol#The_Messages_Produce). Topics go by name before version 13
and by id from then on (KIP-516). Which batches leave together, and what an answer asks for, is
:mod:`~pykafka_wire.wire.produce.producer`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.connection.response_future import ResponseFuture
from pykafka_wire.wire.produce.inflight import QueuedBatch, TransactionScope
from pykafka_wire.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykafka_wire.wire.topics import ZERO_UUID, TopicPartition

#: The first version that names topics by id (KIP-516).
_TOPIC_ID_VERSION: Final = 13


def produce_request(
    batches: Mapping[TopicPartition, QueuedBatch],
    topic_ids: Mapping[str, uuid.UUID],
    *,
    acks: int,
    timeout_ms: int,
    transaction: TransactionScope | None,
) -> tuple[ProduceRequest, int | None]:
    """A request with one batch of each topic-partition, and the highest version that it may go in, None for any."""
    topics: dict[str, TopicProduceData] = {}
    for tp, batch in batches.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = TopicProduceData(name=tp.topic, topic_id=topic_ids[tp.topic], partition_data=[])
        topic.partition_data.append(PartitionProduceData(index=tp.partition, records=batch.encoded.data))
    request = ProduceRequest(
        transactional_id=transaction.transactional_id if transaction else None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )
    cap = None if all(topic.topic_id != ZERO_UUID for topic in topics.values()) else _TOPIC_ID_VERSION - 1
    return request, (transaction.produce_cap or cap) if transaction else cap


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InFlight:
    """A request on its way to a broker, with its batches.

    Attributes:
        expires_at: time until which its answer is waited for.
    """

    request: ProduceRequest
    pending: ResponseFuture[ProduceResponse]
    node: int
    batches: Mapping[TopicPartition, QueuedBatch]
    expires_at: float

    def answers(self, response: ProduceResponse) -> Iterator[tuple[QueuedBatch, PartitionProduceResponse]]:
        """The batches that an answer is about, each once, with what it says; nothing of what was not asked for."""
        by_id = self.pending.version >= _TOPIC_ID_VERSION
        names = {topic.topic_id: topic.name for topic in self.request.topic_data}
        remaining = dict(self.batches)
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.name
            for answer in topic.partition_responses:
                batch = remaining.pop(TopicPartition(name, answer.index), None)
                if batch is not None:
                    yield batch, answer
