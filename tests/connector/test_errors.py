"""Errors cross Spark's process borders whole, and their text leads with a stable code."""

from __future__ import annotations

import pickle

import pytest

from pykafka_wire.errors import (
    ConnectorError,
    DataLossError,
    LedgerError,
    Loss,
    OffsetsError,
    OptionError,
    SchemaError,
    WriteError,
    describe_loss,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

CODES = {
    OptionError: "PYKAFKA_WIRE_OPTION",
    SchemaError: "PYKAFKA_WIRE_SCHEMA",
    OffsetsError: "PYKAFKA_WIRE_OFFSETS",
    WriteError: "PYKAFKA_WIRE_WRITE",
    LedgerError: "PYKAFKA_WIRE_LEDGER",
}


@pytest.mark.parametrize("kind", CODES)
def test_the_code_leads_the_text_and_survives_pickling(kind: type[ConnectorError]) -> None:
    error = kind("what went wrong")
    assert str(error) == f"[{CODES[kind]}] what went wrong"
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert str(found) == str(error)
    assert found.message == "what went wrong"


def test_pickling_twice_does_not_double_the_code() -> None:
    error = OptionError("x")
    for _ in range(3):
        error = pickle.loads(pickle.dumps(error))
    assert str(error) == "[PYKAFKA_WIRE_OPTION] x"


@pytest.mark.parametrize("loss", Loss)
def test_each_data_loss_has_a_code_of_its_own_and_survives_pickling(loss: Loss) -> None:
    error = DataLossError(loss, [(TopicPartition("orders", 3), 10, 25)], "why")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is DataLossError
    assert str(found) == str(error)
    assert (found.loss, found.lost, found.detail) == (loss, [(TopicPartition("orders", 3), 10, 25)], "why")
    assert str(error).startswith(f"[PYKAFKA_WIRE_DATA_LOSS] {loss.name}: ")
    assert "orders-3 [10, 25)" in str(error) and "(why)" in str(error)
    assert "failOnDataLoss to false" in str(error)


def test_codes_are_not_shared() -> None:
    codes = [kind.code for kind in (ConnectorError, *CODES, DataLossError)]
    assert len(set(codes)) == len(codes)


def test_ranges_of_unknown_extent_are_shown_as_such() -> None:
    tp = TopicPartition("t", 0)
    assert describe_loss(Loss.PARTITIONS_DELETED, [(tp, -1, -1)]).endswith(": t-0")
    assert describe_loss(Loss.PARTITIONS_DELETED, [(tp, 5, -1)]).endswith(": t-0 [5, …)")


def test_a_long_list_of_losses_is_cut() -> None:
    text = describe_loss(Loss.RANGE_UNREADABLE, [(TopicPartition("t", p), 0, 1) for p in range(1000)])
    assert text.endswith("t-19 [0, 1) and 980 more")
