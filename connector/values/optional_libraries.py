"""The libraries behind the extras ``values`` and ``aws``, imported when they are needed."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from pykafka_wire.errors import MissingLibraryError


@lru_cache  # called for every value
def library(
    name: str, what_for: str, extra: str = "values"
) -> Any:  # Any: modules that may be absent have no types to promise
    """Return an optional module.

    Raises:
        MissingLibraryError: it is not installed where this runs.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"{what_for} needs the module {error.name}, which is not installed: pip install 'pykafka-wire[{extra}]', on "
            "the driver and on every executor."
        ) from error
