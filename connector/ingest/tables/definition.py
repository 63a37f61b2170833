"""The definition of a table: its mode, the format of its values and the subset of its topic, stored in the table's properties.

The table decides, not the settings. A start whose settings contradict the table stops the table, unless ``redefine`` names the
setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import ReadSettings, Table

#: The property with the subset of its topic's records that a table takes.
SUBSET_PROPERTY: Final = "pykafka-wire.takes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trait:
    """One property of a table's definition.

    Attributes:
        property: the name of the table property with the value; the property is absent if the value is that of ``absent``.
        of: returns the value by the settings; None if the property would be absent.
        absent: the value of a table without the property, as text; None if the table was made by an older version, so that its
            value is unknown.
        consequence: what happens to the existing rows if the value changes, as text.
    """

    property: str
    of: Callable[[Table], str | None]
    absent: str | None
    consequence: str


#: The traits, by the setting that ``redefine`` names.
_TRAITS: Final[Mapping[str, _Trait]] = {
    "mode": _Trait(
        property="pykafka-wire.mode",
        of=lambda table: table.mode,
        absent=None,
        consequence="its rows stay, including rows that the new mode would have replaced or deleted",
    ),
    "format": _Trait(
        property="pykafka-wire.format",
        of=lambda table: table.format,
        absent=None,
        consequence="its columns stay, and new values must fit them",
    ),
    "where": _Trait(
        property=SUBSET_PROPERTY,
        of=lambda table: table.subset_text,
        absent="all records of its topic",
        consequence="its rows stay, and ingest --verify compares them by the new setting",
    ),
}


def definition_properties(table: Table) -> dict[str, str]:
    """Return the properties that store the definition of a new table."""
    traits = ((trait.property, trait.of(table)) for trait in _TRAITS.values())
    return {name: value for name, value in traits if value is not None}


def redefined(properties: Mapping[str, str], table: Table, shown: str) -> dict[str, str]:
    """Return the properties to change because ``redefine`` allows a changed definition; usually none.

    Args:
        properties: the properties of the table.
        shown: the table's name in the error.

    Raises:
        IngestError: the settings contradict the table's definition.
    """
    changed = {}
    for setting, trait in _TRAITS.items():
        held, wanted = properties.get(trait.property) or trait.absent, trait.of(table) or trait.absent
        if held in (None, wanted):
            continue
        if setting not in table.redefine:
            raise IngestError(
                f"table {shown} was made with {_text(setting, held)}, but the settings have {_text(setting, wanted)} for topic "
                f"{table.topic}: restore {setting}, give the topic another table by name in [[table]], or allow the change "
                f'with redefine = ["{setting}"] in [[table]]; then {trait.consequence}.'
            )
        changed[trait.property] = trait.of(table) or ""
    return changed


def _text(setting: str, value: str | None) -> str:
    """Return the value of a trait as text; that of ``where`` needs no setting name."""
    return str(value) if setting == "where" else f"{setting} {value}"


#: The property of a table with JSON values whose type is inferred: whether the values are ``objects``, whose fields are columns, or
#: other ``values``, in the column ``value``. A table without the property shows that by its columns, or its next values decide.
DOCUMENTS_PROPERTY: Final = "pykafka-wire.documents"
#: The property of a table made with Kafka Connect's types: the value of the option ``connectTypes``.
CONNECT_TYPES_PROPERTY: Final = "pykafka-wire.connect-types"


def connect_types(reading: ReadSettings, made_with: str | None, *, is_new: bool) -> str:
    """Return the option ``connectTypes`` for reads of a table.

    Args:
        made_with: the table's property :data:`CONNECT_TYPES_PROPERTY`.
    """
    if is_new or reading.connect_types != "auto":
        return reading.new_connect_types
    return made_with or "false"
