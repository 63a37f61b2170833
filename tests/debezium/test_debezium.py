"""A database's tables through Debezium, Kafka Connect and `pykafka-wire ingest` into Delta tables, which must equal the database's.

Nothing between the two was written here: PostgreSQL and MariaDB are Debian's, Connect and Debezium's connectors Maven Central's.
Tables have all of the databases' usual types, and meet all kinds of changes, random ones and DDL among them, while the ingest is
killed.
`make debezium` runs it; PYKAFKA_WIRE_DEBEZIUM_TABLES, a regular expression, chooses tables, PYKAFKA_WIRE_DEBEZIUM_SEED other random
changes, PYKAFKA_WIRE_DEBEZIUM_KILLS how often the ingest is killed. Connect is killed once, and writes again what it wrote
last.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from pykafka_wire.ingest.tables.position import Landed
from tests.debezium.connect import Connect, Converter, avro_converters, json_converters
from tests.debezium.mariadb import MariaDB
from tests.debezium.mariadb_tables import HELPERS
from tests.debezium.mariadb_tables import OPERATIONS as MARIADB_OPERATIONS
from tests.debezium.mariadb_tables import TYPES as MARIADB_TYPES
from tests.debezium.postgres import Postgres
from tests.debezium.rules import OTHERS, Rule, differences
from tests.debezium.tables import EXTENSIONS, OPERATIONS, TYPES, Table, random_table
from tests.soak.test_ingest import Program

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(2 * 3600)]

SEED = int(os.environ.get("PYKAFKA_WIRE_DEBEZIUM_SEED", "1"))
N_KILLS = int(os.environ.get("PYKAFKA_WIRE_DEBEZIUM_KILLS", "4"))
WANTED = os.environ.get("PYKAFKA_WIRE_DEBEZIUM_TABLES", ".*")
N_STEPS = 4
TIMEOUT_S = 1800.0
#: Ends of the ingest by errors after which it is not started again.
MOST_ENDS = 5
#: The step after which Connect is killed.
WORKER_KILL = 2
#: Its rows say how far a topic, or a table, is: each step ends with one.
MARKER = Table(
    name="marker",
    create=("CREATE TABLE marker (id integer PRIMARY KEY, name text)", "INSERT INTO marker VALUES (0, 'mark 0.')"),
)
CONNECTOR: Mapping[str, str] = {
    "tasks.max": "1",
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "1",
    # A TRUNCATE has no key: only in one partition it is between the changes before and after it.
    "topic.creation.groups": "one",
    "topic.creation.one.include": ".*truncated_at_once",
    "topic.creation.one.partitions": "1",
    "topic.creation.one.replication.factor": "1",
    # Else TRUNCATE is never seen.
    "skipped.operations": "none",
    "heartbeat.interval.ms": "1000",
    "poll.interval.ms": "100",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """How Debezium writes, and how that is read.

    Attributes:
        prefix: of Debezium's topics; one with a hyphen makes namespaces of Avro that have one.
        format: of the ingest's file.
        mode: of the ingest's file.
        connector: further settings of the connector, which may give types other rules.
        tables: a regular expression of the tables that it has.
        database: makes the database's server.
    """

    prefix: str
    format: str
    has_schema: bool
    mode: str = "cdc"
    tables: str = ".*"
    connector: Mapping[str, str] = field(default_factory=dict)
    database: type[Postgres] | type[MariaDB] = Postgres

    def converters(self, registry: str) -> Converter:
        return avro_converters(registry) if self.format == "registry" else json_converters(schemas=self.has_schema)

    def chosen(self) -> list[Table]:
        """The tables that it has, of those that are wanted."""
        every = (*MARIADB_TYPES, *MARIADB_OPERATIONS)
        if self.database is Postgres:
            random_ones = (random_table(f"random_{number}", SEED + number, N_STEPS) for number in range(2))
            every = (*TYPES, *OPERATIONS, *random_ones)
        return [table for table in every if re.fullmatch(WANTED, table.name) and re.fullmatch(self.tables, table.name)]

    @property
    def beginning(self) -> tuple[str, ...]:
        """Statements before any table is made."""
        return EXTENSIONS if self.database is Postgres else HELPERS

    def rules(self, database: Postgres | MariaDB, kinds: Mapping[str, str]) -> dict[str, Rule]:
        """The rule of each column, of its type in the database."""
        others = {
            kind: rule for each in self.connector.items() for kind, rule in OTHERS.get("=".join(each), {}).items()
        }
        return {
            name: database.rule_for(kind, has_schema=self.has_schema, others=others) for name, kind in kinds.items()
        }

    def column(self, name: str) -> str:
        """A column's name in its table."""
        if self.connector.get("field.name.adjustment.mode") == "avro":
            return re.sub(r"[^A-Za-z0-9_]", "_", name)
        return name

    def settings(self, folder: Path, servers: str, registry: str) -> Path:
        """The ingest's file: one pattern, which helper topics match as well."""
        path = folder / "ingest.toml"
        path.write_text(
            f"checkpoint = '{folder}/checkpoint'\ninto = '{folder}/lake'\n"
            f"topics = '(__debezium-heartbeat\\.|schemahistory\\.)?{re.escape(self.prefix)}.*'\n"
            + (f"registry = '{registry}'\n" if self.format == "registry" else "")
            + f"[kafka]\n'bootstrap.servers' = '{servers}'\n[defaults]\nmode = '{self.mode}'\nformat = '{self.format}'\n",
            encoding="utf-8",
        )
        return path


LANES = {
    "json": Lane(prefix="json", format="json", has_schema=False),
    "json with schemas": Lane(prefix="json-schemas", format="json", has_schema=True),
    "json, flattened": Lane(
        prefix="json-flattened",
        format="json",
        has_schema=False,
        mode="upsert",
        tables="plain|composite_key|moved_keys|only_deletes|nulls_first|toast_text_full|random_.*",
        connector={
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        },
    ),
    "avro": Lane(
        prefix="in-avro",
        format="registry",
        has_schema=True,
        # Apicurio's converter has no setting that keeps a null where the column has a default.
        tables="(?!nulls_of_defaults).*",
        connector={"field.name.adjustment.mode": "avro"},
    ),
    "mariadb, json": Lane(prefix="mariadb-json", format="json", has_schema=False, database=MariaDB),
    "mariadb, json with schemas": Lane(prefix="mariadb-schemas", format="json", has_schema=True, database=MariaDB),
    "mariadb, avro": Lane(
        prefix="mariadb-avro",
        format="registry",
        has_schema=True,
        database=MariaDB,
        connector={"field.name.adjustment.mode": "avro"},
    ),
}


class Pipeline:
    """A database, a worker and an ingest of one lane."""

    def __init__(self, lane: Lane, servers: str, registry: str, folder: Path) -> None:
        #: To compare with; it starts when it is needed.
        self.spark: Any = None
        self.lane = lane
        self.folder = folder
        self._servers = servers
        self._registry = registry
        self.database = lane.database()
        self.connect = Connect(servers)
        self.ingest = Program(lane.settings(folder, servers, registry), folder / "ingest.log")
        self._marker = 0
        #: Ends of the ingest by an error.
        self.n_ended = 0

    def __enter__(self) -> Pipeline:
        try:
            self.database.__enter__()
            self.connect.__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.ingest.kill()
        self.connect.__exit__()
        self.database.__exit__()

    def capture(self) -> None:
        """Start Debezium's connector: a snapshot, then changes."""
        settings = {
            **CONNECTOR,
            **self.database.connector(self.lane.prefix, self._servers),
            **self.lane.connector,
            **self.lane.converters(self._registry),
            "topic.prefix": self.lane.prefix,
        }
        if "table.include.list" in settings:
            settings.pop("table.exclude.list", None)
        self.connect.create(re.sub(r"\W", "_", self.lane.prefix), settings)

    def beside(self, lane: Lane) -> Pipeline:
        """Another connector's topics, of the same database in the same ingest."""
        other = copy.copy(self)
        other.lane = lane
        return other

    def mark(self, *beside: Pipeline) -> None:
        """Add a row to the marker's table, and wait until it is in its topics: whatever came before is in Kafka."""
        self._marker += 1
        text = f"mark {self._marker}."
        self.database.run(f"INSERT INTO marker VALUES ({self._marker}, '{text}')")
        deadline = time.monotonic() + TIMEOUT_S
        while not all(each._has_written(text) for each in (self, *beside)):
            failed = self.connect.failures()
            assert not failed, f"Debezium has failed: {failed}"
            assert time.monotonic() < deadline, f"the topic has no marker {self._marker}: {self.connect.log_tail}"
            time.sleep(0.3)

    def _has_written(self, mark: str) -> bool:
        """Whether the marker's topic has a text."""
        return any(mark.encode() in (value or b"") for *_, value in self.records(self.topic(MARKER)))

    def kill_worker(self) -> None:
        """Kill Connect, and start it again: whatever it has written since it saved its offsets comes twice."""
        self.connect.kill()
        self.connect.start()
        self.capture()
        self.mark()

    def start(self) -> None:
        """Start the ingest, unless it runs."""
        process = self.ingest.process
        if process is None or process.poll() is not None:
            self.n_ended += process is not None and (process.returncode or 0) > 0
            self.ingest.start("few")

    def await_landed(self, tables: Sequence[Table]) -> None:
        """Wait until each table is at the end of its topic, but for those that are stopped."""
        deadline = time.monotonic() + TIMEOUT_S
        ends = {table.name: self._ends(table) for table in tables}
        while behind := [name for name, end in ends.items() if self._is_behind(name, end)]:
            if time.monotonic() > deadline or self.n_ended > MOST_ENDS:
                print(f"not landed: {behind}; {self.log_tail()}", flush=True)
                return
            self.start()
            time.sleep(1)

    def n_commits(self) -> int:
        """How often the ingest has committed, to all tables."""
        return len(list(self.folder.glob("lake/*/_delta_log/*.json")))

    def await_commits(self, n_commits: int) -> None:
        """Wait until there are so many, a minute at most: a table that is stopped makes none."""
        self.ingest.wait_for(lambda: self.n_commits() >= n_commits, timeout_s=60)

    def _ends(self, table: Table) -> dict[int, int]:
        topic = self.topic(table)
        with self._consumer() as consumer:
            return {each: self._log(consumer, topic, each)[1] for each in self._partitions(consumer, topic)}

    @staticmethod
    def _partitions(consumer: Consumer, topic: str) -> list[int]:
        return sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)

    @staticmethod
    def _log(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        """Where a partition's log starts and ends. One that was just made has no leader for a moment."""
        deadline = time.monotonic() + 60
        while True:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return low, high

    def _is_behind(self, table: str, ends: Mapping[int, int]) -> bool:
        path = self.path(table)
        if path.name in self.stopped():
            return False
        for commit in sorted((path / "_delta_log").glob("*.json"), reverse=True):
            for line in commit.read_text().splitlines():
                landed = Landed.from_json(json.loads(line).get("commitInfo", {}).get("userMetadata"))
                if landed is not None:
                    return any(landed.end.get(partition, 0) < end for partition, end in ends.items())
        return any(ends.values())

    def topic(self, table: Table) -> str:
        """A table's topic, in which Debezium replaces what Kafka does not allow."""
        return f"{self.lane.prefix}.{self.database.schema}." + re.sub(r"[^A-Za-z0-9_.-]", "_", table.name)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self._servers, "group.id": "seen", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer(settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def path(self, table: str) -> Path:
        return (
            self.folder / "lake" / re.sub(r"[^A-Za-z0-9_]", "_", f"{self.lane.prefix}.{self.database.schema}.{table}")
        )

    def records(self, topic: str) -> Iterator[tuple[tuple[int, int, int], Any, bytes | None, bytes | None]]:
        """Partition, offset and timestamp, headers, key and value of each record of a topic, of one partition after the other."""
        with self._consumer() as consumer:
            for partition in self._partitions(consumer, topic):
                low, high = self._log(consumer, topic, partition)
                consumer.assign([TopicPartition(topic, partition, low)])
                while low < high:
                    message = consumer.poll(30)
                    assert message is not None and message.error() is None, message and message.error()
                    low = message.offset() + 1
                    place = partition, message.offset(), message.timestamp()[1]
                    yield place, message.headers(), message.key(), message.value()

    def difference(self, table: Table) -> list[str]:
        """How a Delta table differs from the database's."""
        path = self.path(table.name)
        if not (path / "_delta_log").exists():
            return ["there is no table"]
        kinds = {name: kind for name, kind in self.database.kinds(table.name).items() if name not in table.absent}
        rules = self.lane.rules(self.database, kinds)
        wanted_columns = ", ".join(
            '{} AS "{}"'.format(rules[name].database.format(f'"{name}"'), name) for name in kinds
        )
        expected = table.expected(has_schema=self.lane.has_schema)
        wanted = self.database.rows(f"SELECT {wanted_columns} FROM ({expected}) AS t", [*kinds])
        landed = self.spark.read.format("delta").load(str(path))
        types = {each.name: each.dataType.simpleString() for each in landed.schema}
        columns: list[str] = []
        found = [f"there is a column {name}" for name in table.absent if self.lane.column(name) in types]
        for name, rule in rules.items():
            there = self.lane.column(name)
            kind = types.get(there)
            quoted = f"`{there}`"
            if kind is None:
                # Without a schema, a column of nulls is none yet.
                if self.lane.has_schema or any(row[name] is not None for row in wanted):
                    found.append(f"there is no column {there}")
                columns.append(f"CAST(NULL AS STRING) AS `{name}`")
                continue
            if not re.fullmatch(rule.types, kind):
                found.append(f"{name} is {kind} and not {rule.types} ({kinds[name]})")
            columns.append(f"{rule.delta.format(quoted)} AS `{name}`")
        try:
            rows = [row.asDict() for row in landed.selectExpr(*columns).collect()]
            found += differences(rules, wanted, rows)
        except Exception as error:  # a column of another type than its rule's
            found.append(f"cannot be compared: {str(error).splitlines()[0][:300]}")
        return found

    def rejects(self) -> dict[str, list[tuple[str, int]]]:
        """Reasons and their counts, by table."""
        path = self.folder / "lake" / "_rejects"
        if not (path / "_delta_log").exists():
            return {}
        rows = self.spark.read.format("delta").load(str(path)).groupBy("table", "reason").count().collect()
        found: dict[str, list[tuple[str, int]]] = {}
        for row in rows:
            found.setdefault(row.table, []).append((row.reason, row["count"]))
        return found

    def log_tail(self) -> str:
        return self._said()[-3000:]

    def stopped(self) -> dict[str, str]:
        """What the ingest has said of tables that are stopped, by their names."""
        return dict(re.findall(r"Table (\S+) is stopped(.*)", self._said()))

    def _said(self) -> str:
        path = self.folder / "ingest.log"
        return path.read_text(errors="replace") if path.exists() else ""


@pytest.mark.parametrize("name", LANES)
def test_every_table_equals_the_databases(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    java: None,
    kafka_cluster: Any,
    registry_url: str,
    tmp_path: Path,
    name: str,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    lane = LANES[name]
    tables = [MARKER, *lane.chosen()]
    chance = random.Random(SEED)
    servers = kafka_cluster(1).bootstrap_servers
    with Pipeline(lane, servers, registry_url, tmp_path) as pipeline:
        pipeline.database.run(*lane.beginning, *(statement for table in tables for statement in table.create))
        pipeline.capture()
        pipeline.mark()
        pipeline.start()
        pipeline.await_landed(tables)
        print(f"{time.strftime('%X')} {name}: the snapshot of {len(tables)} tables is landed", flush=True)
        n_killed, n_steps = 0, max(len(table.steps) for table in tables)
        for step in range(n_steps):
            changes = [list(table.steps[step]) for table in tables if step < len(table.steps)]
            n_changed = len(changes)
            n_commits = pipeline.n_commits()
            while changes:
                some = chance.choice(changes)
                pipeline.database.run(*some)
                changes.remove(some)
            pipeline.mark()
            if step == min(WORKER_KILL, n_steps - 1):
                pipeline.kill_worker()
            for _ in range(N_KILLS // N_STEPS + (step < N_KILLS % N_STEPS)):
                pipeline.start()
                pipeline.await_commits(n_commits + chance.randrange(1, n_changed + 1))
                pipeline.ingest.kill()
                n_killed += 1
            pipeline.start()
            pipeline.await_landed(tables)
            print(f"{time.strftime('%X')} {name}: step {step + 1} is landed", flush=True)
        pipeline.ingest.kill()
        pipeline.spark = request.getfixturevalue("spark")
        wrong = wrong_tables(pipeline, tables)
    print(
        f"{name}: {len(tables) - len(wrong)} of {len(tables)} tables equal; {n_killed} kills; {pipeline.n_ended} ends by an error"
    )
    assert not wrong, "\n".join(f"{table}: {found}" for table, found in wrong.items())
    assert not pipeline.n_ended


_DECIMALS = "numerics|numerics_of_any_scale|wide_numerics|moneys|arrays_of_numerics"
_TIMES = "dates|times|timestamps|arrays_of_times"
#: How Debezium writes some types, which a connector may choose, and the tables that have these. The lanes have its defaults.
CHOICES = {
    "decimal.handling.mode=string": _DECIMALS,
    "decimal.handling.mode=double": _DECIMALS,
    **{f"time.precision.mode={mode}": _TIMES for mode in ("connect", "isostring", "adaptive_time_microseconds")},
    "binary.handling.mode=hex interval.handling.mode=string hstore.handling.mode=map": "binaries|intervals|hstores|toast_bytea",
}


@pytest.mark.parametrize("name", ["json with schemas", "avro"])
def test_types_under_other_settings(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    java: None,
    kafka_cluster: Any,
    registry_url: str,
    tmp_path: Path,
    name: str,
) -> None:
    """A connector for each setting, and one ingest of them all."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    chosen = {
        choice: [
            each for each in (*TYPES, *OPERATIONS) if re.fullmatch(names, each.name) and re.fullmatch(WANTED, each.name)
        ]
        for choice, names in CHOICES.items()
    }
    tables = list({each.name: each for some in chosen.values() for each in some}.values())
    lane = LANES[name]
    lanes = []
    for number, (choice, some) in enumerate(chosen.items()):
        settings = dict(each.split("=") for each in choice.split())
        included = "|".join(each.name for each in (MARKER, *some))
        settings["table.include.list"] = rf"public\.({included})"
        lanes.append(replace(lane, prefix=f"chosen-{number}", connector={**lane.connector, **settings}))
    wrong: dict[str, list[str]] = {}
    everything = replace(lane, prefix="chosen")
    with Pipeline(everything, kafka_cluster(1).bootstrap_servers, registry_url, tmp_path) as pipeline:
        pipeline.database.run(*EXTENSIONS, *(statement for table in (MARKER, *tables) for statement in table.create))
        each_of = [pipeline.beside(lane) for lane in lanes]
        for each in each_of:
            each.capture()
        each_of[0].mark(*each_of[1:])
        pipeline.start()
        pipeline.database.run(*(statement for table in tables for statement in table.steps[0]))
        each_of[0].mark(*each_of[1:])
        for each, some in zip(each_of, chosen.values(), strict=True):
            each.await_landed(some)
        pipeline.ingest.kill()
        spark = request.getfixturevalue("spark")
        for each, (choice, some) in zip(each_of, chosen.items(), strict=True):
            each.spark = spark
            wrong |= {f"{choice}: {table}": found for table, found in wrong_tables(each, some).items()}
    n_tables = sum(map(len, chosen.values()))
    print(f"{name}, other settings: {n_tables - len(wrong)} of {n_tables} tables equal")
    assert not wrong, "\n".join(f"{table}: {found}" for table, found in wrong.items())


def wrong_tables(pipeline: Pipeline, tables: Sequence[Table]) -> dict[str, list[str]]:
    """How each table differs from the database's, by its name, without those that are equal; printed, too."""
    rejects, stopped = pipeline.rejects(), pipeline.stopped()
    wrong = {}
    for table in tables:
        there = rejects.get(pipeline.path(table.name).name, [])
        why = stopped.get(pipeline.path(table.name).name, "")
        found = (
            pipeline.difference(table)
            if not table.reason
            else []
            if table.reason in why
            else [f"is not stopped: {why}"]
        )
        print(f"{pipeline.lane.prefix}: {table.name}: {'equal' if not found else 'DIFFERS'}", flush=True)
        if found:
            wrong[table.name] = found
            report(pipeline, table, found, there, why)
    return wrong


def report(pipeline: Pipeline, table: Table, found: list[str], rejects: list[Any], stopped: str) -> None:
    """Print what differs, and what Debezium has written of it."""
    for text in found[:8]:
        print(f"    {text}")
    for reason, count in rejects[:5]:
        print(f"    {count} rejects: {str(reason)[:600]}")
    if stopped:
        print(f"    stopped: {stopped[:600]}")
    folder = os.environ.get("PYKAFKA_WIRE_DEBEZIUM_REPORT")
    if not folder:
        return
    with (Path(folder) / f"{pipeline.lane.prefix}.{table.name.replace(' ', '_')}.txt").open("w") as file:
        print(*found, sep="\n", file=file)
        print(*rejects, stopped, sep="\n", file=file)
        for record in pipeline.records(pipeline.topic(table)):
            print(*record, sep="\n", file=file)
