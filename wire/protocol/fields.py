"""One row of a message's field table.

Owns the :class:`Field` and the kinds of fixed width; it knows neither messages nor bytes.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from pykafka_wire.wire.protocol.primitives import Piece, n_bytes

#: A version later than any.
FOREVER: Final = 0x7FFF

#: struct formats of the kinds that have a fixed width and need no conversion.
FORMATS: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
WIDTHS: Final = {kind: struct.calcsize(">" + code) for kind, code in FORMATS.items()} | {"uuid": 16}


class Field:
    """One row of a field table.

    Attributes:
        kind: "array", "struct", "string", "bytes", "records", "uuid" or one of :data:`FORMATS`.
        item: of an array or a struct: a structure's class, or the row of an array's primitive elements.
        since, until: first and last version with the field.
        nullable_since: first version in which it may be null, None if it never may.
        default: its value where a version or a constructor's caller lacks it; a class stands for a fresh instance of it.
        ignorable: whether a version without the field may drop any value of it.
        tag: its number, if it is a tagged field in the versions that have it.
        secret: never shown by repr.
        compact: False for a string whose length is int16 in flexible versions too.
    """

    __slots__ = (
        "compact",
        "default",
        "ignorable",
        "item",
        "kind",
        "name",
        "nullable_since",
        "secret",
        "since",
        "tag",
        "until",
    )

    def __init__(
        self,
        kind: str,
        *,
        item: type | Field | None = None,
        since: int = 0,
        until: int = FOREVER,
        nullable_since: int | None = None,
        default: object = None,
        ignorable: bool = False,
        tag: int | None = None,
        secret: bool = False,
        compact: bool = True,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.item = item
        self.since = since
        self.until = until
        self.nullable_since = nullable_since
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.secret = secret
        self.compact = compact

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def new_default(self) -> object:
        """The default; a class (list or a structure) stands for a fresh instance of it."""
        return self.default() if isinstance(self.default, type) else self.default

    def show(self, value: object) -> str:
        """The value for repr: never a secret, never a payload."""
        if value is not None and self.secret:
            return "<hidden>"
        if value is not None and self.kind == "records":
            parts = value if isinstance(value, list) else [value]
            return f"<{sum(n_bytes(cast('Piece', part)) for part in parts)} bytes>"
        return repr(value)
