"""Which of a value's fields an expression uses: a change that lacks one of them must not be taken as if the field were null."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.records.contracts import _used

pytestmark = pytest.mark.unit

FIELDS = ("id", "note", "n", "values")
WHOLE = (
    "value", "VALUE", "`value`", "value ", "CAST(value AS STRING)", "to_json(value)", "value IS NOT NULL", "value = other",
    "value['note']", "struct(*)", "hash(id, *)", "hash(*)", "value.*", "value . *", "array(value)", "value\n",
)  # fmt: skip
ONE = ("{0}", "value.{0}", "VALUE . {0}", "`{0}`", "value.`{0}`", "upper({0})", "{0} * 2", "2*value.{0}")
BOTH = ("{0} || {1}", "coalesce({0}, {1})", "CASE WHEN {0} THEN {1} END", "concat({0},{1}) LIKE '%x'", "({0}) = ({1})")
ALIASES = ("", " AS doc", " doc", " AS value", " AS `note`", " as n")

#: An expression, and the fields that it uses.
Leaf = st.one_of(
    st.sampled_from(WHOLE).map(lambda text: (text, frozenset(FIELDS))),
    st.tuples(st.sampled_from(ONE), st.sampled_from(FIELDS)).map(
        lambda each: (each[0].format(each[1]), frozenset({each[1]}))
    ),
)
Expressions = st.recursive(
    Leaf,
    lambda inner: st.tuples(st.sampled_from(BOTH), inner, inner).map(
        lambda each: (each[0].format(each[1][0], each[2][0]), each[1][1] | each[2][1])
    ),
    max_leaves=4,
)


@given(expression=Expressions, alias=st.sampled_from(ALIASES))
def test_an_expression_uses_the_fields_that_it_reads(expression: tuple[str, frozenset[str]], alias: str) -> None:
    text, uses = expression
    assert {*_used(text + alias, FIELDS)} >= uses


@given(
    field=st.sampled_from(FIELDS),
    form=st.sampled_from(ONE),
    alias=st.sampled_from(("", " AS doc", " AS value", " as n")),
)
def test_an_expression_of_one_field_does_not_use_the_others(field: str, form: str, alias: str) -> None:
    assert {*_used(form.format(field) + alias, FIELDS)} == {field}
