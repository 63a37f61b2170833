"""Lets mypy reject a ``match`` that has no case for one of its values.

Python has ``typing.assert_never`` from 3.11 on.
"""

from __future__ import annotations

from typing import NoReturn


def assert_never(value: NoReturn) -> NoReturn:
    """Raise AssertionError: no case of a ``match`` is for `value`. The type checker finds such a `value` before that."""
    raise AssertionError(f"no case for {value!r}")
