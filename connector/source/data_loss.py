"""Reports lost records: as an error, or with ``failOnDataLoss=false`` as a count, a log line and a row in the ledger.

The ledger (``dataLossLedger``) is a folder of Parquet files, one for each lost range. The query, the cause and the first lost
offset make the file's name, so that a batch or a task that runs again replaces its row.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pykafka_wire.errors import DataLossError, LedgerError, Loss, describe_loss
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.places import open_folder
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition, topic_id_text

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_log = logging.getLogger(__name__)

#: ``(topic_partition, first lost offset, end of the lost range)``; -1 where unknown.
LostRange = tuple[TopicPartition, int, int]

LEDGER_SCHEMA: Final = pa.schema(
    [
        pa.field("query", pa.string()),  # the checkpoint's query id, null for a batch read
        pa.field("cause", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),  # exclusive; null where the end of the log is unknown
        pa.field("detected_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("detail", pa.string()),
    ]
)


class DataLossReporter:
    """Reports the losses of one query, or of one of its tasks.

    Attributes:
        n_ranges, n_offsets: what was skipped so far; ranges of unknown length count in the first only.
    """

    def __init__(self, options: SourceOptions, *, query: str = "") -> None:
        self._fail = options.fail_on_data_loss
        self._ledger = open_folder(options.data_loss_ledger, "dataLossLedger") if options.data_loss_ledger else None
        self._query = query
        #: Where the last reported loss of each cause begins, by topic-partition: an idle query finds it again and again.
        self._last_reported: dict[tuple[Loss, TopicPartition], int] = {}
        self.n_ranges = 0
        self.n_offsets = 0

    def report(
        self,
        loss: Loss,
        lost: Sequence[LostRange],
        *,
        detail: str = "",
        query: str = "",
        topic_ids: Mapping[str, uuid.UUID] | None = None,
    ) -> None:
        """Fail with the ``lost`` ranges, or count, log and record them, once.

        Raises:
            DataLossError: ``failOnDataLoss`` is true.
            LedgerError: the ledger cannot be written; going on would lose the records in silence.
        """
        if lost and self._fail:
            raise DataLossError(loss, lost, detail)
        new = [entry for entry in lost if self._last_reported.get((loss, entry[0])) != entry[1]]
        if not new:
            return
        _log.warning("Records are lost, and the query continues without them: %s", describe_loss(loss, new, detail))
        if self._ledger:
            write_ledger(*self._ledger, loss, new, query=query or self._query, topic_ids=topic_ids or {}, detail=detail)
        self._last_reported |= {(loss, tp): start for tp, start, _ in new}
        self.n_ranges += len(new)
        self.n_offsets += sum(end - start for _, start, end in new if 0 <= start < end)


def write_ledger(
    filesystem: FileSystem,
    folder: str,
    loss: Loss,
    lost: Sequence[LostRange],
    *,
    query: str,
    topic_ids: Mapping[str, uuid.UUID],
    detail: str,
) -> None:
    """Write one Parquet file for each of ``lost`` into a folder."""
    import pyarrow.parquet  # slow to load in every worker, and hardly any has losses to report

    now = datetime.now(timezone.utc)
    try:
        filesystem.create_dir(folder, recursive=True)
        for tp, start, end in lost:
            topic_id = topic_ids.get(tp.topic, ZERO_UUID)
            row = {
                "query": query or None,
                "cause": loss.name,
                "topic": tp.topic,
                "topic_id": None if topic_id == ZERO_UUID else topic_id_text(topic_id),
                "partition": tp.partition,
                "start_offset": None if start < 0 else start,
                "end_offset": None if end < 0 else end,
                "detected_at": now,
                "detail": detail or None,
            }
            identity = [row[name] for name in ("query", "cause", "topic", "topic_id", "partition", "start_offset")]
            name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
            # Readers of Parquet folders pass over names that begin with a dot: they never see half a file.
            unfinished = f"{folder}/.{name}-{uuid.uuid4().hex}"
            pyarrow.parquet.write_table(
                pa.Table.from_pylist([row], schema=LEDGER_SCHEMA), unfinished, filesystem=filesystem
            )
            filesystem.move(unfinished, f"{folder}/{name}.parquet")
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(
            f"the lost ranges {', '.join(str(entry[0]) for entry in lost[:5])} could not be written to dataLossLedger "
            f"{folder} ({error}): without it the records would be skipped silently. Check the path and its permissions."
        ) from error
