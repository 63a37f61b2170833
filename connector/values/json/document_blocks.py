"""Many JSON objects parsed together by pyarrow's JSON reader, as one struct column.

Owns the proof that row n of the result is document n, and everything that pyarrow accepts and JSON does not. Knows no
policy: a block that cannot be read as a whole raises, and the caller divides it.

Row n is document n
    Documents are joined by line breaks, and each begins with ``{`` and ends with ``}``. The parser accepts neither a raw line
    break within a string nor a zero byte, so each document's last ``}`` and the next one's first ``{`` are structure to it, not
    text. Behind a ``}``, a ``{`` is valid only where a new document begins. So no document continues in the next one: each
    gives one row at least. A block of n documents that gives n rows therefore gives one row for each, in order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pykafka_wire.values.bulk.arrays import Flags, Ints, flag_array
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.wire.arrow.arrays import binary_scalar, to_arrow
from pykafka_wire.wire.arrow.varints import ByteBuffer

_OPEN, _CLOSE, _OPEN_ARRAY, _COMMA, _NEWLINE, _MINUS = b"{}[,\n-"
_I, _N, _n, _a, _f = b"INnaf"
_ZERO, _POINT, _PLUS, _e = b"0.+e"
_QUOTE, _BACKSLASH, _COLON, _BLANK = b'"\\: '
_IN_NUMBER: Final = np.isin(np.arange(256), list(b"0123456789+eE"))
_TO_LOWER: Final = 0x20
_LAST_ASCII: Final = 0x7F
_NOWHERE: Final = np.zeros(0, dtype=np.int64)
_WHITE_SPACE: Final = np.isin(np.arange(256), list(b" \t\r\n"))
_NUMBER_ENDS: Final = np.isin(np.arange(256), list(b" \t\r\n,]}"))
#: Around a decimal, which may stand between quotes.
_DECIMAL_BEGINS: Final = np.isin(np.arange(256), list(b' \t\r\n,:["'))
_DECIMAL_ENDS: Final = _NUMBER_ENDS | (np.arange(256) == b'"'[0])
#: Of an Arrow decimal of 128 bits.
_MAX_DECIMAL_DIGITS: Final = 38
#: Characters of a text that are looked at: one that goes on is ambiguous, whatever it is.
_MAX_AMBIGUOUS: Final = 64
#: Values with more white space around are read one by one.
_MAX_WHITE_SPACE: Final = 32
_SEPARATOR: Final = binary_scalar(b"\n")
_EMPTY_OBJECT: Final = binary_scalar(b"{}")
#: pyarrow (26.0) ends the process with a segmentation fault on ``null`` outside of a document.
_NULL_BETWEEN: Final = re.compile(rb"\}[ \t\r\n]*null")
_FRACTION: Final = re.compile(rb"[0-9]+\.[0-9]+")
_ROW: Final = re.compile(r" in row ([0-9]+)$")
#: pyarrow's words for a value of another kind than its field's, and for one that its field's type does not take.
_OTHER_KIND: Final = re.compile(r"Column\(.*/([^/()]+)\) changed from [a-z]+ to ([a-z]+) ")
_OTHER_VALUE: Final = re.compile(r"Failed to convert JSON to ([a-z0-9]+(?:\([^)]*\)|\[[^]]*\])?)[,:] ")
_BEGINS_AS: Final = {"string": rb'"', "number": rb"[-0-9]", "boolean": rb"[tf]", "object": rb"\{", "array": rb"\["}
#: Texts of timestamps that are sure to be read.
_TIMESTAMP: Final = (
    rb'"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])[T ]'
    rb'(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}(?:\.[0-9]{1,6})?Z?"'
)
#: Digits that every number of a type may have.
_SURE_DIGITS: Final = {"int8": 2, "int16": 4, "int32": 9, "int64": 18}
#: Documents for each that is left because it may be the reason of an error.
_MIN_TIMES_AS_MANY: Final = 8
#: Levels that every version of Python can read, so that a value's neighbours do not decide whether it is too deep.
_MAX_DEPTH: Final = 500


class BlockError(Exception):
    """A block that cannot be read as a whole.

    Attributes:
        row: the document within the block that seems to be the reason, if pyarrow names one. A hint: it may be another one.
        suspects: patterns of what documents with the same reason hold, beside others. A hint, too.
    """

    def __init__(self, reason: str, row: int | None = None, suspects: Sequence[bytes] = ()) -> None:
        super().__init__(reason)
        self.row = row
        self.suspects = suspects


def object_bounds(payloads: Payloads) -> tuple[Payloads, Flags]:
    """Return the payloads without white space around them, and bool[n]: which of them may be a JSON object that columns can
    read.
    """
    starts, ends = payloads.starts, payloads.ends
    whole = _find_braced(payloads)
    odd = np.flatnonzero(~whole)
    if len(odd):
        starts, ends = starts.copy(), ends.copy()
        for _ in range(_MAX_WHITE_SPACE):
            white = (ends[odd] > starts[odd]) & _WHITE_SPACE[payloads.data.take(ends[odd] - 1, mode="clip")]
            if not white.any():
                break
            ends[odd] -= white
        for _ in range(_MAX_WHITE_SPACE):
            white = (ends[odd] > starts[odd]) & _WHITE_SPACE[payloads.data.take(starts[odd], mode="clip")]
            if not white.any():
                break
            starts[odd] += white
        payloads = Payloads(payloads.data, starts, ends)
        whole = _find_braced(payloads)
    for row in _rows_with_many_levels(payloads):
        whole[row] &= not _is_deep(payloads[row])
    return payloads, whole


def _rows_with_many_levels(payloads: Payloads) -> list[int]:
    """Return the documents that may be too deep, since they begin so many objects and arrays, one in another or not."""
    rows = np.flatnonzero(payloads.ends - payloads.starts > 2 * _MAX_DEPTH)
    if not len(rows):
        return []
    starts, ends = payloads.starts[rows], payloads.ends[rows]
    text = payloads.data[starts[0] : ends[-1]]
    opened = np.flatnonzero((text == _OPEN) | (text == _OPEN_ARRAY)) + starts[0]
    counts = np.searchsorted(opened, ends) - np.searchsorted(opened, starts)
    many: list[int] = rows[counts > _MAX_DEPTH].tolist()
    return many


def _find_braced(payloads: Payloads) -> Flags:
    first = payloads.data.take(payloads.starts, mode="clip")
    last = payloads.data.take(payloads.ends - 1, mode="clip")
    braced: Flags = (first == _OPEN) & (last == _CLOSE) & (payloads.ends - payloads.starts > 1)
    return braced


def _is_deep(document: bytes) -> bool:
    buffer = np.frombuffer(document, dtype=np.uint8)
    steps = np.isin(buffer, list(b"{[")).astype(np.int32) - np.isin(buffer, list(b"}]"))
    return bool(np.cumsum(steps, out=steps).max() > _MAX_DEPTH)


class Block:
    """Documents joined to one text, which the parser reads at once.

    Attributes:
        buffer: uint8[…], the documents with a line break between them; an empty object stands for those not ``whole``.
        whole: bool[n]; documents that the parser must not see are found, and no longer are.
        edges: int64[n + 1], where each document begins.
    """

    __slots__ = ("_documents", "_sizes", "buffer", "edges", "whole")

    def __init__(
        self,
        documents: pa.BinaryArray,
        sizes: Ints,
        whole: Flags,
        decimal_scale: int | None = None,
        ambiguous: Collection[str] = (),
    ) -> None:
        """Make a block of documents.

        Args:
            documents: pa.BinaryArray of objects without white space around, as :func:`object_bounds` finds them.
            sizes: int64[n], their bytes.
            whole: is changed.
            decimal_scale: the largest of a decimal that is read from the documents, if there is one.
            ambiguous: the names of decimals whose texts may not be numbers and base64 alike.
        """
        self.whole = whole
        self._documents, self._sizes = documents, sizes
        self._join()
        while len(traps := _traps(self.buffer, decimal_scale, ambiguous)):
            whole[np.searchsorted(self.edges, traps, side="right") - 1] = False
            self._join()

    def _join(self) -> None:
        self.buffer, self.edges = _join_documents(self._documents, self._sizes, self.whole)

    def leave_suspects(self, error: BlockError, first: int) -> bool:
        """Return whether a few documents from ``first`` on may have an error's reason, too: the parser does not see them any
        more.
        """
        begin = int(self.edges[first])
        places = [
            begin + match.start()
            for pattern in error.suspects
            for match in re.finditer(pattern, self.buffer[begin:].data)
        ]
        rows = np.unique(np.searchsorted(self.edges, places, side="right") - 1)
        if not len(rows) or len(rows) * _MIN_TIMES_AS_MANY > len(self) - first:
            return False
        self.whole[rows] = False
        self._join()
        return True

    def __len__(self) -> int:
        return len(self.edges) - 1

    def parse(
        self, first: int, last: int, read_schema: pa.Schema, unexpected: Literal["ignore", "error"] = "ignore"
    ) -> pa.RecordBatch:
        """Return pa.RecordBatch: the fields of ``read_schema`` in some of the documents.

        Args:
            unexpected: what becomes of other fields.

        Raises:
            BlockError: a document is not valid, a field is not what the schema says, or an unexpected one is an error.
        """
        begin = int(self.edges[first])
        data = pa.py_buffer(self.buffer[begin : int(self.edges[last]) - 1])
        try:
            batches = _read(
                pa.BufferReader(data),
                # One block, so that the parser sees all of the text at once, whatever line breaks it holds.
                pj.ReadOptions(use_threads=False, block_size=data.size + 1),
                pj.ParseOptions(explicit_schema=read_schema, unexpected_field_behavior=unexpected),
            )
        except pa.ArrowException as error:
            text = str(error)
            match = _ROW.search(text)
            suspects = _suspects(text, read_schema)
            raise BlockError("pyarrow cannot read it", first + int(match[1]) if match else None, suspects) from error
        if len(batches) != 1 or batches[0].num_rows != last - first:
            raise BlockError("a value holds more than one document")
        return batches[0]


def _suspects(error: str, read_schema: pa.Schema) -> list[bytes]:
    """Return patterns of the members whose values may cause an error of pyarrow."""
    if match := _OTHER_KIND.search(error):
        return [_member(match[1]) + _BEGINS_AS[match[2]]] if match[2] in _BEGINS_AS else []
    match = _OTHER_VALUE.search(error)
    sure = None if match is None else _sure_values(match[1])
    if match is None or sure is None:
        return []
    return [_member(name) + rb"(?!\s|null\b|" + sure + rb"\s*[,}])" for name in _names_of(read_schema, match[1])]


def _member(name: str) -> bytes:
    return rb'"' + re.escape(name.encode()) + rb'"\s*:\s*'


def _names_of(fields: Any, type_name: str) -> set[str]:
    """Return the names of the fields of a type, at every level."""
    names: set[str] = set()
    for field in fields:
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        if pa.types.is_struct(inner):
            names |= _names_of(inner, type_name)
        elif str(inner) == type_name:
            names.add(field.name)
    return names


def _sure_values(type_name: str) -> bytes | None:
    """Return a pattern of values that are sure to be of a type, not of all that are; None where there is no pattern."""
    if type_name in _SURE_DIGITS:
        return rb"-?[0-9]{1,%d}" % _SURE_DIGITS[type_name]
    if match := re.fullmatch(r"decimal128\(([0-9]+), ([0-9]+)\)", type_name):
        whole, scale = int(match[1]) - int(match[2]), int(match[2])
        fraction = rb"(?:\.[0-9]{1,%d})?" % scale if scale else b""
        return rb"-?[0-9]{1,%d}" % max(whole, 1) + fraction
    return _TIMESTAMP if type_name.startswith("timestamp[") else None


def _read(text: Any, read_options: Any, parse_options: Any) -> list[pa.RecordBatch]:
    """Return all record batches of ``text``."""
    if hasattr(pj, "open_json"):
        return list(pj.open_json(text, read_options=read_options, parse_options=parse_options))
    return pj.read_json(text, read_options, parse_options).to_batches()  # type: ignore[no-any-return]  # before pyarrow 20


def _join_documents(documents: pa.BinaryArray, sizes: Ints, whole: Flags) -> tuple[ByteBuffer, Ints]:
    edges = np.zeros(len(sizes) + 1, dtype=np.int64)
    if not whole.all():
        documents, sizes = pc.if_else(flag_array(whole), documents, _EMPTY_OBJECT), np.where(whole, sizes, len("{}"))
    np.cumsum(sizes + len("\n"), out=edges[1:])
    together = pa.ListArray.from_arrays(to_arrow(np.array([0, len(sizes)], dtype=np.int32)), documents)
    _, _, text = pc.binary_join(together, _SEPARATOR).buffers()
    return np.frombuffer(text, dtype=np.uint8, count=int(edges[-1]) - 1), edges


def _traps(buffer: ByteBuffer, decimal_scale: int | None, ambiguous: Collection[str]) -> Ints:
    """Return int64[…]: positions of what the parser accepts and JSON does not, and of what would end the process."""
    positions = [_nulls_between(buffer), _infinities(buffer), _negative_nans(buffer)]
    if decimal_scale is not None:
        positions.append(_overflows(buffer, decimal_scale))
    if ambiguous:
        positions.append(_ambiguous_texts(buffer, ambiguous))
    if buffer.min() == 0:
        positions.append(np.flatnonzero(buffer == 0))
    if buffer.max() > _LAST_ASCII:
        positions.append(_invalid_utf8(buffer))
    return np.concatenate(positions)


def _invalid_utf8(buffer: ByteBuffer) -> Ints:
    edges = np.array([0, len(buffer)], dtype=np.int32)
    if is_utf8(buffer, edges):
        return _NOWHERE
    # Line breaks within documents divide them further, which does not matter here.
    edges = np.concatenate([[0], np.flatnonzero(buffer == _NEWLINE) + 1, [len(buffer)]]).astype(np.int32)
    lines = np.unique(np.searchsorted(edges, np.flatnonzero(buffer > _LAST_ASCII), side="right") - 1)
    invalid = [edges[line] for line in lines.tolist() if not is_utf8(buffer, edges[line : line + 2])]
    return np.array(invalid, dtype=np.int64)


def is_utf8(buffer: ByteBuffer, edges: npt.NDArray[np.int32]) -> bool:
    """Return whether the bytes between two edges are UTF-8; Arrow finds out in a fraction of the time that Python takes."""
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(edges), pa.py_buffer(buffer)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _nulls_between(buffer: ByteBuffer) -> Ints:
    """Return where ``null`` stands behind a closing brace."""
    closing = np.flatnonzero(buffer[:-1] == _CLOSE)
    following = buffer[closing + 1]
    expected = (following == _CLOSE) | (following == _COMMA)
    # The documents' own line breaks; braces within documents that are written over several lines look otherwise.
    expected |= (following == _NEWLINE) & (buffer.take(closing + 2, mode="clip") == _OPEN)
    if expected.all():
        return _NOWHERE
    return np.array([match.start() for match in _NULL_BETWEEN.finditer(buffer.data)], dtype=np.int64)


def _overflows(buffer: ByteBuffer, scale: int) -> Ints:
    """Return where a number with an exponent or many digits may be, of which Arrow (26.0) makes another one as 128 bits
    overflow."""
    is_digit = buffer - _ZERO < 10
    positions = _long_numbers(buffer, is_digit, _MAX_DECIMAL_DIGITS - scale)
    exponents = is_digit[:-2] & (buffer[1:-1] | _TO_LOWER == _e)
    if not exponents.any():
        return positions
    places = np.flatnonzero(exponents) + 1
    behind = places + 1
    behind += (buffer[behind] == _PLUS) | (buffer[behind] == _MINUS)
    places, behind = places[is_digit[behind]], behind[is_digit[behind]]
    before = places - 1
    for _ in range(_MAX_DECIMAL_DIGITS):  # steps over the number: the letters of an identifier do not end as one does
        back, ahead = is_digit[before] | (buffer[before] == _POINT), is_digit[behind]
        if not (back.any() or ahead.any()):
            break
        before -= back
        behind += ahead
    is_long = is_digit[before] | is_digit[behind]
    before -= buffer[before] == _MINUS
    is_number = _DECIMAL_BEGINS[buffer[before]] & _DECIMAL_ENDS[buffer[behind]]
    return np.concatenate([positions, places[is_number | is_long]])


def _ambiguous_texts(buffer: ByteBuffer, names: Collection[str]) -> Ints:
    """Return where texts are that may be a number and base64 alike, but for the members of other names."""
    begins = (buffer[1:] - _ZERO < 10) | (buffer[1:] == _PLUS)
    opening, places = np.flatnonzero((buffer[:-1] == _QUOTE) & begins), []
    for size in range(1, _MAX_AMBIGUOUS):
        if not len(opening):
            break
        following = buffer.take(opening + 1 + size, mode="clip")
        if size & 3 == 0:
            places.append(opening[following == _QUOTE])
        opening = opening[_IN_NUMBER[following]]
    opening = np.sort(np.concatenate([*places, opening]))
    if not len(opening):
        return _NOWHERE
    colon = opening - 1
    colon -= buffer.take(colon, mode="clip") == _BLANK
    last = colon - 1
    is_member = (buffer.take(colon, mode="clip") == _COLON) & (buffer.take(last, mode="clip") == _QUOTE)
    escapes = np.flatnonzero(buffer == _BACKSLASH)
    if len(escapes):  # a name with one may be any name
        quotes = np.flatnonzero(buffer == _QUOTE)
        first = quotes.take(quotes.searchsorted(last) - 1, mode="clip")
        is_member &= escapes.searchsorted(last) == escapes.searchsorted(first - 1)
    for name in names:
        wanted = np.flatnonzero(is_member)
        for nth, byte in enumerate(reversed(f'"{name}"'.encode())):
            wanted = wanted[buffer.take(last[wanted] - nth, mode="clip") == byte]
        is_member[wanted] = False
    positions: Ints = opening[~is_member]
    return positions


def has_long_fraction(buffer: ByteBuffer, n_digits: int) -> bool:
    """Return whether a number has a point and so many digits, from the first on that is no zero; a text may look like one."""
    points = np.flatnonzero(buffer == _POINT)
    half = n_digits // 2

    def is_digit(places: Ints) -> Flags:
        return buffer.take(places, mode="clip") - _ZERO < 10

    points = points[is_digit(points + half) | is_digit(points - half - 1)]
    n_found, n_before = np.zeros(len(points), dtype=np.int64), np.zeros(len(points), dtype=np.int64)
    for n, step in ((n_before, -1), (n_found, 1)):
        is_inside = np.ones(len(points), dtype=np.bool_)
        for distance in range(1, n_digits + 1):
            is_inside &= is_digit(points + step * distance)
            if not is_inside.any():
                break
            n += is_inside
    n_found += n_before
    begins = (points - n_before)[n_found >= n_digits].tolist()
    numbers = (_FRACTION.match(buffer.data, begin) for begin in begins)
    return any(number and len(number[0].replace(b".", b"").lstrip(b"0")) >= n_digits for number in numbers)


def _long_numbers(buffer: ByteBuffer, is_digit: Flags, max_digits: int) -> Ints:
    """Return where more digits than ``max_digits`` follow each other, or more than a decimal has behind a point."""
    runs, size = is_digit, 1
    while 2 * size <= max_digits + 1:  # digits that at least ``size`` - 1 others follow
        runs, size = runs[:-size] & runs[size:], 2 * size
    if not runs.any():
        return _NOWHERE
    begins = np.flatnonzero(is_digit[1:] & ~is_digit[:-1]) + 1
    ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:]) + 1
    positions: Ints = begins[ends - begins > np.where(buffer[begins - 1] == _POINT, _MAX_DECIMAL_DIGITS, max_digits)]
    return positions


def _infinities(buffer: ByteBuffer) -> Ints:
    """Return where ``Inf`` may stand for a number."""
    begins = (buffer[:-3] == _I) & (buffer[1:-2] == _n)
    if not begins.any():
        return _NOWHERE
    places: Ints = np.flatnonzero(begins)
    positions: Ints = places[(buffer[places + 2] == _f) & _NUMBER_ENDS[buffer[places + 3]]]
    return positions


def _negative_nans(buffer: ByteBuffer) -> Ints:
    """Return where ``-NaN`` may stand for a number."""
    begins = (buffer[:-3] == _MINUS) & (buffer[1:-2] == _N)
    if not begins.any():
        return _NOWHERE
    places: Ints = np.flatnonzero(begins)
    positions: Ints = places[buffer[places + 2] == _a]
    return positions
