"""A Protobuf value that is read by another schema than its own keeps the value of each field, or is an error."""

from __future__ import annotations

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import SchemaError
from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.registry.framing import SchemaId, encode_frame
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
NUMBERS: Final = {kind for group in ALIKE for kind in group if "int" in kind or "fixed" in kind} | {"float", "double"}
#: ``implicit`` has no label in proto3, ``default`` a default in proto2.
LABELS: Final = ("optional", "implicit", "default", "repeated", "map", "oneof")
SINGLE: Final = {"optional", "implicit", "default", "oneof"}
MESSAGES: Final = {"M": 5, "Inner": 3, "Other": 3}
#: Changes that keep each value.
KEPT: Final = {("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64"), ("sint32", "sint64"), ("string", "bytes")}
#: Symbols of an enum: more of them, one that has another name, one that was removed, and an alias.
COLORS: Final = (
    "RED = 0; GREEN = 1;",
    "RED = 0; GREEN = 1; BLUE = 2; FAR = 70000;",
    "RED = 0; LIME = 1;",
    "RED = 0;",
    "option allow_alias = true; RED = 0; GREEN = 1; LIME = 1;",
)
#: The kind and the label of a field; None where the version lacks the field.
Field = tuple[str, str] | None


@dataclass(frozen=True)
class World:
    """One version of a schema: the fields of each message."""

    syntax: str
    colors: str
    names: str
    fields: dict[str, tuple[Field, ...]]

    def text(self) -> str:
        parts = [
            f'syntax = "{self.syntax}";',
            'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";',
            f"enum Color {{ {self.colors} }}",
        ]
        for message, fields in self.fields.items():
            lines, members = [], []
            for number, field in enumerate(fields, 1):
                if field is None:
                    continue
                kind, label = field
                declared = f"{self.names}{number} = {number};"
                if label == "oneof":
                    members.append(f"{kind} {declared}")
                elif label == "map":
                    lines.append(f"map<string, {kind}> {declared}")
                else:
                    lines.append(f"{self._label(label)} {kind} {self._with_default(declared, kind, label)}")
            oneof = f"oneof chosen {{ {' '.join(members)} }}" if members else ""
            parts.append(f"message {message} {{ {' '.join(lines)} {oneof} }}")
        return "\n".join(parts)

    def _label(self, label: str) -> str:
        if label == "repeated":
            return label
        return "" if self.syntax == "proto3" and label != "optional" else "optional"

    def _with_default(self, declared: str, kind: str, label: str) -> str:
        if self.syntax == "proto3" or label != "default" or kind not in NUMBERS:
            return declared
        return declared.replace(";", " [default = 7];")


def _kind(make: random.Random, message: str, before: str | None = None) -> str:
    alike = [kind for group in ALIKE if before in group for kind in group]
    kind = make.choice(alike if alike and make.random() < 0.8 else KINDS)
    return kind if message == "M" or kind not in MESSAGES else "int32"


def _field(make: random.Random, message: str) -> Field:
    return None if make.random() < 0.1 else (_kind(make, message), make.choice(LABELS))


def _world(make: random.Random) -> World:
    fields = {message: tuple(_field(make, message) for _ in range(n)) for message, n in MESSAGES.items()}
    fields = {message: (("Color", "optional"), *of_message[1:]) for message, of_message in fields.items()}  # not empty
    return World(make.choice(("proto2", "proto3")), make.choice(COLORS), "f", fields)


def _changed(make: random.Random, world: World) -> World:
    """Return a later version, in which few things differ."""
    if make.random() < 0.2:
        return replace(world, colors=make.choice(COLORS))
    if make.random() < 0.1:
        return replace(world, syntax="proto2" if world.syntax == "proto3" else "proto3")
    if make.random() < 0.1:
        return replace(world, names="g")
    message = make.choice(["M", "M", *MESSAGES])
    fields = list(world.fields[message])
    place = make.randrange(1, len(fields))
    field = fields[place]
    if field is None or make.random() < 0.1:
        fields[place] = _field(make, message)
    elif make.random() < 0.5:
        fields[place] = (field[0], make.choice([*SINGLE] if field[1] in SINGLE else LABELS))
    else:
        fields[place] = (_kind(make, message, field[0]), field[1])
    return replace(world, fields={**world.fields, message: tuple(fields)})


def _written(message: Any) -> dict[int, Any]:
    """Return the fields of a message that its writer has set, by number."""
    values: dict[int, Any] = {}
    for field, value in message.ListFields():
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            values[field.number] = {key: _scalar(inner, each) for key, each in value.items()}
        elif field.is_repeated:
            values[field.number] = [_scalar(field, each) for each in value]
        else:
            values[field.number] = _scalar(field, value)
    for field in message.DESCRIPTOR.fields:
        if field.number not in values:
            empty: Any = {} if _is_map(field) else [] if field.is_repeated else None
            values[field.number] = empty if field.has_presence or field.is_repeated else _scalar(field, _zero(field))
    return values


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _zero(field: Any) -> Any:
    return field.default_value


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.name
        return (name, samples.normal(_micros(value))) if name in ("Timestamp", "Duration") else _written(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return (
            "enum",
            str(value) if known is None else next(e.name for e in field.enum_type.values if e.number == value),
        )
    return value.encode() if isinstance(value, str) else _exact(value)


def _micros(value: Any) -> int:
    return int(value.seconds * 1_000_000 + int(value.nanos / 1000))


def _exact(value: Any) -> Any:
    """Return a value that differs from values of other kinds: in Python 1 equals 1.0 and True."""
    if isinstance(value, bytes):
        return value
    kind = "integer" if type(value) is int or type(value).__name__ == "Decimal" else type(value).__name__
    return (kind, samples.normal(int(value) if kind == "integer" else value))


def _read(written: Any, read: Any, row: Any) -> dict[int, Any]:
    """Return a row in the form of :func:`_written`: null for a field that the reader's schema lacks."""
    values: dict[int, Any] = {}
    for other in written.fields:
        field = read.fields_by_number.get(other.number)
        value = None if field is None else row[field.name]
        if field is None or value is None:
            values[other.number] = None
        elif _is_map(field):
            one, inner = (each.message_type.fields_by_name["value"] for each in (other, field))
            values[field.number] = {key: _cell(one, inner, each) for key, each in value}
        elif field.is_repeated:
            values[field.number] = [_cell(other, field, each) for each in value]
        else:
            values[field.number] = _cell(other, field, value)
    return values


def _cell(other: Any, field: Any, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.name
        if name == "Timestamp":
            return (name, samples.normal(int((value - samples.EPOCH) / samples.datetime.timedelta(microseconds=1))))
        if name == "Duration":
            return (name, samples.normal(int(value / samples.datetime.timedelta(microseconds=1))))
        return _read(other.message_type, field.message_type, value)
    if field.enum_type is not None:
        return ("enum", value)
    return value.encode() if isinstance(value, str) else _exact(value)


def _common(written: Any, read: Any, values: dict[int, Any]) -> dict[int, Any]:
    """Return values of :func:`_written` without those of fields that the reader's schema lacks."""
    common: dict[int, Any] = {}
    for field in written.fields:
        other, value = read.fields_by_number.get(field.number), values[field.number]
        if other is None or value is None:
            value = None
        elif _is_map(field):
            one, inner = (each.message_type.fields_by_name["value"] for each in (field, other))
            value = {key: _common_part(one, inner, each) for key, each in value.items()}
        elif field.is_repeated:
            value = [_common_part(field, other, each) for each in value]
        else:
            value = _common_part(field, other, value)
        common[field.number] = value
    return common


def _common_part(written: Any, read: Any, value: Any) -> Any:
    return _common(written.message_type, read.message_type, value) if isinstance(value, dict) else value


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
    """Return whether no field has changed its type, other than in :data:`KEPT`. All else keeps each value."""
    fields = [
        (before, after)
        for message in MESSAGES
        for before, after in zip(one.fields[message], other.fields[message], strict=True)
        if before is not None and after is not None
    ]
    return all(
        (before[0] == after[0] or (before[0], after[0]) in KEPT)
        and (before[1] == after[1] or {before[1], after[1]} <= SINGLE)
        for before, after in fields
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
            expected = _common(writer, reader, _written(GetMessageClass(writer).FromString(content)))
            assert _read(writer, reader, row) == expected, (where, text, read.text(), content)
            for field in reader.fields:
                if field.number not in writer.fields_by_number and not field.is_repeated:
                    assert (row[field.name] is None) == field.has_presence, (where, text, read.text(), content)
        else:
            assert not _is_kept(written, read), (where, reason, text, read.text(), content)
    # Read as JSON, and by the writer's own schema as JSON.
    texts = [
        read_column(Protobuf(registry=registry, reader_schema=Schema(kind="PROTOBUF", text=schema)), pa.string(), rows)
        for schema in (read.text(), text)
    ]
    for place, (found, by_own) in enumerate(zip(*(column.column.to_pylist() for column in texts), strict=True)):
        if place not in texts[0].reasons:
            one, other = (_json(writer, reader, json.loads(document), of) for document, of in ((found, 1), (by_own, 0)))
            assert one == other, (where, text, read.text(), contents[place])
        else:
            assert not _is_kept(written, read), (where, texts[0].reasons[place], text, read.text())
    return outcomes


def _json(written: Any, read: Any, document: dict[str, Any], of: int) -> dict[int, Any]:
    """Return the common fields of a JSON document, whose names are those of ``written`` (0) or ``read`` (1)."""
    values: dict[int, Any] = {}
    for pair in ((field, read.fields_by_number.get(field.number)) for field in written.fields):
        if pair[1] is None:
            continue
        value = document.get(pair[of].name)
        if _is_map(pair[0]):
            inner = [field.message_type.fields_by_name["value"] for field in pair]
            value = {key: _json_part(inner, each, of) for key, each in value.items()}
        elif pair[0].is_repeated:
            value = [_json_part(pair, each, of) for each in value]
        elif value is not None:
            value = _json_part(pair, value, of)
        values[pair[0].number] = value
    return values


def _json_part(pair: Sequence[Any], value: Any, of: int) -> Any:
    if isinstance(value, dict):
        return _json(pair[0].message_type, pair[1].message_type, value, of)
    kinds = [field.type for field in pair]
    if pair[of].type == pair[of].TYPE_STRING and kinds[0] != kinds[1]:  # the other one is bytes
        return base64.b64encode(value.encode()).decode()
    is_integer = type(value) is int and pair[0].enum_type is None
    return str(value) if is_integer else value  # those of 64 bits are texts


def _changed_text(make: random.Random, text: str) -> str:
    """Return a later version of a random file, whose fields have the same names and types."""
    changes = (
        (r"\bZERO\b", "NIL"),
        (r"\bFAR\b", "AWAY"),
        (r" NEGATIVE = -\d+;", ""),
        (r"\bA = 0; B = 0;", "B = 0; A = 0;"),
        (r" C = 7;", ""),
        (r"(?<=[{;] )required ", "optional "),
        (r"(?<=[{;] )optional (?!group)", "required " if "proto2" in text else ""),
        (r" \[default = 7\]", ""),
        (r"oneof \w+ { ([^}]*) }", r"\1" if "proto3" in text else "OPTIONAL"),
    )
    while True:
        changed = text
        for pattern, other in changes:
            if make.random() < 0.4:
                if other == "OPTIONAL":
                    changed = re.sub(pattern, lambda found: re.sub(r"(?<=; )|^", "optional ", found[1]), changed)
                else:
                    changed = re.sub(pattern, other, changed)
        if changed != text:
            return changed


def _damaged(make: random.Random, content: bytes) -> bytes:
    if not content or make.random() < 0.7:
        return content
    place = make.randrange(len(content))
    return content[:place] + make.randbytes(make.randrange(3)) + content[place + make.randrange(2) :]


@pytest.mark.timeout(3_600 if FACTOR else 120)
def test_any_bytes_are_the_same_row_or_an_error_by_both_schemas_if_all_types_are_the_same() -> None:
    first = random.SystemRandom().randrange(2**32) if FACTOR else 0
    n_pairs = 10_000 if FACTOR else 150
    responses: dict[str, Any] = {}
    pairs = []
    for number in range(n_pairs):
        make = random.Random(first + number)
        package = make.choice(("", "package shop;", "package shop.eu;", "package google.shop;"))
        written = samples.random_file(make).replace(";", f"; {package}", 1)
        responses[f"/schemas/ids/{number + 1}"] = {"schemaType": "PROTOBUF", "schema": written}
        pairs.append((number + 1, make, written, _changed_text(make, written)))
    outcomes: Counter[str] = Counter()
    with scripted_registry(responses) as url:
        for schema_id, make, *texts in pairs:
            writer = GetMessageClass(link("file", {"file": texts[0]}).descriptor.message_types_by_name["M0"])
            contents = []
            for _ in range(N_MESSAGES):
                samples.fill(make, message := writer(), make.choice((0.3, 0.7, 1.0)))
                content = message.SerializePartialToString()
                # An empty message has no column, and only a reader of equal schemas checks its bytes.
                contents.append(content if "Empty" in texts[0] else _damaged(make, content))
            rows = pa.array([encode_frame(schema_id, b"\0" + content) for content in contents], pa.binary())
            formats = [
                Protobuf(registry=Registry(url), reader_schema=Schema(kind="PROTOBUF", text=text)) for text in texts
            ]
            try:
                column_types = (formats[0].column_type(), pa.string())
            except SchemaError:  # a message without fields
                continue
            for column_type in column_types:
                one, other = (read_column(each, column_type, rows) for each in formats)
                assert one.reasons.keys() == other.reasons.keys(), (first + schema_id - 1, texts, one.reasons, other)
                assert repr(one.column.to_pylist()) == repr(other.column.to_pylist()), (first + schema_id - 1, texts)
                # Each alone, by the row-by-row reader.
                reader = formats[1].reader(SchemaId(schema_id, (0,)), column_type)
                for place, content in enumerate(contents):
                    if place not in other.reasons:
                        alone = pa.array([reader.read_one(content)], column_type).to_pylist()
                        assert repr(alone) == repr(other.column[place : place + 1].to_pylist())
                outcomes.update(("errors" if place in one.reasons else "rows") for place in range(N_MESSAGES))
    assert min(outcomes["rows"], outcomes["errors"]) > n_pairs, outcomes
