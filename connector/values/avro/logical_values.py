"""What Avro's logical types mean for a column: the unit of a time, and which columns hold a union's branches.

Shared by both ways of reading, in columns and one by one, so that they agree.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.values.avro.resolution import Scalar
from pykafka_wire.values.avro.schema import logical_of

#: The units of Spark's TIMESTAMP and of its TIME.
MICROS: Final = pa.timestamp("us")
NANOS: Final = pa.time64("ns")
_MEMBER: Final = re.compile("member[0-9]+")
#: Parts of a second in each of a logical type's units, by the last word of its name.
_PER_SECOND: Final = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_COLUMN_PER_SECOND: Final = {"us": 1_000_000, "ns": 1_000_000_000}


def scale_of(node: Scalar, wanted: pa.DataType) -> tuple[int, int] | None:
    """``(factor, divisor)`` from a time as written to a timestamp or time column's unit; None for any other type.

    The unit is the writer's: the number that was written keeps its meaning under a reader's schema with another one.
    """
    kind, read = _time_of(logical_of(node.read))
    written_kind, written = _time_of(logical_of(node.written))
    if not kind or (pa.types.is_timestamp(wanted), pa.types.is_time64(wanted)) != (kind == "timestamp", kind == "time"):
        return None
    per_second = written if written_kind == kind else read
    column = _COLUMN_PER_SECOND.get(wanted.unit)
    if column is None:
        return None
    return (column // per_second, 1) if column >= per_second else (1, per_second // column)


def _time_of(logical: str) -> tuple[str, int]:
    """``timestamp`` or ``time``, and the parts of a second; an empty text for other logical types."""
    name, _, unit = logical.rpartition("-")
    kind = name.removeprefix("local-")
    return (kind, _PER_SECOND.get(unit, 1)) if kind in ("timestamp", "time") else ("", 1)


def is_member_struct(wanted: Any) -> bool:  # a pa.DataType
    """Whether a type is the struct of some of a union's branches (:func:`~pykafka_wire.values.avro.types.member_name`)."""
    return (
        pa.types.is_struct(wanted)
        and wanted.num_fields > 0
        and all(_MEMBER.fullmatch(field.name) is not None for field in wanted)
    )
