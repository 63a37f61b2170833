"""The definition of a table: its mode, the format of its values and the subset of its topic, stored in the table's properties.

The table decides, not the settings. A start whose settings contradict the table stops the table, unless ``redefine`` names the
setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


def check_definition(properties: Mapping[str, str], table: Table, shown: str) -> None:
    """Check that the settings agree with a table's definition. The format may differ: another format may read what the first could
    not.

    Args:
        properties, shown: as of :func:`redefined`.

    Raises:
        IngestError: the settings contradict the table's definition.
    """
    redefined(properties, replace(table, redefine=("format", *table.redefine)), shown)


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


#: The property of a table of changes with the format in which its keys are read.
KEY_FORMAT_PROPERTY: Final = "pykafka-wire.key-format"
#: Formats that leave a key as its bytes are. Other formats decode the bytes, so the same record has another key.
_UNDECODED: Final = frozenset({"string", "binary"})


def key_format_to_note(
    properties: Mapping[str, str], key_format: str, shown: str, topic: str, *, has_keys: bool
) -> dict[str, str]:
    """Return the property to store for the format in which a table's keys are read; usually none, since the table has it.

    Args:
        properties: the properties of the table; none for a new table.
        shown: the table's name in the error.
        has_keys: whether the table has a column of keys.

    Raises:
        IngestError: the table's keys were read in a format that gives the same record another key.
    """
    held = properties.get(KEY_FORMAT_PROPERTY)
    if held == key_format:
        return {}
    if held is None or not has_keys:
        return {KEY_FORMAT_PROPERTY: key_format}
    if not _UNDECODED.isdisjoint((held, key_format)):
        raise IngestError(
            f"table {shown} finds its rows by keys of the format {held}, but the settings or the registry now give the keys of "
            f"topic {topic} the format {key_format}, in which the same record has another key: rows would be there twice, and "
            f'deletes would delete nothing. Set key_format = "{held}" in [[table]], or give the topic another table by name there.'
        )
    return {}
