"""Turns one Fetch response into columns: what a bounded read hands out.

Owns the shape of a read's results, the second try for corrupt batches, and the bound on how much is held decoded. It
sends nothing and knows no broker; :mod:`~pykafka_wire.wire.fetch.range_read` sends,
:mod:`~pykafka_wire.wire.records.decode` decodes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from pykafka_wire.wire.arrow.arrays import repeat_text, to_arrow
from pykafka_wire.wire.errors import CorruptBatchError, WireError
from pykafka_wire.wire.fetch.batch_scan import BatchScan, consumed_bytes, leader_epoch_before
from pykafka_wire.wire.fetch.range_progress import RangeProgress
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.decode import Columns, DecodedRecords, decode
from pykafka_wire.wire.topic_partitions import OffsetRange

logger = logging.getLogger(__name__)

#: The first two responses of a read are small: its caller may want the first rows only. A caller that wants more usually wants
#: all, so the size then grows by ``_GROWTH``: by doubling, a read of 100 MB took a third more responses, and up to 10 % more CPU.
#: The responses shrink again if their decoded records are much larger than the received bytes (compression): about
#: ``_RESPONSE_BYTES`` in all.
_FIRST_MAX_BYTES: Final = 256 * 1024
_GROWTH: Final = 8
#: A read that needs no more than this is done with one response.
_FITTING_BYTES: Final = 2 * 1024 * 1024
_MIN_RESPONSE_BYTES: Final = 256 * 1024
_RESPONSE_BYTES: Final = 48 * 1024 * 1024
#: Of a response, decompressed at a time. While it is decoded it takes some three times as much.
_PIECE_BYTES: Final = 8 * 1024 * 1024
#: The same in records, of which empty ones are 7 bytes each: what is decoded takes some 100 bytes for each.
_PIECE_RECORDS: Final = 1 << 18
#: Records of this size or more on average, as fetched, are large. Decoding takes memory for each record and time for each response:
#: of large records a response of 8 MiB takes little more memory than one of 4, and is read at 1.05 to 1.3 times the rate.
_LARGE_RECORD_BYTES: Final = 512


@dataclass(slots=True)
class FetchCounters:
    """What a read did so far: responses, bytes of record batches and records handed out (:class:`FetchedRecords`), retries."""

    n_responses: int = 0
    n_bytes: int = 0
    n_records: int = 0
    n_retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """The records of one Fetch response or a piece of it, many topic-partitions together.

    Attributes:
        ranges: the ranges that were asked for, all of them, always the same sequence.
        records: the columns; ``slice_index`` indexes `ranges`. Grouped by range, in offset order within each.
        positions: for each index of `ranges` that has moved, the offset up to which it is handed out, this chunk
            included.
        n_bytes: size of the record batches that are handed out to their end, as fetched; of a batch that a range begins or ends
            in, the share of its offsets that the range has.
    """

    ranges: Sequence[OffsetRange]
    records: DecodedRecords
    positions: Mapping[int, int]
    n_bytes: int


def topic_column(records: DecodedRecords, ranges: Sequence[OffsetRange]) -> pa.Array:
    """Return a pa.StringArray of each record's topic."""
    topics = list(dict.fromkeys(r.topic for r in ranges))
    if len(topics) == 1:
        return repeat_text(topics[0], records.n_records)
    names = pa.concat_arrays([repeat_text(topic, 1) for topic in topics])
    topic_index = np.array([topics.index(r.topic) for r in ranges], dtype=np.int32)
    return names.take(to_arrow(topic_index.take(records.slice_index)))


def partition_column(records: DecodedRecords, ranges: Sequence[OffsetRange]) -> pa.Array:
    """Return a pa.Int32Array of each record's partition."""
    return to_arrow(np.array([r.partition for r in ranges], dtype=np.int32).take(records.slice_index))


@dataclass(slots=True)
class ChunkPart:
    """One range's share of a response: its whole batches, and the position after them."""

    progress: RangeProgress
    slice: RecordSlice
    next_offset: int
    #: Of the last batch, -1 if unknown.
    leader_epoch: int = -1
    #: Of its batches, what belongs to the range's offsets.
    n_bytes: int = 0
    #: Whether its CRCs have been checked: with the first piece of a response, those of all.
    is_checked: bool = False


@dataclass(slots=True)
class Chunk:
    """What one response from `node` brought, not decoded yet; the parts are views of its frame. Node -1: what was kept of earlier
    responses."""

    node: int
    parts: list[ChunkPart] = field(default_factory=list)

    def add(
        self,
        progress: RangeProgress,
        records: memoryview,
        scan: BatchScan,
        position: int,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Put up for decoding what was scanned of `records` from `position` on, if there is any."""
        if scan.n_bytes:
            slice_ = RecordSlice(
                records=records[: scan.n_bytes],
                start_offset=position,
                end_offset=progress.range.end_offset,
                aborted=aborted,
                batch_starts=scan.batch_starts,
            )
            n_bytes = consumed_bytes(records, scan, position, progress.range.end_offset)
            self.parts.append(ChunkPart(progress, slice_, scan.next_offset, scan.leader_epoch, n_bytes))


class ChunkDecoder:
    """Decodes the chunks of one read.

    Attributes:
        max_bytes: how much to ask for in one response, at present.
        has_large_records: whether those of the last response were large, so that one partition may fill a response.
    """

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        columns: Columns,
        *,
        read_committed: bool,
        check_crc: bool,
        max_bytes: int,
        counters: FetchCounters,
    ) -> None:
        self._ranges = ranges
        self._columns = columns
        self._read_committed = read_committed
        self._check_crc = check_crc
        self._counters = counters
        self._limit_bytes = max_bytes
        self.max_bytes = min(max_bytes, _FIRST_MAX_BYTES)
        self.has_large_records = False

    def fit(self, n_bytes: int) -> None:
        """Let the first response have all that the read needs, if that is known and little."""
        if n_bytes <= _FITTING_BYTES:
            self.max_bytes = max(self.max_bytes, min(n_bytes, self._limit_bytes))

    def shrink(self) -> None:
        """Ask for half as much from now on: a response was so large that it did not come through in time."""
        self.max_bytes = self._limit_bytes = max(1, self.max_bytes // 2)

    def decode(self, chunk: Chunk) -> Iterator[FetchedRecords]:
        """Yield the records of `chunk`, as one or, where they unpack to much, in pieces; without any records where all
        batches were empty, control batches or aborted: positions move all the same.

        Takes the parts out of `chunk`, so that the response's frame is freed before the caller works on the last piece,
        unless large values are in it.

        If a batch is corrupt, every part is decoded by itself, and those that fail are rewound, to be fetched once
        more.

        Raises:
            CorruptBatchError: a batch was corrupt for the second time.
            WireError: what the decoder raises else, with the topic-partition.
        """
        if not chunk.parts:
            return
        n_bytes, decoded_bytes, n_records = sum(len(part.slice.records) for part in chunk.parts), 0, 0
        groups, chunk.parts = [chunk.parts], []
        while groups:
            parts = groups.pop()
            try:
                fetched, rest = self._decode(parts)
            except CorruptBatchError as error:
                if len(parts) == 1:
                    self._fetch_again(parts[0], error, chunk.node)
                else:
                    logger.warning("broker %d: a corrupt batch is fetched once more: %s", chunk.node, error)
                    groups += [[part] for part in reversed(parts)]
                continue
            if rest:
                groups.append(rest)
            decoded_bytes += _size(fetched.records)
            n_records += fetched.records.n_records
            del parts, rest
            yield fetched
            del fetched
        self._adapt_max_bytes(n_bytes, decoded_bytes)
        self.has_large_records = 0 < n_records * _LARGE_RECORD_BYTES <= n_bytes

    def _fetch_again(self, part: ChunkPart, error: CorruptBatchError, node: int) -> None:
        progress, start_offset = part.progress, part.slice.start_offset
        if not progress.fetch_again(start_offset):
            raise CorruptBatchError(
                f"{error.message} (the same after it was fetched once more)",
                topic=progress.range.topic,
                partition=progress.range.partition,
                offset=start_offset if error.offset is None else error.offset,
                broker=node,
                api="Fetch",
                remedy=error.remedy,
            ) from error
        self._counters.n_retries += 1

    def _decode(self, parts: Sequence[ChunkPart]) -> tuple[FetchedRecords, list[ChunkPart]]:
        """Return what there was room for, and the parts that are left."""
        try:
            records = decode(
                [part.slice for part in parts],
                self._columns,
                read_committed=self._read_committed,
                check_crc=self._check_crc and not any(part.is_checked for part in parts),
                budget_bytes=_PIECE_BYTES,
                budget_records=_PIECE_RECORDS,
                may_overwrite=True,
            )
        except WireError as error:
            if len(parts) == 1 and error.topic is None:
                error.topic, error.partition = parts[0].progress.topic_partition
            raise
        for part in parts:
            if part.next_offset <= part.slice.start_offset:
                # The scan of the headers found no valid batch, but the decoder accepted all it found.
                raise CorruptBatchError(
                    "a batch whose length is invalid",
                    topic=part.progress.range.topic,
                    partition=part.progress.range.partition,
                    offset=part.slice.start_offset,
                )
        rest: list[ChunkPart] = []
        positions = {}
        n_bytes = 0
        for nth, part in enumerate(parts):
            position, leader_epoch = part.next_offset, part.leader_epoch
            if nth in records.unfinished:
                position = int(records.next_offsets[nth])
                leader_epoch = leader_epoch_before(part.slice.records, part.slice.batch_starts or (), position)
                rest.append(replace(part, slice=replace(part.slice, start_offset=position), is_checked=True))
            else:
                n_bytes += part.n_bytes
            positions[part.progress.index] = position
            part.progress.deliver(position, leader_epoch)
        self._counters.n_bytes += n_bytes
        self._counters.n_records += records.n_records
        indexes = np.array([part.progress.index for part in parts], dtype=np.int32)
        fetched = FetchedRecords(
            ranges=self._ranges,
            records=replace(records, slice_index=indexes.take(records.slice_index)),
            positions=positions,
            n_bytes=n_bytes,
        )
        return fetched, rest

    def _adapt_max_bytes(self, n_bytes: int, decoded_bytes: int) -> None:
        """Set how much to ask for next, from how much a response of `n_bytes` came to when decoded."""
        fitting = n_bytes * _RESPONSE_BYTES // max(1, decoded_bytes)
        self.max_bytes = max(
            min(fitting, _GROWTH * self.max_bytes, self._limit_bytes), min(_MIN_RESPONSE_BYTES, self._limit_bytes)
        )


def _size(records: DecodedRecords) -> int:
    columns = (records.key, records.value, records.headers)
    return 24 * records.n_records + sum(int(column.nbytes) for column in columns if column is not None)
