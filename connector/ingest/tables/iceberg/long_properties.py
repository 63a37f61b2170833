"""Properties of an Iceberg table that are too long for its catalog, such as the position of a topic with hundreds of partitions.

A Hive metastore limits each property to 4,000 characters, or to 32,672 with the schema of Hive 2.3 or newer, and pyiceberg
copies all properties into the metastore. So a long property of this package is divided into several ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The most characters of a property, which the oldest metastores accept.
MAX_CHARACTERS: Final = 4_000
#: The prefix of this package's properties. Others are not divided, since other programs read them.
_OWN: Final = "pykafka-wire."
#: The start of the first part of a divided property; followed by the number of parts, and a blank.
_MARK: Final = "pykafka-wire.parts "


def divided(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties in which no property of this package is too long: the parts are ``NAME``, ``NAME.1``, ``NAME.2`` …"""
    stored = {}
    for name, text in properties.items():
        if not name.startswith(_OWN) or len(text) <= MAX_CHARACTERS:
            stored[name] = text
            continue
        size = MAX_CHARACTERS - len(_MARK) - len(str(len(text))) - 1
        first, *others = (text[start : start + size] for start in range(0, len(text), size))
        stored[name] = f"{_MARK}{1 + len(others)} {first}"
        stored |= {f"{name}.{number}": part for number, part in enumerate(others, 1)}
    return stored


def joined(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the text of each divided property under its name."""
    whole = dict(properties)
    for name, text in properties.items():
        if text.startswith(_MARK):
            n_parts, _, first = text.removeprefix(_MARK).partition(" ")
            others = (properties[f"{name}.{number}"] for number in range(1, int(n_parts)))
            whole[name] = first + "".join(others)
    return whole
