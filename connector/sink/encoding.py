"""Typed columns in a task: ``key`` and ``value`` of any type become the bytes of records, before anything else sees them.

What writes them comes from the driver (:mod:`~pykafka_wire.sink.written_schema`): a task needs no registry. Owns the report of
rows that do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pykafka_wire.errors import WriteError
from pykafka_wire.sink.arrow_input import coalesce_batches

#: Characters of a key in an error.
_LONGEST_KEY: Final = 60

if TYPE_CHECKING:
    from pykafka_wire.values.bulk.writing import ColumnWriter


@dataclass(frozen=True, slots=True)
class Encoding:
    """What writes each typed column, by its name; picklable."""

    writers: Mapping[str, ColumnWriter] = field(default_factory=dict)

    def encode(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[pa.RecordBatch]:
        """Yield a task's Arrow batches with typed columns as binary ones; ``topic`` is the option's.

        Raises:
            WriteError: a row does not fit its schema. No row of its batch has been sent.
        """
        if not self.writers:
            yield from batches
            return
        n_rows = 0
        for batch in coalesce_batches(batches):
            yield self._encode(batch, topic, n_rows)
            n_rows += batch.num_rows

    def _encode(self, batch: pa.RecordBatch, topic: str | None, first: int) -> pa.RecordBatch:
        from pykafka_wire.values.bulk.writing import encode  # its package takes 0.1 s to load, and few writes need it

        columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
        for name, writer in self.writers.items():
            encoded = encode(writer, columns[name])
            if encoded.reasons:
                row = min(encoded.reasons)
                into = topic if topic is not None else columns["topic"][row].as_py()
                more = len(encoded.reasons) - 1
                raise WriteError(
                    f"row {first + row}{_spark_partition()} (counted from 0){_key(batch, row)}, for topic {into}, does not fit "
                    f"the schema of its {name}: "
                    f"{encoded.reasons[row]}{f'; {more} more of {batch.num_rows} rows do not fit, either' if more else ''}. "
                    "Correct such rows, or filter them out."
                )
            columns[name] = encoded.column
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _spark_partition() -> str:
    """Return which rows an error counts: those of this task's Spark partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "" if context is None else f" of Spark partition {context.partitionId()}"


def _key(batch: pa.RecordBatch, row: int) -> str:
    """Return a row's key as an error names it, where it is a text or a number; empty else."""
    if "key" not in batch.schema.names:
        return ""
    key = batch.column("key")[row].as_py()
    return (
        f", with the key {key if isinstance(key, int) else repr(key[:_LONGEST_KEY])}"
        if isinstance(key, int | str)
        else ""
    )
