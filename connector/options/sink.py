"""Options of a write, batch or streaming: parses Spark's strings into :class:`SinkOptions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pykafka_wire.errors import OptionError
from pykafka_wire.options import option_table as options
from pykafka_wire.options.option import Option
from pykafka_wire.options.parsing import OptionValues, statsd_agent
from pykafka_wire.options.typed_columns import TypedColumns, parse_typed_columns
from pykafka_wire.task_metrics import StatsdAgent
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.settings import ClientSettings

_EXACTLY_ONCE_ONLY: Final[tuple[Option[Any], ...]] = (
    options.KAFKA_TRANSACTIONAL_ID, options.TRANSACTIONS, options.MARKER_TOPIC, options.FAIL_ON_MISSING_MARKER,
    options.ON_MARKER_MISMATCH, options.MAX_TRANSACTION_BYTES,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceOptions:
    """Options that apply to ``deliveryGuarantee=exactly-once``.

    Attributes:
        marker_topic: the marker is an offset that a group commits for partition 0 of this topic; nothing is written to it.
        through_tasks: each task writes in a transaction of its own, and the driver ends them all.
        keep_on_marker_mismatch: keep a micro-batch that is in Kafka with other rows than a repeated run computes.
        max_bytes: maximum of bytes in a micro-batch; None: by the driver's heap.
    """

    transactional_id: str
    marker_topic: str
    through_tasks: bool = False
    fail_on_missing_marker: bool = True
    keep_on_marker_mismatch: bool = False
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a write; picklable, and its repr contains no secret. ``exactly_once`` is None for at least once.

    Attributes:
        typed: what keys and values are encoded as.
        task_metrics: where tasks send their figures.
        checkpoint: identifies the streaming query that writes; empty for a batch write.
        warnings: options that have no effect or are not safe, for :func:`~pykafka_wire.options.parsing.log_warnings`.
    """

    client: ClientSettings
    topic: str | None
    codec: Codec
    exactly_once: ExactlyOnceOptions | None = None
    dead_letter_topic: str | None = None
    typed: TypedColumns = field(default_factory=TypedColumns)
    task_metrics: StatsdAgent | None = None
    checkpoint: str = ""
    warnings: tuple[str, ...] = ()

    def for_tasks(self) -> SinkOptions:
        """Return the same without the registry's settings: only the driver asks it, and its credentials stay there."""
        return replace(self, typed=replace(self.typed, registry_options={}))


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return sink options from Spark's strings.

    Raises:
        OptionError: an option is missing, unknown, malformed or refused.
    """
    values = OptionValues(given, "sink")
    client = values.client_settings()
    topic = values[options.TOPIC]
    if values.has(options.TOPIC) and topic is None:
        raise OptionError("topic is empty: name a topic, or remove the option and give the rows a topic column.")
    try:
        codec = Codec[client.compression_type.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise OptionError(f"kafka.compression.type is {quoted(client.compression_type)}: use one of {names}.") from None
    typed = parse_typed_columns(values)
    for column in typed.typed:
        if column.format == "json" and column.schema is not None:
            values.warnings.append(
                f"The option {column.option('Schema')} applies to reads: a write takes the column's own type"
            )
    return SinkOptions(
        client=client,
        topic=topic,
        codec=codec,
        exactly_once=_exactly_once(values, client, topic),
        dead_letter_topic=_dead_letter_topic(values, client, topic),
        typed=typed,
        task_metrics=statsd_agent(values),
        checkpoint=values.given.get("checkpointlocation", "").strip(),
        warnings=tuple(values.warnings),
    )


def _exactly_once(values: OptionValues, client: ClientSettings, topic: str | None) -> ExactlyOnceOptions | None:
    """Return the options of ``deliveryGuarantee=exactly-once``; None for at least once."""
    if values[options.DELIVERY_GUARANTEE] == "at-least-once":
        for option in _EXACTLY_ONCE_ONLY:
            if values.has(option):
                raise OptionError(
                    f"{option.name} applies only to deliveryGuarantee=exactly-once: set that, or remove {option.name}."
                )
        return None
    if client.transactional_id is None:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs kafka.transactional.id: a name that only this query uses, the same "
            "after every restart."
        )
    if client.acks not in ("all", "-1") or not client.enable_idempotence:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true: remove both options."
        )
    marker_topic = values[options.MARKER_TOPIC] or topic
    if marker_topic is None:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs markerTopic if the topic comes from a column: name an existing topic, under "
            "which the marker is stored; nothing is written to it."
        )
    through_tasks = values[options.TRANSACTIONS] == "tasks"
    if through_tasks and values.has(options.MAX_TRANSACTION_BYTES):
        raise OptionError(
            "maxTransactionBytes applies only to transactions=driver: with transactions=tasks a micro-batch does not pass "
            "through the driver. Remove it."
        )
    return ExactlyOnceOptions(
        transactional_id=client.transactional_id,
        marker_topic=marker_topic,
        through_tasks=through_tasks,
        fail_on_missing_marker=values[options.FAIL_ON_MISSING_MARKER],
        keep_on_marker_mismatch=values[options.ON_MARKER_MISMATCH] == "skip",
        max_bytes=values[options.MAX_TRANSACTION_BYTES],
    )


def _dead_letter_topic(values: OptionValues, client: ClientSettings, topic: str | None) -> str | None:
    asked = values[options.DEAD_LETTER_TOPIC]
    if values[options.ON_RECORD_ERROR] == "fail":
        if asked is not None:
            raise OptionError("deadLetterTopic has no effect with onRecordError=fail: set onRecordError=divert.")
        return None
    if asked is None:
        raise OptionError("onRecordError=divert needs deadLetterTopic: the topic for rejected records.")
    if asked == topic:
        raise OptionError(f"deadLetterTopic is {asked}, the topic that rejects the records: name another one.")
    if values[options.DELIVERY_GUARANTEE] == "exactly-once":
        raise OptionError(
            "onRecordError=divert cannot be combined with deliveryGuarantee=exactly-once, which writes all of a micro-batch or "
            "nothing: remove one of them."
        )
    if client.acks == "0":
        raise OptionError(
            "onRecordError=divert needs the brokers' responses, and with kafka.acks=0 there are none: use kafka.acks=all."
        )
    return asked
