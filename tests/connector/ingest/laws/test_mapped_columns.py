"""A reader of a Delta table returns each value in the column that the table has for it, or refuses the table.

Column mapping gives columns other names in files. The test writes the log and the file of such a table, in both protocols that have
column mapping. The oracle: the values that were written, by the names of the table.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables.delta.opened_table import stored_dataset
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

#: For each of two columns and a field inside the third one, its name in files.
NAMES = st.permutations(["a", "b", "col-1", "col-2", "c"]).map(lambda names: tuple(names[:3]))
OWN_NAMES = ("a", "b", "c")


def field(name: str, number: int, in_files: str, kind: Any = "long") -> dict[str, Any]:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": in_files}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


def write_table(folder: Path, names: tuple[str, ...], *, has_features: bool) -> list[dict[str, Any]]:
    """Write a table of one file, whose columns have these names in the file; return its rows."""
    inside = {"type": "struct", "fields": [field("c", 4, names[2])]}
    fields = [field("a", 1, names[0]), field("b", 2, names[1]), field("s", 3, "s", inside)]
    struct = pa.struct([(names[2], pa.int64())])
    pq.write_table(
        pa.table({names[0]: [1], names[1]: [2], "s": pa.array([{names[2]: 3}], struct)}), folder / "f.parquet"
    )
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if has_features:
        protocol = {
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"],
        }  # fmt: skip
    metadata = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 0,
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"},
    }  # fmt: skip
    added = {
        "path": "f.parquet", "partitionValues": {}, "size": (folder / "f.parquet").stat().st_size, "modificationTime": 0,
        "dataChange": True,
    }  # fmt: skip
    log = folder / "_delta_log" / f"{0:020}.json"
    log.parent.mkdir()
    log.write_text(
        "\n".join(json.dumps(action) for action in ({"protocol": protocol}, {"metaData": metadata}, {"add": added}))
    )
    return [{"a": 1, "b": 2, "s": {"c": 3}}]


@examples(30)
@given(names=st.one_of(st.just(OWN_NAMES), NAMES), has_features=st.booleans())
def test_a_column_with_another_name_in_files_has_its_values_or_is_refused(
    names: tuple[str, ...], has_features: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = write_table(Path(folder), names, has_features=has_features)
        try:
            found = stored_dataset(folder, {}).to_table().to_pylist()
        except Exception as error:
            assert has_features or (isinstance(error, IngestError) and names != OWN_NAMES)
            return
        assert found == rows
