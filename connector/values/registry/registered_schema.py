"""A schema as a registry keeps it: its id, its text, what it refers to, and its rules."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

#: A number, or a GUID, of Confluent's registry; the UUID of a schema's version in AWS Glue's.
RegistryId = int | uuid.UUID


def registry_id(text: int | str | None) -> RegistryId | None:
    """Return an id out of JSON, where a UUID is a text. Raises TypeError or ValueError for what is none."""
    return uuid.UUID(text) if isinstance(text, str) else None if text is None else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another schema that one needs: the name it uses for it, and where the registry has it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a data contract, which Confluent's serializers apply to each value, such as the encryption of fields (CSFLE).

    Attributes:
        type: ``ENCRYPT``, ``CEL``, ``JSONATA`` or another name of what applies it.
        mode: ``WRITE``, ``READ``, ``WRITEREAD``; of migrations between versions ``UPGRADE``, ``DOWNGRADE`` or ``UPDOWN``.
    """

    name: str
    type: str
    mode: str

    def __str__(self) -> str:
        return f"the rule {self.name} ({self.type}, {self.mode})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as the registry keeps it.

    Attributes:
        kind: AVRO, JSON or PROTOBUF.
        rules: those that are not disabled.
        contract: where it has rules, the JSON of its rule set and its metadata.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()
    contract: str | None = None

    def has_same_types(self, other: Schema) -> bool:
        """Return whether the values of two schemas have the same types. Equal texts suffice only with equal references, since a
        text takes types from them."""
        return (self.kind, self.text, self.references) == (other.kind, other.text, other.references)

    def rule(self, *modes: str, but: Collection[str] = ()) -> Rule | None:
        """Return a rule that applies in one of these modes, and is of none of the types in ``but``."""
        return next((rule for rule in self.rules if rule.mode in modes and rule.type not in but), None)
