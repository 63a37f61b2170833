"""``offsets``: the offsets of a topic's records. Also the shared code for offsets: parsing of positions, and lookups.

A partition without a leader must not block the offsets of other partitions: this module defines how long to wait for an election,
and what is shown for a partition with unknown offsets.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.output import format_timestamp
from pykafka_wire.errors import OptionError
from pykafka_wire.options.starting_offsets import parse_timestamp
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

#: The longest wait for an election, which usually takes less. Longer than this, all in-sync replicas of a partition are down.
ELECTION_MS: Final = 3_000
_PAUSE_S: Final = 0.2
#: Why a partition's offsets are unknown, by the error code of the lookup.
_REASONS: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist",
    ErrorCode.LEADER_NOT_AVAILABLE: "no leader",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you may not describe it",
}


@command()
@click.argument("topic")
@click.option(
    "--at",
    metavar="TIME",
    help="Also show the first offset at or after this time: ms, ISO-8601, or relative as in -10m.",
)
def offsets(topic: str, at: str | None) -> None:
    """Show the first and the next offset of each partition of TOPIC.

    The next offset is the end of the log; with -X isolation.level=read_committed it is the last stable offset.
    """
    with connected() as cluster:
        partitions = partitions_of(cluster, topic)
        led, unknown = find_leaders(cluster, partitions)
        isolation = cluster.settings.isolation_level
        earliest = list_offsets(cluster, dict.fromkeys(led, EARLIEST))
        latest = list_offsets(cluster, dict.fromkeys(led, LATEST), isolation_level=isolation)
        rows: list[dict[str, Any]] = [
            {
                **tp._asdict(),
                "earliest": earliest[tp].offset if tp in earliest else None,
                "latest": latest[tp].offset if tp in latest else None,
                "offsets": latest[tp].offset - earliest[tp].offset if tp in latest else None,
            }
            for tp in partitions
        ]
        if at is not None:
            asked = dict.fromkeys(led, parse_time(at))
            listed = list_offsets(cluster, asked, isolation_level=isolation)
            for tp, row in zip(partitions, rows, strict=True):
                here = listed.get(tp)
                row["at"] = here.offset if here is not None and here.offset >= 0 else None
                row["time"] = None if here is None else format_timestamp(here.timestamp)
    output().rows(rows)
    if unknown:
        click.echo(f"The offsets of {', '.join(explain(unknown))} are unknown.", err=True)


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Return the topic-partitions of a topic, in order. Raises UnknownTopicError if there is no such topic."""
    return [TopicPartition(topic, p) for p in cluster.metadata.topics([topic])[topic].partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The ends of logs.

    Attributes:
        offsets: the known ends of logs; with ``isolation.level=read_committed`` the last stable offsets.
        unknown: why each other end is unknown, such as ``no leader``.
    """

    offsets: Mapping[TopicPartition, int]
    unknown: Mapping[TopicPartition, str]


def find_ends(cluster: Cluster, partitions: Iterable[TopicPartition], *, election_ms: float | None = None) -> LogEnds:
    """Return the ends of the partitions' logs. Arguments and errors are those of :func:`find_leaders`."""
    led, unknown = find_leaders(cluster, partitions, election_ms=election_ms)
    isolation = cluster.settings.isolation_level
    listed = list_offsets(cluster, dict.fromkeys(led, LATEST), isolation_level=isolation)
    return LogEnds(offsets={tp: first.offset for tp, first in listed.items()}, unknown=unknown)


def find_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, election_ms: float | None = None
) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    """Return the partitions with a leader, and the reason for each partition without one.

    Args:
        election_ms: how long to wait for missing leaders; :data:`ELECTION_MS` by default.

    Raises:
        TransportError: no broker responds.
    """
    wanted = sorted(partitions)
    until = Deadline.after_ms(ELECTION_MS if election_ms is None else election_ms)
    lookup = cluster.metadata.leaders(wanted)
    while any(_may_be_elected(error) for error in lookup.errors.values()) and not until.expired:
        time.sleep(_PAUSE_S)
        lookup = cluster.metadata.leaders(wanted)
    unknown: dict[TopicPartition, str] = {}
    for tp, error in lookup.errors.items():
        if not isinstance(error, BrokerError):
            raise error
        unknown[tp] = _REASONS.get(error.code, error.name)
    return [tp for tp in wanted if tp in lookup.leaders], unknown


def require_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    """Raise click.ClickException if a partition has no leader, so that its offsets cannot be looked up."""
    _, unknown = find_leaders(cluster, partitions)
    if unknown:
        raise click.ClickException(
            f"Nothing was changed: the ends of these logs are unknown: {', '.join(explain(unknown))}. Check the brokers that "
            "have their replicas: pykafka-wire topics describe TOPIC names them."
        )


def explain(unknown: Mapping[TopicPartition, str]) -> list[str]:
    """Return each partition with its reason, as in ``orders-1 (no leader)``."""
    return [f"{tp} ({reason})" for tp, reason in sorted(unknown.items())]


def _may_be_elected(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.LEADER_NOT_AVAILABLE


def offsets_at(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    timestamp: int,
    *,
    isolation_level: str = "read_uncommitted",
    deadline: Deadline | None = None,
) -> dict[TopicPartition, int]:
    """Return each topic-partition's offset at a time, or at a special time such as EARLIEST. Raises as :func:`list_offsets`."""
    listed = list_offsets(
        cluster, dict.fromkeys(partitions, timestamp), isolation_level=isolation_level, deadline=deadline
    )
    return {tp: entry.offset for tp, entry in listed.items()}


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the non-empty ranges from these offsets to the ends, sorted by topic-partition."""
    return [
        OffsetRange(topic=tp.topic, partition=tp.partition, start_offset=start, end_offset=ends[tp])
        for tp, start in sorted(starts.items())
        if start < ends[tp]
    ]


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch. Raises click.UsageError for an invalid time."""
    try:
        return parse_timestamp(text, "the time")
    except OptionError as error:
        raise click.UsageError(error.message) from error


def parse_position(text: str) -> tuple[str, int]:
    """Return ``("offset", 42)``, ``("shift", -10)`` or ``("time", ms)``; earliest and latest are special times."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return "time", EARLIEST if word == "earliest" else LATEST
    if word.isdecimal():
        return "offset", int(word)
    if word[:1] in "+-" and word[1:].isdecimal():
        return "shift", int(word)
    try:
        return "time", parse_time(text)
    except click.UsageError as error:
        raise click.UsageError(f"{error.message} Or: earliest, latest, an offset, +N or -N.") from error


def resolve_position(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    position: tuple[str, int],
    shift_from: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset of a position (:func:`parse_position`) in each partition. An offset outside the log becomes the nearer end
    of the log. A time after the last record becomes the end of the log, or the last stable offset with
    ``isolation.level=read_committed``.

    Args:
        shift_from: the offsets from which a shift is counted [default: the ends of the logs].
    """
    kind, number = position
    isolation = cluster.settings.isolation_level
    earliest = offsets_at(cluster, partitions, EARLIEST)
    ends = offsets_at(cluster, partitions, LATEST, isolation_level=isolation)
    if kind == "time":
        offsets = offsets_at(cluster, partitions, number)
        wanted = {tp: offset if offset >= 0 else ends[tp] for tp, offset in offsets.items()}
    elif kind == "offset":
        wanted = dict.fromkeys(partitions, number)
    else:
        wanted = {tp: offset + number for tp, offset in (shift_from or ends).items()}
    return {tp: min(max(offset, earliest[tp]), ends[tp]) for tp, offset in wanted.items()}
