"""The marker's serialized form: what is written stays readable, and what was written before is still read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pykafka_wire.sink.exactly_once.marker import (
    DecidedTask,
    Marker,
    UnreadableMarker,
    WrittenRange,
    decode_marker,
    encode_marker,
    n_parts,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion

SEVEN = Marker(query_id="0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", batch_id=7, n_records=3, digest="00000000000000ff")
#: As committed by version 1. Never to be changed: brokers keep such markers over an upgrade.
VERSION_1 = '{"version": 1, "query": "0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", "batch": 7, "count": 3, "digest": "00000000000000ff"}'
#: The form before versions.
UNVERSIONED = '{"query": "0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", "batch": 7, "count": 3, "digest": "00000000000000ff"}'


def test_the_form_is_stable() -> None:
    assert encode_marker(SEVEN, "q") == [CommittedOffset(8, metadata=VERSION_1)]
    assert len(VERSION_1.encode()) < 4096


@pytest.mark.parametrize("metadata", [VERSION_1, UNVERSIONED], ids=["1", "unversioned"])
def test_every_form_that_was_ever_written_is_read(metadata: str) -> None:
    assert decode_marker([CommittedOffset(8, metadata=metadata)], "q") == SEVEN


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    assert (
        decode_marker([CommittedOffset(8, metadata=json.dumps(json.loads(VERSION_1) | {"tasks": [1]}))], "q") == SEVEN
    )


def test_a_newer_version_is_recognised_whatever_its_fields() -> None:
    found = decode_marker([CommittedOffset(8, metadata='{"version": 3, "decision": {}}')], "q")
    assert isinstance(found, UnreadableMarker)
    assert (found.version, found.description) == (3, "a marker of version 3")


#: A decision in two parts, as committed by version 2. Never to be changed, either.
DECIDED = Marker(
    query_id="0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5",
    batch_id=7,
    n_records=140,
    digest="00000000000000ff",
    pending=tuple(
        DecidedTask(
            task=task,
            transaction=TransactionHandle(
                transactional_id=f"orders.task.3f2a1b9c5d7e.{task}",
                identity=ProducerIdentity(4011 + task, 2),
                version=TransactionVersion.TV2,
            ),
            n_records=2,
            digest=f"{task:016x}",
            ranges=(WrittenRange("orders", task % 3, 120 + task, 125 + task),),
        )
        for task in range(70)
    ),
)
VERSION_2 = (
    '{"version":2,"query":"0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5","batch":7,"count":140,"digest":"00000000000000ff",'
    '"protocol":"TV2","parts":2,"tasks":[[0,"3f2a1b9c5d7e.0",4011,2,2,"0000000000000000",[["orders",0,120,125]]],'
    '[1,"3f2a1b9c5d7e.1",4012,2,2,"0000000000000001",[["orders",1,121,126]]],',
    '{"version":2,"query":"0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5","batch":7,"part":1,"tasks":[[',
)


def test_the_form_of_a_decision_is_stable() -> None:
    parts = encode_marker(DECIDED, "orders")
    assert [part.offset for part in parts] == [8, 8]
    for part, begins_with in zip(parts, VERSION_2, strict=True):
        assert part.metadata.startswith(begins_with)
        assert len(part.metadata) <= 4096
    assert n_parts(parts[0]) == 2
    assert decode_marker(parts, "orders") == DECIDED


def test_a_decision_of_a_thousand_tasks_leaves_out_where_the_records_are() -> None:
    task = DECIDED.pending[0]
    ranges = tuple(WrittenRange("orders", p, 10**9 + p, 10**9 + p) for p in range(12))
    many = replace(DECIDED, pending=tuple(replace(task, task=i, ranges=ranges) for i in range(1000)))
    parts = encode_marker(many, "orders")
    assert all(len(part.metadata) <= 4096 for part in parts)
    assert len(parts) < 25
    assert decode_marker(parts, "orders") == replace(
        many, pending=tuple(replace(each, ranges=()) for each in many.pending)
    )


def test_a_task_that_wrote_to_many_partitions_leaves_out_where_its_records_are() -> None:
    task = DECIDED.pending[0]
    ranges = tuple(WrittenRange("orders", p, 10**9 + p, 10**9 + p) for p in range(200))
    decided = replace(DECIDED, pending=(replace(task, ranges=ranges), *DECIDED.pending[1:4]))
    parts = encode_marker(decided, "orders")
    assert all(len(part.metadata) <= 4096 for part in parts)
    assert decode_marker(parts, "orders") == replace(decided, pending=(replace(task, ranges=()), *DECIDED.pending[1:4]))


def test_a_decision_without_one_of_its_parts_is_not_taken_for_another_one() -> None:
    parts = encode_marker(DECIDED, "orders")
    other = encode_marker(replace(DECIDED, batch_id=6), "orders")
    note = CommittedOffset(8, metadata="a note")
    for incomplete in ([parts[0]], [parts[0], None], [parts[0], other[1]], [parts[0], note], [parts[0], parts[0]]):
        found = decode_marker(incomplete, "orders")
        assert isinstance(found, Marker) and not found.is_settled
        assert found.missing_parts == (1,)
        assert 0 < len(found.pending) < 70 and found.pending == DECIDED.pending[: len(found.pending)]


def test_no_offset_is_no_marker() -> None:
    assert decode_marker([None], "q") is None


@pytest.mark.parametrize(
    ("committed", "text"),
    [
        (CommittedOffset(8), "offset 8 with the metadata '', which is no marker"),
        (CommittedOffset(8, metadata="a note of another program " + "x" * 5000), "'a note of another program xxx"),
        (CommittedOffset(8, metadata="[1]"), "which is no marker"),
        (CommittedOffset(8, metadata="7"), "which is no marker"),
        (CommittedOffset(8, metadata='{"query": "q"}'), "which is no marker"),
        (CommittedOffset(8, metadata='{"version": "x"}'), "which is no marker"),
        (
            CommittedOffset(5, metadata=VERSION_1),
            "offset 5 with the metadata of micro-batch 7; was it reset by a tool?",
        ),
    ],
)
def test_what_is_no_marker(committed: CommittedOffset, text: str) -> None:
    found = decode_marker([committed], "q")
    assert isinstance(found, UnreadableMarker)
    assert found.version is None and text in found.description and len(found.description) < 200
