"""The search for unsent values in earlier commits: what is gone leaves a null, and an outage leaves the change for later."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pykafka_wire.errors import DataLossError, Loss, RegistryError
from pykafka_wire.ingest.changes.unsent_values import _OUTAGES, REJECTED, SearchRange, filled
from pykafka_wire.ingest.spark.errors import code_of
from pykafka_wire.ingest.tables.merging import CREATED, DELETE, UNAVAILABLE
from pykafka_wire.wire.errors import AuthenticationError, DeadlineExceededError, NoBrokerAvailableError, TransportError

OUTAGES = (AuthenticationError, DeadlineExceededError, NoBrokerAvailableError, TransportError)


@pytest.fixture(scope="module")
def moved_row(spark: Any) -> Any:
    """A row with a new primary key, whose old key has no change in the range."""
    return spark.sql(
        f"SELECT '2' AS key, named_struct('id', 2, 'big', CAST(NULL AS STRING)) AS value, 0 AS partition, 5L AS offset, "
        f"TIMESTAMP'2026-01-01' AS timestamp, array(named_struct('key', '__debezium.oldkey', 'value', CAST('1' AS BINARY))) "
        f"AS headers, false AS {DELETE}, true AS {CREATED}, array('big') AS {UNAVAILABLE}, false AS {REJECTED}"
    )


def ranges(changes: Any, error: Exception) -> Iterator[SearchRange]:
    yield SearchRange(changes=changes, start={0: 0}, may_be_compacted=lambda: False, rows_under=None)
    raise error


@pytest.mark.spark
def test_an_outage_makes_no_value_null(moved_row: Any) -> None:
    with pytest.raises(NoBrokerAvailableError):
        filled(moved_row, ranges(moved_row, NoBrokerAvailableError("no broker responds")))


@pytest.mark.parametrize("error", [*(kind("an outage") for kind in OUTAGES), RegistryError("an outage")])
def test_outages_are_known_by_their_codes(error: Exception) -> None:
    assert code_of(error) in _OUTAGES


@pytest.mark.spark
def test_a_value_whose_records_are_gone_is_unknown(moved_row: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (row,) = filled(moved_row, ranges(moved_row, DataLossError(Loss.RANGE_UNREADABLE, []))).collect()
    assert row.value.big is None and row[UNAVAILABLE] == ["big"]
    assert "The search for unsent values in earlier commits failed." in caplog.text
