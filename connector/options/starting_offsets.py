"""Where a read starts and ends, as the user wrote it: earliest, latest, offsets, timestamps, the group's offsets or a checkpoint's.

Owns the parsing of those option values; :mod:`pykafka_wire.source.planning.offset_lookups` looks them up at the brokers.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from pykafka_wire.checkpoints.reference import PREFIX, TABLE_PREFIX, CheckpointReference, parse_reference, parse_table
from pykafka_wire.errors import OptionError
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.topic_partitions import TopicPartition

#: ListOffsets' numbers for the ends of the log; offset JSON uses them, too (the JVM connector's convention).
LATEST = -1
EARLIEST = -2

#: Kafka keeps milliseconds in an int64.
_MAX_MS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Units of durations; Spark's own connector has the short names, its triggers the long ones.
UNITS_MS = {
    name: ms
    for names, ms in (
        ("ms millisecond milliseconds", 1),
        ("s sec second seconds", 1_000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for name in names.split()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """One end of a read.

    Attributes:
        kind: ``offsets`` uses ``by_partition`` (offsets, -1 latest, -2 earliest); ``timestamp`` uses ``timestamp_ms``
            for every partition, ``timestamps`` uses ``by_partition`` in ms; ``checkpoint`` uses ``checkpoint``.
        on_missing: what to do if no record is at or after the timestamp, or the group has committed nothing.
    """

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps", "group", "checkpoint"]
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int = 0
    on_missing: str = "error"
    checkpoint: CheckpointReference | None = None

    def refuse(self, special: int, option: str, reason: str) -> None:
        """Raise OptionError where this end is, or names for any partition, ``special`` (-1 latest, -2 earliest)."""
        word = {LATEST: "latest", EARLIEST: "earliest"}[special]
        if self.kind == word:
            raise OptionError(f"{option} is {word}: {reason}.")
        if self.kind == "offsets":
            for topic_partition, offset in self.by_partition.items():
                if offset == special:
                    raise OptionError(f"{option} has {special} ({word}) for {topic_partition}: {reason}.")


def parse_offset_spec(value: str, option: str, words: Sequence[str] = ("earliest", "latest", "group")) -> OffsetSpec:
    """Return ``earliest``, ``latest``, ``group`` (whatever the case), ``checkpoint:PATH``, ``table:PATH``, or JSON of offsets.

    Args:
        words: those that make sense for the option, which the error lists.
    """
    word = value.strip().lower()
    if word == "earliest":
        return OffsetSpec(kind="earliest")
    if word == "latest":
        return OffsetSpec(kind="latest")
    if word == "group":
        return OffsetSpec(kind="group")
    if word.startswith(PREFIX):
        return OffsetSpec(kind="checkpoint", checkpoint=parse_reference(value, option))
    if word.startswith(TABLE_PREFIX):
        return OffsetSpec(kind="checkpoint", checkpoint=parse_table(value, option))
    example = '{"topic":{"0":23,"1":-2}}, where -2 is earliest and -1 is latest'
    if not word.startswith("{"):
        choices = {
            **dict(zip(words, words, strict=True)),
            PREFIX[:-1]: f"{PREFIX}PATH",
            TABLE_PREFIX[:-1]: f"{TABLE_PREFIX}PATH",
        }
        near = difflib.get_close_matches(word.partition(":")[0], choices, n=1)
        meant = f"did you mean {choices[near[0]]}? U" if near else "u"
        raise OptionError(
            f"{option} is {quoted(value)}: {meant}se {', '.join(choices.values())}, or JSON such as {example}."
        )

    def offset(raw: Any) -> int:  # Any: out of the user's JSON
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < EARLIEST:
            raise ValueError(f"{quoted(raw)} is not an offset")
        return raw

    return OffsetSpec(kind="offsets", by_partition=_parse_by_partition(value, option, example, offset))


def parse_timestamp_spec(value: str, option: str) -> OffsetSpec:
    """Return JSON of timestamps, in ms since the epoch, ISO-8601 or relative to now, which is the same moment for all."""
    now_ms = _now_ms()
    example = '{"topic":{"0":1700000000000,"1":"2026-01-01T00:00:00Z"}}'

    def timestamp(raw: Any) -> int:  # Any: out of the user's JSON
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise ValueError(f"{quoted(raw)} is not a timestamp")
        return parse_timestamp(str(raw), option, now_ms)

    return OffsetSpec(kind="timestamps", by_partition=_parse_by_partition(value, option, example, timestamp))


def parse_timestamp(value: str, option: str, now_ms: int | None = None) -> int:
    """Return milliseconds since the epoch from a number of them, an ISO-8601 time (UTC where it names no zone), or ``-10m``.

    Raises:
        OptionError: it is none of the three, negative, or above Kafka's largest timestamp.
    """
    text = value.strip()
    if re.fullmatch(r"\d+", text):
        if int(text) > _MAX_MS:
            raise OptionError(
                f"{option} has {quoted(value)}, above Kafka's largest timestamp: use at most {_MAX_MS} ms."
            )
        return int(text)
    relative = re.fullmatch(r"-(\d+)\s*([a-z]+)", text)
    if relative is not None and relative[2] in UNITS_MS:
        timestamp_ms = (_now_ms() if now_ms is None else now_ms) - int(relative[1]) * UNITS_MS[relative[2]]
    else:
        try:
            moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        except ValueError:
            raise OptionError(
                f"{option} has {quoted(value)}: use milliseconds since the epoch (1700000000000), an ISO-8601 time "
                "(2026-01-31T12:00:00Z), or a time before now (-10m)."
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        timestamp_ms = (moment - _EPOCH) // timedelta(milliseconds=1)  # whole numbers: a float loses milliseconds
    if timestamp_ms < 0:  # -1 and -2 would mean latest and earliest to ListOffsets
        raise OptionError(
            f"{option} has {quoted(value)}, a time before 1970, which no record can have: use a later one."
        )
    return timestamp_ms


def _now_ms() -> int:
    return int(time.time() * 1000)


def parse_partitions(value: str, option: str) -> tuple[TopicPartition, ...]:
    """Return topic-partitions from ``{"topic":[0,1]}``, sorted."""
    problem = f'{option} is {quoted(value)}: use JSON such as {{"topic":[0,1]}}.'
    try:
        parsed = json.loads(value)
    except ValueError:
        raise OptionError(problem) from None
    if not isinstance(parsed, dict) or not parsed:
        raise OptionError(problem)
    topic_partitions = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError(problem)
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise OptionError(problem)
            topic_partitions.append(TopicPartition(topic, partition))
    return tuple(sorted(set(topic_partitions)))


def _parse_by_partition(
    value: str, option: str, example: str, convert: Callable[[Any], int]
) -> dict[TopicPartition, int]:
    try:
        parsed = json.loads(value)
        if not isinstance(parsed, dict) or not parsed:
            raise ValueError("it is not an object of topics")
        values = {}
        for topic, partitions in parsed.items():
            if not isinstance(partitions, dict):
                raise ValueError(f"topic {quoted(topic)} has no object of partitions")
            for partition, raw in partitions.items():
                if not re.fullmatch(r"\d+", partition):
                    raise ValueError(f"{quoted(partition)} is not a partition number")
                values[TopicPartition(topic, int(partition))] = convert(raw)
    except ValueError as error:
        raise OptionError(f"{option} is malformed ({error}): use JSON such as {example}.") from error
    return values
