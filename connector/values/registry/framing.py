"""Which schema each value of a column was written with: the frames of serializers, read for all rows at once.

Confluent's frame stands before the payload (a zero byte, the schema's id as int32, for Protobuf the message indexes), or in a
record header, as newer serializers write it (a byte 1, the schema's GUID, the message indexes). AWS Glue's stands before it: a byte
3, a byte 0 (or 5 where all that follows the frame is compressed with zlib), the UUID of the schema's version, for Protobuf the
message's number. Knows no registry. https://github.com/awslabs/aws-glue-schema-registry
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.bulk.reading import ColumnTooLargeError, Payloads
from pykafka_wire.wire.arrow.arrays import to_arrow_with_nulls, to_numpy, validity
from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.single_varint import SHORT_READ, decode_uvarint, encode_uvarint

#: ``optional``: a frame is skipped where there is one; ``known``: its schema counts where there is one. A payload that may begin
#: with a zero byte needs to know. Frames are Confluent's, unless they are called Glue's.
Framing = Literal["none", "optional", "known", "required", "known glue", "required glue"]

_HEAD: Final = struct.Struct(">bi")
#: protoc allows messages in messages 32 deep.
_MAX_DEPTH: Final = 100
_FRAME_BYTES: Final = 5
_GUID_BYTES: Final = 16
_GLUE_VERSION: Final = 3
_GLUE_FRAME_BYTES: Final = 18
_ZLIB: Final = 5
#: Of a compressed value, and of those of a column together: zlib makes a thousand bytes of one.
_MAX_DECOMPRESSED: Final = 64 << 20
#: Distinct message indexes that are looked for in all rows at once; values with yet others are read one by one.
_MAX_PREFIXES: Final = 16


@dataclass(frozen=True, slots=True)
class SchemaId:
    """What a frame says of a value's schema: the registry's id, GUID or version, and for Protobuf which message of its file.

    Attributes:
        message_number: Glue's, instead of indexes: the place of the message's full name among those of its file, in order.
    """

    id: int | uuid.UUID
    message_indexes: tuple[int, ...] = ()
    message_number: int | None = None


@dataclass(slots=True)
class Frames:
    """The frames of a column.

    Attributes:
        payloads: of all rows, without frames. What stands for a row without a frame, or a null, means nothing.
        groups: each schema's id and the rows that have it, ascending. ``None`` where values have no frame.
        reasons: why a row has no payload that can be read.
    """

    payloads: Payloads
    groups: list[tuple[SchemaId | None, Ints]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)


def split_frames(
    rows: pa.Array, framing: Framing, *, has_message_indexes: bool = False, headers: pa.Array | None = None
) -> Frames:
    """Return the frames of a pa.BinaryArray.

    Args:
        headers: pa.BinaryArray, each record's header for its schema's id, null where it has none.
    """
    payloads = Payloads.of(rows)
    present = np.flatnonzero(validity(rows))
    if framing == "none":
        return Frames(payloads, [(None, present)])
    need, _, kind = framing.partition(" ")
    frames = Frames(Payloads(payloads.data, payloads.starts.copy(), payloads.ends))
    if headers is not None and headers.null_count < len(headers):
        present = _split_headers(frames, headers, present, has_message_indexes)
    if need == "optional":
        _skip_frames(frames, present)
        return frames
    is_glue = kind == "glue"
    begins = _begin_with(payloads, present, *((_GLUE_VERSION, _GLUE_FRAME_BYTES) if is_glue else (0, _FRAME_BYTES)))
    framed, others = present[begins], present[~begins]
    if need == "known":
        if len(others):
            frames.groups.append((None, others))
    else:
        wanted = "AWS Glue's byte 3 and a schema's version" if is_glue else "Confluent's magic byte 0 and a schema id"
        for row in others.tolist():
            n_bytes = int(payloads.ends[row] - payloads.starts[row])
            frames.reasons[row] = f"its {n_bytes} bytes do not begin with {wanted}"
    if is_glue:
        _split_versions(frames, framed, has_message_indexes)
    else:
        _split_ids(frames, framed, has_message_indexes)
    return frames


def _skip_frames(frames: Frames, present: Ints) -> None:
    """Skip frames of both kinds, whose schemas do not count."""
    glue = present[_begin_with(frames.payloads, present, _GLUE_VERSION, _GLUE_FRAME_BYTES)]
    frames.payloads.starts[present[_begin_with(frames.payloads, present, 0, _FRAME_BYTES)]] += _FRAME_BYTES
    if len(glue):
        unreadable = glue[~_decompress(frames, glue)]
        present = present[~np.isin(present, unreadable)]
    frames.groups.append((None, present))


def header_values(headers: pa.Array, name: str) -> pa.BinaryArray:
    """Return a pa.BinaryArray of each record's last header ``name``, null where it has none. ``headers`` is the source's
    column.
    """
    entries = headers.flatten()
    keys = entries.field("key").dictionary_encode()
    codes = to_numpy(keys.indices, null=-1)
    rows = np.flatnonzero(codes == _index(keys.dictionary.to_pylist(), name))
    lists = np.frombuffer(headers.buffers()[1] or bytes(4), dtype=np.int32)[headers.offset :][: len(headers) + 1]
    positions = np.zeros(len(headers), dtype=np.int64)
    valid = np.zeros(len(headers), dtype=np.bool_)
    records = np.searchsorted(lists - lists[0], rows, side="right") - 1
    positions[records], valid[records] = rows, True
    return entries.field("value").take(to_arrow_with_nulls(positions, valid))


#: Headers in which serializers of other registries name a schema, of the values of a record or of its keys.
_APICURIO: Final = {
    column: {f"apicurio.{column}.{name}" for name in ("globalId", "contentId", "contentHash", "artifactId")}
    for column in ("key", "value")
}
_AZURE: Final = "content-type"
_AZURE_TYPE: Final = re.compile(rb"avro/binary\+([0-9a-fA-F]{32})")


def foreign_frames(headers: pa.Array, column: Literal["key", "value"]) -> dict[int, str]:
    """Return why records have no frame that is read, by their rows: their schemas are named in headers of other registries.

    A value without a frame may begin like one, and would be read by the schema of another.

    Args:
        headers: the source's column.
    """
    names = set(headers.flatten().field("key").unique().to_pylist())
    reasons: dict[int, str] = {}
    for name in sorted(names & _APICURIO[column]):
        reason = (
            f"its schema is named by the header {name} of Apicurio's serializers, which is not looked up here: set "
            "apicurio.registry.headers.enabled=false, apicurio.registry.as-confluent=true and apicurio.registry.use-id=contentId "
            f"for the producers, or read without schema.registry.url, by a schema in {column}Schema"
        )
        reasons.update(dict.fromkeys(np.flatnonzero(validity(header_values(headers, name))).tolist(), reason))
    if column == "value" and _AZURE in names:
        values = header_values(headers, _AZURE)
        for row in np.flatnonzero(validity(values)).tolist():
            if (content_type := _AZURE_TYPE.fullmatch(values[row].as_py())) is not None:
                reasons[row] = (
                    f"its schema is {content_type[1].decode()} of Azure Schema Registry, by the header {_AZURE}, which is not "
                    "looked up here: read without schema.registry.url, by a schema in valueSchema"
                )
    return reasons


def _index(names: list[str | None], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _begin_with(payloads: Payloads, index: Ints, first: int, n_bytes: int) -> Any:
    """Return bool[n]: which of these begin with a byte, and have so many."""
    starts = payloads.starts[index]
    long_enough = payloads.ends[index] - starts >= n_bytes
    return long_enough & (payloads.data.take(starts, mode="clip") == first)


def _split_ids(frames: Frames, framed: Ints, has_message_indexes: bool) -> None:
    if not len(framed):
        return
    data, starts = frames.payloads.data, frames.payloads.starts
    places = np.ndarray((len(data) - _FRAME_BYTES + 1,), dtype=">i4", buffer=data.data, offset=1, strides=(1,))
    ids = places[starts[framed]]
    starts[framed] += _FRAME_BYTES
    for number, index in _alike(ids, framed):
        alike = _split_message_indexes(frames, index, decode_message_indexes) if has_message_indexes else [((), index)]
        frames.groups += [(SchemaId(number, indexes), some) for indexes, some in alike]


def _split_versions(frames: Frames, framed: Ints, has_message_number: bool) -> None:
    """Split versions off Glue's frames in the same way."""
    if not len(framed):
        return
    data = frames.payloads.data
    halves = np.ndarray((len(data) - 7,), dtype=np.uint64, buffer=data.data, strides=(1,))
    position = frames.payloads.starts[framed] + 2
    first, second = halves[position], halves[position + 8]
    readable = _decompress(frames, framed)
    if not readable.all():
        framed, first, second = framed[readable], first[readable], second[readable]
    if not len(framed):
        return
    bounds = [0, len(framed)]
    if not ((first == first[0]).all() and (second == second[0]).all()):
        order = np.lexsort((second, first))
        framed, first, second = framed[order], first[order], second[order]
        bounds[1:1] = (np.flatnonzero((np.diff(first) != 0) | (np.diff(second) != 0)) + 1).tolist()
    for begin, end in pairwise(bounds):
        version, index = uuid.UUID(bytes=first[begin].tobytes() + second[begin].tobytes()), framed[begin:end]
        if not has_message_number:
            frames.groups.append((SchemaId(version), index))
            continue
        for (number,), some in _split_message_indexes(frames, index, _decode_message_number):
            frames.groups.append((SchemaId(version, message_number=number), some))


def _decompress(frames: Frames, framed: Ints) -> Flags:
    """Return bool[n]: which of these rows, with Glue's frames, have a payload. Moves their starts behind the frames.

    Raises:
        ColumnTooLargeError: the payloads of more than one row become too large together.
    """
    payloads = frames.payloads
    compression = payloads.data.take(payloads.starts[framed] + 1)
    payloads.starts[framed] += _GLUE_FRAME_BYTES
    readable: Flags = compression == 0
    if readable.all():
        return readable
    for row, codec in zip(framed[~readable].tolist(), compression[~readable].tolist(), strict=True):
        if codec != _ZLIB:
            frames.reasons[row] = (
                f"its compression, {codec} in AWS Glue's frame, is neither 0 (none) nor {_ZLIB} (zlib)"
            )
    compressed = np.flatnonzero(compression == _ZLIB)
    if not len(compressed):
        return readable
    parts = [payloads[row] for row in range(len(payloads))]
    n_left = _MAX_DECOMPRESSED
    for nth, row in zip(compressed.tolist(), framed[compressed].tolist(), strict=True):
        stream = zlib.decompressobj()
        try:
            parts[row] = stream.decompress(parts[row], n_left)
        except zlib.error:
            frames.reasons[row] = "what follows AWS Glue's frame is not compressed with zlib, or damaged"
            continue
        n_left -= len(parts[row])
        if stream.unconsumed_tail or n_left <= 0:
            if len(compressed) > 1:
                raise ColumnTooLargeError.of(len(payloads), pa.binary())
            frames.reasons[row] = f"it becomes more than {_MAX_DECOMPRESSED >> 20} MiB when decompressed"
        elif not stream.eof or stream.unused_data:
            frames.reasons[row] = "what follows AWS Glue's frame does not end where zlib's data does"
        else:
            readable[nth] = True
    ends = np.cumsum([len(part) for part in parts])
    content = np.frombuffer(b"".join(parts) or bytes(1), dtype=np.uint8)
    frames.payloads = Payloads(content, np.append(0, ends[:-1]), ends)
    return readable


def _alike(numbers: Ints, rows: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct number and the rows that have it, ascending. One sort: damaged values may have as many ids as rows."""
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
    for begin, end in pairwise(bounds):
        yield int(numbers[begin]), rows[begin:end]


def _split_message_indexes(
    frames: Frames, index: Ints, decode: Callable[[bytes], tuple[tuple[int, ...], bytes]]
) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Yield message indexes, and the rows of ``index`` that have them; moves the starts of their payloads."""
    data, starts, ends = frames.payloads.data, frames.payloads.starts, frames.payloads.ends
    for _ in range(_MAX_PREFIXES):
        if not len(index):
            return
        row = int(index[0])
        try:
            indexes, payload = decode(frames.payloads[row])
        except DecodeError as error:
            frames.reasons[row] = str(error)
            index = index[1:]
            continue
        n_bytes = int(ends[row] - starts[row]) - len(payload)
        same = ends[index] - starts[index] >= n_bytes
        for nth in range(n_bytes):
            same &= data.take(starts[index] + nth, mode="clip") == data[starts[row] + nth]
        some, index = index[same], index[~same]
        starts[some] += n_bytes
        yield indexes, some
    alike: dict[tuple[int, ...], list[int]] = {}
    for row in index.tolist():
        try:
            indexes, payload = decode(frames.payloads[row])
        except DecodeError as error:
            frames.reasons[row] = str(error)
            continue
        starts[row] = ends[row] - len(payload)
        alike.setdefault(indexes, []).append(row)
    for indexes, rows in alike.items():
        yield indexes, np.array(rows, dtype=np.int64)


def _split_headers(frames: Frames, headers: pa.Array, present: Ints, has_message_indexes: bool) -> Ints:
    """Group the rows that have a header, and return the others."""
    with_header = validity(headers)
    encoded = headers.dictionary_encode()
    codes = to_numpy(encoded.indices, null=-1)
    rows_with_header = present[with_header[present]]
    for code, rows in _alike(codes[rows_with_header], rows_with_header) if len(rows_with_header) else ():
        header = encoded.dictionary[code].as_py()
        try:
            frames.groups.append((_schema_id(header, has_message_indexes), rows))
        except DecodeError as error:
            frames.reasons.update(dict.fromkeys(rows.tolist(), str(error)))
    return present[~with_header[present]]


def _schema_id(header: bytes, has_message_indexes: bool) -> SchemaId:
    """Return the schema's id in the header of a record. Raises DecodeError."""
    size = {0: _FRAME_BYTES, 1: 1 + _GUID_BYTES}.get(header[0] if header else -1, 0)
    if not size or len(header) < size:
        raise DecodeError(f"the {len(header)} bytes of its schema's header are neither a GUID nor an id")
    content = header[1:size]
    number = uuid.UUID(bytes=content) if len(content) == _GUID_BYTES else int.from_bytes(content, "big", signed=True)
    indexes = decode_message_indexes(header[size:])[0] if has_message_indexes else ()
    return SchemaId(number, indexes)


def encode_frame(schema_id: int | uuid.UUID, payload: bytes) -> bytes:
    """Return a value under the id of its schema; under a UUID as AWS Glue has it, not compressed."""
    if isinstance(schema_id, uuid.UUID):
        return bytes((_GLUE_VERSION, 0)) + schema_id.bytes + payload
    return _HEAD.pack(0, schema_id) + payload


def encode_message_indexes(indexes: tuple[int, ...]) -> bytes:
    """Return which message of a .proto file: indexes from the outermost on, as zigzag varints; ``(0,)`` has a short form."""
    if indexes == (0,):
        return b"\0"
    return b"".join(encode_uvarint(2 * number) for number in (len(indexes), *indexes))


def decode_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return which message of its .proto file, and the message's bytes.

    Raises:
        DecodeError: the payload ends too soon, or an index is negative.
    """
    try:
        count, position = decode_uvarint(payload, 0)
        if count == 0:
            return (0,), payload[position:]
        if count % 2 or count > 2 * _MAX_DEPTH:
            raise DecodeError("its number of message indexes is negative or too large")
        indexes = []
        for _ in range(count // 2):
            number, position = decode_uvarint(payload, position)
            if number % 2:
                raise DecodeError("one of its message indexes is negative")
            indexes.append(number // 2)
    except (ProtocolError, *SHORT_READ) as error:
        raise DecodeError("it ends within its message indexes") from error
    return tuple(indexes), payload[position:]


def _decode_message_number(payload: bytes) -> tuple[tuple[int], bytes]:
    """Return the number of a Protobuf message in Glue's serializers, and the message's bytes. Raises DecodeError."""
    try:
        number, position = decode_uvarint(payload, 0)
    except (ProtocolError, *SHORT_READ) as error:
        raise DecodeError("it ends within its message's number") from error
    return (number,), payload[position:]
