"""Options: strings from Spark become frozen dataclasses, checked, with errors that name the remedy.

The connector's own options stand in :mod:`pykafka_wire.options.table`. Client settings, ``kafka.*``, are read by
:mod:`pykafka_wire.wire.settings` under Kafka's own names. Option names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pykafka_wire.errors import OptionError
from pykafka_wire.options.starting_offsets import (
    UNITS_MS,
    OffsetSpec,
    parse_offset_spec,
    parse_partitions,
    parse_timestamp,
    parse_timestamp_spec,
)
from pykafka_wire.options.table import OPTIONS
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.settings import ClientSettings, unknown_settings
from pykafka_wire.wire.topics import TopicPartition
from pykafka_wire.wire.unsupported_settings import IGNORED

_log = logging.getLogger(__name__)

Mode = Literal["stream", "batch", "sink"]


#: Options that Spark itself adds to a source's, for tables, views and streaming writers (seen on 4.0 to 4.3).
_SPARKS_OWN: Final = frozenset(
    {"path", "paths", "provider", "owner", "location", "external", "is_managed_location", "comment", "collation"}
    | {"serialization.format", "checkpointlocation", "queryname", "outputmode"}
)

#: Settings that would break what the connector promises, with the reason; Spark's own connector refuses them too.
_REFUSED: Final[dict[str, str]] = {
    "kafka.auto.offset.reset": "set startingOffsets instead; the query's checkpoint says where it goes on",
    "kafka.key.deserializer": "keys are binary; cast the column in the query",
    "kafka.value.deserializer": "values are binary; cast the column in the query",
    "kafka.key.serializer": "keys are binary or string; cast the column before the write",
    "kafka.value.serializer": "values are binary or string; cast the column before the write",
    "kafka.enable.auto.commit": "progress is committed per micro-batch; commitOffsets=false turns that off",
    "kafka.interceptor.classes": "interceptors are Java classes, and no Java client runs here",
}

#: Options of another mode, and what to use instead; (names, modes they are refused in, reason).
_MISPLACED: Final[tuple[tuple[frozenset[str], frozenset[str], str], ...]] = (
    (
        frozenset({"endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"}),
        frozenset({"stream"}),
        "a stream has no end; use a batch read, or trigger(availableNow=True)",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topic-partitions a query reads: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether the pattern is found in a topic's name (a search, as in Spark's own connector)."""
        return re.search(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a read was asked to do; picklable, and its repr holds no secret."""

    client: ClientSettings
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    include_headers: bool
    filter_pushdown: bool
    fail_on_data_loss: bool
    data_loss_ledger: str | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """What ``deliveryGuarantee=exactly-once`` was asked to do.

    Attributes:
        marker_topic: the topic on whose partition 0 the marker is kept, as an offset of a group; nothing is written to it.
        max_bytes: most bytes of a micro-batch, None to go by the driver's heap.
    """

    transactional_id: str
    marker_topic: str
    fail_on_missing_marker: bool
    max_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a write was asked to do; picklable, and its repr holds no secret. ``exactly_once`` is None for at least once."""

    client: ClientSettings
    topic: str | None
    codec: Codec
    exactly_once: ExactlyOnce | None = None
    dead_letter_topic: str | None = None


def parse_source_options(options: Mapping[str, str], mode: Literal["stream", "batch"]) -> SourceOptions:
    """Source options from Spark's strings.

    Raises:
        OptionError: an option is missing, unknown, malformed, refused, or contradicts another one.
    """
    read = _Reader(options, mode)
    client = read.client_settings()
    subscription = read.subscription()
    stream = mode == "stream"
    starting = read.offsets("starting", "latest" if stream else "earliest")
    ending = read.offsets("ending", "latest")
    if not stream:
        starting.refuse(-1, "startingOffsets", "a batch that starts at latest reads nothing: use earliest or offsets")
        ending.refuse(-2, "endingOffsets", "a batch that ends at earliest reads nothing: use latest or offsets")
    fail_on_data_loss = read.boolean("failOnDataLoss", True)
    ledger = read.text("dataLossLedger")
    if ledger is not None and fail_on_data_loss:
        raise OptionError("dataLossLedger is for reads that go on: set failOnDataLoss to false, or leave it out.")
    group_id = read.text("kafka.group.id")
    if starting.kind == "group" and group_id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id, whose committed offsets to start from.")
    commits = read.boolean("commitOffsets", True)
    minimum, maximum = read.positive("minOffsetsPerTrigger"), read.positive("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError(
            f"minOffsetsPerTrigger ({minimum}) is above maxOffsetsPerTrigger ({maximum}): lower the first."
        )
    return SourceOptions(
        client=client,
        subscription=subscription,
        starting=starting,
        ending=ending,
        include_headers=read.boolean("includeHeaders", False),
        filter_pushdown=read.boolean("filterPushdown", False),
        fail_on_data_loss=fail_on_data_loss,
        data_loss_ledger=ledger,
        max_offsets_per_trigger=maximum,
        max_bytes_per_trigger=read.positive("maxBytesPerTrigger"),
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=read.duration_ms("maxTriggerDelay", 15 * 60 * 1000),
        min_partitions=read.positive("minPartitions"),
        max_records_per_partition=read.positive("maxRecordsPerPartition"),
        group_id=group_id,
        group_id_prefix=read.text("groupIdPrefix") or "pykafka-wire",
        commit_offsets=commits,
        static_membership=_static_membership(read, client, commits),
        poll_timeout_ms=read.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
    )


def _static_membership(read: _Reader, client: ClientSettings, commits: bool) -> bool:
    value = (read.text("groupMembership") or "none").lower()
    if value not in ("none", "static"):
        raise OptionError(f"groupMembership is {value!r}: use none or static.")
    if value == "static" and not commits:
        raise OptionError(
            "groupMembership=static with commitOffsets=false: a member that commits nothing is of no use."
        )
    if value == "static" and not client.partition_assignment_strategy:
        raise OptionError(
            "groupMembership=static speaks range and roundrobin only: set kafka.partition.assignment.strategy to one."
        )
    return value == "static"


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Sink options from Spark's strings.

    Raises:
        OptionError: an option is missing, unknown, malformed or refused.
    """
    read = _Reader(options, "sink")
    client = read.client_settings()
    topic = read.text("topic")
    if "topic" in read.given and topic is None:
        raise OptionError("topic is empty: name a topic, or leave the option out and give the rows a topic column.")
    try:
        codec = Codec[client.compression_type.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise OptionError(f"kafka.compression.type is {client.compression_type!r}: use one of {names}.") from None
    return SinkOptions(
        client=client,
        topic=topic,
        codec=codec,
        exactly_once=_exactly_once(read, client, topic),
        dead_letter_topic=_dead_letter_topic(read, client, topic),
    )


def _exactly_once(read: _Reader, client: ClientSettings, topic: str | None) -> ExactlyOnce | None:
    """The options of ``deliveryGuarantee=exactly-once``; None where it is not asked for."""
    if read.choice("deliveryGuarantee", ("at-least-once", "exactly-once")) == "at-least-once":
        for name in ("kafka.transactional.id", "markerTopic", "failOnMissingMarker", "maxTransactionBytes"):
            if name.lower() in read.given:
                raise OptionError(f"{name} counts only with deliveryGuarantee=exactly-once: set that, or leave it out.")
        return None
    if client.transactional_id is None:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs kafka.transactional.id, a name of this query's own that stays the same "
            "after every restart."
        )
    if client.acks not in ("all", "-1") or not client.enable_idempotence:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true: leave both out."
        )
    marker_topic = read.text("markerTopic") or topic
    if marker_topic is None:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs markerTopic where the topic comes from a column: the name of an existing "
            "topic to keep the marker with; nothing is written to it."
        )
    return ExactlyOnce(
        transactional_id=client.transactional_id,
        marker_topic=marker_topic,
        fail_on_missing_marker=read.boolean("failOnMissingMarker", True),
        max_bytes=read.positive("maxTransactionBytes"),
    )


def _dead_letter_topic(read: _Reader, client: ClientSettings, topic: str | None) -> str | None:
    asked = read.text("deadLetterTopic")
    if read.choice("onRecordError", ("fail", "divert")) == "fail":
        if asked is not None:
            raise OptionError("deadLetterTopic has no effect with onRecordError=fail: set onRecordError=divert.")
        return None
    if asked is None:
        raise OptionError("onRecordError=divert needs deadLetterTopic, the topic that takes refused records.")
    if asked == topic:
        raise OptionError(f"deadLetterTopic is {asked}, the topic that refuses the records: name another one.")
    if (read.text("deliveryGuarantee") or "").lower() == "exactly-once":
        raise OptionError(
            "onRecordError=divert does not go with deliveryGuarantee=exactly-once, which writes all of a micro-batch or "
            "nothing: leave one of them out."
        )
    if client.acks == "0":
        raise OptionError("onRecordError=divert needs brokers' answers, and kafka.acks=0 asks for none: use acks=all.")
    return asked


class _Reader:
    """Reads typed values out of Spark's option strings, whatever the case of their names."""

    def __init__(self, options: Mapping[str, str], mode: Mode) -> None:
        self.mode = mode
        self.given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(options, mode)

    def text(self, name: str) -> str | None:
        value = self.given.get(name.lower(), "").strip()
        return value or None

    def boolean(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name} is {value!r}: use true or false.")
        return value == "true"

    def positive(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) == 0:
            raise OptionError(f"{name} is {value!r}: use a whole number above zero.")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", value.lower())
        if match is None:
            raise OptionError(f"{name} is {value!r}: use a number with a unit, such as 500ms, 30s, 15m, 2h or 1d.")
        return int(match[1]) * UNITS_MS[match[2] or "ms"]

    def client_settings(self) -> ClientSettings:
        for name, reason in _REFUSED.items():
            if name in self.given:
                raise OptionError(f"{name} cannot be set here: {reason}.")
        kafka = {name[len("kafka.") :]: value for name, value in self.given.items() if name.startswith("kafka.")}
        if not kafka.get("bootstrap.servers", "").strip():
            raise OptionError(
                "kafka.bootstrap.servers is missing: name at least one broker, as in "
                '.option("kafka.bootstrap.servers", "host:9092").'
            )
        try:
            settings = ClientSettings.from_options(kafka)
        except SettingsError as error:
            raise OptionError(f"{error.text} (given as kafka.*)") from error
        if settings.unknown:
            _log.warning("Kafka settings that this client does not know are ignored: %s", unknown_settings(settings))
        for name in settings.ignored:
            _log.info("kafka.%s has no effect: %s", name, IGNORED[name])
        return settings

    def subscription(self) -> Subscription:
        names = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in self.given]
        if len(names) != 1:
            raise OptionError(
                f"{'none' if not names else ' and '.join(names)} of subscribe, subscribePattern and assign given: "
                'give exactly one, as in .option("subscribe", "orders").'
            )
        value = self.text(names[0])
        if value is None:
            raise OptionError(f"{names[0]} is empty: say what to read.")
        if names[0] == "subscribe":
            topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
            if not topics:
                raise OptionError("subscribe names no topic: give their names, separated by commas.")
            return Subscription(topics=topics)
        if names[0] == "assign":
            return Subscription(assigned=parse_partitions(value))
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern {value!r} is no regular expression: {error}.") from error
        return Subscription(pattern=value)

    def offsets(self, which: Literal["starting", "ending"], default: str) -> OffsetSpec:
        """The strongest of the three options that say where to start or end."""
        on_missing = self.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        on_missing_commit = self.choice("startingOffsetsByGroupStrategy", ("error", "earliest", "latest"))
        if which == "ending":
            on_missing = "latest"  # no record as late as the end: read all that is there
        if (timestamp := self.text(f"{which}Timestamp")) is not None:
            return OffsetSpec(
                kind="timestamp", timestamp_ms=parse_timestamp(timestamp, f"{which}Timestamp"), on_missing=on_missing
            )
        name = f"{which}OffsetsByTimestamp"
        if (by_timestamp := self.text(name)) is not None:
            return parse_timestamp_spec(by_timestamp, name, on_missing)
        name = f"{which}Offsets"
        spec = parse_offset_spec(self.text(name) or default, name)
        if spec.kind == "group":
            if which == "ending":
                raise OptionError("endingOffsets cannot be group: use latest or offsets.")
            return OffsetSpec(kind="group", on_missing=on_missing_commit)
        return spec

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = (self.text(name) or choices[0]).lower()
        if value not in choices:
            raise OptionError(f"{name} is {value!r}: use {' or '.join(choices)}.")
        return value


def _refuse_unknown(options: Iterable[str], mode: Mode) -> None:
    known = {spec.name.lower(): spec.name for spec in OPTIONS}
    for name in options:
        lowered = name.lower()
        if lowered.startswith(("kafka.", "option.")) or lowered in _SPARKS_OWN:
            continue
        if lowered not in known:
            near = difflib.get_close_matches(lowered, known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else "see the table of options in the README."
            raise OptionError(f"there is no option {name!r}: {hint}")
        for names, modes, reason in _MISPLACED:
            if lowered in names and mode in modes:
                raise OptionError(f"{known[lowered]} does not apply here: {reason}.")
