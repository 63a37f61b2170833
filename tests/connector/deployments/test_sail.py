"""Sail, an engine that speaks Spark Connect: what works there, and what does not, as docs/deployment.md says. `make deployments`.

Sail and the client come from the package index, into an environment without Spark and without Java.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.connector.deployments.run import environment_of, environment_with, run

PROGRAM = Path(__file__).with_name("sail_program.py")
REQUIREMENTS = ("pysail==0.7.2", "pyspark-client==4.2.0")
WORKS = {
    "read": [[0, 30], [1, 20]],
    "read by more tasks": [[0, 30], [1, 20]],
    "type of the timestamp": "timestamp_ntz",
    "timestamp under a schema": 50,
    "filters": 15,
    "filters for the source": 15,
    "write": 100,
    "headers under a schema": 50,
    "values under a schema": 4950,
    "a table in SQL": 50,
}
#: What is in the error of each.
FAILS = {
    "headers": "Unsupported type in DDL schema",
    "values": "assert timezone is not None",
    "a view in SQL": "the data source path must be specified for CREATE TEMPORARY VIEW",
    "a mistyped option": "[PYKAFKA_WIRE_OPTION] unknown option 'startingoffset': did you mean startingOffsets?",
    "a stream from a topic": "streaming query must write data to a sink",
    "a stream into a topic": "unsupported extension node for streaming",
}

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(1800)]


def test_batches_work_and_streams_do_not(wheel: Path, kafka: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    python = environment_with(tmp_path / "environment", str(wheel), *REQUIREMENTS)
    source, target = topic(2), topic(2)
    outside.fill(source, [30, 20])
    command = [python, PROGRAM, kafka.bootstrap_servers, source, target, tmp_path]
    printed = run(command, cwd=tmp_path, env=environment_of(python))
    (line,) = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    found = json.loads(line.removeprefix("RESULT "))
    assert {name: found[name] for name in WORKS} == WORKS
    assert [name for name, part in FAILS.items() if part not in str(found[name])] == [], found
    assert set(found) == {*WORKS, *FAILS}
