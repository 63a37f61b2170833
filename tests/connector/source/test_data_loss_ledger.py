"""Lost records: an error, or a count, a line in the log and one in the ledger."""

from __future__ import annotations

import pickle
import traceback
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from pykafka_wire.errors import DataLossError, LedgerError, Loss, OptionError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.data_loss import LEDGER_SCHEMA, DataLossReporter
from pykafka_wire.wire.topic_partitions import TopicPartition

AGED = [(TopicPartition("orders", 0), 5, 9), (TopicPartition("orders", 2), 0, 1)]
TOPIC_ID = uuid.UUID(int=7)


def losses(**options: str) -> DataLossReporter:
    asked = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"} | options
    return DataLossReporter(parse_source_options(asked, "stream"))


def ledger(folder: Path) -> list[dict[str, Any]]:
    assert not [file for file in folder.iterdir() if file.suffix != ".parquet"]
    tables = [pyarrow.parquet.read_table(file) for file in folder.iterdir()]
    assert all(table.schema.equals(LEDGER_SCHEMA) for table in tables)
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: str(row["partition"]))


def test_a_query_that_must_not_lose_records_fails_with_their_place() -> None:
    with pytest.raises(DataLossError) as raised:
        losses().report(Loss.START_OFFSET_OUT_OF_RANGE, AGED)
    assert raised.value.lost == AGED
    losses().report(Loss.START_OFFSET_OUT_OF_RANGE, [])


def test_what_is_skipped_is_counted_and_logged_once(caplog: Any) -> None:
    found = losses(failOnDataLoss="false")
    for _ in range(3):
        found.report(Loss.START_OFFSET_OUT_OF_RANGE, AGED)
    assert (found.n_ranges, found.n_offsets) == (2, 5)
    found.report(Loss.PARTITIONS_DELETED, [(TopicPartition("gone", 0), 3, -1)])
    assert (found.n_ranges, found.n_offsets) == (3, 5)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    # An ingest skips nothing: its tables say what they miss.
    assert caplog.messages[0].startswith("Records are lost, and the query continues without them: START_OFFSET_OUT_OF")
    assert "orders-0 [5, 9), orders-2 [0, 1)" in caplog.text and "gone-0 [3, …)" in caplog.text


def test_a_query_that_loses_records_for_ever_does_not_grow() -> None:
    found = losses(failOnDataLoss="false")
    sizes = []
    for start in range(0, 2_000, 2):
        for _ in range(2):
            found.report(Loss.START_OFFSET_OUT_OF_RANGE, [(TopicPartition("orders", 0), start, start + 1)])
        sizes.append(len(pickle.dumps(found)))
    assert (found.n_ranges, found.n_offsets) == (1_000, 1_000)
    assert max(sizes) < sizes[0] + 100


@pytest.mark.parametrize("as_uri", [False, True])
def test_each_lost_range_is_a_file_and_a_rerun_replaces_it(tmp_path: Path, as_uri: bool) -> None:
    folder = tmp_path / "a" / "ledger"
    path = folder.as_uri() if as_uri else str(folder)
    for attempt in range(2):
        later = [(tp, start, end + attempt) for tp, start, end in AGED]  # more has aged out meanwhile
        found = losses(failOnDataLoss="false", dataLossLedger=path)
        found.report(
            Loss.START_OFFSET_OUT_OF_RANGE, later, query="q", topic_ids={"orders": TOPIC_ID}, detail=f"try {attempt}"
        )
    rows = ledger(folder)
    detected = {row.pop("detected_at").tzinfo is not None for row in rows}
    assert detected == {True}
    same = {"query": "q", "cause": "START_OFFSET_OUT_OF_RANGE", "topic": "orders", "detail": "try 1"}
    topic_id = "AAAAAAAAAAAAAAAAAAAABw"
    assert rows == [
        {**same, "topic_id": topic_id, "partition": 0, "start_offset": 5, "end_offset": 10},
        {**same, "topic_id": topic_id, "partition": 2, "start_offset": 0, "end_offset": 2},
    ]
    for query, n_files in (("q", 2), ("another", 3)):
        found = losses(failOnDataLoss="false", dataLossLedger=path)
        found.report(Loss.START_OFFSET_OUT_OF_RANGE, AGED[:1], query=query, topic_ids={"orders": TOPIC_ID})
        assert len(ledger(folder)) == n_files


def test_what_is_unknown_is_null(tmp_path: Path) -> None:
    found = losses(failOnDataLoss="false", dataLossLedger=str(tmp_path))
    found.report(Loss.PARTITIONS_DELETED, [(TopicPartition("gone", 0), 3, -1)])
    (row,) = ledger(tmp_path)
    assert (row["query"], row["topic_id"], row["end_offset"], row["detail"]) == (None, None, None, None)


def test_a_ledger_that_cannot_be_written_stops_the_query(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    found = losses(failOnDataLoss="false", dataLossLedger=str(tmp_path / "file" / "ledger"))
    with pytest.raises(LedgerError, match="orders-0, orders-2 could not be written"):
        found.report(Loss.START_OFFSET_OUT_OF_RANGE, AGED)
    assert found.n_ranges == 0


def test_a_ledger_that_can_never_be_used_is_refused() -> None:
    with pytest.raises(OptionError, match="set failOnDataLoss to false"):
        losses(dataLossLedger="/ledger")
    with pytest.raises(OptionError, match="which pyarrow cannot open"):
        losses(failOnDataLoss="false", dataLossLedger="nosuch://place/ledger")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:hush%hush@bucket/ledger",
        "s3://AKIA:hu?hush@hush@bucket/ledger",
        "hdfs://user:hush@host:port/ledger",
        "nosuch://user:hush@place/ledger?password=hush",
    ],
)
def test_a_ledger_that_cannot_be_opened_is_named_without_its_secret(uri: str) -> None:
    with pytest.raises(OptionError, match="which pyarrow cannot open") as raised:
        losses(failOnDataLoss="false", dataLossLedger=uri)
    shown = "".join(traceback.format_exception(raised.value))
    assert "/ledger" in str(raised.value) and "hush" not in shown and "AKIA" not in shown


def test_the_options_do_not_show_the_ledgers_secret() -> None:
    options = {"kafka.bootstrap.servers": "host:1", "subscribe": "t", "failOnDataLoss": "false"}
    parsed = parse_source_options(options | {"dataLossLedger": "s3://AKIA:hush@bucket/ledger"}, "batch")
    assert "hush" not in repr(parsed)
