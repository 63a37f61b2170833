"""Spark's DDL of types, read without Spark: workers have no session, and only a session's JVM parses DDL.

Owns the grammar of types, as far as values have such types. TIMESTAMP is TIMESTAMP_LTZ here, whatever the session's
``spark.sql.timestampType`` is. NOT NULL and comments have no effect. https://spark.apache.org/docs/latest/sql-ref-datatypes.html
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from pykafka_wire.values.single_json.variant_type import VARIANT

_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": VARIANT,
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
#: Spark's own default and maximum.
_DECIMAL_DIGITS: Final = 10
_MAX_DECIMAL_DIGITS: Final = 38
#: Far deeper than tables are; each level is a Python call.
_MAX_DEPTH: Final = 100
_TOKEN: Final = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>\w+)|(?P<mark>[<>(),:]))"
)


class DdlError(ValueError):
    """A text that is no type, or one that no value can have; the message says where."""


def arrow_type(ddl: str) -> pa.DataType:
    """Return the Arrow type of a DDL: a list of fields is a struct, as in ``id BIGINT, tags ARRAY<STRING>``.

    Raises:
        DdlError: it is not valid, or has a type that no value can have.
    """
    parser = _DdlParser(ddl)
    parsed = parser.data_type(0) if parser.is_single_type() else parser.struct(0, end=None)
    parser.expect_end()
    return parsed


class _DdlParser:
    """Reads tokens from left to right: each is (kind, text, position)."""

    def __init__(self, ddl: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        position = 0
        while ddl[position:].strip():
            match = _TOKEN.match(ddl, position)
            if match is None:
                raise DdlError(f"unexpected {ddl[position:].lstrip()[:20]!r}")
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self._next = 0

    def is_single_type(self) -> bool:
        """Return whether the text is one type, not fields: a field has a type behind its name."""
        is_word = self._kind() == "word"
        return is_word and (len(self._tokens) == 1 or self._tokens[1][1] in ("<", "("))

    def struct(self, depth: int, *, end: str | None) -> pa.DataType:
        fields: list[tuple[str, pa.DataType]] = []
        while self._kind() and self._mark() != end:
            name = self._name()
            self._skip(":")
            parsed = self.data_type(depth)
            if self._keyword() == "not":
                self._next += 1
                self._expect_word("null")
            if self._keyword() == "comment":
                self._next += 1
                if self._kind() != "text":
                    raise self._error("a comment in quotes")
                while self._kind() == "text":  # 'it''s' is two of them
                    self._next += 1
            if any(name == other for other, _ in fields):
                raise DdlError(f"the field {name} is there twice")
            fields.append((name, parsed))
            if not self._skip(","):
                break
            if not self._kind() or self._mark() == end:
                raise self._error("a field")
        if not fields:
            raise self._error("a field")
        return pa.struct(fields)

    def data_type(self, depth: int) -> pa.DataType:
        if depth > _MAX_DEPTH:
            raise DdlError(f"it is nested deeper than {_MAX_DEPTH} types")
        name = self._keyword()
        if self._kind() != "word":
            raise self._error("a type")
        self._next += 1
        if name == "struct":
            return self._parametric(lambda: self.struct(depth + 1, end=">"))
        if name == "array":
            return self._parametric(lambda: pa.list_(pa.field("element", self.data_type(depth + 1))))
        if name == "map":
            return self._parametric(lambda: self._map(depth + 1))
        if name in _DECIMALS:
            return self._decimal()
        simple = _TYPES.get(name)
        if simple is None:
            self._next -= 1
            raise self._error("a type such as BIGINT, DOUBLE, STRING or TIMESTAMP")
        return simple

    def expect_end(self) -> None:
        if self._kind():
            raise self._error("its end")

    def _parametric(self, inner: Callable[[], pa.DataType]) -> pa.DataType:
        self._expect("<")
        parsed = inner()
        self._expect(">")
        return parsed

    def _map(self, depth: int) -> pa.DataType:
        key = self.data_type(depth)
        self._expect(",")
        return pa.map_(key, self.data_type(depth))

    def _decimal(self) -> pa.DataType:
        digits, scale = _DECIMAL_DIGITS, 0
        if self._skip("("):
            digits = self._integer()
            if self._skip(","):
                scale = self._integer()
            self._expect(")")
        if not (0 < digits <= _MAX_DECIMAL_DIGITS and scale <= digits):
            raise DdlError(
                f"a decimal has 1 to {_MAX_DECIMAL_DIGITS} digits and no more decimal places than digits, not ({digits},{scale})"
            )
        return pa.decimal128(digits, scale)

    def _kind(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _mark(self) -> str:
        return self._tokens[self._next][1] if self._kind() == "mark" else ""

    def _keyword(self) -> str:
        return self._tokens[self._next][1].lower() if self._kind() == "word" else ""

    def _name(self) -> str:
        kind = self._kind()
        if kind not in ("word", "quoted"):
            raise self._error("a field's name")
        text = self._tokens[self._next][1]
        self._next += 1
        return text.replace("``", "`") if kind == "quoted" else text

    def _integer(self) -> int:
        text = self._keyword()
        if not (text.isascii() and text.isdigit() and len(text) < 4):
            raise self._error("a number of digits")
        self._next += 1
        return int(text)

    def _skip(self, mark: str) -> bool:
        is_next = self._mark() == mark
        self._next += is_next
        return is_next

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._error(f"{mark!r}")

    def _expect_word(self, word: str) -> None:
        if self._keyword() != word:
            raise self._error(word.upper())
        self._next += 1

    def _error(self, expected: str) -> DdlError:
        if not self._kind():
            return DdlError(f"it ends where {expected} is expected")
        _, text, position = self._tokens[self._next]
        return DdlError(f"{text!r} at character {position + 1} where {expected} is expected")
