"""How a table was made: its mode, the format of its values and the part of its topic, in the table's own properties.

The table decides, not the settings: a start that contradicts the table stops it, unless ``redefine`` names the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import ReadSettings, Table

#: Which of its topic's records a table takes, where that is a part.
PART_PROPERTY: Final = "pykafka-wire.takes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trait:
    """One thing that a table is.

    Attributes:
        property: the table's property that has the trait; absent for what ``absent`` says.
        of: returns the trait by the settings; None for the absent one.
        absent: words for a table without the property; None where such a table is an older version's, of which nothing is known.
        consequence: what becomes of the rows that the table has, if the trait changes.
    """

    property: str
    of: Callable[[Table], str | None]
    absent: str | None
    consequence: str


#: By the setting that ``redefine`` names.
_TRAITS: Final[Mapping[str, _Trait]] = {
    "mode": _Trait(
        property="pykafka-wire.mode",
        of=lambda table: table.mode,
        absent=None,
        consequence="the rows that it has stay, also those that the new mode would have replaced or deleted",
    ),
    "format": _Trait(
        property="pykafka-wire.format",
        of=lambda table: table.format,
        absent=None,
        consequence="the columns that it has stay, and new values must fit them",
    ),
    "where": _Trait(
        property=PART_PROPERTY,
        of=lambda table: table.subset_text,
        absent="all records of its topic",
        consequence="the rows that it has stay as they were taken, and ingest --verify compares them by the settings",
    ),
}


def definition_properties(table: Table) -> dict[str, str]:
    """Return the properties of a new table that say how it is made."""
    traits = ((trait.property, trait.of(table)) for trait in _TRAITS.values())
    return {name: value for name, value in traits if value is not None}


def redefined(properties: Mapping[str, str], table: Table, shown: str) -> dict[str, str]:
    """Return the properties that a table gets whose definition the settings change, and ``redefine`` allows; mostly none.

    Args:
        properties: of the table.
        shown: the table's name, for the error.

    Raises:
        IngestError: the settings contradict how the table was made.
    """
    changed = {}
    for setting, trait in _TRAITS.items():
        held, wanted = properties.get(trait.property) or trait.absent, trait.of(table) or trait.absent
        if held in (None, wanted):
            continue
        if setting not in table.redefine:
            raise IngestError(
                f"table {shown} was made with {_text(setting, held)}, and the settings have {_text(setting, wanted)} for topic "
                f"{table.topic}: set {setting} as it was, give the topic another table by name in [[table]], or allow the change "
                f'by redefine = ["{setting}"] in [[table]]; then {trait.consequence}.'
            )
        changed[trait.property] = trait.of(table) or ""
    return changed


def _text(setting: str, value: str | None) -> str:
    """Return a trait for people; the part of a topic says itself what it is."""
    return str(value) if setting == "where" else f"{setting} {value}"


#: The property of a table that was made with Kafka Connect's types: the value of the option ``connectTypes``.
CONNECT_TYPES_PROPERTY: Final = "pykafka-wire.connect-types"


def connect_types(reading: ReadSettings, made_with: str | None, *, is_new: bool) -> str:
    """Return the option ``connectTypes`` of a table's reads.

    Args:
        made_with: :data:`CONNECT_TYPES_PROPERTY` of the table.
    """
    if is_new or reading.connect_types != "auto":
        return reading.new_connect_types
    return made_with or "false"
