"""What becomes of a JSON document depends on the document and on its table alone, also if documents are no objects.

A table of documents that are no objects has them in the column ``value``. A table of objects may have a column of that name, too.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import DataType, LongType, StructField, StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.json.columns import Documents, documents_to_note, row_type
from pykafka_wire.ingest.records.json.survey import JsonSurvey, Kind, survey_of
from pykafka_wire.values.json.column_reader import document_reader
from pykafka_wire.values.single_json.encodings import Encodings
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import examples

REJECT: Final = "a reject"
#: No document widens the type of a column that another one has made.
DOCUMENTS: Final[tuple[Any, ...]] = (
    1, 2, "x", True, [1], [2, 3], [], ["x"], {"value": 6}, {"value": 7, "x": 1}, {"x": 1}, {"x": "x"}, {"value": [1]},
    {"value": {"a": 1}}, {}, {"value": None},
)  # fmt: skip
ONE_SORT: Final = ({"value": 6}, {"value": 7, "x": 1}, {"x": 1}, {}, {"value": None})
#: Topics, and the micro-batches after the first of each.
N_TOPICS, N_LATER = 40, 2


def table_of(documents: list[Any], held: DataType | None, noted: Documents | None, kind: Kind) -> DataType | None:
    """Return the type of the values of a table after documents."""
    return row_type(surveyed(documents, kind), kind, held, noted)


def surveyed(documents: list[Any], kind: Kind) -> JsonSurvey:
    return survey_of([json.dumps(each).encode() for each in documents], kind)


def read(document: Any, data_type: DataType | None) -> Any:
    """Return a document as the source reads it, without nulls, or :data:`REJECT`."""
    if data_type is None:
        return {} if isinstance(document, dict) else REJECT
    column = arrow_schema(StructType([StructField("value", data_type)])).field(0).type
    reader = document_reader(column, Encodings(variant_numbers="binary"))
    try:
        row = reader.read_one(json.dumps(document).encode())
    except DecodeError:
        return REJECT
    return {name: cell for name, cell in row.items() if cell is not None} if isinstance(row, dict) else row


def columns_of(made: DataType) -> list[StructField]:
    """Return the columns of a table whose values have a type."""
    return made.fields if isinstance(made, StructType) else [StructField("value", made)]


def of_known_sorts(documents: list[Any], made: DataType) -> list[Any]:
    """Return the documents without those that have a new field of another sort: its first micro-batch decides the field's type."""
    names = made.names if isinstance(made, StructType) else []
    return [each for each in documents if each in ONE_SORT or not isinstance(each, dict) or {*each} <= {*names}]


@pytest.mark.unit
@given(
    first=st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=3),
    others=st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=6),
    kind=st.sampled_from(["row", "row", "key"]),
    user_column=st.booleans(),
)
@examples(2_000)
def test_no_other_document_decides_whether_a_document_is_a_reject(
    first: list[Any], others: list[Any], kind: Kind, user_column: bool
) -> None:
    made = table_of(first, None, None, kind)
    noted = documents_to_note(surveyed(first, kind), kind, None, made)
    assume(made is not None)
    held = made
    if kind == "row":
        held = StructType([*columns_of(made), *([StructField("added", LongType())] if user_column else [])])
    others = of_known_sorts(others, made)
    together = table_of(others, held, noted, kind)
    for document in others:
        alone = table_of([document], held, noted, kind)
        assert read(document, together) == read(document, alone)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_table_keeps_the_kind_of_its_documents(shop: Shop) -> None:
    """Each topic has some documents in its first micro-batch, and others in later ones."""
    topics: dict[str, tuple[DataType, Documents | None, list[list[Any]]]] = {}
    for seed in range(1000):
        make = random.Random(seed)
        first = [make.choice(DOCUMENTS) for _ in range(make.randint(1, 2))]
        made = table_of(first, None, None, "row")
        # Most topics have the column value alone, which does not show the kind of their documents.
        if made is None or (make.random() < 0.8 and [field.name for field in columns_of(made)] != ["value"]):
            continue
        noted = documents_to_note(surveyed(first, "row"), "row", None, made)
        later = [of_known_sorts([make.choice(DOCUMENTS) for _ in range(6)], made) for _ in range(N_LATER)]
        topics[f"t{seed}"] = (made, noted, [first, *later])
        if len(topics) == N_TOPICS:
            break
    tables = [
        Table(topic=rf".*\.{name}", format="json", mode=mode, key_format="string" if mode == "upsert" else None)
        for name, mode in zip(topics, ("append", "append", "append", "upsert") * N_TOPICS, strict=False)
    ]
    for name in topics:
        shop.create(name, partitions=1)
    for batch in range(1 + N_LATER):
        for name, (_, _, batches) in topics.items():
            records = [
                shop.outside.Record(key=f"{batch}-{n}".encode(), value=json.dumps(document).encode(), partition=0)
                for n, document in enumerate(batches[batch])
            ]
            if records:
                shop.outside.produce(f"{shop.prefix}.{name}", records)
        ingest = shop.run(registry=None, tables=tables)
        assert not {name: status.error for name, status in ingest.statuses.items() if status.error}
    for name, (made, noted, batches) in topics.items():
        table, held = shop.table(name).orderBy("_kafka_offset"), StructType(columns_of(made))
        wanted = []
        for document in (each for batch in batches for each in batch):
            row = read(document, table_of([document], made if document in batches[0] else held, noted, "row"))
            wanted.append(row if row == REJECT or isinstance(row, dict) else {"value": row})
        rows = dict.fromkeys(range(len(wanted)), REJECT)
        for row in table.collect():
            cells = row.asDict(recursive=True)
            rows[row["_kafka_offset"]] = {
                column: cell for column, cell in cells.items() if cell is not None and column[:7] != "_kafka_"
            }
        assert [*rows.values()] == wanted, (name, batches)
