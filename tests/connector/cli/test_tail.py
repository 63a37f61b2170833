"""The JSON that ``tail`` prints of decoded values: the same document, with every digit; judged by Python's own parser."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.cli.tail import _exact_json, _parsed_json


def numbers() -> st.SearchStrategy[str]:
    digits = st.integers(0, 10**40).map(str)
    fraction, exponent = st.text("0123456789", min_size=1, max_size=25), st.integers(-400, 400)
    return st.one_of(
        st.builds("-{}".format, digits),
        st.builds("{}.{}".format, digits, fraction),
        st.builds("{}.{}e{}".format, digits, fraction, exponent),
        st.sampled_from(["-0", "-0.0", "1e400", "1E2", "9" * 5_000]),
    )


#: Texts with halves of surrogate pairs, which JSON holds as escape sequences.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=5).map(json.dumps)
DOCUMENTS = st.recursive(
    st.one_of(numbers(), TEXTS, st.sampled_from(["null", "true", "{}", "[]"])),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(lambda some: f"[{','.join(some)}]"),
        st.dictionaries(st.sampled_from(['"a"', '"ä"']), parts).map(
            lambda some: "{" + ",".join(f"{name}:{part}" for name, part in some.items()) + "}"
        ),
    ),
    max_leaves=8,
)


def judged(text: str) -> Any:
    """A JSON document with exact numbers; NaN and the infinities are refused."""

    def number(digits: str) -> tuple[Decimal, bool]:
        return Decimal(digits), Decimal(digits).is_signed()

    return json.loads(text, parse_float=number, parse_int=number, parse_constant=pytest.fail)


@given(document=DOCUMENTS)
def test_a_document_is_printed_with_the_same_values(document: str) -> None:
    shown = _exact_json(_parsed_json("value", document.encode())["value"])
    shown.encode()  # the terminal's encoding has no half of a surrogate pair
    assert judged(shown) == judged(document)


@pytest.mark.parametrize(
    "value", [b"NaN", b'{"a": Infinity}', b"[" * 100_000, b"[" * 400 + b"]" * 400, b"1e9999999999999999999"]
)
def test_what_json_text_cannot_hold_is_an_error_of_its_value(value: bytes) -> None:
    assert list(_parsed_json("value", value)) == ["valueError"]


def test_a_value_that_is_nested_too_deeply_is_an_error_of_its_own() -> None:
    assert _parsed_json("value", b"[" * 100_000) == {"valueError": "its JSON is nested too deep"}
