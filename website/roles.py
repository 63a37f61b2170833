"""Sphinx's roles in docstrings, as plain Markdown."""

from __future__ import annotations

import re

_ROLE = re.compile(r":\w+:`(~?)([^`]+)`")
_LITERAL = re.compile(r"(\S)::$", re.MULTILINE)


def plain(text: str) -> str:
    """`text` with each role, such as :class:`~pykafka_wire.wire.Consumer`, replaced by its target in backticks.

    After a ``~`` only the last name stays, and of ``title <target>`` the title. The two colons before an example become one.
    """
    return _LITERAL.sub(r"\1:", _ROLE.sub(_shown, text))


def _shown(found: re.Match[str]) -> str:
    tilde, target = found.groups()
    title = target.partition(" <")[0]
    return f"`{title.rpartition('.')[2] if tilde else title}`"
