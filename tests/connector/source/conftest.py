"""Lives of a stream reader, as Spark leads them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.stream_reader import KafkaStreamReader

SCHEMA = StructType().add("partition", IntegerType()).add("offset", LongType()).add("value", BinaryType())


class Process:
    """One life of a query's reader."""

    def __init__(self, servers: str, kind: Any, **options: str) -> None:
        asked = {"kafka.bootstrap.servers": servers} | options
        self.reader = kind(parse_source_options(asked, "stream"), SCHEMA)

    def rows(self, start: str, end: str) -> list[tuple[int, int]]:
        """(partition, offset) of a micro-batch, planned here and read by a pickled copy as on an executor."""
        remote = pickle.loads(pickle.dumps(self.reader))
        partitions = self.reader.partitions(json.loads(start), json.loads(end))
        batches = [b for p in partitions for b in remote.read(pickle.loads(pickle.dumps(p)))]
        return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())

    def initial(self) -> str:
        return json.dumps(self.reader.initialOffset())

    def latest(self, start: str, limit: Any = None) -> str:
        return json.dumps(self.reader.latestOffset(json.loads(start), limit or ReadAllAvailable()))

    def latest_without_start(self) -> str:
        return json.dumps(self.reader.latestOffset())


@pytest.fixture
def process_of() -> Iterator[Any]:
    """Starts processes on other brokers: ``process_of(bootstrap_servers, subscribe=…)``; they are stopped when the test ends."""
    started: list[Process] = []

    def start(servers: str, kind: Any = KafkaStreamReader, **options: str) -> Process:
        started.append(Process(servers, kind, **options))
        return started[-1]

    yield start
    for one in started:
        one.reader.stop()
        one.reader.stop()


@pytest.fixture
def process(kafka: Any, process_of: Any) -> Callable[..., Process]:
    """Starts processes on the session's brokers."""
    return partial(process_of, kafka.bootstrap_servers)
