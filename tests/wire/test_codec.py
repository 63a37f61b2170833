"""What a field table means on the wire, each rule on a small structure made for it, with the bytes written out."""

from __future__ import annotations

import uuid

import pytest

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import encoding, primitives
from pykafka_wire.wire.protocol.fields import (
    Records,
    Struct,
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    structure,
    uuid128,
)
from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.topic_partitions import ZERO_UUID


class Inner(Struct):
    number: int = int32()
    text: str | None = string(nullable_since=2)


class Sample(Message, versions=(0, 3), flexible=2):
    """Version 2 is flexible."""

    flag: bool = boolean()
    small: int = int8()
    medium: int = int16()
    large: int = int64()
    title: str = string()
    inner: Inner = structure(Inner)
    items: list[Inner] | None = array(Inner, nullable_since=1)
    numbers: list[int] = array(int32)
    ignored: int = int32(since=1, default=-1, ignorable=True)
    needed: int = int32(since=1, default=-1)
    topic_id: uuid.UUID = uuid128(since=1, ignorable=True)
    data: bytes = binary(since=1, until=1)
    tagged: str = string(since=2, tag=1, ignorable=True)
    tagged_inner: Inner = structure(Inner, since=2, tag=3, ignorable=True)


class Batches(Message, versions=(0, 1), flexible=1):
    before: int = int8()
    records: Records = record_batches(nullable_since=0)
    after: int = int8()


class Optional(Message, versions=(0, 1), flexible=0):
    inner: Inner | None = structure(Inner, nullable_since=1, null=True)


def joined(message: Message, version: int) -> str:
    return b"".join(message.encode(version)).hex(" ")


def full() -> Sample:
    return Sample(
        flag=True,
        small=-1,
        medium=2,
        large=3,
        title="ab",
        inner=Inner(number=4, text="t"),
        items=[Inner(text="u")],
        numbers=[5, 6],
    )


def test_version_0_has_plain_lengths_and_fields_in_order() -> None:
    assert joined(full(), 0) == (
        "01 ff 00 02 00 00 00 00 00 00 00 03 00 02 61 62 "  # fixed widths, name
        "00 00 00 04 00 01 74 "  # inner
        "00 00 00 01 00 00 00 00 00 01 75 "  # items
        "00 00 00 02 00 00 00 05 00 00 00 06"  # numbers
    )
    assert Sample.decode(bytes.fromhex(joined(full(), 0)), 0) == full()


def test_a_flexible_version_has_compact_lengths_and_tags_at_the_end_of_each_structure() -> None:
    message = Sample(title="ab", inner=Inner(text=None), items=None, numbers=[7], tagged="x")
    assert joined(message, 2) == (
        "00 00 00 00 00 00 00 00 00 00 00 00 03 61 62 "
        "00 00 00 00 00 00 "  # inner: number, null text, no tags
        "00 02 00 00 00 07 ff ff ff ff ff ff ff ff "
        + "00 " * 16
        + "01 01 02 02 78"  # one tagged field: tag 1, of two bytes, a compact string
    )
    assert Sample.decode(bytes.fromhex(joined(message, 2)), 2) == message


def test_tagged_fields_at_their_default_are_left_out() -> None:
    assert joined(Sample(), 2).endswith(" 00")
    assert joined(Sample(tagged_inner=Inner()), 2) == joined(Sample(), 2)
    assert joined(Sample(tagged_inner=Inner(number=1)), 2).endswith(" 01 03 06 00 00 00 01 01 00")


def test_unknown_tagged_fields_are_kept_among_the_known_in_order() -> None:
    message = Sample(tagged="x", unknown_tags={200: b"later", 0: b"", 2: b"\x01"}, inner=Inner(unknown_tags={7: b"in"}))
    encoded = joined(message, 2)
    assert encoded.endswith("04 00 00 01 02 02 78 02 01 01 c8 01 05 6c 61 74 65 72")
    assert Sample.decode(bytes.fromhex(encoded), 2) == message


def test_a_known_tag_given_as_unknown_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown_tags of Sample contains tag 1"):
        Sample(unknown_tags={1: b""}).encode(2)


def test_tags_in_a_version_without_them_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="Inner has tagged fields"):
        Sample(inner=Inner(unknown_tags={9: b""})).encode(1)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ("02 01 02 02 78 01 02 02 78", "must ascend"),
        ("02 09 00 05 00", "must ascend"),
        ("01 01 03 02 78 00", "has 3 bytes and uses 2"),
        ("01 01 01 02 78", "tagged field Sample.tagged of 1 bytes"),
        ("01 01 7f 02 78", "claims 127 bytes with 2 left"),
        ("01 63 7f", "claims 127 bytes with 0 left"),
        ("01 01 01 00", "Sample.tagged is null"),
        ("01 03 03 00 00 00", "needs more than its 3 bytes"),
        ("02 63 00", "is incomplete"),
        ("", "is incomplete"),
    ],
)
def test_malformed_tag_sections_are_refused(tags: str, reason: str) -> None:
    head = bytes.fromhex(joined(Sample(), 2))[:-1]
    with pytest.raises(ProtocolError, match=reason):
        Sample.decode(head + bytes.fromhex(tags), 2)


def test_a_field_that_the_version_lacks_is_dropped_if_ignorable_and_else_refused_unless_default() -> None:
    assert joined(Sample(ignored=5, topic_id=uuid.UUID(int=1), tagged="x"), 0) == joined(Sample(), 0)
    with pytest.raises(
        UnsupportedVersionError, match=r"Sample\.needed is set, but version 0 does not have it \[Sample v0\]"
    ):
        Sample(needed=5).encode(0)
    with pytest.raises(UnsupportedVersionError, match=r"Sample\.data"):
        Sample(data=b"x").encode(2)


def test_fields_that_a_version_lacks_decode_as_their_default() -> None:
    decoded = Sample.decode(bytes.fromhex(joined(Sample(), 0)), 0)
    assert (decoded.ignored, decoded.needed, decoded.topic_id, decoded.data, decoded.tagged) == (
        -1,
        -1,
        ZERO_UUID,
        b"",
        "",
    )
    assert decoded.tagged_inner == Inner()


def test_decoded_messages_share_no_mutable_default() -> None:
    data = bytes.fromhex(joined(Sample(), 0))
    first, second = Sample.decode(data, 0), Sample.decode(data, 0)
    assert first.tagged_inner is not second.tagged_inner
    assert first.unknown_tags is not second.unknown_tags


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (Sample(items=None), 0, "Sample.items"),
        (Sample(title=None), 3, "Sample.title"),  # type: ignore[arg-type]
        (Sample(inner=None), 3, "Sample.inner"),  # type: ignore[arg-type]
        (Sample(inner=Inner(text=None)), 1, "Inner.text"),
        (Optional(inner=None), 0, "Optional.inner"),
    ],
)
def test_null_is_refused_where_the_version_does_not_allow_it(message: Message, version: int, field: str) -> None:
    with pytest.raises(ProtocolError, match=f"{field} is null, which version {version} does not allow"):
        message.encode(version)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        ("00 00 00 00 00 00 00 00 00 00 00 00 ff ff", 0),  # name of length -1
        ("00 00 00 00 00 00 00 00 00 00 00 00 80 00", 0),  # name of length -32768
        ("00 00 00 00 00 00 00 00 00 00 00 00 00", 2),  # compact name, null
    ],
)
def test_null_on_the_wire_is_refused_where_the_version_does_not_allow_it(data: str, version: int) -> None:
    with pytest.raises(ProtocolError, match=r"Sample\.title is null"):
        Sample.decode(bytes.fromhex(data), version)


def test_a_nullable_structure_has_a_marker_before_it() -> None:
    assert joined(Optional(), 1) == "ff 00"
    assert joined(Optional(inner=Inner(number=3)), 1) == "01 00 00 00 03 01 00 00"
    for message in (Optional(), Optional(inner=Inner(number=3))):
        assert Optional.decode(bytes.fromhex(joined(message, 1)), 1) == message
    assert Optional.decode(b"\x80\x00", 1).inner is None


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Sample(small=128), "Sample.flag/small/medium/large"),
        (Sample(medium="x"), "Sample.flag/small/medium/large"),  # type: ignore[arg-type]
        (Sample(numbers=[2**31]), "Sample.numbers"),
        (Sample(numbers=7), "Sample.numbers"),  # type: ignore[arg-type]
        (Sample(title=b"x"), "Sample.title"),  # type: ignore[arg-type]
        (Sample(data=3), "Sample.data"),  # type: ignore[arg-type]
        (Sample(topic_id="x"), "Sample.topic_id"),  # type: ignore[arg-type]
        (Sample(items=[3]), "Sample.items takes Inner, not int"),  # type: ignore[list-item]
        (Sample(inner=Optional()), "Sample.inner takes Inner, not Optional"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused_by_name(message: Sample, field: str) -> None:
    with pytest.raises(ProtocolError, match=field):
        message.encode(1)


def test_an_array_that_claims_more_than_is_left_is_refused_before_anything_is_allocated() -> None:
    head = bytes.fromhex(joined(Sample(), 0))[:-8]
    with pytest.raises(ProtocolError, match=r"Sample\.items claims 2147483647 elements with 4 bytes left"):
        Sample.decode(head + bytes.fromhex("7fffffff 00000000"), 0)
    with pytest.raises(ProtocolError, match=r"Sample\.numbers claims 16777216 elements with 0 bytes left"):
        Sample.decode(head + bytes.fromhex("00000000 01000000"), 0)


def test_an_array_over_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "MAX_ARRAY_ELEMENTS", 9)
    assert Sample.decode(b"".join(Sample(numbers=[1] * 9).encode(0)), 0).numbers == [1] * 9
    with pytest.raises(ProtocolError, match="claims 10 elements, at most 9"):
        Sample.decode(b"".join(Sample(numbers=[1] * 10).encode(0)), 0)


@pytest.mark.parametrize("version", range(4))
def test_every_truncation_and_every_excess_is_refused(version: int) -> None:
    message = Sample(
        title="ab", inner=Inner(text="t"), items=[Inner(text="u")], numbers=[5], tagged="x", unknown_tags={}
    )
    data = b"".join(message.encode(version))
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            Sample.decode(data[:end], version)
    with pytest.raises(ProtocolError, match=f"ends at byte {len(data)} of {len(data) + 1}"):
        Sample.decode(data + b"\0", version)


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_outside_of_the_declared_ones_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="Sample exists in versions 0 to 3"):
        Sample().encode(version)
    with pytest.raises(UnsupportedVersionError, match="Sample exists in versions 0 to 3"):
        Sample.decode(b"", version)


def test_record_batches_are_passed_through_uncopied() -> None:
    batch = bytearray(b"batch")
    before, records, after = Batches(before=1, records=batch, after=2).encode(0)
    assert (bytes(before), bytes(after)) == (b"\x01\x00\x00\x00\x05", b"\x02")
    batch[0] = ord("B")
    assert bytes(records) == b"Batch"


def test_record_batches_are_handed_out_as_views_of_the_frame() -> None:
    frame = bytearray(b"".join(Batches(before=1, records=b"batch", after=2).encode(1)))
    records = Batches.decode(memoryview(frame), 1).records
    frame[2] = ord("B")
    assert isinstance(records, memoryview)
    assert bytes(records) == b"Batch"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("records", [None, b"", b"x" * 200])
def test_record_batches_may_be_null_or_empty(version: int, records: Records) -> None:
    decoded = Batches.decode(b"".join(Batches(records=records).encode(version)), version).records
    assert decoded == records


def test_each_structure_is_compiled_once_per_version() -> None:
    assert encoding.reader(Sample, 2, True) is encoding.reader(Sample, 2, True)
    assert encoding.writer(Sample, 2, True) is encoding.writer(Sample, 2, True)
    assert encoding.reader(Sample, 2, True) is not encoding.reader(Sample, 3, True)
