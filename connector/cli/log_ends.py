"""The ends of logs, as far as they can be had: a partition without a leader must not keep a command from the others'.

Owns how long an election is waited for, and what is said of a partition whose offsets are unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import click

from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.topic_partitions import TopicPartition

#: An election takes less. A partition has no leader for longer while all of its replicas that are in sync are down.
ELECTION_MS: Final = 3_000
_PAUSE_S: Final = 0.2
_NO_LEADER: Final = "LEADER_NOT_AVAILABLE"
#: Why a partition's offsets are unknown, by the name of its look-up's error.
_REASONS: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "does not exist",
    _NO_LEADER: "no leader",
    "TOPIC_AUTHORIZATION_FAILED": "you may not describe it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The ends of logs.

    Attributes:
        offsets: the end of each log that is known; with ``isolation.level=read_committed`` its last stable offset.
        unknown: why the end of each other one is unknown, such as ``no leader``.
    """

    offsets: Mapping[TopicPartition, int]
    unknown: Mapping[TopicPartition, str]


def find_ends(cluster: Cluster, partitions: Iterable[TopicPartition], *, election_ms: float | None = None) -> LogEnds:
    """The ends of the partitions' logs. Arguments and errors as :func:`find_leaders`."""
    led, unknown = find_leaders(cluster, partitions, election_ms=election_ms)
    isolation = cluster.settings.isolation_level
    listed = list_offsets(cluster, dict.fromkeys(led, LATEST), isolation_level=isolation)
    return LogEnds(offsets={tp: found.offset for tp, found in listed.items()}, unknown=unknown)


def find_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, election_ms: float | None = None
) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    """The partitions that have a leader, and why each of the others has none.

    Args:
        election_ms: how long to wait for leaders that are missing; :data:`ELECTION_MS` by default.

    Raises:
        TransportError: no broker answers.
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
        unknown[tp] = _REASONS.get(error.name, error.name)
    return [tp for tp in wanted if tp in lookup.leaders], unknown


def require_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    """Raises click.ClickException where the offsets of a partition cannot be looked up."""
    _, unknown = find_leaders(cluster, partitions)
    if unknown:
        raise click.ClickException(
            f"Nothing was changed: the ends of these logs are unknown: {', '.join(explained(unknown))}. Check the brokers that "
            "have their replicas: pykafka-wire topics describe TOPIC names them."
        )


def explained(unknown: Mapping[TopicPartition, str]) -> list[str]:
    """Each as ``orders-1 (no leader)``."""
    return [f"{tp} ({reason})" for tp, reason in sorted(unknown.items())]


def _may_be_elected(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.name == _NO_LEADER
