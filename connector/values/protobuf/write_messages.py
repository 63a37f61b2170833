"""The steps that write Protobuf messages out of Arrow columns, all rows together.

A value step writes the values of one field without their tags; a field step adds the tags, and leaves out what is not set.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.writing import EncodeErrors, fixed_width, items_of, of_present
from pykafka_wire.values.protobuf.field_scan import GROUP, LENGTH
from pykafka_wire.values.protobuf.write_scalars import Value
from pykafka_wire.wire.records.arrays import to_arrow, validity
from pykafka_wire.wire.records.row_segments import (
    BytesSegment,
    RowSegment,
    WordSegment,
    bounds,
    byte_lengths,
    bytes_segment,
    constant,
    join_segments,
    masked,
    unsigned_varints,
)


class Content(ABC):
    """Writes the content of messages: their bytes without a tag and a length."""

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        """``column`` has no nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Content):
    """A message out of a struct.

    Attributes:
        fields: in the order of their numbers, and the place of each in the struct.
        oneofs: of each, its path and the places of its members in the struct.
    """

    fields: Sequence[tuple[FieldStep, int]]
    oneofs: Sequence[tuple[str, Sequence[int]]] = ()

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        segments: list[RowSegment] = []
        for step, place in self.fields:
            segments += step.write(column.field(place), errors)
        for path, places in self.oneofs:
            n_set = sum(validity(column.field(place)).astype(np.int64) for place in places)
            several = np.flatnonzero(n_set > 1)
            if len(several):
                errors.add(several, path, "several members of one oneof are set")
        return segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper(Content):
    """A wrapper's message out of its value."""

    field: FieldStep

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return self.field.write(column, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Time(Content):
    """Timestamps and durations.

    Attributes:
        per_second: the column's unit.
        least, most: seconds.
        is_signed: whether the part below a second has the sign of the whole.
    """

    path: str
    message: Message
    per_second: int
    least: int
    most: int
    is_signed: bool

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        units = fixed_width(column, "int64")
        seconds, rest = np.divmod(units, self.per_second)
        if self.is_signed:
            back = (seconds < 0) & (rest > 0)
            seconds, rest = seconds + back, np.where(back, rest - self.per_second, rest)
        wrong = (seconds < self.least) | (seconds > self.most)
        if wrong.any():
            errors.add(np.flatnonzero(wrong), self.path, "a time outside the range that Protobuf has")
        nanos = rest * (10**9 // self.per_second)
        parts = pa.StructArray.from_arrays([to_arrow(seconds), to_arrow(nanos)], names=["seconds", "nanos"])
        return self.message.write(parts, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText(Content):
    """``google.protobuf.Struct``, ``Value`` and ``ListValue`` out of JSON text, one by one.

    For ``Value``, text that is no JSON is a string, as it is where such a message is read.

    Attributes:
        name: of the message in ``google.protobuf.struct_pb2``.
    """

    path: str
    name: str

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        from google.protobuf import json_format, struct_pb2

        cls: Any = getattr(struct_pb2, self.name)
        found: list[bytes] = []
        for row, text in enumerate(column.to_pylist()):
            message = cls()
            try:
                try:
                    json_format.Parse(text, message)
                except json_format.ParseError:
                    if self.name != "Value":
                        raise
                    message.string_value = text
                found.append(message.SerializeToString(deterministic=True))
            except Exception:  # also RecursionError, and what is no text
                errors.add(np.array([row]), self.path, f"text that is not the JSON of a google.protobuf.{self.name}")
                found.append(b"")
        edges = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in found], out=edges[1:])
        return [bytes_segment(edges, b"".join(found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested(Value):
    """Messages in messages; groups have an end in place of a length."""

    content: Content
    end: bytes = b""
    wire_type: int = LENGTH
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        n = len(column)
        segments, is_set = self.content.write(column, errors), np.ones(n, dtype=np.bool_)
        if self.wire_type == GROUP:
            return [*segments, *constant(self.end, n)], is_set
        whole = join_segments(segments, n)
        return [*unsigned_varints(byte_lengths(whole).view(np.uint64)), BytesSegment(whole)], is_set


class FieldStep(ABC):
    """Writes a field with its tags, for messages of which each is there."""

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(FieldStep):
    """A singular field.

    Attributes:
        has_presence: whether zero, and what is empty, is written.
        is_required: whether null is an error; else the field is not set.
    """

    path: str
    value: Value
    number: int
    has_presence: bool
    is_required: bool = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        present = validity(column)
        if self.is_required and column.null_count:
            errors.add(np.flatnonzero(~present), self.path, "null, and the field is required")
        if not self.value.is_flat and column.null_count:
            return of_present(column, present, errors, self._write)
        segments, is_set = self.value.write(column, errors)
        if not self.has_presence:
            present = present & is_set
        segments = [*self._tags(column), *segments]
        return segments if present.all() else [masked(segment, present) for segment in segments]

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return [*self._tags(column), *self.value.write(column, errors)[0]]

    def _tags(self, column: Any) -> list[WordSegment]:
        return constant(tag(self.number, self.value.wire_type), len(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(FieldStep):
    """A repeated field out of a list; null is an empty one."""

    path: str
    value: Value
    number: int
    is_packed: bool

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return of_present(column, validity(column), errors, self._write)

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        starts, items, inner = items_of(column, column.values, errors)
        n = len(items)
        if items.null_count:
            inner.add(np.flatnonzero(~validity(items)), self.path, "null, which a repeated field does not have")
            if not self.value.is_flat:
                items = _without_nulls(items)
                if items is None:
                    return []
        segments, _ = self.value.write(items, inner)
        if not self.is_packed:
            segments = [*constant(tag(self.number, self.value.wire_type), n), *segments]
        whole = join_segments(segments, n)
        written = bytes_segment(bounds(whole)[starts], whole.buffers()[2] or b"")
        if not self.is_packed:
            return [written]
        lengths = byte_lengths(written.array)
        head = [*constant(tag(self.number, LENGTH), len(column)), *unsigned_varints(lengths.view(np.uint64))]
        return [*(masked(segment, lengths > 0) for segment in head), written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries(FieldStep):
    """A map; its entries in the order of their keys, so that equal maps have the same bytes."""

    path: str
    key: Value
    value: Value
    number: int

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return of_present(column, validity(column), errors, self._write)

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        starts, keys, inner = items_of(column, column.keys, errors)
        items = items_of(column, column.items, errors)[1]
        n = len(keys)
        if items.null_count:
            inner.add(np.flatnonzero(~validity(items)), self.path, "null, which a map's value cannot be")
            if not self.value.is_flat:
                items = _without_nulls(items)
                if items is None:
                    return []
        counts = np.diff(starts)
        if n and int(counts.max()) > 1:
            owner = np.repeat(np.arange(len(counts)), counts)
            order = pc.sort_indices(
                pa.table({"owner": to_arrow(owner), "key": keys}),
                sort_keys=[("owner", "ascending"), ("key", "ascending")],
            )
            keys, items = keys.take(order), items.take(order)
            places = fixed_width(order, "uint64").astype(np.int64)
            inner = inner.inside(places.__getitem__)
        segments = [*constant(tag(1, self.key.wire_type), n), *self.key.write(keys, inner)[0]]
        segments += [*constant(tag(2, self.value.wire_type), n), *self.value.write(items, inner)[0]]
        entries = join_segments(segments, n)
        head = [*constant(tag(self.number, LENGTH), n), *unsigned_varints(byte_lengths(entries).view(np.uint64))]
        whole = join_segments([*head, BytesSegment(entries)], n)
        return [bytes_segment(bounds(whole)[starts], whole.buffers()[2] or b"")]


def _without_nulls(items: Any) -> Any:
    """Another item in place of each null, whose row is an error; None where all are null."""
    valid = validity(items)
    if not valid.any():
        return None
    return items.take(to_arrow(np.where(valid, np.arange(len(items)), int(np.argmax(valid)))))


def tag(number: int, wire_type: int) -> bytes:
    left, found = number << 3 | wire_type, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
