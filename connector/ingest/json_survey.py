"""What the JSON texts of columns are, found by tasks in Python: the shapes of rows, and the schemas of Kafka Connect's envelopes.

Few documents are read value by value. The others are given to pyarrow's JSON reader with the shape that those have: what it takes
adds nothing. Owns which documents are envelopes. https://github.com/apache/kafka/tree/trunk/connect/json
"""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.json_shapes import (
    BOOLEAN,
    FRACTION,
    HUGE,
    INEXACT,
    MAX_EXACT_WHOLE,
    NAN,
    NUMBERS,
    TEXT,
    WHOLE,
    WRITTEN_DIGITS,
    Shape,
)
from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.document_blocks import Block, BlockError, has_long_fraction, object_bounds
from pykafka_wire.values.json.input_limits import MAX_FIELDS, item_fields, n_fields
from pykafka_wire.values.json_values.text import parse_json
from pykafka_wire.worker_pickling import SentToWorkers

#: What a column's documents are: a row, a row's key, or a change of Debezium's, whose row is ``after``.
Kind = Literal["row", "key", "change"]

_YIELDED: Final = "result binary"
_NAMES: Final = "partition INT, offset BIGINT, timestamp TIMESTAMP, names ARRAY<STRING>"
#: Confluent's frame before a text: a zero byte and the schema's id.
_FRAME_BYTES: Final = 5
#: Documents that are read one by one at first, and given to pyarrow together at least and at most.
_FEW: Final = 64
_MAX_ROWS: Final = 1 << 14
#: Of text that is given to pyarrow together, as the reader of values does.
_BLOCK_BYTES: Final = 1 << 19
#: A schema with more fields than this is one of objects that are used as maps.
_MAX_KNOWN_FIELDS: Final = 2_000
#: Envelopes of so many schemas are recognized by how they begin.
_MAX_PREFIXES: Final = 8
_BRACE: Final = b"}"[0]
#: Just below what :data:`HUGE` begins with: the number may have been rounded down.
_NEARLY_HUGE: Final = 0.999e20
_MEMBER: Final = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_AS_TEXT: Final = json.JSONDecoder(parse_float=str, parse_int=str)


@dataclass(slots=True, kw_only=True)
class JsonSurvey:
    """What the JSON texts of one column are; only more is added.

    Attributes:
        plain: the shape of documents without an envelope of Connect's; of the rows in them, where they are changes.
        payload: the same of payloads.
        texts: Connect's schemas of payloads as they are written, each once, by what they say.
        is_loose: whether there is a payload without a schema.
        n_plain, n_enveloped: documents of each sort.
        n_objects: keys that are objects.
        n_others: texts that are no JSON.
        names: those of the fields of keys that are objects, sorted, each once.
    """

    plain: Shape = field(default_factory=Shape)
    payload: Shape = field(default_factory=Shape)
    texts: dict[str, str] = field(default_factory=dict)
    is_loose: bool = False
    n_plain: int = 0
    n_enveloped: int = 0
    n_objects: int = 0
    n_others: int = 0
    names: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def schemas(self) -> tuple[str | None, ...]:
        """Return the schemas of payloads as JSON; None is that of payloads without one."""
        return (*(self.texts[said] for said in sorted(self.texts)), *([None] if self.is_loose else []))

    def merge(self, other: JsonSurvey) -> None:
        """Take in what another one has seen of the column."""
        self.plain.merge(other.plain)
        self.payload.merge(other.payload)
        for said, text in other.texts.items():
            self.texts[said] = min(text, self.texts.get(said, text))
        self.is_loose |= other.is_loose
        self.n_plain += other.n_plain
        self.n_enveloped += other.n_enveloped
        self.n_objects += other.n_objects
        self.n_others += other.n_others
        self.names |= other.names


def survey(records: DataFrame, kinds: Mapping[str, Kind]) -> dict[str, JsonSurvey]:
    """Look at all JSON texts of binary columns, in one pass; what is not JSON is skipped."""
    rows = records.select(*kinds).mapInArrow(_SurveyTask(kinds).run, _YIELDED).collect()
    surveys = {column: JsonSurvey() for column in kinds}
    for row in rows:
        # Our own tasks have pickled them, as Spark's workers pickle all that they return.
        for surveyed, part in zip(surveys.values(), pickle.loads(row.result), strict=True):  # noqa: S301
            surveyed.merge(part)
    return surveys


def survey_here(batches: Iterable[pa.RecordBatch], kinds: Mapping[str, Kind]) -> dict[str, JsonSurvey]:
    """Look at binary columns of batches in this process."""
    surveyors = {column: _Surveyor(kind) for column, kind in kinds.items()}
    for batch in batches:
        for column, surveyor in surveyors.items():
            surveyor.add(batch.column(column))
    return {column: surveyor.result() for column, surveyor in surveyors.items()}


def survey_of(documents: Iterable[bytes | None], kind: Kind) -> JsonSurvey:
    """Look at JSON texts in this process."""
    batch = pa.RecordBatch.from_arrays([pa.array(documents, pa.binary())], names=["value"])
    return survey_here([batch], {"value": kind})["value"]


def key_names(records: DataFrame) -> DataFrame:
    """Return ``partition``, ``offset`` and ``timestamp`` of records whose key is an object, and ``names``, those of its
    fields, sorted."""
    return records.select("partition", "offset", "timestamp", "key").mapInArrow(_NamesTask().run, _NAMES)


def in_envelope(document: Any, kind: Kind) -> bool:
    """Return whether a document is in an envelope of Connect's."""
    if not isinstance(document, dict) or "payload" not in document:
        return False
    has_both, schema, payload = len(document) == 2 and "schema" in document, document.get("schema"), document["payload"]
    if kind == "change":
        return "op" not in document and (has_both or (isinstance(payload, dict) and "op" in payload))
    return has_both and (schema is None or (isinstance(schema, dict) and (kind == "key" or _is_typed(schema))))


def _is_typed(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") is not None


class _SurveyTask(SentToWorkers):
    """Looks at columns of kinds, of a part of the records."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = tuple(kinds.values())

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at what Spark has in one partition; for ``mapInArrow``."""
        surveyors = [_Surveyor(kind) for kind in self._kinds]
        for batch in batches:
            for surveyor, column in zip(surveyors, batch.columns, strict=True):
                surveyor.add(column)
        result = pickle.dumps([surveyor.result() for surveyor in surveyors])
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])


class _NamesTask(SentToWorkers):
    """Finds the names of the fields of keys."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at what Spark has in one partition; for ``mapInArrow``."""
        for batch in batches:
            names = pa.array(map(_names, batch.column(3).to_pylist()), pa.list_(pa.string()))
            columns = [*batch.columns[:3], names]
            named = pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "timestamp", "names"])
            yield named.filter(pc.is_valid(names))


def _names(document: bytes | None) -> list[str] | None:
    """Return the names of a key's fields, sorted; None for one that is no object."""
    (seen,) = survey_of([document], "key").names or [None]
    return None if seen is None else list(seen)


def _unframed(column: pa.Array) -> Payloads:
    """Return the texts of a binary column, without nulls and frames."""
    column = column.drop_null()
    payloads = Payloads.of(column if column.type == pa.binary() else column.cast(pa.binary()))
    framed = (payloads.data.take(payloads.starts, mode="clip") == 0) & (payloads.ends > payloads.starts)
    if not framed.any():
        return payloads
    return Payloads(payloads.data, np.minimum(payloads.starts + framed * _FRAME_BYTES, payloads.ends), payloads.ends)


class _Surveyor:
    """Looks at the documents of one column."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._seen = JsonSurvey()
        self._plain = _KnownObjects(self._seen.plain, self._take_plain, self._learn)
        self._payloads = _KnownObjects(self._seen.payload, self._take_payloads, self._learn_whole)
        #: How documents begin whose schema is known, up to their payload.
        self._prefixes: list[bytes] = []
        self._prefix = b""

    def add(self, column: pa.Array) -> None:
        """Take in a binary column."""
        documents = _unframed(column)
        while len(documents):
            for prefix in tuple(self._prefixes):
                documents = self._without(documents, prefix)
            documents = documents.take(slice(self._plain.add(documents), None))

    def result(self) -> JsonSurvey:
        """Return what was seen."""
        seen = self._seen
        if self._kind == "change":
            for name in ("plain", "payload"):
                shape = getattr(seen, name)
                setattr(seen, name, (shape.fields or {}).get("after") or Shape())
        return seen

    def _without(self, documents: Payloads, prefix: bytes) -> Payloads:
        """Take in the payloads of the documents that begin so; return the others."""
        if not len(documents):
            return documents
        begins = pc.starts_with(documents.array(), prefix).to_numpy(zero_copy_only=False)
        is_of = begins & (documents.data.take(documents.ends - 1, mode="clip") == _BRACE)
        is_of &= documents.ends - documents.starts > len(prefix)
        rows = np.flatnonzero(is_of)
        if not len(rows):
            return documents
        inner = documents.take(rows)
        self._prefix = prefix
        self._payloads.add(Payloads(inner.data, inner.starts + len(prefix), inner.ends - 1))
        return documents.take(np.flatnonzero(~is_of))

    def _take_plain(self, rows: pa.RecordBatch) -> bool:
        """Take in documents by their columns; return False where these do not tell all."""
        if "payload" in rows.schema.names:  # they may be envelopes, unless each has another field
            others = {"op"} if self._kind == "change" else {*rows.schema.names} - {"schema", "payload"}
            if not any(name in others and not rows.column(name).null_count for name in rows.schema.names):
                return False
        if not self._take_names(rows):
            return False
        self._seen.n_plain += rows.num_rows
        return True

    def _take_payloads(self, rows: pa.RecordBatch) -> bool:
        if not self._take_names(rows):
            return False
        self._seen.n_enveloped += rows.num_rows
        return True

    def _take_names(self, rows: pa.RecordBatch) -> bool:
        if self._kind != "key":
            return True
        if any(column.null_count for column in rows.columns):
            return False
        self._seen.names.add(tuple(sorted(rows.schema.names)))
        self._seen.n_objects += rows.num_rows
        return True

    def _learn_whole(self, payload: bytes) -> bool:
        return self._learn(self._prefix + payload + b"}")

    def _learn(self, document: bytes) -> bool:
        """Take in one document, value by value; return whether it has a new prefix."""
        seen = self._seen
        try:
            value = parse_json(document)
        except DecodeError:
            seen.n_others += 1
            return False
        is_enveloped = in_envelope(value, self._kind)
        row = value["payload"] if is_enveloped else value
        if self._kind == "key":
            seen.n_objects += isinstance(value, dict)
            if isinstance(row, dict):
                seen.names.add(tuple(sorted(row)))
        if not is_enveloped:
            seen.n_plain += 1
            seen.plain.add(value)
            return False
        seen.n_enveloped += 1
        seen.payload.add(row)
        if not _is_typed(value.get("schema")):
            seen.is_loose = True
            return False
        return not any(map(document.startswith, self._prefixes)) and self._note_schema(document)

    def _note_schema(self, document: bytes) -> bool:
        """Note the schema of an envelope, and how documents with it begin, if others may begin so."""
        text = document.decode().removeprefix("\ufeff")
        places: dict[str, slice] = {}
        position = 0
        while (member := _MEMBER.match(text, position)) is not None:
            _, position = _AS_TEXT.raw_decode(text, member.end())
            places[json.loads(member[1])] = slice(member.end(), position)
        schema = text[places["schema"]]
        said = json.dumps(_AS_TEXT.decode(schema), sort_keys=True, separators=(",", ":"))
        self._seen.texts[said] = min(schema, self._seen.texts.get(said, schema))
        is_prefix = [*places] == ["schema", "payload"] and len(self._prefixes) < _MAX_PREFIXES
        if is_prefix:
            self._prefixes.append(text[: places["payload"].start].encode())
        return is_prefix


class _KnownObjects:
    """Objects of one shape, but for few, from which the shape is learned."""

    def __init__(self, shape: Shape, take: Callable[[pa.RecordBatch], bool], learn: Callable[[bytes], bool]) -> None:
        """Take the shape, and what becomes of documents.

        Args:
            take: takes in documents by their columns, if these tell all of them.
            learn: takes in one document, whatever it is, lets the shape grow, and returns whether to stop.
        """
        self._shape = shape
        self._take = take
        self._learn = learn
        self._type: pa.DataType | None = None
        self._n_together = self._n_learned = _FEW

    def add(self, documents: Payloads) -> int:
        """Take in documents until one of them says to stop; return how many."""
        first, is_over = 0, False
        self._type = self._type or _type_of_objects(self._shape)
        while first < len(documents) and not is_over:
            by_bytes = int(np.searchsorted(documents.ends, documents.starts[first] + _BLOCK_BYTES))
            last = min(first + self._n_together, max(by_bytes, first + 1), len(documents))
            others = self._others(documents.take(slice(first, last)))
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
                is_over |= self._learn(documents[first + row])
            if len(others):
                self._type = _type_of_objects(self._shape)
            first = last
        return first

    @property
    def _max_rows(self) -> int:
        n = 1 if self._type is None else n_fields(self._type)
        return max(min(MAX_FIELDS // n, _MAX_ROWS), _FEW)

    def _others(self, documents: Payloads) -> Ints | None:
        """Take in documents that the shape has; the rows of those that are to be learned from. None if these are not known."""
        if self._type is None or len(documents) < _FEW:
            return None
        documents, is_object = object_bounds(documents)
        rows = np.flatnonzero(is_object)
        if len(rows) < _FEW:
            return None
        objects = documents if len(rows) == len(documents) else documents.take(rows)
        block = Block(objects.array(), objects.ends - objects.starts, np.ones(len(rows), dtype=np.bool_))
        per_item = item_fields(self._type)
        if per_item > 1:  # {} and null may stand for many fields
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
            or not self._take(columns)
        ):
            return None
        return np.flatnonzero(~is_object)


def _type_of_objects(shape: Shape) -> pa.DataType | None:
    """Return pyarrow's type of objects all of which the shape has; None where there is no such type."""
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
        return pa.string() if not kinds & ~(TEXT | NAN) else None
    if kinds & BOOLEAN:
        return pa.bool_() if kinds == BOOLEAN else None
    if kinds & FRACTION:
        return pa.float64()
    return pa.int64() if kinds & NUMBERS == WHOLE and not kinds & NAN else pa.null() if not kinds else None


def _is_known(shape: Shape, column: pa.Array) -> bool:
    """Return whether the numbers of a column have nothing that the shape lacks; pyarrow may have rounded them."""
    if shape.fields is not None:
        return all(_is_known(shape.fields[part.name], column.field(n)) for n, part in enumerate(column.type))
    if shape.items is not None:
        return _is_known(shape.items, column.values)
    kinds = shape.kinds
    limit = MAX_EXACT_WHOLE if not kinds & INEXACT else math.inf
    if kinds & INEXACT and kinds & FRACTION and not kinds & HUGE:
        limit = _NEARLY_HUGE
    if not kinds & NUMBERS or limit == math.inf:
        return True
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or (-limit < bounds["min"] and bounds["max"] < limit)


def _has_fractions(shape: Shape) -> bool:
    """Return whether a place has fractions all of which a DOUBLE keeps, so far."""
    parts = [*(shape.fields or {}).values(), *([] if shape.items is None else [shape.items])]
    return bool(shape.kinds & FRACTION and not shape.kinds & INEXACT) or any(map(_has_fractions, parts))
