"""An ingest in a session of Spark Connect, run twice: lands what is there, and prints what the tables hold then as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.checks import verify

servers, folder, clicks, users = sys.argv[1:]
tables = [
    Table(topic=clicks, name="clicks", format="json"),
    Table(topic=users, name="users", format="json", mode="upsert"),
]
ingest = Ingest(
    checkpoint=f"{folder}/checkpoint",
    kafka={"bootstrap.servers": servers},
    topics=f"{clicks}|{users}",
    into=f"{folder}/lake",
    tables=tables,
)
spark = SparkSession.builder.getOrCreate()
query = ingest.start(spark, once=True)
assert query.awaitTermination(240), query.status
assert query.exception() is None, query.exception()
held = {
    name: [row.asDict() for row in spark.read.format("delta").load(f"{folder}/lake/{name}").select(*columns).collect()]
    for name, columns in (("clicks", ["*"]), ("users", ["id"]), ("_rejects", ["offset"]))
}
proofs = {each.table: str(each) for each in verify(spark, ingest.settings, [clicks, users]) if not each.is_right}
print(json.dumps({**held, "wrong": proofs}, default=str))
spark.stop()
