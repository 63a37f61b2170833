"""Markers that are lost, or that cannot be read, while transactions of tasks may be decided by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.fencing import fence_micro_batch
from pykafka_wire.sink.exactly_once.marker import marker_group
from pykafka_wire.sink.exactly_once.task_transactions import abandon
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.sink.tasks_query import Query, encoded

pytestmark = pytest.mark.broker


def delete_marker(query: Query, outside_of: Any) -> None:
    group = marker_group(query.options.transactional_id)
    outside = outside_of(query.servers)  # its client lives as long as it does
    outside.admin.delete_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize("marker", ['{"version": 3}', "a note"])
def test_nothing_is_aborted_where_the_marker_cannot_be_read(query: Query, marker: str) -> None:
    tasks = [query.task(query.fence(), 0, b"a")]
    group, place = marker_group(query.options.transactional_id), TopicPartition(query.topic, 0)
    commit_offsets(query.cluster, group, {place: CommittedOffset(1, metadata=marker)})
    abandon(query.cluster, query.options, tasks)
    query.fence()
    assert query.open() == 1, "it may be decided"
    query.time_out(*tasks)


def test_a_lost_marker_is_refused_before_the_tasks_start(query: Query, outside_of: Any) -> None:
    query.commit(query.task(query.fence(), 0, b"a"))
    delete_marker(query, outside_of)
    with Cluster(query.cluster.settings) as restarted:
        for _ in range(2):
            with pytest.raises(ExactlyOnceError, match="has committed a transaction, and there is no marker"):
                fence_micro_batch(restarted, query.options)
        fence_micro_batch(restarted, replace(query.options, fail_on_missing_marker=False))


def test_a_lost_marker_is_found_by_what_the_tasks_have_committed_where_fencing_hides_the_querys_own_commit(
    query: Query, outside_of: Any, visible: Any
) -> None:
    done = query.task(query.fence(), 0, b"a")
    query.commit(done)
    left = query.task(query.fence(), 0, b"a")
    delete_marker(query, outside_of)
    replay = query.task(query.fence(), 0, b"a")
    assert query.open() == 2, "either may be decided, by a marker that is lost"
    for commit in (lambda: query.commit(replay), lambda: query.commit_by_driver(encoded(0, done, query.topic, b"a"))):
        with pytest.raises(ExactlyOnceError, match="at micro-batch 0, and there is no marker, though"):
            commit()
    assert visible(query) == [b"a"]
    query.time_out(left, replay)
    # The way on, where the topic turns out not to have it.
    query.options = replace(query.options, fail_on_missing_marker=False)
    query.task(query.fence(), 0, b"left")
    assert query.commit(query.task(query.fence(), 0, b"b")) is Decision.WRITE
    assert query.open() == 0
    assert visible(query) == [b"a", b"b"]
