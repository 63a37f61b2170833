"""How many inputs the laws of a landing are tried with: few and always the same in `make test`, many new ones in `make laws`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings

#: Set by `make laws`: so many times the examples of `make test`.
FACTOR: Final = int(os.environ.get("PYKAFKA_WIRE_LAWS", "0"))


def examples(few: int) -> Callable[[Any], Any]:
    """Try a law with this many generated inputs in `make test`, and with many times as many in `make laws`.

    Examples share the fixtures of their test: each makes topics and tables of names of its own.
    """
    is_long = FACTOR > 0
    return settings(
        max_examples=few * max(FACTOR, 1),
        derandomize=not is_long,
        database=None,
        deadline=None,
        print_blob=is_long,
        suppress_health_check=list(HealthCheck),
        # To shrink a failure lands a hundred more topics: only where somebody waits for it.
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if is_long else [])],
    )
