"""A query's log in its checkpoint: which micro-batches are planned and committed, and the offsets at the end of each.

Spark writes ``offsets/N`` when micro-batch N is planned, ``commits/N`` when it is done, and keeps the last 100 of each
(``spark.sql.streaming.minBatchesToRetain``). A file of ``offsets`` has a version, a line of Spark's metadata, and a line for each
source: its offset, or ``-`` where it has none yet. In version 2 a source's name and a colon precede its offset. The JVM connector
stores where a query started in ``sources/N/0``; this package has that in the offset of micro-batch 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykafka_wire.checkpoints.files import CheckpointFiles
from pykafka_wire.checkpoints.query_offsets import QueryOffsets, is_source_offset
from pykafka_wire.errors import OffsetsError
from pykafka_wire.wire.topic_partitions import TopicPartition

_VERSIONS: Final = ("v1", "v2")
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """One source of a query at the end of a micro-batch; ``offsets`` is None for a source of another kind, or without an offset."""

    connector: str
    offsets: QueryOffsets | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMicroBatch:
    """A micro-batch of the log.

    Attributes:
        planned_ms: when Spark planned it, in ms since the epoch.
        committed_ms: when its commit was written; None where it is not committed, or the time is unknown.
        sources: the query's sources by name, ``"0"``, ``"1"``, … unless the query names them.
    """

    batch_id: int
    planned_ms: int | None
    committed_ms: int | None
    is_committed: bool
    sources: Mapping[str, SourceOffsets]


class QueryLog:
    """The log of one checkpoint, listed once; files are read once, when they are asked for.

    Attributes:
        planned, committed: numbers of micro-batches, in order.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        """List the log.

        Raises:
            OffsetsError: there is no checkpoint, or it cannot be read.
        """
        self._files = files
        commits = {logged.batch_id: logged.modified_ms for logged in files.logged("commits")}
        self.planned = sorted(logged.batch_id for logged in files.logged("offsets"))
        self.committed = [batch_id for batch_id in self.planned if batch_id in commits]
        self._committed_ms = commits
        self._read: dict[int, LoggedMicroBatch] = {}
        if not self.planned and files.read("metadata") is None:
            raise OffsetsError(
                f"there is no checkpoint of a query in {files.shown}: name the folder that the query has as checkpointLocation, "
                "with its file system unless that is local (hdfs://…, s3://…, abfss://…)."
            )

    @property
    def shown(self) -> str:
        """Return the checkpoint's folder, for errors."""
        return self._files.shown

    def query_id(self) -> str | None:
        """Return Spark's id of the query, None where the checkpoint has none."""
        try:
            return str(json.loads(self._files.read("metadata") or "{}").get("id") or "") or None
        except (ValueError, AttributeError):
            return None

    def micro_batch(self, batch_id: int) -> LoggedMicroBatch:
        """Return a micro-batch of the log.

        Raises:
            OffsetsError: the log does not have it, it is damaged, or a newer Spark or pykafka-wire wrote it.
        """
        if batch_id not in self._read:
            self._read[batch_id] = self._micro_batch(batch_id)
        return self._read[batch_id]

    def _micro_batch(self, batch_id: int) -> LoggedMicroBatch:
        text = self._files.read(f"offsets/{batch_id}")
        if text is None:
            there = f"{self.planned[0]} to {self.planned[-1]}" if self.planned else "none"
            raise OffsetsError(
                f"the checkpoint {self.shown} has no micro-batch {batch_id}: it has {there}. Spark keeps the last "
                "spark.sql.streaming.minBatchesToRetain of them (default 100)."
            )
        where = f"offsets/{batch_id} of the checkpoint {self.shown}"
        version, *lines = text.split("\n")
        if version not in _VERSIONS:
            raise OffsetsError(
                f"{where} has the version {version[:20]!r}, and this pykafka-wire reads v1 and v2: use a newer one, or check that "
                "the file is whole."
            )
        if len(lines) < 2:
            raise OffsetsError(f"{where} is damaged: it ends before the offset of a source.")
        named = [line.partition(":")[::2] if version == "v2" else (str(i), line) for i, line in enumerate(lines[1:])]
        sources = {name: _source_offsets(offset, where) for name, offset in named}
        return LoggedMicroBatch(
            batch_id=batch_id,
            planned_ms=_planned_ms(lines[0]),
            committed_ms=self._committed_ms.get(batch_id),
            is_committed=batch_id in self._committed_ms,
            sources=sources,
        )

    def started_at(self, source: str) -> QueryOffsets | None:
        """Return where a source of the JVM connector started, as it is stored; None where nothing is."""
        text = self._files.read(f"sources/{source}/0")
        if text is None:
            return None
        where = f"sources/{source}/0 of the checkpoint {self.shown}"
        # A zero byte comes first (SPARK-19517), then a version.
        _, _, offset = text.lstrip("\x00").partition("\n")
        return _source_offsets(offset, where).offsets


def _planned_ms(metadata: str) -> int | None:
    try:
        planned_ms = json.loads(metadata)["batchTimestampMs"]
    except (ValueError, KeyError, TypeError):
        return None
    return planned_ms if isinstance(planned_ms, int) and planned_ms > 0 else None


def _source_offsets(text: str, where: str) -> SourceOffsets:
    if text.strip() == _NO_OFFSET:
        return SourceOffsets(connector="none yet", offsets=None)
    try:
        document: Any = json.loads(text)  # Any: another source's offset may be anything
    except ValueError:
        return SourceOffsets(connector="another", offsets=None)
    if is_source_offset(document):
        try:
            return SourceOffsets(connector="pykafka-wire", offsets=QueryOffsets.from_json(document))
        except OffsetsError as error:
            raise OffsetsError(f"{where}: {error.message}") from error
    by_partition = _kafka_offsets(document)
    if by_partition is None:
        return SourceOffsets(connector="another", offsets=None)
    return SourceOffsets(connector="kafka", offsets=QueryOffsets(offsets=by_partition))


def _kafka_offsets(document: Any) -> dict[TopicPartition, int] | None:
    """Return the JVM connector's offset, ``{"topic":{"0":12}}``; None for anything else."""
    if not isinstance(document, dict) or not all(isinstance(item, dict) for item in document.values()):
        return None
    by_partition: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or type(offset) is not int or offset < 0:
                return None
            by_partition[TopicPartition(topic, int(partition))] = offset
    return by_partition
