"""An ingest that is started in a session of Spark Connect, and landed by the server. `make deployments`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local import delta_jars
from tests.connect_server import connect_server

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("connect_ingest_program.py")
DELTA = (
    "--conf=spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "--conf=spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # By default 200 tasks for each of the many small jobs that look for values that were not sent: minutes.
    "--conf=spark.sql.shuffle.partitions=2",
)
#: More than the driver reads and writes for itself.
MANY = 10_001


def newest_commit(table: Path) -> Any:
    """The ``commitInfo`` of a Delta table's newest version."""
    actions = map(json.loads, max((table / "_delta_log").glob("*.json")).read_text().splitlines())
    return next(action["commitInfo"] for action in actions if "commitInfo" in action)


def test_the_server_lands_the_tables_and_another_run_goes_on_with_them(
    java: None, topic: Any, outside: Any, tmp_path: Path
) -> None:
    clicks, users, moved, odd = topic(2), topic(2), topic(2), topic(2)

    def send(name: str, *rows: Any) -> None:
        outside.produce(
            name,
            [outside.Record(key=b"%d" % (row["id"] % 2), value=json.dumps(row).encode(), partition=0) for row in rows],
        )

    def change(op: str, number: int, big: str | None = None, **headers: int) -> Any:
        """A change of Debezium's, whose headers name another key."""
        row = None if op == "d" else {"id": number, "big": big}
        return outside.Record(
            key=json.dumps({"id": number}).encode(),
            value=json.dumps({"before": None, "after": row, "op": op}).encode(),
            headers=tuple((f"__debezium.{name}", json.dumps({"id": key}).encode()) for name, key in headers.items()),
            partition=0,
        )

    jars = ",".join(map(str, delta_jars()))
    with connect_server(tmp_path, f"--jars={jars}", *DELTA) as url:

        def landed(odd_schema: str) -> Any:
            program = [sys.executable, str(PROGRAM), outside.servers, str(tmp_path), clicks, users, moved, odd]
            program.append(odd_schema)
            result = subprocess.run(
                program, env={**os.environ, "SPARK_REMOTE": url}, capture_output=True, text=True, timeout=280
            )
            assert result.returncode == 0, result.stdout + result.stderr
            return json.loads(result.stdout.splitlines()[-1])

        send(clicks, *({"id": number} for number in range(100)))
        outside.produce(clicks, [outside.Record(value=b"{damaged", partition=1)])
        send(users, *({"id": number} for number in range(10)))
        outside.produce(moved, [change("r", 1, "A"), change("r", 2, "B")])
        send(odd, {"id": 1, "ID": 2})
        first = landed("")  # the columns id and ID would have one name: the table is stopped, and the others are landed
        assert sorted(row["id"] for row in first["clicks"]) == list(range(100))
        log = (tmp_path / "connect.log").read_text()
        # The server releases each micro-batch by itself. Asked by PySpark as well, it was waited for without end now and then.
        assert "StreamingForeachBatchHelper" in log and "SparkConnectPlanner: Removing DataFrame" not in log
        # The next run has a process of its own on the server, and a new column.
        send(clicks, *({"id": number, "page": "/"} for number in range(100, 150)))
        # A value that the database has not sent is looked for, by rows that the server keeps until it is asked to release them.
        unsent = "__debezium_unavailable_value"
        moves = [change("d", 1, newkey=10), change("c", 10, unsent, oldkey=1)]
        outside.produce(moved, [*moves, change("d", 10, newkey=11), change("c", 11, unsent, oldkey=10)])
        # The stopped table goes on with the schema that it is given, by files of tasks: the driver reads fewer for itself.
        send(odd, *({"id": number} for number in range(2, MANY + 2)))
        found = landed("id BIGINT")
    assert "SparkConnectPlanner: Removing DataFrame" in (tmp_path / "connect.log").read_text()
    assert sorted((row["id"], row["big"]) for row in found["moved"]) == [(2, "B"), (11, "A")]
    assert sorted(row["id"] for row in found["odd"]) == list(range(1, MANY + 2))
    for name in ("clicks", "odd"):
        assert "delta-rs" in newest_commit(tmp_path / "lake" / name)["engineInfo"], name
    assert sorted((row["id"], row["page"]) for row in found["clicks"] if row["page"]) == [
        (number, "/") for number in range(100, 150)
    ]
    assert len(found["clicks"]) == 150
    assert sorted(row["id"] for row in found["users"]) == [8, 9]
    assert found["_rejects"] == [{"offset": 0}]
    assert not found["wrong"]
