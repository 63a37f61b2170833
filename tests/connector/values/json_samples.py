"""Random Arrow types, and random JSON documents of them: also written in unusual ways, with values of other types, and damaged."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa

SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(9, 2),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
]
TEXTS = [
    "",
    "a",
    "Infant, Inf}",
    "näme",
    "😀",
    'quo"te',
    "back\\slash",
    "line\nbreak",
    "\x00\x1f",
    "}{",
    "null",
    "-NaN",
]
#: Those without escapes.
PLAIN_TEXTS = [text for text in TEXTS if json.dumps(text, ensure_ascii=False) == f'"{text}"']
WRONG = [
    "null", "true", "1", "-1", "-0", "-0.0", "1.0", "1e2", "0.001", "300", "99999999999999999999", "NaN", "Infinity", "Inf",
    "-NaN", "01",
    '""', '"x"', '"1"', '"1.5"', '"NaN"', '"2026-03-01"', '"2026-03-01T12:30:00+01:00"', '"AAA"', "[]", "{}", "[1]",
    '{"a":1}', '"\\ud800"', '"\\udc00"', "1e400", "1e-400", '"0000-01-01"', '"2026-3-1"', "1234567.891",
]  # fmt: skip


#: A document has no more items of arrays and maps: forty levels of them would multiply beyond any memory.
MAX_ITEMS = 2_000


class JsonSamples:
    def __init__(self, seed: int, *, maps: bool = False) -> None:
        self.random = random.Random(seed)
        self._maps = maps
        self._items_left = MAX_ITEMS

    def struct(self, depth: int = 0) -> pa.DataType:
        names = self.random.sample(
            ["id", "a", "B", "b", "näme", "x y", 'q"', "items", "null"], self.random.randint(1, 6)
        )
        return pa.struct([(name, self._type(depth + 1)) for name in names])

    def _type(self, depth: int) -> pa.DataType:
        chance = self.random.random()
        if depth < 4 and chance < 0.15:
            return self.struct(depth)
        if depth < 4 and chance < 0.3:
            return pa.list_(pa.field("element", self._type(depth + 1)))
        if self._maps and depth < 4 and chance < 0.4:
            return pa.map_(pa.string(), self._type(depth + 1))
        return self.random.choice(SCALARS)

    def document(self, column_type: pa.DataType, share_wrong: float = 0.0) -> bytes:
        self._items_left = MAX_ITEMS
        return self._text(column_type, share_wrong, top=True).encode()

    def flat(self, column_type: pa.DataType) -> bytes:
        """A document of scalars as most producers write it: members in one order, some left out, no white space, no escapes, times
        of one form."""
        kept = [field for field in column_type if self.random.random() < 0.95]
        return ("{" + ",".join(f'"{field.name}":{self._plain(field.type)}' for field in kept) + "}").encode()

    def _plain(self, wanted: pa.DataType) -> str:
        rng = self.random
        if pa.types.is_string(wanted):
            return f'"{rng.choice(PLAIN_TEXTS)}"'
        if pa.types.is_decimal(wanted):
            return self._scalar(wanted).strip('"')
        if not pa.types.is_temporal(wanted):
            return self._scalar(wanted)
        day = f"{rng.randrange(1900, 2100)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        if pa.types.is_date(wanted):
            return f'"{day}"'
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(10**6):06}"
        return f'"{day}T{clock}{"Z" if wanted.tz else ""}"'

    def _text(self, wanted: pa.DataType, share_wrong: float, *, top: bool = False) -> str:
        if not top and self.random.random() < share_wrong:
            return self.random.choice(WRONG)
        if not top and self.random.random() < 0.1:
            return "null"
        if pa.types.is_struct(wanted):
            fields = [
                (field.name, self._text(field.type, share_wrong)) for field in wanted if self.random.random() < 0.9
            ]
            if self.random.random() < 0.2:
                fields.append(
                    ("skipped", self.random.choice(('{"id":[{"a":null}]}', "[1,{}]", '"}{"', "null", "1.50")))
                )
            self.random.shuffle(fields)
            space = self.random.choice(("", "", "", " ", "\n  "))
            return "{" + ",".join(f"{space}{self._key(name)}:{space}{value}" for name, value in fields) + space + "}"
        if pa.types.is_list(wanted):
            return "[" + ",".join(self._text(wanted.value_type, share_wrong) for _ in range(self._n_items())) + "]"
        if pa.types.is_map(wanted):
            keys = self.random.sample(["a", "b", "", "é", 'k"'], self._n_items())
            return "{" + ",".join(f"{self._key(key)}:{self._text(wanted.item_type, share_wrong)}" for key in keys) + "}"
        return self._scalar(wanted)

    def _n_items(self) -> int:
        n = min(self.random.randrange(4), self._items_left)
        self._items_left -= n
        return n

    def _key(self, name: str) -> str:
        return json.dumps(name, ensure_ascii=self.random.random() < 0.5)

    def _scalar(self, wanted: pa.DataType) -> str:
        is_a, rng = pa.types, self.random
        if is_a.is_boolean(wanted):
            return rng.choice(("true", "false"))
        if is_a.is_integer(wanted):
            most = 2 ** (wanted.bit_width - 1)
            return str(rng.choice((0, 1, -1, most - 1, -most, rng.randrange(-most, most))))
        if is_a.is_floating(wanted):
            if rng.random() < 0.2:
                return rng.choice(("0", "-0", "-0.0", "-0e0", "-0E-7", "0.0"))
            number: Any = rng.choice((0.1, 1e-7, 16777217, 9007199254740993, rng.random(), rng.gauss(0, 1e6), 1e30))
            return rng.choice((json.dumps, lambda each: f"{each:E}"))(number)
        if is_a.is_decimal(wanted):
            whole = rng.randrange(10 ** rng.randrange(1, wanted.precision - wanted.scale + 1))
            text = f"{rng.choice(('', '-'))}{whole}.{rng.randrange(100):0{2}}"
            return rng.choice((text, f'"{text}"', str(whole)))
        if is_a.is_string(wanted):
            return self._key(rng.choice(TEXTS) + rng.choice(TEXTS))
        if is_a.is_binary(wanted):
            return rng.choice(('""', '"AA=="', '"AAA="', '"AAAA"', '"+/8="', '"c29tZSBsb25nZXIgdGV4dA=="'))
        day = f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        if is_a.is_date(wanted):
            return f'"{day}"'
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        fraction = rng.choice(("", ".5", ".123", ".123456", ".123456789" if rng.random() < 0.02 else ""))
        zone = (
            rng.choice(("", "Z", "+01:00", "-0330", "+02", " Asia/Kolkata" if rng.random() < 0.02 else "Z"))
            if wanted.tz
            else ""
        )
        return f'"{day}{rng.choice("T ")}{clock}{fraction}{zone}"'

    def damaged(self, value: bytes) -> bytes:
        place = self.random.randrange(len(value) + 1)
        return self.random.choice(
            (
                value[:place],
                value[:place] + bytes([self.random.randrange(256)]) + value[place + 1 :],
                value[:place]
                + self.random.choice((b"}", b"{", b'"', b"\n", b"null", b"\0", b",", b"\\"))
                + value[place:],
                value + self.random.choice((b"\n{}", b"null{}", b" x", b"\xff", b"}", b"\n")),
            )
        )
