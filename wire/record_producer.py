"""A producer that needs no Spark: records one by one or whole Arrow columns, to the partition that Java's producer would choose.

    with RecordProducer({"bootstrap.servers": "broker:9092", "compression.type": "lz4"}) as producer:
        producer.send("orders", b"a value", key=b"a key")
        producer.send_arrow("orders", table)
        producer.flush()

Settings have Kafka's names. Records are collected in :mod:`~pykafka_wire.wire.produce.record_sender`; sending, retries and
idempotence are in :mod:`~pykafka_wire.wire.produce.producer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.counters import ClientTotals
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.record_sender import RecordSender
from pykafka_wire.wire.produce.write_results import WriteResult
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition


class RecordProducer(RecordSender):
    """Writes records; idempotent and with ``acks=all`` unless the settings say otherwise. Not thread-safe.

    Records are sent when there is about a megabyte of them, and on :meth:`flush`; only when that returns are they written. A
    forked child starts with a producer id of its own. If records were not flushed before the fork, they are the parent's to
    write, and the child's copy fails until :meth:`reset`.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str]) -> None:
        """Open nothing yet. Settings by Kafka's names, such as ``bootstrap.servers``, ``compression.type``, ``acks``.

        Raises:
            SettingsError: ``transactional.id`` is set.
        """
        known = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        if known.transactional_id is not None:
            raise SettingsError(
                "{setting} is set, but RecordProducer writes outside of transactions.",
                setting="transactional.id",
                remedy="Leave it out, or use TransactionalProducer.",
            )
        self._cluster = Cluster(known)
        self._producer = Producer(self._cluster)
        super().__init__(known, self._producer)

    def flush(self, timeout_ms: float | None = None) -> dict[TopicPartition, WriteResult]:
        """Wait until every record is acknowledged; what was written since the last flush.

        Raises:
            DeadlineExceededError: ``timeout_ms``, or a record's ``delivery.timeout.ms``, has passed.
            WireError: a record was rejected. The producer has failed; :meth:`reset` starts over.
        """
        self._raise_failure()
        self._encode_all()
        return self._producer.flush(None if timeout_ms is None else Deadline.after_ms(timeout_ms))

    def reset(self) -> None:
        """Begin anew after an error: drop what is not acknowledged, and start over with a new producer id."""
        self._fork_generation = forks.generation
        self._drop_waiting()
        self._error = None
        self._producer.reset()

    def metrics(self) -> ClientTotals:
        """Return what this client has sent and received, repeated, and waited for, since it was made. Sends no request."""
        return self._cluster.counters.totals()

    def close(self) -> None:
        """Close all connections. What was not flushed may be lost; leaving a ``with`` block without an error flushes."""
        self._cluster.close()

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _raise_failure(self) -> None:
        if self._fork_generation != forks.generation:
            held = bool(self._waiting) or self._error is not None or not self._producer.clean
            self.reset()
            self._error = forks.forked_producer_error() if held else None
        if self._error is not None:
            raise self._error
