"""Protobuf messages read in columns have the values that google.protobuf gives one by one, and so have those left over."""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import PoisonError, SchemaError
from pykafka_wire.values.payloads import Payloads
from pykafka_wire.values.protobuf.linker import link
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
                assert isinstance(found[place], PoisonError), (left[place], content, found[place], cause, where)
                n_rejected += 1
                continue
            assert not isinstance(found[place], PoisonError), (content, found[place], expected, where)
            value = samples.normal(samples.with_dicts(found[place], wanted))
            assert value == expected, (content, left[place], where)
            if is_whole[place] and "group" not in text:
                n_whole += 1
                n_whole_left += left[place]
        n_messages += len(contents)
    print(f"{n_messages} messages, {n_rejected} rejected; {n_whole_left} of {n_whole} whole ones were read one by one")
    assert n_rejected > n_messages / 20
    assert n_whole_left < n_whole / 10


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
    for place, content in enumerate(contents):
        if left[place]:
            try:
                (found[place],) = pa.array([reader.read_one(content)], wanted).to_pylist()
            except PoisonError as error:
                found[place] = error
    return found, left
