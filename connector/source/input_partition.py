"""Spark's input partition: the offset ranges that one task reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from pykafka_wire.task_metrics import DriverReceiver
from pykafka_wire.wire.topic_partitions import OffsetRange


class KafkaInputPartition(InputPartition):
    """Ranges of one or many topic-partitions, read by one task. Holds no setting and no secret: Spark prints it."""

    def __init__(
        self, ranges: Sequence[OffsetRange], query: str = "", reader_schemas: Mapping[str, Any] | None = None
    ) -> None:
        self.ranges = tuple(ranges)
        self.query = query  # the checkpoint's id of the query, for reports of lost ranges
        self.reader_schemas = dict(reader_schemas or {})  # of typed columns, as in the checkpoint
        self.receiver: DriverReceiver | None = None  # of the task's figures

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.ranges[:4])) + (
            f", … {len(self.ranges)} ranges" if len(self.ranges) > 4 else ""
        )
        return f"KafkaInputPartition({shown})"
