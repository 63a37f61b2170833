"""What each of MariaDB's types must be in a Delta table, as :mod:`tests.debezium.rules` has it of PostgreSQL's."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Final

from tests.debezium.rules import (
    ANY_WHOLE,
    TEXT,
    WHOLE,
    Rule,
    connect_decimal,
    doubles,
    exact,
    number,
    same,
    single,
)

_TEXT: Final = "CAST({} AS CHAR)"
_HEX: Final = "lower(hex({}))"
_DAYS: Final = "CAST(DATEDIFF({}, '1970-01-01') AS CHAR)"
_MICROS: Final = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) AS CHAR)"
_MICROS_OF_DAY: Final = "CAST(CAST(TIME_TO_SEC({}) * 1000000 AS SIGNED) AS CHAR)"
_POINT: Final = "CONCAT('[', ST_X({0}), ',', ST_Y({0}), ']')"
_WKB: Final = "lower(hex(ST_AsWKB({})))"


def _little_endian(text: str) -> str:
    return str(int.from_bytes(bytes.fromhex(text), "little"))


def _base64_little_endian(text: str) -> str:
    return str(int.from_bytes(base64.b64decode(text), "little"))


#: MariaDB's type, as a regular expression -> what lands where there is a schema.
TYPED: Final[dict[str, Rule]] = {
    r"bigint\(\d+\) unsigned": Rule(types=r"decimal\(\d+,0\)", database=_TEXT, read=exact),
    r"(tiny|small|medium|big)?int\(\d+\)( unsigned)?( zerofill)?": Rule(types=WHOLE, database="CAST({} + 0 AS CHAR)"),
    "float": Rule(types="float|double", database="CAST({} + 0e0 AS CHAR)", read=single),
    "double": Rule(types="double", database=_TEXT, read=number),
    r"decimal\((\d+),(\d+)\)( unsigned)?": Rule(types=r"decimal\({0},{1}\)", database=_TEXT, read=exact),
    r"varchar\(\d+\)|char\(\d+\)|(tiny|medium|long)?text|enum\(.*\)|set\(.*\)": replace(TEXT, database=_TEXT),
    r"(var)?binary\(\d+\)|(tiny|medium|long)?blob": Rule(types="binary", database=_HEX, delta=_HEX),
    "year\\(4\\)": Rule(types=WHOLE, database="CAST({} + 0 AS CHAR)"),
    "date": Rule(types="date", database=_DAYS, delta="CAST(unix_date({}) AS STRING)"),
    r"datetime(\(\d\))?": Rule(
        types="timestamp_ntz", database=_MICROS, delta="CAST(unix_micros(CAST({} AS TIMESTAMP)) AS STRING)"
    ),
    r"timestamp(\(\d\))?": Rule(types="timestamp", database=_MICROS, delta="CAST(unix_micros({}) AS STRING)"),
    # Up to 838 hours, and negative.
    r"time(\(\d\))?": Rule(types="bigint", database=_MICROS_OF_DAY),
    r"bit\(1\)": Rule(types="boolean", database="IF({0} IS NULL, NULL, IF({0} + 0 = 1, 'true', 'false'))"),
    r"bit\(\d+\)": Rule(types="binary", database="CAST({} + 0 AS CHAR)", delta=_HEX, read_delta=_little_endian),
    "point": Rule(
        types="struct<x:double,y:double,wkb:binary,srid:int>",
        database=_POINT, delta="IF({0} IS NULL, NULL, to_json(array({0}.x, {0}.y)))", read=doubles,
    ),
    "geometry|linestring|polygon": Rule(types="struct<wkb:binary,srid:int>", database=_WKB, delta="lower(hex({}.wkb))"),
}  # fmt: skip

_BASE64: Final = "REPLACE(TO_BASE64({}), '\\n', '')"

#: The same where there is no schema: what JSON has.
PLAIN: Final[dict[str, Rule]] = {
    r"bigint\(\d+\) unsigned": Rule(types="string", database=_TEXT, read=exact, read_delta=connect_decimal(0)),
    r"(tiny|small|medium|big)?int\(\d+\)( unsigned)?( zerofill)?": Rule(types=ANY_WHOLE, database="CAST({} + 0 AS CHAR)"),
    "float": Rule(types="double", database="CAST({} + 0e0 AS CHAR)", read=single),
    r"decimal\((\d+),(\d+)\)( unsigned)?": Rule(types="string", database=_TEXT, read=exact, read_delta=connect_decimal(0)),
    r"(var)?binary\(\d+\)|(tiny|medium|long)?blob": Rule(types="string", database=_BASE64),
    "date": Rule(types=ANY_WHOLE, database=_DAYS),
    r"datetime(\([0-3]\))?": Rule(
        types=ANY_WHOLE, database="CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000 AS CHAR)"
    ),
    r"datetime\([4-6]\)": Rule(types=ANY_WHOLE, database=_MICROS),
    r"timestamp(\(\d\))?": Rule(
        types="string", database=_MICROS, delta="CAST(unix_micros(try_cast({} AS TIMESTAMP)) AS STRING)"
    ),
    r"time(\(\d\))?": Rule(types=ANY_WHOLE, database=_MICROS_OF_DAY),
    r"bit\((?!1\))\d+\)": Rule(types="string", database="CAST({} + 0 AS CHAR)", read_delta=_base64_little_endian),
    "point": Rule(types="struct<.*>", database=_POINT, delta="IF({0} IS NULL, NULL, to_json(array({0}.x, {0}.y)))", read=doubles),
    "geometry|linestring|polygon": Rule(
        types="struct<.*>", database="REPLACE(TO_BASE64(ST_AsWKB({})), '\\n', '')", delta="{}.wkb"
    ),
}  # fmt: skip


def rule_for(kind: str, *, has_schema: bool) -> Rule:
    """The rule of a type as MariaDB names it."""
    for rules in (TYPED,) if has_schema else (PLAIN, TYPED):
        for pattern, rule in rules.items():
            match = re.fullmatch(pattern, kind)
            if match is None:
                continue
            if "{" in rule.types:
                return replace(rule, types=rule.types.format(*match.groups()))
            if rules is PLAIN and kind.startswith("decimal"):
                return replace(rule, read_delta=connect_decimal(int(match[2])))
            return replace(rule, read_delta=rule.read_delta or (same if rule.read is same else rule.read))
    raise AssertionError(f"there is no rule for {kind}")
