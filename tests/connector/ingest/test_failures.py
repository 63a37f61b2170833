"""Errors by their parts: those that Spark, Delta, Java and this package really raise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake.exceptions
import pyiceberg.exceptions
import pytest
import sqlalchemy.exc
from pyspark.sql.functions import udf

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.landing.remedies import Failure, Remedy, reason_of_record
from pykafka_wire.ingest.settings.model import TABLE_FORMATS
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.tables.format import TableErrors
from pykafka_wire.ingest.tables.formats import MODULES
from pykafka_wire.wire.errors import NoBrokerAvailableError

#: The errors of each format.
ERRORS: list[TableErrors] = [import_module(MODULES[name]).FORMAT.errors for name in TABLE_FORMATS]
DELTA = ERRORS[TABLE_FORMATS.index("delta")]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def failure(call: Callable[[], Any]) -> Failure:
    with pytest.raises(Exception) as raised:
        call()
    return Failure.of(raised.value, DELTA)


def test_errors_of_this_package_are_known_by_their_codes() -> None:
    assert Failure.of(IngestError("x: y"), DELTA) == Failure(
        code="PYKAFKA_WIRE_INGEST", sentence="[PYKAFKA_WIRE_INGEST] x: y", remedy=Remedy.CHANGE
    )
    assert Failure.of(NoBrokerAvailableError(), DELTA).remedy is Remedy.RETRY_LATER
    # A text that looks like another error's decides nothing.
    assert Failure.of(ValueError("[PYKAFKA_WIRE_INGEST] x"), DELTA).code == "ValueError"


def test_what_delta_cannot_merge_says_what_to_do_and_says_it_once() -> None:
    text = "x: [DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'id' and 'id'"
    once = Failure.of(RuntimeError(text), DELTA).sentence
    assert once.startswith(
        "[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'id' and 'id': the table cannot be widened"
    )
    assert 'on_conflict = "divert"' in once
    assert Failure.of(RuntimeError(once), DELTA).sentence == sentence_of(RuntimeError(once)) == once


def test_errors_of_spark_and_delta_are_known_by_their_conditions(spark: Any, tmp_path: Path) -> None:
    def write(query: str) -> None:
        spark.sql(query).write.format("delta").mode("append").option("mergeSchema", "true").save(str(tmp_path / "t"))

    write("SELECT 1 AS id")
    table = f"delta.`{tmp_path}/t`"
    cases = {
        "SELECT 'x' AS id": ("DELTA_FAILED_TO_MERGE_FIELDS", Remedy.CHANGE),
        "SELECT TIMESTAMP_NTZ '2026-01-01 00:00:00' AS at": ("DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT", Remedy.CHANGE),
        "SELECT 1 AS `a b`": ("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", Remedy.CHANGE),
    }
    found = {query: failure(lambda query=query: write(query)) for query in cases}  # type: ignore[misc]
    assert {query: (each.code, each.remedy) for query, each in found.items()} == cases
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (id < 2)")
    assert failure(lambda: write("SELECT 5 AS id")).remedy is Remedy.CHANGE
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    deleted = failure(lambda: spark.sql(f"DELETE FROM {table}"))
    assert (deleted.code, deleted.remedy) == ("DELTA_CANNOT_MODIFY_APPEND_ONLY", Remedy.CHANGE)
    missing = failure(lambda: spark.sql(f"SHOW TBLPROPERTIES delta.`{tmp_path}/none`"))
    assert (missing.code, missing.remedy) == ("DELTA_MISSING_DELTA_TABLE", Remedy.RETRY_LATER)


def test_an_error_in_a_task_is_the_one_that_it_was_raised_for(spark: Any, tmp_path: Path) -> None:
    @udf("int", useArrow=False)
    def fail(_: int) -> int:
        from pykafka_wire.errors import SchemaError

        raise SchemaError("the column x is missing: add it.")

    ours = failure(lambda: spark.range(1).select(fail("id")).write.format("noop").mode("append").save())
    assert ours == Failure(
        code="PYKAFKA_WIRE_SCHEMA",
        sentence="[PYKAFKA_WIRE_SCHEMA] the column x is missing: add it.",
        remedy=Remedy.CHANGE,
    )

    def full(batches: Any) -> Any:
        for _ in batches:
            raise OSError(28, "Error writing bytes to file")
        yield from ()

    other = failure(lambda: spark.range(1).mapInArrow(full, "id bigint").collect())
    assert (other.sentence, other.remedy) == ("OSError: [Errno 28] Error writing bytes to file", Remedy.RETRY_LATER), (
        other
    )
    assert other.code == "PYTHON_EXCEPTION"
    (tmp_path / "file").write_text("no folder")
    blocked = failure(lambda: spark.range(1).write.format("delta").save(str(tmp_path / "file")))
    assert (blocked.code, blocked.remedy) == ("DELTA_CANNOT_CREATE_LOG_PATH", Remedy.RETRY_LATER)


def test_another_program_s_commit_asks_for_another_attempt_at_once(spark: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(folder)

    @udf("long", useArrow=False)
    def slow(number: int) -> int:
        time.sleep(1.0)
        return number

    def alter() -> None:
        time.sleep(1.0)
        spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('a' = 'b')")

    other = threading.Thread(target=alter)
    other.start()
    rows = spark.range(3).select(slow("id").alias("id"))
    found = failure(lambda: rows.write.format("delta").mode("append").save(folder))
    other.join()
    assert (found.code, found.remedy) == ("DELTA_METADATA_CHANGED", Remedy.RETRY_NOW)


@pytest.mark.unit
@pytest.mark.parametrize(
    "name",
    [
        "AmazonS3Exception", "S3Exception", "AbfsRestOperationException", "AzureException", "StorageException", "SdkException",
        "GoogleJsonResponseException", "FileNotFoundException", "SparkFileNotFoundException", "NoSuchFileException", "EOFException",
        "FetchFailedException", "BlockMissingException", "RemoteException", "SafeModeException", "SQLException",
        "SQLTransientException", "MetaException", "TTransportException", "OperationalError", "DatabaseError", "ServerError",
    ],
)  # fmt: skip
def test_an_error_of_a_store_a_catalog_or_a_database_is_no_record_s(name: str) -> None:
    for known in ERRORS:
        assert reason_of_record(type(name, (Exception,), {})("503"), known) is None


@pytest.mark.unit
@pytest.mark.parametrize("name", TABLE_FORMATS)
def test_an_error_of_a_library_that_calls_catalogs_and_stores_is_no_record_s(name: str) -> None:
    module: ModuleType = {"delta": deltalake.exceptions, "iceberg": pyiceberg.exceptions}[name]
    raised = [each("429") for each in vars(module).values() if isinstance(each, type) and issubclass(each, Exception)]
    raised += [
        sqlalchemy.exc.IntegrityError("INSERT", {}, Exception("locked")),
        sqlalchemy.exc.ResourceClosedError("closed"),
    ]
    assert len(raised) > 5
    for error in raised:
        assert reason_of_record(error, ERRORS[TABLE_FORMATS.index(name)]) is None, error


@pytest.mark.unit
@pytest.mark.parametrize("name", ["OverflowError", "ArrowInvalid", "KeyError", "UnicodeDecodeError", "ValueError"])
def test_an_error_of_a_value_may_be_a_record_s(name: str) -> None:
    for known in ERRORS:
        assert reason_of_record(type(name, (Exception,), {})("value"), known) is not None
