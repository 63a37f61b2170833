"""A JSON document becomes the same row or reject alone, beside a few documents, and beside all documents of its topic."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from pykafka_wire.ingest import Table
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import FACTOR, examples

REJECT: Final = "a reject"
N_DOCUMENTS: Final = 120 if FACTOR else 72
#: The documents of a topic are one micro-batch of one table, and this many micro-batches of others.
N_GROUPS: Final = 20 if FACTOR else 6
#: Values for each column that the tables have, in JSON. No value changes a column's type.
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "f": ("1.5", "2", "1e400", "-Infinity", "NaN", '"NaN"', '"x"', '"2"', "0.1234567890123456789", "1e22", "true",
          "12345678901234567", "[1]", '{"a":1}', "-0.0", "-0", "null"),
    "n": ("123456789012345678e1", "1234.5e3", "123456789.123456789012345678901234567890", "1e-5", '"x"', '"5"', "-0.0",
          "1e30", "-Infinity", "1e400", "7", "0.12345678901234567890123456789012345678901", "1e-60", "true", '{"a":1e400}'),
    "d": ("18446744073709551616", "1e2", "1e30", "10.0", "1.5", '"x"', '"7"', "true", "-3", "123456789012345678901e3", "1e400",
          "99999999999999999999999999999999999999", "1e-400"),
    "b": ("5", "-0", "-9223372036854775808", '"5"', '"x"', "true", "null", "[]"),
    "s": ('"x"', "1.50", "1e2", '{"a": 1e2,  "b":1.500}', "true", "[1.0]", "NaN", '"NaN"', r'"\ud800"', "-Infinity",
          "12345678901234567890123456789012345678901234567890", '"5"', "1e400", '"\u2028"'),
    "o": ('{"a":1}', '{"a":"x"}', '"x"', "5", "[1]", '{"a":9007199254740993}', "{}"),
    "l": ("[1.5]", "[]", '[1.5,"x"]', "[1e400]", "5", "[null,2]", '["NaN"]', "[0.1234567890123456789]"),
}  # fmt: skip
#: A document with a value in each column, so that the table has all columns.
FIRST: Final = (
    '{"f":1.5,"n":0.1234567890123456789,"d":18446744073709551616,"b":1,"s":"x","o":{"a":1},"l":[1.5]'
    ',"payload":{"f":1.5,"id":1},"schema":{"type":"v","title":"t"}}'
)
#: Connect's schemas for each column, with payloads that fit and that do not. No schema changes a column's type.
NUMERIC: Final = '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}'
#: Texts that no encoder writes for bytes, although some decoders accept them.
NO_BASE64: Final = ('""', '"12"', '"AQ"', '"A Q=="')
OBJECT_FIELDS: Final = (
    {"field": "a", "type": "int64", "optional": True},
    {"field": "b", "type": "double", "optional": True},
)
OBJECT: Final = json.dumps({"type": "struct", "fields": OBJECT_FIELDS})
SCALED: Final = json.dumps(
    {
        "type": "struct",
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
    }
)
ZONED: Final = '{"type":"string","name":"io.debezium.time.ZonedTimestamp"}'
LIST: Final = '{"type":"array","items":{"type":"int64"}}'
MOMENT: Final = '{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp"}'
TEXTS: Final = ('"x"', '"5"', '""', '"NaN"', '"AQ=="', "5", "null")
OF_SCHEMAS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "x": {
        OBJECT: ('{"a":5,"b":2.5}', '{"a":"5","b":2.5}', '{"a":99999999999999999999,"b":2.5}', '{"a":7,"b":true}', '{"b":1e400}',
                 '{"a":1,"b":2.5,"c":3}', "{}", '"x"', "5", "[]", "null"),
        '{"type":"string"}': (*TEXTS, '{"a":"a"}'),
    },
    "t": {
        '{"type":"string"}': TEXTS,
        '{"type":"double"}': ("1.0", "1.0E-7", "2", "1e400", '"x"', "-0.0", "null"),
        NUMERIC: ('"AQ=="', *NO_BASE64, "1.5", "1.50", "1e2", '"x"', "1.239", "1e-50", "true", '{"a":1}', "null"),
        OBJECT: ('{"b":1.50,"a":1}', '{"a": 1}', "5"),
        '{"type":"boolean"}': ("true", '"true"', "1"),
    },
    "d": {
        '{"type":"double"}': ("1.5", "1e400", '"1.5"', "2", "NaN", '"NaN"', "-0.0", "0.1234567890123456789", "true", "null"),
        '{"type":"float"}': ("1.5", "1e39", "0.1", '"1.5"'),
        '{"type":"int32"}': ("5", "5.0", "5.5", '"5"', "99999999999", "null"),
        '{"type":"int64"}': ("5", "9007199254740993", '" 5"', "5.0"),
        '{"type":"string"}': TEXTS,
    },
    "m": {
        NUMERIC: ('"AQ=="', '"AQID"', *NO_BASE64, "1.5", "1.239", "1e2", '"x"', "7", '"1.50"', "null", "true", "NaN", "1e400",
                  "1e-60"),
        NUMERIC.replace('"2"', '"1"'): ('"AQ=="', "1.5", "1.25", '"/w=="', "null"),
        '{"type":"int64"}': ("5", "5.0", '"5"', "99999999999999999999"),
        '{"type":"string"}': TEXTS,
    },
    "y": {
        '{"type":"boolean"}': ("true", '"yes"', "1", '"true"', "null"),
        '{"type":"string"}': TEXTS,
        '{"type":"int8"}': ("1", "0"),
    },
    "z": {'{"type":"bytes"}': ('"YWI="', '"YWI"', '"Y W I="', '"é"', "5", "null"), '{"type":"string"}': TEXTS},
    "i": {
        '{"type":"int64"}': ("5", "5.0", '" 5"', '"5"', "9223372036854775808", "1e2", "true", "null"),
        '{"type":"int16"}': ("5", "40000", '"5"'), '{"type":"string"}': TEXTS, '{"type":"boolean"}': ("true",),
    },
    "l": {
        LIST: ('["5",6]', "[5,6]", "[]", "[5.0]", '["x"]', "5", "[null]", "[99999999999999999999]"),
        '{"type":"array","items":{"type":"int32"}}': ("[5,6]", "[99999999999]"), '{"type":"string"}': TEXTS,
    },
    "v": {
        SCALED: ('{"scale":2,"value":"AQ=="}', '{"scale":0,"value":"/w=="}', '{"scale":2,"value":true}', '{"scale":2,"value":12}'),
    },
    "w": {ZONED: ('"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00.123+05:30"', '"12:30"', "2024", '"x"', "null")},
    "u": {
        MOMENT: ("1700000000000", '"1700000000000"', "1700000000000.5", "99999999999999999", "-1", '"2024-01-01T00:00:00Z"'),
        '{"type":"int64"}': ("1700000000000",), '{"type":"string"}': ('"2024-01-01T00:00:00Z"', "null"),
    },
}  # fmt: skip
#: Payloads that their own schema does not allow, though they look like one that is allowed.
NOT_ALLOWED: Final = frozenset(
    {(NUMERIC, text) for text in ("true", "NaN", *NO_BASE64)}
    | {(ZONED, '"12:30"'), (ZONED, "2024")}
    | {(SCALED, text) for text in OF_SCHEMAS["v"][SCALED] if "true" in text or ":12}" in text}
)
DECLARED: Final = "id BIGINT, type STRING, o STRUCT<a: BIGINT>"
UPSERT: Final[dict[str, Any]] = {"mode": "upsert", "key_format": "string"}
#: Schemas of applications: none of them is Connect's.
OWN_SCHEMAS: Final = (
    '{"type":"object","title":"Order"}', '{"type":"struct"}', '{"type":"v1"}', '{"title":"t"}', '{"type":"array"}', "{}",
    '{"type":"struct","fields":[7]}', '{"type":"struct","fields":[{"field":"f","type":"number"}]}', '{"type":["null","object"]}',
)  # fmt: skip
Make = Callable[[random.Random], "Document"]


@dataclass(frozen=True)
class Document:
    """A document's text, and what becomes of it: a row, :data:`REJECT`, or None if the test only compares."""

    text: str
    wanted: Any = None


def object_of(members: dict[str, str], make: random.Random) -> str:
    """Return a JSON object, written in one of several ways."""
    colon, comma = make.choice(((":", ","), (": ", ", "), (" :", " ,\n ")))
    names = {name: json.dumps(name) for name in members}
    if make.random() < 0.1:
        names = {name: f'"\\u{ord(name[0]):04x}{name[1:]}"' for name in members}
    text = "{" + comma.join(f"{names[name]}{colon}{value}" for name, value in members.items()) + "}"
    return make.choice(("", "", "", " ", "\n")) + text


def fields(make: random.Random, n_most: int = 2) -> dict[str, str]:
    names = make.sample(sorted(VALUES), make.randint(1, n_most))
    return {name: make.choice(VALUES[name]) for name in names}


def shuffled(members: dict[str, str], make: random.Random) -> dict[str, str]:
    return dict(make.sample(sorted(members.items()), len(members)))


def connect_schema(types: dict[str, str]) -> str:
    declared = [{"field": name, "type": kind, "optional": True} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": declared, "optional": False})


def inferred_document(make: random.Random) -> Document:
    kind = make.choice(("plain", "plain", "plain", "named", "own", "loose", "connect", "whole", "broken"))
    if kind == "plain":
        return Document(object_of(fields(make), make))
    if kind == "named":  # a plain document with a field that envelopes have
        more = make.choice(
            ({"payload": '{"f":2.5}'}, {"schema": '{"type":"w"}'}, {"payload": '"x"'}, {"schema": "null"})
        )
        return Document(object_of(shuffled({**fields(make), **more}, make), make))
    if kind == "own":
        schema, n = make.choice(OWN_SCHEMAS[:3:2]), make.randint(1, 99)
        members = {"schema": schema, "payload": f'{{"id":{n}}}'}
        wanted = {"schema": json.loads(schema), "payload": {"id": Decimal(n)}}
        return Document(object_of(shuffled(members, make), make), wanted)
    if kind == "loose":
        payload = make.choice((object_of(fields(make), make), "5", "null", '"x"'))
        return Document(object_of(shuffled({"schema": "null", "payload": payload}, make), make))
    if kind == "connect":
        n, text = make.randint(1, 99), make.choice(("x", "5", "NaN"))
        schema = connect_schema(
            make.choice(({"b": "int64", "s": "string"}, {"s": "string", "b": "int32", "f": "double"}))
        )
        payload = {"b": str(n), "s": json.dumps(text)}
        wanted = {"b": Decimal(n), "s": text}
        return Document(
            object_of(shuffled({"schema": schema, "payload": object_of(payload, make)}, make), make), wanted
        )
    if kind == "whole":
        return Document(make.choice(("5", '"x"', "[]", "true", "null ", "[1]", "NaN")))
    return Document(
        make.choice(("{", '{"s":"x"} x', '{"s":"a"}{"s":"b"}', "{'s':'x'}", '{"schema":null,"payload":{"s":1}', "")),
        REJECT,
    )


def of_schemas(members: dict[str, tuple[str, str]]) -> str:
    """Return a document in Connect's envelope: for each column a schema and a payload."""
    fields = [{**json.loads(schema), "field": name, "optional": True} for name, (schema, _) in members.items()]
    payload = ",".join(f'"{name}":{text}' for name, (_, text) in members.items())
    return f'{{"schema":{json.dumps({"type": "struct", "fields": fields})},"payload":{{{payload}}}}}'


#: A document with a payload of the first schema of each column, so that the table has all columns.
FIRST_OF_SCHEMAS: Final = of_schemas(
    {name: (schema, texts[0]) for name, ways in OF_SCHEMAS.items() for schema, texts in [next(iter(ways.items()))]}
)


def document_of_schemas(make: random.Random) -> Document:
    """A document of one of several schemas; some have another document's first bytes and are something else."""
    members: dict[str, tuple[str, str]] = {}
    for name in make.sample(sorted(OF_SCHEMAS), make.choice((1, 1, 2))):
        schema = make.choice(list(OF_SCHEMAS[name]))
        members[name] = (schema, make.choice(OF_SCHEMAS[name][schema]))
    text, kind = of_schemas(members), make.random()
    if kind < 0.03:
        return Document(text[:-1] + ',"z":{"a":1}}')
    if kind < 0.06:
        other = make.choice(sorted(OF_SCHEMAS["x"]))
        schema = json.dumps({"type": "struct", "fields": [{**json.loads(other), "field": "x", "optional": True}]})
        return Document(f'{text[:-1]},"schema":{schema}}}')
    if kind < 0.09:
        return Document(text[:-2] + "oops}}", REJECT)
    return Document(text, REJECT if NOT_ALLOWED.intersection(members.values()) else None)


def declared_document(make: random.Random) -> Document:
    n, text = make.randint(1, 99), make.choice("abc")
    row, wanted = {"id": str(n), "type": json.dumps(text)}, {"id": Decimal(n), "type": text}
    odd = make.choice(('{"x":1}', f'{{"id":{n + 1},"type":"z"}}', "5", '"x"', "null", "[]"))
    kind = make.choice(("plain", "named", "only", "own", "loose", "connect", "three", "null", "wrong", "none"))
    if kind == "plain":
        return Document(object_of(shuffled(row, make), make), wanted)
    if kind == "named":
        more = make.choice(({"payload": odd}, {"schema": odd}, {"schema": "null", "payload": odd}))
        return Document(object_of(shuffled({**row, **more}, make), make), wanted)
    if kind == "only":
        return Document(object_of({"payload": odd}, make), {})
    if kind == "own":
        members = {"schema": make.choice(OWN_SCHEMAS), "payload": odd}
        return Document(object_of(shuffled(members, make), make), {})
    if kind in ("loose", "connect", "three"):
        schema = "null" if kind == "loose" else connect_schema({"id": "int64", "type": "string"})
        members = {"schema": schema, "payload": object_of(row, make)}
        if kind == "three":
            members, wanted = {**members, "more": "1"}, {}
        return Document(object_of(shuffled(members, make), make), wanted)
    if kind == "none":
        return Document('{"other":1}', {})
    return Document(f'{{"schema":null,"payload":{"null" if kind == "null" else "5"}}}', REJECT)


#: The ways of reading: how documents are made, the document that makes the table, and the settings.
WAYS: Final[dict[str, tuple[Make, str, dict[str, Any]]]] = {
    "inferred": (inferred_document, FIRST, {}),
    "schemas": (document_of_schemas, FIRST_OF_SCHEMAS, {}),
    "declared": (declared_document, '{"id":0,"type":"first"}', {"schema": DECLARED}),
    "upserted": (declared_document, '{"id":0,"type":"first"}', {"schema": DECLARED, **UPSERT}),
    **({"merged": (inferred_document, FIRST, UPSERT)} if FACTOR else {}),
}  # fmt: skip


def value_of(cell: Any) -> Any:
    """A cell without fields that are null; numbers by what they say."""
    if isinstance(cell, Row):
        cells = {name: value_of(inner) for name, inner in cell.asDict().items()}
        return {name: inner for name, inner in cells.items() if inner is not None}
    if isinstance(cell, list):
        return [value_of(item) for item in cell]
    if cell is None or isinstance(cell, bool | str | bytes | bytearray | datetime):
        return cell
    number = Decimal(repr(cell)) if isinstance(cell, int | float) else cell
    return str(number) if not number.is_finite() else number


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@given(st.integers(0, 2**40))
@examples(1)
def test_a_document_becomes_the_same_whatever_is_beside_it(shop: Shop, seed: int) -> None:
    lot = uuid.uuid4().hex[:8]
    shop.folder = shop.folder / lot
    documents = {
        way: [made(random.Random(f"{seed} {way} {n}")) for n in range(N_DOCUMENTS)]
        for way, (made, _, _) in WAYS.items()
    }
    #: The name of each topic: the way, and the numbers of its documents.
    topics: dict[str, tuple[str, list[int]]] = {}
    for way in WAYS:
        numbers = random.Random(f"{seed} {way}").sample(range(N_DOCUMENTS), N_DOCUMENTS)
        topics[f"{lot}_{way}_whole"] = (way, numbers)
        n_groups = 1 if "mode" in WAYS[way][2] else N_GROUPS  # a MERGE takes long
        n = N_DOCUMENTS // N_GROUPS
        topics |= {f"{lot}_{way}_{nth}": (way, numbers[nth * n : (nth + 1) * n]) for nth in range(n_groups)}
    tables = [Table(topic=rf".*\.{lot}_{way}_.*", format="json", **asked) for way, (_, _, asked) in WAYS.items()]
    asked = {"topics": rf"{shop.prefix}\.{lot}.*", "tables": tables, "registry": None}

    def send(name: str, texts: list[str], first: int) -> None:
        records = [
            shop.outside.Record(key=b"%d" % (first + n), value=text.encode("utf-8", "surrogatepass"), partition=0)
            for n, text in enumerate(texts)
        ]
        shop.outside.produce(f"{shop.prefix}.{name}", records)

    for name, (way, _) in topics.items():
        shop.create(name, partitions=1)
        send(name, [WAYS[way][1]], 0)
    shop.run(**asked)
    for name, (way, numbers) in topics.items():
        send(name, [documents[way][n].text for n in numbers], 1)
    ingest = shop.run(**asked)
    assert {name: status.error for name, status in ingest.statuses.items() if status.error} == {}
    rejects = {(row.topic, row.offset) for row in shop.table("_rejects").select("topic", "offset").collect()}
    became: dict[tuple[str, int], dict[str, Any]] = {}
    for name, (way, numbers) in topics.items():
        table = shop.table(name)
        columns = [column for column in table.columns if not column.startswith("_kafka_")]
        rows = {row["_kafka_offset"]: value_of(Row(**{c: row[c] for c in columns})) for row in table.collect()}
        for offset, n in enumerate(numbers, start=1):
            is_reject = (f"{shop.prefix}.{name}", offset) in rejects
            # A document that is null deletes the row of its key.
            is_absent = is_reject or ("mode" in WAYS[way][2] and documents[way][n].text.strip() == "null")
            assert is_absent is (offset not in rows), (name, documents[way][n].text)
            outcome = rows.get(offset, REJECT if is_reject else None)
            became.setdefault((way, n), {})[name.removeprefix(f"{lot}_{way}_")] = outcome
    wrong = []
    for (way, n), outcomes in became.items():
        document = documents[way][n]
        values = list(outcomes.values()) + ([] if document.wanted is None else [document.wanted])
        if any(value != values[0] for value in values):
            wrong.append((way, document.text, outcomes, document.wanted))
    assert wrong == [], "\n".join(map(repr, wrong))
