"""A Protobuf value that is read by another schema than its own keeps the value of each field, or is an error."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.ingest.laws.generated import FACTOR
from tests.connector.values import protobuf_samples as samples
from tests.connector.values.scripted_registry import scripted_registry

N_PAIRS: Final = 10_000 if FACTOR else 500
N_MESSAGES: Final = 12
#: Kinds that are often changed into each other: their bytes are alike, and what they mean is not.
ALIKE: Final = (
    ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "Color"),
    ("string", "bytes", "Inner", "Other", "google.protobuf.Timestamp", "google.protobuf.Duration"),
    ("fixed32", "sfixed32", "float"),
    ("fixed64", "sfixed64", "double"),
)
KINDS: Final = tuple(kind for group in ALIKE for kind in group)
LABELS: Final = ("optional", "optional", "repeated", "map", "oneof")
MESSAGES: Final = {"M": 4, "Inner": 2, "Other": 2}
#: Changes that keep each value.
KEPT: Final = {("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64"), ("sint32", "sint64"), ("string", "bytes")}


@dataclass(frozen=True)
class World:
    """One version of a schema: the kind and the label of each field of each message."""

    syntax: str
    has_more_colors: bool
    fields: dict[str, tuple[tuple[str, str], ...]]

    def text(self) -> str:
        more = "BLUE = 2; FAR = 70000;" if self.has_more_colors else ""
        parts = [
            f'syntax = "{self.syntax}";',
            'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";',
            f"enum Color {{ RED = 0; GREEN = 1; {more} }}",
        ]
        for message, fields in self.fields.items():
            lines, members = [], []
            for number, (kind, label) in enumerate(fields, 1):
                declared = f"f{number} = {number};"
                if label == "oneof":
                    members.append(f"{kind} {declared}")
                else:
                    lines.append(f"map<string, {kind}> {declared}" if label == "map" else f"{label} {kind} {declared}")
            oneof = f"oneof chosen {{ {' '.join(members)} }}" if members else ""
            parts.append(f"message {message} {{ {' '.join(lines)} {oneof} }}")
        return "\n".join(parts)


def _kind(make: random.Random, message: str, before: str | None = None) -> str:
    alike = [kind for group in ALIKE if before in group for kind in group]
    kind = make.choice(alike if alike and make.random() < 0.8 else KINDS)
    return kind if message == "M" or kind not in MESSAGES else "int32"


def _world(make: random.Random) -> World:
    fields = {
        message: tuple((_kind(make, message), make.choice(LABELS)) for _ in range(n)) for message, n in MESSAGES.items()
    }
    return World(make.choice(("proto2", "proto3")), make.random() < 0.3, fields)


def _changed(make: random.Random, world: World) -> World:
    """Return a later version, in which few things differ."""
    if make.random() < 0.2:
        return replace(world, has_more_colors=not world.has_more_colors)
    if make.random() < 0.1:
        return replace(world, syntax="proto2" if world.syntax == "proto3" else "proto3")
    message = make.choice(["M", "M", *MESSAGES])
    fields = list(world.fields[message])
    place = make.randrange(len(fields))
    kind, label = fields[place]
    fields[place] = (kind, make.choice(LABELS)) if make.random() < 0.2 else (_kind(make, message, kind), label)
    return replace(world, fields={**world.fields, message: tuple(fields)})


def _written(message: Any) -> dict[int, Any]:
    """Return the fields of a message that its writer has set to another value than the default, by number."""
    values = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            values[field.number] = {key: _scalar(inner, each) for key, each in value.items()}
        elif field.is_repeated:
            values[field.number] = [_scalar(field, each) for each in value]
        else:
            values[field.number] = _scalar(field, value)
    return {number: value for number, value in values.items() if not _is_default(value)}


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.name
        return (name, samples.normal(_micros(value))) if name in ("Timestamp", "Duration") else _written(value)
    if field.enum_type is not None:
        return ("enum", value)
    return value.encode() if isinstance(value, str) else _exact(value)


def _micros(value: Any) -> int:
    return int(value.seconds * 1_000_000 + int(value.nanos / 1000))


def _exact(value: Any) -> Any:
    """Return a value that differs from values of other kinds: in Python 1 equals 1.0 and True."""
    if isinstance(value, bytes):
        return value
    kind = "integer" if type(value) is int or type(value).__name__ == "Decimal" else type(value).__name__
    return (kind, samples.normal(int(value) if kind == "integer" else value))


def _is_default(value: Any) -> bool:
    return value in (b"", {}, []) or (isinstance(value, tuple) and value[1] in (0, "0", "0.0", "-0.0", "False"))


def _read(descriptor: Any, row: Any) -> dict[int, Any]:
    """Return a row in the form of :func:`_written`."""
    values = {}
    for field in descriptor.fields:
        value = None if row is None else row[field.name]
        if value is None:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            values[field.number] = {key: _cell(inner, each) for key, each in value}
        elif field.is_repeated:
            values[field.number] = [_cell(field, each) for each in value]
        else:
            values[field.number] = _cell(field, value)
    return {number: value for number, value in values.items() if not _is_default(value)}


def _cell(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.name
        if name == "Timestamp":
            return (name, samples.normal(int((value - samples.EPOCH) / samples.datetime.timedelta(microseconds=1))))
        if name == "Duration":
            return (name, samples.normal(int(value / samples.datetime.timedelta(microseconds=1))))
        return _read(field.message_type, value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        return ("enum", int(value) if known is None else known.number)
    return value.encode() if isinstance(value, str) else _exact(value)


def _fill(make: random.Random, message: Any) -> None:
    """Set fields at random; times are such as the well-known types allow."""
    samples.fill(make, message, make.choice((0.3, 0.7, 1.0)))
    waiting = [message]
    while waiting:
        inner = waiting.pop()
        if inner.DESCRIPTOR.name in ("Timestamp", "Duration"):
            inner.seconds, inner.nanos = make.randrange(1, 1 << 30), make.randrange(1_000_000) * 1000
            continue
        for field, value in inner.ListFields():
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                waiting += value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
            elif field.message_type is not None:
                waiting += value if field.is_repeated else (value,)


def _is_kept(one: World, other: World) -> bool:
    """Return whether all changes between two versions are among :data:`KEPT`."""
    fields = [
        (before, after)
        for message in MESSAGES
        for before, after in zip(one.fields[message], other.fields[message], strict=True)
    ]
    return (one.syntax, one.has_more_colors) == (other.syntax, other.has_more_colors) and all(
        before == after or ((before[0], after[0]) in KEPT and before[1] == after[1]) for before, after in fields
    )


@pytest.mark.timeout(3_600 if FACTOR else 120)
def test_a_value_read_by_another_schema_is_the_writers_or_an_error() -> None:
    first = random.SystemRandom().randrange(2**32) if FACTOR else 0
    responses: dict[str, Any] = {}
    pairs = []
    for number in range(N_PAIRS):
        make = random.Random(first + number)
        written = _world(make)
        read = _changed(make, written)
        responses[f"/schemas/ids/{number + 1}"] = {"schemaType": "PROTOBUF", "schema": written.text()}
        pairs.append((number + 1, make, written, read))
    counts: Counter[str] = Counter()
    with scripted_registry(responses) as url:
        for schema_id, make, written, read in pairs:
            counts.update(_check(Registry(url), schema_id, make, written, read, f"seed {first + schema_id - 1}"))
    assert min(counts["rows"], counts["errors"]) > N_PAIRS * N_MESSAGES / 10, counts


def _check(
    registry: Registry, schema_id: int, make: random.Random, written: World, read: World, where: str
) -> list[str]:
    text = written.text()
    writer = link("file", {"file": text}).descriptor.message_types_by_name["M"]
    reader = link("file", {"file": read.text()}).descriptor.message_types_by_name["M"]
    messages = [GetMessageClass(writer)() for _ in range(N_MESSAGES)]
    for message in messages:
        _fill(make, message)
    contents = [message.SerializeToString() for message in messages]
    rows = pa.array([encode_frame(schema_id, b"\0" + content) for content in contents], pa.binary())
    value_format = Protobuf(registry=registry, reader_schema=Schema(kind="PROTOBUF", text=read.text()))
    column = read_column(value_format, value_format.column_type(), rows)
    outcomes = []
    for place, (content, row) in enumerate(zip(contents, column.column.to_pylist(), strict=True)):
        reason = column.reasons.get(place)
        outcomes.append("rows" if reason is None else "errors")
        if reason is None:
            expected = _written(GetMessageClass(writer).FromString(content))
            assert _read(reader, row) == expected, (where, text, read.text(), content)
            for field in writer.fields:  # null is a value that only a field with presence has
                if not field.has_presence and not field.is_repeated:
                    assert row[field.name] is not None, (where, field.name, text, read.text(), content)
        else:
            assert not _is_kept(written, read), (where, reason, text, read.text(), content)
    return outcomes
