"""Filters that Spark hands to a batch read (4.1+): which topic-partitions and offsets they rule out.

Owns the reading of filters, and knows no broker. What is ruled out here never holds a row that the filters would keep, and
Spark still evaluates every filter itself:

- ``topic``, ``partition`` and ``offset`` are known before anything is fetched;
- ``timestamp`` has a safe lower bound only. Producers choose timestamps and choose them out of order, but ListOffsets
  responds with the *first* record that is as late as asked for: all before it are earlier. Nothing can be said of what
  comes after an upper bound, so that is left to Spark. LogAppendTime does not change that: a topic's setting may
  have changed since its records were appended, and a new leader's clock may be behind the last one's.

The option ``filterPushdown`` asks for it: Spark (4.2.0) keeps the plan of a Python source's first filtered query with the relation,
and uses it for every later query of the same DataFrame or view, also in a self-union. Rows would be missing without an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from pykafka_wire.wire.topic_partitions import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Above every offset.
_NO_END: Final = 2**63 - 1

#: Spark's filters by name (their classes are not there before 4.1): column's value, filter's value -> holds.
# Any: strings or ints, of one kind.
_HOLDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, wanted: value in wanted,
    "StringStartsWith": lambda value, wanted: value.startswith(wanted),
    "StringEndsWith": lambda value, wanted: value.endswith(wanted),
    "StringContains": lambda value, wanted: wanted in value,
}
_TYPES: Final[dict[str, type]] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What the filters leave to be read.

    Attributes:
        tests: on a topic-partition; all must hold.
        start_offset, end_offset: offsets outside are ruled out, in every topic-partition.
        timestamp_ms: so are the offsets before the first record that is as late as this; None for no such bound.
    """

    tests: tuple[tuple[str, str, Any, bool], ...] = ()  # (column, filter, value, expected)
    start_offset: int = 0
    end_offset: int = _NO_END
    timestamp_ms: int | None = None

    def keeps(self, tp: TopicPartition) -> bool:
        """Return whether rows of this topic-partition can pass the filters."""
        return all(_HOLDS[name](getattr(tp, column), value) is expected for column, name, value, expected in self.tests)


#: No filter, everything is read.
NO_PRUNING: Final = Pruning()


def prune(filters: Iterable[Any]) -> Pruning:
    """Return what ``filters`` (Spark's, of which all must hold) leave to be read; one that is not understood rules out nothing."""
    pruning = NO_PRUNING
    for predicate in filters:
        pruning = _narrow(pruning, predicate)
    return pruning


def _narrow(pruning: Pruning, predicate: Any) -> Pruning:
    name, expected = type(predicate).__name__, True
    if name == "Not":
        predicate, expected = predicate.child, False
        name = type(predicate).__name__
    column = predicate.attribute[0] if len(getattr(predicate, "attribute", ())) == 1 else ""
    if column not in _TYPES or name not in _HOLDS:
        return pruning
    values = predicate.value if name == "In" else (predicate.value,)
    if not values or not all(type(value) is _TYPES[column] for value in values):
        return pruning
    if column in ("topic", "partition"):
        return replace(pruning, tests=(*pruning.tests, (column, name, predicate.value, expected)))
    if not expected:
        return pruning
    return (_narrow_offsets if column == "offset" else _narrow_timestamps)(pruning, name, values)


def _narrow_offsets(pruning: Pruning, name: str, values: tuple[int, ...]) -> Pruning:
    first, end = 0, _NO_END
    if name in ("EqualTo", "EqualNullSafe", "In"):
        first, end = min(values), max(values) + 1
    elif name in ("GreaterThan", "GreaterThanOrEqual"):
        first = values[0] + (name == "GreaterThan")
    else:
        end = values[0] + (name == "LessThanOrEqual")
    return replace(
        pruning, start_offset=max(pruning.start_offset, first), end_offset=max(0, min(pruning.end_offset, end))
    )


def _narrow_timestamps(pruning: Pruning, name: str, values: tuple[datetime, ...]) -> Pruning:
    if name.startswith("LessThan") or any(value.tzinfo is None for value in values):
        return pruning
    # Kafka counts milliseconds, Spark microseconds: the first millisecond that can pass.
    earliest_us = (min(values) - _EPOCH) // timedelta(microseconds=1)
    first_ms = (earliest_us // 1000) + 1 if name == "GreaterThan" else -(-earliest_us // 1000)
    if first_ms <= 0:  # no time that ListOffsets knows
        return pruning
    return replace(pruning, timestamp_ms=max(first_ms, pruning.timestamp_ms or 0))
