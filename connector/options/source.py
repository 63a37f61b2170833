"""Options of a read, batch or streaming: parses Spark's strings into :class:`SourceOptions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.errors import OptionError
from pykafka_wire.field_selection import Selection
from pykafka_wire.options import option_table as options
from pykafka_wire.options.option import Option, TopicMinimum
from pykafka_wire.options.parsing import OptionValues, statsd_agent
from pykafka_wire.options.starting_offsets import OffsetSpec, parse_offset_spec
from pykafka_wire.options.typed_columns import TypedColumns, parse_typed_columns
from pykafka_wire.task_metrics import StatsdAgent
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

_SUBSCRIPTIONS: Final[tuple[Option[Any], ...]] = (options.SUBSCRIBE, options.SUBSCRIBE_PATTERN, options.ASSIGN)
_BOUNDS: Final[tuple[Option[Any], ...]] = (
    options.STARTING_OFFSETS, options.STARTING_OFFSETS_BY_TIMESTAMP, options.STARTING_TIMESTAMP,
    options.ENDING_OFFSETS, options.ENDING_OFFSETS_BY_TIMESTAMP, options.ENDING_TIMESTAMP,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topic-partitions a query reads: exactly one of the three is set; none for all of a micro-batch."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        """Return whether the pattern is found in a topic's name (a search, as in Spark's own connector)."""
        return re.search(self.pattern, topic) is not None

    def names(self, topic_partition: TopicPartition) -> bool:
        """Return whether a topic-partition is one of those that are read, where it exists."""
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
        topics_max_age_ms: how long a stream uses the topics and partitions that it has found; None for the usual time.
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
    topic_minimums: tuple[TopicMinimum, ...]
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    topics_max_age_ms: int | None
    group_id: str | None
    group_id_prefix: str
    commit_offsets: bool
    static_membership: bool
    poll_timeout_ms: int
    typed_columns: TypedColumns
    task_metrics: StatsdAgent | Literal["driver"] | None = None
    warnings: tuple[str, ...] = ()


def parse_source_options(given: Mapping[str, str], mode: Literal["stream", "batch"]) -> SourceOptions:
    """Return source options from Spark's strings.

    Raises:
        OptionError: an option is missing, unknown, malformed, refused, or contradicts another one.
    """
    values = OptionValues(given, mode)
    client = values.client_settings()
    micro_batch = _micro_batch(values)
    subscription = _subscription(values)
    starting, ending = _start(values), _end(values)
    if mode == "batch":
        starting.refuse(
            -1, "startingOffsets", "a batch read that starts at latest reads nothing: use earliest or offsets"
        )
        ending.refuse(-2, "endingOffsets", "a batch read that ends at earliest reads nothing: use latest or offsets")
    fail_on_data_loss = values[options.FAIL_ON_DATA_LOSS]
    ledger = values[options.DATA_LOSS_LEDGER]
    if ledger is not None and fail_on_data_loss:
        raise OptionError(
            "dataLossLedger has no effect with failOnDataLoss=true: set failOnDataLoss to false, or remove dataLossLedger."
        )
    group_id = values[options.KAFKA_GROUP_ID]
    if starting.kind == "group" and group_id is None:
        raise OptionError(
            "startingOffsets=group needs kafka.group.id: the consumer group whose committed offsets the read starts from."
        )
    commits = values[options.COMMIT_OFFSETS]
    minimum, maximum = values[options.MIN_OFFSETS_PER_TRIGGER], values[options.MAX_OFFSETS_PER_TRIGGER]
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
        include_headers=values[options.INCLUDE_HEADERS],
        columns=columns,
        filter_pushdown=values[options.FILTER_PUSHDOWN],
        fail_on_data_loss=fail_on_data_loss,
        data_loss_ledger=ledger,
        max_offsets_per_trigger=maximum,
        max_bytes_per_trigger=values[options.MAX_BYTES_PER_TRIGGER],
        min_offsets_per_trigger=minimum,
        topic_minimums=values[options.MIN_OFFSETS_PER_TOPIC],
        max_trigger_delay_ms=values[options.MAX_TRIGGER_DELAY],
        min_partitions=values[options.MIN_PARTITIONS],
        max_records_per_partition=values[options.MAX_RECORDS_PER_PARTITION],
        topics_max_age_ms=values[options.PARTITION_METADATA_CACHE_TTL_MS],
        group_id=group_id,
        group_id_prefix=values[options.GROUP_ID_PREFIX],
        commit_offsets=commits,
        static_membership=_static_membership(values, client, commits),
        poll_timeout_ms=values[options.KAFKA_CONSUMER_POLL_TIMEOUT_MS],
        typed_columns=typed_columns,
        task_metrics=values[options.TASK_METRICS] if mode == "stream" else statsd_agent(values),
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


def parse_schema_options(given: Mapping[str, str]) -> SchemaOptions:
    """Return what decides the schema of a read. Spark asks for the schema before it says whether the read is a stream.

    A view for INSERT INTO alone names only ``topic``: its columns are those of a read of that topic.

    Raises:
        OptionError: as :func:`parse_source_options`, for these options alone.
    """
    values = OptionValues(given, "batch")  # which refuses no option of a stream
    topic = values[options.TOPIC]
    is_read = any(map(values.has, (*_SUBSCRIPTIONS, options.MICRO_BATCH)))
    return SchemaOptions(
        client=values.client_settings(),
        subscription=_subscription(values) if is_read or topic is None else Subscription(topics=(topic,)),
        include_headers=values[options.INCLUDE_HEADERS],
        columns=values[options.COLUMNS],
        typed_columns=parse_typed_columns(values),
    )


def _columns(values: OptionValues, typed_columns: TypedColumns) -> Selection:
    """Return the selected columns; adds to the warnings of `values` what another option asks for and they lack."""
    selection = values[options.COLUMNS]
    if not selection:
        return selection
    if values[options.INCLUDE_HEADERS] and "headers" not in selection:
        values.warnings.append("The option includeHeaders has no effect: columns does not select headers")
    for column in typed_columns.typed:
        if column.name in selection and column.error_column is not None and column.error_column not in selection:
            values.warnings.append(
                f"on{column.name.capitalize()}Error=divert has the effect of null: columns does not select {column.error_column}, "
                "which holds the reasons"
            )
    return selection


def _micro_batch(values: OptionValues) -> CheckpointReference | None:
    micro_batch = values[options.MICRO_BATCH]
    bounds = [option.name for option in _BOUNDS if values.has(option)]
    if micro_batch is not None and bounds:
        raise OptionError(
            f"microBatch is given beside {' and '.join(bounds)}: a micro-batch has a start and an end of its own, so leave out the "
            "other options."
        )
    return micro_batch


def _static_membership(values: OptionValues, client: ClientSettings, commits: bool) -> bool:
    value = values[options.GROUP_MEMBERSHIP]
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
    given = [option for option in _SUBSCRIPTIONS if values.has(option)]
    if not given and values.has(options.MICRO_BATCH):
        return Subscription()
    if len(given) != 1:
        problem = f"{' and '.join(option.name for option in given)} are given" if given else "no topic is named"
        hint = ", in place of topic, which applies to writes" if not given and values.has(options.TOPIC) else ""
        raise OptionError(
            f'{problem}: use exactly one of subscribe, subscribePattern and assign, as in .option("subscribe", "orders"){hint}.'
        )
    if not values[given[0]]:
        raise OptionError(f"{given[0].name} is empty: name what to read.")
    return Subscription(
        topics=values[options.SUBSCRIBE],
        pattern=values[options.SUBSCRIBE_PATTERN],
        assigned=values[options.ASSIGN],
    )


def _start(values: OptionValues) -> OffsetSpec:
    """Return where to start: a timestamp overrides timestamps by partition, which override offsets."""
    of_timestamps, of_group = (
        values[options.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY],
        values[options.STARTING_OFFSETS_BY_GROUP_STRATEGY],
    )
    if (timestamp := values[options.STARTING_TIMESTAMP]) is not None:
        return OffsetSpec(kind="timestamp", timestamp_ms=timestamp, on_missing=of_timestamps)
    if (by_partition := values[options.STARTING_OFFSETS_BY_TIMESTAMP]) is not None:
        return replace(by_partition, on_missing=of_timestamps)
    offsets = options.STARTING_OFFSETS
    if values.mode == "batch":
        offsets = replace(offsets, parse=partial(parse_offset_spec, words=("earliest", "group")))
    spec = values[offsets]
    return replace(spec, on_missing=of_group) if spec.kind == "group" else spec


def _end(values: OptionValues) -> OffsetSpec:
    """Return where to end, as :func:`_start`; if no record is at or after a timestamp, everything is read."""
    if (timestamp := values[options.ENDING_TIMESTAMP]) is not None:
        return OffsetSpec(kind="timestamp", timestamp_ms=timestamp, on_missing="latest")
    if (by_partition := values[options.ENDING_OFFSETS_BY_TIMESTAMP]) is not None:
        return replace(by_partition, on_missing="latest")
    if (spec := values[options.ENDING_OFFSETS]).kind == "group":
        raise OptionError("endingOffsets cannot be group: use latest or offsets.")
    return spec
