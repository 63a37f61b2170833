"""Three brokers in three racks, and an executor in each: what crosses the racks (KIP-392, SPARK-46798)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.record_producer import RecordProducer
from pykafka_wire.wire.settings import ClientSettings
from tests.connector.deployments.standalone import standalone_cluster
from tests.connector.deployments.submit import spark_submit

pytestmark = [pytest.mark.long, pytest.mark.broker]

N_RECORDS = 300_000
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pykafka_wire import PykafkaWireDataSource
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(PykafkaWireDataSource)
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "racks", "minPartitions": "24", "kafka.client.rack": "env:RACK"}
print("rows", spark.read.format("pykafka-wire").options(**options).load().selectExpr("sum(length(value))", "count(*)").first()[:])
"""


def test_executors_read_from_the_brokers_in_their_own_racks(java: None, tmp_path: Path) -> None:
    """Broker n is in rack rn. Nothing else has the variable, the driver neither. Leaders respond with the name of a nearer replica,
    which is all that may cross the racks."""
    (tmp_path / "program.py").write_text(PROGRAM)
    traces = {f"r{n}": tmp_path / f"trace-r{n}" for n in (1, 2, 3)}
    workers = [{"RACK": rack, "PYKAFKA_WIRE_TRACE": str(trace)} for rack, trace in traces.items()]
    with LocalCluster(3, {}) as brokers, standalone_cluster(tmp_path, workers=workers) as master:
        with Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})) as cluster:
            create_topics(cluster, {"racks": (6, 3)})
        with RecordProducer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all"}) as producer:
            for number in range(N_RECORDS):
                producer.send("racks", os.urandom(50) * 2, partition=number % 6)
        command = [*spark_submit(master), tmp_path / "program.py", brokers.bootstrap_servers]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert f"rows ({N_RECORDS * 100}, {N_RECORDS})" in done.stdout, done.stderr[-5_000:]
    own, others = 0, 0
    for rack, trace in traces.items():
        responses = re.findall(r"(?m)^\S+ (\d) \S+ <- Fetch v\d+ #\d+ (\d+) B", trace.read_text())
        assert responses, f"the executor in {rack} has read nothing"
        own += sum(int(size) for node, size in responses if f"r{node}" == rack)
        others += sum(int(size) for node, size in responses if f"r{node}" != rack)
    print(f"\n{own:,} bytes from the own rack, {others:,} from others: {others / (own + others):.2%}")
    assert own > N_RECORDS * 50
    assert others <= 0.01 * (own + others)
