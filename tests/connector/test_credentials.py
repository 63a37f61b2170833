"""Credentials on Spark's side: a wrong one is tried once, and none is in what Spark prints.

Source and sink are called as Spark calls them, without a Spark session.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.wire.errors import AuthenticationError
from tests.wire.secured import PASSWORDS, Secured

pytestmark = pytest.mark.broker

VALUE = StructType().add("value", "binary")
#: A refusal is known at once; the room is for a machine that runs everything at once.
AT_ONCE_S = 20.0


def rows() -> Any:
    return iter([pa.RecordBatch.from_pydict({"value": [b"a"]})])


def actions(options: dict[str, str]) -> dict[str, Callable[[], object]]:
    source = PykafkaWireDataSource(options | {"subscribe": "orders"})
    sink = PykafkaWireDataSource(options | {"topic": "orders"})
    return {
        "batch read": lambda: source.reader(VALUE).partitions(),
        "stream": lambda: source.streamReader(VALUE).initialOffset(),
        "batch write": lambda: sink.writer(VALUE, overwrite=False).write(rows()),
        "streaming write": lambda: sink.streamWriter(VALUE, overwrite=False).write(rows()),
    }


@pytest.mark.parametrize("action", actions({"kafka.bootstrap.servers": "b:1"}))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_tried_once(secured_kafka: Secured, tmp_path: Path, action: str, mechanism: str) -> None:
    trace = tmp_path / "trace"
    login = {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": "wrong", "trace": str(trace)}
    options = {f"kafka.{name}": value for name, value in secured_kafka.options("SASLTLS", **login).items()}
    started = time.monotonic()
    with pytest.raises(AuthenticationError, match=f"refused {mechanism} authentication"):
        actions(options)[action]()
    assert time.monotonic() - started < AT_ONCE_S
    assert trace.read_text().count("-> SaslHandshake") == 1


def test_what_spark_prints_and_keeps_holds_no_secret(secured_kafka: Secured, topic: Any) -> None:
    name = topic(cluster=secured_kafka.cluster)
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORDS["alice"]}
    options = {f"kafka.{key}": value for key, value in secured_kafka.options("SASLTLS", **login).items()}
    written = PykafkaWireDataSource(options | {"topic": name}).writer(VALUE, overwrite=False).write(rows())
    source = PykafkaWireDataSource(options | {"subscribe": name, "startingOffsets": "earliest"})
    partitions = source.reader(VALUE).partitions()
    stream = source.streamReader(VALUE)
    shown = [written, *partitions, stream.initialOffset()]
    assert len(partitions) == 1
    for each in shown:
        for text in (repr(each), str(getattr(each, "__dict__", "")), pickle.dumps(each).decode("latin-1")):
            assert PASSWORDS["alice"] not in text
            assert "alice" not in text
