"""Spark's writer for ``deliveryGuarantee=exactly-once``: tasks encode, and the driver commits.

Spark runs a task again, speculates, and repeats a whole micro-batch after a crash. So tasks send nothing
(:mod:`~pykafka_wire.sink.exactly_once.task`), and the driver is the only producer: it writes each micro-batch and its marker in
one transaction (:mod:`~pykafka_wire.sink.exactly_once.commit`), or nothing where the marker says that the micro-batch is in
Kafka already (:mod:`~pykafka_wire.sink.exactly_once.decision`).
"""

from __future__ import annotations

import logging

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.size_limit import default_max_bytes, missing_result_limit
from pykafka_wire.sink.exactly_once.task import EncodingTaskWriter
from pykafka_wire.sink.writer import KafkaStreamWriter
from pykafka_wire.wire.process_clients import shared_cluster

_log = logging.getLogger(__name__)


class ExactlyOnceStreamWriter(KafkaStreamWriter):
    """Writes each micro-batch's rows in a transaction of its own. Built without any request to a broker."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Spark builds a writer on the driver, also the one that it pickles for the tasks.
        self._max_bytes = exactly_once.max_bytes or default_max_bytes()
        _warn_of_result_limit(exactly_once.transactional_id)
        self._task_writer = EncodingTaskWriter(options, schema, self._max_bytes)
        self._exactly_once = exactly_once

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Writes the micro-batch, unless it is in Kafka already.

        Raises:
            ExactlyOnceError: it was not written, or its outcome is unknown; the text says which, and why.
        """
        cluster = shared_cluster(self._options.client)
        MicroBatchCommit(cluster, self._exactly_once, batchId, max_bytes=self._max_bytes).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: no task has sent anything, and a failed commit has ended its transaction."""


def _warn_of_result_limit(transactional_id: str) -> None:
    """Warn, before any task of a query's first micro-batch, of a driver whose heap its tasks' results may exceed."""
    # Spark builds a writer for every micro-batch.
    if is_first(transactional_id, "result limit") and (setting := missing_result_limit()) is not None:
        _log.warning(
            "Encoded micro-batches pass through the driver. The results of many tasks may exceed its heap before the sink can "
            "count them. Set %s, so that Spark stops such a micro-batch",
            setting,
        )
