"""Which few records keep a range from being landed, against a plain oracle: no Spark and no brokers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pykafka_wire.ingest.landing import isolation
from pykafka_wire.ingest.landing.isolation import PAUSE_SECONDS, Search, SearchPausedError, Span
from pykafka_wire.ingest.tables.position import RejectedRecord
from tests.connector.ingest.laws.generated import examples

Place = tuple[int, int]


class DamagedError(Exception):
    """What a record causes."""


class NetworkError(Exception):
    """What no record causes."""


@dataclass
class Table:
    """A table as a plain list of places, which takes a span as a whole or not at all."""

    position: dict[int, int]
    bad: set[Place] = field(default_factory=set)
    rows: list[Place] = field(default_factory=list)
    rejects: list[Place] = field(default_factory=list)
    empty: set[Place] = field(default_factory=set)
    fails_at: int | None = None
    refuses_from: float = float("inf")
    n_writes: int = 0
    seconds: float = 0.0
    write_seconds: float = 1.0
    #: Divides spans at random places; None for the middle of their offsets.
    divisions: random.Random | None = None

    def write(self, read: Span, whole: Span, rejected: Sequence[RejectedRecord]) -> int:
        self.n_writes += 1
        self.seconds += self.write_seconds
        if self.n_writes == self.fails_at:
            raise NetworkError
        if self.refuses_from <= self.seconds < self.refuses_from + PAUSE_SECONDS:
            raise DamagedError("an error of the catalog that looks like one of a record")
        assert {p: whole.start[p] for p in self.position} == self.position, "a range begins where the table ends"
        places = [(p, offset) for p, start in read.start.items() for offset in range(start, read.end[p])]
        apart = [(record.partition, record.offset) for record in rejected]
        covered = sorted((p, o) for p, start in whole.start.items() for o in range(start, whole.end[p]))
        assert sorted({*places, *apart} | (self.empty & {*covered})) == covered, "a range has each of its records once"
        assert len(places) + len(apart) == len({*places, *apart})
        if self.bad & set(places):
            raise DamagedError(f"{min(self.bad & set(places))}")
        places = [place for place in places if place not in self.empty]
        self.rows += places
        self.rejects += apart
        self.position = dict(whole.end)
        return len(places)

    def wait(self, seconds: float) -> None:
        self.seconds += seconds

    def middle(self, span: Span) -> dict[int, int] | None:
        if self.divisions is None:
            return None
        middle = {p: self.divisions.randint(start, span.end[p]) for p, start in span.start.items()}
        return None if middle in (dict(span.start), dict(span.end)) else middle

    def search(self) -> Search:
        return Search(
            write=self.write,
            middle=self.middle,
            reason_of=lambda error: str(error) if isinstance(error, DamagedError) else None,
            n_records=lambda span: len(set(all_of(span)) - self.empty),
            clock=lambda: self.seconds,
            pause=self.wait,
        )


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Span, set[Place], set[Place]]:
    starts = draw(st.dictionaries(st.integers(0, 3), st.integers(0, 50), min_size=1))
    ends = {p: start + draw(st.integers(0, 12)) for p, start in starts.items()}
    places = [(p, offset) for p, start in starts.items() for offset in range(start, ends[p])]
    bad = set(draw(st.lists(st.sampled_from(places), unique=True, max_size=6))) if places else set()
    empty = set(draw(st.lists(st.sampled_from(places), unique=True, max_size=6))) - bad if places else set()
    return Span(starts, ends), bad, empty


def all_of(span: Span) -> list[Place]:
    return sorted((p, offset) for p, start in span.start.items() for offset in range(start, span.end[p]))


@examples(2_000)
@given(ranges(), st.none() | st.integers(1, 40), st.none() | st.randoms(use_true_random=False))
def test_every_record_is_a_row_or_a_reject_once_and_only_damaged_ones_are_rejects(
    given: tuple[Span, set[Place], set[Place]], fails_at: int | None, divisions: random.Random | None
) -> None:
    span, bad, empty = given
    table = Table(dict(span.start), bad, empty=empty, fails_at=fails_at, divisions=divisions)
    attempts = 0
    while table.position != dict(span.end):
        attempts += 1
        rest = Span(table.position, span.end)
        try:
            table.search().land(rest)
        except NetworkError:
            assert table.n_writes == fails_at
        except DamagedError:
            left = set(all_of(rest)) - empty
            assert left <= bad or len(left & bad) > isolation._MAX_UNPROVEN, "a good record proves who is the cause"
            break
        assert attempts < 3
    landed = [place for place in all_of(Span(span.start, table.position)) if place not in empty]
    assert sorted(table.rows + table.rejects) == landed, "each once, in order"
    assert set(table.rejects) <= bad
    assert not set(table.rows) & bad


@examples(300)
@given(ranges(), st.integers(0, 60))
def test_a_short_refusal_of_the_catalog_rejects_no_good_record(
    given: tuple[Span, set[Place], set[Place]], n_before: int
) -> None:
    """A catalog refuses several commits in a row, as one that limits the rate of requests."""
    span, bad, empty = given
    assume(span.n_offsets)
    table = Table(dict(span.start), bad, empty=empty, write_seconds=0.2)
    table.refuses_from = n_before * table.write_seconds
    with suppress(DamagedError):
        table.search().land(span)
    assert set(table.rejects) <= bad


def test_a_cause_that_all_records_share_rejects_none_of_them_and_ends_soon() -> None:
    span = Span({0: 0, 1: 0}, {0: 5_000, 1: 5_000})
    table = Table(dict(span.start), set(all_of(span)))
    with pytest.raises(DamagedError):
        table.search().land(span)
    assert (table.rows, table.rejects, table.position) == ([], [], dict(span.start))
    assert table.n_writes < 60


def test_offsets_without_a_record_do_not_show_that_records_are_the_cause() -> None:
    """Each transaction ends with an offset that has no record, and compaction leaves many."""
    span = Span({0: 0}, {0: 40})
    empty = {(0, offset) for offset in range(0, 40, 2)}
    table = Table(dict(span.start), set(all_of(span)) - empty, empty=empty)
    with pytest.raises(DamagedError):
        table.search().land(span)
    assert (table.rows, table.rejects) == ([], [])


def test_what_fails_for_a_moment_rejects_no_record() -> None:
    class Flaky(Table):
        def write(self, read: Span, whole: Span, rejected: Sequence[RejectedRecord]) -> int:
            if read.n_offsets == 1 and read.start[0] not in seen:
                seen.add(read.start[0])
                raise DamagedError("a moment's trouble")
            return super().write(read, whole, rejected)

    span, seen = Span({0: 0}, {0: 30}), set[int]()
    table = Flaky(dict(span.start), {(0, 7)})
    assert table.search().land(span) == 1
    assert (table.rejects, seen) == ([(0, 7)], {7, 8})


def test_one_record_among_many_costs_a_few_writes() -> None:
    span = Span({0: 0}, {0: 1 << 20})

    class Ranges(Table):
        def write(self, read: Span, whole: Span, rejected: Sequence[RejectedRecord]) -> int:
            self.n_writes += 1
            if any(read.start[p] <= offset < read.end[p] for p, offset in self.bad):
                raise DamagedError
            self.rejects += [(record.partition, record.offset) for record in rejected]
            self.position = dict(whole.end)
            return sum(end - read.start[p] for p, end in read.end.items())

    table = Ranges(dict(span.start), {(0, 700_000)})
    assert table.search().land(span) == 1
    assert (table.rejects, table.position) == ([(0, 700_000)], {0: 1 << 20})
    assert table.n_writes <= 45


def test_a_long_search_keeps_what_it_has_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MAX_SECONDS", 20.0)
    span = Span({0: 0}, {0: 200})
    bad = {(0, offset) for offset in (*range(0, 60, 3), *range(100, 190))}
    table, n_searches, is_proven = Table(dict(span.start), bad), 0, False
    while table.position != dict(span.end):
        n_searches += 1
        search = table.search()
        search.is_proven = is_proven
        search.clock = lambda begun=table.seconds: table.seconds - begun  # type: ignore[misc]
        try:
            search.land(Span(table.position, span.end))
        except SearchPausedError as error:
            assert isinstance(error.__cause__, DamagedError)
        is_proven = search.is_proven
        assert n_searches < 100
    assert n_searches > 3
    assert sorted(table.rejects) == sorted(bad)
    assert sorted(table.rows + table.rejects) == all_of(span)
