"""Several types of records in one column: a struct with a field for each type, of which a value has one.

Which type a value has is in its frame: the schema's id, for Protobuf the message's indexes, and for an Avro schema that is a union
the branch before the record. So values are divided by type, and each part is read by its own format, with its reader's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.framing import Frames, Framing, SchemaId


@dataclass(frozen=True, slots=True)
class RecordType:
    """The format of one type, and the field that has its values."""

    field: str
    format: Avro | Protobuf


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTypes:
    """The types that are read, by their full names."""

    types: tuple[tuple[str, RecordType], ...]

    @property
    def framing(self) -> Framing:
        return self._any.framing

    @property
    def has_message_indexes(self) -> bool:
        return self._any.has_message_indexes

    @property
    def _any(self) -> Avro | Protobuf:
        return self.types[0][1].format

    def written_name(self, schema_id: SchemaId | None) -> str | None:
        """Return the full name of the type that a frame stands for; None for Avro's null and types without a name. Raises
        DecodeError.
        """
        return self._any.written_name(schema_id)

    def is_null(self, schema_id: SchemaId | None) -> bool:
        """Return whether all values under a frame are Avro's null. Raises DecodeError, and RegistryError."""
        value_format = self._any
        return isinstance(value_format, Avro) and value_format.is_null(schema_id)

    def type_of(self, schema_id: SchemaId | None) -> RecordType | None:
        """Return the type that a frame stands for, None if it is not read. Raises DecodeError, and RegistryError."""
        return dict(self.types).get(self.written_name(schema_id) or "")

    def divide(self, frames: Frames) -> Frames:
        """Return the frames with the branches of unions apart: each has its number as the message's index."""
        value_format = self._any
        if isinstance(value_format, Protobuf):
            return frames
        payloads = Payloads(frames.payloads.data, frames.payloads.starts.copy(), frames.payloads.ends)
        divided = Frames(payloads, [], frames.reasons)
        for schema_id, index in frames.groups:
            try:
                n_branches = value_format.n_branches(schema_id)
            except DecodeError:  # reported where its values are read
                n_branches = None
            if n_branches is None:
                divided.groups.append((schema_id, index))
                continue
            number = schema_id.id if schema_id is not None else 0
            for branch, rows in _branches(payloads, index):
                if 0 <= branch < n_branches:
                    divided.groups.append((SchemaId(number, (branch,)), rows))
                else:
                    divided.reasons.update(dict.fromkeys(rows.tolist(), f"its union has no branch {branch}"))
        return divided


def field_names(types: Sequence[str]) -> list[str]:
    """Return the fields of types by their full names: their last parts, and the whole name where these are not distinct."""
    short = [name.rpartition(".")[2] for name in types]
    lower = [name.lower() for name in short]
    return [
        short_name if lower.count(short_name.lower()) == 1 else name
        for short_name, name in zip(short, types, strict=True)
    ]


def _branches(payloads: Payloads, index: Ints) -> list[tuple[int, Ints]]:
    """Return the branch of an Avro union, and the rows of ``index`` that have it; -1 where there is none. Moves their payloads'
    starts.
    """
    data, starts, ends = payloads.data, payloads.starts, payloads.ends
    position = starts[index]
    size = ends[index] - position
    first = data.take(position, mode="clip").astype(np.int64)
    second = data.take(position + 1, mode="clip").astype(np.int64)
    is_long = first >= 0x80
    number = np.where(is_long, first & 0x7F | second << 7, first)
    # Zigzag; a branch is two bytes at most, since no union has so many.
    branch = np.where((size < 1 + is_long) | (number & 1) | (is_long & (second >= 0x80)), -1, number >> 1)
    starts[index] += np.where(branch >= 0, 1 + is_long, 0)
    order = np.argsort(branch, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(branch[order])) + 1).tolist(), len(order)]
    return [(int(branch[order[a]]), index[order[a:b]]) for a, b in pairwise(bounds) if b > a]
