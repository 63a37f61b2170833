"""Measures the record batches at the beginning of offset ranges, by one Fetch to each leader, so that work can be shared out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.fetch.batch_scan import scan_batches
from pykafka_wire.wire.protocol.messages.fetch import (
    TOPIC_ID_VERSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition, group_by_topic

#: Four batches of Java's default batch.size are a large enough sample; the first batch is complete whatever its size (KIP-74).
_SAMPLE_BYTES: Final = 65_536
#: Where a range holds nothing yet, its leader is not to wait for it.
_SAMPLE_WAIT_MS: Final = 10
_NO_END: Final = 2**63 - 1


class Sample(NamedTuple):
    """Size of some whole record batches, and the width of the offsets that they cover."""

    n_bytes: int
    n_offsets: int


def sample_batches(cluster: Cluster, ranges: Sequence[OffsetRange]) -> dict[str, Sample]:
    """Return, by topic, the size of the first batches of `ranges`, of which each topic should have one; all leaders are asked at
    the same time. A topic that gave no whole batch is left out.

    Raises:
        WireError: as :meth:`Cluster.by_leader`.
    """
    starts = {range_.topic_partition: range_.start_offset for range_ in ranges if range_.n_offsets}
    ids = {tp.topic: cluster.metadata.topic_id(tp.topic) for tp in starts}
    names = {topic_id: topic for topic, topic_id in ids.items()}

    def build(partitions: Sequence[TopicPartition]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=_SAMPLE_WAIT_MS,
            min_bytes=1,
            max_bytes=_SAMPLE_BYTES * len(partitions),
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=ids[name],
                    partitions=[
                        FetchPartition(
                            partition=tp.partition,
                            current_leader_epoch=cluster.metadata.leader(tp)[1],
                            fetch_offset=starts[tp],
                            partition_max_bytes=_SAMPLE_BYTES,
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in group_by_topic(partitions).items()
            ],
        )

    def results(response: FetchResponse) -> Iterable[tuple[TopicPartition, int, Sample]]:
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                yield tp, data.error_code, _measure(data.records)

    by_id = ZERO_UUID not in names
    samples = cluster.by_leader(starts, build, results, version_cap=None if by_id else TOPIC_ID_VERSION - 1)
    return {tp.topic: sample for tp, sample in samples.items() if sample.n_offsets > 0}


def _measure(records: memoryview | None) -> Sample:
    if not records or len(records) < 8:
        return Sample(0, 0)
    first_offset = int.from_bytes(records[:8], "big", signed=True)
    scan = scan_batches(memoryview(records), first_offset, _NO_END)
    return Sample(scan.n_bytes, scan.next_offset - first_offset)
