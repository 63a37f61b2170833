"""Protobuf messages read in columns have the values that google.protobuf gives one by one, and so have those left over."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import DecodeError, SchemaError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.protobuf.column_reader import Messages, read_messages
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.message_group import MessageGroup
from pykafka_wire.values.protobuf.message_reader import message_reader
from pykafka_wire.values.protobuf.types import arrow_type
from tests.connector.values import protobuf_samples as samples

#: `make conformance-values` tries 4,000 schemas, each with 60 messages and more.
N_SCHEMAS = int(os.environ.get("CONFORMANCE_VALUES", "200")) // 5
SEED = int(os.environ.get("CONFORMANCE_SEED", "0")) or random.SystemRandom().randrange(2**32)


def test_random_messages_have_the_values_of_google_protobuf() -> None:
    print(f"CONFORMANCE_SEED={SEED}")
    n_messages = n_rejected = n_whole = n_whole_left = 0
    for number in range(N_SCHEMAS):
        rng = random.Random(SEED + number)
        text = samples.random_file(rng)
        descriptor = link("file", {"file": text}).descriptor.message_types_by_name["M0"]
        try:
            wanted = arrow_type(descriptor)
        except SchemaError:
            continue
        cls = GetMessageClass(descriptor)
        contents, is_whole = [], []
        for share in (0.2, 0.5, 0.9, 1.0):
            for _ in range(20):
                message = cls()
                samples.fill(rng, message, share)
                content = message.SerializePartialToString()
                contents.append(samples.damaged(rng, content))
                is_whole.append(contents[-1] == content)
        where = f"seed {SEED + number}: {text}"
        found, left = read_with_left(cls.DESCRIPTOR, contents, wanted)
        for place, content in enumerate(contents):
            try:
                expected = samples.normal(samples.expected(cls, content, wanted))
            except samples.RejectedError as reason:
                cause = reason.__cause__
                assert isinstance(found[place], DecodeError), (left[place], content, found[place], cause, where)
                n_rejected += 1
                continue
            assert not isinstance(found[place], DecodeError), (content, found[place], expected, where)
            value = samples.normal(samples.with_dicts(found[place], wanted))
            assert value == expected, (content, left[place], where)
            if is_whole[place] and "group" not in text:
                n_whole += 1
                n_whole_left += left[place]
        n_messages += len(contents)
    print(f"{n_messages} messages, {n_rejected} rejected; {n_whole_left} of {n_whole} whole ones were read one by one")
    assert n_rejected > n_messages / 20
    assert n_whole_left < n_whole / 10


RECURSIVE = """
syntax = "proto2";
message Tree {
  optional Tree left = 1; optional Tree right = 2; repeated Tree more = 3; map<string, Tree> named = 4; optional int32 id = 5;
}
"""
ID = pa.struct([("id", pa.int32())])


def tree(rng: random.Random, depth: int) -> bytes:
    """A tree with the number 7 at its root."""
    found = b"\x28\x07"
    for number in rng.sample((1, 2, 3, 3, 4), rng.randrange(3) if depth else 0):
        inner = tree(rng, depth - 1)
        if number == 4:
            inner = samples.length_delimited(1, rng.randbytes(1).hex().encode()) + samples.length_delimited(2, inner)
        found += samples.length_delimited(number, inner)
    return found


def level(wanted: pa.DataType, depth: int) -> pa.DataType:
    if not depth:
        return wanted
    inner = level(wanted, depth - 1)
    return pa.struct([("left", inner), ("right", inner), ("more", pa.list_(inner)), ("id", pa.int32())])


@pytest.mark.parametrize("wanted", [ID, level(ID, 5)], ids=["unwanted", "wanted"])
@pytest.mark.parametrize("kind", ["full", "random", "chain"])
def test_messages_that_hold_themselves_take_no_longer_than_one_by_one(kind: str, wanted: pa.DataType) -> None:
    rng = random.Random(5)
    descriptor = link("file", {"file": RECURSIVE}).message((0,))
    contents = [tree(rng, 8) for _ in range(400)]
    if kind == "full":
        content = b"\x28\x07"
        for _ in range(12):
            content = b"\x28\x07" + samples.length_delimited(1, content) + samples.length_delimited(2, content)
        contents = [content] * 4
    elif kind == "chain":
        content = b"\x28\x07"
        for number in range(80):
            content = b"\x28\x07" + samples.length_delimited(number % 3 + 1, content)
        contents = [content] * 100
    reader = message_reader(descriptor, wanted)
    payloads = Payloads.of(pa.array(contents, pa.binary()))
    reader.read_column(payloads)
    alone, together = [], []
    for _ in range(3):
        began = time.process_time()
        expected = pa.array([reader.read_one(content) for content in contents], wanted)
        alone.append(time.process_time() - began)
        began = time.process_time()
        column, failed = reader.read_column(payloads)
        together.append(time.process_time() - began)
    assert min(together) < 3 * min(alone) + 0.1, (min(together), min(alone))
    kept = pa.array([place for place in range(len(contents)) if not failed[place]], pa.int64())
    assert column.take(kept).to_pylist() == expected.take(kept).to_pylist()
    if kind == "random" and wanted is ID:
        assert len(kept) == len(contents)


def test_maps_are_in_the_order_of_the_bytes_however_they_are_read() -> None:
    text = """syntax = "proto3"; import "google/protobuf/struct.proto";
      message M { map<string, int32> counts = 1; google.protobuf.Struct free = 2; M inner = 3; map<int32, M> named = 4; }"""
    descriptor = link("file", {"file": text}).message((0,))
    names = [f"n{number * 37 % 40}" for number in range(40)]
    entries = [
        samples.length_delimited(1, samples.length_delimited(1, name.encode()) + b"\x10" + bytes([number + 1]))
        for number, name in enumerate(names)
    ]
    pairs = [(name, number + 1) for number, name in enumerate(names)]
    twice = [*entries, samples.length_delimited(1, samples.length_delimited(1, names[3].encode()) + b"\x10\x63")]
    changed = [(name, 99 if name == names[3] else number) for name, number in pairs]
    wanted = pa.struct([("counts", pa.map_(pa.string(), pa.int32()))])
    found, left = read_with_left(descriptor, [b"".join(entries)] * 2 + [b"".join(twice)], wanted)
    assert left == [False, False, True]
    assert [each["counts"] for each in found] == [pairs, pairs, changed]

    number = b"\x11" + bytes(8)
    free = b"".join(
        samples.length_delimited(1, samples.length_delimited(1, name.encode()) + samples.length_delimited(2, number))
        for name in names
    )
    content = samples.length_delimited(2, free)
    ((one,), _) = read_with_left(descriptor, [content], pa.struct([("free", pa.string())]))
    assert list(json.loads(one["free"])) == names
    inner = samples.length_delimited(4, b"\x08\x05" + samples.length_delimited(2, content + b"".join(twice)))
    ((one,), _) = read_with_left(descriptor, [samples.length_delimited(3, inner)], pa.struct([("inner", pa.string())]))
    named = json.loads(one["inner"])["named"]["5"]
    assert list(named["free"]) == names and list(named["counts"].items()) == changed


def test_a_map_that_no_one_wants_must_hold_whole_messages() -> None:
    text = """syntax = "proto2"; message Inner { required int32 a = 1; }
      message M { optional int32 id = 1; map<string, Inner> inners = 2; }"""
    descriptor = link("file", {"file": text}).message((1,))
    contents = [b"\x08\x07\x12\x04\x12\x02\x08\x01", b"\x08\x07\x12\x00", b"\x08\x07\x12\x02\x12\x00"]
    contents.append(b"\x08\x07\x12\x02\x18\x01")  # an entry with an unknown field, which parsers leave out
    found, _ = read_with_left(descriptor, contents, ID)
    assert [each if isinstance(each, dict) else str(each) for each in found] == [
        {"id": 7},
        "required fields are missing: inners[''].a",
        "required fields are missing: inners[''].a",
        {"id": 7},
    ]


class TooLarge(Messages):
    """Messages that no array holds."""

    type = ID

    def read(self, group: MessageGroup, valid: Any) -> Any:
        raise pa.ArrowInvalid("Take overflowed")


def test_what_no_array_holds_is_left_to_be_read_one_by_one() -> None:
    column, failed = read_messages(Payloads.of(pa.array([b"a", b"b"], pa.binary())), TooLarge())
    assert column.to_pylist() == [None, None]
    assert failed.all()


def read_with_left(descriptor: Any, contents: list[bytes], wanted: pa.DataType) -> tuple[list[Any], list[bool]]:
    """Each value, or the error; and which of them were left to be read one by one."""
    reader = message_reader(descriptor, wanted)
    column, failed = reader.read_column(Payloads.of(pa.array(contents, pa.binary())))
    assert len(column) == len(failed) == len(contents)
    found: list[Any] = [None] * len(contents)
    left = failed.tolist()
    kept = [place for place, is_left in enumerate(left) if not is_left]
    whole = column.take(pa.array(kept, pa.int64()))
    whole.validate(full=True)
    for place, value in zip(kept, whole.to_pylist(), strict=True):
        found[place] = value
        if place % 8 == 0:  # the order of maps included: a row must not change with the rows beside it
            (alone,) = pa.array([reader.read_one(contents[place])], wanted).to_pylist()
            assert samples.normal(alone) == samples.normal(value), contents[place]
    for place, content in enumerate(contents):
        if left[place]:
            try:
                (found[place],) = pa.array([reader.read_one(content)], wanted).to_pylist()
            except DecodeError as error:
                found[place] = error
    return found, left
