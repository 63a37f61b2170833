"""The marker's serialized form: what is written stays readable, and what was written before is still read."""

from __future__ import annotations

import json

import pytest

from pykafka_wire.sink.exactly_once.marker import Marker, UnreadableMarker, decode_marker, encode_marker
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset

SEVEN = Marker(query_id="0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", batch_id=7, n_records=3, digest="00000000000000ff")
#: As committed by version 1. Never to be changed: brokers keep such markers over an upgrade.
VERSION_1 = '{"version": 1, "query": "0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", "batch": 7, "count": 3, "digest": "00000000000000ff"}'
#: The form before versions.
UNVERSIONED = '{"query": "0b6b6ae6-0e2b-4c7c-a7b3-3a4f5e9bd1f5", "batch": 7, "count": 3, "digest": "00000000000000ff"}'


def test_the_form_is_stable() -> None:
    assert encode_marker(SEVEN) == CommittedOffset(8, metadata=VERSION_1)
    assert len(VERSION_1.encode()) < 4096


@pytest.mark.parametrize("metadata", [VERSION_1, UNVERSIONED], ids=["1", "unversioned"])
def test_every_form_that_was_ever_written_is_read(metadata: str) -> None:
    assert decode_marker(CommittedOffset(8, metadata=metadata)) == SEVEN


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    assert decode_marker(CommittedOffset(8, metadata=json.dumps(json.loads(VERSION_1) | {"tasks": [1]}))) == SEVEN


def test_a_newer_version_is_recognised_whatever_its_fields() -> None:
    found = decode_marker(CommittedOffset(8, metadata='{"version": 2, "decision": {}}'))
    assert isinstance(found, UnreadableMarker)
    assert (found.version, found.description) == (2, "a marker of version 2")


def test_no_offset_is_no_marker() -> None:
    assert decode_marker(None) is None


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
    found = decode_marker(committed)
    assert isinstance(found, UnreadableMarker)
    assert found.version is None and text in found.description and len(found.description) < 200
