"""Reads and commits a query's marker: its offsets in the marker's groups."""

from __future__ import annotations

from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.marker import (
    FoundMarker,
    Marker,
    decode_marker,
    encode_marker,
    marker_group,
    n_parts,
)
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction


def read_marker(cluster: Cluster, transactional_id: str, marker_topic: str) -> FoundMarker:
    """What is committed in the marker's place. Waits until no transaction on it is open.

    Raises:
        WireError: a group may not be read, or its coordinator does not answer.
    """
    place = TopicPartition(marker_topic, 0)

    def part(number: int) -> CommittedOffset | None:
        group = marker_group(transactional_id, number)
        return fetch_offsets(cluster, group, [place], require_stable=True).get(place)

    first = part(0)
    return decode_marker([first, *(part(number) for number in range(1, n_parts(first)))], transactional_id)


def commit_marker(transaction: Transaction, options: ExactlyOnceOptions, marker: Marker) -> None:
    """Commit a marker in the driver's transaction, all of its parts.

    Raises:
        WireError: as :meth:`Transaction.commit_offsets`.
    """
    place = TopicPartition(options.marker_topic, 0)
    for number, offset in enumerate(encode_marker(marker, options.transactional_id)):
        transaction.commit_offsets(marker_group(options.transactional_id, number), {place: offset})
