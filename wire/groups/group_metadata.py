"""Which member of a group commits: sent with a transaction's offsets, so that the group's coordinator fences zombies (KIP-447)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group, and its member that commits; only the name for a commit from outside, which fences no member.

    Attributes:
        generation: in the consumer protocol (KIP-848) the member's epoch; -1 from outside.
    """

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
