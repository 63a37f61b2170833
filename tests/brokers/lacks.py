"""What brokers that are not Apache Kafka lack, as the tests see it: a reason, and the tests that it fails.

``make brokers`` runs the tests of the real brokers on them too, leaves these out, and lists the reasons. docs/brokers.md has
the same as a table. A test that fails here for another reason is a fault of the client.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: Fixtures that start Apache Kafka itself: with another listener, an older protocol, nodes to be killed.
APACHE_KAFKA: Final = frozenset(
    {
        "_two_brokers",
        "guarded_kafka",
        "kafka_cluster",
        "kafka_tv1",
        "secured_kafka",
        "two_brokers",
        "unreachable_kafka",
    }
)
#: A transaction protocol that is a parameter of tests, and its brokers: Apache Kafka's.
_FIRST_PROTOCOL: Final = "TV1"

#: Broker -> what it lacks -> the tests that need it, "file::name" below tests/, or one case of a test with its parameters.
LACKS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "kfake": {
        "topic settings other than a few, and checks of topics' names": (
            "wire/test_admin.py::test_a_topic_is_created_described_grown_and_deleted",
            "wire/test_admin.py::test_refusals_are_raised_with_their_reason",
        ),
        "internal topics": ("wire/test_admin.py::test_internal_topics_are_listed_only_when_asked_for",),
        "settings of brokers": ("wire/test_admin.py::test_a_brokers_settings_are_read",),
        "its release, as Apache Kafka's APIs show it": (
            "wire/test_cluster_on_brokers.py::test_a_real_brokers_release_is_known_by_its_apis",
        ),
        "processes that can be killed": (
            "wire/test_producer.py::test_a_delivery_timeout_ends_in_one_error_with_its_cause",
            "connector/source/test_data_loss.py::test_a_log_cut_by_an_unclean_election_is_found_by_its_leader_epoch",
        ),
        "how a transaction has ended, once it has (DescribeTransactions: Empty)": (
            "wire/test_bulk_transactions.py::test_left_open_by_one_process_and_ended_by_another",
            "wire/test_bulk_transactions.py::test_one_that_timed_out_and_one_whose_id_was_used_again",
            "wire/test_transactions.py::test_what_a_block_does_not_commit_is_aborted_at_once",
            "connector/sink/test_exactly_once.py::test_micro_batch_0_is_refused_where_its_marker_was_deleted_and_at_every_further_try",
        ),
        "fencing of a producer that begins as its own successor (KIP-360)": (
            "wire/test_bulk_transactions.py::test_a_successor_is_refused_where_another_producer_came_between",
        ),
        "limits of a commit (offset.metadata.max.bytes, message.max.bytes)": (
            "wire/test_transactions.py::test_an_offset_that_is_refused_leaves_nothing_open",
            "wire/test_committed_offsets.py::test_a_portion_that_is_too_large_for_the_coordinator_is_halved",
        ),
        "checks of records (keys of compacted topics, bounds of timestamps)": (
            "wire/test_producer.py::test_a_record_without_key_for_a_compacted_topic_names_the_record",
            "wire/test_produce_refusals.py::test_invalid_records_are_kept_with_the_brokers_words_for_each",
            "wire/test_produce_refusals.py::test_timestamps_that_the_topic_does_not_take_are_kept",
            "connector/sink/test_writer.py::test_invalid_records_are_diverted_with_the_brokers_words",
            "connector/sink/test_writer.py::test_a_dead_letter_that_is_refused_fails_the_write",
        ),
        "what Kafka's kafka-consumer-groups asks for (DescribeTopicPartitions: no eligible leader replicas)": (
            "connector/source/test_stream.py::test_a_backlog_into_delta_then_more_and_the_group_has_no_lag",
            "connector/source/test_stream.py::test_an_idle_query_commits_its_last_batch_and_reports_its_lag",
        ),
        "fetch.max.bytes as a bound of the first partition": (
            "wire/test_range_read.py::test_with_little_room_in_a_response_every_partition_still_gets_its_turn",
        ),
        "a refusal of SaslHandshake on a listener without SASL": (
            "connector/cli/test_doctor.py::test_sasl_on_a_listener_without_it_and_half_of_a_login",
        ),
        "a static member's entry once it has left": (
            "connector/source/test_static_member.py::test_a_restarted_query_takes_its_place_and_the_one_before_commits_no_more",
        ),
    },
    "librdkafka": {
        "topics that do not exist: it creates them": (
            "wire/test_producer.py::test_an_unknown_topic_fails_within_seconds",
        ),
        "all offsets of a group: OffsetFetch without topics gets null": (
            "wire/test_committed_offsets.py::test_what_is_committed_is_fetched_and_seen_by_others",
            "wire/test_committed_offsets.py::test_a_group_that_never_was_has_committed_nothing",
        ),
        "a check of the member in a commit": (
            "wire/test_committed_offsets.py::test_a_commit_with_a_member_that_is_not_there_is_refused",
        ),
        "offsets that wait for a transaction's end": (
            "wire/test_committed_offsets.py::test_stable_offsets_are_waited_for_until_the_deadline",
        ),
        "reading all requests without a response (acks=0): the last ones may wait for the next request": (
            "wire/test_producer.py::test_every_kind_of_acknowledgement_delivers[default-0]",
            "wire/test_producer.py::test_every_kind_of_acknowledgement_delivers[not idempotent-0]",
        ),
        "commits of thousands of offsets within seconds": (
            "wire/test_committed_offsets.py::test_more_offsets_than_one_batch_holds_are_committed_in_portions",
        ),
        "checks of records and batches (keys of compacted topics, max.message.bytes)": (
            "wire/test_producer.py::test_a_record_without_key_for_a_compacted_topic_names_the_record",
            "wire/test_record_producer.py::test_a_refused_record_fails_the_producer_until_it_is_reset",
        ),
        "logs of more than 5 MiB a partition": ("wire/test_producer.py::test_memory_is_bounded_whatever_is_appended",),
        "idempotence: it writes a batch that is sent again a second time": (
            "wire/test_producer.py::test_a_lost_acknowledgement_leaves_one_copy",
        ),
        "processes that can be killed": (
            "wire/test_producer.py::test_a_delivery_timeout_ends_in_one_error_with_its_cause",
        ),
        "DeleteRecords, DeleteTopics": (
            "wire/test_range_read.py::test_a_start_below_the_log_start_names_the_range_and_the_bounds",
            "wire/test_range_read.py::test_a_recreated_topic_is_known_by_its_id",
        ),
        "a last stable offset: read_committed reads open transactions": (
            "wire/test_range_read.py::test_an_end_above_the_last_stable_offset_names_the_open_transaction",
        ),
    },
}


def fails_for(broker: str, node_id: str, fixtures: Collection[str]) -> str | None:
    """Why a test, by its node id, cannot pass on a kind of broker; None where it can, and on Apache Kafka."""
    if broker not in LACKS:
        return None
    if APACHE_KAFKA & set(fixtures) or f"[{_FIRST_PROTOCOL}" in node_id:
        return "Apache Kafka itself: listeners, versions or nodes of the test's own"
    case = node_id.removeprefix("tests/")
    name = case.partition("[")[0]
    return next((lack for lack, tests in LACKS[broker].items() if name in tests or case in tests), None)
