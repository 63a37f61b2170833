"""Tables with Kafka's columns: which columns these are, and where a Delta table ends that is read without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pykafka_wire.checkpoints.reference import CheckpointReference, parse_table
from pykafka_wire.checkpoints.stored_tables import names_in, stored_position
from pykafka_wire.errors import MissingLibraryError, OffsetsError, OptionError

PLAIN = ["topic", "partition", "offset", "timestamp"]
PREFIXED = [f"_kafka_{name}" for name in PLAIN]


@pytest.mark.parametrize(
    ("names", "offset"),
    [
        (PLAIN, "offset"),
        (["TOPIC", "Partition", "Offset"], "Offset"),
        (PREFIXED, "_kafka_offset"),
        # A record's own fields may be called like Kafka's columns, for which these have a prefix.
        ([*PLAIN, *PREFIXED], "_kafka_offset"),
    ],
)
def test_the_columns_with_a_prefix_are_kafkas_where_both_are_there(names: list[str], offset: str) -> None:
    assert names_in(names, "t", None)["offset"] == offset


def table(folder: Path, *pieces: dict[str, list[Any]]) -> str:
    for columns in pieces:
        write_deltalake(folder, pa.table(columns), mode="append")
    return str(folder)


def ends(text: str, *topics: str, wanted: str = "") -> dict[str, int]:
    reference = parse_table(f"table:{text}", "startingOffsets")
    found = stored_position(reference, topics, lambda tp: tp.topic.startswith(wanted), "startingOffsets")
    return {str(tp): offset for tp, offset in found.offsets.offsets.items()}


def test_a_table_ends_behind_the_highest_offset_of_each_partition(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        {"topic": ["a", "a", "b"], "partition": [0, 1, 0], "offset": [3, 2**40, 7]},
        {"topic": ["a", None, "a", "a"], "partition": [0, 1, None, 1], "offset": [9, 2**50, 2**50, None]},
    )
    assert ends(found) == {"a-0": 10, "a-1": 2**40 + 1, "b-0": 8}
    assert ends(f"file://{found}", wanted="b") == {"b-0": 8}


def test_names_of_columns_and_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    columns = {'a"Partition': [0], 'A"offset': [5], "offset": [100], "partition": [0]}
    found = table(tmp_path / "ä b", columns)
    assert ends(f'{found}#a"', "orders") == {"orders-0": 6}
    assert ends(f"{found}#", "orders") == {"orders-0": 101}
    with pytest.raises(
        OffsetsError, match=r"no columns partition and offset with the prefix 'k_': it has a\"Partition, "
    ):
        ends(f"{found}#k_", "orders")


def test_rows_without_a_topic_are_of_the_only_one_that_is_read(tmp_path: Path) -> None:
    found = table(tmp_path, {"partition": [0], "offset": [5]})
    assert ends(found, "orders", wanted="orders") == {"orders-0": 6}
    with pytest.raises(
        OffsetsError, match=r"no column for the topic, and the query reads 2 topics \(a, b\): select the"
    ):
        ends(found, "a", "b")


def test_what_cannot_be_read_names_the_way_by_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = table(tmp_path, {"topic": ["a"], "partition": [0], "offset": pa.nulls(1, pa.int64())})
    with pytest.raises(OffsetsError, match="has no rows with an offset, so that it has no end: start at earliest"):
        ends(empty)
    by_spark = r"set startingOffsets to table_position\(spark, "
    with pytest.raises(OffsetsError, match=rf"cannot be read by the library deltalake .*{by_spark}'{tmp_path}/none'"):
        ends(f"{tmp_path}/none")
    with pytest.raises(OffsetsError, match=by_spark) as raised:
        ends("ftp://me:hunter2@host/table")
    assert "hunter2" not in str(raised.value)
    with pytest.raises(OptionError, match=r"only a Spark session can find a table by its name.*spark, 'shop.orders'\)"):
        ends("shop.orders")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(
        MissingLibraryError, match=rf"pip install 'pykafka-wire\[deltalake\]', on the driver; or {by_spark}"
    ):
        ends(empty)


def test_a_table_is_described_without_its_prefix() -> None:
    reference = parse_table("table:s3://KEY:SECRET@lake/t#k_", "startingOffsets")
    assert reference == CheckpointReference(path="s3://KEY:SECRET@lake/t", is_table=True, prefix="k_")
    assert reference.described == "the table s3://***@lake/t"
