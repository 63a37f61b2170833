"""Law: a name that comes from data is a name, whatever characters it has, and never an expression."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import examples

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(3600)]

#: As in the data of OpenTelemetry, and what parsers of expressions stumble over.
NAMES: Final = [
    "service.name", "a.b.c", "`", "a`b", "``", "*", "a.*", "%", "a b", "'", '"', "a'b", "\\", "\\n", "å", "\U0001f600", "1", "-1",
    "select", "value", "a[0]", "a(b)", "a,b", "a;b", "{a}", "a=b", "a\nb", "a\tb", "a:b", "a/b", "#", "x" * 100, "$"
    ".", "..", "a.",    ".a", "日本", "?", "!", "a--b", "/*", "_metadata", "new.x", "old", "NULL", "a\u200bb", "<a>",
]  # fmt: skip
_CHARACTERS: Final = st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs"])
NAME: Final = st.sampled_from(NAMES) | st.text(_CHARACTERS, min_size=1, max_size=12)


def _is_distinct(names: list[str]) -> bool:
    """Delta does not tell upper from lower case."""
    return len(
        {folded for name in names for folded in {name.lower(), name.casefold(), name.upper().lower()}} & {"id"}
    ) == 0 and all(one is other or one.casefold() != other.casefold() for one in names for other in names)


#: How documents come to their columns: as they are, by Connect's envelope with its schema, or by declared columns that the settings
#: select, with a condition.
WAYS: Final = [
    ("delta", "upsert", "inferred"), ("iceberg", "append", "selected"), ("iceberg", "append", "enveloped"),
    *(pytest.param(*way, marks=pytest.mark.long) for way in [
        ("delta", "append", "inferred"), ("delta", "append", "enveloped"), ("delta", "append", "selected"),
        ("delta", "upsert", "enveloped"), ("delta", "upsert", "selected"), ("iceberg", "append", "inferred"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("format", "mode", "way"), WAYS)
@examples(1)
@given(names=st.lists(NAME, min_size=20, max_size=40, unique_by=str.casefold).filter(_is_distinct))
def test_documents_with_any_names_land(shop: Shop, format: str, mode: str, way: str, names: list[str]) -> None:
    if way == "selected":  # where `value` is the whole one, and these are Kafka's
        names = [
            name
            for name in names
            if name not in ("value", "key", "timestamp", "offset", "partition", "headers", "topic")
        ]
    _land(shop, format, mode, names, way)


@pytest.mark.parametrize(("format", "refused"), [("delta", ""), ("delta", " ,;{}()\n\t="), ("iceberg", "")])
def test_each_of_the_names_that_parsers_stumble_over_lands(shop: Shop, format: str, refused: str) -> None:
    """Tasks write a Delta table whose names have no characters that need Delta's column mapping."""
    _land(shop, format, "append", [name for name in NAMES if not set(refused) & set(name)])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _enveloped(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as Connect's JsonConverter writes it with its schema."""

    def struct(fields: dict[str, Any]) -> dict[str, Any]:
        types = [
            {**(struct(value) if isinstance(value, dict) else {"type": "int32"}), "optional": True, "field": name}
            for name, value in fields.items()
        ]
        return {"type": "struct", "fields": types}

    return {"schema": struct(document), "payload": document}


def _land(shop: Shop, format: str, mode: str, names: list[str], way: str = "inferred") -> None:
    """Land documents with these names, in a lake of their own."""
    folder, name = shop.folder, f"t{uuid.uuid4().hex[:8]}"
    shop.folder = folder / name
    shop.folder.mkdir()
    try:
        _land_in_folder(shop, name, format, mode, names, way)
    finally:
        shop.folder = folder


def _land_in_folder(shop: Shop, name: str, format: str, mode: str, names: list[str], way: str) -> None:
    topic = shop.create(name)
    document = {"id": 1, **{field: number for number, field in enumerate(names)}}
    documents: list[dict[str, Any]] = [document, {"id": 2, "inner": document}]
    table = Table(topic=".*", format="json", mode=mode)
    if way == "enveloped":
        documents = [_enveloped(each) for each in documents]
    if way == "selected":
        columns = ", ".join(f"{_quoted(each)} INT" for each in document)
        table = replace(
            table,
            schema=f"{columns}, inner STRUCT<{columns}>",
            select=(*map(_quoted, document), "inner"),
            where=" OR ".join(f"{_quoted(each)} >= 0" for each in names) + f" OR inner.{_quoted(names[0])} = 0",
        )
    shop.send_json(name, documents, keys=[{"id": 1}, {"id": 2}])
    given: dict[str, Any] = {"topics": topic.replace(".", r"\."), "checkpoint": str(shop.folder / f"{name}{format}")}
    if format == "iceberg":
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{shop.folder}/{name}.db",
            "warehouse": f"file://{shop.folder}/lake",
        }
        load_catalog("lake", **catalog).create_namespace("laws")
        given |= {"into": "lake.laws", "table_format": "iceberg", "catalog": catalog}
    ingest = shop.run(tables=[table], **given)
    (status,) = ingest.statuses.values()
    assert (status.error, status.rejects) == (None, 0)
    if way == "selected" and format == "delta":
        (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
        assert proof.is_right, str(proof)
    landed = f"{shop.prefix}_{name}"
    if format == "iceberg":
        rows = load_catalog("lake", **given["catalog"]).load_table(f"laws.{landed}").scan().to_arrow().to_pylist()
    else:
        rows = [row.asDict(recursive=True) for row in shop.table(name).collect()]
    read = {row["id"]: row for row in rows}
    assert {field: read[1][field] for field in names} == {field: document[field] for field in names}
    assert {field: read[2]["inner"][field] for field in document} == document


def declared_as(name: str, number: int) -> dict[str, Any]:
    """Return a document with the schema of Kafka Connect."""
    fields = [{"field": name, "type": "int64", "optional": True}]
    return {"schema": {"type": "struct", "fields": fields}, "payload": {name: number}}


#: Documents whose field another column excludes, after documents that made the table; and what the others are.
UNFIT: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "case": ([{"id": 1}], [{"id": 2}, {"ID": 3}, {"id": 4}]),
    "declared": ([{"id": 1}], [{"id": 2}, declared_as("ID", 3), {"id": 4}]),
    "kafka": ([{"id": 1}], [{"id": 2}, {"_kafka_offset": 5}, {"id": 4}]),
    "first": ([], [{"id": 1}, {"id": 2}, {"ID": 3}, {"id": 4}]),
    "reason": ([{"id": 1}], [{"id": 2}, {"id": 3, "_PYKAFKA_wire_reason": "r"}, {"id": 4}]),
}


@pytest.mark.long
def test_a_document_with_a_field_that_another_column_excludes_is_a_reject_alone(shop: Shop) -> None:
    for name in UNFIT:
        shop.create(name, 1)
    for turn in (0, 1):
        for name, turns in UNFIT.items():
            documents = [json.dumps(document).encode() for document in turns[turn]]
            shop.outside.produce(
                f"{shop.prefix}.{name}", [shop.outside.Record(value=v, partition=0) for v in documents]
            )
        by_spark = Table(topic=r".*\.reason", format="json", write="spark")
        ingest = shop.run(tables=[by_spark], defaults=Table(topic=".*", format="json"))
    for name in UNFIT:
        assert shop.rows(name, "id") == [(1,), (2,), (4,)], name
    assert {name.partition("_")[2] for (name,) in shop.rows("_rejects", "table")} == {*UNFIT}
    assert all((status.error, status.rejects) == (None, 1) for status in ingest.statuses.values())


@pytest.mark.long
@pytest.mark.parametrize("prefix", ["", "o_"])
def test_a_field_that_begins_as_kafka_s_columns_keeps_its_kind(shop: Shop, prefix: str) -> None:
    name = prefix + "n"
    shop.create("prefixed", 1)
    for turn in ([{name: 1, "x": 1}], [{name: "text", "x": 0}, {name: 2, "x": 2}], [{name: 2**63, "x": 3}]):
        values = [json.dumps(document).encode() for document in turn]
        shop.outside.produce(
            f"{shop.prefix}.prefixed", [shop.outside.Record(value=value, partition=0) for value in values]
        )
        ingest = shop.run(prefix=prefix, defaults=Table(topic=".*", format="json"), registry=None)
    (status,) = ingest.statuses.values()
    assert (status.error, status.held_rejects) == (None, 1)
    assert sorted(shop.rows("prefixed", _quoted(name), "x")) == [(1, 1), (2, 2), (2**63, 3)]
