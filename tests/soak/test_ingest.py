"""Many topics into tables while driver and workers are killed, schemas change, topics come and go. `make chaos-ingest` runs it.

Avro and Protobuf by the registry, JSON whose columns are inferred, three topics of change events, three compacted ones by key; one
value of 10,000 is damaged. Three times while the ingest runs all schemas change; one topic is created and one deleted. Afterwards
every table equals its topic, and every damaged value is among the rejects once. 50 topics of 10 million records and ten kills,
unless PYKAFKA_WIRE_CHAOS_TOPICS, PYKAFKA_WIRE_CHAOS_RECORDS and PYKAFKA_WIRE_CHAOS_KILLS say otherwise.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.ingest.checks import verify
from pykafka_wire.ingest.settings import read_settings

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(4 * 3600)]

N_TOPICS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_TOPICS", "50"))
N_RECORDS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_RECORDS", "10_000_000"))
N_KILLS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_KILLS", "10"))
N_KEYS = 500
DAMAGED = b"\xff\xfedamaged"
#: What the broker's cleaner needs to remove older values of a key while the test runs.
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": str(2**20), "segment.ms": "20000",
    "min.cleanable.dirty.ratio": "0.1", "max.compaction.lag.ms": "30000",
}  # fmt: skip


def avro_schema(version: int) -> str:
    """Wider and with more fields from version to version."""
    fields: list[dict[str, Any]] = [{"name": "id", "type": "int" if version == 0 else "long"}]
    fields += [{"name": f"new{each}", "type": ["null", "long"], "default": None} for each in range(1, version + 1)]
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
            self._encoded[place] = self._encoder(name, topic.kind)(row)
        return self._encoded[place]

    def _encoder(self, name: str, kind: str) -> Callable[[dict[str, int]], bytes]:
        """By the topic's newest schema, which is registered when it is first used."""
        place = name, self.version
        if place not in self._encoders:
            if kind == "json":
                self._encoders[place] = lambda row: json.dumps(row).encode()
            elif kind == "avro":
                write = AvroSerializer(self._registry, avro_schema(self.version))
                context = SerializationContext(name, MessageField.VALUE)
                self._encoders[place] = lambda row: bytes(write(row, context) or b"")
            else:
                schema = Schema(protobuf_schema(self.version), "PROTOBUF")
                frame = b"\0" + self._registry.register_schema(f"{name}-value", schema).to_bytes(4, "big") + b"\0"
                self._encoders[place] = lambda row: frame + protobuf(row)
        return self._encoders[place]


def settings(folder: Path, servers: str, registry: str, topics: list[Topic]) -> Path:
    tables = "".join(
        f"[[table]]\ntopic = '{each.name}'\nformat = 'json'\nmode = '{'append' if each.kind == 'json' else each.kind}'\n"
        + ("" if each.kind == "json" else "key_format = 'json'\nkey_schema = 'id BIGINT'\n")
        + {"json": "", "upsert": "schema = 'n BIGINT'\n", "cdc": "schema = 'id BIGINT, n BIGINT'\n"}[each.kind]
        for each in topics
        if each.kind not in ("avro", "protobuf")
    )
    path = folder / "shop.toml"
    path.write_text(
        f"checkpoint = '{folder}/checkpoint'\ntopics = 'shop\\..*'\ninto = '{folder}/lake'\nregistry = '{registry}'\n"
        f"max_rows = {max(1000, N_RECORDS // 2)}\n[kafka]\n'bootstrap.servers' = '{servers}'\n{tables}",
        encoding="utf-8",
    )
    return path


class Program:
    """The ingest, which may be killed and started again."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file, self._log = file, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
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

        def seen() -> int:
            return len(list(lake.glob("*/_delta_log/*.json")))

        until = seen() + n_commits
        self.wait_for(lambda: seen() >= until)


def test_every_table_equals_its_topic_whatever_is_killed(
    spark: Any, kafka: Any, topic: Callable[..., str], registry_url: str, tmp_path: Path
) -> None:
    kinds = ["cdc"] * 3 + ["upsert"] * 3 + ["json"] * max(1, N_TOPICS // 10) + ["protobuf"] * max(1, N_TOPICS // 10)
    kinds += ["avro"] * (N_TOPICS - len(kinds))
    topics = [
        Topic(name=topic(2, COMPACTED if kind == "upsert" else None, name=f"shop.{kind}{number}"), kind=kind)
        for number, kind in enumerate(kinds)
    ]
    shop = Shop(kafka.bootstrap_servers, registry_url)
    file = settings(tmp_path, kafka.bootstrap_servers, registry_url, topics)
    gone = Topic(name=topic(2, name="shop.gone"), kind="avro")
    for each in [gone, *topics]:  # each has a schema before the start
        shop.write(each, 100)
    program, lake = Program(file, tmp_path / "log"), tmp_path / "lake"
    rounds = N_KILLS + 1
    each_round = -(-N_RECORDS // (rounds * len(topics)))
    chance = random.Random(1)
    n_ended = 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    try:
        for number in range(rounds):
            if program.process is None or program.process.poll() is not None:
                n_ended += program.process is not None and program.process.returncode > 0
                program.start()
                program.wait_for_commits(lake, 1)
            if number in (rounds // 4, rounds // 2, 3 * rounds // 4):
                shop.version += 1
            if number == rounds // 3:
                topics.append(Topic(name=topic(2, name="shop.late"), kind="avro"))
            if number == rounds // 2:
                program.wait_for((lake / "shop_gone" / "_delta_log" / f"{1:020}.json").exists)  # its rows are landed
                admin.delete_topics([gone.name])[gone.name].result(30)
            for each in topics:
                shop.write(each, each_round)
            n_records = sum(each.records for each in topics)
            print(f"{time.strftime('%X')} round {number}: {n_records:,} records written", flush=True)
            if number < N_KILLS:
                program.wait_for_commits(lake, chance.randrange(1, len(topics)))
                time.sleep(chance.uniform(0, 2))
                if number % 3 != 1 or not program.kill_workers():
                    program.kill()
        program.kill()
        for _ in range(2):  # a topic's last micro-batch may be planned with the limit that the first run had
            program.start("once")
            assert program.process is not None
            assert program.process.wait(7200) == 0, (tmp_path / "log").read_text()[-5000:]
            print(f"{time.strftime('%X')} landed what was there", flush=True)
    finally:
        program.kill()
    stopped = [line for line in (tmp_path / "log").read_text().splitlines() if "is stopped" in line]
    assert not stopped, stopped
    differences = [text for each in [gone, *topics] for text in difference(spark, tmp_path, each)]
    assert not differences, "\n".join(differences)
    found = read_settings(file)
    checks = list(verify(spark, found, [each.name for each in topics]))
    assert len(checks) == len(topics) and all(each.is_right for each in checks), checks
    n_records, n_damaged = sum(each.records for each in topics), sum(each.damaged for each in topics)
    print(
        f"{len(topics)} topics, {n_records:,} records, {n_damaged} damaged, {N_KILLS} kills, "
        f"{n_ended} ends of the driver by an error: 0 lost, 0 doubled"
    )


def difference(spark: Any, folder: Path, topic: Topic) -> list[str]:
    """How a table differs from its topic."""
    name = topic.name.replace(".", "_")
    table = spark.read.format("delta").load(str(folder / "lake" / name))
    rejects = spark.read.format("delta").load(str(folder / "lake" / "_rejects")).where(f"table = '{name}'")
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
    for column, number in topic.new.items():
        n_there = table.where(f"new{column} = 1").count() if f"new{column}" in table.columns else 0
        if n_there != number:
            found.append(f"{name}: new{column} is in {n_there} rows and not in {number}")
    return found
