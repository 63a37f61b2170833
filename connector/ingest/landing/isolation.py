"""Which few records keep a range from being landed: the range is landed in halves, until only they are left.

This is the net below the known kinds of damaged records. Owns when a record that fails alone is the cause: another record was
landed since the error came first, so that neither the table nor the settings nor the network is the cause. Knows neither Spark nor
tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pykafka_wire.ingest.ranges import middle_of
from pykafka_wire.ingest.tables.position import IsolatedRecord

#: Offsets of one range, half-open, by partition.
Offsets = Mapping[int, int]
#: So many records fail alone before a search ends in which none was landed: the cause is elsewhere.
_MAX_UNPROVEN: Final = 8
#: A record that fails alone is tried so often, since what fails for a moment is no record's.
_MAX_ATTEMPTS: Final = 2
#: So many rejects are written by one commit.
_MAX_TOGETHER: Final = 50
#: A search ends after so long, in seconds; the next attempt goes on behind what was landed.
MAX_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one topic, half-open, by partition."""

    start: Offsets
    end: Offsets

    @property
    def n_offsets(self) -> int:
        return sum(end - self.start[partition] for partition, end in self.end.items())

    def halves(self) -> tuple[Span, Span]:
        """Return two spans in the order of offsets, of which neither is empty."""
        middle = middle_of(self.start, self.end)
        return Span(self.start, middle), Span(middle, self.end)


class SearchPausedError(Exception):
    """A search has ended before the end of its range, as its time is over; what it has landed stays."""


class WriteSpan(Protocol):
    """Lands records by one commit."""

    def __call__(self, read: Span, whole: Span, rejected: Sequence[IsolatedRecord]) -> int:
        """Land the records of ``read`` as rows and ``rejected`` as rejects; both are in ``whole``, the table's next range.

        Returns:
            The number of rows. Records that a table does not take show nothing of the cause.
        """


@dataclass(slots=True, kw_only=True)
class Search:
    """One search for the records of a range that cannot be landed.

    Attributes:
        write: lands what is asked for, or raises.
        reason_of: returns the sentence of an error that a record may be the cause of; None for an error that no record causes,
            which ends the search.
        n_records: returns how many records a span has. Offsets of transactions and of compacted topics have none, and show nothing
            of the cause.
        is_proven: whether a record was landed since the error came first; a search that follows begins with what this one knows.
    """

    write: WriteSpan
    reason_of: Callable[[Exception], str | None]
    n_records: Callable[[Span], int]
    clock: Callable[[], float] = time.monotonic
    is_proven: bool = False
    _suspects: list[IsolatedRecord] = field(default_factory=list)
    _n_found: int = 0

    def land(self, whole: Span) -> int:
        """Land a range, but for the records that cannot be; return how many records were rejected.

        Raises:
            SearchPausedError: the time is over; raised from the last error.
            Exception: what ``write`` has raised, where no record is the cause.
        """
        deadline = self.clock() + MAX_SECONDS
        begin, waiting, last, n_attempts = whole.start, [whole], None, 0
        while waiting:
            has_moved = begin != whole.start or (self.is_proven and bool(self._suspects))
            if last is not None and has_moved and self.clock() >= deadline:
                if self.is_proven and self._suspects:
                    self._land(Span(waiting[-1].start, waiting[-1].start), begin)
                raise SearchPausedError(
                    f"{self._n_found} records were found that cannot be landed; the search for more goes on: {last}"
                ) from last
            span = waiting.pop()
            if self._suspects and not self.is_proven and not self.n_records(span):
                continue  # landed together with what follows, or not at all
            try:
                self.is_proven |= self._land(span, begin) > 0
                begin, n_attempts = span.end, 0
                continue
            except Exception as error:
                if (reason := self.reason_of(error)) is None:
                    raise
                last = error
            if span.n_offsets > 1:
                waiting += reversed(span.halves())
                continue
            n_attempts += 1
            if n_attempts < _MAX_ATTEMPTS:
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
        self._suspects.append(IsolatedRecord(partition, span.start[partition], reason))
