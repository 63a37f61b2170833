"""Where a checkpoint stands, and what a micro-batch of it read: checkpoints of both connectors, whole and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.checkpoints.files import StoredFiles
from pykafka_wire.checkpoints.positions import Beginning, QueryPosition, beginning_of, position_at, ranges_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.query_offsets import nest_by_topic
from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.errors import OffsetsError
from tests.connector.written_checkpoint import PLANNED_MS, ours, write_checkpoint

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
JVM = GOLDEN / "refused" / "jvm-connector"


def every(_: Any) -> bool:
    return True


def position(place: str, is_wanted: Callable[[Any], bool] = every) -> QueryPosition:
    reference = parse_reference(place, "startingOffsets")
    return position_at(QueryLog(StoredFiles(reference.path, "startingOffsets")), reference, is_wanted)


def stands(place: str, is_wanted: Callable[[Any], bool] = every) -> dict[str, dict[str, int]]:
    return nest_by_topic(position(place, is_wanted).offsets.offsets)


def ranges(place: str, is_wanted: Callable[[Any], bool] = every) -> list[str]:
    reference = parse_reference(place, "microBatch")
    return [str(r) for r in ranges_of(QueryLog(StoredFiles(reference.path, "microBatch")), reference, is_wanted)]


def test_a_query_stands_at_the_end_of_its_newest_committed_micro_batch() -> None:
    begun = GOLDEN / "checkpoints" / "v1-batch-1-begun"
    assert stands(str(begun)) == {"golden-orders": {"0": 3, "1": 2}}
    assert position(str(begun)).batch_id == 0
    planned = position(f"{begun}#1")
    assert nest_by_topic(planned.offsets.offsets) == {"golden-orders": {"0": 5, "1": 4}}
    assert not planned.is_committed
    assert planned.offsets.topic_ids and planned.offsets.epochs


def test_a_query_without_a_commit_stands_at_its_own_start(tmp_path: Path) -> None:
    begun = GOLDEN / "checkpoints" / "v1-batch-0-begun"
    assert stands(str(begun)) == {"golden-orders": {"0": 1, "1": 2}}
    jvm = write_checkpoint(tmp_path / "jvm", {0: [{"t": {"0": 9}}]}, started_at={0: {"t": {"0": 4}}})
    assert stands(str(jvm)) == {"t": {"0": 4}}
    nothing = write_checkpoint(tmp_path / "nothing", {})
    with pytest.raises(OffsetsError, match="planned no micro-batch"):
        stands(str(nothing))
    purged = write_checkpoint(tmp_path / "purged", {7: [{"t": {"0": 9}}]})
    with pytest.raises(OffsetsError, match=r"no committed micro-batch: name a planned one, as in .*purged#7\."):
        stands(str(purged))


def test_the_jvm_connectors_checkpoint_is_read() -> None:
    assert stands(str(JVM)) == stands(f"{JVM}#0/0") == {"golden-orders": {"0": 4, "1": 3}}
    assert ranges(f"{JVM}#0") == ["golden-orders-0 [0, 4)", "golden-orders-1 [0, 3)"]


def test_only_what_is_wanted_is_taken() -> None:
    kept = GOLDEN / "checkpoints" / "v1-available-now"
    assert stands(str(kept), lambda tp: tp.topic == "golden-refunds") == {"golden-refunds": {"0": 3, "1": 3, "2": 0}}
    assert stands(str(kept), lambda tp: tp.partition == 2) == {"golden-refunds": {"2": 0}}
    assert ranges(f"{kept}#3", lambda tp: tp.partition == 0) == ["golden-orders-0 [4, 6)", "golden-refunds-0 [3, 3)"]
    assert position(str(kept), lambda tp: False).topics == {"golden-orders", "golden-refunds"}


def test_a_micro_batch_is_between_the_ends_of_two(tmp_path: Path) -> None:
    # A partition was added before micro-batch 1, another topic-partition began in 2, where one was truncated.
    batches = {
        0: [ours({"t": {"0": 5}}, starts={"t": {"0": 2}})],
        1: [ours({"t": {"0": 8, "1": 3}}, starts={"t": {"1": 0}})],
        2: [ours({"t": {"0": 6, "1": 3}, "u": {"0": 9}}, starts={"t": {"0": 6}, "u": {"0": 7}})],
    }
    path = write_checkpoint(tmp_path, batches, committed=2)
    assert ranges(f"{path}#0") == ["t-0 [2, 5)"]
    assert ranges(f"{path}#1") == ["t-0 [5, 8)", "t-1 [0, 3)"]
    assert ranges(f"{path}#2") == ["t-0 [6, 6)", "t-1 [3, 3)", "u-0 [7, 9)"]


def test_where_a_query_began_with_a_topic_is_found_as_far_back_as_the_log_goes(tmp_path: Path) -> None:
    first, second = {"t": "u8lFmrR3SRiXzcHcDpYZ2w"}, {"t": "3pFmrR3SRiXzcHcDpYZ2wQ"}
    batches = {
        0: [ours({"t": {"0": 5}}, starts={"t": {"0": 2}}, topic_ids=first)],
        1: [ours({"t": {"0": 8, "1": 3}}, starts={"t": {"1": 1}}, topic_ids=first)],
        2: [ours({"t": {"0": 6, "1": 3}}, starts={"t": {"0": 6}}, topic_ids=first)],  # truncated
        3: [ours({"t": {"0": 4}}, starts={"t": {"0": 0}}, topic_ids=second)],
        4: [ours({"t": {"0": 9}}, topic_ids=second)],
    }
    log = QueryLog(StoredFiles(str(write_checkpoint(tmp_path, batches, committed=4)), "checkpoint"))
    found = [beginning_of(log, number, "t") for number in range(5)]
    assert [each.known for each in found] == [{0: 2}, {0: 2, 1: 1}, {0: 2, 1: 1}, {0: 0}, {0: 0}]
    assert not any(each.oldest for each in found)
    (tmp_path / "offsets" / "0").unlink()  # Spark keeps the newest ones
    purged = QueryLog(StoredFiles(str(tmp_path), "checkpoint"))
    assert beginning_of(purged, 4, "t").known == {0: 0}
    assert beginning_of(purged, 2, "t") == Beginning(known={}, oldest={0: 8, 1: 3})


def test_what_the_log_no_longer_has_is_named(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "purged", {n: [{"t": {"0": n}}] for n in (5, 6, 9)}, committed=9)
    assert ranges(f"{path}#6") == ["t-0 [5, 6)"]
    with pytest.raises(OffsetsError, match=r"no longer has micro-batch 4, .*minBatchesToRetain.* is 6\."):
        ranges(f"{path}#5")
    with pytest.raises(
        OffsetsError, match=r"no micro-batch 8.*startingOffsets=checkpoint:.*#6 and endingOffsets=.*#9\."
    ):
        ranges(f"{path}#9")
    with pytest.raises(OffsetsError, match="has no micro-batch 4: it has 5 to 9"):
        stands(f"{path}#4")


def test_one_of_several_sources_is_chosen_where_they_differ(tmp_path: Path) -> None:
    sources = [ours({"a": {"0": 1}, "both": {"0": 1}}), {"b": {"0": 2}, "both": {"0": 9}}, {"logOffset": 3}, 17, "-"]
    path = write_checkpoint(tmp_path, {0: sources}, committed=0)
    assert stands(str(path), lambda tp: tp.topic != "both") == {"a": {"0": 1}, "b": {"0": 2}}
    assert stands(f"{path}#/0") == {"a": {"0": 1}, "both": {"0": 1}}
    assert stands(f"{path}#0/1") == {"b": {"0": 2}, "both": {"0": 9}}
    with pytest.raises(
        OffsetsError, match=r"different offsets of topic both in its sources 0, 1: name one, as in .*#0/0\."
    ):
        stands(str(path))
    with pytest.raises(OffsetsError, match=r"no source 7: it has 0 \(pykafka-wire\), 1 \(kafka\), 2 \(another\), 3 \("):
        stands(f"{path}#/7")
    with pytest.raises(OffsetsError, match="has no offsets of Kafka's topics in micro-batch 0"):
        stands(f"{path}#/2")


def test_sources_that_agree_are_one(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {0: [{"t": {"0": 1}}, {"t": {"0": 1}}]}, committed=0)
    assert stands(str(path)) == {"t": {"0": 1}}


def test_sources_with_names_are_read(tmp_path: Path) -> None:
    batches = {n: {"orders": {"t": {"0": n}}, "rates": ours({"t": {"0": 5}}), "new": "-"} for n in (1, 2)}
    path = write_checkpoint(tmp_path, batches, committed=2)
    assert stands(f"{path}#/orders") == {"t": {"0": 2}}
    assert ranges(f"{path}#2/orders") == ["t-0 [1, 2)"]


def test_a_source_of_the_jvm_connector_that_was_added_is_read_from_its_start(tmp_path: Path) -> None:
    batches: dict[int, dict[str, Any]] = {0: {"orders": {"t": {"0": 4}}}, 1: {"orders": {"t": {"0": 6}}}}
    batches[1]["returns"] = {"u": {"0": 9, "1": 5}}  # a partition was added after its start, too
    started_at = {"orders": {"t": {"0": 1}}, "returns": {"u": {"0": 7}}}
    path = write_checkpoint(tmp_path / "named", batches, started_at=started_at)
    assert ranges(f"{path}#1") == ["t-0 [4, 6)", "u-0 [7, 9)", "u-1 [0, 5)"]
    # In version 1 of the log, too, a source may have no offset in the first micro-batches.
    unnamed = {0: [{"t": {"0": 4}}, "-"], 1: [{"t": {"0": 4}}, {"u": {"0": 9}}]}
    path = write_checkpoint(tmp_path / "unnamed", unnamed, started_at={0: {"t": {"0": 1}}, 1: {"u": {"0": 7}}})
    assert ranges(f"{path}#1") == ["t-0 [4, 4)", "u-0 [7, 9)"]


def test_a_start_that_the_checkpoint_lacks_is_not_taken_for_offset_zero(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {0: ["-"], 1: [{"u": {"0": 9}}]}, committed=1)
    with pytest.raises(OffsetsError, match=r"has no sources/0/0, where source 0 started"):
        ranges(f"{path}#1")


def test_sources_that_dropped_a_topic_at_different_offsets_are_told_apart(tmp_path: Path) -> None:
    def dropped(offset: int) -> dict[str, Any]:
        gone = {"topic": "gone", "id": "u8lFmrR3SRiXzcHcDpYZ2w", "offsets": {"0": offset}}
        return ours({"t": {"0": 1}}, dropped=[gone])

    path = write_checkpoint(tmp_path / "c", {0: [dropped(5), dropped(7)]}, committed=0)
    with pytest.raises(OffsetsError, match="different offsets of topic gone in its sources 0, 1"):
        stands(str(path))
    (only,) = position(f"{path}#/1").offsets.dropped
    assert only.offsets == {0: 7}
    same = write_checkpoint(tmp_path / "same", {0: [dropped(5), dropped(5)]}, committed=0)
    assert len(position(str(same)).offsets.dropped) == 1


def test_a_topic_named_like_a_field_of_ours_is_the_jvm_connectors(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {0: [{"version": {"0": 1}, "offsets": {"0": 2}}]}, committed=0)
    assert stands(str(path)) == {"offsets": {"0": 2}, "version": {"0": 1}}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OffsetsError, match=r"there is no checkpoint of a query in .*nothing: name the folder"):
        stands(str(tmp_path / "nothing"))
    with pytest.raises(OffsetsError, match=r"offsets/0 of the checkpoint .*version 2.*upgrade pykafka-wire"):
        stands(str(GOLDEN / "refused" / "newer-version"))
    path = write_checkpoint(tmp_path / "c", {0: [{"t": {"0": 1}}]}, committed=0)
    for text, why in [
        ("v9\n{}\n{}", "has the version 'v9'"),
        ("v1\n{}", "is damaged"),
        ("", "has the version ''"),
        ('v1\n{}\n{"t":{"0":-2}}', r"its sources are 0 \(another\)"),
    ]:
        (path / "offsets" / "0").write_text(text)
        with pytest.raises(OffsetsError, match=why):
            stands(str(path))


def test_times_are_those_of_the_plan_and_of_the_commit(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {n: [{"t": {"0": n}}] for n in (0, 1)}, committed=0)
    log = QueryLog(StoredFiles(str(path), "x"))
    first, second = log.micro_batch(0), log.micro_batch(1)
    assert (first.planned_ms, second.planned_ms) == (PLANNED_MS, PLANNED_MS + 1000)
    assert first.committed_ms == (path / "commits" / "0").stat().st_mtime_ns // 1_000_000
    assert (first.is_committed, second.is_committed, second.committed_ms) == (True, False, None)
    assert log.query_id() == "a0fabb60-5be6-4d2e-828b-8054b4c385b1"


def test_a_position_survives_as_the_text_of_an_option() -> None:
    place = str(GOLDEN / "checkpoints" / "v1-batch-1-begun") + "#1"
    found = position(place)
    reference = parse_reference(f"checkpoint:{found.to_json(place)}", "startingOffsets")
    assert str(reference) == place
    assert reference.position is not None
    assert QueryPosition.from_json(reference.position, every) == found
    some = QueryPosition.from_json(reference.position, lambda tp: tp.partition == 1)
    assert nest_by_topic(some.offsets.offsets) == {"golden-orders": {"1": 4}}
    assert not some.is_committed
    for text in ("{", "{}", "[1]"):
        with pytest.raises(OffsetsError, match="the position of a checkpoint is damaged"):
            QueryPosition.from_json(text, every)
