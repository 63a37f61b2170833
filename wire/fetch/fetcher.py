"""Reads bounded ranges of topic-partitions into columns, as fast as their leaders answer.

Owns the one call for it and its defaults; :mod:`~pykafka_wire.wire.fetch.range_read` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.fetch.fetched import FetchCounters, FetchedRecords
from pykafka_wire.wire.fetch.range_read import RangeRead
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.topics import OffsetRange

__all__ = ["FetchCounters", "FetchedRecords", "fetch_ranges"]

#: Most bytes of one answer and of one partition in it. An answer is decoded as a whole, so this is also the unit of
#: memory: about two answers per leader are held.
DEFAULT_MAX_BYTES: Final = 8 * 1024 * 1024
DEFAULT_MAX_PARTITION_BYTES: Final = 4 * 1024 * 1024
#: How long a range's end may stay above what the leader serves. A new leader's high watermark does not rise until a dead
#: follower has left the in-sync replicas. Leaders look for such followers every half of replica.lag.time.max.ms (30 s by
#: default), so it takes up to 1.5 times that, 45 s, and the controller has to agree.
DEFAULT_END_WAIT_MS: Final = 60_000


def fetch_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    *,
    columns: Columns,
    isolation_level: str | None = None,
    max_bytes: int | None = None,
    max_partition_bytes: int | None = None,
    deadline_ms: int = 120_000,
    end_wait_ms: int = DEFAULT_END_WAIT_MS,
    counters: FetchCounters | None = None,
) -> Iterator[FetchedRecords]:
    """The records of `ranges` in chunks, each about one Fetch answer; ends when every position has reached its range's
    end.

    Gaps (compaction, control batches, aborted transactions) are stepped over: a range may hold fewer records than
    offsets. The columns are copies, safe to keep. Memory: about two answers per leader.

    Args:
        isolation_level: ``read_committed`` or ``read_uncommitted``; the settings' own when None. With
            ``read_committed`` the last stable offset bounds what can be read, so a range should end there.
        max_bytes, max_partition_bytes: bounds of an answer and of one partition in it; the settings' own, else 8 and 4
            MiB.
        deadline_ms: a range that makes no progress for so long fails; time spent by the caller between chunks is not
            counted.
        end_wait_ms: the same while the range's end lies above the high watermark (or the last stable offset).
        counters: is kept up to date while the read goes on.

    Raises:
        OffsetOutOfRangeError: a position is not in the log; holds the log's bounds.
        LogEndError: the end stayed above what the leader serves; its ``log_end_offset`` says whether the records exist.
        LogTruncatedError: records before a position vanished after a change of leader.
        TopicRecreatedError, UnknownTopicError: the topic is another one, or gone.
        CorruptBatchError: a batch was bad twice in a row.
        RecordTooLargeError: one batch is larger than :data:`~pykafka_wire.wire.fetch.range_read.MAX_BATCH_BYTES`.
        DeadlineExceededError: no progress; chained to the last cause.
        BrokerError: the broker refused, without hope of better.
    """
    return RangeRead(
        cluster,
        ranges,
        columns=columns,
        read_committed=(isolation_level or cluster.settings.isolation_level) == "read_committed",
        max_bytes=max_bytes or cluster.settings.fetch_max_bytes or DEFAULT_MAX_BYTES,
        max_partition_bytes=(
            max_partition_bytes or cluster.settings.max_partition_fetch_bytes or DEFAULT_MAX_PARTITION_BYTES
        ),
        deadline_ms=deadline_ms,
        end_wait_ms=min(end_wait_ms, deadline_ms),
        counters=counters if counters is not None else FetchCounters(),
    ).run()
