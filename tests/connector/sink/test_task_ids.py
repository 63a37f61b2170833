"""Which transactional ids tasks use, and when they use them again."""

from __future__ import annotations

from pykafka_wire.sink.exactly_once.task_ids import TaskIds


def test_ids_are_used_again_for_later_micro_batches_only() -> None:
    ids = TaskIds()
    first = [ids.next("q", "query", 0) for _ in range(3)]
    assert len(set(first)) == 3 and all(name.startswith("q.task.") for name in first)
    replay = [ids.next("q", "query", 0) for _ in range(2)]
    assert not set(replay) & set(first)
    assert {ids.next("q", "query", 1) for _ in range(5)} == {*first, *replay}
    assert ids.next("q", "another query", 2) not in {*first, *replay}
    assert ids.next("q2", "query", 2) not in {*first, *replay}
    assert not {TaskIds().next("q", "query", 0)} & {*first}
