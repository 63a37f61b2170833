"""The rule by which a micro-batch is written, skipped or refused, for each marker that may be found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision, decide, marker_of
from pykafka_wire.sink.exactly_once.marker import FoundMarker, Marker, UnreadableMarker

SEVEN = Marker(query_id="q", batch_id=7, n_records=3, digest="00000000000000ff")
ZERO = replace(SEVEN, batch_id=0)
RESET = UnreadableMarker(description="offset 8 with the metadata '', which is no marker")


@pytest.mark.parametrize("batch", [ZERO, SEVEN])
@pytest.mark.parametrize("fail_on_missing", [True, False])
def test_the_same_micro_batch_is_in_kafka_already(batch: Marker, fail_on_missing: bool) -> None:
    assert decide(batch, batch, fail_on_missing=fail_on_missing, id_has_committed=True) is Decision.SKIP


def test_after_the_one_before_this_one_is_written() -> None:
    assert decide(SEVEN, replace(SEVEN, batch_id=6, n_records=9, digest="0")) is Decision.WRITE


@pytest.mark.parametrize("changed", [{"n_records": 4}, {"digest": "00000000000000fe"}])
def test_other_rows_under_the_same_number_are_refused_or_kept_out(changed: dict[str, object]) -> None:
    found = replace(SEVEN, **changed)  # type: ignore[arg-type]
    text = r"micro-batch 7 is in Kafka already.*or the registry has a newer schema.*onMarkerMismatch=skip.*or set valueSchema"
    with pytest.raises(ExactlyOnceError, match=text):
        decide(SEVEN, found, fail_on_missing=False)
    assert decide(SEVEN, found, keep_on_mismatch=True) is Decision.KEEP


def test_a_later_one_means_that_the_checkpoint_was_set_back() -> None:
    with pytest.raises(ExactlyOnceError, match="micro-batch 8 is in Kafka already, and the query is at 7"):
        decide(SEVEN, replace(SEVEN, batch_id=8), fail_on_missing=False, keep_on_mismatch=True)


@pytest.mark.parametrize("batch", [ZERO, SEVEN])
def test_a_newer_version_is_refused_always(batch: Marker) -> None:
    newer = UnreadableMarker(description="a marker of version 3", version=3)
    with pytest.raises(ExactlyOnceError, match=r"has version 3, and this pykafka-wire reads up to 2.*Upgrade"):
        decide(batch, newer, fail_on_missing=False, keep_on_mismatch=True)


@pytest.mark.parametrize(
    ("batch", "found", "text"),
    [
        (SEVEN, None, "there is no marker"),
        (SEVEN, RESET, "offset 8 with the metadata '', which is no marker"),
        (SEVEN, replace(SEVEN, query_id="other", batch_id=6), "the marker is of query other, micro-batch 6"),
        (SEVEN, replace(SEVEN, query_id="other", batch_id=7), "the marker is of query other, micro-batch 7"),
        (SEVEN, replace(SEVEN, batch_id=5), "the marker is of micro-batch 5"),
        (ZERO, replace(SEVEN, query_id="other", batch_id=0), "the marker is of query other, micro-batch 0"),
        (ZERO, replace(SEVEN, query_id="other", batch_id=9), "the marker is of query other, micro-batch 9"),
        (ZERO, RESET, "offset 8 with the metadata '', which is no marker"),
    ],
)
def test_a_marker_that_is_missing(batch: Marker, found: FoundMarker, text: str) -> None:
    with pytest.raises(ExactlyOnceError, match=f"{text}.*it is unknown.*failOnMissingMarker=false for one start"):
        decide(batch, found)
    assert decide(batch, found, fail_on_missing=False) is Decision.WRITE


def test_a_new_query_needs_none_unless_its_id_has_committed() -> None:
    assert decide(ZERO, None) is Decision.WRITE
    with pytest.raises(ExactlyOnceError, match=r"its kafka.transactional.id has committed a transaction"):
        decide(ZERO, None, id_has_committed=True)
    assert decide(ZERO, None, id_has_committed=True, fail_on_missing=False) is Decision.WRITE


@pytest.mark.parametrize(
    "own", [None, RESET, replace(SEVEN, batch_id=5), replace(SEVEN, query_id="other", batch_id=9)], ids=str
)
def test_a_later_marker_under_another_topic_means_that_the_marker_topic_has_changed(own: FoundMarker) -> None:
    text = r"markerTopic is new, and the marker of query q, of micro-batch 6, is under the topic old: set markerTopic=old\."
    with pytest.raises(ExactlyOnceError, match=text):
        marker_of(SEVEN, {"old": replace(SEVEN, batch_id=6), "new": own}, "new")


@pytest.mark.parametrize("other", [RESET, replace(SEVEN, batch_id=5), replace(SEVEN, query_id="other", batch_id=9)])
def test_under_another_topic_an_older_marker_or_another_querys_says_nothing(other: FoundMarker) -> None:
    six = replace(SEVEN, batch_id=6)
    assert marker_of(SEVEN, {"old": other, "new": six}, "new") == six
    assert marker_of(SEVEN, {"old": RESET}, "new") is None
