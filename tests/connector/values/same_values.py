"""Whether two Python values are the same: a NaN and another one are, 0.0 and -0.0 are not."""

from __future__ import annotations

import math
from typing import Any


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        is_equal = one == other and math.copysign(1, one) == math.copysign(1, other)
        return is_equal or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
