"""The rule by which a micro-batch is written, skipped or refused, for each marker that may be found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.marker import Marker
from pykafka_wire.wire.groups.offsets import CommittedOffset

SEVEN = Marker(query_id="q", batch_id=7, n_records=3, digest="00000000000000ff")


def test_a_marker_is_read_as_it_was_written() -> None:
    committed = SEVEN.to_committed()
    assert committed.offset == 8
    assert len(committed.metadata.encode()) < 4096
    assert Marker.from_committed(committed) == SEVEN


@pytest.mark.parametrize(
    "committed",
    [
        None,
        CommittedOffset(8),
        CommittedOffset(8, metadata="a note of somebody else's"),
        CommittedOffset(8, metadata="[1]"),
        CommittedOffset(8, metadata='{"query": "q"}'),
        CommittedOffset(5, metadata=SEVEN.to_committed().metadata),  # reset by a tool
    ],
)
def test_what_is_no_marker(committed: CommittedOffset | None) -> None:
    assert Marker.from_committed(committed) is None


def test_the_same_micro_batch_is_there_already() -> None:
    assert SEVEN.is_written(SEVEN)
    assert SEVEN.is_written(SEVEN, fail_on_missing=False)


def test_the_one_before_means_that_this_one_is_to_be_written() -> None:
    assert not SEVEN.is_written(replace(SEVEN, batch_id=6, n_records=9, digest="0"))


@pytest.mark.parametrize("changed", [{"n_records": 4}, {"digest": "00000000000000fe"}])
def test_other_rows_under_the_same_number(changed: dict[str, object]) -> None:
    with pytest.raises(ExactlyOnceError, match=r"micro-batch 7 is in Kafka already.*Make it deterministic"):
        SEVEN.is_written(replace(SEVEN, **changed), fail_on_missing=False)  # type: ignore[arg-type]


def test_a_later_one_means_that_the_checkpoint_was_set_back() -> None:
    with pytest.raises(ExactlyOnceError, match="micro-batch 8 is in Kafka already, and the query is at 7"):
        SEVEN.is_written(replace(SEVEN, batch_id=8), fail_on_missing=False)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "there is no marker"),
        (replace(SEVEN, query_id="other", batch_id=6), "the marker is of query other, micro-batch 6"),
        (replace(SEVEN, query_id="other", batch_id=7), "the marker is of query other, micro-batch 7"),
        (replace(SEVEN, batch_id=5), "the marker is of micro-batch 5"),
    ],
)
def test_a_marker_that_is_missing(found: Marker | None, text: str) -> None:
    with pytest.raises(ExactlyOnceError, match=f"{text}.*failOnMissingMarker=false for one start"):
        SEVEN.is_written(found)
    assert not SEVEN.is_written(found, fail_on_missing=False)


@pytest.mark.parametrize("found", [None, replace(SEVEN, query_id="other", batch_id=7)])
def test_a_new_query_needs_none(found: Marker | None) -> None:
    assert not replace(SEVEN, batch_id=0).is_written(found)
