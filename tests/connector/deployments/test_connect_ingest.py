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
)


def test_the_server_lands_the_tables_and_another_run_goes_on_with_them(
    java: None, topic: Any, outside: Any, tmp_path: Path
) -> None:
    clicks, users = topic(2), topic(2)

    def send(name: str, *rows: Any) -> None:
        outside.produce(
            name,
            [outside.Record(key=b"%d" % (row["id"] % 2), value=json.dumps(row).encode(), partition=0) for row in rows],
        )

    jars = ",".join(map(str, delta_jars()))
    with connect_server(tmp_path, f"--jars={jars}", *DELTA) as url:

        def landed() -> Any:
            program = [sys.executable, str(PROGRAM), outside.servers, str(tmp_path), clicks, users]
            result = subprocess.run(
                program, env={**os.environ, "SPARK_REMOTE": url}, capture_output=True, text=True, timeout=280
            )
            assert result.returncode == 0, result.stdout + result.stderr
            return json.loads(result.stdout.splitlines()[-1])

        send(clicks, *({"id": number} for number in range(100)))
        outside.produce(clicks, [outside.Record(value=b"{damaged", partition=1)])
        send(users, *({"id": number} for number in range(10)))
        first = landed()
        assert sorted(row["id"] for row in first["clicks"]) == list(range(100))
        # The next run has a process of its own on the server, and a new column.
        send(clicks, *({"id": number, "page": "/"} for number in range(100, 150)))
        found = landed()
    assert sorted((row["id"], row["page"]) for row in found["clicks"] if row["page"]) == [
        (number, "/") for number in range(100, 150)
    ]
    assert len(found["clicks"]) == 150
    assert sorted(row["id"] for row in found["users"]) == [8, 9]
    assert found["_rejects"] == [{"offset": 0}]
    assert not first["wrong"] and not found["wrong"]
