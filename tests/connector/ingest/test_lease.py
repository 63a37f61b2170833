"""One process at a time runs the ingest of a checkpoint: real processes, and the lease's file as other hosts write it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.cli.app import commands
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.startup import lease
from pykafka_wire.ingest.startup.lease import FILE_NAME, CheckpointLease, Holder, check_free
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import examples

#: Takes the lease of a checkpoint, says so, and holds the lease until its standard input ends.
HOLD = """
import sys
from pykafka_wire.ingest.startup.lease import CheckpointLease
held = CheckpointLease.take(sys.argv[1], lambda: True)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(checkpoint: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(checkpoint)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def take(checkpoint: Path) -> CheckpointLease:
    taken = CheckpointLease.take(str(checkpoint), lambda: True)
    assert taken is not None
    return taken


def held_by(checkpoint: Path, named: str | None = None) -> Holder:
    """A lease's file as another host has written it, for the checkpoint of this name."""
    holder = replace(Holder.here(named or str(checkpoint)), host="elsewhere", machine="elsewhere")
    (checkpoint / FILE_NAME).write_text(json.dumps(asdict(holder)))
    return holder


def test_a_second_process_is_refused_at_once_and_may_start_when_the_first_was_killed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with holding(checkpoint) as first:
        begun = time.monotonic()
        for refused in (lambda: take(checkpoint), lambda: check_free(str(checkpoint))):
            with pytest.raises(IngestError, match=rf"running on host .* in process {first.pid}, started at 20.*: stop"):
                refused()
        assert time.monotonic() - begun < 5
        if Path("/proc").exists():  # killed, and nobody has waited for it
            first.kill()
            os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
            begun = time.monotonic()
            take(checkpoint).release()
            assert time.monotonic() - begun < 5
    begun = time.monotonic()
    check_free(str(checkpoint))
    take(checkpoint).release()
    assert time.monotonic() - begun < 5
    assert not (checkpoint / FILE_NAME).exists()


def test_one_checkpoint_has_one_lease_however_its_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, link, mount = tmp_path / "check point", tmp_path / "link", tmp_path / "mount"
    ways = [f"{checkpoint}/", f"file:{checkpoint}", checkpoint.as_uri(), f"{tmp_path}/x/../check point", str(link)]
    with holding(checkpoint) as first:
        (tmp_path / "x").mkdir()
        link.symlink_to(checkpoint)
        monkeypatch.chdir(tmp_path)
        for named in (*ways, "check point"):
            for refused in (partial(CheckpointLease.take, named, lambda: True), partial(check_free, named)):
                with pytest.raises(IngestError, match=rf"in process {first.pid},"):
                    refused()
        written = json.loads((checkpoint / FILE_NAME).read_text())
        (checkpoint / FILE_NAME).write_text(json.dumps({**written, "place": str(mount)}))
        with pytest.raises(IngestError, match=rf"in process {first.pid},"):
            take(checkpoint)


def test_a_process_that_ends_in_order_leaves_no_lease(tmp_path: Path) -> None:
    with holding(tmp_path) as first:
        first.communicate(timeout=30)  # ends its standard input
        assert first.returncode == 0
    assert not (tmp_path / FILE_NAME).exists()


def test_another_host_s_lease_is_over_when_nobody_renews_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "EXPIRES_AFTER_S", 1.5)
    held_by(tmp_path)
    begun = time.monotonic()
    take(tmp_path).release()
    assert time.monotonic() - begun >= 1.5


def test_another_host_s_lease_that_is_renewed_is_in_use(tmp_path: Path) -> None:
    holder = held_by(tmp_path)

    def renew() -> None:
        (tmp_path / FILE_NAME).write_text(json.dumps({**asdict(holder), "renewals": 1}))

    threading.Timer(1.0, renew).start()
    begun = time.monotonic()
    with pytest.raises(IngestError, match=r"running on host elsewhere in process"):
        take(tmp_path)
    assert time.monotonic() - begun < lease.EXPIRES_AFTER_S / 2


def test_a_copied_checkpoint_s_lease_is_the_original_s(tmp_path: Path) -> None:
    held_by(tmp_path, "/another/folder")
    begun = time.monotonic()
    take(tmp_path).release()
    assert time.monotonic() - begun < 5


def test_a_process_that_did_not_renew_in_time_learns_who_has_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.1)
    own = take(tmp_path)
    own.check()
    other = held_by(tmp_path)
    deadline = time.monotonic() + 10
    while not own.is_lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(IngestError, match="running on host elsewhere"):
        own.check()
    own.release()
    kept = Holder.from_json((tmp_path / FILE_NAME).read_text())
    assert kept is not None
    assert kept.id == other.id, "another one's lease stays"


def test_the_lease_ends_with_its_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.1)
    is_used = [True]
    taken = CheckpointLease.take(str(tmp_path), lambda: bool(is_used))
    assert taken is not None
    time.sleep(0.5)
    assert (tmp_path / FILE_NAME).exists()
    is_used.clear()
    deadline = time.monotonic() + 10
    while (tmp_path / FILE_NAME).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@examples(200)
@given(st.text(max_size=200) | st.just(json.dumps({"id": 1})) | st.just("[]") | st.just("null"))
def test_any_text_in_the_lease_s_file_is_a_holder_or_none(text: str) -> None:
    holder = Holder.from_json(text)
    assert holder is None or holder.id


def test_a_process_id_that_another_process_has_by_now_holds_nothing(tmp_path: Path) -> None:
    holder = replace(Holder.here(str(tmp_path)), process=os.getppid(), born="1")
    (tmp_path / FILE_NAME).write_text(json.dumps(asdict(holder)))
    take(tmp_path).release()


def test_a_second_ingest_on_one_checkpoint_names_the_first(shop: Shop) -> None:
    shop.create("rows")
    ingest = shop.ingest()
    with holding(shop.folder / "checkpoint") as first:
        for start in (lambda: ingest.start(shop.spark, once=True), lambda: ingest.checked_plan(on_this_machine=True)):
            with pytest.raises(IngestError, match=rf"in process {first.pid}, started at"):
                start()
    shop.run(ingest)
    ingest.close()
    assert not (shop.folder / "checkpoint" / FILE_NAME).exists()


@pytest.mark.broker
@pytest.mark.spark
def test_rejects_are_not_replayed_while_another_process_runs_the_ingest(shop: Shop) -> None:
    lake = shop.folder / "lake"
    replay = ["ingest", "-b", shop.outside.servers, "--topics", shop.prefix, "--into", str(lake), "--format", "json"]
    replay.append("--replay-rejects")
    with holding(lake / "_checkpoint") as first:
        refused = CliRunner().invoke(commands, replay)
    assert isinstance(refused.exception, IngestError), refused.output
    assert f"in process {first.pid}, started at" in str(refused.exception)
    replayed = CliRunner().invoke(commands, replay)
    assert replayed.exit_code == 0, replayed.output
    assert not (lake / "_checkpoint" / FILE_NAME).exists(), "the lease is free again"
