"""Dead letters: records that brokers reject one by one go to a topic of their own, with headers that give the reason.

Owns the form of such a record. The producer finds out which records they are.

A dead letter has the record's key, value and headers, and behind its own headers these, as text. Its timestamp is the record's,
unless the error is INVALID_TIMESTAMP (then: the present time), or the dead-letter topic sets timestamps itself (LogAppendTime).

=============================  ========================================================================
pykafka-wire.error             Kafka's name of the error: MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP
pykafka-wire.reason            the broker's error message
pykafka-wire.topic             the topic that rejected the record
pykafka-wire.partition         its partition
pykafka-wire.timestamp         the record's timestamp, in ms
pykafka-wire.value.bytes       the size of a value that was left out because the dead-letter topic rejects it as too large, too
=============================  ========================================================================

It goes to the partition of the same number, modulo their count. A record that the dead-letter topic rejects fails the write. Rows
may not name that topic as theirs: a rejected one could not be distinguished from a dead letter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import WriteError
from pykafka_wire.options.names import PREFIX
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.split_batches import RejectedRecords
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)

_PREFIX: Final = "pykafka-wire."
_VALUE_BYTES: Final = f"{_PREFIX}value.bytes"
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What the headers of a dead letter say of its record.

    Attributes:
        headers: the record's own.
        timestamp_ms: the record's; None in a dead letter of an earlier version, which has the same timestamp.
        has_value: whether the dead letter has the record's value, which may be null.
    """

    error: str
    topic: str
    partition: int
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None
    has_value: bool


def parse_dead_letter(headers: Sequence[tuple[str, bytes | None]]) -> DeadLetter | None:
    """Return the dead letter with these headers; None of another record."""
    # Behind the record's own headers, among which there may be those of an earlier dead letter.
    first = max((index for index, (name, _) in enumerate(headers) if name == f"{_PREFIX}error"), default=None)
    if first is None:
        return None
    # Others may have added headers of their own behind ours.
    ours = [(name, value or b"") for name, value in headers[first:] if name.startswith(_PREFIX)]
    added = {name.removeprefix(_PREFIX): value.decode(errors="replace") for name, value in ours}
    is_whole = added.get("partition", "").isdecimal() and added.get("timestamp", "0").removeprefix("-").isdecimal()
    if not added.get("topic") or not is_whole:
        return None
    return DeadLetter(
        error=added["error"],
        topic=added["topic"],
        partition=int(added["partition"]),
        headers=headers[:first],
        timestamp_ms=int(added["timestamp"]) if "timestamp" in added else None,
        has_value="value.bytes" not in added,
    )


class DeadLetterProducer:
    """A task's destination in place of its producer: it forwards batches to the producer, and sends dead letters through it."""

    def __init__(self, producer: Producer, options: SinkOptions, topic: str) -> None:
        self._producer = producer
        self._options = options
        self._topic = topic
        #: By topic-partition and error: the number of dead letters, and the last one's reason.
        self._counts: dict[tuple[TopicPartition, str], tuple[int, str]] = {}
        producer.collect_rejected()

    def partitions_for(self, topic: str) -> int:
        return self._producer.partitions_for(topic)

    def max_batch_bytes(self, topic: str) -> int | None:
        return self._producer.max_batch_bytes(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Do as :meth:`Producer.append`; records rejected so far are sent to the dead-letter topic.

        Raises:
            WriteError: a row names the dead-letter topic as its own, or that topic rejected a dead letter.
        """
        if topic == self._topic:
            raise WriteError(
                f"a row names {topic} as its topic, which is the deadLetterTopic: only rejected records go there. Filter such "
                "rows out, or name another deadLetterTopic."
            )
        self._producer.append(topic, partition, batches)
        self._divert()

    def flush(self) -> int:
        """Return the number of dead letters, once every record and every dead letter is acknowledged. A warning for each
        topic-partition and error goes to the log.

        Raises:
            WriteError: the dead-letter topic rejected a dead letter.
        """
        self._producer.flush()
        while not self._producer.clean:  # dead letters may be rejected as well
            self._divert()
            self._producer.flush()
        for (tp, name), (n_records, reason) in self._counts.items():
            _log.warning(
                "%s: %d records were rejected (%s) and went to %s; the last reason: %s",
                tp, n_records, name, self._topic, reason,
            )  # fmt: skip
        return sum(n_records for n_records, _ in self._counts.values())

    def _divert(self) -> None:
        for rejected in self._producer.take_rejected():
            if rejected.topic_partition.topic == self._topic:
                self._retry_without_value(rejected)
                continue
            self._append(rejected.topic_partition.partition, self._dead_letters(rejected))
            counted = rejected.topic_partition, rejected.error.name
            before, _ = self._counts.get(counted, (0, ""))
            self._counts[counted] = before + rejected.n_records, rejected.reasons[-1]

    def _dead_letters(self, rejected: RejectedRecords) -> RejectedRecords:
        tp, name = rejected.topic_partition, rejected.error.name
        common = [("error", name), ("topic", tp.topic), ("partition", str(tp.partition))]
        headers = [
            [*common, ("reason", reason), ("timestamp", str(ms))]
            for reason, ms in zip(rejected.reasons, rejected.timestamp.tolist(), strict=True)
        ]
        letters = _with_headers(rejected, [[(f"{_PREFIX}{k}", v) for k, v in header] for header in headers])
        if rejected.error.code == ErrorCode.INVALID_TIMESTAMP:
            letters.timestamp[:] = int(time.time() * 1000)
        return letters

    def _retry_without_value(self, rejected: RejectedRecords) -> None:
        """Send dead letters again without their value that are too large for the dead-letter topic."""
        had_value = pc.all(rejected.value.is_valid()).as_py()
        if rejected.error.code != ErrorCode.MESSAGE_TOO_LARGE or not had_value:
            raise WriteError(
                f"the dead-letter topic rejects a dead letter: {rejected.error.with_prefix(PREFIX).text} Correct the topic's "
                "settings, or set onRecordError=fail."
            )
        sizes = pc.binary_length(rejected.value).to_pylist()
        smaller = _with_headers(rejected, [[(_VALUE_BYTES, str(size))] for size in sizes])
        self._append(rejected.topic_partition.partition, smaller, with_value=False)

    def _append(self, partition: int, letters: RejectedRecords, *, with_value: bool = True) -> None:
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


def _with_headers(records: RejectedRecords, more: list[list[tuple[str, str]]]) -> RejectedRecords:
    """Return the records with more headers appended to their own; their timestamps are a copy."""
    headers = [
        [*(given or ()), *({"key": key, "value": text.encode()} for key, text in added)]
        for given, added in zip(records.headers.to_pylist(), more, strict=True)
    ]
    return replace(records, headers=pa.array(headers, _HEADERS), timestamp=records.timestamp.copy())
