"""Which columns of a table are Kafka's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykafka_wire.checkpoints.tables import KafkaColumns

PLAIN = ["topic", "partition", "offset", "timestamp"]
PREFIXED = [f"_kafka_{name}" for name in PLAIN]


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (PLAIN, ""),
        (PREFIXED, "_kafka_"),
        # A record's own fields may be called like Kafka's columns, for which these have a prefix.
        ([*PLAIN, *PREFIXED], "_kafka_"),
    ],
)
def test_the_columns_with_a_prefix_are_kafkas_where_both_are_there(names: list[str], prefix: str) -> None:
    rows: Any = SimpleNamespace(columns=names)
    assert KafkaColumns.of(rows, "t", None).prefix == prefix
