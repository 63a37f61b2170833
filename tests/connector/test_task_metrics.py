"""What tasks report: datagrams to the driver, and to a StatsD agent. (From Spark's tasks: metrics/test_stream_metrics.py.)"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from pykafka_wire import PykafkaWireDataSource, task_metrics
from pykafka_wire.errors import OptionError
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.sink.writer import KafkaBatchWriter
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.task_metrics import DriverReceiver, StatsdAgent, TaskFigures, TaskFiguresReceiver, camel_case
from pykafka_wire.wire.connection.counters import ClientTotals
from tests.connector.parsed_options import batch, refusal, stream

FIGURES = TaskFigures(fetches=2, records_consumed=1000, bytes_consumed=50_000, requests=3, retries=1, wait_s=0.0125)


@pytest.fixture
def receiver() -> Iterator[TaskFiguresReceiver]:
    made = TaskFiguresReceiver()
    yield made
    made.close()
    made.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_driver_adds_up_what_tasks_send(
    receiver: TaskFiguresReceiver, until: Any, monkeypatch: Any, host: str
) -> None:
    monkeypatch.setattr(task_metrics, "_local_property", {"spark.driver.host": host}.get)
    assert receiver.total() == TaskFigures(tasks=0)
    for _ in range(3):
        receiver.address.send(FIGURES)
    until(lambda: receiver.total().tasks == 3, what="three tasks' figures")
    total = receiver.total()
    assert (total.records_consumed, total.retries, total.wait_s) == (3000, 3, pytest.approx(0.0375))


def test_other_datagrams_are_dropped(receiver: TaskFiguresReceiver, until: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(task_metrics, "_local_property", {"spark.driver.host": "127.0.0.1"}.get)
    ours = receiver.address
    replace(ours, token="another query's").send(FIGURES)
    token = ours.token.encode()
    others = [b"", b"\xff", b"7", b"[]", token, token + b"[1]", token + b"7", ours.encode(FIGURES)[:-1]]
    others.append(b"[" * 2048)  # nested too deep for a parser
    others.append(ours.encode(FIGURES).replace(b"1000", b'"1000"'))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for datagram in others:
            sock.sendto(datagram, ("127.0.0.1", ours.port))
    ours.send(FIGURES)
    until(lambda: receiver.total().tasks, what="our task's figures")
    assert receiver.total() == FIGURES


def test_outside_of_a_task_nothing_is_sent() -> None:
    DriverReceiver(9, "token").send(FIGURES)


def test_an_unreachable_address_fails_no_task(monkeypatch: Any) -> None:
    monkeypatch.setattr(task_metrics, "_local_property", {"spark.driver.host": "no such host"}.get)
    DriverReceiver(9, "token").send(FIGURES)
    for host in ("host.invalid", "no..host", "127.0.0.1"):
        StatsdAgent(host, 9).send(FIGURES)  # nobody listens on discard's port


def test_a_statsd_agent_gets_counters_with_the_query_as_a_tag(monkeypatch: Any) -> None:
    monkeypatch.setattr(task_metrics, "_local_property", {"sql.streaming.queryId": "4f1c"}.get)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.settimeout(20)
        StatsdAgent("127.0.0.1", agent.getsockname()[1]).send(FIGURES)
        lines = agent.recv(2048).decode().split("\n")
    assert lines == [
        f"pykafka_wire.task.{metric}|c|#query_id:4f1c"
        for metric in (
            "tasks:1", "fetches:2", "records_consumed:1000", "bytes_consumed:50000", "requests:3", "retries:1", "wait_ms:12"
        )
    ]  # fmt: skip


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-1", "1e300", "9" * 30, "true", '"1"', "null", "[1]"])
def test_a_figure_that_no_task_has_is_dropped(figure: str) -> None:
    receiver = DriverReceiver(1, "token")
    figures = json.loads(receiver.encode(FIGURES).removeprefix(b"token"))
    assert receiver.decode(b"token" + json.dumps(figures).encode()) == FIGURES
    datagram = "token" + json.dumps(figures).replace("1000", figure, 1)
    assert figure in datagram and receiver.decode(datagram.encode()) is None


def test_a_datagram_that_is_nested_deeply_is_dropped() -> None:
    assert DriverReceiver(1, "token").decode(b"token" + b"[" * 2000) is None


def test_the_progress_has_milliseconds_and_spark_s_spelling() -> None:
    found = camel_case(ClientTotals(bytes_sent=1, wait_s=0.0015))
    assert (found["bytesSent"], found["waitMs"], found["throttleMs"]) == (1, 1.5, 0)
    assert camel_case(FIGURES)["recordsConsumed"] == 1000


def test_the_option() -> None:
    assert stream().task_metrics is None and stream(taskMetrics="NONE").task_metrics is None
    assert stream(taskMetrics="driver").task_metrics == "driver"
    assert batch(taskMetrics="statsd://agent:8125").task_metrics == StatsdAgent("agent", 8125)
    assert batch(taskMetrics="statsd://[::1]:8125").task_metrics == StatsdAgent("::1", 8125)
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    for value in ("on", "statsd://agent", "statsd://agent:0", "statsd://agent:70000", "agent:8125", "statsd://a/b:1"):
        assert f"taskMetrics is {value!r}: use none, driver, or statsd://host:port." in refusal(
            base | {"taskMetrics": value}
        )
    assert "statsd://host:port" in refusal(base | {"taskMetrics": "driver"}, "batch")
    assert "statsd://host:port" in refusal({"kafka.bootstrap.servers": "h:1", "taskMetrics": "driver"}, "sink")


def test_figures_for_the_driver_need_a_spark_that_shows_them(monkeypatch: Any) -> None:
    monkeypatch.setattr("pykafka_wire.source.stream_reader.HAS_ADMISSION_CONTROL", False)
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "taskMetrics": "driver"}
    with pytest.raises(OptionError, match=r"taskMetrics=driver needs Spark 4\.2 or newer"):
        PykafkaWireDataSource(given).streamReader(StructType().add("value", BinaryType()))


@pytest.mark.broker
def test_writes_and_batch_reads_report_to_an_agent(kafka: Any, topic: Any) -> None:
    name, schema = topic(1), StructType().add("value", BinaryType())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.settimeout(20)
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        options["taskMetrics"] = f"statsd://127.0.0.1:{agent.getsockname()[1]}"
        rows = pa.RecordBatch.from_arrays([pa.array([b"x"] * 50)], names=["value"])
        KafkaBatchWriter(parse_sink_options(options | {"topic": name}), schema).write(iter([rows]))
        written = dict(line.split(":") for line in agent.recv(2048).decode().split("\n"))
        reader = KafkaBatchReader(parse_source_options(options | {"subscribe": name}, "batch"), schema)
        (partition,) = reader.partitions()
        assert sum(batch.num_rows for batch in reader.read(partition)) == 50
        read = dict(line.split(":") for line in agent.recv(2048).decode().split("\n"))
    assert written["pykafka_wire.task.records_produced"] == read["pykafka_wire.task.records_consumed"] == "50|c"
    assert written["pykafka_wire.task.tasks"] == read["pykafka_wire.task.fetches"] == "1|c"
    assert int(written["pykafka_wire.task.bytes_sent"].removesuffix("|c")) > 50
    assert int(read["pykafka_wire.task.bytes_received"].removesuffix("|c")) > 50


@pytest.mark.broker
def test_a_task_reports_the_records_that_it_has_lost(kafka: Any, topic: Any, outside: Any) -> None:
    name, schema = topic(1), StructType().add("value", BinaryType())
    outside.fill(name, [30])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.settimeout(20)
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "failOnDataLoss": "false"}
        options["taskMetrics"] = f"statsd://127.0.0.1:{agent.getsockname()[1]}"
        reader = KafkaBatchReader(parse_source_options(options, "batch"), schema)
        (partition,) = reader.partitions()
        outside.age_out(name, 0, 10)
        assert sum(batch.num_rows for batch in reader.read(partition)) == 20
        lines = agent.recv(2048).decode().split("\n")
    assert {"pykafka_wire.task.lost_ranges:1|c", "pykafka_wire.task.lost_offsets:10|c"} <= set(lines)
