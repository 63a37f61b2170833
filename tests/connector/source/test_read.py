"""What a task takes for lost, and what it leaves to Spark's next try."""

from __future__ import annotations

import pytest

from pykafka_wire.source.read import _may_come_back
from pykafka_wire.wire.errors import LogEndError, OffsetOutOfRangeError, WireError
from pykafka_wire.wire.topics import OffsetRange

RANGE = OffsetRange(topic="t", partition=0, start_offset=10, end_offset=100)


def out_of_range(log_start_offset: int | None, log_end_offset: int | None) -> OffsetOutOfRangeError:
    error = OffsetOutOfRangeError(1, topic="t", partition=0)
    error.log_start_offset, error.log_end_offset = log_start_offset, log_end_offset
    return error


def log_end(high_watermark: int, last_stable_offset: int) -> LogEndError:
    return LogEndError(
        "the log ends",
        topic="t",
        partition=0,
        position=50,
        end_offset=100,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
    )


@pytest.mark.parametrize(
    ("error", "may_come_back"),
    [
        (out_of_range(20, 200), False),  # aged out
        (out_of_range(0, 5), False),  # the log was cut
        (out_of_range(0, 200), True),  # by now it is there again
        (out_of_range(None, None), True),  # nobody could be asked
        (log_end(high_watermark=100, last_stable_offset=50), True),  # a transaction is open
        (log_end(high_watermark=50, last_stable_offset=40), False),  # the log lost its tail
    ],
)
def test_only_what_is_proven_lost_is_skipped(error: WireError, may_come_back: bool) -> None:
    assert _may_come_back(RANGE, error) is may_come_back
