"""A shop: topics of an independent client, and an ingest of them into Delta tables of the test's own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import StreamingQueryException

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import Ingest, IngestError
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from tests.connector.ingest.rest_catalog import rest_catalog


class Killed(BaseException):
    """Ends whatever runs, as a kill does: no error that a table is tried again after."""


def kill(*_: Any, **__: Any) -> Any:
    raise Killed


def avro_schema(*fields: str) -> str:
    """A record's schema of fields such as ``id int`` and ``amount double?``."""
    described = []
    for each in fields:
        name, kind = each.split()
        optional = {"type": ["null", kind[:-1]], "default": None}
        described.append({"name": name, **(optional if kind.endswith("?") else {"type": kind})})
    return json.dumps({"type": "record", "name": "Row", "fields": described})


def _is_plain(folder: Path) -> bool:
    """Return whether each reader reads a table: deltalake reads null from columns that are mapped to other names."""
    try:
        return bool(DeltaTable(folder).protocol().min_reader_version == 1)
    except DeltaError:
        return False


def _row_cell(value: Any) -> Any:
    """Return a cell as a row of Spark's has it: a struct is a tuple."""
    if isinstance(value, dict):
        return tuple(map(_row_cell, value.values()))
    return [*map(_row_cell, value)] if isinstance(value, list) else value


class Shop:
    """Topics of one prefix, tables of one folder, and the ingest between them."""

    def __init__(self, spark: Any, outside: Any, topic: Any, registry: str, folder: Path) -> None:
        self.spark = spark
        self.outside = outside
        self.registry = registry
        self.prefix = f"shop{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self._topic = topic
        self._client = SchemaRegistryClient({"url": registry})

    def create(self, name: str, partitions: int = 2) -> str:
        return str(self._topic(partitions, name=f"{self.prefix}.{name}"))

    def send(self, name: str, values: list[bytes | None], *, keys: list[bytes | None] | None = None) -> None:
        """Records in turn to two partitions; a key's always to the same one."""
        every = keys or [None] * len(values)
        records = [
            self.outside.Record(
                key=key,
                value=value,
                partition=(number if key is None else sum(key)) % 2,
                headers=(("n", b"%d" % number),),
            )
            for number, (key, value) in enumerate(zip(every, values, strict=True))
        ]
        self.outside.produce(f"{self.prefix}.{name}", records)

    def send_json(self, name: str, rows: list[Any], *, keys: list[Any] | None = None) -> None:
        encoded = [None if row is None else json.dumps(row).encode() for row in rows]
        self.send(name, encoded, keys=None if keys is None else [json.dumps(key).encode() for key in keys])

    def avro(self, name: str, schema: str, rows: list[dict[str, Any]]) -> list[bytes]:
        topic = f"{self.prefix}.{name}"
        write = AvroSerializer(self._client, schema)
        return [write(row, SerializationContext(topic, MessageField.VALUE)) or b"" for row in rows]

    def send_avro(self, name: str, schema: str, rows: list[dict[str, Any]]) -> None:
        self.send(name, list(self.avro(name, schema, rows)))

    def ingest(self, **given: Any) -> Ingest:
        settings = {
            "checkpoint": str(self.folder / "checkpoint"),
            "kafka": {"bootstrap.servers": self.outside.servers},
            "topics": rf"{self.prefix}\..*",
            "into": str(self.folder / "lake"),
            "registry": self.registry,
        }
        return Ingest(**{**settings, **given})

    def run(self, ingest: Ingest | None = None, **given: Any) -> Ingest:
        """Land all that is there; returns the ingest with its tables' states."""
        ingest = ingest or self.ingest(**given)
        query = ingest.start(self.spark, once=True)
        assert query.awaitTermination(240), "the ingest did not end"
        return ingest

    def crash_before_each_step(
        self,
        monkeypatch: pytest.MonkeyPatch,
        methods: Sequence[tuple[type, str]],
        step_of: Callable[[Any, str, tuple[Any, ...]], tuple[str, ...]],
        **asked: Any,
    ) -> list[tuple[str, ...]]:
        """Run an ingest until no run crashes any more, each of them before another step; return the steps.

        Args:
            methods: those of classes of tables that are a step.
            step_of: names the step that a call of a table's method with these arguments is.
        """
        crashed: list[tuple[str, ...]] = []

        def crash_before(patched: pytest.MonkeyPatch, of_class: type, method: str) -> None:
            real = getattr(of_class, method)

            def step(table: Any, *given: Any) -> None:
                name = step_of(table, method, given)
                if name not in crashed:
                    crashed.append(name)
                    raise Killed("crashed before a step")
                real(table, *given)

            patched.setattr(of_class, method, step)

        n_crashes = -1
        while len(crashed) > n_crashes:
            n_crashes = len(crashed)
            with monkeypatch.context() as patched:
                for of_class, method in methods:
                    crash_before(patched, of_class, method)
                try:
                    self.ingest(parallel=1, **asked).start(self.spark, once=True).awaitTermination(120)
                except (IngestError, StreamingQueryException) as error:  # before the query starts, or in it
                    assert "crashed before a step" in str(error)
        return crashed

    def table(self, name: str) -> Any:
        return self.spark.read.format("delta").load(str(self._folder_of(name)))

    def _folder_of(self, name: str) -> Path:
        return self.folder / "lake" / (name if name.startswith("_") else f"{self.prefix}_{name}")

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the table's rows, sorted; ``a.b`` is a field of a column.

        deltalake reads plain tables, with a tenth of Spark's processor time.
        """
        folder = self._folder_of(name)
        if not _is_plain(folder):
            return sorted(tuple(row) for row in self.table(name).select(*columns).collect())
        paths = [column.split(".") for column in columns]
        table = DeltaTable(folder).to_pyarrow_table(columns=[*dict.fromkeys(path[0] for path in paths)])
        cells = [pc.struct_field(table[path[0]], path[1:]) if path[1:] else table[path[0]] for path in paths]
        return sorted(zip(*(map(_row_cell, column.to_pylist()) for column in cells), strict=True))

    def prove(self, name: str, *options: str, with_checkpoint: bool = True) -> Any:
        """The command ``prove`` of one of the tables."""
        places = [str(self.folder / "checkpoint")] * with_checkpoint + [str(self._folder_of(name))]
        return CliRunner().invoke(commands, ["prove", *places, "-b", self.outside.servers, *options])

    def versions(self, name: str) -> int:
        """How many commits the table has."""
        return len(self.history(name))

    def history(self, name: str) -> list[Any]:
        return list(self.spark.sql(f"DESCRIBE HISTORY delta.`{self._folder_of(name)}`").collect())


@pytest.fixture
def shop(spark: Any, outside: Any, topic: Callable[..., str], registry_url: str, tmp_path: Path) -> Shop:
    return Shop(spark, outside, topic, registry_url, tmp_path)


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """The URL of an object store of S3's protocol, of others, with a bucket ``lake``."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        given = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        deadline = time.monotonic() + 60
        while True:
            try:
                boto3.client("s3", endpoint_url=url, **given).create_bucket(Bucket="lake")
                break
            except Exception:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="session")
def iceberg_rest(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a catalog of Iceberg's REST protocol, which all tests share."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as url:
        yield url


def hold_compaction(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let one small file be enough for a compaction, which tells that it has begun, and waits until it may go on."""
    has_begun, may_end = threading.Event(), threading.Event()
    optimize = SparkDeltaTable.optimize

    def wait(table: SparkDeltaTable, target_bytes: int) -> None:
        has_begun.set()
        assert may_end.wait(60)
        optimize(table, target_bytes)

    monkeypatch.setattr(SparkDeltaTable, "optimize", wait)
    monkeypatch.setattr("pykafka_wire.ingest.tables.delta.maintenance._MANY_FILES", 1)
    return has_begun, may_end
