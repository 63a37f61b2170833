"""Typed columns in a task: keys and values of decoded records become columns of their types.

Owns the policies for what cannot be decoded, with the record's place, and the memory: a response is decoded in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.errors import DecodeError, ValueFormatError
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.source.reader_schema import from_json, registry_in, schema_in_options
from pykafka_wire.values.bulk.reading import ColumnTooLargeError
from pykafka_wire.values.converter import (
    Decoded,
    Format,
    ReadsTypes,
    read_column,
    reasons_column,
)
from pykafka_wire.values.registry.framing import SchemaId, foreign_frames, header_values
from pykafka_wire.wire.arrow.arrays import to_arrow
from pykafka_wire.wire.records.decode import DecodedRecords
from pykafka_wire.wire.topic_partitions import OffsetRange

#: Keys and values decoded at a time. Their columns may take several times as much: an int of one byte becomes 8. Spark's worker
#: keeps a batch until it gets the next one, so two of these are in memory. As large as the groups in which formats decode
#: (``values/avro/column_reader``), so that these need not be joined.
_SLICE_BYTES: Final = 2 * 1024 * 1024
#: Small values become large rows by their number.
_SLICE_RECORDS: Final = 32_768
#: What the keys or the values of a slice may become: few bytes can be a large value. Else fewer records are decoded at a time.
_MAX_COLUMN_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDecoder:
    """Decodes one column.

    Attributes:
        type: of the column, pyarrow's.
        is_wanted: whether the column itself is read, or only what is beside it.
        added: those of its ``added_columns`` that are read.
        needs_headers: whether a record's header may name the schema.
    """

    column: TypedColumn
    format: Format | ReadsTypes
    type: pa.DataType
    is_wanted: bool
    added: tuple[str, ...]

    @property
    def needs_headers(self) -> bool:
        # Always, not only where frames are missing: without its frame a payload may begin like one.
        return self.format.framing in ("known", "required")

    def columns(
        self, records: DecodedRecords, ranges: Sequence[OffsetRange], skipped: list[pa.Array] | None = None
    ) -> dict[str, pa.Array]:
        """Return the decoded column, and those beside it, by their names.

        Args:
            skipped: gets the numbers of the records that are left out, for their type.

        Raises:
            ValueFormatError: a record cannot be decoded, and the policy is to fail.
            ColumnTooLargeError: the records take too much memory together.
            RegistryError: the registry does not respond, under every policy.
        """
        name = self.column.name
        rows = records.key if name == "key" else records.value
        headers, foreign = None, {}
        if self.needs_headers and records.headers.null_count < records.n_records:
            headers = header_values(records.headers, f"__{name}_schema_id")
            foreign = foreign_frames(records.headers, name)
        decoded = read_column(
            self.format, self.type, rows, schema_headers=headers, foreign=foreign, max_bytes=_MAX_COLUMN_BYTES
        )
        if decoded.others and self.column.on_other_type == "error":
            rows_of_others = np.concatenate(decoded.others).tolist()
            reason = f"its type is none that {name}Types names"
            decoded = replace(decoded, reasons={**decoded.reasons, **dict.fromkeys(rows_of_others, reason)})
        elif self.column.on_other_type == "skip" and skipped is not None:
            skipped += decoded.others
        if decoded.reasons and self.column.on_error == "fail":
            raise self._failure(decoded, records, ranges)
        columns: dict[str, pa.Array] = {name: decoded.column} if self.is_wanted else {}
        for added in self.added:
            if added == self.column.error_column:
                columns[added] = reasons_column(decoded, records.n_records)
            else:
                columns[added] = self._of_schemas(decoded, records.n_records, is_name=added.endswith("Name"))
        return columns

    def _of_schemas(self, decoded: Decoded, n_records: int, *, is_name: bool) -> pa.Array:
        """Return pa.StringArray: the id, or the full name, of each record's schema; null where that is unknown."""
        texts: list[str | None] = [None]
        codes = np.zeros(n_records, dtype=np.int32)
        for schema_id, index in decoded.groups:
            if schema_id is not None:
                codes[index] = len(texts)
                texts.append(self._name(schema_id) if is_name else str(schema_id.id))
        return pa.array(texts, pa.string()).take(to_arrow(codes))

    def _name(self, schema_id: SchemaId) -> str | None:
        try:
            # Avro's, Protobuf's or that of several types: the options were checked.
            name: str | None = self.format.written_name(schema_id)  # type: ignore[union-attr]
            return name
        except DecodeError:  # which is a reason of the values
            return None

    def _failure(self, decoded: Decoded, records: DecodedRecords, ranges: Sequence[OffsetRange]) -> ValueFormatError:
        row = min(decoded.reasons)
        name, place = self.column.name, ranges[int(records.slice_index[row])].topic_partition
        return ValueFormatError(
            f"the {name} of the record at {place} offset {int(records.offset[row])} cannot be decoded as {self.column.format}: "
            f"{decoded.reasons[row].rstrip('.')}. To read on, set on{name.capitalize()}Error to null, or to divert, which adds "
            f"the column {name}Error with the reason."
        )


def column_decoders(
    columns: TypedColumns, schema: pa.Schema, reader_schemas: Mapping[str, Any]
) -> tuple[ColumnDecoder, ...]:
    """Return the decoders of a task.

    Args:
        schema: pyarrow's, of the record batches.
        reader_schemas: of the columns whose schemas the options do not give, as the input partition has them.

    Raises:
        SchemaError: the registry does not have a schema.
        RegistryError: it does not respond.
    """
    readers = from_json(reader_schemas)
    decoders = []
    for column in columns.typed:
        registry = registry_in(columns, column)
        is_wanted = column.name in schema.names
        added = tuple(name for name in column.added_columns if name in schema.names)
        if not is_wanted and not added:
            continue
        reader = readers.get(column.name) or schema_in_options(column)
        assert reader is not None, "the input partition has it"
        decoders.append(
            ColumnDecoder(
                column=column,
                format=reader.value_format(registry, column),
                type=schema.field(column.name).type if is_wanted else reader.column_type(registry, column=column),
                is_wanted=is_wanted,
                added=added,
            )
        )
    return tuple(decoders)


def decode_slices(
    records: DecodedRecords, ranges: Sequence[OffsetRange], decoders: Sequence[ColumnDecoder]
) -> Iterator[tuple[DecodedRecords, dict[str, pa.Array], list[pa.Array]]]:
    """Yield the records in pieces, in order, each with its decoded columns by their names, and the numbers of those that are left
    out.

    Raises: as :meth:`ColumnDecoder.columns`.
    """
    for piece in slices(records):
        pieces = [piece]
        while pieces:
            some = pieces.pop()
            typed: dict[str, pa.Array] = {}
            skipped: list[pa.Array] = []
            try:
                for decoder in decoders:
                    typed |= decoder.columns(some, ranges, skipped)
            except ColumnTooLargeError:
                half = some.n_records // 2
                if not half:
                    raise
                pieces += [_slice(some, half, some.n_records), _slice(some, 0, half)]
                continue
            yield some, typed, skipped


def slices(records: DecodedRecords) -> Iterator[DecodedRecords]:
    """Yield the records in pieces, each with about ``_SLICE_BYTES`` of keys and values; views."""
    ends = _ends(records)
    start = 0
    while start < records.n_records:
        before = int(ends[start - 1]) if start else 0
        limit = min(before + _SLICE_BYTES, int(ends[-1]))
        end = int(np.searchsorted(ends, ends.dtype.type(limit), side="right"))
        end = min(max(end, start + 1), start + _SLICE_RECORDS, records.n_records)
        yield records if end - start == records.n_records else _slice(records, start, end)
        start = end


def _ends(records: DecodedRecords) -> npt.NDArray[np.int64] | npt.NDArray[np.int32]:
    """Return the bytes of keys and values up to the end of each record; a view where only one of both was decoded."""
    columns = [rows for rows in (records.key, records.value) if rows is not None]
    ends = [
        np.frombuffer(rows.buffers()[1], dtype=np.int32)[rows.offset + 1 :][: records.n_records] for rows in columns
    ]
    return ends[0] if len(ends) == 1 else ends[0].astype(np.int64) + ends[1]


def _slice(records: DecodedRecords, start: int, end: int) -> DecodedRecords:
    def piece(values: pa.Array) -> pa.Array:
        if values is None or not len(values):
            return values
        return values[start:end]

    names = ("slice_index", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    return replace(records, n_records=end - start, **{name: piece(getattr(records, name)) for name in names})
