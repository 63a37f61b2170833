"""The contract of modes: what each decides of types, keys and words. Their rows need Spark: tests of changes land them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

import pykafka_wire.ingest
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.records.json.survey import JsonSurvey, survey_of
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.settings.model import MODES, ModeName, Table
from pykafka_wire.values.avro.removed_fields import NO_FIELDS, WantedFields

ROOT = Path(pykafka_wire.ingest.__path__[0])
ROW = StructType([StructField("id", LongType()), StructField("name", StringType())])
ENVELOPE = StructType().add("before", ROW).add("after", ROW).add("op", StringType())


class Held:
    """A table with a column that a user has added."""

    schema = StructType().add("id", LongType()).add("added", StringType())

    def properties(self) -> dict[str, str]:
        return {}

    def topic_columns(self) -> list[StructField]:
        return [self.schema["id"]]


def comparisons_of_modes() -> Iterator[str]:
    """Yield the files in which a mode is compared: by ``.mode``, or with the name of a mode."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if any(isinstance(each, ast.Attribute) and each.attr == "mode" for each in operands) or any(
                isinstance(each, ast.Constant) and each.value in MODES for each in operands
            ):
                yield str(path.relative_to(ROOT))


def test_modes_are_compared_in_the_settings_alone() -> None:
    assert {*comparisons_of_modes()} == {"settings/model.py", "settings/mistakes.py"}


@pytest.mark.parametrize("name", MODES)
def test_each_setting_has_its_mode(name: ModeName) -> None:
    mode = mode_of(name)
    assert mode.name == name
    assert mode.merges == Table(topic="t", mode=name).merges
    assert mode.merges or not mode.has_envelopes, "an envelope's operation changes a row"
    assert mode.records in ("records", "changes")


@pytest.mark.parametrize("name", MODES)
def test_a_row_has_the_fields_that_its_path_leads_to(name: ModeName) -> None:
    mode = mode_of(name)
    value = ENVELOPE if mode.has_envelopes else ROW
    assert mode.row_type(value, "t") == ROW
    paths = {("after",), ("after", "id"), ("before",), ("before", "id")} if mode.has_envelopes else {("id",)}
    assert {*mode.wanted_fields(WantedFields({"id": NO_FIELDS})).paths()} == paths


def test_values_of_cdc_are_envelopes_perhaps_in_that_of_connect() -> None:
    cdc = mode_of("cdc")
    assert cdc.row_type(StructType().add("schema", StringType()).add("payload", ENVELOPE), "t") == ROW
    with pytest.raises(IngestError, match="topic orders have no fields op and after"):
        cdc.row_type(ROW, "orders")


@pytest.mark.parametrize(
    ("name", "value_format", "held", "expected"),
    [
        ("append", "json", None, "binary"), ("append", "json", ROW, "binary"), ("upsert", "json", None, None),
        ("upsert", "json", ROW, "json"), ("upsert", "json", BinaryType(), "binary"), ("upsert", "avro", None, "binary"),
        ("cdc", "json", None, None), ("cdc", "json", ROW, "json"), ("cdc", "avro", ROW, "binary"),
    ],
)  # fmt: skip
def test_keys_that_nobody_names_are_json_where_changes_have_such_keys(
    name: ModeName, value_format: str, held: DataType | None, expected: str | None
) -> None:
    assert mode_of(name).unregistered_key_format(value_format, held) == expected


@pytest.mark.parametrize(
    ("keys", "json_in"),
    [
        ([{"id": 1}], {"cdc"}), ([1], set()), ([None], {"cdc"}),
        ([{"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 1}}], set(MODES)),
        ([{"schema": {"type": "object"}, "payload": {"id": 1}}], {"cdc"}),
    ],
)  # fmt: skip
def test_keys_look_like_json_to_each_mode(keys: list[object], json_in: set[str]) -> None:
    documents = [None if key is None else json.dumps(key).encode() for key in keys]
    surveyed: JsonSurvey = survey_of(documents, "key")
    assert {name for name in MODES if mode_of(name).are_json_keys(surveyed)} == json_in


@pytest.mark.parametrize(
    ("declared", "surveyed_in"),
    [((), set()), (("id",), set()), (("id", "tenant"), {"upsert", "cdc"}), (("payload",), {"cdc"})],
)
def test_declared_keys_are_looked_for_in_documents_of_changes(declared: tuple[str, ...], surveyed_in: set[str]) -> None:
    assert {name for name in MODES if mode_of(name).is_surveyed_key(declared)} == surveyed_in


@pytest.mark.parametrize("name", MODES)
def test_merged_rows_have_the_topic_s_columns_alone(name: ModeName) -> None:
    mode = mode_of(name)
    columns = [column.name for column in mode.held_columns(Held())]
    assert columns == (["id"] if mode.merges else ["id", "added"])
