"""The vectorised encoder: what the plain decoder reads back, and how rows are cut into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.batches import HEADER_BYTES, EncodedBatch, read_header, stamp_producer
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns, decode
from pykafka_wire.wire.records.encode import encode_batches, encode_parts
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from tests.wire.oracle import Record, decode_batches, encode_batch

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
binary = st.none() | st.binary(max_size=300)
row = st.tuples(
    binary, binary, st.none() | st.lists(st.tuples(st.text(max_size=5), binary), max_size=3), st.integers(0, 2**42)
)


def encode(rows, codec=Codec.NONE, max_batch_bytes=10**6, with_headers=True, **kwargs):
    headers = [None if r[2] is None else [{"key": k, "value": v} for k, v in r[2]] for r in rows]
    return encode_batches(
        key=pa.array([r[0] for r in rows], pa.binary()),
        value=pa.array([r[1] for r in rows], pa.binary()),
        headers=pa.array(headers, HEADERS) if with_headers else None,
        timestamp=np.array([r[3] for r in rows], dtype=np.int64),
        codec=codec,
        max_batch_bytes=max_batch_bytes,
        **kwargs,
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(row, min_size=1, max_size=40), st.sampled_from(Codec), st.sampled_from([300, 2_000, 10**6]), st.booleans()
)
def test_the_plain_decoder_reads_it_back(rows, codec, max_batch_bytes, with_headers):
    batches = encode(rows, codec, max_batch_bytes, with_headers)
    found = [record for batch in batches for record in decode_batches(bytes(batch.data))]
    assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == [
        (key, value, (headers or []) if with_headers else [], timestamp) for key, value, headers, timestamp in rows
    ]
    assert [batch.first_row for batch in batches] == np.cumsum([0, *(b.n_records for b in batches)])[:-1].tolist()


def test_it_writes_the_same_bytes_as_the_plain_encoder():
    rows = [(b"k%d" % i, b"v" * i, [("h", None)], 1_700_000_000_000 + i * 100) for i in range(200)]
    (batch,) = encode(rows)
    plain = [Record(i, t, k, v, h) for i, (k, v, h, t) in enumerate(rows)]
    assert bytes(batch.data) == encode_batch(plain)


def test_batches_stay_below_the_limit_and_a_large_record_goes_alone():
    rows = [(None, b"x" * size, None, 0) for size in [100] * 50 + [5_000] + [100] * 50]
    batches = encode(rows, max_batch_bytes=2_000)
    assert sum(b.n_records for b in batches) == 101
    assert [b.n_records for b in batches if len(b.data) > 2_000] == [1]


def test_max_records_cuts_batches():
    assert [b.n_records for b in encode([(None, b"v", None, 0)] * 10, max_records=4)] == [4, 4, 2]


def test_sliced_arrays_are_read_from_their_offset():
    values = pa.array([b"a", b"bb", None, b"dddd"], pa.binary()).slice(1)
    batches = encode_batches(
        key=None, value=values, headers=None, timestamp=np.zeros(3, np.int64), codec=Codec.NONE, max_batch_bytes=10**6
    )
    assert [r.value for r in decode_batches(bytes(batches[0].data))] == [b"bb", None, b"dddd"]


def test_no_rows_are_no_batches():
    assert encode([]) == []


@pytest.mark.parametrize(
    ("header", "reason"), [({"key": None, "value": b"x"}, "a header has a null key"), (None, "a header is null")]
)
def test_a_header_that_is_null_or_has_a_null_key_is_refused(header, reason):
    headers = pa.array([[{"key": "k", "value": b"x"}, header]], HEADERS)
    with pytest.raises(ValueError, match=reason):
        encode_batches(
            key=None, value=pa.array([b"v"], pa.binary()), headers=headers, timestamp=np.zeros(1, np.int64),
            codec=Codec.NONE, max_batch_bytes=10**6,
        )  # fmt: skip


def test_a_stamped_batch_has_its_producer_and_a_crc_that_holds():
    (batch,) = encode([(b"k", b"v", None, 5)] * 3)
    stamp_producer(batch.data, ProducerIdentity(77, 3), 1_000, transactional=True)
    header = read_header(memoryview(batch.data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 1_000)
    assert header.attributes & 0x10
    assert len(batch.data) > HEADER_BYTES
    assert decode([RecordSlice(memoryview(batch.data), 0, 9)], Columns(), read_committed=False).n_records == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_reads_it_back(codec):
    rows = [
        (
            None if i % 5 == 0 else b"key%d" % i,
            None if i % 7 == 0 else b"v" * i,
            [("h", b"x"), ("h", None), ("ü", b"")] if i % 3 else None,
            1_700_000_000_000 + 40 * i,
        )
        for i in range(300)
    ]
    batches = encode(rows, codec, max_batch_bytes=5_000)
    assert len(batches) > 3
    found = []
    for batch in batches:
        records = MemoryRecords(bytes(batch.data))
        while (read := records.next_batch()) is not None:
            assert read.validate_crc()
            found += [(r.key, r.value, r.headers or None, r.timestamp) for r in read]
    assert found == rows


def test_batches_come_close_to_the_limit():
    rows = [(b"%08d" % i, b"x" * 92, None, 1_700_000_000_000 + i) for i in range(5_000)]
    sizes = [len(batch.data) for batch in encode(rows, max_batch_bytes=16_384)]
    assert max(sizes) <= 16_384
    assert min(sizes[:-1]) > 0.95 * 16_384


@pytest.mark.parametrize("group_bytes", [1, 5_000])
def test_groups_of_batches_change_nothing(monkeypatch, group_bytes):
    rows = [(b"k%d" % i, b"v" * (i % 90), [("h", b"%d" % i)], 1_700_000_000_000 - i) for i in range(500)]
    whole = encode(rows, max_batch_bytes=2_000)
    monkeypatch.setattr("pykafka_wire.wire.records.encode._GROUP_BYTES", group_bytes)
    assert encode(rows, max_batch_bytes=2_000) == whole


@pytest.mark.parametrize("group_rows", [1, 70, 10**6])
def test_parts_are_encoded_together_as_each_alone(monkeypatch, group_rows):
    monkeypatch.setattr("pykafka_wire.wire.records.encode._GROUP_ROWS", group_rows)
    rows = [(b"k%d" % i, b"v" * (i % 90), [("h", b"%d" % i)], 1_700_000_000_000 + i) for i in range(400)]
    sizes = [1, 130, 9, 200, 60]
    columns = {
        "key": pa.array([r[0] for r in rows], pa.binary()),
        "value": pa.array([r[1] for r in rows], pa.binary()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in r[2]] for r in rows], HEADERS),
    }
    timestamp = np.array([r[3] for r in rows], dtype=np.int64)
    together: list[list[EncodedBatch]] = [[] for _ in sizes]
    limits = {"codec": Codec.NONE, "max_batch_bytes": 2_000}
    for part, batches in encode_parts(**columns, timestamp=timestamp, part_sizes=sizes, **limits):
        together[part] += batches
    for batches, size, first in zip(together, sizes, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True):
        found = [record for batch in batches for record in decode_batches(bytes(batch.data))]
        assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == rows[first : first + size]
        assert [batch.first_row for batch in batches] == np.cumsum([0, *(b.n_records for b in batches)])[:-1].tolist()
        assert max(len(batch.data) for batch in batches) <= 2_000


def test_later_timestamps_may_lie_before_the_first():
    rows = [(None, b"v", None, timestamp) for timestamp in (2**42, 0, 5, 2**41)]
    (batch,) = encode(rows)
    assert (batch.base_timestamp, batch.max_timestamp) == (2**42, 2**42)
    assert [r.timestamp for r in decode_batches(bytes(batch.data))] == [row[3] for row in rows]
