"""Progress reports of queries as Spark makes them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from pykafka_wire.metrics.definitions import BY_NAME, TABLE

CLIENT = {
    "requests": 40,
    "responses": 39,
    "bytesSent": 4000,
    "bytesReceived": 9000,
    "connectionsOpened": 2,
    "retries": 1,
}
CLIENT |= {"waitMs": 1500.0, "throttleMs": 250.0}  # type: ignore[dict-item]
TASKS = CLIENT | {
    "tasks": 3,
    "fetches": 6,
    "recordsConsumed": 700,
    "bytesConsumed": 8000,
    "lostRanges": 1,
    "lostOffsets": 5,
}
TASKS |= {"recordsProduced": 0, "bytesProduced": 0}


def report(**changes: Any) -> dict[str, Any]:
    """What the source puts into a progress; ``orders`` ends at 50 and 20."""
    return {
        "offsets": {"orders": {"0": 50, "1": 20}},
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 8,
        "avgOffsetsBehindLatest": 4.0,
        "totalOffsetsBehindLatest": 8,
        "estimatedTotalBytesBehindLatest": 800,
        "group": "g",
        "commitSuccesses": 4,
        "commitFailures": 1,
        "lostRanges": 0,
        "lostOffsets": 0,
        "client": CLIENT,
        "plannedTasks": 4,
    } | changes


def progress(
    *reports: Any, run: int = 1, name: str | None = "copy", batch: int = 3, seconds: float = 0.3, query: int = 7
) -> Any:
    """A progress with one source for each report; a text stands for another source's offset."""
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    reached = json.dumps({"version": 1, "offsets": {"orders": {"0": 42, "1": 20}}})
    sources = [
        {
            "description": "",
            "startOffset": None,
            "endOffset": reached,
            "latestOffset": each if isinstance(each, str) else json.dumps(each),
            "numInputRows": 100,
            "inputRowsPerSecond": 50.0,
            "processedRowsPerSecond": float("nan"),
            "metrics": {},
        }
        for each in reports
    ]
    phases = {"triggerExecution": round(seconds * 1000), "addBatch": round(seconds * 500)}
    made = {"id": str(uuid.UUID(int=query)), "runId": str(uuid.UUID(int=run)), "name": name, "timestamp": "t"}
    made |= {"batchId": batch, "batchDuration": 0, "durationMs": phases, "eventTime": {}, "stateOperators": []}
    made |= {"sources": sources, "sink": {"description": "", "numOutputRows": 0, "metrics": {}}, "observedMetrics": {}}
    return StreamingQueryProgress.fromJson(made)


def of_tables(metric: str) -> dict[tuple[str, ...], float]:
    """A figure of each metric that an ingest has of its tables."""
    labels = BY_NAME[metric].labels
    return {labels: 3.0} if labels[: len(TABLE)] == TABLE else {}
