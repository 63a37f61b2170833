"""Streaming reads, the same through both connectors."""

from __future__ import annotations

import json
import uuid

from tests.connector.parity.batch import KEPT, T0_MS
from tests.connector.parity.rig import JVM, Both, Scenario, Side, offsets_of


def _offsets(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in enumerate(offsets)}})


def backlog_and_restarts(both: Both) -> None:
    name = both.topic(3)
    both.outside.fill(name, [30, 10, 0])
    options = {"subscribe": name, "startingOffsets": "earliest"}
    both.stream("a new query", **options)
    both.stream("nothing new", **options)
    both.outside.fill(name, [5, 0, 7], first=1000)
    both.stream("a restart", **options)
    both.outside.grow(name, 4)
    both.outside.fill(name, [0, 1, 0, 4], first=2000)
    both.stream("a partition added", **options)


def limits(both: Both) -> None:
    name = both.topic(3)
    both.outside.fill(name, [100, 10, 1])
    both.stream("maxOffsetsPerTrigger", subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    both.stream(
        "the largest number", query="largest",
        subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=str(2**63 - 1),
    )  # fmt: skip


def limits_of_once(both: Both) -> None:
    name = both.topic(2)
    both.outside.fill(name, [20, 10])
    limit = {"maxOffsetsPerTrigger": "5"}
    both.stream("Trigger.Once", trigger="once", subscribe=name, startingOffsets="earliest", **limit)


def behind_latest(both: Both) -> None:
    name = both.topic(2)
    both.outside.fill(name, [30, 10])
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "16"}
    both.start(**options)
    both.settle()

    def behind(side: Side) -> list[tuple[float, ...]]:
        found = []
        for progress in side.queries["query"].query.recentProgress:
            source = progress["sources"][0]
            metrics = dict(source["metrics"] or {}) if side.format == JVM else _report(source["latestOffset"])
            if progress["numInputRows"]:
                found.append(tuple(float(metrics[f"{kind}OffsetsBehindLatest"]) for kind in ("min", "max", "avg")))
        return found

    both.record("a limited query", "offsets behind latest", behind)
    both.record(
        "a limited query", "latest offset",
        lambda side: offsets_of(side.queries["query"].query.lastProgress["sources"][0]["latestOffset"]),
    )  # fmt: skip
    both.stop("to its end", only=("rows", "batches", "offsets"))


def _report(latest: object) -> dict[str, object]:
    return json.loads(latest) if isinstance(latest, str) else dict(latest or {})  # type: ignore[call-overload, no-any-return]


def latest_by_default(both: Both) -> None:
    name = both.topic(2)
    both.outside.fill(name, [5, 5])
    both.start(subscribe=name)
    both.outside.fill(name, [2, 1], first=100)
    both.settle()
    both.stop("latest")


def specific_starts(both: Both) -> None:
    name = both.topic(3)
    both.outside.fill(name, [6, 4, 3])
    both.stream("offsets", query="a", subscribe=name, startingOffsets=_offsets(name, 2, -2, -1))
    assigned = json.dumps({name: [0, 2]})
    starts = json.dumps({name: {"0": 5, "2": 1}})
    both.stream("assigned", query="b", assign=assigned, startingOffsets=starts)
    both.stream("a pattern", query="c", subscribePattern=f"^{name}$", startingOffsets=_offsets(name, 0, 3, 3))


def timestamps(both: Both) -> None:
    name = both.topic(2, KEPT)
    record = both.outside.Record
    both.outside.produce(
        name,
        [record(value=b"%d" % i, partition=p, timestamp_ms=T0_MS + 1000 * i) for p in (0, 1) for i in range(3 + p)],
    )
    both.stream("for all", query="a", subscribe=name, startingTimestamp=str(T0_MS + 1000))
    times = _offsets(name, T0_MS, T0_MS + 2000)
    both.stream("by partition", query="b", subscribe=name, startingOffsetsByTimestamp=times)
    late = str(T0_MS + 3000)  # partition 0 has nothing as late
    both.stream("nothing as late", query="c", subscribe=name, startingTimestamp=late)
    both.stream(
        "nothing as late, latest", query="d",
        subscribe=name, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest",
    )  # fmt: skip


def topics_of_a_pattern(both: Both) -> None:
    prefix = f"pat-{uuid.uuid4().hex[:8]}"
    first = both.topic(1, name=f"{prefix}-1")
    both.outside.fill(first, [2])
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    both.stream("one topic", **options)
    second = both.topic(1, name=f"{prefix}-2")
    both.outside.fill(second, [3], first=10)
    both.stream("another one", **options)
    both.outside.delete(first)
    both.outside.fill(second, [1], first=20)
    both.stream("one deleted", **options)


def a_deleted_topic_fails(both: Both) -> None:
    prefix = f"gone-{uuid.uuid4().hex[:8]}"
    kept, gone = both.topic(1, name=f"{prefix}-1"), f"{prefix}-2"
    both.outside.create(gone)
    both.outside.fill(kept, [1])
    both.outside.fill(gone, [2])
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest"}
    both.stream("both topics", **options)
    both.outside.delete(gone)
    both.outside.fill(kept, [1])
    both.stream("one deleted", **options)


def recreated_and_shorter(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [5])
    both.stream("before", subscribe=name, startingOffsets="earliest")
    both.outside.delete(name)
    both.outside.create(name)
    both.outside.fill(name, [2], first=100)
    both.stream("after", subscribe=name)


def recreated_and_longer(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [2])
    both.stream("before", subscribe=name, startingOffsets="earliest")
    both.outside.delete(name)
    both.outside.create(name)
    both.outside.fill(name, [5], first=100)
    both.stream("after", subscribe=name)


def aged_out(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [2])
    options = {"subscribe": name, "startingOffsets": "earliest"}
    both.stream("before", **options)
    both.outside.fill(name, [10], first=100)
    both.outside.age_out(name, 0, 6)
    both.stream("after", **options)
    both.stream("after, no failure", **options, failOnDataLoss="false")


def the_group(both: Both) -> None:
    name, group = both.topic(1), f"g-{uuid.uuid4().hex[:8]}"
    both.outside.fill(name, [3])
    for side in both.sides:
        running = both.run(
            side, "query", subscribe=name, startingOffsets="earliest", **{"kafka.group.id": f"{group}-{side.format}"}
        )
        assert running.query.awaitTermination(120)
    both.record("at the end", "committed offsets", lambda side: both.outside.committed(f"{group}-{side.format}"))


def minimum(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [3])
    both.start(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    both.outside.fill(name, [4], first=10)
    both.settle()
    both.record("too few", "rows", lambda side: sum(len(rows) for rows in side.queries["query"].batches.values()))
    both.outside.fill(name, [6], first=20)
    both.settle()
    both.stop("enough", only=("rows", "batches", "offsets"))


STREAM = (
    Scenario(name="stream: a backlog, restarts, a partition added", run=backlog_and_restarts),
    Scenario(name="stream: maxOffsetsPerTrigger, divided by lag", run=limits),
    Scenario(name="stream: Trigger.Once is above the limits", run=limits_of_once, long=True),
    Scenario(name="stream: offsets behind latest of a limited query", run=behind_latest, long=True),
    Scenario(name="stream: latest is the default start", run=latest_by_default),
    Scenario(name="stream: starts by partition, under each subscription", run=specific_starts, long=True),
    Scenario(name="stream: starts by timestamp", run=timestamps, long=True),
    Scenario(
        name="stream: topics that come and go under a pattern, failOnDataLoss=false", run=topics_of_a_pattern, long=True
    ),
    Scenario(name="stream: a deleted topic fails", run=a_deleted_topic_fails, long=True),
    Scenario(name="stream: a recreated topic with fewer records", run=recreated_and_shorter, long=True),
    Scenario(
        name="stream: a recreated topic with more records than before",
        run=recreated_and_longer,
        differs={
            "refused": "pykafka-wire identifies the topic by its id and fails with TOPIC_RECREATED; the JVM connector "
            "compares offsets only, continues in the middle of the new topic and loses its first records",
        },
    ),
    Scenario(name="stream: records that aged out before they were read", run=aged_out, long=True),
    Scenario(name="stream: minOffsetsPerTrigger", run=minimum, long=True),
    Scenario(
        name="stream: offsets in the consumer group",
        run=the_group,
        differs={
            "committed offsets": "the JVM connector commits nothing; pykafka-wire commits a finished micro-batch when Spark "
            "next asks for records, for lag tools"
        },
    ),
)
