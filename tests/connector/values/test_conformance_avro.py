"""Random Avro schemas, values and readers' schemas, beside Apache Avro's Java library and fastavro.

`make test` tries some hundreds, `make conformance-values` 20,000 schemas and 5,000 pairs of schemas (CONFORMANCE_VALUES, which
counts the schemas; CONFORMANCE_FIRST is the first one's seed). A failure names its seed.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.column_reader import AvroReadPlan, decode
from pykafka_wire.values.avro.resolution import resolve_schemas
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, parse
from pykafka_wire.values.avro.types import arrow_type
from pykafka_wire.values.bulk.reading import Payloads
from tests.conformance.avro import Case, expected, java_library
from tests.conformance.avro_cases import Cases
from tests.connector.values.test_avro_columns import same, stored

N_SCHEMAS = int(os.environ.get("CONFORMANCE_VALUES", "160"))
N_PAIRS = N_SCHEMAS // 4
FIRST = int(os.environ.get("CONFORMANCE_FIRST", "0"))
N_WHOLE, N_DAMAGED = 3, 3
CASES_AT_ONCE = 500

#: What the Java library reads and is rejected here: it replaces bytes that are no UTF-8, drops bits above an int's 32, takes any
#: byte but 1 for false, and leaves it to Spark to find a decimal or a time that its type cannot hold.
STRICTER = re.compile(
    "not UTF-8|that (32|64) bits cannot hold|a boolean that|decimal|a time that|take no bytes|"
    "a union's branch|an enum's symbol that its|an int of more than"
)


class Reading:
    """What is read here of a case: for each value a list of it, or the reason; or the reason for the pair of schemas."""

    def __init__(self, case: Case) -> None:
        self.by_rows: list[Any] = []
        self.by_columns: list[Any] = []
        self.reason = ""
        self.read: ParsedSchema | None = None
        try:
            written = parse(json.dumps(case.written))
            reader = None if case.read is None else parse(json.dumps(case.read))
            self.read = reader or written
            self.type = arrow_type(self.read)
            node = resolve_schemas(written, reader)
        except DecodeError as error:
            self.reason = str(error)
            return
        read_one = reader_of(node, self.type, self.read)
        for payload in case.payloads:
            try:
                self.by_rows.append([stored(pa.array([read_one(payload)], self.type)[0])])
            except DecodeError as error:
                self.by_rows.append(str(error))
        plan = AvroReadPlan(self.read)
        step = plan.type_reader(node, self.type)
        self.places_left = plan.left
        column, failed = decode(Payloads.of(pa.array(case.payloads, pa.binary())), step, self.type)
        self.by_columns = [
            None if is_left else [stored(value)] for value, is_left in zip(column, failed.tolist(), strict=True)
        ]


def matches(arrow: pa.DataType, ours: Any, theirs: Any) -> bool:
    """Whether a stored value is the expected one; maps have no order."""
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if pa.types.is_struct(arrow):
        return all(matches(field.type, ours[field.name], theirs[field.name]) for field in arrow)
    if pa.types.is_map(arrow):
        pairs = {each["key"]: each["value"] for each in ours}
        return pairs.keys() == theirs.keys() and all(
            matches(arrow.item_type, each, theirs[key]) for key, each in pairs.items()
        )
    if pa.types.is_list(arrow):
        return len(ours) == len(theirs) and all(
            matches(arrow.value_type, one, other) for one, other in zip(ours, theirs, strict=True)
        )
    return same(ours, theirs)


def check_java(case: Case, response: Any, where: Any, counts: Counter[str]) -> None:
    ours = Reading(case)
    if isinstance(response, str):
        counts["pairs rejected"] += 1
        assert ours.reason or all(isinstance(each, str) for each in ours.by_rows), (where, case, response)
        assert all(each is None for each in ours.by_columns), (where, case, response)
        return
    assert not ours.reason, (where, case, ours.reason)
    assert ours.read is not None
    if ours.places_left:
        counts["schemas not in columns alone"] += 1
    for nth, theirs in enumerate(response):
        by_row, by_column = ours.by_rows[nth], ours.by_columns[nth]
        what = (where, case.written, case.read, case.payloads[nth], by_row, by_column, theirs)
        if isinstance(theirs, str):
            counts["values rejected"] += 1
            assert isinstance(by_row, str) and by_column is None, what
        elif isinstance(by_row, str):
            stricter = STRICTER.search(by_row)
            assert stricter and by_column is None, what
            counts[f"values rejected here alone, {stricter[0]}"] += 1
        else:
            (value,) = theirs
            wanted = expected(ours.read, ours.read.root, value)
            assert matches(ours.type, by_row[0], wanted), what
            assert by_column is None or matches(ours.type, by_column[0], wanted), what
            counts["values read"] += 1
            counts["values read in columns"] += by_column is not None


def judged_by_fastavro(case: Case) -> Iterator[Any]:
    """For each whole value a list of it, or the exception."""
    try:
        schemas = [None if each is None else fastavro.parse_schema(without_logical_types(each)) for each in case[:2]]
    except Exception as error:  # whatever fastavro raises of a schema
        yield from [error] * N_WHOLE
        return
    for payload in case.payloads[:N_WHOLE]:
        try:
            yield [fastavro.schemaless_reader(io.BytesIO(payload), *schemas)]
        except Exception as error:  # whatever it raises of a value
            yield error


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_logical_types(each) for name, each in schema.items() if name != "logicalType"}


def agrees(parsed: ParsedSchema, schema: Schema, java: Any, other: Any) -> bool:
    """Whether fastavro's value is the Java library's."""
    definition = parsed.definition(schema)
    kind = kind_of(definition)
    if kind == "union":
        return agrees(parsed, definition[java["branch"]], java["value"], other)
    if kind == "record":
        return all(
            agrees(parsed, each["type"], java[each["name"]], other[each["name"]]) for each in definition["fields"]
        )
    if kind == "array":
        return len(java) == len(other) and all(
            agrees(parsed, definition["items"], one, two) for one, two in zip(java, other, strict=True)
        )
    if kind == "map":
        return java.keys() == other.keys() and all(
            agrees(parsed, definition["values"], java[key], other[key]) for key in java
        )
    if kind in ("bytes", "fixed"):
        # fastavro leaves a string's promotion, and a default's bytes, as text.
        return bytes.fromhex(java) in (
            other,
            *([other.encode(), other.encode("latin-1", "ignore")] if isinstance(other, str) else []),
        )
    if kind == "float":
        return np.float32(other).tobytes() == np.uint32(int(java) & 0xFFFF_FFFF).tobytes() or bool(np.isnan(other))
    if kind == "double":
        return np.float64(other).tobytes() == np.uint64(int(java) & (2**64 - 1)).tobytes()
    return bool(java == other)


def test_schemas_and_values(java: None) -> None:
    counts: Counter[str] = Counter()

    def made(seed: int) -> Case:
        cases = Cases(seed)
        schema = cases.schema()
        whole = [cases.payload(schema) for _ in range(N_WHOLE)]
        return Case(schema, None, whole + [cases.damaged(cases.payload(schema)) for _ in range(N_DAMAGED)])

    with java_library() as ask:
        for first in range(FIRST, FIRST + N_SCHEMAS, CASES_AT_ONCE):
            cases = [made(seed) for seed in range(first, min(first + CASES_AT_ONCE, FIRST + N_SCHEMAS))]
            for seed, (case, response) in enumerate(zip(cases, ask(cases), strict=True), first):
                check_java(case, response, seed, counts)
                parsed = parse(json.dumps(case.written))
                for theirs, found in zip(response, judged_by_fastavro(case), strict=False):
                    assert isinstance(theirs, list) and isinstance(found, list), (seed, case, theirs, found)
                    assert agrees(parsed, parsed.root, theirs[0], found[0]), (seed, case, theirs, found)
    print(f"{N_SCHEMAS} schemas: {dict(counts)}")
    assert counts["values read in columns"] > 0.8 * counts["values read"] > 3 * N_SCHEMAS


def test_pairs_of_schemas(java: None) -> None:
    counts: Counter[str] = Counter()

    def made(seed: int) -> Case:
        cases = Cases(seed)
        schema = cases.record(0)
        return Case(schema, cases.reader_of(schema), [cases.payload(schema) for _ in range(N_WHOLE)])

    with java_library() as ask:
        for first in range(FIRST, FIRST + N_PAIRS, CASES_AT_ONCE):
            cases = [made(seed) for seed in range(first, min(first + CASES_AT_ONCE, FIRST + N_PAIRS))]
            for seed, (case, response) in enumerate(zip(cases, ask(cases), strict=True), first):
                check_java(case, response, seed, counts)
                if isinstance(response, str):
                    continue
                # fastavro's rules of what matches are others: of unions of records, aliases, and the names of types.
                parsed = parse(json.dumps(case.read))
                for theirs, found in zip(response, judged_by_fastavro(case), strict=False):
                    if isinstance(theirs, str) or isinstance(found, Exception):
                        counts["values that fastavro rejects, and the Java library not"] += isinstance(theirs, list)
                        counts["values that fastavro reads, and the Java library not"] += isinstance(found, list)
                        continue
                    is_alike = agrees(parsed, parsed.root, theirs[0], found[0])
                    counts[f"values read {'alike' if is_alike else 'otherwise'} by fastavro"] += 1
    print(f"{N_PAIRS} pairs of schemas: {dict(counts)}")
    assert counts["values read"] > N_PAIRS
    # fastavro takes another branch of some unions, where the Java library is followed.
    assert counts["values read otherwise by fastavro"] < 0.05 * counts["values read alike by fastavro"]


def field(name: str, *aliases: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "int", **({"aliases": list(aliases)} if aliases else {}), **more}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


AB = record(field("a"), field("b"))
NAMED_AS = [{"type": "enum", "name": name, "symbols": ["X"]} for name in ("one.E", "two.E", "two.D")]
PAIRS: list[tuple[Any, Any]] = [
    # Two fields of the reader claim one that was written: the alias that stands last takes it.
    (AB, record(field("x", "a", default=7), field("y", "a", default=8))),
    (AB, record(field("x", "a"), field("y", "a"))),
    (AB, record(field("a", default=7), field("y", "a"))),
    (AB, record(field("y", "a"), field("a", default=7))),
    (AB, record(field("a"), field("y", "a"))),
    # One claims two, or the name of another.
    (AB, record(field("y", "a", "b"))),
    (AB, record(field("b", "a"))),
    (AB, record(field("a"), field("b", "a"))),
    (AB, record(field("a", "b"), field("b", "a"))),
    # Names of records need not match, but then their fields' aliases do not count.
    (AB, record(field("a"), name="S")),
    (AB, record(field("y", "a"), name="S")),
    (AB, record(field("y", "a"), name="S", aliases=["R"])),
    (record(field("a"), name="n.R"), record(field("y", "a"), name="n.S", aliases=["R"])),
    (record(field("a"), name="n.R"), record(field("y", "a"), name="m.S", aliases=["R"])),
    # Of enums and fixed types only the last part of the name counts.
    *((one, other) for one in NAMED_AS for other in NAMED_AS),
    ([NAMED_AS[0], "null"], ["null", NAMED_AS[1]]),
    ([NAMED_AS[0], "null"], [NAMED_AS[1], "null"]),
    # Unions: the same type, then a record of the same fields, then the first promotion.
    ("int", ["string", "double", "long"]),
    ("long", ["float", "long"]),
    ("int", ["string"]),
    (["int", "string"], ["string", "long"]),
    (["int", "string"], "long"),
    (["int", "long"], ["long", "int"]),
    (record(field("a")), [record(field("b"), name="S"), record(field("a"), name="T")]),
    (record(field("a")), [record(field("a"), name="S"), record(field("a"), name="n.R")]),
    (record(field("a")), [record(field("b", default=1), name="S")]),
    # Promotions and what is none.
    *(
        (one, other)
        for one in ("int", "long", "float", "string", "bytes")
        for other in ("int", "float", "double", "bytes")
    ),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}),
]


def test_hand_made_pairs_of_schemas(java: None) -> None:
    counts: Counter[str] = Counter()
    source = Cases(1)
    cases = [Case(one, other, [source.payload(one) for _ in range(N_WHOLE)]) for one, other in PAIRS]
    with java_library() as ask:
        for number, (case, response) in enumerate(zip(cases, ask(cases), strict=True)):
            check_java(case, response, number, counts)
    assert counts["values read in columns"] == counts["values read"] > len(PAIRS)
    assert counts["pairs rejected"] >= 2
    assert counts["values rejected"] > 2 * N_WHOLE


F = {"type": "fixed", "name": "F", "size": 1}
NO_NAMESPACE = {**F, "namespace": ""}


def record_of(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    return record(*({"name": f"f{nth}", "type": each} for nth, each in enumerate(types)), name=name, **more)


#: Each with a value. The Java library takes all of them; the first ones are as its own toString prints them.
VALID: list[tuple[Any, bytes]] = [
    (record_of("n.R", NO_NAMESPACE, "F"), b"ab"),
    (record_of("n.R", record_of("S", "int", namespace=""), ["null", "S"]), b"\x02\x02\x04"),
    (record_of("n.R", record_of("S", F, namespace=""), "F"), b"ab"),
    (record_of("n.R", NO_NAMESPACE, {**F, "size": 2}, "F", "n.F"), b"abbccdd"),
    (record_of("n.R", F, {"type": "F"}, {"type": "n.F"}), b"abc"),
    (record_of("n.R", "F", "n.F", F), b"abc"),
    (record_of("n.R", F, F), b"ab"),
    (record_of("R", {**F, "name": "n.F"}, ["null", "n.F"], ["null", "F"], namespace="n"), b"a\x02b\x00"),
    (record_of("R", "int", namespace=5), b"\x02"),
    (record_of("ä.Ö", {"type": "enum", "name": "E", "symbols": ["ß"]}), b"\x00"),
    (record_of("n.R", {"type": "array", "items": {"type": "R2"}}, record_of("R2", "int")), b"\x02\x04\x00\x06"),
]
#: The Java library rejects these.
INVALID: list[Any] = [
    "F",
    5,
    {},
    {"type": "F"},
    {"type": "array"},
    {"type": "map", "values": "F"},
    record_of("n.R", "F"),
    record_of("n.R", NO_NAMESPACE, "n.F"),
    record_of("n.R", record_of("m.S", "F"), F),
    record_of("n.R", F, {**F, "size": 2}),
    record_of("n.R", [["null"], "int"]),
    record_of("n.R", ["int", {"type": "int", "logicalType": "date"}]),
    record_of("n.R", {"type": "enum", "name": "E", "symbols": ["a", "a"]}),
    record_of("n.R", {"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}),
    *(record_of(name, "int") for name in ("int", "")),
    record(field("a"), field("a")),
    {"type": "record", "name": "R"},
    {"type": "record", "fields": []},
    {"type": "fixed", "name": "F"},
]


#: Names that Java's library refuses unless its validation is off, as Kafka Connect and Debezium have it; here they are names.
LOOSE_NAMES: list[Any] = [
    record_of("n.R", {"type": "enum", "name": "E", "symbols": ["a-b"]}),
    *(record_of(name, "int") for name in ("1a", "a-b", "n..R")),
    record(field("a b")),
]


def test_names_are_taken_that_java_takes_without_validation(java: None) -> None:
    cases = [Case(each, None, []) for each in LOOSE_NAMES]
    with java_library() as ask:
        for case, response in zip(cases, ask(cases), strict=True):
            assert isinstance(response, str) and re.search("Illegal|invalid", response), (case, response)
            assert not Reading(case).reason, case


def test_schemas_are_valid_as_for_the_java_library(java: None) -> None:
    counts: Counter[str] = Counter()
    cases = [Case(schema, None, [payload]) for schema, payload in VALID] + [Case(each, None, []) for each in INVALID]
    # An integer is a double's default, however the double is written.
    plain = record(field("a"))
    for double in ("double", {"type": "double"}, {"type": "double", "logicalType": "unknown"}):
        cases.append(Case(plain, record(field("a"), {"name": "b", "type": double, "default": 1}), [b"\x02"]))
    with java_library() as ask:
        for number, (case, response) in enumerate(zip(cases, ask(cases), strict=True)):
            check_java(case, response, number, counts)
            assert isinstance(response, str) == bool(Reading(case).reason), (number, case, response)
    assert counts["pairs rejected"] == len(INVALID)
    assert counts["values read"] == counts["values read in columns"] == len(VALID) + 3
