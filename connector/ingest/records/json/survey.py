"""A survey of the JSON texts of columns, made by Python tasks: the shapes of rows, and the schemas in Kafka Connect's envelopes.

Few documents are read value by value. pyarrow's JSON reader reads the others with the shape of these few: documents that fit add
nothing new. :mod:`pykafka_wire.values.single_json.connect_envelope` decides which documents are envelopes.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.records.json.shapes import (
    BOOLEAN,
    FRACTION,
    HUGE,
    INEXACT,
    ISO_TIMESTAMP,
    MAX_EXACT_WHOLE,
    NAN,
    NUMBERS,
    TEXT,
    WHOLE,
    WORDS,
    WRITTEN_DIGITS,
    Shape,
    merged,
)
from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.document_blocks import Block, BlockError, has_long_fraction, object_bounds
from pykafka_wire.values.json.enveloped_documents import begin_with
from pykafka_wire.values.json.input_limits import MAX_FIELDS, item_fields, n_fields
from pykafka_wire.values.registry.framing import split_frames
from pykafka_wire.values.single_json.connect_envelope import is_in_envelope, normal_schema, parts_of
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.worker_pickling import SentToWorkers

#: The kind of a column's documents: rows, keys of rows, or Debezium's changes, whose row is ``after``.
Kind = Literal["row", "key", "change"]

#: The columns that decide which of two documents is newer.
PLACE_COLUMNS: Final = ("partition", "offset", "timestamp")
_YIELDED: Final = "result binary"
_NAMES: Final = "partition INT, offset BIGINT, timestamp TIMESTAMP, names ARRAY<STRING>"
#: The number of documents read one by one at first, and the smallest and largest number given to pyarrow at once.
_FEW: Final = 64
_MAX_ROWS: Final = 1 << 14
#: The most bytes of text given to pyarrow at once, the same as for the reader of values.
_BLOCK_BYTES: Final = 1 << 19
#: A schema with more fields belongs to objects that are used as maps.
_MAX_KNOWN_FIELDS: Final = 2_000
#: Envelopes of at most this many schemas are recognised by their first bytes.
_MAX_PREFIXES: Final = 8
#: Slightly less than the limit of :data:`HUGE`, since the number may have been rounded down.
_NEARLY_HUGE: Final = 0.999e20


class DocumentPlace(NamedTuple):
    """A document's place, which orders documents by age: by offset within a partition, by timestamp between partitions.

    Attributes:
        time_us: the latest timestamp in the partition up to this record.
    """

    time_us: int
    partition: int
    offset: int


@dataclass(slots=True, kw_only=True)
class JsonSurvey:
    """The survey of the JSON texts of one column. It only grows.

    Attributes:
        plain: the shape of documents without Connect's envelope, or of the rows in them if they are changes.
        payloads: the same for payloads of envelopes, by the normal form of their schema; None for payloads without a schema.
        texts: the distinct Connect schemas of payloads as written, by normal form.
        newest: the place of the last payload of each schema.
        n_plain, n_enveloped: the number of documents without and with envelope.
        n_objects: the number of keys that are objects.
        n_others: the number of texts that are not JSON.
        names: the distinct sorted field names of keys that are objects.
    """

    plain: Shape = field(default_factory=Shape)
    payloads: dict[str | None, Shape] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    newest: dict[str, DocumentPlace] = field(default_factory=dict)
    n_plain: int = 0
    n_enveloped: int = 0
    n_objects: int = 0
    n_others: int = 0
    names: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def schemas(self) -> tuple[str | None, ...]:
        """Return the schemas of payloads as JSON, the newest first; None stands for payloads without a schema."""
        return tuple(None if said is None else self.texts[said] for said in self._ordered)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the payloads of each of :attr:`schemas`."""
        return tuple(self.payloads[said] for said in self._ordered)

    @property
    def payload(self) -> Shape:
        """Return the shape of all payloads."""
        return merged(self.payloads.values())

    @property
    def is_loose(self) -> bool:
        """Return whether there is a payload without a schema."""
        return None in self.payloads

    @property
    def _ordered(self) -> tuple[str | None, ...]:
        ordered = sorted(self.texts, key=lambda said: (self.newest[said], said), reverse=True)
        return (*ordered, *([None] if self.is_loose else []))

    def shape_of(self, said: str | None) -> Shape:
        """Return the shape of the payloads of a schema, given by its normal form, to add values to it."""
        return self.payloads.setdefault(said, Shape())

    def note(self, said: str, text: str, place: DocumentPlace) -> None:
        """Record a Connect schema that the payload at a place has."""
        self.texts[said] = min(text, self.texts.get(said, text))
        self.newest[said] = max(place, self.newest.get(said, place))

    def merge(self, other: JsonSurvey) -> None:
        """Add the survey of other documents of the column."""
        self.plain.merge(other.plain)
        for kind, shape in other.payloads.items():
            self.shape_of(kind).merge(shape)
        for said, text in other.texts.items():
            self.note(said, text, other.newest[said])
        self.n_plain += other.n_plain
        self.n_enveloped += other.n_enveloped
        self.n_objects += other.n_objects
        self.n_others += other.n_others
        self.names |= other.names


def survey(records: DataFrame, kinds: Mapping[str, Kind], *, with_timestamps: bool = False) -> dict[str, JsonSurvey]:
    """Survey all JSON texts of binary columns in one pass. Texts that are not JSON are skipped.

    Args:
        records: records with the columns :data:`PLACE_COLUMNS`.
        with_timestamps: whether texts in rows that are timestamps are distinguished from other texts.
    """
    task = _SurveyTask(kinds, with_timestamps)
    rows = records.select(*kinds, *PLACE_COLUMNS).mapInArrow(task.run, _YIELDED).collect()
    surveys = {column: JsonSurvey() for column in kinds}
    for row in rows:
        # The pickles come from this package's own tasks, as do all results of Spark's workers.
        for surveyed, part in zip(surveys.values(), pickle.loads(row.result), strict=True):  # noqa: S301
            surveyed.merge(part)
    return surveys


def survey_here(
    batches: Iterable[pa.RecordBatch], kinds: Mapping[str, Kind], *, with_timestamps: bool = False
) -> dict[str, JsonSurvey]:
    """Survey binary columns of batches in this process. The batches must have :data:`PLACE_COLUMNS`."""
    surveyors = {column: _Surveyor(kind, with_timestamps) for column, kind in kinds.items()}
    places = _Places()
    for batch in batches:
        places.enter(batch)
        for column, surveyor in surveyors.items():
            surveyor.add(batch.column(column), places)
    return {column: surveyor.result() for column, surveyor in surveyors.items()}


def survey_of(documents: Iterable[bytes | None], kind: Kind, *, with_timestamps: bool = False) -> JsonSurvey:
    """Survey JSON texts in this process, the oldest first."""
    values = pa.array(documents, pa.binary())
    offsets = pa.array(range(len(values)), pa.int64())
    zeros = pa.array([0] * len(values), pa.int64())
    batch = pa.RecordBatch.from_arrays([values, zeros, offsets, zeros], names=["value", *PLACE_COLUMNS])
    return survey_here([batch], {"value": kind}, with_timestamps=with_timestamps)["value"]


def key_names(records: DataFrame) -> DataFrame:
    """Return ``partition``, ``offset`` and ``timestamp`` of records whose key is an object, and ``names``: the key's field names,
    sorted."""
    return records.select("partition", "offset", "timestamp", "key").mapInArrow(_NamesTask().run, _NAMES)


def _has_change_inside(document: Any) -> bool:
    """Return whether a document has Debezium's change in a field ``payload``, in Connect's envelope or in something like it."""
    if not isinstance(document, dict) or "payload" not in document or "op" in document:
        return False
    payload = document["payload"]
    return document.keys() == {"schema", "payload"} or (isinstance(payload, dict) and "op" in payload)


class _SurveyTask(SentToWorkers):
    """Surveys columns in a task, for one Spark partition of the records."""

    def __init__(self, kinds: Mapping[str, Kind], with_timestamps: bool) -> None:
        self._kinds = tuple(kinds.values())
        self._with_timestamps = with_timestamps

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Survey the batches of one Spark partition; for ``mapInArrow``."""
        surveyors = [_Surveyor(kind, self._with_timestamps) for kind in self._kinds]
        places = _Places()
        for batch in batches:
            places.enter(batch)
            for surveyor, column in zip(surveyors, batch.columns[: len(surveyors)], strict=True):
                surveyor.add(column, places)
        result = pickle.dumps([surveyor.result() for surveyor in surveyors])
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])


class _NamesTask(SentToWorkers):
    """Finds the field names of keys in a task."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add the names to the batches of one Spark partition; for ``mapInArrow``."""
        for batch in batches:
            names = pa.array(map(_names, batch.column(3).to_pylist()), pa.list_(pa.string()))
            columns = [*batch.columns[:3], names]
            named = pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "timestamp", "names"])
            yield named.filter(pc.is_valid(names))


def _names(document: bytes | None) -> list[str] | None:
    """Return the field names of a key, sorted; None if the key is no object."""
    (seen,) = survey_of([document], "key").names or [None]
    return None if seen is None else list(seen)


def _unframed(column: pa.Array) -> tuple[Payloads, Ints]:
    """Return the texts of a binary column without their frames, as the source skips these, and their rows. Nulls have no text, nor
    has a frame whose compressed text is damaged."""
    frames = split_frames(column if column.type == pa.binary() else column.cast(pa.binary()), "optional")
    ((_, rows),) = frames.groups
    return frames.payloads.take(rows), rows


class _Places:
    """The places of the records of a batch, with timestamps that never decrease within a partition."""

    def __init__(self) -> None:
        self._times = self._partitions = self._offsets = np.zeros(0, dtype=np.int64)
        #: The latest timestamp of each partition, including this batch and before it.
        self._latest: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._is_ordered = False

    def enter(self, batch: pa.RecordBatch) -> None:
        """Continue with the next batch."""
        self._partitions, self._offsets, self._times = (_numbers(batch.column(name)) for name in PLACE_COLUMNS)
        self._before, self._is_ordered = dict(self._latest), False
        for partition, rows in self._rows_by_partition():
            latest = int(self._times[rows].max())
            self._latest[partition] = max(latest, self._latest.get(partition, latest))

    def _rows_by_partition(self) -> Iterator[tuple[int, Ints | slice]]:
        partitions = self._partitions
        if len(partitions) and (partitions == partitions[0]).all():
            yield int(partitions[0]), slice(None)
            return
        for partition in np.unique(partitions).tolist():
            yield partition, np.flatnonzero(partitions == partition)

    def _order(self) -> None:
        """Make timestamps non-decreasing within each partition. Most batches do not need this."""
        self._times, self._is_ordered = self._times.copy(), True
        for partition, rows in self._rows_by_partition():
            times = self._times[rows]
            self._times[rows] = np.maximum.accumulate(np.maximum(times, self._before.get(partition, times[0])))

    def newest(self, rows: Ints) -> DocumentPlace:
        """Return the newest place among some rows; there must be at least one."""
        if not self._is_ordered:
            self._order()
        for column in (self._times, self._partitions, self._offsets):
            of_rows = column[rows]
            rows = rows[of_rows == of_rows.max()]
        return DocumentPlace(*(int(column[rows[0]]) for column in (self._times, self._partitions, self._offsets)))


def _numbers(column: pa.Array) -> Ints:
    """Return whole numbers or times as int64[n]; 0 for null."""
    numbers: Ints = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


class _Surveyor:
    """Surveys the documents of one column."""

    def __init__(self, kind: Kind, with_timestamps: bool) -> None:
        self._kind = kind
        #: Key texts are compared as they are, so timestamps are not distinguished.
        self._with_timestamps = with_timestamps and kind != "key"
        self._seen = JsonSurvey()
        self._plain = _KnownObjects(self._seen.plain, self._take_plain, self._learn)
        #: Payloads of a known schema, by the first bytes of their documents, up to the payload.
        self._payloads: dict[bytes, _KnownObjects] = {}
        self._places = _Places()
        #: The row numbers in the batch of the documents that are being read.
        self._rows: Ints = np.zeros(0, dtype=np.int64)

    def add(self, column: pa.Array, places: _Places) -> None:
        """Add a binary column of the batch that was entered last."""
        self._places = places
        documents, rows = _unframed(column)
        self._seen.n_others += len(column) - column.null_count - len(rows)
        while len(documents):
            for prefix in tuple(self._payloads):
                documents, rows = self._without(documents, rows, prefix)
            self._rows = rows
            n_taken = self._plain.add(documents)
            documents, rows = documents.take(slice(n_taken, None)), rows[n_taken:]

    def result(self) -> JsonSurvey:
        """Return the finished survey."""
        seen = self._seen
        if self._kind == "change":
            seen.plain = _after(seen.plain)
            seen.payloads = {said: _after(shape) for said, shape in seen.payloads.items()}
        return seen

    def _without(self, documents: Payloads, places: Ints, prefix: bytes) -> tuple[Payloads, Ints]:
        """Add the payloads of the documents that start with a prefix; return the other documents, and their rows in the batch."""
        if not len(documents):
            return documents, places
        is_of = begin_with(documents, prefix)
        rows = np.flatnonzero(is_of)
        if not len(rows):
            return documents, places
        inner = documents.take(rows)
        self._rows = places[rows]
        self._payloads[prefix].add(Payloads(inner.data, inner.starts + len(prefix), inner.ends - 1))
        others = np.flatnonzero(~is_of)
        return documents.take(others), places[others]

    def _take_plain(self, rows: pa.RecordBatch, _: Ints) -> bool:
        """Add documents by their columns; return False if the columns do not show everything."""
        if (
            "payload" in rows.schema.names
        ):  # the documents may be envelopes, unless each has a field that an envelope does not have
            others = {"op"} if self._kind == "change" else {*rows.schema.names} - {"schema", "payload"}
            if not any(name in others and not rows.column(name).null_count for name in rows.schema.names):
                return False
        if not self._take_names(rows):
            return False
        self._seen.n_plain += rows.num_rows
        return True

    def _payloads_of(self, prefix: bytes, said: str) -> _KnownObjects:
        """Return the payloads of documents that begin with a prefix, which has a schema, given by its normal form."""
        seen = self._seen

        def take(rows: pa.RecordBatch, numbers: Ints) -> bool:
            if not self._take_names(rows):
                return False
            seen.n_enveloped += rows.num_rows
            seen.note(said, seen.texts[said], self._places.newest(self._rows[numbers]))
            return True

        def learn(payload: bytes, row: int) -> bool:
            self._learn(prefix + payload + b"}", row)
            return False  # all documents with this prefix are added, whichever other prefixes these show

        return _KnownObjects(seen.shape_of(said), take, learn)

    def _take_names(self, rows: pa.RecordBatch) -> bool:
        if self._kind != "key":
            return True
        if any(column.null_count for column in rows.columns):
            return False
        self._seen.names.add(tuple(sorted(rows.schema.names)))
        self._seen.n_objects += rows.num_rows
        return True

    def _learn(self, document: bytes, row: int) -> bool:
        """Add one document, value by value; return whether it has a new prefix."""
        seen = self._seen
        try:
            value = parse_json(document)
        except DecodeError:
            seen.n_others += 1
            return False
        is_whole = is_in_envelope(value)
        is_enveloped = is_whole or (self._kind == "change" and _has_change_inside(value))
        content = value["payload"] if is_enveloped else value
        if self._kind == "key":
            seen.n_objects += isinstance(value, dict)
            if isinstance(content, dict):
                seen.names.add(tuple(sorted(content)))
        if not is_enveloped:
            seen.n_plain += 1
            seen.plain.add(value, with_timestamps=self._with_timestamps)
            return False
        seen.n_enveloped += 1
        # A schema counts in a whole envelope alone.
        parts = parts_of(document, value) if is_whole else None
        said = None if parts is None or parts.schema is None else normal_schema(parts.schema)
        seen.shape_of(said).add(content, with_timestamps=self._with_timestamps)
        if said is None:
            return False
        assert parts is not None and parts.schema is not None, "the schema has a normal form"
        seen.note(said, parts.schema, self._places.newest(self._rows[[row]]))
        prefix = document[: parts.start]
        is_new = parts.is_prefix and prefix not in self._payloads and len(self._payloads) < _MAX_PREFIXES
        if is_new:
            self._payloads[prefix] = self._payloads_of(prefix, said)
        return is_new


def _after(change: Shape) -> Shape:
    return (change.fields or {}).get("after") or Shape()


class _KnownObjects:
    """Objects of a known shape. The shape is learned from a few documents."""

    def __init__(
        self, shape: Shape, take: Callable[[pa.RecordBatch, Ints], bool], learn: Callable[[bytes, int], bool]
    ) -> None:
        """Store the shape and the callbacks.

        Args:
            take: adds documents by their columns and rows, and returns whether the columns showed everything.
            learn: adds one document of any kind, by its row; the shape may grow. Returns whether to stop.
        """
        self._shape = shape
        self._take = take
        self._learn = learn
        self._type: pa.DataType | None = None
        self._n_together = self._n_learned = _FEW

    def add(self, documents: Payloads) -> int:
        """Add documents until :attr:`_learn` says to stop; return how many were added."""
        first, is_over = 0, False
        self._type = self._type or _type_of_objects(self._shape)
        while first < len(documents) and not is_over:
            by_bytes = int(np.searchsorted(documents.ends, documents.starts[first] + _BLOCK_BYTES))
            last = min(first + self._n_together, max(by_bytes, first + 1), len(documents))
            others = self._others(documents.take(slice(first, last)), first)
            if others is not None:
                self._n_together, self._n_learned = min(2 * self._n_together, self._max_rows), _FEW
            else:
                last = min(first + self._n_learned, len(documents))
                others = np.arange(last - first)
                self._n_together, self._n_learned = (
                    max(self._n_together // 2, _FEW),
                    min(2 * self._n_learned, _MAX_ROWS),
                )
            for row in others.tolist():
                is_over |= self._learn(documents[first + row], first + row)
            if len(others):
                self._type = _type_of_objects(self._shape)
            first = last
        return first

    @property
    def _max_rows(self) -> int:
        n = 1 if self._type is None else n_fields(self._type)
        return max(min(MAX_FIELDS // n, _MAX_ROWS), _FEW)

    def _others(self, documents: Payloads, first: int) -> Ints | None:
        """Add documents that have the shape, and return the rows of the rest. Return None if the documents have to be learned.

        Args:
            first: the row of the first document.
        """
        if self._type is None or len(documents) < _FEW:
            return None
        documents, is_object = object_bounds(documents)
        rows = np.flatnonzero(is_object)
        if len(rows) < _FEW:
            return None
        objects = documents if len(rows) == len(documents) else documents.take(rows)
        block = Block(objects.array(), objects.ends - objects.starts, np.ones(len(rows), dtype=np.bool_))
        per_item = item_fields(self._type)
        if per_item > 1:  # {} and null may expand to many fields
            text = block.buffer.tobytes()
            if (text.count(b"{") + text.count(b"null")) * per_item > MAX_FIELDS:
                return None
        try:
            columns = block.parse(0, len(block), pa.schema(list(self._type)), unexpected="error")
        except BlockError:
            return None
        is_known = block.whole.all() and _is_known(self._shape, columns.to_struct_array())
        if (
            not is_known
            or (_has_fractions(self._shape) and has_long_fraction(block.buffer, WRITTEN_DIGITS + 1))
            or not self._take(columns, first + rows)
        ):
            return None
        return np.flatnonzero(~is_object)


def _type_of_objects(shape: Shape) -> pa.DataType | None:
    """Return pyarrow's type for objects whose fields the shape has; None if there is no such type."""
    found = _arrow_type(shape) if shape.is_object else None
    return None if found is None or n_fields(found) + item_fields(found) > _MAX_KNOWN_FIELDS else found


def _arrow_type(shape: Shape) -> pa.DataType | None:
    if shape.is_object:
        assert shape.fields is not None, "there is an object"
        types = {name: _arrow_type(inner) for name, inner in shape.fields.items()}
        return None if None in types.values() else pa.struct(list(types.items()))
    if shape.is_array:
        assert shape.items is not None, "there is an array"
        inner = _arrow_type(shape.items)
        return None if inner is None else pa.list_(inner)
    if shape.fields is not None or shape.items is not None:
        return None
    kinds = shape.kinds
    if kinds & TEXT:
        return pa.string() if not kinds & ~(TEXT | WORDS | NAN) else None
    if kinds & BOOLEAN:
        return pa.bool_() if kinds == BOOLEAN else None
    if kinds & FRACTION:
        return pa.float64()
    return pa.int64() if kinds & NUMBERS == WHOLE and not kinds & NAN else pa.null() if not kinds else None


def _is_known(shape: Shape, column: pa.Array) -> bool:
    """Return whether no number or text in a column would extend the shape. Numbers may be rounded by pyarrow."""
    if shape.fields is not None:
        return all(_is_known(shape.fields[part.name], column.field(n)) for n, part in enumerate(column.type))
    if shape.items is not None:
        return _is_known(shape.items, column.values)
    kinds = shape.kinds
    if kinds & TEXT and not kinds & WORDS:
        return pc.all(pc.match_substring_regex(column, ISO_TIMESTAMP)).as_py() is not False
    limit = MAX_EXACT_WHOLE if not kinds & INEXACT else math.inf
    if kinds & INEXACT and kinds & FRACTION and not kinds & HUGE:
        limit = _NEARLY_HUGE
    if not kinds & NUMBERS or limit == math.inf:
        return True
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or (-limit < bounds["min"] and bounds["max"] < limit)


def _has_fractions(shape: Shape) -> bool:
    """Return whether the shape has fractions, all of which a DOUBLE keeps so far."""
    parts = [*(shape.fields or {}).values(), *([] if shape.items is None else [shape.items])]
    return bool(shape.kinds & FRACTION and not shape.kinds & INEXACT) or any(map(_has_fractions, parts))
