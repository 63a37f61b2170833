"""Names of topics and topic-partitions: what is printed, and what is suggested."""

from __future__ import annotations

import uuid

import pytest

from pykafka_wire.wire.topic_partitions import similar_names, topic_id_text

KNOWN = ["orders", "Orders-clean", "payments", "team.service.events.v1", "team.service.events.v2", "x"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oders", ["orders"]),
        ("ORDERS", ["orders"]),
        ("order-clean", ["Orders-clean"]),
        ("team.service.event.v1", ["team.service.events.v1", "team.service.events.v2"]),
        ("invoices", []),
        ("", []),
    ],
)
def test_names_that_a_typing_error_may_have_meant(name: str, expected: list[str]) -> None:
    assert similar_names(name, KNOWN) == expected


def test_a_similar_name_is_found_among_many() -> None:
    many = [f"team-{i % 97}.service-{i}.events" for i in range(20_000)]
    assert similar_names("customer-oders", [*many, "customer-orders"]) == ["customer-orders"]


def test_a_topic_id_is_printed_as_kafkas_tools_print_it() -> None:
    assert topic_id_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    # base64url: - and _ in place of + and /, and no padding.
    assert topic_id_text(uuid.UUID("fbffffff-ffff-ffff-bfff-ffffffffffff")) == "-_________-__________w"
