"""Reads flat JSON objects that have their members in one order, all rows together. Finds the values, which Arrow then parses.

A producer writes the members of every object in the same order, with the same white space; some leave out members that are null.
So one document shows the layout, and all rows are compared with it at once, member by member. Rows that differ are left to the
caller: another order, escapes, nested values.

Each byte of a row that is read has been checked. The row is ``{``, some members of the layout in its order, and ``}``. A member is
the bytes of its name as in the layout, and a valid value. A string is the bytes from one quote to the next one, in a row without a
backslash and control characters. A number is the bytes before the separator that the next name's quote follows, or before the last
``}``, if they are a number by JSON's grammar (RFC 8259, section 6). All rows are UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, flag_array, scatter, slices
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.column_types import ColumnType, InDoubtError
from pykafka_wire.values.json.document_blocks import is_utf8
from pykafka_wire.wire.arrow.arrays import to_arrow
from pykafka_wire.wire.arrow.row_segments import bounds
from pykafka_wire.wire.arrow.varints import ByteBuffer

_QUOTE, _BACKSLASH, _CLOSE, _MINUS, _ZERO, _POINT, _e, _E = b'"\\}-0.eE'
_NULL: Final = b"null"
_FIRST_TEXT: Final = 0x20
_LAST_ASCII: Final = 0x7F
_MEMBER: Final = re.compile(
    rb'"(?P<name>[^"\\\x00-\x1f]*)":(?P<space> ?)'
    rb'(?:(?P<text>"[^"\\]*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<flag>true|false)|(?P<null>null))'
)
_WORD_BYTES: Final = 8
#: Of an Arrow decimal of 128 bits.
_MAX_DECIMAL_DIGITS: Final = 38
#: Documents that are looked at to find the one with the most members: others leave out what is null.
_SAMPLED: Final = 32
#: Pieces that a member's values are halved into, to find those that its type does not take: some ten values, or so many of all.
_MAX_HALVED: Final = 128
_MAX_HALVED_SHARE: Final = 32
#: A layout with more members is one of a few very large documents.
_MAX_MEMBERS: Final = 256
#: A document so many times as large as most is not taken for the layout, which all rows would be compared with.
_MAX_TIMES_AS_LARGE: Final = 4
#: Where a document ends and the next one begins. A name that holds this could be found in two documents.
_BETWEEN_DOCUMENTS: Final = b"}{"
#: For fewer rows, pyarrow's reader takes less time than all the calls of NumPy.
_MIN_ROWS: Final = 512
#: Several producers may write to a topic, or one of them several kinds of objects.
_MAX_LAYOUTS: Final = 3
#: A layout of fewer rows than one of so many is not worth the pass over the others.
_MIN_SHARE: Final = 8
#: So many groups of rows that cannot be read, or layouts of few rows, and the others of their column are not tried.
_MAX_FAILED_ATTEMPTS: Final = 2


class MemberKind(Enum):
    """How a value is written."""

    TEXT = "a string"
    NUMBER = "a number"
    FLAG = "true or false"
    NULL = "always null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMember:
    """
    Attributes:
        prefix: the bytes before its value: what separates it from the member before, its name, the colon.
        type: of its column; None if no column is wanted.
    """

    name: str
    prefix: bytes
    kind: MemberKind
    type: pa.DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLayout:
    """The members of an object in their order.

    Attributes:
        separator: between two members.
    """

    members: tuple[ObjectMember, ...]
    separator: bytes


class UnreadableError(Exception):
    """Documents that cannot be read together: many values of a member that its type does not take, or bytes that are not UTF-8."""


def layout_of(payloads: Payloads, rows: Ints, wanted: Mapping[str, pa.DataType]) -> ObjectLayout | None:
    """Return the layout of the richest document among the first of ``rows``; None if such documents are not read here.

    Args:
        payloads: each begins with ``{`` and ends with ``}``.
        wanted: the types that members are read as, by their names; no member may be of another type.
    """
    documents = [payloads[row] for row in rows[:_SAMPLED].tolist()]
    usual = sorted(map(len, documents))[len(documents) // 2]
    document = max(
        (document for document in documents if len(document) <= _MAX_TIMES_AS_LARGE * usual),
        key=lambda document: document.count(b'":'),
    )
    members: list[ObjectMember] = []
    separators: set[bytes] = set()
    spaces: set[bytes] = set()
    before, position = b"{", 1
    while len(members) < _MAX_MEMBERS and (match := _MEMBER.match(document, position)):
        try:
            name = match["name"].decode()
        except UnicodeDecodeError:
            return None
        kind = _kind(match, wanted.get(name))
        if kind is None or _BETWEEN_DOCUMENTS in match["name"]:
            return None
        prefix = before + document[position : match.start(match.lastgroup or "")]
        members.append(ObjectMember(name=name, prefix=prefix, kind=kind, type=wanted.get(name)))
        spaces.add(match["space"])
        position = match.end()
        if position == len(document) - 1:
            break
        before = b", " if document.startswith(b", ", position) else b","
        separators.add(before)
        position += len(before)
    else:
        return None
    names = {member.name for member in members}
    if len(names) < len(members) or len(separators) > 1 or len(spaces) > 1:
        return None
    return ObjectLayout(members=tuple(members), separator=separators.pop() if separators else b",")


def _kind(match: re.Match[bytes], wanted: pa.DataType | None) -> MemberKind | None:
    """Return how a member's values are written; None if that does not go with its type."""
    assert match.lastgroup is not None
    kind = MemberKind[match.lastgroup.upper()]
    if wanted is None:
        return kind
    is_a = pa.types
    expected: MemberKind | None = None
    if is_a.is_string(wanted) or is_a.is_timestamp(wanted):
        expected = MemberKind.TEXT
    elif is_a.is_boolean(wanted):
        expected = MemberKind.FLAG
    elif is_a.is_signed_integer(wanted) or is_a.is_floating(wanted) or is_a.is_decimal(wanted):
        expected = MemberKind.NUMBER
    return expected if kind in (MemberKind.NULL, expected) else None


def read_flat(
    payloads: Payloads, layout: ObjectLayout, has: dict[str, Flags] | None = None
) -> tuple[dict[str, pa.Array], Flags]:
    """Return ``(columns, bool[n])``: the members that have a type, by name, and which rows could not be read.

    Elements of rows that could not be read are meaningless.

    Args:
        payloads: each begins with ``{`` and ends with ``}``, and has no backslash and no control character (:func:`are_plain`).
        has: gets which of the documents have each member; one that is null may be there.

    Raises:
        UnreadableError: a row is not UTF-8, or a member has many values that its type does not take.
    """
    objects = _Objects(payloads, layout)
    columns: dict[str, pa.Array] = {}
    for member in layout.members:
        before = objects.position.copy() if has is not None else None
        column = objects.read(member)
        if member.type is not None:
            columns[member.name] = column
        if has is not None:
            has[member.name] = objects.position != before
    return columns, objects.unread()


def are_plain(payloads: Payloads) -> Flags:
    """Return bool[n]: the documents without a backslash, and without control characters, which are not valid in a string."""
    first = int(payloads.starts[0])
    text = payloads.data[first : int(payloads.ends[-1])]
    odd = text == _BACKSLASH
    if int(text.min()) < _FIRST_TEXT:
        odd |= text < _FIRST_TEXT
    plain = np.ones(len(payloads), dtype=np.bool_)
    if odd.any():
        plain[payloads.starts.searchsorted(np.flatnonzero(odd) + first, side="right") - 1] = False
    return plain


class _Objects:
    """Documents in one buffer, and how far each has been read.

    A document that does not continue as the layout does stays where it is, since no member begins as another one does.
    """

    __slots__ = ("_buffer", "_ends", "_nth_quote", "_quotes", "_separator", "_words", "position")

    def __init__(self, payloads: Payloads, layout: ObjectLayout) -> None:
        first, last = int(payloads.starts[0]), int(payloads.ends[-1])
        # More than the documents, so that a member can be looked for at each of their positions.
        n_more = max(len(member.prefix) for member in layout.members) + 3 * _WORD_BYTES
        self._buffer: ByteBuffer = np.zeros(last - first + n_more, dtype=np.uint8)
        text = self._buffer[: last - first]
        text[:] = payloads.data[first:last]
        if int(text.max()) > _LAST_ASCII and not is_utf8(text, np.array([0, len(text)], dtype=np.int32)):
            raise UnreadableError("text that is not UTF-8")
        self._words = np.ndarray((len(self._buffer) - 7,), dtype="<u8", buffer=self._buffer.data, strides=(1,))
        self._separator = len(layout.separator)
        self.position, self._ends = payloads.starts - first, payloads.ends - first
        #: Where quotes are, and one behind the end of all documents, with room for a separator before it.
        is_quote = self._buffer[: len(text) + _WORD_BYTES] == _QUOTE
        is_quote[-1] = True
        self._quotes: Ints = np.flatnonzero(is_quote)
        #: How many quotes there are before each document's position.
        self._nth_quote = self._quotes.searchsorted(self.position)

    def unread(self) -> Flags:
        """Return bool[n]: the documents that do not end where they have been read to."""
        unread: Flags = (self.position != self._ends - 1) | (self._buffer[self.position] != _CLOSE)
        return unread

    def read(self, member: ObjectMember) -> pa.Array:
        """Return a pa.Array of a member's values, null where it is null or missing; anything where its type is None.

        Raises:
            UnreadableError: many values that the member's type does not take.
        """
        is_text = member.kind is MemberKind.TEXT
        n_quotes = member.prefix.count(b'"') + is_text
        rows = self._rows_with(member)
        starts, limits = self.position[rows] + len(member.prefix) + is_text, self._ends[rows]
        next_quotes = self._quotes[self._nth_quote[rows] + n_quotes]
        if is_text:
            values, ends, right = self._texts(member, starts, next_quotes, limits)
        elif member.kind is MemberKind.NUMBER:
            values, ends, right = self._numbers(member, starts, next_quotes, limits)
        elif member.kind is MemberKind.FLAG:
            values, ends, right = self._flags(starts)
        else:
            values, ends, right = None, starts, np.zeros(len(starts), dtype=np.bool_)
        if not right.all():
            rows, ends = np.flatnonzero(right) if isinstance(rows, slice) else rows[right], ends[right]
        self.position[rows] = ends
        self._nth_quote[rows] += n_quotes + is_text
        return values if values is None or isinstance(rows, slice) else scatter(values, rows, len(self.position))

    def _texts(
        self, member: ObjectMember, starts: Ints, next_quotes: Ints, limits: Ints
    ) -> tuple[pa.Array, Ints, Flags]:
        """Return the values that are strings, int64[n] of where each value ends, and bool[n]: which are strings of the type."""
        right: Flags = next_quotes < limits
        if member.type is None:
            return None, next_quotes + 1, right
        texts = slices(self._buffer, starts, np.minimum(next_quotes, limits), pa.string())
        values, right = _parse_texts(texts, right, member.type)
        return values, next_quotes + 1, right

    def _numbers(
        self, member: ObjectMember, starts: Ints, next_quotes: Ints, limits: Ints
    ) -> tuple[pa.Array, Ints, Flags]:
        """Return what :meth:`_texts` does, of numbers. Behind one come a separator and the quote of the next name, or the end."""
        ends = np.maximum(np.minimum(next_quotes - self._separator, limits - 1), starts)
        texts = slices(self._buffer, starts, ends, pa.string())
        wanted = member.type or pa.float64()  # parsed even if it is not wanted: it must be valid
        right = _are_numbers(texts, wanted)
        values, right = _parse_texts(texts, right, wanted)
        return values, ends, right

    def _flags(self, starts: Ints) -> tuple[pa.Array, Ints, Flags]:
        """Return what :meth:`_texts` does, of ``true`` and ``false``."""
        is_true = self._are(b"true", starts)
        right = is_true | self._are(b"false", starts)
        return flag_array(is_true[right]), starts + np.where(is_true, len(b"true"), len(b"false")), right

    def _rows_with(self, member: ObjectMember) -> Ints | slice:
        """Return the documents that continue with a member which is not null; those with its null are advanced behind it."""
        is_text = member.kind is MemberKind.TEXT
        follows = self._are(member.prefix + b'"' * is_text, self.position)
        others = ~follows if is_text else self._buffer[self.position + len(member.prefix)] == _NULL[0]
        if others.any():
            rows = np.flatnonzero(others)
            null = member.prefix + _NULL
            rows = rows[self._are(null, self.position[rows])]
            self.position[rows] += len(null)
            self._nth_quote[rows] += null.count(b'"')
            follows[rows] = False
        return slice(None) if follows.all() else np.flatnonzero(follows)

    def _are(self, literal: bytes, places: Ints) -> Flags:
        """Return bool[n]: whether the bytes at each place are these."""
        matches: Flags | None = None
        for start in range(0, len(literal), _WORD_BYTES):
            part = literal[start : start + _WORD_BYTES]
            words = self._words[places + start] if start else self._words[places]
            if len(part) < _WORD_BYTES:
                words &= np.uint64((1 << 8 * len(part)) - 1)
            equal = words == np.uint64(int.from_bytes(part, "little"))
            matches = equal if matches is None else matches & equal
        assert matches is not None
        return matches


def _parse_texts(texts: pa.Array, right: Flags, wanted: pa.DataType) -> tuple[pa.Array, Flags]:
    """Return those of the texts that are ``right`` and can be parsed, as ``wanted``, and bool[n]: which these are.

    Raises:
        UnreadableError: more than a few cannot be parsed.
    """
    chosen = texts if right.all() else texts.filter(flag_array(right))
    values = _cast(chosen, wanted)
    if values is not None:
        return values, right
    can_be = np.ones(len(chosen), dtype=np.bool_)
    # Numbers that are too large, and words in place of one, are among the longest or the shortest: their halves have few others.
    by_length = np.argsort(np.diff(bounds(chosen)), kind="stable")
    ordered = chosen.take(to_arrow(by_length))
    wrong = [(0, len(chosen))]
    for _ in range(max(_MAX_HALVED, len(chosen) // _MAX_HALVED_SHARE)):
        first, last = wrong.pop()
        if last - first == 1:
            can_be[by_length[first]] = False
        else:
            half = (first + last) // 2
            wrong += [
                (low, high) for low, high in ((first, half), (half, last)) if _cast(ordered[low:high], wanted) is None
            ]
        if not wrong:
            values = _cast(chosen.filter(flag_array(can_be)), wanted)
            break
    if values is None:
        raise UnreadableError(str(wanted))
    right = right.copy()
    right[np.flatnonzero(right)] = can_be
    return values, right


def _cast(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the texts as ``wanted``; None if one of them cannot be parsed."""
    if pa.types.is_string(wanted):
        return texts
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(wanted):
            return None
    try:  # Without zones: in UTC. Such a cast does not take a zone.
        return texts.cast(pa.timestamp(wanted.unit)).view(wanted)
    except pa.ArrowInvalid:
        return None


def _are_numbers(texts: pa.Array, wanted: pa.DataType) -> Flags:
    """Return bool[n]: which texts may be numbers by JSON's grammar, and can be cast to the type: a cast that fails is noticed.

    What Arrow parses beyond that grammar is False: a number that begins with a point, a plus, a letter or a zero before other
    digits, that has no digit behind its point, and a whole one in base 16. For a decimal, also a number with an exponent or more
    digits than the type has: Arrow (26.0) makes another number of it where 128 bits overflow.
    """
    edges = bounds(texts)
    starts, ends = edges[:-1], edges[1:]
    buffer = np.append(np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[: edges[-1]], np.uint8(0))
    is_digit = buffer - _ZERO < 10
    negative = buffer[starts] == _MINUS
    first = starts + negative
    right: Flags = (first < ends) & is_digit[first]
    zero = np.flatnonzero((buffer[first] == _ZERO) & (first + 1 < ends))
    right[zero] &= ~is_digit[first[zero] + 1]
    others = np.flatnonzero(~is_digit[:-1])
    if pa.types.is_integer(wanted):
        if len(others) == np.count_nonzero(negative & right):
            return right
        rows = edges.searchsorted(others, side="right") - 1
        right[rows[others != starts[rows]]] = False
        return right
    right &= is_digit[ends - 1]
    points = others[buffer[others] == _POINT]
    wrong = points[~is_digit[points + 1]]
    right[edges.searchsorted(wrong, side="right") - 1] = False
    if pa.types.is_decimal(wanted):
        exponents = others[(buffer[others] == _e) | (buffer[others] == _E)]
        right[edges.searchsorted(exponents, side="right") - 1] = False
        whole_ends = ends.copy()
        whole_ends[edges.searchsorted(points, side="right") - 1] = points
        n_whole = np.where(buffer[first] == _ZERO, 0, whole_ends - first)
        n_digits = ends - first - (whole_ends < ends)
        right &= (n_whole <= wanted.precision - wanted.scale) & (n_digits <= _MAX_DECIMAL_DIGITS)
    return right


class FlatReader:
    """Reads documents of one column by the layouts that it has found in it."""

    def __init__(self, plan: ColumnType) -> None:
        self._plan = plan
        self._types = _flat_types(plan.read_as)
        self._layouts: list[ObjectLayout] = []
        self._n_failed_attempts = 0

    def read(self, payloads: Payloads, rows: Ints) -> tuple[list[tuple[Ints, pa.Array]], Ints]:
        """Return parts of the column, and the rows that are in no part.

        Later parts come first where two have the same row. Of a row that is left, parts may have an element that means nothing.

        Args:
            rows: ascending; their documents begin with ``{`` and end with ``}``.
        """
        parts: list[tuple[Ints, pa.Array]] = []
        if self._types is None or self._n_failed_attempts >= _MAX_FAILED_ATTEMPTS or len(rows) < _MIN_ROWS:
            return parts, rows
        documents = Payloads.of(payloads.take(rows).array())  # without the frames between them
        # The others are left out from the beginning, so that all that are read begin alike.
        plain = are_plain(documents)
        unread_rows, min_rows = np.flatnonzero(plain), max(_MIN_ROWS, len(rows) // _MIN_SHARE)
        nth = 0
        for _ in range(_MAX_LAYOUTS):
            if len(unread_rows) < min_rows:
                break
            if nth == len(self._layouts):
                layout = layout_of(documents, unread_rows, self._types)
                if layout is None:
                    break
                self._layouts.append(layout)
            some = documents if len(unread_rows) == len(rows) else documents.take(unread_rows)
            try:
                column, unread = self._column(some, self._layouts[nth], self._types)
            except (pa.ArrowException, InDoubtError, UnreadableError):
                break
            if np.count_nonzero(~unread) < len(unread_rows) // _MIN_SHARE:
                del self._layouts[nth]
                self._n_failed_attempts += 1
            else:
                nth += 1
            parts.append((rows[unread_rows], column))
            unread_rows = unread_rows[unread]
        self._n_failed_attempts += not parts
        is_left = ~plain
        is_left[unread_rows] = True
        return parts, rows[is_left]

    def _column(
        self, payloads: Payloads, layout: ObjectLayout, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Array, Flags]:
        columns, unread = read_flat(payloads, layout)
        children = [columns[name] if name in columns else pa.nulls(len(payloads), kind) for name, kind in types.items()]
        column = pa.StructArray.from_arrays(children, fields=list(self._plan.read_as))
        if self._plan.has_decimals:
            column.validate(full=True)
        return column if self._plan.finish is None else self._plan.finish(column, ~unread), unread


def _flat_types(read_as: pa.DataType) -> Mapping[str, pa.DataType] | None:
    """Return the type of each field, by its name; None if one of them is nested."""
    types = {field.name: field.type for field in read_as}
    return None if any(pa.types.is_nested(inner_type) for inner_type in types.values()) else types
