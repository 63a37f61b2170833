"""Batches taken apart: every record is in one of the pieces, as it was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.produce.split_batches import split_in_half, take_out
from pykafka_wire.wire.records.batches import EncodedBatch, read_header, stamp_producer
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.oracle import Record, decode_batches

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TP = TopicPartition("t", 0)
ERROR = broker_error(87, topic="t", partition=0)

binary = st.none() | st.binary(max_size=200)
rows = st.lists(
    st.tuples(binary, binary, st.lists(st.tuples(st.text(max_size=5), binary), max_size=2), st.integers(0, 2**42)),
    min_size=2,
    max_size=30,
)


def encode(records: list[tuple], codec: Codec = Codec.NONE) -> EncodedBatch:
    (batch,) = encode_batches(
        key=pa.array([r[0] for r in records], pa.binary()),
        value=pa.array([r[1] for r in records], pa.binary()),
        headers=pa.array([[{"key": k, "value": v} for k, v in r[2]] for r in records], HEADERS),
        timestamp=np.array([r[3] for r in records], np.int64),
        codec=codec,
        max_batch_bytes=1 << 20,
    )
    batch.first_row = 100
    return batch


def records_in(batches: list[EncodedBatch]) -> list[tuple]:
    found: list[Record] = [record for batch in batches for record in decode_batches(bytes(batch.data))]
    return [(r.key, r.value, r.headers, r.timestamp) for r in found]


@settings(deadline=None)
@given(rows, st.sampled_from(Codec))
def test_halves_hold_what_the_whole_held_and_are_two_or_more(records: list[tuple], codec: Codec) -> None:
    whole = encode(records, codec)
    stamp_producer(whole.data, ProducerIdentity(4711, 3), 20)  # it was sent
    pieces = split_in_half(whole, None)
    assert len(pieces) > 1
    assert records_in(pieces) == records
    assert [piece.first_row for piece in pieces] == list(np.cumsum([100, *(p.n_records for p in pieces)])[:-1])
    assert {read_header(memoryview(piece.data)).attributes for piece in pieces} == {codec}


@pytest.mark.parametrize("place", [0, 1, 9])
def test_a_record_larger_than_all_others_is_alone_after_few_cuts(place: int) -> None:
    records = [(None, b"x" * (50_000 if i == place else 10), [], 0) for i in range(10)]
    batches, n_cuts = [encode(records)], 0
    while any(b.n_records > 1 and len(b.data) > 20_000 for b in batches):
        batches = [p for b in batches for p in (split_in_half(b, None) if len(b.data) > 20_000 else [b])]
        n_cuts += 1
    assert n_cuts <= 4
    assert [(b.first_row, b.n_records) for b in batches if len(b.data) > 20_000] == [(100 + place, 1)]


@settings(deadline=None)
@given(rows, st.data())
def test_what_is_taken_out_and_what_is_left_are_the_whole(records: list[tuple], data: st.DataObject) -> None:
    out = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    taken, rest = take_out(TP, encode(records), dict.fromkeys(out, "why"), ERROR, None)
    assert records_in(rest) == [record for i, record in enumerate(records) if i not in out]
    assert taken.n_records == len(out)
    assert taken.row.tolist() == [100 + i for i in out]
    assert taken.key.to_pylist() == [records[i][0] for i in out]
    assert taken.value.to_pylist() == [records[i][1] for i in out]
    assert [[(h["key"], h["value"]) for h in each or ()] for each in taken.headers.to_pylist()] == [
        records[i][2] for i in out
    ]
    assert taken.timestamp.tolist() == [records[i][3] for i in out]
    assert taken.reasons == ("why",) * len(out)
