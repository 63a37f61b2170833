"""Which tests hold reading and writing to which faults; each named test must exist.

The numbers are those of the project's list of faults: what befalls brokers, logs and records, and what is right then.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
LOSS = "connector/source/test_data_loss.py"
FETCHER = "wire/test_fetcher.py"
PRODUCER = "wire/test_producer.py"
PRODUCE_FAULTS = "wire/test_produce_faults.py"
TRANSACTIONS = "wire/test_transactions.py"

#: fault -> (file, test), on real brokers where these can be made to.
FAULTS = {
    "1 broker killed": [
        ("connector/test_failover.py", "test_a_leader_killed_in_mid_stream_costs_and_doubles_nothing"),
        (FETCHER, "test_a_broker_killed_in_mid_fetch_costs_no_record"),
        ("soak/test_chaos.py", "test_nothing_is_lost_or_doubled_into_delta"),
        (PRODUCER, "test_leaders_that_die_while_batches_are_in_flight_cost_none_and_double_none"),
        ("soak/test_chaos_kafka.py", "test_copied_while_everything_is_killed_in_turn"),
    ],
    "2 leader moved in mid-fetch": [
        (FETCHER, "test_a_leader_that_moves_in_mid_fetch_is_followed"),
        ("soak/test_chaos.py", "test_nothing_is_lost_or_doubled_into_delta"),
    ],
    "2 leader moved while batches are in flight": [
        (PRODUCER, "test_leaders_that_move_while_batches_are_in_flight_are_followed_in_order"),
    ],
    "3 coordinator of a transaction killed": [(TRANSACTIONS, "test_a_transaction_outlives_its_coordinator")],
    "4 connection reset while writing": [
        ("wire/test_resets.py", "test_a_session_reset_at_every_byte_is_gone_on_with"),
        (PRODUCER, "test_a_connection_lost_while_sending_leaves_the_other_leaders_batches_alone"),
    ],
    "7, 9 answers to a write that make no sense": [
        (PRODUCE_FAULTS, "test_an_answer_that_never_makes_sense_ends_in_one_error"),
    ],
    "14 compacted gaps": [(FETCHER, "test_compacted_gaps_are_stepped_over_and_the_read_ends_on_position")],
    "15 control markers at the tail": [
        ("wire/test_interop.py", "test_aborted_transactions_and_markers_are_left_out_of_committed_reads_only"),
    ],
    "16 aborted transactions": [
        ("wire/test_interop.py", "test_aborted_transactions_and_markers_are_left_out_of_committed_reads_only"),
        ("connector/source/test_batch.py", "test_read_committed_leaves_out_what_was_aborted"),
    ],
    "17 open transaction": [
        ("wire/test_interop.py", "test_an_open_transaction_hides_what_follows_it_from_committed_reads"),
        (FETCHER, "test_an_end_above_the_last_stable_offset_names_the_open_transaction"),
        (LOSS, "test_a_query_that_becomes_read_committed_has_lost_nothing"),
    ],
    "18 topic deleted": [
        (LOSS, "test_a_deleted_topic_is_data_loss_under_available_now"),
        ("connector/source/test_stream_reader.py", "test_one_of_two_topics_deleted"),
        ("connector/source/test_stream.py", "test_a_deleted_topic"),
    ],
    "19 topic recreated": [
        (LOSS, "test_a_topic_made_again_is_told_from_one_that_aged_out"),
        (FETCHER, "test_a_recreated_topic_is_known_by_its_id"),
    ],
    "20 partition added": [
        (LOSS, "test_an_added_partition_that_does_not_begin_at_zero"),
        ("connector/source/test_stream.py", "test_partitions_added_between_runs_are_read_from_their_beginning"),
    ],
    "21 retention passes the reader": [
        (LOSS, "test_retention_that_passes_the_reader"),
        (LOSS, "test_retention_that_passes_a_task"),
    ],
    "22 unclean truncation": [(LOSS, "test_a_log_cut_by_an_unclean_election_is_found_by_its_leader_epoch")],
    "23 high watermark below the planned end": [
        (FETCHER, "test_an_end_above_the_high_watermark_fails_after_a_bounded_wait"),
        (FETCHER, "test_an_end_above_the_high_watermark_is_reached_when_it_comes_in_time"),
    ],
    "30 null and repeated parts of records": [
        ("connector/source/test_batch.py", "test_every_record_comes_with_all_its_parts"),
    ],
    "32 not enough replicas, also after append": [
        (PRODUCER, "test_too_few_replicas_are_waited_for_and_each_batch_is_written_once"),
        (PRODUCE_FAULTS, "test_batches_appended_with_too_few_replicas_are_not_appended_again"),
    ],
    "33 out-of-order sequence, unknown producer": [
        (PRODUCE_FAULTS, "test_acknowledged_records_that_the_broker_lost_are_an_error_and_nothing_follows_the_gap"),
        (PRODUCE_FAULTS, "test_batches_out_of_order_only_because_one_before_them_failed_are_sent_again"),
    ],
    "34 acknowledgement of a write lost": [
        (PRODUCER, "test_a_lost_acknowledgement_leaves_one_copy"),
        (PRODUCE_FAULTS, "test_a_batch_whose_answer_is_lost_is_in_the_log_once"),
        (TRANSACTIONS, "test_an_end_whose_answer_is_lost_is_asked_for_again_as_it_was"),
    ],
    "36 transactional id taken over": [
        (TRANSACTIONS, "test_the_older_of_two_producers_is_fenced_and_told_why"),
        ("connector/sink/test_crash.py", "test_a_driver_that_comes_back_after_its_successor_writes_nothing"),
        ("connector/sink/test_crash_spark.py", "test_a_driver_that_comes_back_after_its_successor"),
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_tests(fault: str) -> None:
    for file, name in FAULTS[fault]:
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
