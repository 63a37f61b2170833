"""JSON as VARIANT: byte for byte what Spark's own builder makes, and what it refuses."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType, VariantType, VariantVal
from pyspark.sql.variant_utils import VariantUtils

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.converter import Decoded, read_column
from pykafka_wire.values.ddl import arrow_type
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.json.variant_columns import VariantReader, flat_variants
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.values.single_json.variant import variant_metadata, variant_of
from pykafka_wire.values.single_json.variant_type import VARIANT, is_variant

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=3), each, max_size=4),
    max_leaves=30,
)


def read(*documents: bytes | None, ddl: str = "variant") -> Decoded:
    return read_column(Json(), arrow_type(ddl), pa.array(documents, pa.binary()))


def spark(document: str) -> dict[str, bytes]:
    value, metadata = VariantUtils.parse_json(document)
    return {"value": value, "metadata": metadata}


def json_of(value: Any) -> str:
    """As a producer writes it, with the digits of decimals."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return f"[{','.join(map(json_of, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{json_of(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def test_its_type_is_sparks() -> None:
    assert VARIANT.equals(to_arrow_type(VariantType()), check_metadata=True)
    assert is_variant(VARIANT)
    assert not is_variant(pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))


@given(_VALUES)
def test_any_document_is_encoded_as_spark_does(value: Any) -> None:
    document = json_of(value)
    assert read(document.encode()).column[0].as_py() == spark(document)


@pytest.mark.parametrize(
    "document",
    [
        *(str(sign * (1 << bits) + more) for sign in (1, -1) for bits in (7, 15, 31, 63, 120) for more in (-1, 0, 1)),
        *("1.5", "-0.001", "1" + "0" * 38, "0." + "1" * 38, "0." + "1" * 39, "1e3", "1.0e300", "123456789.5", "-0.0"),
        json.dumps("x" * 63),
        json.dumps("x" * 64),
        json.dumps("å" * 32),
        json.dumps(list(range(300))),
        json.dumps({f"key{n}": n for n in range(300)}),
        json.dumps({"b": {"a": 1, "b": [{}, []]}, "a": "x" * 70_000}),
        "[]",
        "{}",
        " 7 ",
    ],
)
def test_sizes_and_numbers_are_sparks(document: str) -> None:
    assert read(document.encode()).column[0].as_py() == spark(document)


def test_what_is_no_document_has_a_reason_and_its_neighbours_are_read() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    rows = [b"{", b"1", None, b"NaN", b'"\\ud800"', b"1e999", deep, b'{"a":2}', b""]
    found = read(*rows)
    assert {row for row, each in enumerate(found.column.to_pylist()) if each is not None} == {1, 7}
    assert found.column[7].as_py() == spark('{"a":2}')
    assert found.reasons.keys() == {0, 3, 4, 5, 6, 8}
    assert "NaN" in found.reasons[3].replace("nan", "NaN")


def test_a_document_above_sparks_limit_is_an_error() -> None:
    (reason,) = read(json.dumps("x" * (1 << 24)).encode()).reasons.values()
    assert "larger than a VARIANT" in reason


def test_a_field_can_be_a_variant() -> None:
    found = read(
        b'{"id": 1, "more": {"a": [1.5]}}', b'{"id": 2}', b'{"id": 3, "more": null}', ddl="id BIGINT, more VARIANT"
    )
    assert found.reasons == {}
    assert found.column.field("more").to_pylist() == [spark('{"a": [1.5]}'), None, None]


def test_a_text_after_confluents_frame_is_read() -> None:
    assert read(b"\0\0\0\0\x07[1]").column[0].as_py() == spark("[1]")


_TOKENS = {
    "text": ['""', '"ab"', '"äß日"', f'"{"x" * 63}"', f'"{"y" * 64}"', f'"{"z" * 300}"', "null"],
    "integer": [*map(str, (0, 127, 128, -128, -129, 32767, 32768, 2**31, -(2**31) - 1, 2**53)), "-0", "null"],
    "number": ["1.5", "-0.0", "0.05", "-12.340", "123456789.1", "99999999.99", "12345678901234567.8", "5", "-7", "0.0000000001"],
    "flag": ["true", "false", "null"],
    "null": ["null"],
}  # fmt: skip
#: Left to be read alone: more digits, exponents, another kind, escapes, nested values, what is not valid.
_ODD = [
    b'{"a":123456789012345678.9}', b'{"a":1e5}', b'{"a":"\\n"}', b'{"a":{"b":1}}', b"{}", b"[1]", b'{"a":0x12}', b'{"a":01}',
    b"nul", b'{"a":1,"a":2}',
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_flat_objects_read_together_are_what_each_is_alone(seed: int) -> None:
    random = Random(seed)
    names = [
        f"{name}{'é' if nth % 3 == 0 else ''}{nth}" for nth, name in enumerate(random.choices("cba", k=seed * 2 + 1))
    ]
    kinds = random.choices(list(_TOKENS), k=len(names))
    documents = []
    for _ in range(900):
        n = len(names) - (len(names) > 1 and random.random() < 0.4)
        members = [f'"{name}":{random.choice(_TOKENS[kind])}' for name, kind in zip(names[:n], kinds[:n], strict=True)]
        documents.append(f"{{{','.join(members)}}}".encode() if random.random() > 0.02 else random.choice(_ODD))
    payloads = Payloads.of(pa.array(documents, pa.binary()))
    groups, left = flat_variants(payloads, variant_metadata)
    assert groups and left.mean() < 0.5
    column, failed = VariantReader(VARIANT).read_column(payloads)
    for row, document in enumerate(documents):
        try:
            alone = variant_of(parse_json(document))
        except DecodeError:
            assert failed[row]
        else:
            assert (column[row].as_py(), failed[row]) == (alone, False), document


def test_objects_of_many_bytes_have_wider_offsets() -> None:
    documents = [json.dumps({"b": "x" * n, "a": n}).encode() for n in (1, 300, 70_000)] * 300
    groups, left = flat_variants(Payloads.of(pa.array(documents, pa.binary())), variant_metadata)
    assert len(groups) == 3 and not left.any()
    for rows, values, metadata in groups:
        assert {"value": values[0].as_py(), "metadata": metadata} == spark(documents[rows[0]].decode())


#: Names of which UTF-16 and UTF-8 give different orders, among others.
_NAMES = [chr(first + nth) for first in (0x61, 0xE0, 0xFF21, 0x1F600) for nth in range(20)]


@given(st.lists(st.sampled_from(_NAMES), min_size=32, max_size=60, unique=True))
def test_fields_of_large_objects_are_in_the_order_in_which_spark_searches(names: list[str]) -> None:
    document = json.dumps({name: nth for nth, name in enumerate(names)}, ensure_ascii=False).encode()
    value = read(document).column[0].as_py()["value"]
    assert value[1] == len(names)
    ordered = [names[number] for number in value[2 : 2 + len(names)]]
    assert ordered == sorted(names, key=lambda name: name.encode("utf-16-be"))
    together = read(*[document] * 300).column
    assert {each["value"] for each in together.to_pylist()} == {value}


@pytest.mark.spark
def test_spark_finds_each_field_of_a_large_object(request: pytest.FixtureRequest) -> None:
    session: Any = request.getfixturevalue("spark")
    found = variant_of({name: nth for nth, name in enumerate(_NAMES)})
    column = VariantVal(found["value"], found["metadata"])
    rows = session.createDataFrame([(column,)], StructType().add("v", VariantType()))
    wanted = [f"variant_get(v, \"$['{name}']\", 'int')" for name in _NAMES]
    assert list(rows.selectExpr(*wanted).first()) == list(range(len(_NAMES)))
