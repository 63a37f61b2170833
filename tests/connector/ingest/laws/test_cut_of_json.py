"""The cut into micro-batches changes nothing, and what one document has never changes the value of another: inferred JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DataType, StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.json.columns import row_type
from pykafka_wire.ingest.records.json.survey import survey_of
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import FACTOR, examples
from tests.connector.ingest.laws.json_worlds import REJECT, Type, World, encoded, grown, landed

#: A world for each; a MERGE costs as much as four appends.
MODES: Final = ("append", "append", "append", "upsert") if FACTOR else ("append",)


def type_of(documents: list[Any], held: DataType | None) -> DataType | None:
    return row_type(survey_of(map(encoded, documents), "row"), "row", held)


def plain(data_type: DataType | None) -> Type | None:
    """A type of Spark's as the oracle writes it."""
    if isinstance(data_type, StructType):
        return {field.name: plain(field.dataType) for field in data_type}
    if isinstance(data_type, ArrayType):
        return [plain(data_type.elementType)]
    return None if data_type is None else data_type.simpleString().upper()


@pytest.mark.unit
@given(st.integers(0, 2**40))
@examples(1_000)
def test_any_cut_gives_the_types_that_one_document_after_the_other_gives(seed: int) -> None:
    world = World(seed)
    held = type_of([world.opening()], None)
    wanted = expected = plain(held)
    assume(expected)
    documents = [world.document(expected) for _ in range(world.random.randint(1, 30))]
    for document in documents:
        wanted = grown(wanted, [document])
    whole = type_of(documents, held)
    assert plain(whole) == wanted
    cut, rest = held, documents
    while rest:
        n = world.random.randint(1, len(rest))
        cut, rest = type_of(rest[:n], cut), rest[n:]
    assert plain(cut) == wanted


@pytest.mark.unit
@given(st.integers(0, 2**40))
@examples(1_000)
def test_odd_documents_take_no_column_from_the_others_of_a_first_micro_batch(seed: int) -> None:
    world = World(seed)
    documents = [world.opening() for _ in range(10)]
    whole = type_of(documents, None)
    odd = ["ping", 5, [], [{"f0": "x"}], True, None, [[1]]]
    mixed = [*documents, *world.random.sample(odd, 2)]
    world.random.shuffle(mixed)
    assert plain(type_of(mixed, None)) == plain(whole) or not plain(whole)


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic of a world: what its table has already, the documents that follow, and where these are cut in two."""

    seed: int
    opening: Any
    documents: list[Any]
    cut: int

    @classmethod
    def made(cls, seed: int, n_documents: int) -> Topic:
        world = World(seed)
        opening = world.opening()
        held = grown(None, [opening])
        documents = [world.document(held) for _ in range(n_documents)] if held else []
        return cls(seed=seed, opening=opening, documents=documents, cut=world.random.randint(1, n_documents - 1))

    def wanted(self) -> tuple[dict[int, Any], list[int]]:
        """Return the rows by their offsets, and the offsets of the rejects."""
        held, rows = None, {}
        for offset, document in enumerate([self.opening, *self.documents]):
            held = grown(held, [document])
            rows[offset] = landed(held, document)
        rejects = [offset for offset, row in rows.items() if row == REJECT]
        return {offset: without_nulls(row) for offset, row in rows.items() if row != REJECT}, rejects


def without_nulls(value: Any) -> Any:
    """A value without fields that are null, as a row has those that came later; numbers by what they say."""
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        cells = {name: without_nulls(cell) for name, cell in value.items()}
        return {name: cell for name, cell in cells.items() if cell is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and value != value:
        return "NaN"
    return Decimal(repr(value)) if isinstance(value, int | float) else value


def is_same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, tuple):  # of a value that is no text, in a column of texts
        return isinstance(got, str) and json.loads(got) == wanted[1]
    if isinstance(wanted, dict) and isinstance(got, dict):
        return wanted.keys() == got.keys() and all(is_same(wanted[name], got[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(is_same, wanted, got))
    return bool(wanted == got)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
@given(st.lists(st.integers(0, 2**40), min_size=len(MODES), max_size=len(MODES), unique=True))
@examples(1)
def test_any_cut_gives_the_rows_that_one_document_after_the_other_gives(shop: Shop, seeds: list[int]) -> None:
    """Each world is two topics: one micro-batch, and two."""
    lot = uuid.uuid4().hex[:8]
    shop.folder = shop.folder / lot
    topics = {
        f"{lot}_{mode}_{way}_{n}": (Topic.made(seed, 40), way)
        for n, (seed, mode) in enumerate(zip(seeds, MODES, strict=True))
        for way in ("whole", "cut")
    }
    upserted = Table(topic=rf".*\.{lot}_upsert.*", format="json", mode="upsert", key_format="string")
    asked = {"topics": rf"{shop.prefix}\.{lot}.*", "tables": [upserted], "defaults": Table(topic=".*", format="json")}

    def send(name: str, documents: list[Any], first: int) -> None:
        keys = [b"%d" % (first + n) for n in range(len(documents))]
        records = [
            shop.outside.Record(key=key, value=encoded(document), partition=0)
            for key, document in zip(keys, documents, strict=True)
        ]
        shop.outside.produce(f"{shop.prefix}.{name}", records)

    for name, (each, _) in topics.items():
        shop.create(name, partitions=1)
        send(name, [each.opening], 0)
    shop.run(**asked)
    for step in range(2):
        for name, (each, way) in topics.items():
            cut = each.cut if way == "cut" else len(each.documents)
            first, some = (cut, each.documents[cut:]) if step else (0, each.documents[:cut])
            if some:
                send(name, some, first + 1)
        shop.run(**asked)
    rejects = shop.table("_rejects").select("topic", "offset").collect()
    for name, (each, _) in topics.items():
        if not each.documents:
            continue
        table = shop.table(name)
        columns = [column for column in table.columns if not column.startswith("_kafka_")]
        got = {
            row["_kafka_offset"]: without_nulls({column: row[column] for column in columns}) for row in table.collect()
        }
        rows, wanted_rejects = each.wanted()
        wrong = {offset: (rows.get(offset), got.get(offset)) for offset in {*rows, *got}
                 if offset not in rows or offset not in got or not is_same(rows[offset], got[offset])}  # fmt: skip
        assert wrong == {}, f"{name} of seed {each.seed}: wanted and got"
        assert sorted(row.offset for row in rejects if row.topic.endswith(f".{name}")) == wanted_rejects, name
