"""Reads all Protobuf messages of one type into one Arrow column together, in groups of lanes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.parts import joined
from pykafka_wire.values.payloads import Flags, Payloads
from pykafka_wire.values.protobuf.lanes import Data, Lanes
from pykafka_wire.values.protobuf.message_columns import Messages, check_unwanted

#: Lanes per group, chosen so that their data fits the cache.
_LANES_AT_ONCE: Final = 16_384
#: Bytes per group: what is computed of them takes some times as much.
_BYTES_AT_ONCE: Final = 8 << 20


def read_messages(payloads: Payloads, messages: Messages) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: the messages, and which of them were not read in columns; those elements mean nothing."""
    columns, failed = [], [np.zeros(0, dtype=np.bool_)]
    first = 0
    while first < len(payloads):
        start = int(payloads.starts[first])
        past = int(np.searchsorted(payloads.ends[first : first + _LANES_AT_ONCE], start + _BYTES_AT_ONCE, side="right"))
        last = first + max(past, 1)
        starts, ends = payloads.starts[first:last], payloads.ends[first:last]
        data = Data(payloads.data[start : int(ends[-1])])
        lanes = Lanes(data, starts - start, ends - start)
        columns.append(_read_group(lanes, messages))
        failed.append(lanes.failed)
        first = last
    return joined(columns, messages.type), np.concatenate(failed)


def _read_group(lanes: Lanes, messages: Messages) -> Any:
    try:
        column = messages.read(lanes, None)
        check_unwanted(lanes)
    except (pa.ArrowException, OverflowError):  # more than an array holds
        lanes.failed[:] = True
        return pa.nulls(len(lanes), messages.type)
    return column
