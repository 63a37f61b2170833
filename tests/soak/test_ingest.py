"""Many topics into tables while driver and workers are killed, schemas change, topics come and go. `make chaos-ingest` runs it.

Avro and Protobuf by the registry, JSON whose columns are inferred, three topics of change events, three compacted ones by key; one
value of 10,000 is damaged. Three times while the ingest runs all schemas change, once to a type that needs a feature of Delta, and
in some tables to a wider one; one topic is created and one deleted; one may not be read for a while; another job adds a row to all
tables and deletes it, and rewrites the files of half of them, again and again. Files are small, so that the ingest compacts tables,
too. Afterwards every table equals its topic, and every damaged value is among the rejects once. 50 topics of 10 million records and
ten kills, unless PYKAFKA_WIRE_CHAOS_TOPICS, PYKAFKA_WIRE_CHAOS_RECORDS and PYKAFKA_WIRE_CHAOS_KILLS say otherwise.
PYKAFKA_WIRE_CHAOS_FORMAT=iceberg lands into Iceberg tables, which nothing is merged into; pyiceberg is the other job then.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.settings.settings_file import read_settings
from pykafka_wire.ingest.tables.formats import format_of

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(4 * 3600)]

N_TOPICS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_TOPICS", "50"))
N_RECORDS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_RECORDS", "10_000_000"))
N_KILLS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_KILLS", "10"))
FORMAT = os.environ.get("PYKAFKA_WIRE_CHAOS_FORMAT", "delta")
N_KEYS = 500
#: The version of Avro's schemas from which on values have a time without a zone, which is a feature of a Delta table.
WITH_TIME = 2
#: Of these an Avro topic's first version has an int, and a table of the wider type is no longer deltalake's to commit to.
WIDENED = "widened"
#: The topic of another job's rows.
OTHER = "other"
#: Who lands the topics, and may read them.
USER = "alice"
DAMAGED = b"\xff\xfedamaged"
#: What the broker's cleaner needs to remove older values of a key while the test runs.
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": str(2**20), "segment.ms": "20000",
    "min.cleanable.dirty.ratio": "0.1", "max.compaction.lag.ms": "30000",
}  # fmt: skip


def avro_schema(version: int, *, is_widened: bool) -> str:
    """With more fields from version to version, and perhaps wider."""
    fields: list[dict[str, Any]] = [{"name": "id", "type": "int" if version == 0 and is_widened else "long"}]
    fields += [{"name": f"new{each}", "type": ["null", "long"], "default": None} for each in range(1, version + 1)]
    if version >= WITH_TIME:
        fields.append(
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}], "default": None}
        )
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


def protobuf_schema(version: int) -> str:
    """The same fields."""
    new = "".join(f" optional int64 new{each} = {each + 1};" for each in range(1, version + 1))
    return f'syntax = "proto3"; message Row {{ {"int32" if version == 0 else "int64"} id = 1;{new} }}'


def protobuf(row: dict[str, int]) -> bytes:
    """A message of the fields 1, 2 … as the row has them."""
    return b"".join(varint(number << 3) + varint(value) for number, value in enumerate(row.values(), 1) if value)


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


@dataclass
class Topic:
    """A topic, and what its table must hold."""

    name: str
    kind: str
    records: int = 0
    damaged: int = 0
    #: Rows by their id: how often, or for tables by key the newest value.
    rows: Counter[int] = field(default_factory=Counter)
    newest: dict[int, int | None] = field(default_factory=dict)
    #: Rows that have each new column.
    new: Counter[int] = field(default_factory=Counter)


class Shop:
    """Writes the topics, and remembers what it has written."""

    def __init__(self, servers: str, registry: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
        )
        self._registry = SchemaRegistryClient({"url": registry})
        self.version = 0
        self._number = 0
        self._encoders: dict[tuple[str, int], Callable[[dict[str, int]], bytes]] = {}
        self._encoded: dict[tuple[str, int, int], bytes] = {}

    def write(self, topic: Topic, n_records: int) -> None:
        for _ in range(n_records):
            self._number += 1
            number, key = self._number, self._number % N_KEYS
            if number % 10_000 == 0:
                # By a key of its own, which no compaction removes: cut off, or of no format at all.
                cut_off = (self._value(Topic("", topic.kind), topic.name, 1, 1) or b"")[:-1]
                self._send(topic, b'{"id":%d}' % (number + N_KEYS), DAMAGED if number % 20_000 else cut_off, key)
                topic.damaged += 1
                self._producer.poll(0)
            else:
                self._send(topic, b'{"id":%d}' % key, self._value(topic, topic.name, number, key), key)
        assert self._producer.flush(120) == 0

    def _send(self, topic: Topic, key: bytes, value: bytes | None, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic.name, key=key, value=value, partition=partition % 2)
            except BufferError:
                self._producer.poll(1)
            else:
                topic.records += 1
                return

    def _value(self, topic: Topic, name: str, number: int, key: int) -> bytes | None:
        """The value of a record; ``topic`` counts what it means for the table."""
        if topic.kind in ("upsert", "cdc"):
            is_delete = number % 7 == 0
            topic.newest[key] = None if is_delete else number
            if topic.kind == "upsert":
                return None if is_delete else b'{"n":%d}' % number
            after = None if is_delete else {"id": key, "n": number}
            return json.dumps({"op": "d" if is_delete else "u", "after": after}).encode()
        topic.rows[number % 1000] += 1
        for each in range(1, self.version + 1):
            topic.new[each] += 1
        place = name, self.version, number % 1000
        if place not in self._encoded:
            row = {"id": number % 1000} | {f"new{each}": 1 for each in range(1, self.version + 1)}
            if topic.kind in ("avro", WIDENED) and self.version >= WITH_TIME:
                row["at"] = number
            self._encoded[place] = self._encoder(name, topic.kind)(row)
        return self._encoded[place]

    def _encoder(self, name: str, kind: str) -> Callable[[dict[str, int]], bytes]:
        """By the topic's newest schema, which is registered when it is first used."""
        place = name, self.version
        if place not in self._encoders:
            if kind == "json":
                self._encoders[place] = lambda row: json.dumps(row).encode()
            elif kind in ("avro", WIDENED):
                write = AvroSerializer(self._registry, avro_schema(self.version, is_widened=kind == WIDENED))
                context = SerializationContext(name, MessageField.VALUE)
                self._encoders[place] = lambda row: bytes(write(row, context) or b"")
            else:
                schema = Schema(protobuf_schema(self.version), "PROTOBUF")
                frame = b"\0" + self._registry.register_schema(f"{name}-value", schema).to_bytes(4, "big") + b"\0"
                self._encoders[place] = lambda row: frame + protobuf(row)
        return self._encoders[place]


def settings(folder: Path, kafka: Mapping[str, str], registry: str, topics: list[Topic]) -> Path:
    tables = "".join(
        f"[[table]]\ntopic = '{each.name}'\nformat = 'json'\nmode = '{'append' if each.kind == 'json' else each.kind}'\n"
        + ("" if each.kind == "json" else "key_format = 'json'\nkey_schema = 'id BIGINT'\n")
        + {"json": "", "upsert": "schema = 'n BIGINT'\n", "cdc": "schema = 'id BIGINT, n BIGINT'\n"}[each.kind]
        for each in topics
        if each.kind not in ("avro", WIDENED, "protobuf")
    )
    path = folder / "shop.toml"
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    into = f"'{folder}/lake'" if FORMAT == "delta" else "'lake.shop'\ntable_format = 'iceberg'"
    if FORMAT == "iceberg":
        load_catalog("lake", **catalog).create_namespace("shop")
    path.write_text(
        f"checkpoint = '{folder}/checkpoint'\ntopics = 'shop\\..*'\ninto = {into}\nregistry = '{registry}'\n"
        f"max_rows = {max(1000, N_RECORDS // 2)}\n[defaults]\ntarget_file_size = '32kb'\n[kafka]\n"
        + "".join(f"'{name}' = '{value}'\n" for name, value in kafka.items())
        + ("" if FORMAT == "delta" else "[catalog]\n" + "".join(f"{key} = '{each}'\n" for key, each in catalog.items()))
        + tables,
        encoding="utf-8",
    )
    return path


class Program:
    """The ingest, which may be killed and started again."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file, self._log = file, log
        self.process: subprocess.Popen[bytes] | None = None
        #: Lines of the log before the last start.
        self.n_before = 0

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def start(self, *more: str) -> None:
        self.n_before = len(self.lines)
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "tests.soak.ingest_program", str(self._file), *more]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_workers(self) -> bool:
        """Kill Spark's Python workers, and nothing else; whether there was one."""
        assert self.process is not None
        try:
            inside = psutil.Process(self.process.pid).children(recursive=True)
            found = [each for each in inside if "pyspark.daemon" in " ".join(each.cmdline())]
        except psutil.NoSuchProcess:
            return False
        for each in found:
            each.kill()
        return bool(found)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 300) -> None:
        """Until the condition holds, or the program has ended."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline and not condition():
            time.sleep(0.05)

    def wait_for_commits(self, lake: Path, n_commits: int) -> None:
        """Until it has committed so often, to any tables."""
        until = len(commits(lake)) + n_commits
        self.wait_for(lambda: len(commits(lake)) >= until)

    def wait_for_log(self, text: str, n_before: int) -> bool:
        """Until it has logged a line with a text, behind so many; whether it has."""

        def is_there() -> bool:
            return any(text in line for line in self.lines[n_before:])

        self.wait_for(is_there)
        return is_there()


@functools.cache
def is_the_ingests(commit: Path) -> bool:
    return b"userMetadata" in commit.read_bytes() if FORMAT == "delta" else len(commit.stem) == len(str(uuid.uuid4()))


def commits(lake: Path, table: str = "*") -> list[Path]:
    """A file for each of the ingest's commits to a table, or to all; of Iceberg, which has no folder of commits, one with rows."""
    place = f"{table}/_delta_log/*.json" if FORMAT == "delta" else f"**/{table}/data/*.parquet"
    return [each for each in lake.glob(place) if is_the_ingests(each)]


class Permissions:
    """What the ingest's user may do with topics."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def _rule(self, kind: type, topic: str, pattern: ResourcePatternType, permission: AclPermissionType) -> Any:
        operation = AclOperation.ALL if permission is AclPermissionType.ALLOW else AclOperation.READ
        return kind(ResourceType.TOPIC, topic, pattern, f"User:{USER}", "*", operation, permission)

    def grant(self, prefix: str) -> None:
        of_topics = self._rule(AclBinding, prefix, ResourcePatternType.PREFIXED, AclPermissionType.ALLOW)
        of_groups = AclBinding(
            ResourceType.GROUP,
            "*",
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for done in self._admin.create_acls([of_topics, of_groups]).values():
            done.result(30)

    def deny(self, topic: str) -> None:
        rule = self._rule(AclBinding, topic, ResourcePatternType.LITERAL, AclPermissionType.DENY)
        for done in self._admin.create_acls([rule]).values():
            done.result(30)

    def allow(self, topic: str) -> None:
        rule = self._rule(AclBindingFilter, topic, ResourcePatternType.LITERAL, AclPermissionType.DENY)
        for done in self._admin.delete_acls([rule]).values():
            done.result(30)


class OtherJob:
    """Another job, which adds a row to all tables and deletes it, and rewrites the files of every second one, again and again."""

    def __init__(self, spark: Any, file: Path, topics: list[Topic]) -> None:
        self._spark, self._settings, self._topics = spark, read_settings(file), topics
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.n_done: Counter[str] = Counter()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Delete what is left."""
        self._is_over.set()
        self._thread.join()
        for name in self._names():
            self._disturb(name, ("DELETE",))

    def _names(self) -> list[str]:
        return [self._settings.rejects, *(each.name.replace(".", "_") for each in self._topics)]

    def _run(self) -> None:
        while not self._is_over.wait(0.5):
            for number, name in enumerate(self._names()):
                if self._is_over.is_set():
                    return
                # The others are the ingest's to compact.
                self._disturb(name, ("INSERT", "OPTIMIZE", "DELETE") if number % 2 else ("INSERT", "DELETE"))

    def _disturb(self, name: str, steps: tuple[str, ...]) -> None:
        column = "topic" if name == self._settings.rejects else "_kafka_topic"
        for step in steps:
            try:
                (self._by_spark if FORMAT == "delta" else self._by_pyiceberg)(name, step, column)
                self.n_done[step] += 1
            except Exception:  # the ingest has committed meanwhile; or the table is not made yet
                continue

    def _by_spark(self, name: str, step: str, column: str) -> None:
        table = format_of(self._settings).identifier(self._settings, name)
        statement = {
            "INSERT": f"INSERT INTO {table} ({column}) VALUES ('{OTHER}')",
            "OPTIMIZE": f"OPTIMIZE {table}",
            "DELETE": f"DELETE FROM {table} WHERE {column} = '{OTHER}'",
        }[step]
        self._spark.sql(statement)

    def _by_pyiceberg(self, name: str, step: str, column: str) -> None:
        table = load_catalog("lake", **self._settings.catalog).load_table(("shop", name))
        if step == "INSERT":
            table.append(pa.table({column: [OTHER]}))
        elif step == "DELETE":
            table.delete(f"{column} = '{OTHER}'")
        else:
            rewrite_files(table)


def rewrite_files(table: Any) -> None:
    """Put all rows of an Iceberg table into one file, as an engine's ``rewrite_data_files`` does; fails if a row came meanwhile."""
    files, rows = [task.file for task in table.scan().plan_files()], table.scan().to_arrow()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as rewritten:
        for file in files:
            rewritten.delete_data_file(file)
        for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            rewritten.append_data_file(file)


@pytest.fixture
def guarded(kafka_cluster: Any) -> Any:
    """A broker with permissions: whoever comes by the plaintext listener may do everything, the ingest's user by SASL nothing."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{login} user_{USER}="secret";',
    }
    return kafka_cluster(1, properties, listeners={"SASL": "SASL_PLAINTEXT"})


def test_every_table_equals_its_topic_whatever_is_killed(
    spark: Any, guarded: Any, topic: Callable[..., str], registry_url: str, tmp_path: Path
) -> None:
    kafka = guarded
    create = functools.partial(topic, cluster=kafka)
    n_by_key, n_of_kind = min(3, N_TOPICS // 5) if FORMAT == "delta" else 0, max(1, N_TOPICS // 10)
    kinds = ["cdc", "upsert"] * n_by_key + ["json", "protobuf", WIDENED] * n_of_kind
    kinds += ["avro"] * (N_TOPICS - len(kinds))
    topics = [
        Topic(name=create(2, COMPACTED if kind == "upsert" else None, name=f"shop.{kind}{number}"), kind=kind)
        for number, kind in enumerate(kinds)
    ]
    shop = Shop(kafka.bootstrap_servers, registry_url)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="secret";'
    client = {
        "bootstrap.servers": kafka.bootstrap("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    }
    file = settings(tmp_path, client, registry_url, topics)
    gone = Topic(name=create(2, name="shop.gone"), kind="avro")
    for each in [gone, *topics]:  # each has a schema before the start
        shop.write(each, 100)
    program, lake = Program(file, tmp_path / "log"), tmp_path / "lake"
    rounds = N_KILLS + 1
    each_round = -(-N_RECORDS // (rounds * len(topics)))
    chance = random.Random(1)
    n_ended = 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    permissions, closed = Permissions(admin), topics[-1].name
    closed_table = f"Table {closed.replace('.', '_')}"
    permissions.grant("shop.")
    other = OtherJob(spark.newSession(), file, topics)
    other.start()
    was_denied = was_allowed = False
    try:
        for number in range(rounds):
            if program.process is None or program.process.poll() is not None:
                n_ended += program.process is not None and program.process.returncode > 0
                program.start(*(["jobs"] if number % 2 else []))
                program.wait_for_commits(lake, 1)
            if number in (rounds // 4, rounds // 2, 3 * rounds // 4):
                shop.version += 1
            if number == rounds // 5:
                n_before = len(program.lines)
                permissions.deny(closed)
            if number == 3 * rounds // 5:
                was_denied &= program.wait_for_log(f"{closed_table} is tried again", program.n_before)
                n_before = len(program.lines)
                permissions.allow(closed)
                was_allowed = program.wait_for_log(f"{closed_table} is landing again", n_before)
            if number == rounds // 3:
                topics.append(Topic(name=create(2, name="shop.late"), kind="avro"))
            if number == rounds // 2:
                # Its rows are landed. Delta's first commit makes the table.
                program.wait_for(lambda: len(commits(lake, "shop_gone")) > (FORMAT == "delta"))
                admin.delete_topics([gone.name])[gone.name].result(30)
            for each in topics:
                shop.write(each, each_round)
            if number == rounds // 5:
                was_denied = program.wait_for_log(f"{closed_table} is tried again", n_before)
            n_records = sum(each.records for each in topics)
            print(f"{time.strftime('%X')} round {number}: {n_records:,} records written", flush=True)
            if number < N_KILLS:
                program.wait_for_commits(lake, chance.randrange(1, len(topics)))
                time.sleep(chance.uniform(0, 2))
                if number % 3 != 1 or not program.kill_workers():
                    program.kill()
        program.kill()
        permissions.allow(closed)
        other.end()
        for _ in range(2):  # a topic's last micro-batch may be planned with the limit that the first run had
            program.start("once")
            assert program.process is not None
            assert program.process.wait(7200) == 0, (tmp_path / "log").read_text()[-5000:]
            print(f"{time.strftime('%X')} landed what was there", flush=True)
    finally:
        other.end()
        program.kill()
    stopped = [line for line in program.lines if "is stopped" in line]
    assert not stopped, stopped
    assert (was_denied, was_allowed) == (True, True), "the topic was closed while nothing read it"
    found = read_settings(file)
    differences = [text for each in [gone, *topics] for text in difference(spark, found, each)]
    assert not differences, "\n".join(differences)
    checks = list(verify(spark, found, [each.name for each in topics]))
    # The rows of damaged changes have keys of their own, which no newer change mends.
    stale = [each.damaged if each.newest else 0 for each in topics]
    assert [each.comparison is not None and each.comparison.is_equal for each in checks] == [True] * len(topics), checks
    assert [each.n_stale for each in checks] == stale, checks
    n_records, n_damaged = sum(each.records for each in topics), sum(each.damaged for each in topics)
    made = made_by(lake, found)
    print(
        f"{len(topics)} topics, {n_records:,} records, {n_damaged} damaged, {N_KILLS} kills, {dict(other.n_done)} of another job, "
        f"commits {dict(made)}, {n_ended} ends of the driver by an error: 0 lost, 0 doubled"
    )
    assert all(other.n_done[step] for step in ("INSERT", "DELETE", "OPTIMIZE")), other.n_done
    assert made["WRITE by delta-rs" if FORMAT == "delta" else "append by an ingest"], made


def made_by(lake: Path, settings: Settings) -> Counter[str]:
    """How many commits of which operation the libraries have made, by Delta's logs, or by the snapshots that Iceberg keeps."""
    if FORMAT == "iceberg":
        catalog = load_catalog("lake", **settings.catalog)
        tables = [catalog.load_table(identifier) for identifier in catalog.list_tables("shop")]
        summaries = [snapshot.summary for table in tables for snapshot in table.metadata.snapshots]
        return Counter(
            f"{summary.operation.value} by {'an ingest' if 'pykafka-wire' in summary.additional_properties else 'others'}"
            for summary in summaries
        )
    lines = [line for each in lake.glob("*/_delta_log/*.json") for line in each.read_text().splitlines()]
    infos = [info for info in (json.loads(line).get("commitInfo") for line in lines) if info is not None]
    return Counter(f"{each['operation']} by {each.get('engineInfo', '').partition(':')[0]}" for each in infos)


def difference(spark: Any, settings: Settings, topic: Topic) -> list[str]:
    """How a table differs from its topic."""
    name = topic.name.replace(".", "_")
    table = format_of(settings).open_table(spark, settings, name).rows
    rejects = format_of(settings).open_table(spark, settings, settings.rejects).rows.where(f"table = '{name}'")
    found: list[str] = []
    n_rejects, n_distinct = rejects.count(), rejects.select("partition", "offset").distinct().count()
    if (n_rejects, n_distinct) != (topic.damaged, topic.damaged):
        found.append(f"{name}: {n_rejects} rejects, {n_distinct} of them distinct, and not {topic.damaged}")
    if topic.newest:
        rows = {row._kafka_key.id: row.n for row in table.collect()}
        wanted = {key: number for key, number in topic.newest.items() if number is not None}
        if rows != wanted or table.count() != len(wanted):
            found.append(f"{name}: {len(rows)} rows by key, and not {len(wanted)}, or other values")
        return found
    rows = {row.id: row["count"] for row in table.groupBy("id").count().collect()}
    if rows != dict(topic.rows):
        found.append(f"{name}: {sum(rows.values())} rows and not {sum(topic.rows.values())}, or other ids")
    if topic.kind in ("avro", WIDENED) and topic.new[WITH_TIME]:
        n_there = table.where("at IS NOT NULL").count() if "at" in table.columns else 0
        if n_there != topic.new[WITH_TIME]:
            found.append(f"{name}: at is in {n_there} rows and not in {topic.new[WITH_TIME]}")
    for column, number in topic.new.items():
        n_there = table.where(f"new{column} = 1").count() if f"new{column}" in table.columns else 0
        if n_there != number:
            found.append(f"{name}: new{column} is in {n_there} rows and not in {number}")
    return found
