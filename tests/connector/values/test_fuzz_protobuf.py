"""Hostile Protobuf schemas and types: what is not valid is refused, what is valid is read and written in bounded time and memory.

`make test` tries some schemas, the same each time, `make fuzz-values` thousands of others (FUZZ_VALUES).
A failure names the seed of its schema, for FUZZ_SEED.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.values.bulk.writing import encode
from pykafka_wire.values.converter import Converter
from pykafka_wire.values.protobuf import map_entries, message_reader
from pykafka_wire.values.protobuf.column_writer import column_writer
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.parser import InvalidProtoError
from pykafka_wire.values.protobuf.types import arrow_type
from pykafka_wire.values.registry.framing import Framing, SchemaId
from tests.connector.values import fuzz_bounds
from tests.connector.values import hostile_protobuf as hostile
from tests.connector.values import protobuf_samples as samples

#: Each with some sixty values.
N_SCHEMAS = int(os.environ.get("FUZZ_VALUES", "4000")) // 200
SEED = int(os.environ.get("FUZZ_SEED", "1")) or random.SystemRandom().randrange(2**32)
MAX_GROWTH_BYTES = 96 << 20
#: Of processor time, for a schema, and for the values of one type.
MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class Messages:
    """Values without a frame, of a message that is known."""

    descriptor: Any
    framing: ClassVar[Framing] = "none"
    has_message_indexes: ClassVar[bool] = True

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> message_reader.MessageReader:
        return message_reader.message_reader(self.descriptor, column_type)


def test_no_hostile_schema_or_type_ends_a_task_changes_a_row_or_takes_memory() -> None:
    print(f"FUZZ_SEED={SEED}")
    n_valid = n_read = n_failed = n_written = 0
    for number in range(N_SCHEMAS):
        seed = SEED + number
        rng = random.Random(seed)
        text = hostile.random_schema(rng)
        where = f"FUZZ_SEED={seed}: {text[:2_000]}"
        try:
            file = bounded(where, link, "file", {"file": text})
            descriptor = file.message((0,))
        except (InvalidProtoError, IndexError):
            continue
        n_valid += 1
        try:
            wanted = bounded(where, arrow_type, descriptor)
        except SchemaError:
            wanted = hostile.random_type(rng, descriptor, rng.choice((1, 3, 7)))
        else:
            if rng.random() < 0.6:
                wanted = hostile.random_type(rng, descriptor, rng.choice((1, 3, 7)))
        contents = messages(rng, descriptor)
        try:
            converter = Converter(format=Messages(descriptor), type=wanted, on_error="divert")
        except OptionError:  # a type that no value has
            continue
        where += f" as {str(wanted)[:2_000]}"
        rows = pa.array(contents, pa.binary())
        found = bounded(where, converter, rows)
        n_diverted = check(rng, converter, rows, found, where)
        n_failed += n_diverted
        n_read += len(rows)
        n_written += write(descriptor, found.field("value"), converter, where)
        for each in (map_entries.without_maps, message_reader._has_proto2):
            each.cache_clear()
    print(f"{n_valid} valid schemas of {N_SCHEMAS}; {n_read} values, {n_failed} diverted; {n_written} written again")
    assert n_valid > N_SCHEMAS / 4
    assert N_SCHEMAS < 50 or n_read / 10 < n_failed < n_read
    assert N_SCHEMAS < 50 or n_written > n_read / 50


def messages(rng: random.Random, descriptor: Any) -> list[bytes | None]:
    try:
        cls, found = GetMessageClass(descriptor), list[bytes | None]()
    except RecursionError:
        return [b"", b"\x0a\x00", b"x", None]
    for _ in range(60):
        chance = rng.random()
        if chance < 0.03:
            found.append(None)
        elif chance < 0.06:
            found.append(hostile.bombs(rng, descriptor))
        else:
            message = cls()
            hostile.fill(rng, message, [rng.choice((5, 50, 500, 5_000 if chance < 0.1 else 50))])
            content = message.SerializePartialToString()
            try:
                found.append(samples.damaged(rng, content) if rng.random() < 0.5 else content)
            except IndexError:
                found.append(content)
    return found


def check(rng: random.Random, converter: Converter, rows: Any, found: Any, where: str) -> int:
    """How many rows were diverted. Each row is what it is on its own."""
    assert len(found) == len(rows), where
    found.validate(full=True)
    errors, decoded = found.field("error").to_pylist(), found.field("value").is_valid().to_pylist()
    for place, error in enumerate(errors):
        here = (place, rows[place].as_py(), error, where)
        assert error is None or "an unexpected" not in error, here
        assert error is None or not decoded[place], here
        assert error is not None or decoded[place] == rows[place].is_valid, here
        if rng.random() < 0.1:
            assert same(converter(rows.slice(place, 1))) == same(found.slice(place, 1)), here
    return sum(error is not None for error in errors)


def write(descriptor: Any, values: Any, converter: Converter, where: str) -> int:
    """How many values were written and read again; 0 where the message does not hold them."""
    try:
        writer = bounded(where, column_writer, descriptor, values.type)
    except SchemaError:
        return 0
    written = bounded(where, encode, writer, values)
    again = bounded(where, converter, written.column)
    kept = [place for place in range(len(values)) if values[place].is_valid and place not in written.reasons]
    for place in kept:
        one, other = (each.slice(place, 1).to_pylist()[0] for each in (values, again.field("value")))
        assert again.field("error")[place].as_py() is None, (again.field("error")[place], where)
        one, other = (samples.parsed(samples.with_dicts(each, values.type)) for each in (one, other))
        assert samples.normal(one) == samples.normal(other), (one, other, where)
    return len(kept)


def bounded(where: str, act: Callable[..., Any], *arguments: Any) -> Any:
    return fuzz_bounds.bounded(where, MAX_GROWTH_BYTES, MAX_S, act, *arguments)


def same(one: Any) -> object:
    try:
        return samples.normal(one.to_pylist())
    except (ArithmeticError, ValueError):  # a time that Python does not have
        return sorted(one.to_string().splitlines())
