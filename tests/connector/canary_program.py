"""What a user with secrets in the options does, well and badly, with everything switched on that writes something down.

Run by tests/connector/test_canary.py through `run_searched`: `canary_program.py FOLDER`, where FOLDER/options.json has the
options and names; settings beyond those of `run_searched` are in SPARK_CONF_DIR. Everything comes out on stdout and stderr, or lies
in the folder. It prints SUCCEEDED and FAILED lines, by which the test knows that it did what it was to do.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

folder = Path(sys.argv[1])
given = json.loads((folder / "options.json").read_text())
options: dict[str, str] = given["options"]
topic: str = given["topic"]

logging.getLogger("py4j").setLevel(logging.WARNING)
spark = SparkSession.builder.getOrCreate()


def explained(frame: DataFrame) -> DataFrame:
    for mode in ("extended", "formatted", "codegen"):
        frame.explain(mode)
    return frame


def read(**changed: str) -> DataFrame:
    return read_with(options | changed)


def read_with(options: dict[str, str]) -> DataFrame:
    return spark.read.format("pykafka-wire").options(**options).option("subscribe", topic).load()


def stream(name: str, **changed: str) -> Any:
    frame = spark.readStream.format("pykafka-wire").options(**options | changed).option("subscribe", topic)
    return (
        frame.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("pykafka-wire")
        .options(**options | changed)
        .option("topic", given["copy"])
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )


def written(query: Any) -> None:
    query.explain(True)
    try:
        query.awaitTermination(120)
        query.explain(True)
    finally:
        print(json.dumps([json.loads(each.json) for each in query.recentProgress], indent=1))
        print(query.status, query.lastProgress, query.exception())


def in_sql(view: str, options: dict[str, str]) -> None:
    """The statement goes to Spark as the user typed it, with the secrets in it."""
    typed = ", ".join("'{}' '{}'".format(name, value.replace("'", "\\'")) for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING `pykafka-wire` OPTIONS ({typed})")
    spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").show(truncate=False)
    spark.sql(f"DESCRIBE EXTENDED {view}").show(truncate=False)
    explained(spark.sql(f"SELECT count(*), max(value) FROM {view}")).show(truncate=False)


def succeed(name: str, act: Callable[[], object]) -> None:
    act()
    print("SUCCEEDED", name)


def fail(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        traceback.print_exc()
        print(repr(error), error)
        print("FAILED", name)


everything = {**options, "subscribe": topic}
wrong = given["wrong"]

succeed("batch", lambda: explained(read()).show(truncate=False))
succeed("stream", lambda: written(stream("well")))
succeed("sql", lambda: in_sql("well", everything))

fail("batch", lambda: explained(read(**wrong)).show())
fail("stream", lambda: written(stream("badly", **wrong)))
fail("sql", lambda: in_sql("badly", everything | wrong))
fail("task", lambda: written(stream("too-large", **{"kafka.max.request.size": "1"})))
for number, malformed in enumerate(given["malformed"]):
    fail(f"malformed-{number}", lambda malformed=malformed: read(**malformed).show())
for name, (right, refused) in given["accounts"].items():
    read_with(right).explain("extended")
    succeed(name, lambda right=right: read_with(right).show())
    fail(name, lambda refused=refused: read_with(refused).show())

spark.stop()
