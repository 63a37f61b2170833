"""The sink beside Spark's own JVM sink: the same rows, the same records as an independent client sees them, the same refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.connector.sink.parity import SCENARIOS, Scenario, table

OURS, THEIRS = "pykafka-wire", "kafka"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "sink-parity.md"


def test_the_document_shows_the_scenarios() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == table(), (
        "write what tests.connector.sink.parity.table() returns to it"
    )


def test_every_test_of_the_jvm_sinks_suites_has_a_row() -> None:
    behaviours = {
        "streaming - write to kafka with topic field",
        "streaming - write w/o topic field, with topic option",
        "streaming - topic field and topic option",
        "streaming - write data with bad schema",
        "streaming - write data with valid schema but wrong types",
        "streaming - write to non-existing topic",
        "streaming - exception on config serializer",
        "streaming - sink progress is produced",
        "batch - write to kafka",
        "batch - partition column and partitioner priorities",
        "batch - null topic field value, and no topic option",
        "batch - unsupported save modes",
        "SPARK-20496: batch - enforce analyzed plans",
        "generic - write big data with small producer buffer",
    }
    assert {each.suite for each in SCENARIOS if each.suite} == behaviours


def write(scenario: Scenario, format: str, frame: Any, options: dict[str, str], folder: Path) -> None:
    if scenario.stream is None:
        frame.write.format(format).mode(scenario.mode).options(**options).save()
        return
    rows = str(folder / "rows")
    frame.write.mode("ignore").parquet(rows)
    query = (
        frame.sparkSession.readStream.schema(frame.schema)
        .parquet(rows)
        .writeStream.format(format)
        .outputMode(scenario.stream)
        .options(**options)
        .option("checkpointLocation", str(folder / format))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


# Those of our own have a test of our sink's beside them: `make parity` runs them.
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, id=each.title, marks=() if each.suite else pytest.mark.long) for each in SCENARIOS],
)
def test_both_sinks_do_the_same(
    scenario: Scenario, spark: Any, kafka: Any, topic: Callable[..., str], outside: Any, tmp_path: Path
) -> None:
    outcomes: dict[str, Any] = {}
    for format in (THEIRS, OURS):
        t = topic(scenario.partitions, scenario.config)
        names = {"t": t, "u": topic(1) if "{u}" in scenario.sql else ""}
        frame = spark.sql(scenario.sql.format(**names)).coalesce(1)
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "3000"}
        options |= {name: value.format(**names) for name, value in scenario.options.items()}
        try:
            write(scenario, format, frame, options, tmp_path / t)
        except (PySparkException, Py4JJavaError) as error:
            outcomes[format] = "refused"
            if format == OURS:
                assert scenario.refused is not None and scenario.refused in str(error), error
        else:
            outcomes[format] = "written"
        written = [seen(scenario, record) for name in names.values() if name for record in outside.consume(name)]
        outcomes[format] = (outcomes[format], sorted(written, key=repr))
    assert outcomes[OURS][0] == ("written" if scenario.refused is None else "refused")
    if scenario.refused is not None:
        assert outcomes[OURS][1] == []
    if scenario.differs:
        assert outcomes[OURS] != outcomes[THEIRS]
    else:
        assert outcomes[OURS] == outcomes[THEIRS]


def seen(scenario: Scenario, record: Any) -> tuple[Any, ...]:
    """What both must agree on: a time only where the rows have one, a partition where rows say it or their key does."""
    placed = scenario.partitions == 1 or "key" in scenario.sql
    timed = record.timestamp_ms if "timestamp" in scenario.sql else None
    in_turn = "RoundRobin" in scenario.options.get("kafka.partitioner.class", "") and "partition" not in scenario.sql
    return (record.key, record.value, record.headers, record.partition if placed and not in_turn else None, timed)


def test_a_stream_reports_in_its_progress_how_many_rows_it_wrote(
    spark: Any, queries: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    """As "streaming - sink progress is produced"."""
    source = topic(1)
    outside.fill(source, [3])
    query = (
        queries.stream(subscribe=source)
        .select("value")
        .writeStream.format(OURS)
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic(1)})
        .option("checkpointLocation", str(queries.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert [p["sink"]["numOutputRows"] for p in query.recentProgress if p["numInputRows"]] == [3]
