"""Decodes all Avro values of one writer's schema into one Arrow column together.

Owns the conversion from payloads to lanes and back. If a row cannot be read in columns, its number is returned, and the
caller decodes it separately, to find the reason or that it is valid.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.avro.lanes import Lanes
from pykafka_wire.values.avro.scalar_steps import Step
from pykafka_wire.values.parts import joined
from pykafka_wire.values.payloads import Flags, Payloads

#: Lanes per group, chosen so that their data fits the cache.
_LANES_AT_ONCE: Final = 32_768
#: Bytes per group. An item of an array may have one byte, and some 100 are computed of it.
_BYTES_AT_ONCE: Final = 2 << 20


def decode(payloads: Payloads, step: Step, column_type: pa.DataType) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: the values, and which of them could not be read.

    Elements that could not be read are meaningless. A value with bytes left over counts as not read.
    """
    columns, failed = [], [np.zeros(0, dtype=np.bool_)]
    first = 0
    while first < len(payloads):
        by_bytes = int(np.searchsorted(payloads.ends, payloads.starts[first] + _BYTES_AT_ONCE, side="right"))
        some = slice(first, min(first + _LANES_AT_ONCE, max(by_bytes, first + 1)))
        first = some.stop
        lanes = Lanes.of(Payloads(payloads.data, payloads.starts[some], payloads.ends[some]))
        columns.append(step.read(lanes))
        failed.append(lanes.failed | (lanes.position != lanes.end))
    return joined(columns, column_type), np.concatenate(failed)
