"""The formats of keys and values: the one list of them.

Options, the ingest's settings and the command take their names from here, and so do checkpoints.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

ValueFormat = Literal["binary", "string", "json", "avro", "protobuf"]

FORMATS: Final[tuple[ValueFormat, ...]] = get_args(ValueFormat)
#: Formats whose schemas a registry may hold, and what it calls the schemas' kind.
SCHEMA_KINDS: Final[dict[ValueFormat, str]] = {"json": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}
#: Formats whose values cannot be read without a schema.
NEED_SCHEMA: Final = frozenset[ValueFormat]({"avro", "protobuf"})


def format_of_kind(kind: str) -> ValueFormat | None:
    """Return the format that a registry's kind of schema is for, None for a kind that is not known."""
    return next((name for name, known in SCHEMA_KINDS.items() if known == kind), None)
