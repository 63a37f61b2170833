"""What documents are, read together by pyarrow and one by one: the same."""

from __future__ import annotations

import json
import random
import uuid
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.records.json import survey as json_survey
from pykafka_wire.ingest.records.json.columns import inferred, row_type
from pykafka_wire.ingest.records.json.shapes import Shape, merged
from pykafka_wire.ingest.records.json.survey import PLACE_COLUMNS, JsonSurvey, Kind, survey_here, survey_of
from pykafka_wire.ingest.records.json.types import grown
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

N = 300


@pytest.mark.parametrize(
    "numbers, wanted",
    [
        ("10", "bigint"),
        ("10 10.5", "double"),
        ("10.0", "double"),
        ("1e5", "double"),
        ("9007199254740993", "bigint"),
        ("12345678901234567890", "decimal(38,0)"),
        ("9007199254740993 1.5", "decimal(38,18)"),
        ("9007199254740993 1e5", "decimal(38,18)"),
        ("9007199254740992 1.5", "double"),
        ("123456789012345680000 1.5", "double"),
        ("123456789012345678901 1.5", "string"),
        ("12345678901234567890 1.5", "decimal(38,18)"),
        ("0.10000000000000001", "double"),
        ("0.1000000000000000055511151231257827", "double"),
        ("0.1234567890123456789", "decimal(38,18)"),
        ("1.2345678901234567e-05", "double"),
        ("9007199254740993.5 1", "decimal(38,18)"),
        ('"NaN"', "double"),
        ('"NaN" 7', "double"),
        ('"NaN" 9007199254740993', "string"),
        ('"NaN" "x"', "string"),
        ("1" * 39, "string"),
        ("1 true", "string"),
        ("1 {}", "bigint"),
        ("1 null", "bigint"),
    ],
)
def test_a_column_of_numbers_keeps_the_digits_of_each_in_whatever_order_they_come(numbers: str, wanted: str) -> None:
    for documents in (numbers.split(), numbers.split()[::-1], [*numbers.split()] * N):
        found = inferred([b'{"a": %s}' % number.encode() for number in documents])
        assert found is not None and found.simpleString() == f"struct<a:{wanted}>"
        merged_type = grown(None, merged(survey_of([number.encode()], "row").plain for number in documents))
        assert merged_type is not None and merged_type.simpleString() == wanted


def test_values_of_no_type_have_no_column_and_fields_are_in_the_order_of_the_documents() -> None:
    found = inferred([b'{"z": 1, "b": {"y": [], "x": null, "w": {}}, "a": [[1], [2.5]], "n": null, "": true}'] * N)
    assert found is not None and found.simpleString() == "struct<z:bigint,a:array<array<double>>,:boolean>"
    assert [inferred([document]) for document in (b"{}", b"null", b"[]", b"{damaged", None)] == [None] * 5


def document(make: random.Random, number: int) -> dict[str, Any]:
    rows = [{"sku": str(n), "price": make.random()} for n in range(number % 3)]
    return {
        "id": number,
        "price": make.random(),
        "name": f"n\u00e9 {number}",
        "rows": rows,
        "place": {"x": number % 7, "y": None},
    }


def replaced(name: str, text: str) -> Callable[[dict[str, Any]], bytes]:
    """A value in place of a document's, as text."""

    def replace(row: dict[str, Any]) -> bytes:
        return json.dumps({**row, name: "\0"}).replace('"\\u0000"', text).encode()

    return replace


ODD: list[Callable[[dict[str, Any]], bytes]] = [
    *(
        replaced("price", text)
        for text in ("7", "7.0", "9007199254740993", '"NaN"', "0.12345678901234567891", "1e300", "null")
    ),
    *(replaced("id", text) for text in ("9007199254740993", "9223372036854775808", "1.5", '"text"', "-1", "NaN")),
    *(replaced("place", text) for text in ('{"x": 1, "new": {"deep": [1]}}', "{}", "[]", '{"y": true}')),
    *(replaced("rows", text) for text in ('[{"sku": 1}]', "[[1]]", "[null]", '[{"price": 123456789012345678901234}]')),
    *(replaced("name", text) for text in ('"2026-01-01 00:00:00"', '"\\ud83d\\ude00"', "1")),
    replaced("payload", "1"),
    lambda row: b'{"schema": null, "payload": %s}' % json.dumps(row).encode(),
    lambda row: b"\0\0\0\0\7" + json.dumps(row).encode(),
    lambda row: b"  " + json.dumps(row, indent=2).encode() + b"\n",
    lambda _: b"{damaged",
    lambda _: b"[1]",
    lambda _: b"5",
    lambda _: b"",
    lambda _: b'{"a": "\xff"}',
]


def one_by_one(documents: list[bytes], kind: Kind) -> JsonSurvey:
    """What documents are, so few at once that pyarrow reads none of them."""
    whole = JsonSurvey()
    for first in range(0, len(documents), 50):
        whole.merge(survey_of(documents[first : first + 50], kind))
    return whole


def compared(seen: JsonSurvey) -> tuple[Any, ...]:
    return (
        grown(None, seen.plain), grown(None, seen.payload), sorted(map(str, seen.schemas)),
        seen.n_plain, seen.n_enveloped, seen.n_objects, seen.n_others, seen.names,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["row", "key"])
def test_documents_that_pyarrow_reads_together_are_what_they_are_one_by_one(kind: Kind) -> None:
    for seed in range(10):
        make = random.Random(seed)
        documents = [json.dumps(document(make, number)).encode() for number in range(N)]
        for place in make.sample(range(N), seed % 4):
            documents[place] = make.choice(ODD)(document(make, place))
        assert compared(survey_of(documents, kind)) == compared(one_by_one(documents, kind)), seed


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_document_among_many_is_found(odd: Callable[[dict[str, Any]], bytes]) -> None:
    make = random.Random(0)
    documents = [json.dumps(document(make, number)).encode() for number in range(N)]
    documents[N - 3] = odd(document(make, N - 3))
    assert compared(survey_of(documents, "row")) == compared(one_by_one(documents, "row"))


@given(st.integers(0, 2**40))
@examples(30)
def test_documents_that_begin_alike_are_what_they_are_one_by_one(seed: int) -> None:
    make = random.Random(seed)
    own, first, other = (
        json.dumps(schema)
        for schema in (
            {"type": "object"},
            {"type": "struct", "fields": [{"field": "x", "type": "int64"}]},
            {"type": "struct", "fields": [{"field": "x", "type": "string"}]},
        )
    )
    documents = []
    spaces = ("",) * 40 + (" ",)
    for _ in range(make.choice((3, 70, 200, 400))):
        schema, value = make.choice(
            ((first, "1"), (first, "1"), (first, "1"), (other, '"a"'), ("null", "1.5"), (own, "2"))
        )
        end = make.choice(
            ("}",) * 30 + (',"z":{}}', f',"schema":{first}}}', f',"schema":{own}}}', f',"schema":{other}}}', "oops}")
        )
        end = make.choice((end,) * 20 + (',"payload":{}}', ',"payload":7}'))
        space, other_space = make.choice(spaces), make.choice(spaces)
        documents.append(f'{{"schema":{schema},{space}"payload":{other_space}{{"x":{value}}}{end}'.encode())
    together, alone = survey_of(documents, "row"), one_by_one(documents, "row")
    assert compared(together) == compared(alone)
    assert row_type(together, "row", None) == row_type(alone_in_order(documents), "row", None)


def alone_in_order(documents: list[bytes]) -> JsonSurvey:
    """What documents are, each read alone, in the order of their offsets."""
    zero, whole = pa.array([0], pa.int64()), JsonSurvey()
    for offset, text in enumerate(documents):
        arrays = [pa.array([text], pa.binary()), zero, pa.array([offset], pa.int64()), zero]
        batch = pa.RecordBatch.from_arrays(arrays, names=["value", *PLACE_COLUMNS])
        whole.merge(survey_here([batch], {"value": "row"})["value"])
    return whole


@given(st.integers(0, 2**40))
def test_frames_of_serializers_change_nothing(seed: int) -> None:
    make, version = random.Random(seed), uuid.UUID(int=7)
    documents = [json.dumps({make.choice("abc"): number}).encode() for number in range(make.choice((2, 200)))]
    framed = [
        make.choice(
            (
                text,
                encode_frame(5, text),
                encode_frame(version, text),
                b"\x03\x05" + version.bytes + zlib.compress(text),
            )
        )
        for text in documents
    ]
    assert compared(survey_of(framed, "row")) == compared(survey_of(documents, "row"))
    damaged = b"\x03\x05" + version.bytes + b"damaged"
    seen = survey_of([None, damaged, *framed], "row")
    assert (seen.n_others, seen.n_plain) == (1, len(documents))


def test_few_documents_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Shape.add
    n_added = 0

    def count(self: Shape, value: Any, depth: int = 0, **given: bool) -> None:
        nonlocal n_added
        n_added += depth == 0
        added(self, value, depth, **given)

    monkeypatch.setattr(Shape, "add", count)
    make = random.Random(0)
    rows = [document(make, number) for number in range(20 * N)]
    survey_of([json.dumps(row).encode() for row in rows], "row")
    assert n_added < N
    n_added = 0
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    for kind, seen in (("row", {"schema": schema, "payload": None}), ("change", {"schema": schema, "payload": None})):
        documents = [
            json.dumps({**seen, "payload": row if kind == "row" else {"after": row, "op": "c"}}) for row in rows
        ]
        found = survey_of([text.encode() for text in documents], kind)  # type: ignore[arg-type]
        assert (found.n_enveloped, found.n_plain) == (len(rows), 0)
        assert grown(None, found.payload) == inferred([json.dumps(row).encode() for row in rows])
        assert found.schemas == (json.dumps(schema),)
    assert n_added < 4 * N


def test_envelopes_of_several_schemas_beside_others_are_told_apart() -> None:
    make = random.Random(1)
    fields = [{"field": "id", "type": "int64"}]
    schemas = [{"type": "struct", "default": text, "fields": fields} for text in ("A", "B")]
    third = {"type": "struct", "default": 0.0, "fields": fields}
    documents = []
    for number in range(N):
        row = document(make, number)
        envelope = {"schema": schemas[number % 2], "payload": row if number % 5 else None}
        documents.append(json.dumps(row if number % 7 == 0 else envelope).encode())
    documents.append(json.dumps({"payload": {"id": 1.5}, "schema": third}).encode())
    documents.append(json.dumps({"schema": schemas[0], "payload": {"more": 1}}, separators=(",", ":")).encode())
    documents.append(b'{"schema": {"type": "struct"}, "payload": {}, "id": 7}')
    seen = survey_of(documents, "row")
    assert compared(seen) == compared(one_by_one(documents, "row"))
    assert [json.loads(str(schema))["default"] for schema in seen.schemas] == ["A", 0.0, "B"], "the newest first"
    assert sorted(map(str, seen.schemas)) == sorted(map(json.dumps, [third, *schemas]))


def test_objects_that_are_maps_do_not_become_columns_of_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    parse = json_survey.Block.parse

    def note(self: Any, first: int, last: int, schema: pa.Schema, *given: Any, **more: Any) -> Any:
        widths.append(len(schema.field("tags").type))
        return parse(self, first, last, schema, *given, **more)

    monkeypatch.setattr(json_survey.Block, "parse", note)
    documents = [b'{"tags": {"%d": 1}}' % number for number in range(5_000)]
    seen = survey_of(documents, "row")
    assert seen.plain.fields is not None and len(seen.plain.fields["tags"].fields or {}) == 5_000
    assert max(widths) < 2_001


def test_digits_are_those_that_a_double_writes() -> None:
    make = random.Random(2)
    for _ in range(2_000):
        number = make.choice(
            (make.random(), make.uniform(-1e18, 1e18), make.uniform(-1e-9, 1e-9), float(make.getrandbits(70)))
        )
        shape = Shape()
        shape.add(Decimal(repr(number)))
        assert str(shape.scalar_type) == "DoubleType()", repr(number)


def test_a_name_with_half_a_character_is_that_documents_alone() -> None:
    documents = [b'{"a": 1}'] * 200 + [b'{"\\ud800": 1}', b'{"o": [{"\\uDC00": 1}]}', b'{"\\ud83d\\ude00": "\\ud800"}']
    seen = survey_of(documents, "row")
    assert (seen.n_plain, seen.n_others, sorted(seen.plain.fields or ())) == (201, 2, ["a", "\U0001f600"])


def test_the_newest_schema_is_that_of_the_last_offset_in_a_partition_and_the_latest_time_among_partitions() -> None:
    def surveyed(*records: tuple[str, int, int, int], n_batches: int = 1) -> list[str]:
        texts = [json.dumps({"schema": {"type": "int64", "name": name}, "payload": 1}).encode() for name, *_ in records]
        places = [pa.array([record[n] for record in records], pa.int64()) for n in (1, 2, 3)]
        names = ["value", *PLACE_COLUMNS]
        batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.binary()), *places], names=names)
        size = -(-len(records) // n_batches)
        batches = [batch.slice(first, size) for first in range(0, len(records), size)]
        return [json.loads(str(text))["name"] for text in survey_here(batches, {"value": "row"})["value"].schemas]

    for n_batches in (1, 2, 3):
        # A clock that goes back does not change the order of a partition.
        assert surveyed(("a", 0, 1, 90), ("b", 0, 2, 10), ("a", 1, 7, 50), n_batches=n_batches) == ["b", "a"]
        assert surveyed(("a", 0, 1, 10), ("b", 1, 1, 30), ("c", 0, 2, 20), n_batches=n_batches) == ["b", "c", "a"]
        many = [("a", 0, n, n) for n in range(200)]
        assert surveyed(*many, ("b", 0, 200, 200), *(("a", 1, n, n) for n in range(150)), n_batches=n_batches) == [
            "b",
            "a",
        ]
        assert surveyed(("b", 0, 0, 0), *(("a", 0, n, n) for n in range(1, 300)), n_batches=n_batches) == ["a", "b"]


MOMENTS = ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456+05:30", "1999-12-31T23:59:59-0800")


def typed(values: list[Any], *, with_timestamps: bool = True) -> str | None:
    documents = [json.dumps({"at": value}).encode() for value in values]
    found = grown(None, survey_of(documents, "row", with_timestamps=with_timestamps).plain)
    return None if found is None else found.simpleString()


@pytest.mark.parametrize(
    ("odd", "wanted"),
    [
        ([], "timestamp"), ([None], "timestamp"), (["2026-01-31T12:00:00"], "string"), (["2026-01-31"], "string"), ([""], "string"),
        ([7], "string"), (["NaN"], "string"), (["2026-01-31T12:00:00Z\n"], "string"), (["x2026-01-31T12:00:00Z"], "string"),
    ],
)  # fmt: skip
def test_texts_all_of_which_are_timestamps_with_a_zone_are_timestamps_where_the_setting_says_so(
    odd: list[Any], wanted: str
) -> None:
    values = [*MOMENTS * N, *odd]
    for documents in (values, values[::-1], [*MOMENTS, *odd]):
        assert typed(documents) == f"struct<at:{wanted}>"
        kept = typed(documents, with_timestamps=False)
        assert kept == "struct<at:string>"
    assert typed([[[{"deep": moment}] for moment in MOMENTS]] * N) == "struct<at:array<array<struct<deep:timestamp>>>>"


@given(
    year=st.sampled_from(["0000", "0001", "0999", "1900", "2000", "2023", "2024", "9999"]),
    month=st.sampled_from(["00", "01", "02", "04", "06", "09", "11", "12", "13"]),
    day=st.sampled_from(["00", "01", "28", "29", "30", "31", "32"]),
    time=st.sampled_from(["00:00:00", "23:59:59", "12:00:00.5", "24:00:00", "12:60:00"]),
    zone=st.sampled_from(["Z", "+00:00", "-00:01", "+05:30", "-1400", "+14:59", "+15:00"]),
)
@examples(100)
def test_a_text_is_a_timestamp_if_the_calendar_has_it(year: str, month: str, day: str, time: str, zone: str) -> None:
    text = f"{year}-{month}-{day}T{time}{zone}"
    hours, minutes = (int(zone[1:3]), int(zone[-2:])) if zone != "Z" else (0, 0)
    ahead = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    clock = int(time[:2]), int(time[3:5]), int(time[6:8])
    try:
        datetime(int(year), int(month), int(day), *clock, tzinfo=timezone(ahead)).astimezone(timezone.utc)
        is_timestamp = hours <= 14
    except (ValueError, OverflowError):
        is_timestamp = False
    wanted = f"struct<at:{'timestamp' if is_timestamp else 'string'}>"
    assert [typed([text]), typed([*MOMENTS * N, text]), typed([text, *MOMENTS * N])] == [wanted] * 3
    document = pa.array([json.dumps({"at": text}).encode()], pa.binary())
    read = read_column(Json(), pa.struct([("at", pa.timestamp("us", "UTC"))]), document)
    assert not (is_timestamp and read.reasons)


def test_keys_keep_their_texts() -> None:
    keys = [json.dumps({"at": moment}).encode() for moment in MOMENTS * N]
    found = grown(None, survey_of(keys, "key", with_timestamps=True).plain)
    assert found is not None and found.simpleString() == "struct<at:string>"
