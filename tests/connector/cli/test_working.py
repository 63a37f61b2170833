"""What long commands show meanwhile, and that what Spark prints does not get there."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pykafka_wire.cli.spark_output import SparkOutput, log_folder
from pykafka_wire.cli.working import Steps, Working, bar, outlook, working
from pykafka_wire.errors import IngestError
from tests.connector.cli.conftest import plain, terminal_output

PROGRAM = """
import os, subprocess, sys, time
from pykafka_wire.cli.working import working
with working("starting Spark", with_spark=True) as progress:
    for text in ("WARNING: Using incubator modules: jdk.incubator.vector", "WARNING: chatter"):
        subprocess.run([sys.executable, "-c", f"import sys; print('{text}', file=sys.stderr)"])
    time.sleep(0.6)
    progress.show("comparing", done=lambda: 50, total=200)
    time.sleep(0.6)
    print("a result")
print("an error of ours", file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_bar_has_what_is_done_the_rate_and_the_time_left() -> None:
    text = f"{bar(50, 200, outlook(50, 200, 10.0))}"
    assert text == "━━━━━━──────────────────" + " 50 of 200 records, 10/s, 15s left"
    assert str(bar(200, 200, outlook(200, 200, 10.0))) == "━" * 24 + " 200 of 200 records"
    assert outlook(1, 10, 0.0) == "1 of 10 records"


def test_what_is_unknown_is_left_out() -> None:
    shown = Working()
    shown.show("comparing orders (1 of 3)")
    assert str(shown.drawn()) == "comparing orders (1 of 3) … 1s"
    shown.show("comparing", done=lambda: 1234)
    assert str(shown.drawn()) == "comparing … 1,234 records, 1s"


def test_tasks_of_spark_show_how_far_it_is() -> None:
    shown = Working()
    shown.show("comparing orders (1 of 3)", steps=lambda: Steps(n_records=1234, n_done=6, n_all=8))
    assert str(shown.drawn()) == "━" * 18 + "─" * 6 + " comparing orders (1 of 3): 1,234 records, 1s, 6 of 8 tasks"
    shown.show("comparing orders (1 of 3)", steps=lambda: Steps(0, 0, 0))
    assert str(shown.drawn()) == "─" * 24 + " comparing orders (1 of 3) … 1s"


def test_a_terminal_shows_what_is_done_and_nothing_that_spark_prints(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    seen = plain(terminal_output([str(file)], columns=80, command=sys.executable))
    assert "starting Spark … 1s" in seen and "━━━━━━────" in seen and "50 of 200 records" in seen
    assert "a result" in seen and seen.rstrip().endswith("an error of ours") and "chatter" not in seen


def test_a_warning_stands_above_the_activity_in_a_line_of_its_own(tmp_path: Path) -> None:
    """As the line that names a download."""
    file = tmp_path / "program.py"
    file.write_text(
        "import logging, time\nfrom pykafka_wire.cli.working import working\nwith working('starting the registry'):\n"
        "    time.sleep(0.6)\n    logging.getLogger('x').warning('downloading a jar')\n    time.sleep(0.6)\n"
    )
    seen = plain(terminal_output([str(file)], columns=80, command=sys.executable))
    assert any(line.strip() == "downloading a jar" for line in re.split(r"[\r\n]+", seen)), seen


def test_without_a_terminal_nothing_is_shown_and_only_what_is_no_news_is_kept_out() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "a result\n" and done.stderr == "WARNING: chatter\nan error of ours\n"


def test_what_is_no_news_is_left_out_of_a_log() -> None:
    program = """
import os, subprocess, sys
from pykafka_wire.cli.working import WithoutChatter
with WithoutChatter():
    os.write(2, b"WARNING: Using incubator modules: jdk.incubator.vector\\nERROR Executor: x\\n")
    os.write(2, b'Traceback (most recent call last):\\n  File ".../pyspark/daemon.py", line 1\\nBrokenPipeError: x\\nafter\\n')
    os.write(2, b'Traceback (most recent call last):\\n  File "own.py", line 1\\nValueError: kept\\n')
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])  # holds the other end, as Spark's processes do
    print("last", file=sys.stderr)
print("behind", file=sys.stderr)
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stderr == (
        "ERROR Executor: x\nafter\n"
        'Traceback (most recent call last):\n  File "own.py", line 1\nValueError: kept\nlast\nbehind\n'
    )
    assert time.monotonic() - started < 60


def test_what_spark_has_printed_stays_where_it_explains_an_error() -> None:
    with pytest.raises(ValueError, match="x"), SparkOutput("ingest a/b") as kept:
        os.write(2, b"a stack\n")
        raise ValueError("x")
    with pytest.raises(IngestError), SparkOutput("prove") as forgotten:
        os.write(2, b"a warning\n")
        raise IngestError("says itself why")
    assert kept.path.parent == log_folder() and kept.path.name.startswith("ingest-a-b-2")
    assert kept.path.read_text() == "a stack\n" and not forgotten.path.exists()


def test_the_newest_logs_stay_and_those_that_are_written_to() -> None:
    days = [f"ingest-202001{day}T000000Z-1.log" for day in range(10, 30)]
    with SparkOutput("ingest") as in_use:
        for name in days:
            (log_folder() / name).write_text("x")
        with SparkOutput("prove") as new:
            assert {log.name for log in log_folder().iterdir()} == {in_use.path.name, new.path.name, *days[-8:]}
            oldest = in_use.path.rename(log_folder() / "ingest-20200101T000000Z-1.log")
            with SparkOutput("query"):
                assert oldest.exists() and len(list(log_folder().iterdir())) == 11


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("state", ["/dev/null", "relative", ""])
def test_where_there_is_no_home_the_log_is_temporary(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setattr(Path, "home", no_home)
    with SparkOutput("ingest") as output:
        assert output.path.exists()
    assert not output.path.exists()


def test_a_file_that_a_user_names_may_be_locked_and_stays(tmp_path: Path) -> None:
    """As by ``flock FILE pykafka-wire ingest … --log-file FILE``."""
    file = tmp_path / "own.log"
    with file.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with SparkOutput("ingest", file):
            os.write(2, b"a line\n")
    assert file.read_text() == "a line\n"


def test_an_error_ends_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="x"), working("doing"):
        raise ValueError("x")
