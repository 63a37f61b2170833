"""Law: each change is applied to its row, also if the row is another program's and lacks its place in the topic.

All rows with and without partition, offset and timestamp meet a change and a TRUNCATE. The oracle compares them in Python: a row
that lacks a value is older.
"""

from __future__ import annotations

from datetime import datetime
from itertools import product
from typing import Any, Final

import pytest
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.changes.newest import _newer
from pykafka_wire.ingest.changes.unsent_values import is_older
from pykafka_wire.ingest.tables.merging import Truncation

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_AT_MS: Final = (1_000, 2_000, 3_000)
_PARTITION, _OFFSET, _MS = 1, 5, 2_000
_PLACE: Final = "STRUCT<`partition`: INT, `offset`: BIGINT, `timestamp`: TIMESTAMP>"


def _is_before(row: tuple[int | None, int | None, int | None], *, than: str, is_within_ms: bool) -> bool:
    """Return whether a row is older than the place in partition 1."""
    partition, offset, at_ms = row
    if partition == _PARTITION:
        return offset is None or offset < _OFFSET or (than == ">=" and offset == _OFFSET)
    if at_ms is None or at_ms != _MS:
        return at_ms is None or at_ms < _MS
    return is_within_ms or partition is None or partition < _PARTITION


def test_a_row_without_its_place_is_older_than_each_change_and_truncate(spark: Any) -> None:
    places = [*product((None, 0, 1, 2), (None, 4, 5, 6), (None, *_AT_MS))]
    rows = [(p, offset, None if ms is None else datetime.fromtimestamp(ms / 1000)) for p, offset, ms in places]
    change = (_PARTITION, _OFFSET, datetime.fromtimestamp(_MS / 1000))
    held = spark.createDataFrame([(row, change) for row in rows], f"old {_PLACE}, new {_PLACE}").coalesce(1)
    names = ("old.`partition`", "old.`offset`", "old.`timestamp`")
    truncation = Truncation(partition=_PARTITION, offset=_OFFSET, timestamp_us=_MS * 1000, seen_ns=None)
    conditions = [_newer("", ">"), _newer("", ">="), truncation.ends(*names), is_older(*names, "new")]
    found = held.select(*(F.expr(condition).alias(f"c{n}") for n, condition in enumerate(conditions))).collect()
    expected = [
        (
            _is_before(place, than=">", is_within_ms=False),
            _is_before(place, than=">=", is_within_ms=False),
            _is_before(place, than=">", is_within_ms=True),
            _is_before(place, than=">", is_within_ms=True),
        )
        for place in places
    ]
    assert {place: tuple(row) for place, row in zip(places, found, strict=True)} == dict(
        zip(places, expected, strict=True)
    )
