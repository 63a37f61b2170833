"""An ingest in a session of Spark Connect, run twice: lands what is there, and prints what the tables hold then as JSON.

Without a schema the table ``odd`` is stopped: its records have the columns id and ID.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.proof.verification import verify

servers, folder, clicks, users, moved, odd, odd_schema = sys.argv[1:]
tables = [
    Table(topic=clicks, name="clicks", format="json"),
    Table(topic=users, name="users", format="json", mode="upsert"),
    Table(topic=moved, name="moved", format="json", mode="cdc"),
    Table(topic=odd, name="odd", format="json", schema=odd_schema or None),
]
ingest = Ingest(
    checkpoint=f"{folder}/checkpoint",
    kafka={"bootstrap.servers": servers},
    topics=f"{clicks}|{users}|{moved}|{odd}",
    into=f"file://{folder}/lake",  # with its file system: else Spark writes the files
    tables=tables,
)
spark = SparkSession.builder.getOrCreate()
query = ingest.start(spark, once=True)
assert query.awaitTermination(240), query.status
assert query.exception() is None, query.exception()
held = {
    name: [row.asDict() for row in spark.read.format("delta").load(f"{folder}/lake/{name}").select(*columns).collect()]
    for name, columns in (
        ("clicks", ["*"]),
        ("users", ["id"]),
        ("moved", ["id", "big"]),
        ("odd", ["id"]),
        ("_rejects", ["offset"]),
    )
    if name != "odd" or odd_schema
}
# All tables are compared once, in the last run.
topics = [clicks, users, moved, odd] if odd_schema else []
proofs = {each.table: str(each) for each in verify(spark, ingest.settings, topics) if not each.is_right}
print(json.dumps({**held, "wrong": proofs}, default=str))
spark.stop()
