"""A column of JSON objects as an Arrow struct, block by block; what a block cannot be read with is left to single rows.

Owns the sizes of blocks and what happens after one fails. pyarrow fails a block as a whole: for one value that is not JSON, for
one that does not fit its type. So a failed block loses the row that pyarrow names, or is halved, and a block that is small
already is left as it is. What is left grows while blocks fail, so that bad values cost little more than single rows do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, concat, reassemble
from pykafka_wire.values.bulk.reading import OneByOne, PayloadReader, Payloads
from pykafka_wire.values.json.column_types import ColumnType, InDoubtError, NotInColumnsError, column_type_of
from pykafka_wire.values.json.document_blocks import Block, BlockError, object_bounds
from pykafka_wire.values.json.enveloped_documents import UnwrappedReader, separated_reader
from pykafka_wire.values.json.flat_objects import FlatReader
from pykafka_wire.values.json.input_limits import MAX_FIELDS, document_conversion, item_fields, n_fields
from pykafka_wire.values.json.variant_columns import VariantReader
from pykafka_wire.values.single_json.encodings import UNKNOWN, Encodings
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.values.single_json.variant_type import is_variant

_log: Final = logging.getLogger(__name__)

#: What to do with documents in the envelope of Kafka Connect's converter.
EnvelopeMode = Literal["keep", "unwrap"]

_BACKSLASH: Final = b"\\"[0]
#: Of text. Smaller blocks pay more for each call of pyarrow's reader (some 50 µs), larger ones leave the processor's cache.
_BLOCK_BYTES: Final = 1 << 19
#: Below, single rows take less time than the attempt.
_MIN_ROWS: Final = 64
_MAX_ROWS: Final = 1 << 14
#: Of flat objects read at once: 300 calls of NumPy and Arrow take 0.5 ms, whatever the number of rows, and larger arrays leave
#: the processor's cache.
_FLAT_BYTES: Final = 4 << 20


def document_reader(
    column_type: pa.DataType,
    encodings: Encodings = UNKNOWN,
    envelope: EnvelopeMode = "keep",
    schemas: Sequence[str | None] = (),
) -> PayloadReader:
    """Return a reader of JSON documents, of which some may be in the envelope of Kafka Connect's converter.

    Args:
        schemas: the schemas of envelopes whose payloads have a field of their own: see
            :class:`~pykafka_wire.values.json.enveloped_documents.SeparatedReader`.

    Raises:
        OptionError: no value has such a type.
    """
    if schemas:
        return separated_reader(column_type, schemas, lambda part: json_reader(part, encodings))
    reader = json_reader(column_type, encodings)
    return UnwrappedReader(reader) if envelope == "unwrap" else reader


@lru_cache(maxsize=256)
def json_reader(column_type: pa.DataType, encodings: Encodings = UNKNOWN) -> JsonReader | VariantReader | OneByOne:
    """Return a reader of JSON documents as ``column_type``: in columns where that is a struct, row by row otherwise.

    Raises:
        OptionError: no value has such a type.
    """
    if is_variant(column_type):
        return VariantReader(column_type, encodings.variant_numbers)
    convert = document_conversion(column_type, encodings)
    if pa.types.is_struct(column_type):
        try:
            plan = column_type_of(column_type, encodings)
            return JsonReader(
                column_type=column_type,
                plan=plan,
                convert=convert,
                row_fields=n_fields(column_type),
                item_fields=item_fields(column_type),
            )
        except NotInColumnsError as error:
            _log.info("JSON as %s is read row by row, since columns cannot hold %s", column_type, error)
    return OneByOne(column_type, lambda payload: convert(parse_json(payload, has_signed_zero=True), len(payload)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReader:
    """Reads JSON objects as structs: see :class:`~pykafka_wire.values.converter.PayloadReader`.

    Attributes:
        row_fields: of a row, without those of arrays.
        item_fields: of the largest item of an array.
    """

    column_type: pa.DataType
    plan: ColumnType
    convert: Callable[[Any, int], Any]
    row_fields: int
    item_fields: int

    def read_one(self, payload: bytes) -> Any:
        return self.convert(parse_json(payload, has_signed_zero=True), len(payload))

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        payloads, whole = object_bounds(payloads)
        parts: list[tuple[Ints, pa.Array]] = []
        unread: list[Ints] = [np.flatnonzero(~whole)]
        flat = FlatReader(self.plan)
        for first, last in self._ranges(payloads, _FLAT_BYTES):
            flat_parts, others = flat.read(payloads, first + np.flatnonzero(whole[first:last]))
            parts += flat_parts
            unread.append(others)
        rows = np.sort(np.concatenate(unread)) if parts else np.arange(len(payloads))
        if len(rows):
            some = whole[rows]
            parts.append((rows, self._in_blocks(payloads.take(rows), some)))
            whole[rows] = some
        return reassemble(len(payloads), self.column_type, parts), ~whole

    def _ranges(self, payloads: Payloads, n_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of each run of documents that are read together: at least one, of at most so many bytes."""
        first = 0
        while first < len(payloads):
            by_bytes = int(np.searchsorted(payloads.ends, payloads.starts[first] + n_bytes))
            last = min(first + self._max_rows, max(by_bytes, first + 1), len(payloads))
            yield first, last
            first = last

    def _in_blocks(self, payloads: Payloads, whole: Flags) -> pa.Array:
        """Return the documents in one column, by pyarrow's reader; ``whole`` becomes False for those that are left."""
        documents, sizes = payloads.array(), payloads.ends - payloads.starts
        scale = self.plan.decimal_scale if self.plan.has_decimals else None
        columns: list[pa.Array] = []
        pace = _Pace(n_rows=self._max_rows)
        for first, last in self._ranges(payloads, _BLOCK_BYTES):
            some = slice(first, last)
            block = Block(documents[some], sizes[some], whole[some], scale, self.plan.ambiguous)
            columns += self._columns(block, pace)
        return concat(columns, self.column_type)

    @property
    def _max_rows(self) -> int:
        return min(max(MAX_FIELDS // self.row_fields, _MIN_ROWS), _MAX_ROWS)

    def _columns(self, block: Block, pace: _Pace) -> list[pa.Array]:
        """Return the documents of a block, in parts; those that cannot be read are left."""
        columns: list[pa.Array] = []
        first, unreadable, n_documents = 0, len(block), len(block)
        while first < n_documents:
            last = min(first + pace.n_rows, unreadable)
            try:
                if first < last:
                    columns.append(self._column(block, first, last))
                    pace.n_rows = min(2 * pace.n_rows, self._max_rows)
                    if last - first >= _MIN_ROWS:
                        pace.n_left = 0
                    first = last
                if first == unreadable < n_documents:
                    self._leave(block, columns, first, 1)
                    first, unreadable = first + 1, n_documents
                continue
            except BlockError as error:
                if block.leave_suspects(error, first):
                    continue
                named = error.row if error.row is not None and first <= error.row < last else None
            if named is not None and named - first >= _MIN_ROWS:
                unreadable = named
            elif named is None and last - first > _MIN_ROWS:
                pace.n_rows = max((last - first) // 2, _MIN_ROWS)
            else:
                n_left = max(2 * pace.n_left, (last if named is None else named + 1) - first)
                pace.n_left = n_left = min(n_left, self._max_rows, n_documents - first)
                self._leave(block, columns, first, n_left)
                first, unreadable = first + n_left, n_documents
        return columns

    def _leave(self, block: Block, columns: list[pa.Array], first: int, n_left: int) -> None:
        block.whole[first : first + n_left] = False
        columns.append(pa.nulls(n_left, self.column_type))

    def _column(self, block: Block, first: int, last: int) -> pa.Array:
        plan = self.plan
        if self.item_fields > 1:
            text = block.buffer[block.edges[first] : block.edges[last]].tobytes()
            # At most so many items are structs, or nulls with the places of one; single rows are counted exactly.
            if (text.count(b"{") + text.count(b"null")) * self.item_fields > MAX_FIELDS:
                raise BlockError("too many items")
        column = block.parse(first, last, pa.schema(list(plan.read_as))).to_struct_array()
        try:
            if plan.has_decimals or (block.buffer == _BACKSLASH).any():
                column.validate(full=True)  # decimals that are too long, and texts that an escape makes invalid
            return column if plan.finish is None else plan.finish(column, block.whole[first:last])
        except (pa.ArrowException, InDoubtError) as error:
            raise BlockError("values that pyarrow reads otherwise") from error


@dataclass(slots=True)
class _Pace:
    """How many rows are read at once, and how many were left when that failed last, 0 after it succeeded."""

    n_rows: int
    n_left: int = 0
