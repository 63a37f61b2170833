"""Options of a read, batch or streaming: parses Spark's strings into :class:`SourceOptions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pykafka_wire.checkpoints.reference import CheckpointReference, parse_reference
from pykafka_wire.column_selection import Selection, parse_columns
from pykafka_wire.errors import OptionError
from pykafka_wire.options.definitions import default_of
from pykafka_wire.options.parsing import OptionValues
from pykafka_wire.options.starting_offsets import (
    OffsetSpec,
    parse_offset_spec,
    parse_partitions,
    parse_timestamp,
    parse_timestamp_spec,
)
from pykafka_wire.options.typed_columns import TypedColumns, parse_typed_columns
from pykafka_wire.task_metrics import StatsdAgent
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_BOUNDS: Final = tuple(
    f"{which}{name}" for which in ("starting", "ending") for name in ("Offsets", "OffsetsByTimestamp", "Timestamp")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topic-partitions a query reads: exactly one of the three is set; none for all of a micro-batch."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether the pattern is found in a topic's name (a search, as in Spark's own connector)."""
        return re.search(self.pattern, topic) is not None

    def names(self, topic_partition: TopicPartition) -> bool:
        """Whether a topic-partition is one of those that are read, where it exists."""
        if self.pattern:
            return self.matches(topic_partition.topic)
        if self.assigned:
            return topic_partition in self.assigned
        return not self.topics or topic_partition.topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a read; picklable, and its repr contains no secret.

    Attributes:
        task_metrics: where tasks send their figures.
        columns: those that are read, and their fields; empty for all.
        micro_batch: the micro-batch that a batch read reads again; ``starting_offsets`` and ``ending_offsets`` are then unused.
        warnings: options that have no effect or are not safe, for :func:`~pykafka_wire.options.parsing.log_warnings`.
    """

    client: ClientSettings
    subscription: Subscription
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec
    micro_batch: CheckpointReference | None
    include_headers: bool
    columns: Selection
    filter_pushdown: bool
    fail_on_data_loss: bool
    data_loss_ledger: str | None = field(repr=False)  # a URI may hold credentials
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    group_id: str | None
    group_id_prefix: str
    commit_offsets: bool
    static_membership: bool
    poll_timeout_ms: int
    typed_columns: TypedColumns
    task_metrics: StatsdAgent | Literal["driver"] | None = None
    warnings: tuple[str, ...] = ()


def parse_source_options(options: Mapping[str, str], mode: Literal["stream", "batch"]) -> SourceOptions:
    """Source options from Spark's strings.

    Raises:
        OptionError: an option is missing, unknown, malformed, refused, or contradicts another one.
    """
    values = OptionValues(options, mode)
    client = values.client_settings()
    micro_batch = _micro_batch(values)
    subscription = _subscription(values)
    stream = mode == "stream"
    starting = _offsets(values, "starting", "latest" if stream else "earliest")
    ending = _offsets(values, "ending", "latest")
    if not stream:
        starting.refuse(
            -1, "startingOffsets", "a batch read that starts at latest reads nothing: use earliest or offsets"
        )
        ending.refuse(-2, "endingOffsets", "a batch read that ends at earliest reads nothing: use latest or offsets")
    fail_on_data_loss = values.boolean("failOnDataLoss")
    ledger = values.text("dataLossLedger")
    if ledger is not None and fail_on_data_loss:
        raise OptionError(
            "dataLossLedger has no effect with failOnDataLoss=true: set failOnDataLoss to false, or remove dataLossLedger."
        )
    group_id = values.text("kafka.group.id")
    if starting.kind == "group" and group_id is None:
        raise OptionError(
            "startingOffsets=group needs kafka.group.id: the consumer group whose committed offsets the read starts from."
        )
    commits = values.boolean("commitOffsets")
    minimum, maximum = values.positive("minOffsetsPerTrigger"), values.positive("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError(
            f"minOffsetsPerTrigger ({minimum}) is above maxOffsetsPerTrigger ({maximum}): lower the first."
        )
    typed_columns = parse_typed_columns(values)
    columns = _columns(values, typed_columns)
    return SourceOptions(
        client=client,
        subscription=subscription,
        starting_offsets=starting,
        ending_offsets=ending,
        micro_batch=micro_batch,
        include_headers=values.boolean("includeHeaders"),
        columns=columns,
        filter_pushdown=values.boolean("filterPushdown"),
        fail_on_data_loss=fail_on_data_loss,
        data_loss_ledger=ledger,
        max_offsets_per_trigger=maximum,
        max_bytes_per_trigger=values.positive("maxBytesPerTrigger"),
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay"),
        min_partitions=values.positive("minPartitions"),
        max_records_per_partition=values.positive("maxRecordsPerPartition"),
        group_id=group_id,
        group_id_prefix=values.text_or_default("groupIdPrefix"),
        commit_offsets=commits,
        static_membership=_static_membership(values, client, commits),
        poll_timeout_ms=values.positive("kafkaConsumer.pollTimeoutMs")
        or int(default_of("kafkaConsumer.pollTimeoutMs")),
        typed_columns=typed_columns,
        task_metrics=values.task_metrics(),
        warnings=tuple(values.warnings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """What of a read's options decides the DataFrame's schema, be the read batch or streaming; as in :class:`SourceOptions`."""

    client: ClientSettings
    subscription: Subscription
    include_headers: bool
    columns: Selection
    typed_columns: TypedColumns


def parse_schema_options(options: Mapping[str, str]) -> SchemaOptions:
    """What decides the schema of a read. Spark asks for the schema before it says whether the read is a stream.

    A view for INSERT INTO alone names only ``topic``: its columns are those of a read of that topic.

    Raises:
        OptionError: as :func:`parse_source_options`, for these options alone.
    """
    values = OptionValues(options, "batch")  # which refuses no option of a stream
    topic = values.text("topic")
    is_read = any(name.lower() in values.given for name in (*_SUBSCRIPTIONS, "microBatch"))
    return SchemaOptions(
        client=values.client_settings(),
        subscription=_subscription(values) if is_read or topic is None else Subscription(topics=(topic,)),
        include_headers=values.boolean("includeHeaders"),
        columns=parse_columns(values.text("columns") or ""),
        typed_columns=parse_typed_columns(values),
    )


def _columns(values: OptionValues, typed_columns: TypedColumns) -> Selection:
    """The selected columns; adds to the warnings of `values` what another option asks for and they lack."""
    selection = parse_columns(values.text("columns") or "")
    if not selection:
        return selection
    if values.boolean("includeHeaders") and "headers" not in selection:
        values.warnings.append("The option includeHeaders has no effect: columns does not select headers")
    for column in typed_columns.typed:
        if column.name in selection and column.error_column is not None and column.error_column not in selection:
            values.warnings.append(
                f"on{column.name.capitalize()}Error=divert has the effect of null: columns does not select {column.error_column}, "
                "which holds the reasons"
            )
    return selection


def _micro_batch(values: OptionValues) -> CheckpointReference | None:
    value = values.text("microBatch")
    if value is None:
        return None
    bounds = [name for name in _BOUNDS if name.lower() in values.given]
    if bounds:
        raise OptionError(
            f"microBatch is given beside {' and '.join(bounds)}: a micro-batch has a start and an end of its own, so leave out the "
            "other options."
        )
    return parse_reference(value, "microBatch", needs_batch=True)


def _static_membership(values: OptionValues, client: ClientSettings, commits: bool) -> bool:
    value = values.text_or_default("groupMembership").lower()
    if value not in ("none", "static"):
        raise OptionError(f"groupMembership is {value!r}: use none or static.")
    if value == "static" and not commits:
        raise OptionError(
            "groupMembership=static has no use with commitOffsets=false, since the member commits nothing: remove one of them."
        )
    if value == "static" and not client.partition_assignment_strategy:
        raise OptionError(
            "groupMembership=static supports range, roundrobin and cooperative-sticky: set kafka.partition.assignment.strategy to "
            "one of them."
        )
    if value == "static" and client.group_protocol != "classic":
        raise OptionError(
            "groupMembership=static joins by the classic group protocol: remove kafka.group.protocol, or groupMembership."
        )
    return value == "static"


def _subscription(values: OptionValues) -> Subscription:
    names = [name for name in _SUBSCRIPTIONS if name.lower() in values.given]
    if not names and "microbatch" in values.given:
        return Subscription()
    if len(names) != 1:
        found = f"{' and '.join(names)} are given" if names else "no topic is named"
        hint = ", in place of topic, which applies to writes" if not names and "topic" in values.given else ""
        raise OptionError(
            f'{found}: use exactly one of subscribe, subscribePattern and assign, as in .option("subscribe", "orders"){hint}.'
        )
    value = values.text(names[0])
    if value is None:
        raise OptionError(f"{names[0]} is empty: name what to read.")
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise OptionError("subscribe names no topic: give topic names, separated by commas.")
        return Subscription(topics=topics)
    if names[0] == "assign":
        return Subscription(assigned=parse_partitions(value))
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(f"subscribePattern {value!r} is not a regular expression: {error}.") from error
    return Subscription(pattern=value)


def _offsets(values: OptionValues, which: Literal["starting", "ending"], default: str) -> OffsetSpec:
    """Where to start or end, from three options: Timestamp overrides OffsetsByTimestamp, which overrides Offsets."""
    on_missing = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    on_missing_commit = values.choice("startingOffsetsByGroupStrategy", ("error", "earliest", "latest"))
    if which == "ending":
        on_missing = "latest"  # no record at or after the end: read everything
    if (timestamp := values.text(f"{which}Timestamp")) is not None:
        return OffsetSpec(
            kind="timestamp", timestamp_ms=parse_timestamp(timestamp, f"{which}Timestamp"), on_missing=on_missing
        )
    name = f"{which}OffsetsByTimestamp"
    if (by_timestamp := values.text(name)) is not None:
        return parse_timestamp_spec(by_timestamp, name, on_missing)
    name = f"{which}Offsets"
    words: tuple[str, ...] = ("latest",) if which == "ending" else ("earliest", "latest", "group")
    if values.mode == "batch" and which == "starting":
        words = ("earliest", "group")
    spec = parse_offset_spec(values.text(name) or default, name, words)
    if spec.kind == "group":
        if which == "ending":
            raise OptionError("endingOffsets cannot be group: use latest or offsets.")
        return OffsetSpec(kind="group", on_missing=on_missing_commit)
    return spec
