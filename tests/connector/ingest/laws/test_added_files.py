"""Rows of an Iceberg table are read with their partition's values, although files of another program lack the partition's columns.

Iceberg's procedures add the files of a Hive table, whose folders have these values. The oracle is pyiceberg's own scan.
"""

from __future__ import annotations

import tempfile
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record

from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.iceberg.stored_table import stored_dataset
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string()), ("day", pa.date32())])
ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=3)
#: Files: the rows, the values of the partition, and whether the file has their columns.
FILES = st.lists(
    st.tuples(ROWS, st.sampled_from(("NO", "SE", None)), st.sampled_from((date(2024, 2, 29), None)), st.booleans()),
    min_size=1,
    max_size=4,
)


@examples(10)
@given(files=FILES)
def test_rows_have_the_values_of_their_partition_whoever_wrote_their_file(
    files: list[tuple[list[int], str | None, date | None, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        catalog: Any = load_catalog("lake", **given)
        catalog.create_namespace("shop")
        with catalog.create_table_transaction(("shop", "orders"), SCHEMA) as transaction:
            with transaction.update_spec() as update:
                update.add_identity("country")
                update.add_identity("day")
            mapping = create_mapping_from_schema(transaction.table_metadata.schema()).model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": mapping})
        stored = catalog.load_table(("shop", "orders"))
        with stored.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number, (ids, country, day, has_columns) in enumerate(files):
                whole = pa.table({"id": ids, "country": [country] * len(ids), "day": [day] * len(ids)}, schema=SCHEMA)
                path = f"{folder}/{number}.parquet"
                pq.write_table(whole if has_columns else whole.select(["id"]), path)
                metadata = pq.read_metadata(path)
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"file://{path}",
                        file_format=FileFormat.PARQUET,
                        partition=Record(country, None if day is None else (day - date(1970, 1, 1)).days),
                        file_size_in_bytes=1,
                        sort_order_id=None,
                        spec_id=stored.metadata.default_spec_id,
                        equality_ids=None,
                        key_metadata=None,
                        **data_file_statistics_from_parquet_metadata(
                            metadata,
                            compute_statistics_plan(stored.schema(), {}),
                            parquet_path_to_id_mapping(stored.schema()),
                        ).to_serialized_dict(),
                    )
                )
        settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.shop", table_format="iceberg",
            catalog=given,
        )  # fmt: skip
        expected = catalog.load_table(("shop", "orders")).scan().to_arrow().to_pylist()
        dataset = stored_dataset(settings, "orders")
        found = (dataset if isinstance(dataset, pa.Table) else dataset.to_table()).to_pylist()
        in_order = lambda rows: sorted(map(str, rows))  # noqa: E731
        assert in_order(found) == in_order(expected)
