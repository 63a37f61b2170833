"""Finds the few records that keep a range from being landed: lands the range in halves, until only these records are left.

This search is for records whose damage no other check recognises. It decides when a record is the cause of an error: the record
fails alone, and another record was landed since the first error, so neither the table nor the settings nor the network is the
cause. Knows neither Spark nor tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pykafka_wire.ingest.records.ranges import middle_of
from pykafka_wire.ingest.tables.position import RejectedRecord

#: Offsets of one range, half-open, by partition.
Offsets = Mapping[int, int]
#: A search ends after this many records have failed and none was landed: records are not the cause.
_MAX_UNPROVEN: Final = 8
#: Attempts for a single record, and the seconds between two attempts: a temporary error is not the record's fault.
_MAX_ATTEMPTS: Final = 2
PAUSE_SECONDS: Final = 1.0
#: The most rejects in one commit.
_MAX_TOGETHER: Final = 50
#: The longest search in seconds. The next attempt continues after the records that were landed.
MAX_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one topic, half-open, by partition."""

    start: Offsets
    end: Offsets

    @property
    def n_offsets(self) -> int:
        return sum(end - self.start[partition] for partition, end in self.end.items())

    def halves(self, middle: Offsets | None = None) -> tuple[Span, Span]:
        """Return two spans in the order of offsets, of which neither is empty.

        Args:
            middle: where the second span begins; None for half of the offsets of each partition.
        """
        middle = middle_of(self.start, self.end) if middle is None else middle
        return Span(self.start, middle), Span(middle, self.end)


class SearchPausedError(Exception):
    """The search reached its time limit before the end of its range. Records that it has landed stay landed."""


class WriteSpan(Protocol):
    """Lands records by one commit."""

    def __call__(self, read: Span, whole: Span, rejected: Sequence[RejectedRecord]) -> int:
        """Commit the records of ``read`` as rows, and ``rejected`` as rejects. Both are inside ``whole``, the table's next range.

        Returns:
            The number of rows. It may be 0 if the table does not take the records; then the records prove nothing about the cause.
        """


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for the records of a range that cannot be landed.

    Attributes:
        write: commits records, or raises an error.
        reason_of: returns the sentence of an error that a record may have caused; None for any other error, which ends the search.
        n_records: returns the number of records in a span. A span of transaction markers or compacted records has no records, and
            proves nothing about the cause.
        middle: returns where a span is divided, if its records have an order that offsets do not show: as :meth:`Span.halves`.
        is_proven: whether a record was landed since the first error. Pass the value to the next search of the same range.
    """

    write: WriteSpan
    reason_of: Callable[[Exception], str | None]
    n_records: Callable[[Span], int]
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    middle: Callable[[Span], Offsets | None] = lambda _: None
    is_proven: bool = False
    _suspects: list[RejectedRecord] = field(default_factory=list)
    _n_found: int = 0

    def land(self, whole: Span) -> int:
        """Land a range except for the records that cannot be landed; return the number of rejected records.

        Raises:
            SearchPausedError: the time limit is reached; raised from the last error.
            Exception: an error of ``write`` that no record has caused.
        """
        deadline = self.clock() + MAX_SECONDS
        begin, waiting, last, n_attempts = whole.start, [whole], None, 0
        while waiting:
            has_moved = begin != whole.start or (self.is_proven and bool(self._suspects))
            if last is not None and has_moved and self.clock() >= deadline:
                if self.is_proven and self._suspects:
                    self._land(Span(waiting[-1].start, waiting[-1].start), begin)
                raise SearchPausedError(
                    f"{self._n_found} records that cannot be landed were found; the search for more continues: {last}"
                ) from last
            span = waiting.pop()
            if self._suspects and not self.is_proven and not self.n_records(span):
                continue  # the span has no records: a later commit covers its offsets, if there is one
            try:
                self.is_proven |= self._land(span, begin) > 0
                begin, n_attempts = span.end, 0
                continue
            except Exception as error:
                if (reason := self.reason_of(error)) is None:
                    raise
                last = error
            if span.n_offsets > 1:
                waiting += reversed(span.halves(self.middle(span)))
                continue
            n_attempts += 1
            if n_attempts < _MAX_ATTEMPTS:
                self.pause(PAUSE_SECONDS)
                waiting.append(span)
                continue
            n_attempts = 0
            self._suspect(span, reason)
            if not self.is_proven and len(self._suspects) >= _MAX_UNPROVEN:
                raise last
            if self.is_proven and len(self._suspects) >= _MAX_TOGETHER:
                self._land(Span(span.end, span.end), begin)
                begin = span.end
        if self._suspects:
            if not self.is_proven:
                assert last is not None, "a record has failed"
                raise last
            self._land(Span(whole.end, whole.end), begin)
        return self._n_found

    def _land(self, read: Span, begin: Offsets) -> int:
        n_rows = self.write(read, Span(begin, read.end), self._suspects)
        self._n_found += len(self._suspects)
        self._suspects = []
        return n_rows

    def _suspect(self, span: Span, reason: str) -> None:
        (partition,) = (p for p, end in span.end.items() if end > span.start[p])
        self._suspects.append(RejectedRecord(partition, span.start[partition], reason))
