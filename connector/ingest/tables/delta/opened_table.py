"""A Delta table that the library deltalake has opened, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial, reduce
from operator import and_
from typing import Any, Final

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.format import TableWithoutSpark
from pykafka_wire.places import table_uri

_NAME_IN_FILES: Final = "delta.columnMapping.physicalName"


def opened_table(folder: DeltaFolder) -> TableWithoutSpark:
    """Return the table in a folder. Raises an error of deltalake if there is none."""
    rows = partial(stored_dataset, folder.folder.uri, folder.folder.storage)
    return TableWithoutSpark(folder.properties(), folder.landed, rows)


def stored_dataset(folder: str, storage: Mapping[str, str]) -> Any:
    """Return the table's rows as a pyarrow dataset, in which only partition values exclude files.

    Raises:
        IngestError: columns have other names in files, which deltalake (1.6.6) would return as nulls.

    If the log has no bound for a column, as in Delta for booleans, deltalake (1.6.6) describes the file as ``column >= null``, and
    pyarrow then wrongly skips the file for ``WHERE flag = true``.
    """
    import pyarrow.dataset as pads
    from deltalake import DeltaTable

    table = DeltaTable(table_uri(folder), storage_options=dict(storage))
    if _is_mapped(json.loads(table.schema().to_json())):
        raise IngestError(
            "columns have other names in its files (column mapping), which the library deltalake does not read"
        )
    dataset = table.to_pyarrow_dataset()
    fragments = [
        dataset.format.make_fragment(
            fragment.path,
            filesystem=dataset.filesystem,
            partition_expression=_equal_to(pads.get_partition_keys(fragment.partition_expression)),
        )
        for fragment in dataset.get_fragments()
    ]
    return pads.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _is_mapped(kind: Any) -> bool:
    """Return whether a field in Delta's schema has another name in files."""
    if not isinstance(kind, dict):
        return False
    fields = kind.get("fields", ())
    inner = (field["type"] for field in fields)
    return any(
        field.get("metadata", {}).get(_NAME_IN_FILES, field["name"]) != field["name"] for field in fields
    ) or any(map(_is_mapped, (*inner, *(kind.get(child) for child in ("elementType", "keyType", "valueType")))))


def _equal_to(values: Mapping[str, Any]) -> Any:
    """Return the pyarrow condition that columns have these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    conditions = (
        pc.field(name).is_null() if value is None else pc.field(name) == value for name, value in values.items()
    )
    return reduce(and_, conditions, pc.scalar(pa.scalar(True)))
