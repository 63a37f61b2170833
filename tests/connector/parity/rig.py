"""One scenario, both connectors, the same topics, the same Spark session: what each did, side by side.

A scenario is a function over :class:`Both`. Each of its steps is done by both connectors, ours and Spark's own JVM
connector, before the next one changes anything in Kafka; what came of it is kept under the step's name and an aspect
(rows, schema, offsets, batches, refused, …). Afterwards both records must be equal in every aspect but those that the
scenario declares to differ by design, which must differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions

OURS = "pykafka-wire"
JVM = "kafka"
#: At its defaults the JVM connector waits half a second at the end of every topic-partition.
COMMON = {"kafka.fetch.max.wait.ms": "10"}
#: Errors that refuse nothing. Spark gives a Python worker ten seconds to start, a figure of its code, and the machine may be
#: too busy; or the worker does not find this package.
BROKEN = ("failed to connect back", "ModuleNotFoundError", "ImportError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A row of the table in docs/parity.md.

    Attributes:
        differs: what differs by design, with its reason, by aspect.
    """

    name: str
    run: Callable[[Both], None]
    differs: Mapping[str, str] = field(default_factory=dict)
    long: bool = False


@dataclass
class Side:
    """One connector: what it did in each step, and its queries."""

    format: str
    found: dict[str, Any] = field(default_factory=dict)
    queries: dict[str, Running] = field(default_factory=dict)


class Running:
    """A streaming query of one side, with the rows of each of its batches."""

    def __init__(self, frame: Any, checkpoint: Path, trigger: Mapping[str, Any]) -> None:
        self.batches: dict[int, list[Any]] = {}
        writer = frame.writeStream.foreachBatch(self._see).option("checkpointLocation", str(checkpoint))
        self.query = writer.trigger(**trigger).start()

    def _see(self, batch: Any, batch_id: int) -> None:
        self.batches[batch_id] = rows_of(batch)

    def outcome(self) -> dict[str, Any]:
        """Rows, their number in each batch, and where each batch ended, of batches that had any."""
        progress = {p["batchId"]: p for p in self.query.recentProgress}
        filled = [batch_id for batch_id, rows in sorted(self.batches.items()) if rows]
        return {
            "rows": sorted(row for rows in self.batches.values() for row in rows),
            "batches": [self.batches[batch_id] for batch_id in filled],
            "counted": [progress[batch_id]["numInputRows"] for batch_id in filled if batch_id in progress],
            "offsets": [
                offsets_of(progress[batch_id]["sources"][0]["endOffset"]) for batch_id in filled if batch_id in progress
            ],
        }


class Both:
    """What a scenario may do; each step happens on both sides."""

    def __init__(self, spark: Any, outside: Any, topic: Any, folder: Path) -> None:
        self.spark = spark
        self.outside = outside
        self.topic = topic
        self.folder = folder
        self.sides = (Side(OURS), Side(JVM))

    def batch(self, step: str, *, tasks: bool = False, again: bool = False, **options: str) -> None:
        """A batch read to its end; with ``tasks`` the rows of each task count too, with ``again`` the frame of the
        same step before is run once more."""
        for side in self.sides:
            name = f"{step}, again" if again else step
            with self._step(side, name) as found:
                if not again:
                    reader = self.spark.read.format(side.format).options(**self._options(options))
                    side.queries[step] = reader.load()
                frame: Any = side.queries[step]
                found["schema"] = frame.schema.simpleString()
                placed = frame.withColumn("task", functions.spark_partition_id()).collect()
                found["rows"] = sorted(row_of(row) for row in placed)
                if tasks:
                    counts: dict[int, int] = {}
                    for row in placed:
                        counts[row.task] = counts.get(row.task, 0) + 1
                    found["tasks"] = sorted(counts.values())

    def stream(self, step: str, *, query: str = "query", trigger: str = "availableNow", **options: str) -> None:
        """A streaming query that ends by itself; one of the same name goes on from its checkpoint."""
        for side in self.sides:
            with self._step(side, step) as found:
                running = self._start(side, query, {trigger: True}, options)
                assert running.query.awaitTermination(120), f"{side.format} did not end"
                found.update(running.outcome())

    def start(self, query: str = "query", **options: str) -> None:
        """A streaming query that goes on until :meth:`stop`; returns after its first look at the topics."""
        for side in self.sides:
            side.queries[query] = self._start(side, query, {"processingTime": "0 seconds"}, options)
            side.queries[query].query.processAllAvailable()

    def settle(self, query: str = "query") -> None:
        """Wait until the query has read all that is there."""
        for side in self.sides:
            side.queries[query].query.processAllAvailable()

    def stop(self, step: str, *, query: str = "query", only: Sequence[str] = ("rows", "offsets")) -> None:
        """Stop the query. Its batches depend on when it looked: they count only where ``only`` names them."""
        for side in self.sides:
            with self._step(side, step) as found:
                running = side.queries.pop(query)
                running.query.stop()
                outcome = running.outcome()
                outcome["offsets"] = outcome["offsets"][-1:]
                found.update({aspect: outcome[aspect] for aspect in only})

    def run(self, side: Side, query: str, **options: str) -> Running:
        """A streaming query of one side, to the end of what is there."""
        return self._start(side, query, {"availableNow": True}, options)

    def make(self, name: str) -> None:
        """An empty topic of this very name."""
        self.topic(1, name=name)

    def record(self, step: str, aspect: str, look: Callable[[Side], Any]) -> None:
        """Keep what ``look`` finds of each side."""
        for side in self.sides:
            side.found[f"{step}: {aspect}"] = look(side)

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """``{"step: aspect": (ours, the JVM connector's)}`` of all that is not equal; of a step that one side alone
        refused, no more than that."""
        ours, jvm = (side.found for side in self.sides)
        found = {
            key: (ours.get(key), jvm.get(key)) for key in dict.fromkeys([*ours, *jvm]) if ours.get(key) != jvm.get(key)
        }
        refused = {key.removesuffix("refused") for key in found if key.endswith(": refused")}
        return {
            key: pair
            for key, pair in found.items()
            if key.endswith(": refused") or key[: key.rindex(": ") + 2] not in refused
        }

    def close(self) -> None:
        for side in self.sides:
            for running in side.queries.values():
                if isinstance(running, Running):
                    running.query.stop()

    def _options(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.outside.servers} | COMMON | dict(options)

    def _start(self, side: Side, query: str, trigger: Mapping[str, Any], options: Mapping[str, str]) -> Running:
        reader = self.spark.readStream.format(side.format).options(**self._options(options))
        return Running(reader.load(), self.folder / side.format / query, trigger)

    def _step(self, side: Side, step: str) -> Step:
        return Step(side, step)


class Step:
    """Keeps what a step found under its name; an error of Spark is a finding, too."""

    def __init__(self, side: Side, name: str) -> None:
        self._side = side
        self._name = name
        self._found: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        return self._found

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> bool:
        refused = isinstance(error, (PySparkException, Py4JJavaError)) and not any(
            text in str(error) for text in BROKEN
        )
        if error is not None and not refused:
            return False
        # What is seen before a refusal depends on when it comes.
        found = {"refused": True} if refused else {"refused": False} | self._found
        self._side.found.update({f"{self._name}: {aspect}": value for aspect, value in found.items()})
        return refused


def rows_of(frame: Any) -> list[Any]:
    """All rows of a source's frame, sorted, as plain values."""
    return sorted(row_of(row) for row in frame.collect())


def row_of(row: Any) -> tuple[Any, ...]:
    """A source's row as plain, comparable values; its place comes first."""
    headers: Any = ()
    if "headers" in row:
        headers = None if row.headers is None else tuple((h.key, _bytes(h.value)) for h in row.headers)
    place = (row.topic, row.partition, row.offset)
    return (*place, repr((_bytes(row.key), _bytes(row.value), row.timestamp, row.timestampType, headers)))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def offsets_of(progress: Any) -> Any:
    """``{topic: {partition: offset}}`` of an offset in a query's progress, whichever side wrote it."""
    found = json.loads(progress) if isinstance(progress, str) else progress
    return found.get("offsets", found) if isinstance(found, dict) else found


def table(scenarios: Sequence[Scenario]) -> str:
    """The scenarios as a Markdown table, counted."""
    n_differ = sum(bool(scenario.differs) for scenario in scenarios)
    lines = [
        f"{len(scenarios)} scenarios: {len(scenarios) - n_differ} the same, {n_differ} different by design, no "
        "other difference.",
        "",
        "| Scenario | Both connectors |",
        "|---|---|",
    ]
    for scenario in scenarios:
        outcome = "; ".join(f"{aspect}: {reason}" for aspect, reason in scenario.differs.items())
        lines.append(f"| {scenario.name} | {f'differ by design. {outcome}' if outcome else 'same'} |")
    return "\n".join(lines)


def aspects(differences: Mapping[str, Any]) -> Iterator[str]:
    """The aspects of differing steps."""
    return iter(sorted({key.rsplit(": ", 1)[1] for key in differences}))
