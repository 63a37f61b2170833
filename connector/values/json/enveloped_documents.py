"""JSON documents in the envelope of Kafka Connect's converter, read by their payload; documents without envelope as they are.

Each document is judged by itself, by :mod:`~pykafka_wire.values.single_json.connect_envelope`. Most documents show in their first
bytes that they are not in the envelope. Of those that may be, each is parsed, but for documents whose bytes before the payload are
those of one that was parsed: a converter writes the same bytes for each record of a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.values.bulk.arrays import Flags, Ints, reassemble
from pykafka_wire.values.bulk.reading import PayloadReader, Payloads
from pykafka_wire.values.single_json.connect_envelope import envelope_of, normal_schema
from pykafka_wire.values.single_json.text import parse_json

#: The field of a separated column that has the documents without the envelope.
DOCUMENT: Final = "document"
_PAYLOAD: Final = "payload"
_NO_PLACE: Final = "the column has no field for its schema"

_OPEN, _QUOTE, _BACKSLASH, _CLOSE, _n = b'{"\\}n'
_WHITE_SPACE: Final = np.isin(np.arange(256), list(b" \t\r\n"))
#: The first byte of a byte order mark.
_MARK: Final = 0xEF
#: More white space than this before a name: the document is looked at alone.
_MAX_WHITE_SPACE: Final = 32
_NAMES: Final = (b'schema"', b'payload"')


@dataclass(frozen=True, slots=True)
class _Enveloped:
    """Documents of one schema.

    Attributes:
        rows: int64[n], ascending.
        starts, ends: int64[n], the places of the payloads in the buffer.
        schema: the schema's text; None for null.
    """

    rows: Ints
    starts: Ints
    ends: Ints
    schema: str | None


def find_enveloped(payloads: Payloads) -> tuple[list[_Enveloped], Flags]:
    """Return the documents in the envelope, and bool[n]: those that are not JSON, of the ones that were looked at."""
    found: list[_Enveloped] = []
    broken = np.zeros(len(payloads), dtype=np.bool_)
    rows = _candidates(payloads)
    while len(rows):
        first = int(rows[0])
        try:
            envelope = envelope_of(payloads[first])
        except DecodeError:
            envelope, broken[first] = None, True
        if envelope is None:
            rows = rows[1:]
            continue
        alike = np.arange(len(rows)) == 0
        if envelope.is_prefix:
            begin = int(payloads.starts[first])
            prefix = payloads.data[begin : begin + envelope.start].tobytes()
            alike |= begin_with(payloads.take(rows), prefix)
        some = rows[alike]
        starts, ends = payloads.starts[some] + envelope.start, payloads.ends[some] - 1
        ends[0] = payloads.starts[first] + envelope.end
        found.append(_Enveloped(some, starts, ends, envelope.schema))
        rows = rows[~alike]
    return found, broken


def begin_with(documents: Payloads, prefix: bytes) -> Flags:
    """Return bool[n]: which documents begin with a prefix, have more bytes, and end with a brace."""
    begins: Flags = pc.starts_with(documents.array(), prefix).to_numpy(zero_copy_only=False)
    is_closed = documents.data.take(documents.ends - 1, mode="clip") == _CLOSE
    begins &= is_closed & (documents.ends - documents.starts > len(prefix) + 1)
    return begins


def _candidates(payloads: Payloads) -> Ints:
    """Return int64[…]: the rows of documents that may be in the envelope. Only the first bytes are looked at."""
    data, n = payloads.data, len(payloads)
    if not n:
        return np.zeros(0, dtype=np.int64)
    rows, places = np.arange(n), payloads.starts
    alone: list[Ints] = []
    for expected in (_OPEN, _QUOTE):
        letters = data.take(places, mode="clip")
        for _ in range(_MAX_WHITE_SPACE):
            is_white = _WHITE_SPACE[letters]
            if not is_white.any():
                break
            places = places + is_white
            letters = data.take(places, mode="clip")
        odd = _WHITE_SPACE[letters] | (letters == _MARK)
        if odd.any():
            alone.append(rows[odd])
        matches = (letters == expected) & ~odd
        if not matches.all():
            rows, places = rows[matches], places[matches]
        places = places + 1
    for name in _NAMES:
        some, at = rows, places
        for nth, letter in enumerate(name):
            letters = data.take(at + nth, mode="clip")
            escaped = letters == _BACKSLASH
            if escaped.any():
                alone.append(some[escaped])
            matches = letters == letter
            some, at = some[matches], at[matches]
            if not len(some):
                break
        alone.append(some)
    return np.unique(np.concatenate(alone))


@dataclass(frozen=True, slots=True)
class UnwrappedReader:
    """Reads documents, and the payloads of those in the envelope: see :class:`~pykafka_wire.values.converter.PayloadReader`."""

    reader: PayloadReader

    def read_one(self, payload: bytes) -> Any:
        envelope = envelope_of(payload)
        if envelope is None:
            return self.reader.read_one(payload)
        if envelope.is_null:
            raise DecodeError("its payload is null")
        return self.reader.read_one(payload[envelope.start : envelope.end])

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        found, broken = find_enveloped(payloads)
        left = broken
        if found:
            starts, ends = payloads.starts.copy(), payloads.ends.copy()
            for some in found:
                starts[some.rows], ends[some.rows] = some.starts, some.ends
                # A payload that is null would be a null value: read_one has the reason.
                left[some.rows] |= payloads.data.take(some.starts, mode="clip") == _n
            payloads = Payloads(payloads.data, starts, ends)
        column, unread = self.reader.read_column(payloads)
        return column, unread | left


@dataclass(frozen=True, slots=True)
class SeparatedReader:
    """Reads documents without the envelope, and payloads of each schema, as fields of a struct, all but one of which are null.

    Attributes:
        column_type: a struct of ``document``, if there are documents without the envelope, and of ``schema_0``, ``schema_1``, …:
            structs with the field ``payload``.
        document: reads documents without the envelope; None if the column has no place for them.
        payloads: the reader of payloads of each schema.
        numbers: the number of each schema, by its normal form; None is the null schema.
    """

    column_type: pa.DataType
    document: PayloadReader | None
    payloads: tuple[PayloadReader, ...]
    numbers: Mapping[str | None, int]

    def read_one(self, payload: bytes) -> Any:
        row: dict[str, Any] = dict.fromkeys(field.name for field in self.column_type)
        envelope = envelope_of(payload)
        if envelope is None:
            if self.document is None:
                parse_json(payload)
                raise DecodeError(_NO_PLACE)
            return row | {DOCUMENT: self.document.read_one(payload)}
        number = self._number(envelope.schema)
        if number is None:
            raise DecodeError(_NO_PLACE)
        reader = self.payloads[number]
        content = None if envelope.is_null else reader.read_one(payload[envelope.start : envelope.end])
        return row | {part_name(number): {_PAYLOAD: content}}

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        found, left = find_enveloped(payloads)
        is_plain = ~left
        parts: list[tuple[Ints, pa.Array]] = []
        for some in found:
            is_plain[some.rows] = False
            number = self._number(some.schema)
            if number is None:
                left[some.rows] = True
                continue
            contents, unread = self.payloads[number].read_column(Payloads(payloads.data, some.starts, some.ends))
            left[some.rows] |= unread
            name = part_name(number)
            inner = _struct(self.column_type.field(name).type, {_PAYLOAD: contents})
            parts.append((some.rows, _struct(self.column_type, {name: inner})))
        rows = np.flatnonzero(is_plain)
        if self.document is None:
            left[rows] = True
        elif len(rows):
            documents, unread = self.document.read_column(payloads.take(rows))
            left[rows] |= unread
            parts.append((rows, _struct(self.column_type, {DOCUMENT: documents})))
        return reassemble(len(payloads), self.column_type, parts), left

    def _number(self, schema: str | None) -> int | None:
        return self.numbers.get(None if schema is None else normal_schema(schema))


def part_name(number: int) -> str:
    """Return the name of the field that has the payloads of a schema."""
    return f"schema_{number}"


def _struct(wanted: pa.DataType, columns: dict[str, pa.Array]) -> pa.Array:
    n = len(next(iter(columns.values())))
    arrays = [columns[field.name] if field.name in columns else pa.nulls(n, field.type) for field in wanted]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted))


def separated_reader(
    column_type: pa.DataType, schemas: Sequence[str | None], reader_of: Callable[[pa.DataType], PayloadReader]
) -> SeparatedReader:
    """Return a reader of documents that separates them by their schemas.

    Args:
        schemas: the texts of Connect's schemas; None for null.
        reader_of: returns the reader of documents or payloads of a type.

    Raises:
        OptionError: the column is not a struct of these parts.
    """
    names = [part_name(number) for number in range(len(schemas))]
    fields = {field.name: field.type for field in column_type} if pa.types.is_struct(column_type) else {}
    document = fields.pop(DOCUMENT, None)
    if [*fields] != names or not all(
        pa.types.is_struct(inner) and [field.name for field in inner] == [_PAYLOAD] for inner in fields.values()
    ):
        raise OptionError(
            f"the type of a column with {len(schemas)} connectSchemas is STRUCT<{DOCUMENT}: …, "
            f"{', '.join(f'{name}: STRUCT<{_PAYLOAD}: …>' for name in names)}>, not {column_type}"
        )
    return SeparatedReader(
        column_type=column_type,
        document=None if document is None else reader_of(document),
        payloads=tuple(reader_of(fields[name].field(_PAYLOAD).type) for name in names),
        numbers={None if text is None else normal_schema(text): number for number, text in enumerate(schemas)},
    )
