"""What shows only in a session of its own, without Delta: what workers write to the console, and tables of Spark's own catalog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"

pytestmark = [pytest.mark.broker, pytest.mark.spark]

#: Each read and write has an unknown setting of its own, and a setting that is not safe. Workers write to standard error.
PROGRAM = """
import sys
from pyspark.sql import SparkSession

servers, source, target, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def given(name):
    return dict([("kafka.bootstrap.servers", servers), ("kafka.no." + name, "1"), ("kafka.sasl.mechanism", "PLAIN")])

print("SECTION batch", file=sys.stderr, flush=True)
frame = spark.read.format("pykafka-wire").options(**given("batch"), subscribe=source, minPartitions="2").load()
frame.select("value").write.format("pykafka-wire").mode("append").options(**given("write"), topic=target).save()
print("SECTION stream", file=sys.stderr, flush=True)
stream = spark.readStream.format("pykafka-wire").options(**given("stream"), subscribe=source, startingOffsets="earliest",
    maxOffsetsPerTrigger="5").load()
sink = stream.select("value").writeStream.format("pykafka-wire").options(**given("sink"), topic=target)
query = sink.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination(120)
print("SECTION tables", file=sys.stderr, flush=True)
spark.sql("CREATE TABLE plain USING `pykafka-wire` OPTIONS (`kafka.bootstrap.servers` '%s', subscribe 'x')" % servers)
try:
    spark.sql("SELECT * FROM plain").collect()
except Exception as error:
    print("REFUSED", " ".join(str(error).split()))
create, select, insert, _ = open(folder + "/tables.sql").read().split(";")
spark.sql(create)
before = spark.sql(select).first()[0]
spark.sql(insert)
print("COUNTED", before, spark.sql(select).first()[0])
create, insert, select, _ = open(folder + "/typed_tables.sql").read().split(";")
spark.sql(create)
spark.sql(insert)
print("TYPED", spark.sql(select).collect())
print("DONE", len(query.recentProgress), query.exception())
spark.stop()
"""


def test_warnings_are_logged_once_a_query_and_tables_take_their_options_with_the_query(
    java: None, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    source, target = topic(2), topic(2)
    for page, shown, used, file in (
        ("read.md", "orders", source, "tables.sql"),
        ("typed-topics.md", "payments", topic(1), "typed_tables.sql"),
    ):
        (block,) = re.findall(r"```sql\n(CREATE TABLE.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
        block = block.replace("broker:9092", kafka.bootstrap_servers).replace(f"'{shown}'", f"'{used}'")
        (tmp_path / file).write_text(block)
    outside.fill(source, [8, 8])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, str(program), kafka.bootstrap_servers, source, target, str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "DONE" in done.stdout and "None" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
    batch, stream, tables = re.split("SECTION (?:stream|tables)", done.stderr.split("SECTION batch")[1])
    for name, where in (("batch", batch), ("write", batch), ("stream", stream), ("sink", stream)):
        assert where.count(f"are ignored: kafka.no.{name}") == 1, done.stderr[-6000:]
    # Processes are used again, so the read and the write may have said the same in one of them.
    said = done.stderr.count("kafka.sasl.* settings have no effect with kafka.security.protocol=PLAINTEXT")
    assert 1 <= said <= 4, done.stderr[-6000:]
    assert " sasl.* settings have no effect" not in done.stderr.replace("\n", " "), done.stderr[-6000:]
    assert tables.count("Spark passes the OPTIONS of a table to no Python data source") >= 1, done.stderr[-6000:]
    assert re.search(
        r"REFUSED .*kafka.bootstrap.servers is missing: .* Spark passes the OPTIONS of a table", done.stdout
    )
    assert "COUNTED 16 17" in done.stdout
    assert "TYPED [Row(country='NO', sum(value.id)=3, max(offset)=2)]" in done.stdout
