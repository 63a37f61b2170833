"""The digest of a micro-batch: a number for its rows that a second computation of the same rows has again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.wire.records.arrays import binary_array, binary_scalar


def digest_of(records: RecordColumns) -> int:
    """The sum of a CRC-32C for each row: independent of the rows' order, of their split into Arrow batches and into tasks.

    Record timestamps do not count, because a null one becomes the time of writing. Partitions count only where a column
    names them.
    """
    partition = None if records.partition is None else records.partition.cast(pa.string())
    headers = (
        None if records.headers is None else binary_array([repr(each).encode() for each in records.headers.to_pylist()])
    )
    columns = [records.key, records.value, records.topic, partition, headers]
    present = [array.cast(pa.binary()) for array in columns if array is not None]
    joined = pc.binary_join_element_wise(
        *present, binary_scalar(b"\0"), null_handling="replace", null_replacement=b"\0null"
    )
    return sum(map(crc32c, joined.to_pylist()))
