"""What each of PostgreSQL's types must be in a Delta table: one table of rules, by which both sides become the same text.

A rule has the Spark types that a column may have, and an expression of either side. Typed columns come with Debezium's schema, by
Avro or by JSON with schemas. JSON without schemas has what Debezium writes, and columns are of the types of its values: there
these rules differ.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final


def same(text: str) -> str:
    return text


def number(text: str) -> str:
    """A floating-point number as Python has it: the shortest text of a double."""
    found = float(text.replace("Infinity", "inf"))
    return "nan" if math.isnan(found) else repr(found)


def single(text: str) -> str:
    """The same of four bytes, which PostgreSQL writes in six to nine digits."""
    import numpy as np

    found = np.float32(text.replace("Infinity", "inf"))
    return "nan" if np.isnan(found) else str(found)


def exact(text: str) -> str:
    """All digits of a decimal, without zeros at the end. Arithmetic of decimals would round them."""
    found = Decimal(text)
    if not found.is_finite():
        return str(found)
    digits = format(found, "f")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return digits if found else "0"


def document(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def documents(text: str) -> str:
    return json.dumps([None if each is None else document(each) for each in json.loads(text)])


def doubles(text: str) -> str:
    return json.dumps([None if each is None else float(each) for each in json.loads(text)])


def exact_items(text: str) -> str:
    return json.dumps([None if each is None else exact(str(each)) for each in json.loads(text, parse_float=str)])


def connect_decimal(scale: int) -> Callable[[str], str]:
    """Connect's encoding of a decimal in JSON: base64 of a big-endian whole number."""

    def read(text: str) -> str:
        return exact(str(_decimal(text, scale)))

    return read


def connect_decimals(scale: int) -> Callable[[str], str]:
    """The same of an array."""
    read = connect_decimal(scale)
    return lambda text: json.dumps([None if each is None else read(each) for each in json.loads(text)])


def variable_scale(text: str) -> str:
    """Debezium's struct of a scale and of the bytes of a whole number."""
    found = json.loads(text)
    return exact(str(_decimal(found["value"], found["scale"])))


def _decimal(text: str, scale: int) -> Decimal:
    unscaled = Decimal(int.from_bytes(base64.b64decode(text), "big", signed=True))
    return Decimal(unscaled.as_tuple()._replace(exponent=-scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    Attributes:
        types: a regular expression of Spark's types of the column.
        database, delta: expressions of the column ``{}`` as text, of PostgreSQL and of Spark; null stays null.
        read, read_delta: functions of these texts, to what must be equal.
    """

    types: str
    database: str = "{}::text"
    delta: str = "CAST({} AS STRING)"
    read: Callable[[str], str] = same
    read_delta: Callable[[str], str] | None = None

    def of_database(self, text: str | None) -> str | None:
        return None if text is None else self.read(text)

    def of_delta(self, text: str | None) -> str | None:
        return None if text is None else (self.read_delta or self.read)(text)


WHOLE: Final = "tinyint|smallint|int|bigint"
#: JSON's numbers have no size: a whole number may be a decimal column where another value was larger.
ANY_WHOLE: Final = rf"{WHOLE}|decimal\(\d+,0\)"
TEXT: Final = Rule(types="string")
_MICROS_OF_INFINITE: Final = "CASE WHEN isfinite({0}) THEN (extract(epoch FROM CASE WHEN isfinite({0}) THEN {0} END) * 1000000)::bigint::text END"
_DAYS: Final = "CASE WHEN isfinite({0}) THEN (CASE WHEN isfinite({0}) THEN {0} END - date '1970-01-01')::text END"


def _items(expression: str) -> str:
    """An array of an expression of each item ``x``."""
    return "CASE WHEN {0} IS NOT NULL THEN to_json(ARRAY(SELECT " + expression + " FROM unnest({0}) x))::text END"


_MICROS_OF_ITEMS: Final = _items("(extract(epoch FROM x) * 1000000)::bigint")
_TEXTS_OF_ITEMS: Final = _items("x::text")
_DOCUMENT: Final = Rule(types="string", read=document)
_ITEMS: Final = Rule(types="array<.*>", database="to_json({})::text", delta="to_json({})", read=document)

#: PostgreSQL's type, as a regular expression -> what lands where there is a schema.
TYPED: Final[dict[str, Rule]] = {
    "smallint|integer": Rule(types="smallint|int"),
    "bigint|oid": Rule(types="bigint"),
    "real": Rule(types="float|double", read=single),
    "double precision": Rule(types="double", read=number),
    # Of more digits than a decimal of Spark has: as text.
    r"numeric\(60,20\)": Rule(types="string", read=exact),
    r"numeric\((\d+),(\d+)\)": Rule(types=r"decimal\({0},{1}\)", read=exact),
    "numeric": Rule(types="string", read=exact),
    "money": Rule(types=r"decimal\(38,2\)", database="{}::numeric::text", read=exact),
    # A char(n) keeps its blanks, which a cast to text removes.
    r"text|character varying(?:\(\d+\))?|character\(\d+\)|citext|uuid|mood|growth|inet|cidr|macaddr8?|xml|tsvector|.*range|ltree": replace(TEXT, database="to_json({}) #>> '{{}}'"),
    "bytea": Rule(types="binary", database="encode({}, 'hex')", delta="lower(hex({}))"),
    "boolean": Rule(types="boolean"),
    # Endless ones are null.
    "date": Rule(types="date", database=_DAYS, delta="CAST(unix_date({}) AS STRING)"),
    r"time(\(\d\))? without time zone": Rule(types="bigint", database="(extract(epoch FROM {}) * 1000000)::bigint::text"),
    r"time(\(\d\))? with time zone": Rule(types="string", database="({} AT TIME ZONE 'UTC')::time::text || 'Z'"),
    r"timestamp(\(\d\))? without time zone": Rule(types="timestamp_ntz", database=_MICROS_OF_INFINITE, delta="CAST(unix_micros(CAST({} AS TIMESTAMP)) AS STRING)"),
    r"timestamp(\(\d\))? with time zone": Rule(types="timestamp", database=_MICROS_OF_INFINITE, delta="CAST(unix_micros({}) AS STRING)"),
    # Microseconds, of years of 365.25 days and months of a twelfth of them.
    "interval": Rule(
        types="bigint",
        database="(extract(years FROM {0}) * 31557600000000 + extract(months FROM {0}) * 2629800000000 + extract(days FROM {0}) * 86400000000"
        " + extract(hours FROM {0}) * 3600000000 + extract(minutes FROM {0}) * 60000000 + extract(microseconds FROM {0}))::bigint::text",
    ),
    "jsonb?": _DOCUMENT,
    r"date\[\]": Rule(types="array<date>", database="to_json({})::text", delta="to_json({})", read=document),
    r"timestamp without time zone\[\]": Rule(
        types="array<timestamp_ntz>", database=_MICROS_OF_ITEMS,
        delta="to_json(transform({}, x -> unix_micros(CAST(x AS TIMESTAMP))))", read=document,
    ),
    r"timestamp with time zone\[\]": Rule(
        types="array<timestamp>", database=_MICROS_OF_ITEMS,
        delta="to_json(transform({}, x -> unix_micros(x)))", read=document,
    ),
    r"numeric\((\d+),(\d+)\)\[\]": Rule(types=r"array<decimal\({0},{1}\)>", database="to_json({}::text[])::text", delta="to_json(transform({}, x -> CAST(x AS STRING)))", read=exact_items),
    r"numeric\[\]": Rule(types="array<string>", database="to_json({}::text[])::text", delta="to_json(transform({}, x -> CAST(x AS STRING)))", read=exact_items),
    r"double precision\[\]": replace(_ITEMS, types="array<double>", read=doubles),
    r"jsonb?\[\]": Rule(types="array<string>", database=_TEXTS_OF_ITEMS, delta="to_json({})", read=documents),
    r"bytea\[\]": Rule(types="array<binary>", database=_items("encode(x, 'hex')"), delta="to_json(transform({}, x -> lower(hex(x))))", read=document),
    r"time(\(\d\))? without time zone\[\]": Rule(types="array<bigint>", database=_MICROS_OF_ITEMS, delta="to_json({})", read=document),
    r".*\[\]": _ITEMS,
    "hstore": Rule(types="string", database="hstore_to_json({})::text", read=document),
    "point": Rule(types="struct<x:double,y:double,wkb:binary,srid:int>", database="json_build_array({0}[0], {0}[1])::text", delta="to_json(array({0}.x, {0}.y))", read=doubles),
    r"bit\(1\)": Rule(types="boolean", database="CASE {} WHEN B'1' THEN 'true' WHEN B'0' THEN 'false' END"),
    # The lowest byte first, in no more bytes than the number needs.
    r"bit\(\d+\)|bit varying\(\d+\)": Rule(types="binary", delta="lower(hex({}))", read=lambda text: _little_endian(text), read_delta=same),
}  # fmt: skip


def _little_endian(bits: str) -> str:
    """Bits as Debezium writes them, in hexadecimal digits."""
    number = int(bits or "0", 2)
    return number.to_bytes(-(-number.bit_length() // 8), "little").hex()


_BASE64: Final = "replace(encode({}, 'base64'), E'\\n', '')"

#: The same where there is no schema: what JSON has.
PLAIN: Final[dict[str, Rule]] = {
    "smallint|integer|bigint|oid": Rule(types=ANY_WHOLE),
    "real": Rule(types="double", read=single),
    "double precision": Rule(types="double", read=number),
    r"numeric\((\d+),(\d+)\)": Rule(types="string", read=exact, read_delta=connect_decimal(0)),
    "numeric": Rule(types=r"struct<scale:bigint,value:string>", delta="to_json({})", read=exact, read_delta=variable_scale),
    "money": Rule(types="string", database="{}::numeric::text", read=exact, read_delta=connect_decimal(2)),
    "bytea": Rule(types="string", database=_BASE64),
    # Debezium writes endless ones as days of other years.
    "date": Rule(types=ANY_WHOLE, database=_DAYS, delta="CAST(IF({0} BETWEEN -719162 AND 2932896, {0}, NULL) AS STRING)"),
    r"time(\((\d)\))? without time zone": Rule(types=ANY_WHOLE, database="(extract(epoch FROM {}) * 1000000)::bigint::text"),
    # Endless ones are numbers as well.
    r"timestamp(\(\d\))? without time zone": Rule(
        types=ANY_WHOLE, database=_MICROS_OF_INFINITE, delta="CAST(IF({0} IN (9223372036825200000, -9223372036832400000, 9223372036825200, -9223372036832400), NULL, {0}) AS STRING)",
    ),
    r"timestamp(\(\d\))? with time zone": Rule(types="string", database=_MICROS_OF_INFINITE, delta="CAST(unix_micros(try_cast({} AS TIMESTAMP)) AS STRING)"),
    r"date\[\]": Rule(types=r"array<.*>", database=_items("x - date '1970-01-01'"), delta="to_json({})", read=document),
    r"timestamp without time zone\[\]": Rule(types="array<.*>", database=_MICROS_OF_ITEMS, delta="to_json({})", read=document),
    r"timestamp with time zone\[\]": Rule(
        types="array<string>", database=_MICROS_OF_ITEMS,
        delta="to_json(transform({}, x -> unix_micros(CAST(x AS TIMESTAMP))))", read=document,
    ),
    r"numeric\((\d+),(\d+)\)\[\]": Rule(
        types="array<string>", database="to_json({}::text[])::text", delta="to_json({})", read=exact_items, read_delta=connect_decimals(0),
    ),
    r"numeric\[\]": Rule(
        types="array<struct<.*>>", database="to_json({}::text[])::text", delta="to_json({})", read=exact_items,
        read_delta=lambda text: json.dumps([variable_scale(json.dumps(each)) for each in json.loads(text)]),
    ),
    r"bytea\[\]": Rule(types="array<string>", database=_items("encode(x, 'base64')"), delta="to_json({})", read=document),
    r"time(\(\d\))? without time zone\[\]": Rule(types="array<.*>", database=_MICROS_OF_ITEMS, delta="to_json({})", read=document),
    "point": Rule(types="struct<.*>", database="json_build_array({0}[0], {0}[1])::text", delta="to_json(array({0}.x, {0}.y))", read=doubles),
    r"bit\(\d\d+\)|bit\([2-9]\)|bit varying\(\d+\)": Rule(types="string", read=lambda text: _little_endian(text), read_delta=lambda text: base64.b64decode(text).hex()),
}  # fmt: skip


_EXACT_TEXT: Final = Rule(types="string", database="{}::numeric::text", read=exact)
_ROUNDED: Final = Rule(types="double", database="{}::numeric::float8::text", read=number)
_EXACT_TEXTS: Final = Rule(
    types="array<string>", database="to_json({}::text[])::text", delta="to_json({})", read=exact_items
)
_MILLIS: Final = "(floor(extract(epoch FROM {}) * 1000) * 1000)::bigint::text"

#: Other rules under other settings of the connector, by these.
OTHERS: Final[dict[str, dict[str, Rule]]] = {
    "decimal.handling.mode=string": {r"numeric(\(.*\))?|money": _EXACT_TEXT, r"numeric(\(.*\))?\[\]": _EXACT_TEXTS},
    "decimal.handling.mode=double": {
        r"numeric(\(.*\))?|money": _ROUNDED,
        r"numeric(\(.*\))?\[\]": Rule(types="array<double>", database="to_json({}::float8[])::text", delta="to_json({})", read=doubles),
    },
    "time.precision.mode=connect": {
        r"time(\(\d\))? without time zone": Rule(types="bigint", database=_MILLIS),
        r"timestamp(\(\d\))? without time zone": Rule(types="timestamp", database=_MILLIS, delta="CAST(unix_micros({}) AS STRING)"),
        r"timestamp without time zone\[\]": Rule(
            types="array<timestamp>", read=document,
            database=_items("(floor(extract(epoch FROM x) * 1000) * 1000)::bigint"),
            delta="to_json(transform({}, x -> unix_micros(x)))",
        ),
    },
    "time.precision.mode=isostring": {
        r"time(\(\d\))? without time zone": Rule(types="string", database="{}::text", read=lambda text: _without_zeros(text)),
    },
    "binary.handling.mode=hex": {"bytea": Rule(types="string", database="encode({}, 'hex')")},
    "interval.handling.mode=string": {
        "interval": Rule(
            types="string", read=lambda text: json.dumps([float(each) for each in re.findall(r"-?[\d.]+", text)]),
            database="CASE WHEN {0} IS NOT NULL THEN concat_ws(' ', extract(years FROM {0}), extract(months FROM {0}), extract(days FROM {0}),"
            " extract(hours FROM {0}), extract(minutes FROM {0}), extract(microseconds FROM {0}) / 1000000) END",
        ),
    },
    "hstore.handling.mode=map": {"hstore": Rule(types="map<string,string>", database="hstore_to_json({})::text", delta="to_json({})", read=document)},
}  # fmt: skip


def _without_zeros(time: str) -> str:
    """A time of day without what ISO-8601 may leave out: the zone, if it is UTC, and seconds and fractions of zero."""
    hours, minutes, *seconds = time.removesuffix("Z").split(":")
    return f"{hours}:{minutes}:{float(*seconds or ('0',)):09.6f}"


def rule_for(kind: str, *, has_schema: bool, others: Mapping[str, Rule]) -> Rule:
    """The rule of a type as ``format_type`` names it, with its own numbers in place of ``{0}``, ``{1}``."""
    for rules in (others, TYPED) if has_schema else (others, PLAIN, TYPED):
        for pattern, rule in rules.items():
            match = re.fullmatch(pattern, kind)
            if match is None:
                continue
            found = rule
            if "{" in rule.types:
                found = replace(found, types=rule.types.format(*match.groups()))
            if (
                rules is PLAIN
                and rule.read_delta is not None
                and pattern.startswith(r"numeric\((\d+)")
                and match.lastindex == 2
            ):
                read = connect_decimals if pattern.endswith(r"\[\]") else connect_decimal
                found = replace(found, read_delta=read(int(match[2])))
            if rules is PLAIN and kind in _IN_MILLISECONDS:
                found = replace(found, database=f"(({found.database})::bigint / 1000)::text")
            return found
    raise AssertionError(f"there is no rule for {kind}")


#: Times of at most three digits are whole milliseconds.
_IN_MILLISECONDS: Final = tuple(
    f"{kind}({digits}) without time zone" for kind in ("time", "timestamp") for digits in range(4)
)


def differences(rules: Mapping[str, Rule], wanted: list[Any], landed: list[Any]) -> list[str]:
    """Texts of how rows differ; the rows of both sides have the texts of their expressions, by column."""
    left = [{name: rule.of_database(row[name]) for name, rule in rules.items()} for row in wanted]
    right = [{name: rule.of_delta(row[name]) for name, rule in rules.items()} for row in landed]
    found = []
    for row in list(left):
        if row in right:
            left.remove(row)
            right.remove(row)
    for row in left:
        other = next((each for each in right if next(iter(each.values())) == next(iter(row.values()))), None)
        if other is None:
            found.append(f"lacks {_shown(row)}")
        else:
            right.remove(other)
            found += [
                f"{name} {_short(other[name])} and not {_short(row[name])} (row {_short(next(iter(row.values())))})"
                for name in row
                if row[name] != other[name]
            ]
    return found + [f"has {_shown(row)}" for row in right]


def _shown(row: dict[str, str | None]) -> str:
    return "{" + ", ".join(f"{name}: {_short(value)}" for name, value in row.items()) + "}"


def _short(value: str | None) -> str:
    return "null" if value is None else repr(value if len(value) < 60 else value[:50] + f"… {len(value)}")
