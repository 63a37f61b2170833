"""Ingests that do not run: snapshots of a shop's tables as a page would have them after a quarter of an hour.

``python -m tests.connector.page.synthetic 12`` serves one of 12 tables, to look at while the page is written.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pykafka_wire.ingest_status import (
    Activity,
    IngestStatus,
    LandedMicroBatch,
    Moment,
    PlannedRange,
    RunningMicroBatch,
    TableSize,
    TableStatus,
    Trouble,
    ordered,
)
from pykafka_wire.page.address import PageSettings
from pykafka_wire.page.sampling import N_SAMPLES, STEP_S, Samples
from pykafka_wire.page.server import Page
from pykafka_wire.page.snapshots import (
    Column,
    Commit,
    IngestSnapshot,
    ProcessFigures,
    Reject,
    SchemaChange,
    TableHistory,
)

NAMES = (
    "orders",
    "customers",
    "clicks",
    "payments",
    "shipments",
    "inventory",
    "prices",
    "carts",
    "reviews",
    "returns",
    "sessions",
    "invoices",
)
#: Of a name that would do harm if it were parsed: HTML, a URL's parts, an order of writing, a quote of SQL.
HOSTILE = "x<img src=1 onerror=alert(1)>&%2f?#\"'`\u202e\u0007<script>alert(2)</script>"
STOPPED = Trouble(
    code="PYKAFKA_WIRE_INGEST",
    reason="[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'amount' and 'amount': the newest schema has string, and the "
    'table has bigint, which Delta cannot widen. Register a schema whose type fits, or set on_conflict = "divert" for this table; '
    "then start the ingest again.",
    is_stopped=True,
    n_failures=1,
    since=0.0,
    next_attempt=0.0,
)
RETRYING = Trouble(
    code="PYKAFKA_WIRE_REGISTRY",
    reason="[PYKAFKA_WIRE_REGISTRY] The registry https://registry:8081 did not respond within 30 s to GET /subjects/"
    "shop.payments-value/versions/latest: check that it runs. The table is tried again, and the others go on.",
    is_stopped=False,
    n_failures=4,
    since=0.0,
    next_attempt=0.0,
)


class SyntheticSource:
    """A page's source without an ingest: counts grow with the clock, by waves that differ from table to table."""

    def __init__(
        self, n_tables: int, *, clock: Callable[[], float] = time.time, hostile: bool = False, first: Sequence[str] = ()
    ) -> None:
        self.clock = clock
        self.started_at = clock() - N_SAMPLES * STEP_S - 7_000
        self.is_broken = False
        self.shows_values = False
        self.state = "running"
        #: In place of the status of a shop's tables.
        self.status: IngestStatus | None = None
        #: Which readers cannot read the tables.
        self.limited_readers: tuple[str, ...] = ()
        names = [
            NAMES[i % len(NAMES)] + (f".{i // len(NAMES):02d}" if i >= len(NAMES) else "") for i in range(n_tables)
        ]
        self.topics = [f"shop.{name}" for name in names]
        if hostile:
            self.topics[0] = HOSTILE
        self.topics[: len(first)] = first
        self._random = {topic: random.Random(number) for number, topic in enumerate(self.topics)}
        self._scale = {topic: 10 ** found.uniform(1.5, 3.9) for topic, found in self._random.items()}
        #: Share of the rate, seconds, phase.
        self._waves = {
            topic: [
                (share, found.uniform(*range_s), found.uniform(0, 6.3))
                for share, range_s in ((0.5, (60, 260)), (0.25, (15, 40)), (0.2, (5, 12)))
            ]
            for topic, found in self._random.items()
        }
        self.stopped_at, self.failing_at = clock() - 700, clock() - 95

    def snapshot(self, *, is_watched: bool) -> IngestSnapshot:
        if self.is_broken:
            raise RuntimeError("the driver does not respond")
        now = self.clock()
        status = self.status or self._status(now)
        tables = status.tables
        wave = 1 + 0.4 * math.sin(now / 90) + 0.1 * math.sin(now / 17)
        return IngestSnapshot(
            status=status,
            name="shop",
            state=self.state,  # type: ignore[arg-type]
            started_at=self.started_at,
            error=None,
            topics=r"shop\..*",
            into="/lake/shop",
            checkpoint="/lake/_checkpoints/shop",
            registry="https://registry:8081",
            brokers=("broker-1:9092", "broker-2:9092", "broker-3:9092"),
            versions={
                "pykafka-wire": "0.1.0",
                "Spark": "4.2.0",
                "Delta": "4.4.0",
                "Python": "3.12.4",
                "Java": "17.0.15",
            },
            settings={
                "max_rows": "10000000",
                "parallel": "4",
                "starting_offsets": "earliest",
                "rejects": "_rejects",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.jaas.config": "***",
            },
            sizes={each.key: TableSize(40 + n * 3, each.rows * 41 + 10**7) for n, each in enumerate(tables)},
            bytes_written=int(sum(each.rows for each in tables) * 41),
            bytes_read=int(sum(each.rows for each in tables) * 58),
            processes={
                "driver": ProcessFigures(cpu=0.08 * wave, memory_bytes=int(180e6)),
                "java": ProcessFigures(cpu=0.9 * wave, memory_bytes=int(1.62e9)),
                "tasks": ProcessFigures(cpu=1.7 * wave, memory_bytes=int(640e6 * wave), processes=4),
            },
        )

    def _status(self, now: float) -> IngestStatus:
        return IngestStatus(
            moment=Moment(now, now),
            activity=Activity.LANDING,
            tables=ordered([self._table(number, topic, now) for number, topic in enumerate(self.topics)]),
            running=RunningMicroBatch(number=760, begun_at=now - 2.1, n_planned=41_200, n_done=18_090),
            micro_batches=[self._batch(number, now) for number in range(60)],
        )

    def _rows(self, topic: str, at: float) -> float:
        """The integral of a rate that rises and falls by three waves, and never below 0."""
        elapsed, speed = at - self.started_at, self._scale[topic]
        waves = sum(
            share * period * (math.cos(phase) - math.cos(elapsed / period + phase))
            for share, period, phase in self._waves[topic]
        )
        return speed * (elapsed + waves)

    def _table(self, number: int, topic: str, now: float) -> TableStatus:
        """One table; both clocks of the model are that of this source."""
        kind = number % 25 if len(self.topics) > 12 else number
        # Seconds ago, when the last rows were landed.
        idle_s = {3: now - self.failing_at, 2: now - self.stopped_at if number < 200 else -1.0}.get(kind, -1.0)
        rows = int(self._rows(topic, now - max(0.0, idle_s)))
        per_s = self._rows(topic, now) - self._rows(topic, now - 1)
        shares = (0.31, 0.27, 0.24, 0.12, 0.04, 0.02)
        position = {p: int(rows * share) for p, share in enumerate(shares)}
        found = TableStatus(
            topic=topic,
            name="".join(c if c.isalnum() else "_" for c in topic),
            place=f"/lake/shop/{topic.replace('.', '_')}",
            mode=("append", "append", "upsert", "append", "cdc")[number % 5],
            format="avro",
            moment=Moment(now, now),
            complete_at=now - 0.4 - number % 5,
            position=position,
            first_position=dict.fromkeys(position, 0),
            log_ends=position,
            rows=rows,
            rows_per_second=0.0 if idle_s > 0 else per_s,
            commits=number + 2 + int((now - self.started_at) / 30),
            seconds=(now - self.started_at) / (20 + number % 13),
            landed_at=now - max(idle_s, 3 + number % 5),
            newest_ms=int(now * 1000),
            schema_id=1000 + number,
        )

        def lacking(n_records: float, **changes: Any) -> TableStatus:
            """The table with records that it lacks, in the partitions of even numbers."""
            ends = {p: offset + (1 + int(n_records / 3)) * (1 - p % 2) for p, offset in position.items()}
            return replace(found, log_ends=ends, **changes)

        if idle_s > 0:
            lag = self._rows(topic, now) - rows
            if kind == 2:
                trouble = replace(STOPPED, since=self.stopped_at, next_attempt=now + 200)
            else:
                trouble = replace(RETRYING, since=self.failing_at, next_attempt=now + 8 - now % 8)
            return lacking(lag, complete_at=now - idle_s, trouble=trouble)
        if kind == 0:
            found = lacking(per_s * 14, complete_at=now - 14.0, rejects=12, held_rejects=12)
            planned = PlannedRange(position, found.log_ends or {})
            return replace(found, planned=planned, n_done=planned.n_offsets // 2)
        if kind == 8:
            return lacking(310, complete_at=now - 41.0, waits_until=now + 260)
        if kind == 6:
            return replace(found, rejects=1, held_rejects=3)
        if kind % 3 == 1:
            found = lacking(per_s * 7, complete_at=now - 7.0)
            planned = PlannedRange(position, found.log_ends or {})
            return replace(found, planned=planned, n_done=planned.n_offsets // 3)
        return found

    def _batch(self, number: int, now: float) -> LandedMicroBatch:
        noise = random.Random(number)
        seconds = 2.0 + 1.6 * math.sin(number / 6) ** 2 + noise.random()
        return LandedMicroBatch(
            number=700 + number,
            started_at=now - (60 - number) * 10,
            rows=int(seconds * 11_000),
            seconds=seconds,
            phases={"planning": 0.14 + 0.1 * noise.random(), "landing": seconds * 0.86, "committing": 0.12},
            landing={"fetching": seconds * 0.3, "writing": seconds * 0.46, "driver": seconds * 0.1} if number else None,
            bytes_read=int(seconds * 11_000) * 58,
        )

    def queries(self, topic: str) -> Mapping[str, str]:
        name = topic.replace(".", "_")
        return {
            "Spark SQL": f"SELECT * FROM delta.`/lake/shop/{name}` LIMIT 20",
            "PySpark": f'spark.read.format("delta").load("/lake/shop/{name}").show()',
            "Polars": f'import polars\npolars.scan_delta("/lake/shop/{name}").head(20).collect()',
        }

    def close(self) -> None:
        pass

    def history(self, topic: str) -> TableHistory:
        now = self.clock()
        kafka = [
            ("_kafka_key", "binary"),
            ("_kafka_topic", "string"),
            ("_kafka_partition", "int"),
            ("_kafka_offset", "bigint"),
            ("_kafka_timestamp", "timestamp"),
        ]
        first = [
            ("id", "bigint"),
            ("customer", "string"),
            ("country", "string"),
            ("amount", "bigint"),
            ("placed_at", "timestamp"),
            ("items", "array<struct<sku: string, price: decimal(10,2), n: int>>"),
        ]
        made = self.started_at - 86_400 * 9
        columns = [Column(name=name, type=kind, since=made, version=0) for name, kind in first]
        columns += [
            Column(name="coupon", type="string", since=now - 86_400 * 2, version=412),
            Column(name="note", type="string", since=now - 1_400, version=1_180),
        ]
        columns += [Column(name=name, type=kind, since=made, version=0) for name, kind in kafka]
        if topic == HOSTILE:
            columns[1] = replace(columns[1], name=HOSTILE)
        commits = tuple(
            Commit(
                version=1_240 - i,
                at=now - 4 - i * 10,
                operation="WRITE",
                rows=1_180 + i * 7 % 90,
                files=2,
                bytes=48_000 + i * 311,
                micro_batch=759 - i,
                schema_id="1004",
                start=dict.fromkeys(range(6), 90000 - i * 200),
                end=dict.fromkeys(range(6), 90200 - i * 200),
            )
            for i in range(40)
        )
        changes = (
            SchemaChange(
                version=1_180,
                at=now - 1_400,
                schema_id="1004",
                changes=({"kind": "added", "column": "note", "type": "string"},),
            ),
            SchemaChange(
                version=655,
                at=now - 86_400,
                schema_id="1003",
                changes=({"kind": "widened", "column": "id", "type": "bigint", "from": "int"},),
            ),
            SchemaChange(
                version=412,
                at=now - 86_400 * 2,
                schema_id="1002",
                changes=({"kind": "added", "column": "coupon", "type": "string"},),
            ),
            SchemaChange(
                version=0,
                at=made,
                schema_id="1001",
                changes=tuple({"kind": "added", "column": name, "type": kind} for name, kind in first + kafka),
            ),
        )
        rejects = tuple(
            Reject(
                partition=i % 6,
                offset=88_123 + i * 17,
                at=now - 30 - i * 61,
                micro_batch=750 - i,
                size=96,
                reason='at byte 17 of field amount: a number was expected, and "'
                + (HOSTILE if topic == HOSTILE else "many")
                + '" is there',
                value=f'{{"id": {i}, "amount": "many"}}' if self.shows_values else None,
            )
            for i in range(5)
        )
        return TableHistory(
            columns=tuple(columns), changes=changes, commits=commits, rejects=rejects, limited_readers=self.limited_readers
        )  # fmt: skip


def filled_samples(source: SyntheticSource) -> Samples:
    """A quarter of an hour of samples, as if the page had run for so long."""
    real, moment = source.clock, [source.clock() - N_SAMPLES * STEP_S]
    samples = Samples(lambda: moment[0])
    source.clock = lambda: moment[0]
    for _ in range(N_SAMPLES + 1):
        samples.add(source.snapshot(is_watched=True))
        moment[0] += STEP_S
    source.clock = real
    begun, elapsed = moment[0] - STEP_S, time.monotonic()
    samples._clock = lambda: begun + time.monotonic() - elapsed
    return samples


if __name__ == "__main__":
    shop = SyntheticSource(int(sys.argv[1]) if len(sys.argv) > 1 else 12, hostile="hostile" in sys.argv)
    page = Page(PageSettings(port=8099))
    page.serve(shop, filled_samples(shop))
    print(page.url)
    time.sleep(10**8)
