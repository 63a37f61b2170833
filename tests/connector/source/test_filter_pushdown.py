"""Filters handed to a batch read: what they rule out is not fetched, and no row is ever lost by it."""

from __future__ import annotations

import itertools
import json
import random
import time
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.planning.batch_ranges import plan_ranges
from pykafka_wire.source.planning.filter_pushdown import NO_PRUNING, prune
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

CONF = "spark.sql.python.filterPushdown.enabled"
#: 2023-11-14T22:13:20Z
T0_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def moment(ms: int, us: int = 0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms, microseconds=us)


# --- what filters say


def evaluate(each: Filter, row: dict[str, Any]) -> bool:
    """A filter as Spark evaluates it; the oracle."""
    if isinstance(each, Not):
        return not evaluate(each.child, row)
    value = row[each.attribute[0]]
    if isinstance(each, IsNull | IsNotNull):
        return (value is None) is isinstance(each, IsNull)
    return {
        EqualTo: lambda: value == each.value,
        EqualNullSafe: lambda: value == each.value,
        GreaterThan: lambda: value > each.value,
        GreaterThanOrEqual: lambda: value >= each.value,
        LessThan: lambda: value < each.value,
        LessThanOrEqual: lambda: value <= each.value,
        In: lambda: value in each.value,
        StringStartsWith: lambda: value.startswith(each.value),
        StringEndsWith: lambda: value.endswith(each.value),
        StringContains: lambda: each.value in value,
    }[type(each)]()


def _filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    path = (column,)
    comparisons = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    kinds: list[st.SearchStrategy[Filter]] = [
        *(values.map(lambda value, kind=kind: kind(path, value)) for kind in comparisons),
        st.lists(values, min_size=1, max_size=3).map(lambda several: In(path, tuple(several))),
        st.just(IsNotNull(path)),
        st.just(IsNull(path)),
    ]
    if column == "topic":
        kinds += [values.map(lambda v, k=k: k(path, v)) for k in (StringStartsWith, StringEndsWith, StringContains)]
    return st.one_of(kinds).flatmap(lambda each: st.sampled_from([each, each, Not(each)]))


MOMENTS = st.builds(moment, st.integers(-3, 12), st.sampled_from([0, 0, 1, 999]))
FILTERS = st.one_of(
    _filters_on("topic", st.sampled_from(["a", "ab", "b", ""])),
    _filters_on("partition", st.integers(-1, 3)),
    _filters_on("offset", st.integers(-2, 12)),
    _filters_on("timestamp", MOMENTS),
    _filters_on("key", st.sampled_from([b"k", b"l"])),
)
#: Timestamps in ms by topic-partition, in offset order: as producers chose them.
LOGS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "ab", "b"]), st.integers(0, 2)),
    st.lists(st.integers(-1, 10), max_size=8),
    max_size=4,
)


@given(LOGS, st.lists(FILTERS, max_size=4))
def test_no_row_that_the_filters_keep_is_ruled_out(
    logs: dict[TopicPartition, list[int]], filters: list[Filter]
) -> None:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset, "timestamp": moment(ms), "key": b"k"}
        for tp, log in logs.items()
        for offset, ms in enumerate(log)
    ]
    pruning = prune(filters)
    read = []
    for row in rows:
        tp = TopicPartition(row["topic"], row["partition"])
        first = 0
        if pruning.timestamp_ms is not None:  # as ListOffsets responds
            late = [offset for offset, ms in enumerate(logs[tp]) if ms >= pruning.timestamp_ms]
            first = late[0] if late else len(logs[tp])
        if pruning.keeps(tp) and max(first, pruning.start_offset) <= row["offset"] < pruning.end_offset:
            read.append(row)
    assert [row for row in read if all(evaluate(f, row) for f in filters)] == [
        row for row in rows if all(evaluate(f, row) for f in filters)
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        EqualTo(("key",), b"k"),
        IsNotNull(("value",)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("partition",), 1.5),
        EqualTo(("partition",), True),
        EqualTo(("topic",), None),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),
        GreaterThan(("timestamp",), "2020-01-01"),
        Not(Not(EqualTo(("partition",), 1))),
        Not(EqualTo(("offset",), 1)),
        In(("partition",), ()),
    ],
)
def test_a_filter_that_is_not_understood_rules_out_nothing(foreign: Filter) -> None:
    assert prune([foreign]) == NO_PRUNING


def test_a_microsecond_is_less_than_a_millisecond() -> None:
    def first_ms(each: Filter) -> int | None:
        return prune([each]).timestamp_ms

    path = ("timestamp",)
    assert first_ms(GreaterThanOrEqual(path, moment(5))) == 5
    assert first_ms(GreaterThanOrEqual(path, moment(5, 1))) == 6
    assert first_ms(GreaterThan(path, moment(5))) == 6
    assert first_ms(GreaterThan(path, moment(5, 1))) == 6
    assert first_ms(GreaterThanOrEqual(path, moment(0))) is None  # ListOffsets has other meanings below 1
    assert first_ms(LessThan(path, moment(5))) is None


# --- on real brokers


@pytest.mark.broker
def test_what_a_transaction_holds_back_is_not_ruled_out(kafka: Any, topic: Any) -> None:
    """An end that is given may be above what is served now: an unfiltered read waits for those records, so a filtered one must."""
    name, producer = (
        topic(),
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex}),
    )
    later_ms = int(time.time() * 1000) + HOUR_MS  # than the transactions' markers, which have timestamps, too
    producer.init_transactions()
    producer.begin_transaction()
    for ms in (1, 2, 3):
        producer.produce(name, b"committed", timestamp=later_ms + ms)
    producer.commit_transaction()
    producer.begin_transaction()
    for ms in (4, 5, 6):
        producer.produce(name, b"open", timestamp=later_ms + ms)
    producer.flush()
    n_committed, end = 4, 7  # with the marker
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        for isolation, ms in itertools.product(("read_committed", "read_uncommitted"), range(9)):
            options = {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "kafka.isolation.level": isolation,
                "subscribe": name,
                "endingOffsets": json.dumps({name: {"0": end}}),
            }
            pruning = prune([GreaterThanOrEqual(("timestamp",), moment(later_ms + ms))])
            [kept] = plan_ranges(cluster, parse_source_options(options, "batch"), pruning)
            first = [0, 0, 1, 2, 4, 5, 6, end, end][ms]
            served = n_committed if isolation == "read_committed" else end
            assert (kept.start_offset, kept.end_offset) == (min(first, served), end), (isolation, ms)
    producer.abort_transaction()


# --- through Spark, on real brokers


@pytest.fixture
def pushdown(spark: Any) -> Any:
    """Turns Spark's setting on for a test."""
    spark.conf.set(CONF, "true")
    yield
    spark.conf.unset(CONF)


def read(spark: Any, servers: str, topics: str, **options: str) -> Any:
    asked = {"kafka.bootstrap.servers": servers, "subscribe": topics} | options
    return spark.read.format("pykafka-wire").options(**asked).load()


def places(frame: Any) -> list[tuple[str, int, int]]:
    return sorted((row.topic, row.partition, row.offset) for row in frame.collect())


def at(ms: int) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(ms / 1000, tz=timezone.utc).isoformat()}'"


@pytest.fixture(scope="module")
def disorder(outside: Any) -> Any:
    """Two topics whose timestamps go back and forth, one of them with its beginning aged out."""
    chance = random.Random(5)
    names = []
    for suffix in ("one", "two"):
        name = f"disorder-{chance.getrandbits(40):x}-{suffix}"
        outside.create(name, 3, **{"retention.ms": "-1"})
        records = [
            outside.Record(value=b"x", partition=p, timestamp_ms=T0_MS + 1000 * (i + chance.randint(-15, 15)))
            for i in range(100)
            for p in range(3)
        ]
        for first in range(0, len(records), 60):  # several batches
            outside.produce(name, records[first : first + 60])
        names.append(name)
    outside.age_out(names[1], 2, 10)
    yield names
    for name in names:
        outside.delete(name)


def conditions(names: list[str]) -> list[str]:
    a, b = (at(T0_MS + 1000 * s) for s in (40, 60))
    return [
        "partition = 1",
        "partition IN (0, 2) AND offset >= 95",
        "offset BETWEEN 20 AND 24 AND partition != 1",
        "offset > 1000000 OR partition = 0",
        f"topic = '{names[1]}' AND partition > 1 AND offset < 15",
        "topic LIKE '%-one' AND offset <= 2",
        f"timestamp > {a} AND timestamp < {b}",
        f"timestamp BETWEEN {a} AND {b} AND partition = 2",
        f"timestamp >= {at(T0_MS + HOUR_MS)}",
        "partition < 0",
    ]


@pytest.mark.broker
@pytest.mark.spark
def test_with_and_without_pushdown_every_filter_keeps_the_same_rows(
    spark: Any, kafka: Any, disorder: list[str], pushdown: None
) -> None:
    def table(**options: str) -> Any:
        return read(spark, kafka.bootstrap_servers, ",".join(disorder), **options).select(
            "topic", "partition", "offset", "timestamp"
        )

    wanted = conditions(disorder)
    told = [f"{condition} AS c{i}" for i, condition in enumerate(wanted)]
    rows = table().selectExpr("topic", "partition", "offset", *told).collect()
    expected = {
        condition: sorted((r.topic, r.partition, r.offset) for r in rows if r[f"c{i}"])
        for i, condition in enumerate(wanted)
    }
    # Each from a load() of its own: Spark plans a DataFrame that was pushed filters once, for all queries of it.
    found = {condition: places(table(filterPushdown="true").where(condition)) for condition in expected}
    assert found == expected
    assert sum(map(bool, expected.values())) > len(expected) // 2


@pytest.mark.broker
@pytest.mark.spark
def test_the_option_without_sparks_setting_is_no_failure(spark: Any, kafka: Any, disorder: list[str]) -> None:
    assert spark.conf.get(CONF) == "false"
    frame = read(spark, kafka.bootstrap_servers, disorder[0], filterPushdown="true")
    assert frame.where("partition = 1").count() == 100
    assert frame.count() == 300


@pytest.mark.broker
@pytest.mark.spark
def test_sparks_setting_without_the_option_leaves_a_view_whole(
    spark: Any, kafka: Any, disorder: list[str], pushdown: None
) -> None:
    """Spark 4.1 and 4.2 read a view that one query has filtered under that filter in all others: so it is an opt-in."""
    frame = read(spark, kafka.bootstrap_servers, disorder[0])
    assert frame.where("partition = 1").count() == 100
    assert frame.count() == 300
    assert frame.where("partition = 1").union(frame.where("partition = 2")).count() == 200


@pytest.mark.broker
@pytest.mark.spark
def test_an_hour_of_a_day_costs_the_broker_a_small_share_of_its_bytes(
    spark: Any, kafka_cluster: Any, topic: Any, outside_of: Any, pushdown: None, until: Any
) -> None:
    """Counted by the broker: its request log says how many bytes of records each Fetch response took along."""
    cluster = kafka_cluster()
    servers, outside = cluster.bootstrap_servers, outside_of(cluster.bootstrap_servers)
    name = topic(2, {"retention.ms": "-1", "compression.type": "producer"}, cluster=cluster)
    payload = b"x" * 400
    for hour in range(24):
        first_ms = T0_MS + hour * HOUR_MS
        outside.produce(
            name,
            [outside.Record(value=payload, partition=i % 2, timestamp_ms=first_ms + i * 3_000) for i in range(1200)],
        )
    logger = ["--alter", "--entity-type", "broker-loggers", "--entity-name", "1"]
    cluster.tool("kafka.admin.ConfigCommand", *logger, "--add-config", "kafka.request.logger=DEBUG")

    def fetched_by(client: str, condition: str) -> tuple[int, int]:
        """Rows, and the bytes of records that the broker gave this client."""
        rows = read(spark, servers, name, filterPushdown="true", **{"kafka.client.id": client}).where(condition).count()
        n_bytes = until(lambda: bytes_given(cluster.nodes[0].log_path, client), what="the broker's request log")
        print(f"{client}: {rows} rows, {n_bytes} bytes")
        return rows, n_bytes

    all_rows, all_bytes = fetched_by("everything", "true")
    assert (all_rows, all_bytes > 24 * 1200 * len(payload)) == (24 * 1200, True)
    since = at(T0_MS + 23 * HOUR_MS)
    rows, n_bytes = fetched_by("last-hour", f"timestamp >= {since}")
    assert rows == 1200
    assert n_bytes < all_bytes / 12
    rows, n_bytes = fetched_by("one-partition", f"partition = 1 AND timestamp >= {since}")
    assert rows == 600
    assert n_bytes < all_bytes / 12
    rows, n_bytes = fetched_by("offsets", "offset BETWEEN 100 AND 199")
    assert rows == 200
    assert n_bytes < all_bytes / 12


def bytes_given(log: Any, client: str) -> int:
    """Bytes of records in the Fetch responses to a client, from the broker's request log."""
    total = 0
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            _, found, text = line.partition("Completed request:")
            if not found or '"FETCH"' not in text:
                continue
            entry, _ = json.JSONDecoder().raw_decode(text.lstrip())
            if not entry["requestHeader"]["clientId"].startswith(client):
                continue
            for each in entry["response"]["responses"]:
                total += sum(max(0, partition.get("recordsSizeInBytes", 0)) for partition in each["partitions"])
    return total
