"""Texts of users without the secrets that they may hold, for errors and logs.

Owns what of a text is a secret: what stands before an ``@``, where it names a user with a password or is part of a URI, and a URI's
query. Whoever quotes a value that a user gave passes it through here first: a value is often given to the wrong option.
"""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = "***"
#: Azure's URIs name a container there: abfss://container@account….
_CONTAINER_BEFORE_AT: Final = ("abfs", "abfss", "wasb", "wasbs")
#: From the first word with a colon in it to the last @: a password may hold any character.
_PASSWORD: Final = re.compile(r"[^\s,;/@'\"]*:.*@", re.DOTALL)


def without_secrets(text: str) -> str:
    """Return a text whose credentials are masked, and a URI's query parameters too; a path as it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _PASSWORD.sub(f"{_SHOWN}@", text)
    credentials, _, place = rest.rpartition("@")
    folder, _, parameters = place.partition("?")
    if credentials and not (scheme.lower() in _CONTAINER_BEFORE_AT and ":" not in credentials):
        credentials = _SHOWN
    shown = f"{scheme}://{credentials}{'@' if credentials else ''}{folder}{f'?{_SHOWN}' if parameters else ''}"
    return shown if "@" not in scheme else _PASSWORD.sub(f"{_SHOWN}@", shown)


def quoted(value: object) -> str:
    """Return a value as an error shows it: in quotes if it is a text, and without secrets."""
    return repr(without_secrets(value) if isinstance(value, str) else value)
