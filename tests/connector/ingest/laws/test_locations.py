"""No Iceberg table has its files in the location of another one, whatever tables are created, renamed and dropped.

A table that is renamed keeps its location, and so does a dropped one, which a catalog can restore. A cleanup of a location deletes
the files that its table does not name.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from tests.connector.ingest.laws.generated import examples
from tests.connector.ingest.laws.test_positions import BEGINS_AT, SCHEMA, TABLE, IcebergLake

pytestmark = pytest.mark.unit

NAMES = st.sampled_from(("numbers", "older", "oldest"))


def _files(stored: Any) -> set[str]:
    data = stored.inspect.all_files()["file_path"].to_pylist()
    return {stored.metadata_location, *data}


@examples(12)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("rename"), NAMES, NAMES),
            st.tuples(st.just("drop"), NAMES, NAMES),
            st.tuples(st.just("create"), NAMES, NAMES),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_new_table_has_a_location_of_its_own(steps: list[tuple[str, str, str]]) -> None:
    nothing: Any = None  # a session is for DataFrames
    with tempfile.TemporaryDirectory() as folder:
        lake = IcebergLake(folder)
        catalog, kept, tables = lake._catalog, dict[str, set[str]](), {"numbers"}
        for step, name, other in [*steps, ("create", "numbers", "")]:
            if step == "create" and name not in tables:
                IcebergTable(nothing, lake._settings, name).create_of(SCHEMA, TABLE, "q", BEGINS_AT)
                tables.add(name)
                stored = catalog.load_table(("shop", name))
                stored.append(pa.table({"id": [1]}, schema=SCHEMA))
                stored = catalog.load_table(("shop", name))
                location = f"{stored.location()}/"
                assert not [path for files in kept.values() for path in files if path.startswith(location)]
                kept[str(stored.metadata.table_uuid)] = _files(stored)
                assert all(path.startswith(location) for path in _files(stored))
            elif step == "rename" and name in tables and other not in tables:
                catalog.rename_table(("shop", name), ("shop", other))
                tables = tables - {name} | {other}
            elif step == "drop" and name in tables:
                catalog.drop_table(("shop", name))
                tables.discard(name)
