"""Law: a row of an Iceberg table has the values that were written, whatever its columns are called and whoever wrote its file.

Other writers change names in data files: Iceberg's library for Java and pyiceberg write a column ``x-y`` as ``x_x2Dy``. The tables
have files of pyiceberg, also from before a column was renamed or added, and columns of generated names, inside structs, lists and
maps, too. The oracle: the values that were written.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.iceberg.files import IcebergFolder, _FilesTask
from pykafka_wire.ingest.tables.iceberg.stored_table import arrow_type, scanned, stored_dataset
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

_LETTERS = st.text(st.sampled_from("ab_-. x2é/%1"), min_size=1, max_size=4)
NAMES = st.lists(_LETTERS.filter(str.strip), min_size=4, max_size=4, unique_by=str.lower)


def values(names: Sequence[str], start: int) -> pa.Table:
    """Two rows of a number, a struct, a list and a map, whose fields have these names, too."""
    number, inside, listed, mapped = names
    struct = pa.struct([(inside, pa.int32()), (listed, pa.string())])
    numbers = [start, start + 1]
    records = [{inside: n, listed: f"text {n}"} if n % 2 else None for n in numbers]
    return pa.table(
        {
            number: pa.array(numbers, pa.int32()),
            inside: pa.array(records, struct),
            listed: pa.array([[record, None] if record else [] for record in records], pa.list_(struct)),
            mapped: pa.array(
                [[(f"key {n}", record)] for n, record in zip(numbers, records, strict=True)], pa.map_(pa.string(), struct)
            ),
        }
    )  # fmt: skip


def by_tasks(stored: Any) -> list[dict[str, Any]]:
    """The rows as tasks read them by the ids of fields."""
    with_ids = pa.schema(arrow_type(stored.schema()))
    paths = [task.file.file_path for task in stored.scan().plan_files()]
    task = _FilesTask(IcebergFolder.of(stored), paths, with_ids, with_ids)
    numbers = pa.RecordBatch.from_pydict({"id": range(len(paths))})
    return [row for batch in task.run([numbers]) for row in batch.to_pylist()]


@example(names=["id-1", "big value", "x.y", "plain"], renamed="é", added="1")
@examples(20)
@given(names=NAMES, renamed=_LETTERS.filter(str.strip), added=_LETTERS.filter(str.strip))
def test_rows_are_read_whatever_their_columns_are_called(names: list[str], renamed: str, added: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        catalog = load_catalog("lake", **given)
        catalog.create_namespace("shop")
        settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.shop", table_format="iceberg",
            catalog=given,
        )  # fmt: skip
        catalog.create_table("shop.rows", values(names, 0).schema).append(values(names, 0))
        written = values(names, 0).to_pylist()

        def check() -> None:
            stored = load_catalog("lake", **given).load_table("shop.rows")
            found = stored_dataset(settings, "rows")
            found = found if isinstance(found, pa.Table) else found.to_table()
            for rows in (found.to_pylist(), by_tasks(stored)):
                assert sorted(rows, key=lambda row: row[names[0]]) == written

        check()
        others = {name.lower() for name in names}
        if len({renamed.lower(), added.lower()} - others) < 2:
            return
        stored = catalog.load_table("shop.rows")
        with stored.update_schema() as update:
            update.rename_column((names[3],), renamed)
            update.add_column((added,), stored.schema().find_type(names[0]))
        names = [*names[:3], renamed]
        rows = values(names, 2).append_column(added, pa.array([7, 8], pa.int32()))
        catalog.load_table("shop.rows").append(rows)
        written = [{**row, added: None} for row in values(names, 0).to_pylist()] + rows.to_pylist()
        check()


#: A type of Iceberg, a default in its metadata, and the default as a value.
DEFAULTS: Final = {
    "int": (5, 5), "long": (2**40, 2**40), "string": ("x", "x"), "boolean": (True, True), "double": (1.5, 1.5),
    "date": ("2020-01-02", date(2020, 1, 2)), "decimal(5,2)": ("1.25", Decimal("1.25")), "binary": ("00ff", b"\x00\xff"),
}  # fmt: skip


VERSION_3: Final = Table(topic="t", properties={"format-version": "3"})


@examples(15)
@given(
    kinds=st.lists(st.sampled_from(sorted(DEFAULTS)), max_size=4),
    inside=st.lists(st.sampled_from(sorted(DEFAULTS)), max_size=2),
    is_later=st.booleans(),
)
def test_a_field_that_files_lack_has_its_default(kinds: list[str], inside: list[str], is_later: bool) -> None:
    """Format version 3 adds a column with an initial default, in a commit of the schema alone. pyiceberg cannot write it, so the
    test writes the metadata."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        catalog = load_catalog("lake", **given)
        catalog.create_namespace("shop")
        first = pa.table({"n": [1, 2], "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))})
        old = catalog.create_table("shop.old", first.schema)
        old.append(first)
        if is_later:
            old.append(first)
        metadata = json.loads(Path(old.metadata_location.removeprefix("file://")).read_text())
        (schema,) = metadata["schemas"]
        schema = {**json.loads(json.dumps(schema)), "schema-id": 1}
        numbers = itertools.count(metadata["last-column-id"] + 1)
        added = {}
        for fields, names in ((schema["fields"], kinds), (schema["fields"][1]["type"]["fields"], inside)):
            for kind in names:
                number = next(numbers)
                default = {"initial-default": DEFAULTS[kind][0], "write-default": DEFAULTS[kind][0]}
                fields.append({"id": number, "name": f"c{number}", "type": kind, "required": False, **default})
                added[f"c{number}", fields is schema["fields"]] = DEFAULTS[kind][1]
        version = {"format-version": 3, "next-row-id": 0, "last-column-id": next(numbers) - 1, "current-schema-id": 1}
        file = Path(folder, "v3.metadata.json")
        file.write_text(json.dumps(metadata | version | {"schemas": [*metadata["schemas"], schema]}))
        stored = catalog.register_table("shop.rows", file.as_uri())
        outer = {name: value for (name, is_outer), value in added.items() if is_outer}
        within = {name: value for (name, is_outer), value in added.items() if not is_outer}
        expected = [{"n": 1, "s": {"a": 1, **within}, **outer}, {"n": 2, "s": None, **outer}]
        settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.shop", table_format="iceberg",
            catalog=given,
        )  # fmt: skip
        found = stored_dataset(settings, "rows")
        found = (found if isinstance(found, pa.Table) else found.to_table()).to_pylist()
        assert sorted(found, key=lambda row: row["n"]) == sorted(expected * (1 + is_later), key=lambda row: row["n"])
        oldest = stored.metadata.snapshots[0].snapshot_id
        assert scanned(stored, oldest).to_pylist() == expected
        assert scanned(stored, oldest, ["n"]).to_pylist() == [{"n": 1}, {"n": 2}]
        session: Any = None
        with pytest.raises(IngestError, match="has format version 3"):
            IcebergTable(session, settings, "rows").spark_reason()
        with pytest.raises(IngestError, match="has format version 3"):
            IcebergTable(session, settings, "new").create_of(first.schema, VERSION_3, "q", None)
