"""Which tests cause which fault, and the result that they require; each named test must exist.

The faults are made on real brokers where these can be made to; what only a hostile or broken one does, a fake broker does.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

TESTS = Path(__file__).resolve().parent
DATA_LOSS = "connector/source/test_data_loss.py"

#: "fault: the required result" -> the tests that cause it; files by their path below tests/.
FAULTS: Final[dict[str, tuple[str, ...]]] = {
    # Brokers, leaders and coordinators.
    "a broker is killed: reads and writes continue at the next leader, nothing lost or doubled": (
        "connector/test_failover.py::test_a_leader_killed_in_mid_stream_costs_and_doubles_nothing",
        "wire/test_range_read_failover.py::test_a_broker_killed_in_mid_fetch_costs_no_record",
        "wire/test_producer.py::test_leaders_that_die_while_batches_are_in_flight_cost_none_and_double_none",
        "soak/test_chaos.py::test_nothing_is_lost_or_doubled_into_delta",
        "soak/test_chaos_kafka.py::test_copied_while_everything_is_killed_in_turn",
    ),
    "a leader moves: it is followed, in order": (
        "wire/test_range_read_failover.py::test_a_leader_that_moves_in_mid_fetch_is_followed",
        "wire/test_producer.py::test_leaders_that_move_while_batches_are_in_flight_are_followed_in_order",
        "soak/test_chaos.py::test_nothing_is_lost_or_doubled_into_delta",
    ),
    "a coordinator moves, is loading, dies: it is found again, or asked again": (
        "wire/test_cluster_lookups.py::test_a_coordinator_that_moved_is_found_again",
        "wire/test_cluster_lookups.py::test_a_coordinator_that_is_loading_is_asked_again",
        "wire/test_cluster_lookups.py::test_a_coordinator_that_died_is_found_again",
        "wire/test_group_faults.py::test_a_group_outlives_its_coordinator",
        "wire/test_transaction_faults.py::test_a_transaction_outlives_its_coordinator",
    ),
    "a broker is older than the client, or lacks an API: an older version is spoken, or the API is named": (
        "wire/test_state_machine.py::test_an_older_broker_is_asked_again_in_the_version_that_it_declares",
        "wire/test_state_machine.py::test_a_missing_api_and_versions_that_do_not_meet_are_named",
    ),
    "a broker throttles: the client waits as told, within its deadline": (
        "wire/test_throttling.py::test_a_client_above_its_quota_waits_for_the_throttle_time",
        "wire/test_connection.py::test_a_throttled_client_waits_before_its_next_request",
        "wire/test_transport.py::test_time_throttled_does_not_count_against_a_request_in_flight",
        "wire/test_connection.py::test_an_absurd_throttle_time_ends_at_the_deadline",
        "wire/test_produce_faults.py::test_the_throttle_that_comes_with_a_response_is_waited_out",
    ),
    # Connections and frames.
    "a connection is reset, at whichever byte: the session goes on, or ends in a typed error": (
        "wire/test_resets.py::test_a_session_reset_at_a_sample_of_bytes_is_gone_on_with",
        "wire/test_resets.py::test_a_session_reset_at_every_byte_is_gone_on_with",
        "wire/test_connection.py::test_whatever_point_the_connection_is_cut_at_ends_in_a_typed_error",
        "wire/test_range_read_failover.py::test_a_response_that_is_cut_anywhere_is_fetched_again",
        "wire/test_producer.py::test_a_connection_lost_while_sending_leaves_the_other_leaders_batches_alone",
    ),
    "a connection is open at one end only: it is given up in time, and others are tried": (
        "wire/test_resets.py::test_responses_that_stop_in_the_middle_end_in_time",
        "wire/test_cluster_on_brokers.py::test_all_continues_while_one_of_two_real_brokers_is_stopped",
        "wire/test_bootstrap.py::test_dead_and_stopped_servers_are_passed_over",
        "connector/test_failover.py::test_a_query_starts_while_the_first_of_three_bootstrap_servers_hangs",
    ),
    "a byte comes now and then: the deadline stays where it is": (
        "wire/test_transport.py::test_one_byte_now_and_then_does_not_put_the_deadline_off",
        "wire/test_transport.py::test_a_broker_that_takes_a_byte_now_and_then_does_not_put_the_deadline_off",
    ),
    "a socket is stale, a worker is forked: a connection of its own is made": (
        "wire/test_connection.py::test_a_connection_that_the_broker_closed_meanwhile_is_not_usable",
        "wire/test_cluster.py::test_a_broken_connection_is_made_again",
        "wire/test_cluster.py::test_a_forked_child_opens_connections_of_its_own",
        "wire/test_process_clients.py::test_equal_settings_share_a_cluster_and_other_credentials_do_not",
    ),
    "a clock jumps: deadlines do not": ("wire/test_deadline.py::test_a_deadline_runs_on_the_monotonic_clock",),
    "a frame is cut short, or has bytes to spare: it is refused": (
        "wire/test_state_machine.py::test_a_body_that_does_not_fit_its_message_ends_the_connection",
        "wire/test_codec.py::test_every_truncation_and_every_excess_is_refused",
    ),
    "a frame is of negative or enormous length: nothing is allocated for it": (
        "wire/test_state_machine.py::test_an_impossible_length_is_refused_before_anything_is_allocated",
        "wire/test_state_machine.py::test_a_handshake_frame_has_a_small_cap",
    ),
    "a correlation id is wrong: the connection is closed, the request sent on another": (
        "wire/test_cluster.py::test_a_wrong_correlation_id_closes_the_connection_and_is_retried",
    ),
    # Record batches.
    "a CRC is wrong: fetched once more, then an error with its place": (
        "wire/test_fetched_records.py::test_a_corrupt_batch_is_fetched_once_more_and_the_others_are_handed_out",
        "wire/test_fetched_records.py::test_a_batch_that_is_corrupt_twice_fails_with_its_place",
    ),
    "a batch is of an unknown format: it is refused": (
        "wire/test_decode.py::test_unknown_formats_are_refused_clearly",
    ),
    "a batch unpacks to far more than it may: it is refused before": (
        "wire/test_compression.py::test_a_bomb_is_refused_before_it_is_unpacked",
    ),
    "lengths in a batch cannot be: it is corrupt": (
        "wire/test_decode.py::test_lengths_that_cannot_be_are_corrupt",
        "wire/test_fuzz.py::test_damaged_bytes_end_in_a_value_or_a_typed_error",
    ),
    "parts of records are null or repeated, a header's key is no text: no record is lost": (
        "connector/source/test_batch.py::test_every_record_comes_with_all_its_parts",
        "wire/test_decode.py::test_a_header_key_that_is_no_text_loses_no_record",
    ),
    "a record is larger than every limit: it is read; a batch larger than a frame may be has its place told": (
        "wire/test_range_read.py::test_a_record_larger_than_every_limit_is_read",
        "wire/test_range_read.py::test_a_batch_larger_than_a_frame_may_be_is_refused_with_its_place",
    ),
    # Logs.
    "compaction leaves gaps: the read ends on a position, not on a count": (
        "wire/test_range_read.py::test_compacted_gaps_are_stepped_over_and_the_read_ends_on_position",
    ),
    "transactions are aborted, markers end the log: left out of committed reads, and of no others": (
        "wire/test_interop.py::test_aborted_transactions_and_markers_are_left_out_of_committed_reads_only",
        "connector/source/test_batch.py::test_read_committed_leaves_out_what_was_aborted",
    ),
    "a transaction stays open: committed reads end before it, and name it": (
        "wire/test_interop.py::test_an_open_transaction_hides_what_follows_it_from_committed_reads",
        "wire/test_range_read.py::test_an_end_above_the_last_stable_offset_names_the_open_transaction",
        f"{DATA_LOSS}::test_a_query_that_becomes_read_committed_has_lost_nothing",
    ),
    "a topic is deleted: data loss, by name": (
        f"{DATA_LOSS}::test_a_deleted_topic_is_data_loss_under_available_now",
        f"{DATA_LOSS}::test_a_topic_deleted_under_a_running_query_that_continues",
        f"{DATA_LOSS}::test_a_topic_deleted_under_a_running_query_that_must_not_lose_records",
        f"{DATA_LOSS}::test_a_new_topic_that_is_gone_before_it_was_looked_at",
        "connector/source/test_stream_reader.py::test_one_of_two_topics_deleted",
        "connector/source/test_stream.py::test_a_deleted_topic",
    ),
    "one broker's metadata lag behind, or hide a topic: no loss, and nothing is read twice": (
        "connector/source/test_lagging_metadata.py::test_one_broker_that_has_not_heard_of_a_topic_is_no_loss",
        "connector/source/test_lagging_metadata.py::test_one_broker_that_still_knows_the_topic_before_the_present_one_is_no_loss",
        "connector/source/test_lagging_metadata.py::test_a_topic_that_may_not_be_described_for_a_while_keeps_its_offsets",
        "connector/source/test_lagging_metadata.py::test_a_dropped_topic_that_is_back_under_its_id_continues_where_it_was",
        "connector/source/test_lagging_metadata.py::test_a_task_skips_a_topic_only_where_no_broker_knows_it",
    ),
    "a topic is made again under its name: told from one that aged out, by its id": (
        f"{DATA_LOSS}::test_a_recreated_topic_is_distinguished_from_one_that_aged_out",
        f"{DATA_LOSS}::test_a_topic_made_again_under_a_running_query",
        "wire/test_range_read.py::test_a_recreated_topic_is_known_by_its_id",
    ),
    "a partition is added: read from its beginning, and data loss where that is gone": (
        "connector/source/test_stream.py::test_partitions_added_between_runs_are_read_from_their_beginning",
        f"{DATA_LOSS}::test_an_added_partition_that_does_not_begin_at_zero",
    ),
    "retention passes the reader: data loss, with the range": (
        f"{DATA_LOSS}::test_retention_that_passes_the_reader",
        f"{DATA_LOSS}::test_retention_that_passes_a_task",
    ),
    "an unclean election cuts a log: found by its leader epoch": (
        f"{DATA_LOSS}::test_a_log_cut_by_an_unclean_election_is_found_by_its_leader_epoch",
    ),
    "a log ends before the planned end: waited for, for a while": (
        "wire/test_range_read.py::test_an_end_above_the_high_watermark_fails_after_a_bounded_wait",
        f"{DATA_LOSS}::test_a_replayed_batch_that_ends_beyond_the_log",
        "wire/test_range_read.py::test_an_end_above_the_high_watermark_is_reached_when_it_comes_in_time",
    ),
    # Writes.
    "too few replicas, before the append and after it: each batch is written once": (
        "wire/test_producer.py::test_too_few_replicas_are_waited_for_and_each_batch_is_written_once",
        "wire/test_produce_faults.py::test_batches_appended_with_too_few_replicas_are_not_appended_again",
    ),
    "a sequence is out of order, a producer unknown: sent again where nothing is lost, else an error": (
        "wire/test_produce_faults.py::test_batches_out_of_order_only_because_one_before_them_failed_are_sent_again",
        "wire/test_produce_faults.py::test_acknowledged_records_that_the_broker_lost_are_an_error_and_nothing_follows_the_gap",
    ),
    "the response to a write is lost: one copy is in the log": (
        "wire/test_producer.py::test_a_lost_acknowledgement_leaves_one_copy",
        "wire/test_produce_faults.py::test_a_batch_whose_response_is_lost_is_in_the_log_once",
        "wire/test_transaction_faults.py::test_an_end_whose_response_is_lost_is_asked_for_again_as_it_was",
    ),
    "the response to a write makes no sense: one error": (
        "wire/test_produce_faults.py::test_a_response_that_never_makes_sense_ends_in_one_error",
    ),
    "a transactional id is taken over: the older producer writes nothing more, and its error has the reason": (
        "wire/test_transactions.py::test_the_older_of_two_producers_is_fenced_with_the_reason",
        "connector/sink/test_crash.py::test_a_driver_that_comes_back_after_its_successor_writes_nothing",
        "connector/sink/test_crash_spark.py::test_a_driver_that_comes_back_after_its_successor",
    ),
    # Security.
    "a SASL session ends: it is renewed before": ("wire/test_security.py::test_a_session_is_renewed_before_it_ends",),
    "a certificate is of a wrong authority, for another host, or expired: fatal at once": (
        "wire/test_security.py::test_a_certificate_that_does_not_hold_is_fatal_at_once",
    ),
    "a credential is wrong: tried once": (
        "connector/test_credentials.py::test_a_wrong_password_is_tried_once",
        "wire/test_security.py::test_a_wrong_password_is_fatal_at_once",
        "wire/test_security.py::test_a_wrong_client_secret_is_fatal_at_once",
        "wire/test_security.py::test_a_token_that_the_broker_does_not_take_is_fatal_at_once",
        "wire/test_security.py::test_a_client_without_the_right_certificate_is_refused_at_once",
        "wire/test_kerberos.py::test_a_key_that_has_been_replaced",
    ),
    "a permission is taken away in mid-query: it ends and says why": (
        "connector/test_access_revoked.py::test_a_query_whose_permission_is_revoked_fails_with_the_reason",
    ),
    "metadata names a hostile address: no connection is made": (
        "wire/test_tls.py::test_another_host_is_refused_unless_the_user_gives_that_up",
        "wire/test_cluster.py::test_brokers_of_hosts_that_the_user_did_not_allow_are_not_connected_to",
    ),
    "a secret is near a log, a plan, a trace: it does not come out": (
        "connector/test_canary.py::test_with_the_documented_redaction_there_is_no_hit_at_all",
        "connector/test_credentials.py::test_what_spark_prints_and_keeps_holds_no_secret",
        "wire/test_trace.py::test_no_secret_is_in_it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_tests(fault: str) -> None:
    for name in FAULTS[fault]:
        path, _, test = name.partition("::")
        module = ast.parse((TESTS / path).read_text("utf-8"))
        assert test in {each.name for each in module.body if isinstance(each, ast.FunctionDef)}, name
