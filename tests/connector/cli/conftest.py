"""Runs command lines. Most run in this process, by the function that the installed script calls: a process of its own takes
half a second. What only a process shows (exit codes, signals, a terminal) is tried with the script."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pykafka_wire.cli.app import application

SCRIPT = Path(sys.executable).parent / "pykafka-wire"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("topics", "-b", servers, code=0, stdin="…")`; the exit code must be ``code``."""
    monkeypatch.delenv("PYKAFKA_WIRE_BOOTSTRAP", raising=False)

    def run(*arguments: str, code: int = 0, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.raises(SystemExit) as end,
        ):
            application(list(arguments))
        done = subprocess.CompletedProcess(list(arguments), int(end.value.code or 0), out.getvalue(), err.getvalue())
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
