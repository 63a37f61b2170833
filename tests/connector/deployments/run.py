"""Runs tests/connector/deployments/program.py as a user would, and compares what it has found."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("program.py")
#: Records that each part of the program must find.
EXPECTED = {"batch": 100, "at-least-once": 100, "exactly-once": 100, "through the tasks": 100}


def environment_of(python: Path | str, **more: str) -> dict[str, str]:
    """As after activating the environment of ``python``, with no setting of Spark's inherited."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    path = os.pathsep.join([str(Path(python).parent), kept["PATH"]])
    return {**kept, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run(command: Sequence[str | Path], *, timeout_s: int = 300, **more: Any) -> str:
    """What a command prints; its standard error, too, where it fails."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, check=False, **more
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


def environment_with(folder: Path, *requirements: str) -> Path:
    """The Python of a new environment with packages of the package index, which takes a minute."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", *requirements], timeout_s=1200)
    return python


def check_program(
    command: Sequence[str | Path],
    way: str,
    wheel: Path,
    kafka: Any,
    topic: Callable[..., str],
    folder: Path,
    environment: dict[str, str],
    *,
    n_parts: int = len(EXPECTED),
) -> None:
    """Run the program's first parts by ``command`` (Python or spark-submit) on topics of its own: they must find all records."""
    topics = [topic(2) for _ in range(n_parts)]
    printed = run(
        [*command, PROGRAM, way, wheel, kafka.bootstrap_servers, folder, *topics], cwd=folder, env=environment
    )
    (result,) = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    assert json.loads(result.removeprefix("RESULT ")) == dict(list(EXPECTED.items())[:n_parts])
