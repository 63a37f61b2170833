"""Tables that equal ``SELECT *``: topics as Debezium and Kafka Connect write them, and what is right, in ``debezium/*.jsonl``.

The first line of a file has ``about``, the ``table``'s settings and the rows that are ``want``-ed, without Kafka's columns, and
``n_rejects`` where changes do not fit the table; the others are records, each with the number of its micro-batch. All files are
landed by one ingest, as topics of one cluster.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1800)]

_FOLDER = Path(__file__).parent / "debezium"
_T0 = 1_700_000_000_000


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    about: str
    table: dict[str, Any]
    want: list[dict[str, Any]]
    n_rejects: int | None = None
    records: list[dict[str, Any]]


def read_case(path: Path) -> Case:
    head, *records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return Case(name=path.stem, records=records, **head)


CASES = [read_case(path) for path in sorted(_FOLDER.glob("*.jsonl"))]
#: These are run with each change, one for each way to a row; the others by ``make debezium``. A micro-batch of changes is a MERGE
#: for each table, of 3 to 4 s of processor time.
_EACH_TIME = (
    "connect_times",
    "connect_types",
    "decimal_scale_defaults",
    "flattened",
    "items_of_two_schemas",
    "long_numbers",
    "toast_moves_named",
)
PARAMETERS = [
    pytest.param(case, id=case.name, marks=() if case.name in _EACH_TIME else pytest.mark.long) for case in CASES
]


def encoded(part: Any) -> bytes | None:
    """A key or value of a file: text is written as it is, so that 7.0 stays 7.0."""
    return None if part is None else part.encode() if isinstance(part, str) else json.dumps(part).encode()


def plain(value: Any) -> Any:
    """A value of a table as the files write it."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, Decimal):  # text, where a float would lose digits
        is_kept = Decimal(repr(float(value))) == value
        return float(value) if is_kept else format(value.normalize(), "f")
    return value


@pytest.fixture(scope="module")
def landed(
    spark: Any, outside: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Shop, Ingest]:
    """The cases that are run, landed in one lake: the shop, and the ingest after its last micro-batch."""
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    cases = [case for case in CASES if any(each.get("case") is case for each in params)]

    def topic(partitions: int, name: str) -> str:
        outside.create(name, partitions)
        return name

    shop = Shop(spark, outside, topic, "http://localhost:1", tmp_path_factory.mktemp("debezium"))
    for case in cases:
        shop.create(case.name)
    tables = [Table(topic=rf"{shop.prefix}\.{case.name}", **case.table) for case in cases]
    ingest = shop.ingest(tables=tables, registry=None)
    batches = sorted({record["batch"] for case in cases for record in case.records})
    for batch in batches:
        for case in cases:
            records = [
                outside.Record(
                    key=encoded(record["key"]),
                    value=encoded(record["value"]),
                    partition=record.get("partition", sum(encoded(record["key"]) or b"") % 2),
                    timestamp_ms=_T0 + record["time"] if "time" in record else 0,
                    headers=tuple((name, text.encode()) for name, text in record.get("headers", {}).items()),
                )
                for record in case.records
                if record["batch"] == batch
            ]
            outside.produce(f"{shop.prefix}.{case.name}", records)
        assert ingest.start(spark, once=True).awaitTermination(1700), "the ingest did not end"
    return shop, ingest


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_table_equals_that_of_the_database(landed: Any, case: Case) -> None:
    shop, ingest = landed
    status = ingest.statuses[f"{shop.prefix}.{case.name}"]
    assert status.error is None, case.about
    table = shop.table(case.name)
    columns = [name for name in table.columns if not name.startswith("_kafka_")]
    rows = [
        dict(zip(columns, map(plain, _cells(row)), strict=True))
        for row in table.select(*map(_quoted, columns)).collect()
    ]
    order = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(rows, key=order) == sorted(case.want, key=order), case.about
    assert case.n_rejects in (None, status.held_rejects)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _cells(row: Any) -> list[Any]:
    return [_plain_row(cell) for cell in row]


def _plain_row(cell: Any) -> Any:
    return cell.asDict(recursive=True) if hasattr(cell, "asDict") else cell


@pytest.mark.long  # `prove` has tests of its own
def test_each_table_holds_the_newest_change_of_each_row(landed: Any) -> None:
    shop, ingest = landed
    stale = {f"{shop.prefix}.{case.name}" for case in CASES if case.n_rejects}
    wrong = [str(proof) for proof in verify(shop.spark, ingest.settings, ingest.topics()) if not proof.is_right]
    assert [text for text in wrong if not any(name in text for name in stale)] == []
