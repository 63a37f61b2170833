from __future__ import annotations

from pykafka_wire.wire.fetch.preferred_read_replica import FOLLOWER_WAIT_S, PreferredReadReplica

LEADER, FOLLOWER = 1, 2


def test_a_follower_serves_until_its_time_is_up_or_another_broker_leads() -> None:
    for moved, now, node in [(False, 299.0, FOLLOWER), (False, 300.0, LEADER), (True, 1.0, LEADER)]:
        replica = PreferredReadReplica()
        assert replica.choose(LEADER, has_moved=False, now=0.0) == LEADER
        replica.redirect(FOLLOWER, 0.0, max_age_s=300.0)
        assert replica.choose(LEADER, has_moved=moved, now=now) == node
        assert (
            replica.choose(LEADER, has_moved=False, now=0.0) == node
        )  # the leader names a follower anew, or none serves


def test_a_follower_is_asked_at_least_once_where_metadata_are_never_fresh() -> None:
    replica = PreferredReadReplica()
    replica.redirect(FOLLOWER, 0.0, max_age_s=0.0)
    assert replica.choose(LEADER, has_moved=False, now=FOLLOWER_WAIT_S / 2) == FOLLOWER
    assert replica.choose(LEADER, has_moved=False, now=FOLLOWER_WAIT_S) == LEADER


def test_a_follower_that_failed_is_not_named_again_before_the_leader_has_dropped_it_from_the_replicas_in_sync() -> None:
    replica = PreferredReadReplica()
    replica.redirect(FOLLOWER, 0.0, max_age_s=300.0)
    replica.miss_records(1.0)
    replica.leave(2.0)
    assert replica.choose(LEADER, has_moved=False, now=2.0) == LEADER
    assert (replica.may_redirect(46.9), replica.may_redirect(47.0)) == (False, True)
    assert not replica.is_empty


def test_the_time_without_records_counts_from_the_first_response_until_records_come() -> None:
    replica = PreferredReadReplica()
    replica.redirect(FOLLOWER, 0.0, max_age_s=300.0)
    replica.miss_records(1.0)
    replica.ask_leader(1.5)
    assert replica.choose(LEADER, has_moved=False, now=1.5) == LEADER
    assert replica.waited_s(3.0) == 2.0
    replica.expect_records(2.5)  # up to here the leader had none either
    assert replica.waited_s(3.0) == 0.5
    replica.settle()
    assert (replica.is_empty, replica.waited_s(9.0)) == (False, 0.0)
