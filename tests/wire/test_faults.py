"""Which test makes which fault, and that each of these tests is there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

TESTS = Path(__file__).parents[1]

#: Fault -> the tests that make it; files by their path below tests/.
FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "a coordinator moved, is loading, died": (
        "wire/test_cluster.py::test_a_coordinator_that_moved_is_found_again",
        "wire/test_cluster.py::test_a_coordinator_that_is_loading_is_asked_again",
        "wire/test_cluster.py::test_a_coordinator_that_died_is_found_again",
        "wire/test_group_faults.py::test_a_group_outlives_its_coordinator",
    ),
    "a connection reset at every byte of a session": (
        "wire/test_resets.py::test_a_session_reset_at_a_sample_of_bytes_is_gone_on_with",
        "wire/test_resets.py::test_a_session_reset_at_every_byte_is_gone_on_with",
        "wire/test_transport.py::test_whatever_point_the_connection_is_cut_at_ends_in_a_typed_error",
        "wire/test_fetcher.py::test_an_answer_that_is_cut_anywhere_is_fetched_again",
    ),
    "a half-open connection": (
        "wire/test_resets.py::test_answers_that_stop_in_the_middle_end_in_time",
        "wire/test_cluster_on_brokers.py::test_all_goes_on_while_one_of_two_real_brokers_is_stopped",
        "wire/test_bootstrap.py::test_dead_and_stopped_servers_are_passed_over",
        "connector/test_failover.py::test_a_query_starts_while_the_first_of_three_bootstrap_servers_stands_still",
    ),
    "a byte now and then": (
        "wire/test_transport.py::test_one_byte_now_and_then_does_not_put_the_deadline_off",
        "wire/test_transport.py::test_a_broker_that_takes_a_byte_now_and_then_does_not_put_the_deadline_off",
    ),
    "a frame cut short, or with bytes to spare": (
        "wire/test_protocol.py::test_a_body_that_does_not_fit_its_message_ends_the_connection",
        "wire/test_codec.py::test_every_truncation_and_every_excess_is_refused",
    ),
    "a frame of negative or enormous length": (
        "wire/test_protocol.py::test_an_impossible_length_is_refused_before_anything_is_allocated",
        "wire/test_protocol.py::test_a_handshake_frame_has_a_small_cap",
    ),
    "a wrong correlation id": (
        "wire/test_cluster.py::test_a_wrong_correlation_id_closes_the_connection_and_is_retried",
    ),
    "a wrong CRC": (
        "wire/test_fetched.py::test_a_corrupt_batch_is_fetched_once_more_and_the_others_are_handed_out",
        "wire/test_fetched.py::test_a_batch_that_is_corrupt_twice_fails_with_its_place",
    ),
    "an unknown magic": ("wire/test_decode.py::test_unknown_formats_are_refused_clearly",),
    "a decompression bomb": ("wire/test_compression.py::test_a_bomb_is_refused_before_it_is_unpacked",),
    "negative lengths of batches and varints": (
        "wire/test_decode.py::test_lengths_that_cannot_be_are_corrupt",
        "wire/test_fuzz.py::test_damaged_bytes_end_in_a_value_or_a_typed_error",
    ),
    "throttling": (
        "wire/test_throttling.py::test_a_client_above_its_quota_waits_as_long_as_it_is_told_to",
        "wire/test_transport.py::test_a_throttled_client_waits_before_its_next_request",
        "wire/test_transport.py::test_time_throttled_does_not_count_against_a_request_in_flight",
        "wire/test_transport.py::test_an_absurd_throttle_time_ends_at_the_deadline",
        "wire/test_produce_faults.py::test_the_throttle_that_comes_with_an_answer_is_waited_out",
    ),
    "the end of a SASL session": ("wire/test_security.py::test_a_session_is_renewed_before_it_ends",),
    "a wrong authority, a wrong host name, an expired certificate": (
        "wire/test_security.py::test_a_certificate_that_does_not_hold_is_fatal_at_once",
    ),
    "a clock that jumps": ("wire/test_deadline.py::test_a_deadline_runs_on_the_monotonic_clock",),
    "ApiVersions too new, or an API missing": (
        "wire/test_protocol.py::test_an_older_broker_is_asked_again_in_the_version_that_it_declares",
        "wire/test_protocol.py::test_a_missing_api_and_versions_that_do_not_meet_are_named",
    ),
    "a record larger than every limit": (
        "wire/test_fetcher.py::test_a_record_larger_than_every_limit_is_read",
        "wire/test_fetcher.py::test_a_batch_larger_than_a_frame_may_be_is_refused_with_its_place",
    ),
    "a header key that is no text": ("wire/test_decode.py::test_a_header_key_that_is_no_text_loses_no_record",),
    "a hostile address in metadata": (
        "wire/test_tls.py::test_another_host_is_refused_unless_the_user_gives_that_up",
        "wire/test_cluster.py::test_brokers_of_hosts_that_the_user_did_not_allow_are_not_connected_to",
    ),
    "authorization revoked in the middle": (
        "connector/test_access_revoked.py::test_a_query_whose_permission_is_taken_away_ends_and_says_why",
    ),
    "a wrong credential": (
        "connector/test_credentials.py::test_a_wrong_password_is_tried_once",
        "wire/test_security.py::test_a_wrong_password_is_fatal_at_once",
        "wire/test_security.py::test_a_wrong_client_secret_is_fatal_at_once",
        "wire/test_security.py::test_a_token_that_the_broker_does_not_take_is_fatal_at_once",
        "wire/test_security.py::test_a_client_without_the_right_certificate_is_refused_at_once",
        "wire/test_kerberos.py::test_a_key_that_has_been_replaced",
    ),
    "a secret that comes out": (
        "connector/test_canary.py::test_with_the_documented_redaction_there_is_no_hit_at_all",
        "connector/test_credentials.py::test_what_spark_prints_and_keeps_holds_no_secret",
        "wire/test_trace.py::test_no_secret_is_in_it",
    ),
    "a stale socket, a forked worker": (
        "wire/test_transport.py::test_a_connection_that_the_broker_closed_meanwhile_is_not_usable",
        "wire/test_cluster.py::test_a_broken_connection_is_made_again",
        "wire/test_cluster.py::test_a_forked_child_opens_connections_of_its_own",
        "wire/test_shared.py::test_equal_settings_share_a_cluster_and_other_credentials_do_not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_tests(fault: str) -> None:
    for name in FAULTS[fault]:
        path, _, test = name.partition("::")
        module = ast.parse((TESTS / path).read_text("utf-8"))
        assert test in {each.name for each in module.body if isinstance(each, ast.FunctionDef)}, name
