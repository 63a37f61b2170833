"""Sessions of a client with brokers, to inject faults into; another client, the observer, checks the result.

A session takes the client's settings and a fresh topic of :data:`PARTITIONS` partitions. It raises AssertionError where anything
is lost or doubled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.consumer import Consumer
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.message import Request
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest
from pykafka_wire.wire.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from pykafka_wire.wire.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.transaction_records import encode

PARTITIONS: Final = 3
_ROUNDS: Final = 3
#: Three of them are more than a Fetch gives of one partition, which is 64 KiB at least.
_VALUE_BYTES: Final = 50_000
_VALUES: Final = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)
_POLL_S: Final = 30.0

Values = dict[int, list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a client does, and the APIs that it needs for that."""

    run: Callable[[ClientSettings, Cluster, str], None]
    apis: tuple[type[Request[Any]], ...]  # Any: whatever their responses are


def _values(round_: int) -> Values:
    return {p: [b"%d.%d.%d" % (round_, p, i) + bytes(_VALUE_BYTES) for i in range(2)] for p in range(PARTITIONS)}


def _all_values(rounds: int = _ROUNDS) -> Values:
    return {p: [value for round_ in range(rounds) for value in _values(round_)[p]] for p in range(PARTITIONS)}


def read(cluster: Cluster, topic: str, isolation_level: str = "read_uncommitted") -> Values:
    """The values of a topic by partition, from its start to its end."""
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation_level=isolation_level)
    ranges = [
        OffsetRange(topic=topic, partition=tp.partition, start_offset=starts[tp].offset, end_offset=ends[tp].offset)
        for tp in places
    ]
    found: Values = {p: [] for p in range(PARTITIONS)}
    for chunk in fetch_ranges(
        cluster, ranges, columns=_VALUES, isolation_level=isolation_level, max_partition_bytes=65_536
    ):
        records = chunk.records
        assert records.value is not None
        for index, value in zip(records.slice_index.tolist(), records.value.to_pylist(), strict=True):
            found[ranges[index].partition].append(value)
    return found


def fill(cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster)
    for round_ in range(_ROUNDS):
        for partition, values in _values(round_).items():
            for value in values:
                producer.append(topic, partition, encode(value))
        producer.flush()


def write(settings: ClientSettings, observer: Cluster, topic: str) -> None:
    """Writes; another client reads."""
    with Cluster(settings) as cluster:
        fill(cluster, topic)
    assert read(observer, topic) == _all_values()


def read_back(settings: ClientSettings, observer: Cluster, topic: str) -> None:
    """Reads what another client wrote before."""
    with Cluster(settings) as cluster:
        assert read(cluster, topic) == _all_values()


def commit(settings: ClientSettings, observer: Cluster, topic: str) -> None:
    """Commits offsets of a group and fetches them, three times; another client has the last ones."""
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    with Cluster(settings) as cluster:
        for offset in range(_ROUNDS):
            wanted = {tp: CommittedOffset(offset, 0, f"m{offset}") for tp in places}
            commit_offsets(cluster, f"g-{topic}", wanted)
            assert fetch_offsets(cluster, f"g-{topic}", places) == wanted
    assert fetch_offsets(observer, f"g-{topic}", places) == wanted


def consume(settings: ClientSettings, observer: Cluster, topic: str) -> None:
    """Reads as a member of a group, commits after each poll with records, and leaves; another client has the commits."""
    group = f"m-{topic}"
    fill(observer, topic)
    found: Values = {p: [] for p in range(PARTITIONS)}
    until = time.monotonic() + _POLL_S
    with Consumer(settings_with(settings, {"group.id": group})) as consumer:
        consumer.subscribe([topic])
        while sum(map(len, found.values())) < sum(map(len, _all_values().values())):
            assert time.monotonic() < until, f"{sum(map(len, found.values()))} values were read in time, too few"
            polled = consumer.poll(200)
            for record in polled:
                assert record.value is not None
                found[record.partition].append(record.value)
            if len(polled):
                consumer.commit()
        consumer.poll(120)  # heartbeats go on
        consumer.poll(0)  # raises what has ended the membership meanwhile
    assert found == _all_values()
    committed = fetch_offsets(observer, group, None)
    assert {tp.partition: each.offset for tp, each in committed.items()} == {
        p: len(values) for p, values in found.items()
    }


def transact(settings: ClientSettings, observer: Cluster, topic: str) -> None:
    """Three transactions of records and offsets, the second aborted; another client reads the committed ones."""
    group = f"t-{topic}"
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    with Cluster(settings) as cluster:
        for round_ in range(3):
            with Transaction.begin(cluster, f"id-{topic}") as transaction:
                transaction.produce({tp: encode(*_values(round_)[tp.partition]) for tp in places})
                transaction.commit_offsets(group, dict.fromkeys(places, CommittedOffset(round_)))
                if round_ != 1:
                    transaction.commit()
    expected = {p: _values(0)[p] + _values(2)[p] for p in range(PARTITIONS)}
    assert read(observer, topic, "read_committed") == expected
    assert fetch_offsets(observer, group, places, require_stable=True) == dict.fromkeys(places, CommittedOffset(2))


def settings_with(settings: ClientSettings, more: dict[str, str]) -> ClientSettings:
    """The same bootstrap servers and pauses, for a consumer."""
    host, port = settings.bootstrap_servers[0]
    return ClientSettings.from_options(
        {
            **SHORT,
            "bootstrap.servers": f"{host}:{port}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "heartbeat.interval.ms": "20",
            "fetch.max.wait.ms": "20",
            **more,
        }
    )


#: Pauses before retries are short, and so is the time after which a session has failed.
SHORT: Final = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "20", "default.api.timeout.ms": "15000"}

SESSIONS: Final[dict[str, Session]] = {
    "write": Session(run=write, apis=(MetadataRequest, InitProducerIdRequest, ProduceRequest)),
    "read": Session(run=read_back, apis=(MetadataRequest, ListOffsetsRequest, FetchRequest)),
    "commit": Session(run=commit, apis=(FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest)),
    "consume": Session(
        run=consume,
        apis=(
            FindCoordinatorRequest,
            JoinGroupRequest,
            SyncGroupRequest,
            HeartbeatRequest,
            OffsetCommitRequest,
            OffsetFetchRequest,
            ListOffsetsRequest,
            FetchRequest,
            LeaveGroupRequest,
        ),
    ),
    "transact": Session(
        run=transact,
        apis=(
            FindCoordinatorRequest,
            InitProducerIdRequest,
            AddPartitionsToTxnRequest,
            ProduceRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        ),
    ),
}
