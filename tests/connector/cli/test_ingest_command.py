"""``ingest`` as a process, and its table."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pykafka_wire.cli.ingest_init import settings_text, suggest
from pykafka_wire.cli.ingest_screen import tables_drawn
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.settings.settings_file import read_settings
from pykafka_wire.ingest_status import Activity, IngestStatus, Moment, PlannedRange, TableFigures, TableStatus, Trouble
from pykafka_wire.values.registry.address import Registry
from tests.connector.cli.conftest import SCRIPT, plain, terminal_output
from tests.connector.shown_code import ROOT
from tests.connector.values.scripted_registry import scripted_registry

#: Ends the wait for a process that does not go on.
DEADLINE_S = 180
NOW = Moment(1_700_000_000.0, 5000.0)


def watched(number: int, **changes: Any) -> TableStatus:
    """A table that is up to date, unless it is changed."""
    well: dict[str, Any] = {
        "rows": 12_345_678, "seconds": 10.0, "position": {0: 10}, "log_ends": {0: 10}, "moment": NOW, "complete_at": NOW.now - 3,
    }  # fmt: skip
    return TableStatus(topic=f"shop.topic-{number}", name=f"shop_topic_{number}", **{**well, **changes})


def trouble(reason: str, *, is_stopped: bool = True, again_s: float = 300.0) -> Trouble:
    """What a table is stopped by, or tried again after."""
    return Trouble(
        code="X", reason=reason, is_stopped=is_stopped, n_failures=1, since=NOW.now, next_attempt=NOW.now + again_s
    )


def drawn(tables: list[TableStatus], width: int, height: int = 24, *, is_summary: bool = False) -> list[str]:
    printed = io.StringIO()
    to = Console(file=printed, width=width, height=height, force_terminal=True, color_system=None)
    seen = IngestStatus(moment=NOW, activity=Activity.LANDING, tables=tables)
    to.print(tables_drawn(seen, to, is_summary=is_summary))
    return [line.rstrip() for line in printed.getvalue().splitlines()]


@pytest.mark.unit
@pytest.mark.parametrize("width", [80, 120])
def test_trouble_is_on_top_with_its_reason_below_and_no_figure_is_cut(width: int) -> None:
    reason = "[X] \x1b[2J the column a cannot be INT " + "and again " * 40
    schema_id = uuid.UUID("d1a2f3f4-0c7b-4f6e-9a51-3f6a4c1b2d3e")
    stopped = watched(2, trouble=trouble(reason), log_ends={0: 1_234_577}, schema_id=schema_id)
    planned = PlannedRange({0: 10}, {0: 110})
    landing = watched(3, planned=planned, n_done=45, rows_per_second=123_456.0, held_rejects=12_345, complete_at=None)
    lines = drawn([watched(1), landing, stopped], width)
    assert max(map(len, lines)) <= width
    assert lines[0].split()[0] == "table" and ("schema" in lines[0]) == (width == 120)
    assert "shop_topic_2" in lines[1] and "stopped" in lines[1] and "1,234,567" in lines[1]
    assert lines[2].startswith("  again in 5m 00s: [X] \\x1b[2J the column a cannot be INT") and lines[4].endswith("…")
    assert all(part in lines[5] for part in ("shop_topic_3", "landing 45%", "123,456", "12,345,678", "12,345"))
    assert "up to date" in lines[6] and "3s" in lines[6]
    assert sum("and again" in line for line in drawn([stopped], width, is_summary=True)) > 3  # the whole reason


@pytest.mark.unit
def test_a_table_that_is_tried_again_says_when() -> None:
    retrying = watched(1, trouble=trouble("[Y] the disk is full", is_stopped=False, again_s=34.0))
    assert drawn([retrying], 80)[2] == "  again in 34s: [Y] the disk is full"
    assert drawn([retrying], 80, is_summary=True)[2] == "  [Y] the disk is full"


@pytest.mark.unit
def test_sixty_tables_fit_on_a_screen() -> None:
    tables = [watched(number) for number in range(60)]
    lines = drawn([*tables, watched(60, log_ends={0: 15})], 80)
    assert len(lines) <= 24 and "behind" in lines[1]
    assert re.fullmatch(r"… (\d+) more: \1 up to date", lines[-1])
    assert len(drawn(tables, 80, is_summary=True)) == 61


@pytest.mark.unit
@pytest.mark.parametrize(("n_stopped", "n_lines"), [(3, 3), (5, 2), (40, 1)])
def test_the_more_tables_are_in_trouble_the_shorter_their_reasons_are(n_stopped: int, n_lines: int) -> None:
    reason = "[X] the column a cannot be INT " + "and again " * 40
    tables = [watched(number, trouble=trouble(reason)) for number in range(n_stopped)]
    tables += [watched(number) for number in range(n_stopped, 60)]
    lines = drawn(tables, 80)
    assert len(lines) <= 24 and lines[1].split()[:2] == ["shop_topic_0", "stopped"]
    assert [line.startswith("  ") for line in lines[2 : 3 + n_lines]] == [*[True] * n_lines, False]
    assert lines[1 + n_lines].endswith("…")
    shown = sum(" stopped " in line for line in lines)
    rest = [f"{n_stopped - shown} stopped, "] if shown < n_stopped else [""]
    assert f"more: {rest[0]}" in lines[-1] and lines[-1].endswith("up to date")
    summary = drawn(tables, 80, is_summary=True)
    assert "up to date" in summary[1] and summary[-1].startswith("  "), "what is wrong stays in sight"
    is_cut = n_stopped > 3
    assert summary[-1].endswith("…") is is_cut and (len(summary) == 61 + 3 * n_stopped) is is_cut


LOGGING = """
import logging, os, time
from pykafka_wire.cli.ingest_screen import IngestScreen
from pykafka_wire.ingest.settings.model import TABLE_STATE
log = logging.getLogger("pykafka_wire.ingest.landing.landing")
with IngestScreen("shop", is_quiet=False) as screen:
    screen.phase("starting Spark")
    for n in range(20):
        log.warning("Table t%d is tried again", n, extra={TABLE_STATE: f"t{n}"})
    log.warning("a \x1b[2J note that is no table's state")
    log.warning("another one " + "and again " * 40)
    os.write(2, b"chatter")
    time.sleep(0.6)
screen.summary()
"""


def test_states_of_tables_are_logged_to_a_file_and_other_warnings_shown_below_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "program.py"
    file.write_text(LOGGING)
    seen = plain(terminal_output([str(file)], columns=80, command=sys.executable))
    assert "is tried again" not in seen and "chatter" not in seen
    screen = seen.partition("a \\x1b[2J note")[0]
    assert "another one and again" in screen and "(and 1 more in " in screen and "note" not in screen
    (log,) = (tmp_path / "pykafka-wire").glob("*.log")
    for words in ("log:", "Log, with all warnings and reasons:"):
        assert f"{words} {log}" in seen.replace("\r\n", "")
    written = log.read_text()
    assert len(re.findall(r"^\d{4}-\d\d-\d\dT\S+Z WARNING Table t\d+ is tried again$", written, re.MULTILINE)) == 20
    assert "another one" in written and "chatter" in written
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert done.stderr.count("WARNING") == 2 and "is tried again" not in done.stderr, (
        "lines of standard output tell them"
    )


#: A first start: jars of an own folder as Maven's repository are downloaded while Spark starts, and nothing else is wrong.
DOWNLOADING = """
import logging, sys, time
from pykafka_wire.cli.ingest_screen import IngestScreen
from pykafka_wire.local.jars import Coordinate, JarResolutionError, resolve
with IngestScreen("shop", is_quiet=False) as screen:
    screen.phase("starting Spark")
    time.sleep(0.6)
    try:
        resolve("nothing", [Coordinate("no.such", "artifact", "1")], transitive=False)
    except JarResolutionError:
        pass
    screen.phase("opening the tables")
    time.sleep(0.6)
    screen.running()
    time.sleep(0.6)
screen.summary()
print("the log is", "kept" if screen.spark.is_kept else "deleted")
"""


def test_a_download_is_shown_while_it_delays_the_start_and_is_no_warning_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ivy = tmp_path / "ivysettings.xml"
    (tmp_path / "repository").mkdir()
    ivy.write_text(
        '<ivysettings><settings defaultResolver="own"/><resolvers>'
        f'<ibiblio name="own" m2compatible="true" root="file://{tmp_path}/repository"/></resolvers></ivysettings>'
    )
    for name, value in (
        ("XDG_STATE_HOME", "state"),
        ("PYKAFKA_WIRE_CACHE", "cache"),
        ("PYKAFKA_WIRE_IVY_SETTINGS", ivy.name),
    ):
        monkeypatch.setenv(name, str(tmp_path / value))
    file = tmp_path / "program.py"
    file.write_text(DOWNLOADING)
    seen = plain(terminal_output([str(file)], columns=100, command=sys.executable))
    before, _, after = seen.partition("opening the tables")
    assert "starting Spark" in before and "downloading no.such:artifact:1 from Maven Central" in before
    assert "downloading" not in after and "the log is deleted" in after, after


@pytest.mark.unit
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--plan", "--log-file", "x"), "--log-file needs a running ingest"),
        (("--ui", "0", "--ui-token", "a-token-of-ones-own"), "ui_token is the token itself: give env:NAME"),
    ],
    ids=["log file", "token"],
)
def test_options_that_would_do_nothing_or_harm_are_refused(more: tuple[str, ...], said: str, command: Any) -> None:
    assert said in command("ingest", "--topics", "a", "--into", "./lake", *more, code=2).stderr


@pytest.mark.unit
def test_a_micro_batch_counts_what_each_table_still_has_to_get() -> None:
    part = TopicRange(topic="t", topic_id="", start={0: 10, 1: 0}, end={0: 30, 1: 5})
    batch = MicroBatch(number=1, ranges={"t": part}, positions={"t": {0: 4}})
    planned = batch.planned("t", TableFigures())
    assert planned is not None and planned.n_offsets == 26 + 5
    assert [planned.landed(position) for position in (None, {0: 4}, {0: 30}, {0: 40, 1: 5})] == [0, 0, 26, 31]


#: A command where libraries are not installed.
WITHOUT_WRITERS = """
import sys
sys.modules |= dict.fromkeys(("deltalake", "pandas"))
from pykafka_wire.cli.app import application
application(sys.argv[1:])
"""


@pytest.mark.broker
def test_a_file_is_made_of_what_the_topics_have(
    kafka: Any, topic: Any, outside: Any, tmp_path: Path, command: Any
) -> None:
    prefix = f"init-{uuid.uuid4().hex[:8]}"
    events, users, changes, texts, history = (
        topic(1, {"cleanup.policy": "compact"} if each == "users" else None, name=f"{prefix}.{each}")
        for each in ("events", "users", "changes", "texts", "history")
    )
    change = b'{"source": {}, "position": {}, "databaseName": "s", "ddl": "DROP TABLE a", "tableChanges": []}'
    outside.produce(history, [outside.Record(value=change)])
    good = [outside.Record(value=b'{"n": 2}', key=b"c") for _ in range(9)]
    outside.produce(events, [outside.Record(value=b"{broken", key=b"b"), *good])
    outside.produce(users, [outside.Record(value=b'{"name": "x"}', key=b'{"id": 1}')])
    outside.produce(
        changes, [outside.Record(value=b'{"payload": {"op": "c", "after": {"id": 1}}}', key=b'{"payload": {"id": 1}}')]
    )
    outside.produce(texts, [outside.Record(value=b"plain", key=b"\xff\xfe")])
    file = tmp_path / "shop.toml"
    asked = [
        "ingest",
        "--init",
        str(file),
        "-b",
        kafka.bootstrap_servers,
        "--topics",
        rf"{prefix}\..*",
        "--into",
        str(tmp_path),
    ]
    said = command(*asked, "-X", "kafka.ssl.keystore.password=hush").stdout
    assert "4 topics, 2 append, 1 cdc, 1 upsert" in said
    assert "hush" not in file.read_text() and '"env:SSL_KEYSTORE_PASSWORD"' in file.read_text()
    assert f"# Debezium's own topics, not landed: {history}." in file.read_text()
    found = read_settings(file)
    assert [(each.mode, each.format, each.key_format) for each in map(found.table_for, (events, users, changes, texts))] == [
        ("append", "json", "string"), ("upsert", "json", "json"), ("cdc", "json", "json"), ("append", "string", "binary"),
    ]  # fmt: skip
    assert "the file exists" in command(*asked, code=1).stderr
    # Who writes nothing needs no library that writes.
    arguments = ["ingest", str(file), "--topics", rf"{prefix}\.(events|texts)", "--plan"]
    planned = subprocess.run([sys.executable, "-c", WITHOUT_WRITERS, *arguments], capture_output=True, text=True)
    assert planned.returncode == 0 and f"{texts} -> {tmp_path}/" in planned.stdout, planned
    assert "Install the missing libraries: pip install 'pykafka-wire[delta]'" in planned.stdout.splitlines()[-1]
    refused = subprocess.run([sys.executable, "-c", WITHOUT_WRITERS, *arguments[:-1]], capture_output=True, text=True)
    assert refused.returncode == 1 and "deltalake, for tasks" in refused.stderr, refused


@pytest.mark.broker
@pytest.mark.timeout(240)
@pytest.mark.long
def test_a_plan_fails_where_the_catalog_or_its_merge_fails(kafka: Any, topic: Any, tmp_path: Path) -> None:
    """What would stop every table at the start is an error of the plan, too."""
    name = topic(1)
    keys = ', mode = "upsert", key_format = "json", key_schema = "id INT"'

    def planned(catalog: Path, code: int, more: str = "") -> str:
        file = tmp_path / "shop.toml"
        file.write_text(
            f'checkpoint = "{tmp_path}/c"\ntopics = "{name}"\ninto = "lake.shop"\ntable_format = "iceberg"\n'
            f'catalog = {{ type = "sql", uri = "sqlite:///{catalog}", warehouse = "file://{tmp_path}/lake" }}\n'
            f'kafka = {{ "bootstrap.servers" = "{kafka.bootstrap_servers}" }}\ndefaults = {{ format = "json"{more} }}\n'
        )
        done = subprocess.run([SCRIPT, "ingest", file, "--plan"], capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done
        return done.stdout

    assert "the first start begins at earliest." in planned(tmp_path / "catalog.db", 0)
    away = planned(tmp_path / "nothing" / "catalog.db", 1)
    assert "Before it can run here: the Iceberg catalog lake does not respond" in away
    without = planned(tmp_path / "catalog.db", 1, keys)
    assert "Before it can run here: mode upsert needs MERGE" in without and "has no catalog lake" in without
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metadata").write_text('{"id": "a-query"}')
    assert planned(tmp_path / "catalog.db", 0).endswith("; the next start continues where the tables end.\n")


@pytest.mark.unit
def test_keys_of_the_registry_are_no_bytes_where_most_keys_are_json(tmp_path: Path) -> None:
    avro = {"id": 1, "version": 1, "schema": '{"type": "record", "name": "Key", "fields": []}'}
    answers = {"/subjects/a-key/versions/latest": avro, "/subjects/a-value/versions/latest": avro}
    json_keys, framed = [b'{"id": 1}'], [b"\0\0\0\0\1\2"]
    with scripted_registry(answers) as url:
        found = [
            suggest(name, keys, values, is_compacted=True, registry=Registry(url))
            for name, keys, values in (
                ("j1", json_keys, json_keys),
                ("j2", json_keys, json_keys),
                ("a", framed, framed),
                ("b", [b"\xff"], json_keys),
            )
        ]
    given = {
        "checkpoint": "/c",
        "topics": ".*",
        "into": "/lake",
        "registry": "http://user:hush@r",
        "registry_options": {"basic.auth.credentials.source": "URL"},
        "starting_offsets": "latest",
        "ui": "8080",
        "kafka": {"bootstrap.servers": "b:1"},
    }
    file = tmp_path / "init.toml"
    file.write_text(settings_text(given, found, []))
    settings = read_settings(file)
    assert (settings.registry, settings.registry_options) == (
        "http://r", {"basic.auth.user.info": "env:BASIC_AUTH_USER_INFO"}
    )  # fmt: skip
    assert (settings.starting_offsets, settings.ui) == ("latest", "8080")
    assert [settings.table_for(name).key_format for name in ("j1", "a", "b")] == ["json", "avro", "binary"]


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
    assert f"{number.name}: ending after the running micro-batch" in err and "Traceback" not in err
    micro_batches = re.findall(r"^\S+Z micro-batch \d+: (\d+) rows? in ", out, re.MULTILINE)
    ended = rf"^Ended after the running micro-batch, by {number.name}: ([\d,]+) rows landed"
    (rows,) = re.findall(ended, out, re.MULTILINE)
    assert 0 < int(rows.replace(",", "")) < 2000 and int(rows.replace(",", "")) % 10 == 0
    assert "10" in micro_batches


@pytest.mark.long
@pytest.mark.timeout(1200)  # four starts of Spark
def test_the_guide_for_a_newcomer_is_right_command_by_command(
    kafka: Any, outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the installation and the cluster, which are the tests' own."""
    monkeypatch.setenv("PYKAFKA_WIRE_BOOTSTRAP", kafka.bootstrap_servers)
    monkeypatch.setenv("PATH", f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}")
    # Other tests of this broker have shops, too.
    shop = f"s{uuid.uuid4().hex[:8]}"
    text = (ROOT / "docs" / "first-ingest.md").read_text(encoding="utf-8")
    text = text.replace("shop.orders", f"{shop}.orders").replace("shop.customers", f"{shop}.customers")
    text = text.replace("shop\\.", f"{shop}\\.").replace("shop_", f"{shop}_")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    table, widen = [block for kind, block in blocks if kind == "toml"]
    (replayed,) = [block for kind, block in blocks if not kind]
    settings = tmp_path / "shop.toml"

    def run(command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    try:
        commands = [line for kind, block in blocks if kind == "sh" for line in block.splitlines()]
        assert commands[:2] == ["pip install 'pykafka-wire[delta,values,cli,ui]' duckdb", "pykafka-wire cluster"]
        *_, verify, again = commands
        create, customers, orders, init, plan, land, total, bad, reasons, replay = commands[2:-2]
        assert land == again
        for command in (create, customers, orders, init):
            run(command)
        settings.write_text(settings.read_text(encoding="utf-8") + table, encoding="utf-8")
        assert "`id` INT" in run(plan) or "id INT" in run(plan)
        with subprocess.Popen(
            shlex.split(land.replace("8080", "0")), cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as ingest:
            try:
                assert ingest.stdout is not None
                page = next(line.split("page: ")[1].strip() for line in ingest.stdout if "page: " in line)
                wait_for(lambda: [each["rows"] for each in tables(page)] == [2, 2])
                assert run(total).split() == ["name", "total", "Ann", "9.5", "Bob", "20.0"]
                run(bad)
                wait_for(lambda: sum(each["held_rejects"] for each in tables(page)) == 2)
                ingest.send_signal(signal.SIGINT)
                ingest.communicate(timeout=DEADLINE_S)
            finally:
                ingest.kill()
        assert ingest.returncode == 0
        assert sorted(line.split()[-1] for line in run(reasons).splitlines()[1:]) == ["1", "1"]
        settings.write_text(settings.read_text(encoding="utf-8").replace("id INT", "id BIGINT"), encoding="utf-8")
        assert "deltalake 1.6, DuckDB through it, and Polars 2.1 refuse the table" in run(plan)
        settings.write_text(settings.read_text(encoding="utf-8") + widen, encoding="utf-8")
        assert "all rows of the table are written again" in run(plan)
        assert run(replay) == replayed
        engine = total.replace("query ", "query --engine duckdb ")
        assert run(engine).split() == ["name", "total", "Ann", "14.5", "Bob", "20.0"]
        assert run(verify).count("each there once") == 2
    finally:
        for name in ("orders", "customers"):
            outside.delete(f"{shop}.{name}")


def tables(page: str) -> list[Any]:
    """The tables that a page shows."""
    with urllib.request.urlopen(f"{page}api/tables", timeout=30) as response:
        found: list[Any] = json.load(response)["tables"]
    return found


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.suppress(OSError):  # 503: there is nothing to show yet
            if is_so():
                return
        assert time.monotonic() < until
        time.sleep(0.5)
