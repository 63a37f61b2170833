"""A scripted broker's log of t-0, which checks sequence numbers, and its responses to Produce requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.records.batches import read_header
from tests.wire.fake_broker import FakeBroker, Reply
from tests.wire.oracle import decode_batches
from tests.wire.test_producer import encode, numbered

DUPLICATE, OUT_OF_ORDER, UNKNOWN_PRODUCER = 46, 45, 59
NOT_LEADER, NOT_ENOUGH_REPLICAS = 6, 19
THROTTLED_MS = 300


class Partition:
    """The log of t-0, with the sequences that a broker minds.

    Attributes:
        faults: for the next requests, in turn: what to do instead of a good response, before or after appending.
        epoch: of the last batch.
    """

    def __init__(self, fake: FakeBroker) -> None:
        self.values: list[bytes | None] = []
        #: A connection that was given up may still have requests, whose thread appends beside that of the next connection.
        self._lock = threading.Lock()
        self.producers: list[int] = []
        self.epoch = 0
        #: The offset of the first record of this epoch.
        self._epoch_start = 0
        self.faults: list[Callable[[Callable[[], ProduceResponse]], Reply] | None] = []
        fake.speak({0: (3, 12), 22: (0, 4)})
        fake.topics = {"t": {0: (1, 0)}}
        fake.on[ProduceRequest] = self.produce
        fake.on[InitProducerIdRequest] = self.init_producer_id

    def init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        self.producers.append(len(self.producers))
        return InitProducerIdResponse(producer_id=self.producers[-1])

    def produce(self, request: ProduceRequest, version: int) -> Reply:
        fault = self.faults.pop(0) if self.faults else None
        data = bytes(request.topic_data[0].partition_data[0].records)
        return self.append(data) if fault is None else fault(lambda: self.append(data))

    def append(self, data: bytes) -> ProduceResponse:
        """Append a batch, unless its sequence is a duplicate or out of order, as one step."""
        with self._lock:
            return self._append(data)

    def _append(self, data: bytes) -> ProduceResponse:
        header, offset = read_header(memoryview(data)), len(self.values)
        if header.producer_epoch != self.epoch and header.base_sequence == 0:
            self.epoch, self._epoch_start = header.producer_epoch, offset
        sequence = header.base_sequence + self._epoch_start
        code = 0 if sequence == offset else DUPLICATE if sequence < offset else OUT_OF_ORDER
        if header.producer_epoch != self.epoch:
            code = OUT_OF_ORDER
        if not code:
            self.values += [record.value for record in decode_batches(data)]
        return response(code, -1 if code else offset)


def response(code: int, base_offset: int = -1, **more: Any) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])], **more)


def write(producer: Producer, start: int, end: int) -> None:
    for first in range(start, end, 10):
        producer.append("t", 0, encode(numbered(first, first + 10)))
