"""Law: a row of an Iceberg table has the values that were written, whatever its columns are called and whoever wrote its file.

Other writers change names in data files: Iceberg's library for Java and pyiceberg write a column ``x-y`` as ``x_x2Dy``. The tables
have files of pyiceberg, also from before a column was renamed or added, and columns of generated names, inside structs, lists and
maps, too. The oracle: the values that were written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.iceberg.files import IcebergFolder, _FilesTask
from pykafka_wire.ingest.tables.iceberg.table import arrow_type, stored_dataset
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
