"""A field of any version of an Avro subject is read as long as the table has its column, wherever the versions use named types."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.reader_schemas import schema_text
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.avro.types import TypeRules
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.registered_schema import Schema
from tests.connector.ingest.laws.generated import examples
from tests.connector.values.scripted_registry import scripted_registry

#: Names of records: each version gives them to other places, and one name to several places whose fields are the same.
_NAMES: Final = ("n.A", "n.B", "x.A", "x.B")
_LEAVES: Final = ("int", "string", "enum E", "enum F", "fixed")
#: More versions than a page of any registry's list.
_MANY: Final = 60


@dataclass(frozen=True)
class Place:
    """A place in a value. Its kind is the same in each version: a leaf, or record, array, map, or union of two records.

    Attributes:
        number: which place it is, from 0.
        fields: of a record, an array's items or a map's values; of a union the two records ``0`` and ``1``.
    """

    number: int
    kind: str
    fields: Mapping[str, Place] = field(default_factory=dict)

    @property
    def is_leaf(self) -> bool:
        return not self.fields

    def inner(self) -> Iterator[Place]:
        yield self
        for place in self.fields.values():
            yield from place.inner()


class World:
    """All places that values of a topic may have, and what one version, or the table, has of them: sets of numbers."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self._n_places = 0
        self.root = self._place("record", 0)

    def _place(self, kind: str, depth: int) -> Place:
        number = self._n_places = self._n_places + 1
        if kind in _LEAVES:
            return Place(number, kind)
        if kind == "union":
            return Place(number, kind, {name: self._place("record", depth + 1) for name in "01"})
        fields = {}
        for name in self.random.sample("abcd", self.random.randint(1, 3)):
            is_deep = depth < 3 and self.random.random() < (0.5 if depth else 0.8)
            kinds = ("record", "record", "record", "array", "map", "union") if is_deep else _LEAVES
            fields[name] = self._place(self.random.choice(kinds), depth + 1)
        return Place(number, kind, fields)

    def subset(self, of: set[int], share: float) -> set[int]:
        """Return some of the places ``of``: each with all places around, no record without fields, no union without a branch."""
        chosen: set[int] = set()

        def add(place: Place) -> None:
            chosen.add(place.number)
            inner = [each for each in place.fields.values() if each.number in of]
            some = [each for each in inner if place.kind == "union" or self.random.random() < share]
            for each in some or inner[:1]:
                add(each)

        add(self.root)
        return chosen


class Version:
    """One version of the subject: which places it has, how it names their records, and a value."""

    def __init__(self, world: World, places: set[int], *, is_newest: bool) -> None:
        self._random = world.random
        self._places = places
        self._is_newest = is_newest
        self._named: dict[str, Any] = {}
        self._symbols = {name: self._random.sample(["RED", "BLUE", "GREEN"], 2) for name in "EF"}
        self.schema = self._type(world.root)

    def _type(self, place: Place) -> Any:
        if place.kind == "fixed":
            return {"type": "fixed", "name": f"n.Fixed{place.number % 3}", "size": 1 + place.number % 3}
        if place.kind.startswith("enum"):
            return {"type": "enum", "name": f"n.{place.kind[-1]}", "symbols": self._symbols[place.kind[-1]]}
        if place.is_leaf:
            return place.kind
        if place.kind == "union":
            return [self._record(each, (f"n.Branch{each.number}",)) for each in place.fields.values()]
        names = [*self._random.sample(_NAMES, len(_NAMES)), f"n.Record{place.number}"]
        record = self._record(place, names)
        return record if place.kind == "record" else {"type": place.kind, _inner(place): record}

    def _record(self, place: Place, names: Any) -> Any:
        fields = []
        for name, each in self.of(place).items():
            kind = self._type(each)
            # A field may be missing in other versions, so that the newest version needs a default.
            if self._is_newest or each.kind == "union" or self._random.random() < 0.5:
                branches = kind if isinstance(kind, list) else [kind]
                fields.append({"name": name, "type": ["null", *branches], "default": None})
            else:
                fields.append({"name": name, "type": kind})
        for name in names:
            record = {"type": "record", "name": name, "fields": fields}
            if self._named.setdefault(name, record) == record:
                return record
        raise AssertionError("the last name is the place's own")

    def of(self, place: Place) -> dict[str, Place]:
        return {name: each for name, each in place.fields.items() if each.number in self._places}

    def has(self, place: Place) -> bool:
        return place.number in self._places

    def value(self, place: Place, *, is_item: bool = False) -> Any:
        """Return a value as it is written: fastavro takes a record of a union as a pair with its name."""
        if place.kind == "int":
            return self._random.randint(-100, 100)
        if place.kind == "string":
            return self._random.choice(["", "x", "Zürich"])
        if place.kind == "fixed":
            return bytes(self._random.randrange(256) for _ in range(1 + place.number % 3))
        if place.is_leaf:
            return self._random.choice(self._symbols[place.kind[-1]])
        if place.kind == "union":
            branch = self._random.choice([*place.fields.values()])
            return (f"n.Branch{branch.number}", self.value(branch))
        if place.kind in ("array", "map") and not is_item:
            items = [self.value(place, is_item=True) for _ in range(self._random.randint(0, 2))]
            return items if place.kind == "array" else {f"k{n}": item for n, item in enumerate(items)}
        return {name: self.value(each) for name, each in self.of(place).items()}


def _inner(place: Place) -> str:
    return "items" if place.kind == "array" else "values"


def text_of(schema: Any) -> str:
    """Return a schema's text, in which each named type is written out once."""
    written: set[str] = set()

    def short(kind: Any) -> Any:
        if isinstance(kind, list):
            return [short(each) for each in kind]
        if not isinstance(kind, dict):
            return kind
        if kind["type"] in ("array", "map"):
            inner = "items" if kind["type"] == "array" else "values"
            return {**kind, inner: short(kind[inner])}
        if kind["name"] in written:
            return kind["name"]
        written.add(kind["name"])
        fields = [{**each, "type": short(each["type"])} for each in kind.get("fields", ())]
        return {**kind, **({"fields": fields} if fields else {})}

    return json.dumps(short(schema))


def member(place: Place, n: int, *, by_type: bool) -> str:
    """Return the column of a union's branch."""
    return f"member_Branch{place.fields[str(n)].number}" if by_type else f"member{n}"


def column_of(place: Place, held: set[int], *, by_type: bool) -> DataType:
    """Return the type of the table's column. The types of leaves do not matter."""
    if place.is_leaf:
        return StringType()
    if place.kind == "union":
        fields = [(member(place, n, by_type=by_type), place.fields[str(n)]) for n in range(2)]
    else:
        fields = [(name, each) for name, each in place.fields.items() if each.number in held]
    struct = StructType([StructField(name, column_of(each, held, by_type=by_type)) for name, each in fields])
    return {"array": ArrayType(struct), "map": MapType(StringType(), struct)}.get(place.kind, struct)


def expected(place: Place, value: Any, read: set[int], *, by_type: bool, is_item: bool = False) -> Any:
    """Return a written value as it is read: with the places ``read``, null where it was not written."""
    if value is None or place.is_leaf:
        return value
    if place.kind == "union":
        name, record = value
        branches = [(member(place, n, by_type=by_type), place.fields[str(n)]) for n in range(2)]
        return {
            column: expected(each, record if f"n.Branch{each.number}" == name else None, read, by_type=by_type)
            for column, each in branches
        }
    if place.kind == "array" and not is_item:
        return [expected(place, item, read, by_type=by_type, is_item=True) for item in value]
    if place.kind == "map" and not is_item:
        return [(key, expected(place, item, read, by_type=by_type, is_item=True)) for key, item in value.items()]
    fields = {name: each for name, each in place.fields.items() if each.number in read}
    return {name: expected(each, value.get(name), read, by_type=by_type) for name, each in fields.items()}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text_of(schema))), value)
    return out.getvalue()


def envelope(row: Any) -> Any:
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", row], "default": None},
        {"name": "op", "type": "string"},
    ]
    return {"type": "record", "name": "n.Envelope", "fields": fields}


@given(
    seed=st.integers(0, 2**32),
    n_versions=st.integers(2, 5),
    is_cdc=st.booleans(),
    by_type=st.booleans(),
    is_long=st.sampled_from([False] * 9 + [True]),
)
@examples(150)
def test_a_value_of_each_version_is_read_with_every_field_that_the_table_has(
    seed: int, n_versions: int, is_cdc: bool, by_type: bool, is_long: bool
) -> None:
    world = World(random.Random(seed))
    everything = {place.number for place in world.root.inner()}
    places = [world.subset(everything, 0.6) for _ in range(n_versions)]
    versions = [Version(world, each, is_newest=each is places[-1]) for each in places]
    held = world.subset(set().union(*places), 0.7)
    rows = [version.value(world.root) for version in versions]
    schemas = [envelope(version.schema) if is_cdc else version.schema for version in versions]
    values = [{"before": None, "after": row, "op": "c"} if is_cdc else row for row in rows]
    texts = [text_of(schema) for schema in schemas]
    numbers = [*range(1, n_versions), n_versions + _MANY if is_long else n_versions]
    by_number = dict(zip(numbers, texts, strict=True))
    responses: dict[str, Any] = {f"/schemas/ids/{n}": {"schema": text} for n, text in by_number.items()}
    for n in range(1, numbers[-1] + 1):  # between them, versions that only change the documentation
        text = by_number.get(n) or json.dumps({**json.loads(texts[-1]), "doc": f"version {n}"})
        responses[f"/subjects/s/versions/{n}"] = {"schema": text}
    responses["/subjects/s/versions"] = [*range(1, numbers[-1] + 1)]
    columns = column_of(world.root, held, by_type=by_type)
    assert isinstance(columns, StructType)
    with scripted_registry(responses) as url:
        table, newest = Table(topic="t", mode="cdc" if is_cdc else "append"), Schema(kind="AVRO", text=texts[-1])
        text = schema_text(Registry(url), "s", newest, table.reading, columns)
        value_format = Avro(
            registry=Registry(url), reader_schema=text or texts[-1], rules=TypeRules(names_by_type=by_type)
        )
        framed = [
            encode_frame(n, written(schema, value)) for n, schema, value in zip(numbers, schemas, values, strict=True)
        ]
        found = read_column(value_format, value_format.column_type(), pa.array(framed))
    assert dict(found.reasons) == {}
    read = [row["after"] if is_cdc else row for row in found.column.to_pylist()]
    assert read == [expected(world.root, row, places[-1] | held, by_type=by_type) for row in rows]
