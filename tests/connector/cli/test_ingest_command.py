"""``ingest`` as a process, and its table."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pykafka_wire.cli.ingest_table import IngestTable
from pykafka_wire.ingest.landing import TableStatus
from tests.connector.cli.conftest import SCRIPT

#: Ends the wait for a process that does not go on.
DEADLINE_S = 180


@pytest.mark.unit
def test_a_schema_s_uuid_leaves_room_for_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr("pykafka_wire.cli.ingest_table.console", lambda: Console(file=printed, width=80))
    uuid = "d1a2f3f4-0c7b-4f6e-9a51-3f6a4c1b2d3e"
    status = TableStatus(
        topic="shop.orders", name="shop_orders", rows=12_345_678, schema_id=uuid, error="[X] \x1b[2J no"
    )
    with IngestTable("") as table:
        table.show([status], {})
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "12345678" in lines[1]
    assert "shop_orders: [X] \\x1b[2J no" in "".join(lines)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "trigger", "code"), [(signal.SIGINT, ["--every", "0s"], 0), (signal.SIGTERM, ["--once"], 130)]
)
def test_a_signal_in_a_backlog_ends_after_the_running_micro_batch(
    kafka: Any, topic: Any, outside: Any, tmp_path: Path, number: signal.Signals, trigger: list[str], code: int
) -> None:
    """With --once the exit code tells that not all has been landed."""
    name = topic(1)
    outside.produce(name, [outside.Record(value=b'{"n": 1}') for _ in range(2000)])
    settings = tmp_path / "shop.toml"
    settings.write_text(
        f'checkpoint = "{tmp_path}/checkpoint"\ntopics = "{name}"\ninto = "{tmp_path}/lake"\nmax_rows = 10\n'
        f'kafka = {{ "bootstrap.servers" = "{kafka.bootstrap_servers}" }}\ndefaults = {{ format = "json" }}\n'
    )
    arguments = [str(SCRIPT), "ingest", str(settings), *trigger]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + DEADLINE_S
            while (
                len(list((tmp_path / "lake" / name.replace("-", "_").replace(".", "_") / "_delta_log").glob("*.json")))
                < 5
            ):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.1)
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert "Ending after the running micro-batch" in err and "Traceback" not in err
    (rows,) = re.findall(rf"{re.escape(name)} +\S+ +(\d+) ", out)
    assert 0 < int(rows) < 2000 and int(rows) % 10 == 0
