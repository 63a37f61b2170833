"""The records of a topic that none of its tables takes, where one table's read does not show what the others take.

So it is where they take different types, or have different settings. Tasks read the range once more for each table, and keep the
offsets alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pykafka_wire.ingest.changes.newest import TAKEN
from pykafka_wire.ingest.files.tasks import ReadRecords, RowsOfRead, UntakenRecords, run_tasks, taken_records, yielded
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.contracts import untaken
from pykafka_wire.ingest.records.reader import TableReader
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition


def count_untaken(session: SparkSession, readers: Sequence[TableReader], part: TopicRange) -> UntakenRecords | None:
    """Return how many records of a range none of a topic's tables takes; None where only Spark can say what one takes.

    Raises:
        IngestError, RegistryError: a table's schema is not to be had.
    """
    places = {**readers[0].source.options(part), "columns": "partition,offset"}
    _, source = open_source(places)
    partitions = source.partitions()
    reads = []
    for reader in readers:
        if reader.contract.settings.merges:
            return None
        read = reader.plan(session, part, reader.schemas.value_schema(), None)
        schema, typed = open_source(read.options)
        contract = None if read.readings else reader.task_contract(session, schema, only_where=True)
        if contract is None:
            return None
        rows = RowsOfRead(columns=(), errors=read.errors, where=contract.where)
        planned = typed.partitions()[:1]
        reads.append((typed, [_with_ranges(planned[0], whole) for whole in partitions] if planned else [], rows))
    if not partitions:
        return UntakenRecords()
    return run_tasks(session, _CountTask(source, partitions, reads), len(partitions)).untaken


def untaken_places(session: SparkSession, readers: Sequence[TableReader], part: TopicRange) -> DataFrame:
    """Return ``partition`` and ``offset`` of the records of a range that none of a topic's tables takes."""
    taken = []
    for reader in readers:
        rows = reader.read(session, part, reader.schemas.value_schema(), None)
        taken.append(rows.where(TAKEN) if reader.contract.settings.merges and TAKEN in rows.columns else rows)
    return untaken(readers[0].source.raw(session, part), taken)


def _with_ranges(typed: InputPartition, whole: InputPartition) -> KafkaInputPartition:
    """Return an input partition with the ranges of ``whole``, which is read as ``typed`` is."""
    assert isinstance(typed, KafkaInputPartition) and isinstance(whole, KafkaInputPartition)
    return KafkaInputPartition(whole.ranges, typed.query, typed.reader_schemas)


class _CountTask(SentToWorkers):
    """Counts the records of input partitions of a read that are in none of some other reads."""

    def __init__(
        self,
        reader: DataSourceReader,
        partitions: Sequence[InputPartition],
        reads: Sequence[tuple[DataSourceReader, Sequence[InputPartition], RowsOfRead]],
    ) -> None:
        """Take what a task needs, which is pickled; ``reads`` have the same ranges in their input partitions."""
        self._reader = reader
        self._partitions = tuple(partitions)
        self._reads = tuple(reads)

    def run(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count in the input partitions of these numbers; for ``mapInArrow``."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield yielded(ReadRecords(n_rejects=0, rejects=None, newest_ms=0, untaken=self._untaken(number)))

    def _untaken(self, number: int) -> UntakenRecords:
        untaken = _offsets(self._reader.read(self._partitions[number]))
        for reader, partitions, rows in self._reads:
            batches = reader.read(partitions[number]) if partitions else iter(())
            for partition, offsets in _offsets(taken_records(batch, rows)[0] for batch in batches).items():
                untaken[partition] = np.setdiff1d(untaken[partition], offsets, assume_unique=True)
        n = sum(map(len, untaken.values()))
        firsts = [(partition, int(offsets.min())) for partition, offsets in untaken.items() if len(offsets)]
        return UntakenRecords(n, min(firsts, default=None))


def _offsets(batches: Iterable[pa.RecordBatch]) -> dict[int, np.ndarray]:
    """Return the offsets of records by their partition."""
    arrays_by_partition: dict[int, list[np.ndarray]] = defaultdict(list)
    for batch in batches:
        partitions, offsets = (batch[name].to_numpy() for name in ("partition", "offset"))
        for partition in np.unique(partitions):
            arrays_by_partition[int(partition)].append(offsets[partitions == partition])
    return {partition: np.concatenate(arrays) for partition, arrays in arrays_by_partition.items()}
