"""Dead letters: records that brokers refuse one by one go to a topic of their own, with headers that say why.

Owns what such a record looks like. Which records those are is the producer's to find out.

A dead letter has the record's key, value, headers and timestamp, and behind its own headers these, as text:

=============================  ========================================================================
pykafka-wire.error             Kafka's name of the error: MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP
pykafka-wire.reason            the broker's words
pykafka-wire.topic             the topic that refused it
pykafka-wire.partition         its partition
pykafka-wire.timestamp         with INVALID_TIMESTAMP: the record's, in ms; the dead letter itself has the present time
pykafka-wire.value.bytes       the size of the value, where it was left out: the dead-letter topic finds it too large as well
=============================  ========================================================================

It goes to the partition of the same number, modulo their count. What the dead-letter topic refuses fails the write. Rows may
not name that topic as theirs: a refused one would be taken for a dead letter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import WriteError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.split_batches import RefusedRecords
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topics import TopicPartition

_log = logging.getLogger(__name__)

_PREFIX: Final = "pykafka-wire."
_LEFT_OUT: Final = f"{_PREFIX}value.bytes"
_TOO_LARGE: Final = "MESSAGE_TOO_LARGE"
_BAD_TIME: Final = "INVALID_TIMESTAMP"
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class DeadLetters:
    """Stands before one task's producer, and sends dead letters by way of it."""

    def __init__(self, producer: Producer, options: SinkOptions, topic: str) -> None:
        self._producer = producer
        self._options = options
        self._topic = topic
        #: By topic-partition and error: how many, and the last one's reason.
        self._counts: dict[tuple[TopicPartition, str], tuple[int, str]] = {}
        producer.keeps_refused = True

    def partitions_for(self, topic: str) -> int:
        return self._producer.partitions_for(topic)

    def max_batch_bytes(self, topic: str) -> int | None:
        return self._producer.max_batch_bytes(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """As :meth:`Producer.append`; what was refused by then is on its way to the dead-letter topic.

        Raises:
            WriteError: a row names the dead-letter topic as its own, or that topic refused a dead letter.
        """
        if topic == self._topic:
            raise WriteError(
                f"a row names {topic} as its topic, which is the deadLetterTopic: refused records alone go there. Filter such "
                "rows out, or name another deadLetterTopic."
            )
        self._producer.append(topic, partition, batches)
        self._divert()

    def flush(self) -> int:
        """Wait for every acknowledgement, dead letters' included; how many of them there were. Each topic-partition and
        error gets a line in the log.

        Raises:
            WriteError: the dead-letter topic refused a dead letter.
        """
        self._producer.flush()
        while not self._producer.clean:  # dead letters may be refused as well
            self._divert()
            self._producer.flush()
        for (tp, name), (n_records, reason) in self._counts.items():
            _log.warning(
                "%s: %d records were refused (%s) and went to %s; the last because: %s",
                tp, n_records, name, self._topic, reason,
            )  # fmt: skip
        return sum(n_records for n_records, _ in self._counts.values())

    def _divert(self) -> None:
        for refused in self._producer.take_refused():
            if refused.topic_partition.topic == self._topic:
                self._smaller(refused)
                continue
            self._append(refused.topic_partition.partition, self._letters(refused))
            counted = refused.topic_partition, refused.error.name
            before, _ = self._counts.get(counted, (0, ""))
            self._counts[counted] = before + refused.n_records, refused.reasons[-1]

    def _letters(self, refused: RefusedRecords) -> RefusedRecords:
        tp, name = refused.topic_partition, refused.error.name
        said = [("error", name), ("topic", tp.topic), ("partition", str(tp.partition))]
        more = [
            [*said, ("reason", reason), *([("timestamp", str(ms))] if name == _BAD_TIME else [])]
            for reason, ms in zip(refused.reasons, refused.timestamp.tolist(), strict=True)
        ]
        letters = _with_headers(refused, [[(f"{_PREFIX}{k}", v) for k, v in each] for each in more])
        if name == _BAD_TIME:
            letters.timestamp[:] = int(time.time() * 1000)
        return letters

    def _smaller(self, refused: RefusedRecords) -> None:
        """The dead-letter topic refused some: those too large go again without their value."""
        had_value = pc.all(refused.value.is_valid()).as_py()
        if refused.error.name != _TOO_LARGE or not had_value:
            raise WriteError(
                f"the dead-letter topic refuses a dead letter: {refused.error.text} Correct the topic's settings, or set "
                "onRecordError=fail."
            )
        sizes = pc.binary_length(refused.value).to_pylist()
        small = _with_headers(refused, [[(_LEFT_OUT, str(size))] for size in sizes])
        self._append(refused.topic_partition.partition, small, with_value=False)

    def _append(self, partition: int, letters: RefusedRecords, *, with_value: bool = True) -> None:
        client = self._options.client
        batches = encode_batches(
            key=letters.key,
            value=letters.value if with_value else None,
            headers=letters.headers,
            timestamp=letters.timestamp,
            codec=self._options.codec,
            level=client.compression_level,
            max_batch_bytes=min(client.max_request_size, self._producer.max_batch_bytes(self._topic) or 2**31),
        )
        self._producer.append(self._topic, partition % self._producer.partitions_for(self._topic), batches)


def _with_headers(records: RefusedRecords, more: list[list[tuple[str, str]]]) -> RefusedRecords:
    """The records with more headers behind their own; their timestamps are a copy."""
    own = records.headers.to_pylist()
    headers = [
        [*(before or ()), *({"key": key, "value": text.encode()} for key, text in after)]
        for before, after in zip(own, more, strict=True)
    ]
    return replace(records, headers=pa.array(headers, _HEADERS), timestamp=records.timestamp.copy())
