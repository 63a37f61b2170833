from __future__ import annotations

import pytest

from pykafka_wire.wire import error_codes
from pykafka_wire.wire.error_codes import ERRORS, Action, error_info
from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.protocol.messages import APIS
from tests.conformance import kafka


def test_the_table_is_javas_with_its_names_and_retriable_flags(java: None) -> None:
    with kafka.Oracle() as oracle:
        (response,) = oracle.ask(["errors"])
    java = {}
    for entry in response.split():
        code, name, retriable = entry.split(":")
        java[int(code)] = (name, retriable == "true")
    assert {code: (info.name, info.retriable) for code, info in ERRORS.items()} == java
    assert all(info.code == code for code, info in ERRORS.items())


def test_what_is_retriable_is_never_fatal_and_only_that_has_a_grace_time() -> None:
    for info in ERRORS.values():
        if info.retriable:
            assert info.action in (Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR), info
        if info.grace_ms is not None:
            assert info.retriable, info


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (0, Action.SUCCESS),
        (1, Action.FATAL),
        (3, Action.REFRESH_METADATA),
        (6, Action.REFRESH_METADATA),
        (7, Action.RETRY),
        (14, Action.RETRY),
        (16, Action.FIND_COORDINATOR),
        (25, Action.REJOIN),
        (27, Action.REJOIN),
        (46, Action.SUCCESS),  # the batch is in the log already
        (58, Action.FATAL),  # credentials are never tried twice
        (74, Action.REFRESH_METADATA),
        (90, Action.FATAL),
        (129, Action.REFRESH_METADATA),
    ],
)
def test_what_a_code_asks_for(code: int, action: Action) -> None:
    assert error_info(code).action is action


def test_every_code_but_success_says_what_it_means() -> None:
    for info in ERRORS.values():
        assert info.meaning.endswith("."), info
        assert not info.remedy or info.remedy.endswith("."), info


def test_a_refusal_names_the_acl_that_the_api_needs() -> None:
    assert str(broker_error(29, topic="t", api="Produce")).endswith("the missing ACL: Write on the topic.")
    assert str(broker_error(30, api="OffsetCommit")).endswith("the missing ACL: Read on the group.")
    assert str(broker_error(53, api="EndTxn")).endswith("the missing ACL: Write on the transactional id.")
    assert str(broker_error(29, api="Metadata")).endswith("ACL: Describe on the topic (Read or Write includes it).")
    for api in (None, "SaslHandshake"):
        assert str(broker_error(29, api=api)).endswith("Grant the principal the missing ACL.")
    named = {api for _, operations in error_codes._NEEDED.values() for apis in operations.values() for api in apis}
    assert named <= {name for _, name in APIS.values()}


def test_an_unknown_topic_fails_within_seconds() -> None:
    assert error_info(3).grace_ms == error_codes.UNKNOWN_TOPIC_GRACE_MS == 5_000


def test_a_code_newer_than_the_table_is_fatal_and_reported_as_unknown() -> None:
    error = broker_error(4242)
    assert (error.code, error.name, error.retriable, error.info.action) == (4242, "UNKNOWN_4242", False, Action.FATAL)
    assert "does not know the error code" in str(error)


def test_what_is_retried_is_one_set_of_codes() -> None:
    """After REBOOTSTRAP_REQUIRED comes a new bootstrap, not with the same request."""
    retried = {Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR}
    assert {code for code, info in ERRORS.items() if info.retriable} == {
        code for code, info in ERRORS.items() if info.action in retried
    } - {129}
