"""Names of topics and topic-partitions: what is printed, and what is suggested."""

from __future__ import annotations

import uuid

import pytest

from pykafka_wire.wire.topic_partitions import parse_new_topic, similar_names, topic_id_text

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


@pytest.mark.parametrize(
    ("text", "expected"), [("orders", ("orders", None)), ("orders:6", ("orders", 6)), ("a.b-c_d:010", ("a.b-c_d", 10))]
)
def test_a_new_topic_may_name_its_partitions(text: str, expected: tuple[str, int | None]) -> None:
    assert parse_new_topic(text) == expected


@pytest.mark.parametrize("text", ["", ":3", "orders:", "orders:0", "orders:-1", "orders:x", "orders:1:2", "orders:²"])
def test_a_new_topic_that_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use NAME or NAME:PARTITIONS"):
        parse_new_topic(text)
