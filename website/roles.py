"""Sphinx's roles in docstrings, as plain Markdown."""

from __future__ import annotations

import re

_ROLE = re.compile(r":\w+:`(~?)([^`]+)`")


def plain(text: str) -> str:
    """`text` with each role, such as :class:`~pykafka_wire.wire.Consumer`, replaced by its target in backticks.

    After a ``~`` only the last name stays.
    """
    return _ROLE.sub(lambda found: f"`{found[2].rpartition('.')[2] if found[1] else found[2]}`", text)
